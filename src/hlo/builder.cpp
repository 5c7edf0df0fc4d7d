#include "hlo/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "hlo/infer.h"
#include "hlo/literal.h"

namespace tpu::hlo {
namespace {

using Values = Builder::Values;
using Regions = std::vector<std::unique_ptr<Block>>;

Regions regions(std::unique_ptr<Block> a, std::unique_ptr<Block> b = nullptr) {
  Regions all;
  all.push_back(std::move(a));
  if (b) all.push_back(std::move(b));
  return all;
}

bool is_identity(const Dims& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

bool is_all(const Dims& list, int64_t v) {
  return std::ranges::all_of(list, [v](int64_t x) { return x == v; });
}

DenseInts ones_if_empty(const Dims& list, int64_t rank) {
  return {list.empty() ? Dims(static_cast<size_t>(rank), 1) : list};
}

Raw int32(int64_t v) { return {cat(v, " : i32")}; }

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

std::vector<Type> scalar_types(const Values& values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back({v.dtype(), {}});
  return types;
}

const Type kScalarBool{DType::kBool, {}};

constexpr const char* kDirections[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};
constexpr const char* kFftKinds[] = {"FFT", "IFFT", "RFFT", "IRFFT"};
constexpr const char* kRngAlgorithms[] = {"DEFAULT", "THREE_FRY", "PHILOX"};

}  // namespace

// ---- Instructions and regions ----

const Type& Builder::in(Op user, Value v) const {
  const bool ours = v.id >= 0 && v.id < f_.value_count() && f_.value(v.id).type_ptr == v.type_ptr;
  TPU_CHECK(ours, ErrorKind::kInternal, user,
            " has an operand that is no value of this function; check that an optional tensor is there");
  TPU_CHECK(v.id >= first_visible_, ErrorKind::kInternal, "the body of a reduction, sort or scatter ",
            "uses the outside value %", v.id, " in ", user, "; make constants inside the body");
  if (!closed_.empty()) {
    auto after = std::ranges::upper_bound(closed_, v.id, {}, &std::pair<int32_t, int32_t>::first);
    TPU_CHECK(after == closed_.begin() || v.id >= std::prev(after)->second, ErrorKind::kInternal, user,
              " uses %", v.id, " of a region that has ended; return it from the region");
  }
  return *v.type_ptr;
}

std::vector<const Type*> Builder::in(Op user, const Values& values) const {
  std::vector<const Type*> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back(&in(user, v));
  return types;
}

Value Builder::emit(Op op, const Values& operands, Type result, Attributes attributes) {
  Instruction i;
  i.op = op;
  i.operands.reserve(operands.size());
  for (const Value& v : operands) i.operands.push_back(v.id);
  const Value out = f_.make_value(std::move(result));
  i.results.push_back(out.id);
  i.attributes = std::move(attributes);
  i.location = location_;
  block_->body.push_back(std::move(i));
  return out;
}

Values Builder::emit_multi(Op op, const Values& operands, std::vector<Type> results,
                           Attributes attributes, Regions regions) {
  Instruction i;
  i.op = op;
  for (const Value& v : operands) i.operands.push_back(v.id);
  Values out;
  out.reserve(results.size());
  for (Type& t : results) {
    out.push_back(f_.make_value(std::move(t)));
    i.results.push_back(out.back().id);
  }
  i.attributes = std::move(attributes);
  i.regions = std::move(regions);
  i.location = location_;
  block_->body.push_back(std::move(i));
  return out;
}

std::unique_ptr<Block> Builder::region(const std::vector<Type>& arguments, const Region& body,
                                       std::vector<Type>* result_types, Capture capture) {
  auto block = std::make_unique<Block>();
  const int32_t first = f_.value_count();
  // Restores the builder when the body throws, too.
  struct Scope {
    Builder& b;
    Block* block;
    int32_t first_visible;
    ~Scope() {
      b.block_ = block;
      b.first_visible_ = first_visible;
    }
  };
  {
    const Scope scope{*this, block_, first_visible_};
    block_ = block.get();
    if (capture == Capture::kForbidden) first_visible_ = first;
    Values args;
    args.reserve(arguments.size());
    for (const Type& t : arguments) {
      args.push_back(f_.make_value(t));
      block->arguments.push_back(args.back().id);
    }
    for (const Value& v : body(args)) {
      const Type& t = in(Op::kReturn, v);
      block->returns.push_back(v.id);
      if (result_types != nullptr) result_types->push_back(t);
    }
  }
  while (!closed_.empty() && closed_.back().first >= first) closed_.pop_back();
  closed_.emplace_back(first, f_.value_count());
  return block;
}

std::unique_ptr<Block> Builder::binary_region(Op of, DType t, Op op) {
  const Type scalar{t, {}};
  std::vector<Type> results;
  auto block = region(
      {scalar, scalar}, [&](const Values& a) { return Values{binary(op, a[0], a[1])}; }, &results,
      Capture::kForbidden);
  infer::region_results(of, "body", results, {scalar});
  return block;
}

std::unique_ptr<Block> Builder::reduction_region(Op of, const Values& values, const Region& body) {
  const std::vector<Type> scalars = scalar_types(values);
  std::vector<Type> arguments = scalars, results;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  auto block = region(arguments, body, &results, Capture::kForbidden);
  infer::region_results(of, "body", results, scalars);
  return block;
}

Value Builder::parameter(Type t) {
  TPU_CHECK(block_ == &f_.entry(), ErrorKind::kInternal,
            "a parameter is made inside a region; make it at function level");
  const Value v = f_.make_value(std::move(t));
  block_->arguments.push_back(v.id);
  return v;
}

void Builder::finish(const Values& results) {
  TPU_CHECK(block_ == &f_.entry(), ErrorKind::kInternal,
            "a function is finished inside a region; finish it at function level");
  block_->returns.clear();
  for (const Value& v : results) {
    in(Op::kReturn, v);
    block_->returns.push_back(v.id);
  }
}

void Builder::set_location(std::string text) {
  location_ = text.empty() ? -1 : f_.add_location(std::move(text));
}

// ---- Constants ----

Value Builder::constant(DType t, double v) { return splat({t, {}}, v); }
Value Builder::constant(DType t, int64_t v) { return splat({t, {}}, v); }

Value Builder::constant(DType t, std::complex<double> v) {
  Type type{t, {}};
  Raw text{dense(type, {{to_element(t, v)}})};
  return emit(Op::kConstant, {}, std::move(type), {{"value", std::move(text)}});
}

Value Builder::splat(Type t, double v) {
  Raw text{dense(t, {{to_element(t.dtype, v)}})};
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::splat(Type t, int64_t v) {
  Raw text{dense(t, {{to_element(t.dtype, v)}})};
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

namespace {

template <class T>
Raw constant_text(std::span<const T> values, const Type& t) {
  TPU_CHECK(static_cast<int64_t>(values.size()) == t.numel(), "a constant of type ", t, " needs ",
            t.numel(), " values, got ", values.size(), "; give one for each element");
  std::vector<Element> elements;
  elements.reserve(values.size());
  for (const T v : values) elements.push_back(to_element(t.dtype, v));
  return {dense(t, elements)};
}

}  // namespace

Value Builder::constant_ints(std::span<const int64_t> values, Type t) {
  Raw text = constant_text(values, t);
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::constant_floats(std::span<const double> values, Type t) {
  Raw text = constant_text(values, t);
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::iota(Type t, int64_t dim) {
  return emit(Op::kIota, {}, infer::iota(std::move(t), dim), {{"iota_dimension", dim}});
}

Value Builder::min_value(DType t) {
  TPU_CHECK(!is_complex(t), t, " has no smallest value; use its real or imaginary part");
  if (is_integral(t)) return constant(t, integer_min(t));
  if (t == DType::kF8E8M0FNU) return constant(t, 0x1p-127);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const bool has_inf = std::isinf(bits_to_double(t, float_to_bits(t, kInf)));
  return constant(t, has_inf ? -kInf : -float_max(t));
}

Value Builder::max_value(DType t) {
  TPU_CHECK(!is_complex(t), t, " has no largest value; use its real or imaginary part");
  if (is_integral(t)) return constant(t, integer_max(t));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const bool has_inf = std::isinf(bits_to_double(t, float_to_bits(t, kInf)));
  return constant(t, has_inf ? kInf : float_max(t));
}

// ---- Elementwise ----

Value Builder::unary(Op op, Value x) { return emit(op, {x}, infer::unary(op, in(op, x))); }

Value Builder::binary(Op op, Value a, Value b) {
  return emit(op, {a, b}, infer::binary(op, in(op, a), in(op, b)));
}

Value Builder::compare(Cmp c, Value a, Value b, bool total_order) {
  Type result = infer::compare(c, in(Op::kCompare, a), in(Op::kCompare, b), total_order);
  const DType t = a.dtype();
  const char* kind = "SIGNED";
  if (is_float(t) || is_complex(t)) {
    kind = total_order ? "TOTALORDER" : "FLOAT";
  } else if (!is_signed_integer(t)) {
    kind = "UNSIGNED";
  }
  const char* direction = kDirections[static_cast<size_t>(c)];
  return emit(Op::kCompare, {a, b}, std::move(result),
              {{"comparison_direction", Raw{cat("#stablehlo<comparison_direction ", direction, ">")}},
               {"compare_type", Raw{cat("#stablehlo<comparison_type ", kind, ">")}}});
}

Value Builder::select(Value pred, Value on_true, Value on_false) {
  constexpr Op kOp = Op::kSelect;
  return emit(kOp, {pred, on_true, on_false},
              infer::select(in(kOp, pred), in(kOp, on_true), in(kOp, on_false)));
}

Value Builder::clamp(Value low, Value x, Value high) {
  constexpr Op kOp = Op::kClamp;
  return emit(kOp, {low, x, high}, infer::clamp(in(kOp, low), in(kOp, x), in(kOp, high)));
}

Value Builder::convert(Value x, DType t) {
  const Type& from = in(Op::kConvert, x);
  if (from.dtype == t) return x;
  return emit(Op::kConvert, {x}, infer::convert(from, t));
}

Value Builder::bitcast_convert(Value x, Type to) {
  const Type& from = in(Op::kBitcastConvert, x);
  if (from == to) return x;
  return emit(Op::kBitcastConvert, {x}, infer::bitcast_convert(from, std::move(to)));
}

Value Builder::complex(Value real, Value imag) {
  constexpr Op kOp = Op::kComplex;
  return emit(kOp, {real, imag}, infer::complex(in(kOp, real), in(kOp, imag)));
}

Value Builder::real(Value x) {
  Type result = infer::real_or_imag(in(Op::kReal, x));
  if (result == x.type()) return x;
  return emit(Op::kReal, {x}, std::move(result));
}

Value Builder::imag(Value x) { return emit(Op::kImag, {x}, infer::real_or_imag(in(Op::kImag, x))); }

Value Builder::is_finite(Value x) {
  return emit(Op::kIsFinite, {x}, infer::is_finite(in(Op::kIsFinite, x)));
}

Value Builder::reduce_precision(Value x, int64_t exponent_bits, int64_t mantissa_bits) {
  constexpr Op kOp = Op::kReducePrecision;
  return emit(kOp, {x}, infer::reduce_precision(in(kOp, x), exponent_bits, mantissa_bits),
              {{"exponent_bits", int32(exponent_bits)}, {"mantissa_bits", int32(mantissa_bits)}});
}

// ---- Shape ----

Value Builder::broadcast_in_dim(Value x, Dims dims, const Dims& broadcast_dims) {
  constexpr Op kOp = Op::kBroadcastInDim;
  Type result = infer::broadcast_in_dim(in(kOp, x), std::move(dims), broadcast_dims);
  if (result == x.type() && is_identity(broadcast_dims)) return x;
  return emit(kOp, {x}, std::move(result), {{"broadcast_dimensions", DenseInts{broadcast_dims}}});
}

Value Builder::reshape(Value x, Dims dims) {
  Type result = infer::reshape(in(Op::kReshape, x), std::move(dims));
  if (result == x.type()) return x;
  return emit(Op::kReshape, {x}, std::move(result));
}

Value Builder::transpose(Value x, const Dims& permutation) {
  Type result = infer::transpose(in(Op::kTranspose, x), permutation);
  if (is_identity(permutation)) return x;
  return emit(Op::kTranspose, {x}, std::move(result), {{"permutation", DenseInts{permutation}}});
}

Value Builder::reverse(Value x, const Dims& dims) {
  Type result = infer::reverse(in(Op::kReverse, x), dims);
  if (dims.empty()) return x;
  return emit(Op::kReverse, {x}, std::move(result), {{"dimensions", DenseInts{dims}}});
}

Value Builder::slice(Value x, const Dims& starts, const Dims& limits, const Dims& strides) {
  Type result = infer::slice(in(Op::kSlice, x), starts, limits, strides);
  if (result == x.type()) return x;
  return emit(Op::kSlice, {x}, std::move(result),
              {{"start_indices", DenseInts{starts}},
               {"limit_indices", DenseInts{limits}},
               {"strides", ones_if_empty(strides, x.rank())}});
}

Value Builder::slice_dim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  const Type& t = in(Op::kSlice, x);
  TPU_CHECK(dim >= 0 && dim < t.rank(), Op::kSlice, " has dimension ", dim, ", out of range for rank ",
            t.rank(), "; use 0 to ", t.rank() - 1);
  Dims starts(t.dims.size(), 0), limits = t.dims, strides(t.dims.size(), 1);
  const auto axis = static_cast<size_t>(dim);
  starts[axis] = start;
  limits[axis] = limit;
  strides[axis] = stride;
  return slice(x, starts, limits, strides);
}

Value Builder::dynamic_slice(Value x, const Values& starts, const Dims& sizes) {
  constexpr Op kOp = Op::kDynamicSlice;
  Type result = infer::dynamic_slice(in(kOp, x), in(kOp, starts), sizes);
  // Starts are clamped so that the slice fits, which leaves only 0 here.
  if (result == x.type()) return x;
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit(kOp, operands, std::move(result), {{"slice_sizes", DenseInts{sizes}}});
}

Value Builder::dynamic_update_slice(Value x, Value update, const Values& starts) {
  constexpr Op kOp = Op::kDynamicUpdateSlice;
  Type result = infer::dynamic_update_slice(in(kOp, x), in(kOp, update), in(kOp, starts));
  if (result == update.type()) return update;
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit(kOp, operands, std::move(result));
}

Value Builder::pad(Value x, Value value, const Dims& low, const Dims& high, const Dims& interior) {
  Type result = infer::pad(in(Op::kPad, x), in(Op::kPad, value), low, high, interior);
  if (is_all(low, 0) && is_all(high, 0) && result == x.type()) return x;
  return emit(Op::kPad, {x, value}, std::move(result),
              {{"edge_padding_low", DenseInts{low}},
               {"edge_padding_high", DenseInts{high}},
               {"interior_padding", DenseInts{interior.empty() ? Dims(low.size(), 0) : interior}}});
}

Value Builder::concatenate(const Values& values, int64_t dim) {
  Type result = infer::concatenate(in(Op::kConcatenate, values), dim);
  if (values.size() == 1) return values[0];
  return emit(Op::kConcatenate, values, std::move(result), {{"dimension", dim}});
}

// ---- Contraction ----

Value Builder::dot_general(Value a, Value b, const DotDims& d, Precision p, DType result) {
  constexpr Op kOp = Op::kDotGeneral;
  Type type = infer::dot_general(in(kOp, a), in(kOp, b), d, result);
  std::string numbers = "#stablehlo.dot<";
  append_list(numbers, "lhs_batching_dimensions", d.lhs_batch);
  append_list(numbers, "rhs_batching_dimensions", d.rhs_batch);
  numbers += cat("lhs_contracting_dimensions = ", d.lhs_contract,
                 ", rhs_contracting_dimensions = ", d.rhs_contract, ">");
  Attributes attributes{{"dot_dimension_numbers", Raw{std::move(numbers)}}};
  append_precision(attributes, p);
  return emit(kOp, {a, b}, std::move(type), std::move(attributes));
}

Value Builder::convolution(Value lhs, Value rhs, const ConvDims& d, const ConvWindow& w, Precision p,
                           DType result) {
  constexpr Op kOp = Op::kConvolution;
  Type type = infer::convolution(in(kOp, lhs), in(kOp, rhs), d, w, result);
  Attributes attributes{
      {"dimension_numbers",
       Raw{cat("#stablehlo.conv<",
               conv_side('b', d.input_batch, 'f', d.input_feature, d.input_spatial), "x",
               conv_side('i', d.kernel_input_feature, 'o', d.kernel_output_feature, d.kernel_spatial),
               "->", conv_side('b', d.output_batch, 'f', d.output_feature, d.output_spatial), ">")}},
      {"feature_group_count", w.feature_groups},
      {"batch_group_count", w.batch_groups},
  };
  if (!is_all(w.strides, 1)) attributes.emplace_back("window_strides", DenseInts{w.strides});
  if (!is_all(w.pad_low, 0) || !is_all(w.pad_high, 0)) {
    attributes.emplace_back("padding", padding_text(w.pad_low, w.pad_high));
  }
  if (!is_all(w.lhs_dilation, 1)) attributes.emplace_back("lhs_dilation", DenseInts{w.lhs_dilation});
  if (!is_all(w.rhs_dilation, 1)) attributes.emplace_back("rhs_dilation", DenseInts{w.rhs_dilation});
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
  const Region body = [&](const Values& a) {
    return Values{op ? binary(*op, a[0], a[1]) : a[1]};
  };
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
  TPU_CHECK(p == kScalarBool, kOp, " needs a rank-0 bool condition, got ", p, "; compare and reshape it");
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
  const Values out = emit_multi(kOp, {state}, {state.type(), std::move(bits)},
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

Value Builder::collective_permute(Value x,
                                  const std::vector<std::pair<int64_t, int64_t>>& source_target_pairs,
                                  int64_t channel) {
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
