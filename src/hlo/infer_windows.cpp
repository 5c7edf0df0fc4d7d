// Contractions, windows, indexing, regions and collectives.
#include <algorithm>

#include "hlo/infer.h"
#include "hlo/infer_checks.h"

namespace tpu::hlo::infer {
namespace {

std::string plural(size_t n, std::string_view noun) { return cat(n, " ", noun, n == 1 ? "" : "s"); }

Dims joined(Dims a, const Dims& b) {
  a.insert(a.end(), b.begin(), b.end());
  return a;
}

int64_t dim(const Type& t, int64_t axis) { return t.dims[static_cast<size_t>(axis)]; }

// Products may be accumulated in a wider type of the same class, never in another class.
void check_result_dtype(Op op, DType operand, DType result) {
  const bool same_class = is_float(operand) == is_float(result) &&
                          is_complex(operand) == is_complex(result) &&
                          is_bool(operand) == is_bool(result);
  TPU_CHECK(same_class && size_bytes(result) >= size_bytes(operand), op, " of ", operand,
            " cannot give ", result, "; convert the operands or the result");
}

// reduce_window (C15), convolution (C25), select_and_scatter (C2): how often a window fits.
int64_t window_count(Op op, int64_t size, int64_t low, int64_t high, int64_t base_dilation,
                     int64_t window, int64_t window_dilation, int64_t stride) {
  const auto dilated = [](int64_t n, int64_t by) -> __int128 {
    return n == 0 ? 0 : static_cast<__int128>(n - 1) * by + 1;
  };
  const __int128 padded = dilated(size, base_dilation) + low + high;
  const __int128 span = dilated(window, window_dilation);
  if (padded <= 0 || span > padded) return 0;
  return to_size(op, (padded - span) / stride + 1);
}

// shape(padding) = [rank, 2], one entry each for strides and dilations, all above zero.
void check_window(Op op, size_t rank, const Dims& strides, const Dims& low, const Dims& high,
                  const Dims& base_dilation, const Dims& window_dilation) {
  const std::pair<std::string_view, const Dims&> lists[] = {
      {"window strides", strides},
      {"base dilations", base_dilation},
      {"window dilations", window_dilation},
  };
  for (const auto& [what, list] : lists) {
    if (!list.empty()) check_length(op, what, list, rank);
    check_positive(op, what, list);
  }
  if (!low.empty()) check_length(op, "low paddings", low, rank);
  if (!high.empty()) check_length(op, "high paddings", high, rank);
}

// reduce (C1-C3), reduce_window (C1-C3).
void check_reduction(Op op, const TypeRefs& inputs, const TypeRefs& inits) {
  TPU_CHECK(!inputs.empty() && inputs.size() == inits.size(), op, " has ",
            plural(inputs.size(), "operand"), " and ", plural(inits.size(), "initial value"),
            "; give one for each");
  for (size_t i = 0; i < inputs.size(); ++i) {
    TPU_CHECK(inputs[i]->dims == inputs[0]->dims, op, " needs operands of equal sizes, got ",
              *inputs[0], " and ", *inputs[i], "; broadcast one of them");
    TPU_CHECK(inits[i]->rank() == 0 && inits[i]->dtype == inputs[i]->dtype, op,
              " needs a rank-0 initial value of ", inputs[i]->dtype, ", got ", *inits[i],
              "; convert it");
  }
}

// sizes of `t` without the given axes
Dims without(const Dims& dims, const Dims& axes) {
  Dims rest;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (!contains(axes, static_cast<int64_t>(i))) rest.push_back(dims[i]);
  }
  return rest;
}

}  // namespace

