// Contractions, ops with regions, linear algebra, control, collectives.
#include <algorithm>

#include "base/error.h"
#include "hlo/builder.h"
#include "hlo/infer.h"
#include "hlo/literal.h"

namespace tpu::hlo {
namespace {

using Values = Builder::Values;
using Regions = std::vector<std::unique_ptr<Block>>;

bool is_all(const Dims& list, int64_t v) {
  return std::ranges::all_of(list, [v](int64_t x) { return x == v; });
}

Raw int32(int64_t v) { return {cat(v, " : i32")}; }

Regions regions(std::unique_ptr<Block> a, std::unique_ptr<Block> b = nullptr) {
  Regions all;
  all.push_back(std::move(a));
  if (b) all.push_back(std::move(b));
  return all;
}

// dense<[[a, b], ...]> : tensor<Nx2xi64>
Raw pairs_text(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  std::vector<Element> elements;
  for (const auto& [a, b] : pairs) {
    elements.push_back({static_cast<uint64_t>(a)});
    elements.push_back({static_cast<uint64_t>(b)});
  }
  return {dense({DType::kI64, {static_cast<int64_t>(pairs.size()), 2}}, elements)};
}

Raw padding_text(const Dims& low, const Dims& high) {
  std::vector<std::pair<int64_t, int64_t>> pairs;
  const size_t count = std::max(low.size(), high.size());
  for (size_t i = 0; i < count; ++i) {
    pairs.emplace_back(low.empty() ? 0 : low[i], high.empty() ? 0 : high[i]);
  }
  return pairs_text(pairs);
}

// One name = [list] entry of a dimension-numbers attribute; empty lists are left out.
void append_list(std::string& out, std::string_view name, const Dims& list) {
  if (list.empty()) return;
  out += name;
  out += " = ";
  out += cat(list);
  out += ", ";
}

void append_precision(Builder::Attributes& attributes, Precision p) {
  if (p == Precision::kDefault) return;
  const char* text = p == Precision::kHigh
                         ? "[#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]"
                         : "[#stablehlo<precision HIGHEST>, #stablehlo<precision HIGHEST>]";
  attributes.emplace_back("precision_config", Raw{text});
}

// [b, f, 0, 1] with the letters at their positions.
std::string conv_side(char first, int64_t first_at, char second, int64_t second_at,
                      const Dims& spatial) {
  std::vector<std::string> labels(spatial.size() + 2);
  labels[static_cast<size_t>(first_at)] = first;
  labels[static_cast<size_t>(second_at)] = second;
  for (size_t i = 0; i < spatial.size(); ++i) labels[static_cast<size_t>(spatial[i])] = cat(i);
  return cat(labels);
}

void append_window(Builder::Attributes& attributes, const ReduceWindow& w) {
  attributes.emplace_back("window_dimensions", DenseInts{w.sizes});
  if (!is_all(w.strides, 1)) attributes.emplace_back("window_strides", DenseInts{w.strides});
  if (!is_all(w.base_dilation, 1)) {
    attributes.emplace_back("base_dilations", DenseInts{w.base_dilation});
  }
  if (!is_all(w.window_dilation, 1)) {
    attributes.emplace_back("window_dilations", DenseInts{w.window_dilation});
  }
  if (!is_all(w.pad_low, 0) || !is_all(w.pad_high, 0)) {
    attributes.emplace_back("padding", padding_text(w.pad_low, w.pad_high));
  }
}

void append_channel(Builder::Attributes& attributes, int64_t channel) {
  if (channel == 0) return;
  attributes.emplace_back("channel_handle",
                          Raw{cat("#stablehlo.channel_handle<handle = ", channel, ", type = 1>")});
}

Builder::Attributes group_attributes(const Groups& groups, bool has_global_ids) {
  std::vector<Element> ids;
  for (const Dims& g : groups.members) {
    for (const int64_t id : g) ids.push_back({static_cast<uint64_t>(id)});
  }
  const Type type{DType::kI64, {static_cast<int64_t>(groups.members.size()), groups.group_size()}};
  Builder::Attributes attributes{{"replica_groups", Raw{dense(type, ids)}}};
  append_channel(attributes, groups.channel);
  if (has_global_ids && groups.channel > 0) {
    attributes.emplace_back("use_global_device_ids", Raw{"unit"});
  }
  return attributes;
}

std::vector<Type> types_of(const Values& values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back(v.type());
  return types;
}

const Type kScalarBool{DType::kBool, {}};

// What a product of (batches of) matrices may read instead of `v`: the operand of a transpose in
// `block` that swaps the last two dims. -1 if `v` is something else.
int32_t unswapped(const Block& block, Value v, const Dims& batch, const Dims& contract) {
  const auto batches = static_cast<int64_t>(batch.size());
  if (v.rank() != batches + 2 || contract.size() != 1) return -1;
  for (int64_t i = 0; i < batches; ++i) {
    if (batch[static_cast<size_t>(i)] != i) return -1;
  }
  // Numbers of values grow along a block.
  for (auto it = block.body.rbegin(); it != block.body.rend(); ++it) {
    if (it->results.empty() || it->results[0] > v.id) continue;
    if (it->results[0] < v.id || it->op != Op::kTranspose) return -1;
    Dims order = std::get<DenseInts>(it->attributes[0].second).values;
    std::swap(order[order.size() - 2], order.back());
    return std::is_sorted(order.begin(), order.end()) ? it->operands[0] : -1;
  }
  return -1;
}

constexpr const char* kFftKinds[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
constexpr const char* kRngAlgorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};

}  // namespace

// ---- Contraction ----

Value Builder::dot_general(Value a, Value b, const DotDims& dims, Precision p, DType result) {
  constexpr Op kOp = Op::kDotGeneral;
  Type type = infer::dot_general(in(kOp, a), in(kOp, b), dims, result);
  // XLA's CPU compiler makes a product of a vector and a transposed matrix a loop that is 10 times
  // slower than the same product over the matrix's other dim.
  DotDims d = dims;
  const auto read_through = [&](Value v, const Dims& batch, Dims& contract) {
    const int32_t id = unswapped(*block_, v, batch, contract);
    if (id < 0) return v;
    contract[0] = 2 * v.rank() - 3 - contract[0];
    return f_.value(id);
  };
  a = read_through(a, d.lhs_batch, d.lhs_contract);
  b = read_through(b, d.rhs_batch, d.rhs_contract);
  std::string numbers = "#stablehlo.dot<";
  append_list(numbers, "lhs_batching_dimensions", d.lhs_batch);
  append_list(numbers, "rhs_batching_dimensions", d.rhs_batch);
  numbers += cat("lhs_contracting_dimensions = ", d.lhs_contract,
                 ", rhs_contracting_dimensions = ", d.rhs_contract, ">");
  Attributes attributes{{"dot_dimension_numbers", Raw{std::move(numbers)}}};
  append_precision(attributes, p);
  return emit(kOp, {a, b}, std::move(type), std::move(attributes));
}

Value Builder::convolution(Value lhs, Value rhs, const ConvDims& d, const ConvWindow& w,
                           Precision p, DType result) {
  constexpr Op kOp = Op::kConvolution;
  Type type = infer::convolution(in(kOp, lhs), in(kOp, rhs), d, w, result);
  Attributes attributes{
      {"dimension_numbers",
       Raw{cat(
           "#stablehlo.conv<", conv_side('b', d.input_batch, 'f', d.input_feature, d.input_spatial),
           "x",
           conv_side('i', d.kernel_input_feature, 'o', d.kernel_output_feature, d.kernel_spatial),
           "->", conv_side('b', d.output_batch, 'f', d.output_feature, d.output_spatial), ">")}},
      {"feature_group_count", w.feature_groups},
      {"batch_group_count", w.batch_groups},
  };
  if (!is_all(w.strides, 1)) attributes.emplace_back("window_strides", DenseInts{w.strides});
  if (!is_all(w.pad_low, 0) || !is_all(w.pad_high, 0)) {
    attributes.emplace_back("padding", padding_text(w.pad_low, w.pad_high));
  }
  if (!is_all(w.lhs_dilation, 1))
    attributes.emplace_back("lhs_dilation", DenseInts{w.lhs_dilation});
  if (!is_all(w.rhs_dilation, 1))
    attributes.emplace_back("rhs_dilation", DenseInts{w.rhs_dilation});
  if (std::ranges::find(w.reversal, true) != w.reversal.end()) {
    attributes.emplace_back("window_reversal", Raw{cat("array<i1: ", join(w.reversal), ">")});
  }
  append_precision(attributes, p);
  return emit(kOp, {lhs, rhs}, std::move(type), std::move(attributes));
}

// ---- Ops with regions ----

Values Builder::reduce(const Values& inputs, const Values& inits, const Dims& dims,
                       const Region& body) {
  constexpr Op kOp = Op::kReduce;
  std::vector<Type> results = infer::reduce(in(kOp, inputs), in(kOp, inits), dims);
  Values operands = inputs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  return emit_multi(kOp, operands, std::move(results), {{"dimensions", DenseInts{dims}}},
                    regions(reduction_region(kOp, inputs, body)));
}

Value Builder::reduce(Value x, Value init, const Dims& dims, Op op) {
  return reduce({x}, {init}, dims,
                [&](const Values& a) { return Values{binary(op, a[0], a[1])}; })[0];
}

Values Builder::reduce_window(const Values& inputs, const Values& inits, const ReduceWindow& w,
                              const Region& body) {
  constexpr Op kOp = Op::kReduceWindow;
  std::vector<Type> results = infer::reduce_window(in(kOp, inputs), in(kOp, inits), w);
  Values operands = inputs;
  operands.insert(operands.end(), inits.begin(), inits.end());
  Attributes attributes;
  append_window(attributes, w);
  return emit_multi(kOp, operands, std::move(results), std::move(attributes),
                    regions(reduction_region(kOp, inputs, body)));
}

Value Builder::reduce_window(Value x, Value init, const ReduceWindow& w, Op op) {
  return reduce_window({x}, {init}, w,
                       [&](const Values& a) { return Values{binary(op, a[0], a[1])}; })[0];
}

Value Builder::select_and_scatter(Value x, Value source, Value init, const ReduceWindow& w,
                                  Cmp select, Op scatter) {
  constexpr Op kOp = Op::kSelectAndScatter;
  Type result = infer::select_and_scatter(in(kOp, x), in(kOp, source), in(kOp, init), w);
  Attributes attributes;
  append_window(attributes, w);
  const Type scalar{x.dtype(), {}};
  auto chooser = region(
      {scalar, scalar}, [&](const Values& a) { return Values{compare(select, a[0], a[1])}; },
      nullptr, Capture::kForbidden);
  auto adder = binary_region(kOp, x.dtype(), scatter);
  return emit_multi(kOp, {x, source, init}, {std::move(result)}, std::move(attributes),
                    regions(std::move(chooser), std::move(adder)))[0];
}

Values Builder::sort(const Values& inputs, int64_t dim, bool stable, const Region& comparator) {
  constexpr Op kOp = Op::kSort;
  std::vector<Type> results = infer::sort(in(kOp, inputs), dim);
  std::vector<Type> arguments, order;
  for (const Value& v : inputs) arguments.insert(arguments.end(), 2, Type{v.dtype(), {}});
  auto block = region(arguments, comparator, &order, Capture::kForbidden);
  infer::region_results(kOp, "comparator", order, {kScalarBool});
  return emit_multi(kOp, inputs, std::move(results), {{"dimension", dim}, {"is_stable", stable}},
                    regions(std::move(block)));
}

Value Builder::gather(Value x, Value indices, const GatherDims& d, const Dims& slice_sizes,
                      bool sorted) {
  constexpr Op kOp = Op::kGather;
  Type result = infer::gather(in(kOp, x), in(kOp, indices), d, slice_sizes);
  std::string numbers = "#stablehlo.gather<";
  append_list(numbers, "offset_dims", d.offset_dims);
  append_list(numbers, "collapsed_slice_dims", d.collapsed_slice_dims);
  append_list(numbers, "operand_batching_dims", d.operand_batching_dims);
  append_list(numbers, "start_indices_batching_dims", d.start_indices_batching_dims);
  append_list(numbers, "start_index_map", d.start_index_map);
  numbers += cat("index_vector_dim = ", d.index_vector_dim, ">");
  return emit(kOp, {x, indices}, std::move(result),
              {{"dimension_numbers", Raw{std::move(numbers)}},
               {"slice_sizes", DenseInts{slice_sizes}},
               {"indices_are_sorted", sorted}});
}

Values Builder::scatter(const Values& inputs, Value indices, const Values& updates,
                        const ScatterDims& d, const Region& body, bool sorted, bool unique) {
  constexpr Op kOp = Op::kScatter;
  std::vector<Type> results =
      infer::scatter(in(kOp, inputs), in(kOp, indices), in(kOp, updates), d);
  std::string numbers = "#stablehlo.scatter<";
  append_list(numbers, "update_window_dims", d.update_window_dims);
  append_list(numbers, "inserted_window_dims", d.inserted_window_dims);
  append_list(numbers, "input_batching_dims", d.input_batching_dims);
  append_list(numbers, "scatter_indices_batching_dims", d.scatter_indices_batching_dims);
  append_list(numbers, "scatter_dims_to_operand_dims", d.scatter_dims_to_operand_dims);
  numbers += cat("index_vector_dim = ", d.index_vector_dim, ">");
  Values operands = inputs;
  operands.push_back(indices);
  operands.insert(operands.end(), updates.begin(), updates.end());
  return emit_multi(kOp, operands, std::move(results),
                    {{"scatter_dimension_numbers", Raw{std::move(numbers)}},
                     {"indices_are_sorted", sorted},
                     {"unique_indices", unique}},
                    regions(reduction_region(kOp, inputs, body)));
}

Value Builder::scatter(Value x, Value indices, Value updates, const ScatterDims& d,
                       std::optional<Op> op, bool sorted, bool unique) {
  const Region body = [&](const Values& a) { return Values{op ? binary(*op, a[0], a[1]) : a[1]}; };
  return scatter({x}, indices, {updates}, d, body, sorted, unique)[0];
}

Values Builder::while_loop(const Values& init, const Region& cond, const Region& body) {
  constexpr Op kOp = Op::kWhile;
  in(kOp, init);
  std::vector<Type> types = types_of(init), cond_types, body_types;
  auto cond_block = region(types, cond, &cond_types, Capture::kAllowed);
  infer::region_results(kOp, "condition", cond_types, {kScalarBool});
  auto body_block = region(types, body, &body_types, Capture::kAllowed);
  infer::region_results(kOp, "body", body_types, types);
  return emit_multi(kOp, init, std::move(types), {},
                    regions(std::move(cond_block), std::move(body_block)));
}

Values Builder::if_else(Value pred, const Region& on_true, const Region& on_false) {
  constexpr Op kOp = Op::kIf;
  const Type& p = in(kOp, pred);
  TPU_CHECK(p == kScalarBool, kOp, " needs a rank-0 bool condition, got ", p,
            "; compare and reshape it");
  std::vector<Type> types, other;
  auto then_block = region({}, on_true, &types, Capture::kAllowed);
  auto else_block = region({}, on_false, &other, Capture::kAllowed);
  infer::region_results(kOp, "else branch", other, types);
  return emit_multi(kOp, {pred}, std::move(types), {},
                    regions(std::move(then_block), std::move(else_block)));
}

Values Builder::switch_case(Value index, const std::vector<Region>& branches) {
  constexpr Op kOp = Op::kCase;
  const Type& i = in(kOp, index);
  TPU_CHECK(i == (Type{DType::kI32, {}}), kOp, " needs a rank-0 int32 index, got ", i,
            "; convert and reshape it");
  TPU_CHECK(!branches.empty(), kOp, " needs at least one branch; give it one");
  std::vector<Type> types;
  Regions blocks;
  for (const Region& branch : branches) {
    std::vector<Type> results;
    blocks.push_back(region({}, branch, &results, Capture::kAllowed));
    if (blocks.size() == 1) {
      types = std::move(results);
    } else {
      infer::region_results(kOp, "branch", results, types);
    }
  }
  return emit_multi(kOp, {index}, std::move(types), {}, std::move(blocks));
}

Values Builder::top_k(Value x, int64_t k) {
  return emit_multi(Op::kTopK, {x}, infer::top_k(in(Op::kTopK, x), k), {{"k", k}}, {});
}

// ---- Linear algebra, FFT, random ----

Value Builder::cholesky(Value a, bool lower) {
  return emit(Op::kCholesky, {a}, infer::cholesky(in(Op::kCholesky, a)), {{"lower", lower}});
}

Value Builder::triangular_solve(Value a, Value b, bool left, bool lower, bool unit_diagonal,
                                char transpose) {
  constexpr Op kOp = Op::kTriangularSolve;
  Type result = infer::triangular_solve(in(kOp, a), in(kOp, b), left, transpose);
  const char* form = transpose == 'N' ? "NO_TRANSPOSE" : transpose == 'T' ? "TRANSPOSE" : "ADJOINT";
  return emit(kOp, {a, b}, std::move(result),
              {{"left_side", left},
               {"lower", lower},
               {"unit_diagonal", unit_diagonal},
               {"transpose_a", Raw{cat("#stablehlo<transpose ", form, ">")}}});
}

Value Builder::fft(Value x, FftKind kind, const Dims& lengths) {
  const char* name = kFftKinds[static_cast<size_t>(kind)];
  return emit(Op::kFft, {x}, infer::fft(in(Op::kFft, x), kind, lengths),
              {{"fft_type", Raw{cat("#stablehlo<fft_type ", name, ">")}},
               {"fft_length", DenseInts{lengths}}});
}

std::pair<Value, Value> Builder::rng_bit_generator(RngAlgorithm a, Value state, Type t) {
  constexpr Op kOp = Op::kRngBitGenerator;
  Type bits = infer::rng_bit_generator(a, in(kOp, state), std::move(t));
  const char* name = kRngAlgorithms[static_cast<size_t>(a)];
  const Values out =
      emit_multi(kOp, {state}, {state.type(), std::move(bits)},
                 {{"rng_algorithm", Raw{cat("#stablehlo<rng_algorithm ", name, ">")}}}, {});
  return {out[0], out[1]};
}

// ---- Escape and control ----

Values Builder::custom_call(std::string_view target, const Values& operands,
                            const std::vector<Type>& results, std::string backend_config_text,
                            bool has_side_effect, int api_version, Attributes more) {
  in(Op::kCustomCall, operands);
  TPU_CHECK(!target.empty(), Op::kCustomCall, " has no target; name one");
  Attributes attributes{{"call_target_name", std::string(target)},
                        {"api_version", int32(api_version)},
                        {"has_side_effect", has_side_effect}};
  constexpr int kTypedFfi = 4;
  if (!backend_config_text.empty()) {
    if (api_version == kTypedFfi) {
      attributes.emplace_back("backend_config", Raw{std::move(backend_config_text)});
    } else {
      attributes.emplace_back("backend_config", std::move(backend_config_text));
    }
  }
  std::ranges::move(more, std::back_inserter(attributes));
  return emit_multi(Op::kCustomCall, operands, results, std::move(attributes), {});
}

Values Builder::optimization_barrier(const Values& values) {
  in(Op::kOptimizationBarrier, values);
  return emit_multi(Op::kOptimizationBarrier, values, types_of(values), {}, {});
}

// ---- Collectives ----

Value Builder::all_gather(Value x, int64_t dim, const Groups& groups) {
  Type result = infer::all_gather(in(Op::kAllGather, x), dim, groups);
  Attributes attributes = group_attributes(groups, true);
  attributes.emplace_back("all_gather_dim", dim);
  return emit(Op::kAllGather, {x}, std::move(result), std::move(attributes));
}

Value Builder::all_reduce(Value x, Op op, const Groups& groups) {
  const Type& t = in(Op::kAllReduce, x);
  infer::replica_groups(Op::kAllReduce, groups);
  return emit_multi(Op::kAllReduce, {x}, {t}, group_attributes(groups, true),
                    regions(binary_region(Op::kAllReduce, t.dtype, op)))[0];
}

Value Builder::reduce_scatter(Value x, int64_t dim, Op op, const Groups& groups) {
  constexpr Op kOp = Op::kReduceScatter;
  Type result = infer::reduce_scatter(in(kOp, x), dim, groups);
  Attributes attributes = group_attributes(groups, true);
  attributes.emplace_back("scatter_dimension", dim);
  return emit_multi(kOp, {x}, {std::move(result)}, std::move(attributes),
                    regions(binary_region(kOp, x.dtype(), op)))[0];
}

Value Builder::all_to_all(Value x, int64_t split_dim, int64_t concat_dim, const Groups& groups) {
  constexpr Op kOp = Op::kAllToAll;
  Type result = infer::all_to_all(in(kOp, x), split_dim, concat_dim, groups);
  Attributes attributes = group_attributes(groups, false);
  attributes.emplace_back("split_dimension", split_dim);
  attributes.emplace_back("concat_dimension", concat_dim);
  attributes.emplace_back("split_count", groups.group_size());
  return emit(kOp, {x}, std::move(result), std::move(attributes));
}

Value Builder::collective_permute(
    Value x, const std::vector<std::pair<int64_t, int64_t>>& source_target_pairs, int64_t channel) {
  constexpr Op kOp = Op::kCollectivePermute;
  const Type& t = in(kOp, x);
  infer::source_target_pairs(source_target_pairs);
  Attributes attributes{{"source_target_pairs", pairs_text(source_target_pairs)}};
  append_channel(attributes, channel);
  return emit(kOp, {x}, t, std::move(attributes));
}

Value Builder::replica_id() { return emit(Op::kReplicaId, {}, {DType::kU32, {}}); }
Value Builder::partition_id() { return emit(Op::kPartitionId, {}, {DType::kU32, {}}); }

}  // namespace tpu::hlo