// dot_general (C1-C10, C12-C13).
Type dot_general(const Type& a, const Type& b, const DotDims& d, DType result) {
  constexpr Op kOp = Op::kDotGeneral;
  check_same_dtype(kOp, "operands", a.dtype, b.dtype);
  check_result_dtype(kOp, a.dtype, result);
  TPU_CHECK(d.lhs_batch.size() == d.rhs_batch.size(), kOp, " has batch dimensions ", d.lhs_batch,
            " and ", d.rhs_batch, "; pair each with one of the other operand");
  TPU_CHECK(d.lhs_contract.size() == d.rhs_contract.size(), kOp, " contracts dimensions ",
            d.lhs_contract, " with ", d.rhs_contract, "; pair each with one of the other operand");
  const Dims lhs = joined(d.lhs_batch, d.lhs_contract), rhs = joined(d.rhs_batch, d.rhs_contract);
  check_unique(kOp, "left dimensions", lhs);
  check_unique(kOp, "right dimensions", rhs);
  check_axes(kOp, "left dimensions", lhs, a.rank());
  check_axes(kOp, "right dimensions", rhs, b.rank());
  for (size_t i = 0; i < lhs.size(); ++i) {
    TPU_CHECK(dim(a, lhs[i]) == dim(b, rhs[i]),
              i < d.lhs_batch.size() ? "batch sizes differ: " : "inner sizes differ: ",
              dim(a, lhs[i]), " and ", dim(b, rhs[i]), " (operands ", a, " and ", b,
              "); transpose one operand or check its shape");
  }
  Type out{result, {}};
  for (const int64_t i : d.lhs_batch) out.dims.push_back(dim(a, i));
  out.dims = joined(std::move(out.dims), without(a.dims, lhs));
  out.dims = joined(std::move(out.dims), without(b.dims, rhs));
  return out;
}

// convolution (C1-C23, C25-C27).
Type convolution(const Type& lhs, const Type& rhs, const ConvDims& d, const ConvWindow& w,
                 DType result) {
  constexpr Op kOp = Op::kConvolution;
  check_same_dtype(kOp, "input and kernel", lhs.dtype, rhs.dtype);
  check_result_dtype(kOp, lhs.dtype, result);
  TPU_CHECK(lhs.rank() >= 2 && lhs.rank() == rhs.rank(), kOp,
            " needs input and kernel of one rank, got ", lhs, " and ", rhs,
            "; add or remove dimensions");
  const size_t spatial = lhs.dims.size() - 2;
  const auto check_numbers = [&](std::string_view what, int64_t p, int64_t q, const Dims& rest) {
    check_length(kOp, what, rest, spatial);
    const Dims all = joined({p, q}, rest);
    check_unique(kOp, what, all);
    check_axes(kOp, what, all, lhs.rank());
  };
  check_numbers("input dimensions", d.input_batch, d.input_feature, d.input_spatial);
  check_numbers("kernel dimensions", d.kernel_input_feature, d.kernel_output_feature,
                d.kernel_spatial);
  check_numbers("output dimensions", d.output_batch, d.output_feature, d.output_spatial);
  check_window(kOp, spatial, w.strides, w.pad_low, w.pad_high, w.lhs_dilation, w.rhs_dilation);
  TPU_CHECK(w.reversal.empty() || w.reversal.size() == spatial, kOp, " needs ", spatial,
            " window reversals, got ", w.reversal.size(), "; give one for each spatial dimension");

  const int64_t batch = dim(lhs, d.input_batch), features = dim(lhs, d.input_feature);
  const int64_t kernel_in = dim(rhs, d.kernel_input_feature);
  const int64_t kernel_out = dim(rhs, d.kernel_output_feature);
  TPU_CHECK(
      w.feature_groups > 0 && w.batch_groups > 0 && (w.feature_groups == 1 || w.batch_groups == 1),
      kOp, " has ", w.feature_groups, " feature groups and ", w.batch_groups,
      " batch groups; one of them must be 1, the other positive");
  TPU_CHECK(batch % w.batch_groups == 0 && kernel_out % w.batch_groups == 0, "batch ", batch,
            " and output channels ", kernel_out, " do not divide by ", w.batch_groups,
            " batch groups; change the group count");
  TPU_CHECK(features % w.feature_groups == 0 && kernel_out % w.feature_groups == 0,
            "input channels ", features, " and output channels ", kernel_out, " do not divide by ",
            w.feature_groups, " groups; change the group count");
  TPU_CHECK(kernel_in == features / w.feature_groups, "the kernel takes ", kernel_in,
            " input channels, the input has ", features, " in ", w.feature_groups,
            " groups; check the kernel's shape");

  Type out{result, Dims(lhs.dims.size())};
  out.dims[static_cast<size_t>(d.output_batch)] = batch / w.batch_groups;
  out.dims[static_cast<size_t>(d.output_feature)] = kernel_out;
  for (size_t i = 0; i < spatial; ++i) {
    out.dims[static_cast<size_t>(d.output_spatial[i])] = window_count(
        kOp, dim(lhs, d.input_spatial[i]), at_or(w.pad_low, i, 0), at_or(w.pad_high, i, 0),
        at_or(w.lhs_dilation, i, 1), dim(rhs, d.kernel_spatial[i]), at_or(w.rhs_dilation, i, 1),
        at_or(w.strides, i, 1));
  }
  return out;
}

// reduce (C1-C5, C7-C8).
std::vector<Type> reduce(const TypeRefs& inputs, const TypeRefs& inits, const Dims& dims) {
  check_reduction(Op::kReduce, inputs, inits);
  check_axes(Op::kReduce, "dimensions", dims, inputs[0]->rank());
  check_unique(Op::kReduce, "dimensions", dims);
  const Dims rest = without(inputs[0]->dims, dims);
  std::vector<Type> results;
  results.reserve(inputs.size());
  for (const Type* t : inputs) results.push_back({t->dtype, rest});
  return results;
}

// reduce_window (C1-C12, C14-C16).
std::vector<Type> reduce_window(const TypeRefs& inputs, const TypeRefs& inits,
                                const ReduceWindow& w) {
  constexpr Op kOp = Op::kReduceWindow;
  check_reduction(kOp, inputs, inits);
  const Dims& sizes = inputs[0]->dims;
  check_length(kOp, "window sizes", w.sizes, sizes.size());
  check_positive(kOp, "window sizes", w.sizes);
  check_window(kOp, sizes.size(), w.strides, w.pad_low, w.pad_high, w.base_dilation,
               w.window_dilation);
  Dims counts(sizes.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    counts[i] = window_count(kOp, sizes[i], at_or(w.pad_low, i, 0), at_or(w.pad_high, i, 0),
                             at_or(w.base_dilation, i, 1), w.sizes[i],
                             at_or(w.window_dilation, i, 1), at_or(w.strides, i, 1));
  }
  std::vector<Type> results;
  for (const Type* t : inputs) results.push_back({t->dtype, counts});
  return results;
}

// select_and_scatter (C1-C8, C11-C12).
Type select_and_scatter(const Type& x, const Type& source, const Type& init,
                        const ReduceWindow& w) {
  constexpr Op kOp = Op::kSelectAndScatter;
  TPU_CHECK(w.base_dilation.empty() && w.window_dilation.empty(), kOp,
            " has no dilations; dilate the operand first");
  const Type windows = reduce_window({&x}, {&init}, w)[0];
  TPU_CHECK(source == windows, kOp, " needs one source element for each window, ", windows,
            ", got ", source, "; check the window");
  return x;
}

// sort (C1-C4).
std::vector<Type> sort(const TypeRefs& inputs, int64_t dim) {
  constexpr Op kOp = Op::kSort;
  TPU_CHECK(!inputs.empty(), kOp, " needs at least one operand; give it one");
  check_axes(kOp, "dimension", {dim}, inputs[0]->rank());
  std::vector<Type> results;
  for (const Type* t : inputs) {
    TPU_CHECK(t->dims == inputs[0]->dims, kOp, " needs operands of equal sizes, got ", *inputs[0],
              " and ", *t, "; broadcast one of them");
    results.push_back(*t);
  }
  return results;
}

// chlo.top_k: values and their positions in the last dimension.
std::vector<Type> top_k(const Type& x, int64_t k) {
  TPU_CHECK(x.rank() > 0 && !is_complex(x.dtype), Op::kTopK,
            " needs real numbers and a dimension to search, got ", x, "; reshape or convert it");
  TPU_CHECK(k >= 0 && k <= x.dims.back(), Op::kTopK, " takes ", k, " of ", x.dims.back(),
            " elements; use 0 to ", x.dims.back());
  Type values = x;
  values.dims.back() = k;
  Type indices{DType::kI32, values.dims};
  return {std::move(values), std::move(indices)};
}

namespace {

// What gather and scatter share: how an index vector picks a position of `x`.
struct IndexNumbers {
  const Dims& window_dims;   // offset_dims, update_window_dims
  const Dims& dropped_dims;  // collapsed_slice_dims, inserted_window_dims
  const Dims& operand_batch;
  const Dims& index_batch;
  const Dims& index_map;  // start_index_map, scatter_dims_to_operand_dims
  int64_t index_vector_dim;
};

// gather (C1-C8, C10-C11, C13-C19), scatter (C2, C7-C22).
void check_index_numbers(Op op, const Type& x, const Type& indices, const IndexNumbers& n) {
  TPU_CHECK(is_integer(indices.dtype), op, " needs integer indices, got ", indices,
            "; convert them");
  TPU_CHECK(x.dims.size() == n.window_dims.size() + n.dropped_dims.size() + n.operand_batch.size(),
            op, " names ", n.window_dims.size() + n.dropped_dims.size() + n.operand_batch.size(),
            " dimensions (window ", n.window_dims, ", dropped ", n.dropped_dims, ", batch ",
            n.operand_batch, ") of an operand of rank ", x.rank(), "; name each once");
  TPU_CHECK(n.index_vector_dim >= 0 && n.index_vector_dim <= indices.rank(), op,
            " has index vectors in dimension ", n.index_vector_dim, " of ", indices, "; use 0 to ",
            indices.rank());
  const int64_t length = n.index_vector_dim < indices.rank() ? dim(indices, n.index_vector_dim) : 1;
  TPU_CHECK(static_cast<int64_t>(n.index_map.size()) == length, op,
            " maps index vectors of length ", length, " to dimensions ", n.index_map,
            "; give one for each entry");
  check_unique(op, "window dimensions", n.window_dims);
  check_sorted(op, "window dimensions", n.window_dims);
  check_unique(op, "dropped and batch dimensions", joined(n.dropped_dims, n.operand_batch));
  check_sorted(op, "dropped dimensions", n.dropped_dims);
  check_axes(op, "dropped dimensions", n.dropped_dims, x.rank());
  check_sorted(op, "operand batch dimensions", n.operand_batch);
  check_axes(op, "operand batch dimensions", n.operand_batch, x.rank());
  check_unique(op, "index batch dimensions", n.index_batch);
  check_axes(op, "index batch dimensions", n.index_batch, indices.rank());
  TPU_CHECK(!contains(n.index_batch, n.index_vector_dim), op, " uses dimension ",
            n.index_vector_dim, " of the indices as vector and as batch; choose one");
  TPU_CHECK(n.operand_batch.size() == n.index_batch.size(), op, " has batch dimensions ",
            n.operand_batch, " and ", n.index_batch, "; pair each with one of the other");
  for (size_t i = 0; i < n.operand_batch.size(); ++i) {
    TPU_CHECK(dim(x, n.operand_batch[i]) == dim(indices, n.index_batch[i]), op, " has batch sizes ",
              dim(x, n.operand_batch[i]), " and ", dim(indices, n.index_batch[i]),
              "; broadcast the indices");
  }
  check_unique(op, "mapped and batch dimensions", joined(n.index_map, n.operand_batch));
  check_axes(op, "mapped dimensions", n.index_map, x.rank());
}

// `window` at the axes window_dims, the sizes of the index batch at the others.
Dims combine(const Type& indices, int64_t index_vector_dim, const Dims& window,
             const Dims& window_dims) {
  const Dims batch = without(indices.dims, {index_vector_dim});
  Dims out(batch.size() + window.size());
  size_t next_batch = 0, next_window = 0;
  for (size_t i = 0; i < out.size(); ++i) {
    out[i] = contains(window_dims, static_cast<int64_t>(i)) ? window[next_window++]
                                                            : batch[next_batch++];
  }
  return out;
}

}  // namespace

// gather (C1-C23).
Type gather(const Type& x, const Type& indices, const GatherDims& d, const Dims& slice_sizes) {
  constexpr Op kOp = Op::kGather;
  check_index_numbers(kOp, x, indices,
                      {d.offset_dims, d.collapsed_slice_dims, d.operand_batching_dims,
                       d.start_indices_batching_dims, d.start_index_map, d.index_vector_dim});
  check_length(kOp, "slice sizes", slice_sizes, x.dims.size());
  const Dims dropped = joined(d.collapsed_slice_dims, d.operand_batching_dims);
  for (size_t i = 0; i < slice_sizes.size(); ++i) {
    const bool one = contains(dropped, static_cast<int64_t>(i));
    TPU_CHECK(0 <= slice_sizes[i] && slice_sizes[i] <= x.dims[i] && !(one && slice_sizes[i] > 1),
              kOp, " takes slices of ", slice_sizes[i], " in dimension ", i, " of size ", x.dims[i],
              "; use 0 to ", one ? std::min<int64_t>(1, x.dims[i]) : x.dims[i]);
  }
  const Dims window = without(slice_sizes, dropped);
  const int64_t batch_rank = indices.rank() - (d.index_vector_dim < indices.rank() ? 1 : 0);
  check_axes(kOp, "window dimensions", d.offset_dims,
             batch_rank + static_cast<int64_t>(window.size()));
  return {x.dtype, combine(indices, d.index_vector_dim, window, d.offset_dims)};
}

// scatter (C1-C22, C24-C25).
std::vector<Type> scatter(const TypeRefs& inputs, const Type& indices, const TypeRefs& updates,
                          const ScatterDims& d) {
  constexpr Op kOp = Op::kScatter;
  TPU_CHECK(!inputs.empty() && inputs.size() == updates.size(), kOp, " has ",
            plural(inputs.size(), "operand"), " and ", plural(updates.size(), "update"),
            "; give one for each");
  const Type& x = *inputs[0];
  check_index_numbers(
      kOp, x, indices,
      {d.update_window_dims, d.inserted_window_dims, d.input_batching_dims,
       d.scatter_indices_batching_dims, d.scatter_dims_to_operand_dims, d.index_vector_dim});
  const Type& update = *updates[0];
  check_axes(kOp, "window dimensions", d.update_window_dims, update.rank());
  Dims window;
  for (const int64_t i : d.update_window_dims) window.push_back(dim(update, i));
  const Dims limits = without(x.dims, joined(d.inserted_window_dims, d.input_batching_dims));
  for (size_t i = 0; i < window.size(); ++i) {
    TPU_CHECK(window[i] <= limits[i], kOp, " writes windows of sizes ", window,
              " into an operand with ", limits, " there; use smaller updates");
  }
  const int64_t batch_rank = indices.rank() - (d.index_vector_dim < indices.rank() ? 1 : 0);
  const bool ranks_fit = update.rank() == batch_rank + static_cast<int64_t>(window.size());
  TPU_CHECK(ranks_fit, kOp, " needs updates of rank ",
            batch_rank + static_cast<int64_t>(window.size()), ", got ", update, "; reshape them");
  const Dims expected = combine(indices, d.index_vector_dim, window, d.update_window_dims);
  TPU_CHECK(update.dims == expected, kOp, " needs updates of sizes ", expected, ", got ", update,
            "; broadcast the updates or the indices");
  std::vector<Type> results;
  for (size_t i = 0; i < inputs.size(); ++i) {
    TPU_CHECK(inputs[i]->dims == x.dims && updates[i]->dims == update.dims, kOp,
              " needs operands of one shape and updates of one shape, got ", *inputs[i], " and ",
              *updates[i], "; broadcast them");
    check_same_dtype(kOp, "operand and update", inputs[i]->dtype, updates[i]->dtype);
    results.push_back(*inputs[i]);
  }
  return results;
}

// all_gather (C2-C4), all_reduce (C1-C3), all_to_all (C5-C7), reduce_scatter (C3-C5).
void replica_groups(Op op, const Groups& groups) {
  const int64_t size = groups.group_size();
  TPU_CHECK(size > 0, op, " has no replica groups; name the ranks of each group");
  TPU_CHECK(groups.channel >= 0, op, " has channel ", groups.channel, "; use 0 or more");
  Dims all;
  for (const Dims& g : groups.members) {
    TPU_CHECK(static_cast<int64_t>(g.size()) == size, op, " has replica groups of ", size, " and ",
              g.size(), " members; make them equal");
    all = joined(std::move(all), g);
  }
  std::ranges::sort(all);
  for (size_t i = 0; i < all.size(); ++i) {
    TPU_CHECK(all[i] == static_cast<int64_t>(i), op, " has replica groups with members ", all,
              "; name each of 0 to ", all.size() - 1, " once");
  }
}

// all_gather (C1, C6).
Type all_gather(const Type& x, int64_t gather_dim, const Groups& groups) {
  replica_groups(Op::kAllGather, groups);
  check_axes(Op::kAllGather, "dimension", {gather_dim}, x.rank());
  Type result = x;
  int64_t& size = result.dims[static_cast<size_t>(gather_dim)];
  size = to_size(Op::kAllGather, static_cast<__int128>(size) * groups.group_size());
  return result;
}

// reduce_scatter (C1-C2, C8).
Type reduce_scatter(const Type& x, int64_t scatter_dim, const Groups& groups) {
  constexpr Op kOp = Op::kReduceScatter;
  replica_groups(kOp, groups);
  check_axes(kOp, "dimension", {scatter_dim}, x.rank());
  Type result = x;
  int64_t& size = result.dims[static_cast<size_t>(scatter_dim)];
  TPU_CHECK(size % groups.group_size() == 0, kOp, " cannot split dimension ", scatter_dim,
            " of size ", size, " among ", groups.group_size(), "; pad it to a multiple");
  size /= groups.group_size();
  return result;
}

// all_to_all (C1-C4, C8-C9).
Type all_to_all(const Type& x, int64_t split_dim, int64_t concat_dim, const Groups& groups) {
  constexpr Op kOp = Op::kAllToAll;
  replica_groups(kOp, groups);
  check_axes(kOp, "dimensions", {split_dim, concat_dim}, x.rank());
  Type result = x;
  int64_t& split = result.dims[static_cast<size_t>(split_dim)];
  TPU_CHECK(split % groups.group_size() == 0, kOp, " cannot split dimension ", split_dim,
            " of size ", split, " among ", groups.group_size(), "; pad it to a multiple");
  split /= groups.group_size();
  int64_t& concat = result.dims[static_cast<size_t>(concat_dim)];
  concat = to_size(kOp, static_cast<__int128>(concat) * groups.group_size());
  return result;
}

// collective_permute (C1-C4).
void source_target_pairs(const std::vector<std::pair<int64_t, int64_t>>& pairs) {
  constexpr Op kOp = Op::kCollectivePermute;
  Dims sources, targets;
  for (const auto& [source, target] : pairs) {
    TPU_CHECK(source >= 0 && target >= 0, kOp, " has the pair (", source, ", ", target,
              "); ranks are 0 or more");
    sources.push_back(source);
    targets.push_back(target);
  }
  check_unique(kOp, "sources", sources);
  check_unique(kOp, "targets", targets);
}

// reduce (C6), reduce_window (C13), scatter (C23), sort (C5), while (C1-C2), if (C2), case (C3),
// ...
void region_results(Op op, std::string_view what, const std::vector<Type>& got,
                    const std::vector<Type>& expected) {
  TPU_CHECK(got.size() == expected.size(), "the ", what, " of ", op, " gives ",
            plural(got.size(), "value"), " where ", expected.size(),
            " are needed; return one for each");
  for (size_t i = 0; i < got.size(); ++i) {
    TPU_CHECK(got[i] == expected[i], "the ", what, " of ", op, " gives ", got[i], " for value ", i,
              " where ", expected[i], " is needed; convert or reshape it");
  }
}

}  // namespace tpu::hlo::infer
