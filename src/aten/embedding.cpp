// Embedding tables: rows are gathered whole and gradients scattered whole, in float32 or wider.
// Rows that must not count (padding) get an index past the end, which a scatter drops.
#include <cmath>
#include <limits>

#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::scalar_type_name;

enum Mode : int64_t { kSum = 0, kMean = 1, kMax = 2 };

void check_indices(Ctx& x, Value indices, int position, const char* name) {
  const DType t = indices.dtype();
  x.check(t == DType::kI64 || t == DType::kI32, "Expected tensor for argument #", position,
          " 'indices' to have one of the following scalar types: Long, Int; but got torch.",
          scalar_type_name(t), "Tensor instead (while checking arguments for ", name, ")");
}

// Rows of table [v, d] for indices of any dims: [indices..., d].
Value rows(Ctx& x, Value table, Value indices) {
  const int64_t r = indices.rank();
  return x.b.gather(table, indices,
                    {.offset_dims = {r},
                     .collapsed_slice_dims = {0},
                     .start_index_map = {0},
                     .index_vector_dim = r},
                    {1, table.dim(1)});
}

const hlo::ScatterDims kRows{.update_window_dims = {1},
                             .inserted_window_dims = {0},
                             .scatter_dims_to_operand_dims = {0},
                             .index_vector_dim = 1};
const hlo::ScatterDims kScalars{.update_window_dims = {},
                                .inserted_window_dims = {0},
                                .scatter_dims_to_operand_dims = {0},
                                .index_vector_dim = 1};

// Sums of updates [n, d] by index [n]: [size, d].
Value sum_rows(Ctx& x, Value updates, Value index, int64_t size, bool sorted = false) {
  return x.b.scatter(x.zeros({updates.dtype(), {size, updates.dim(1)}}), index, updates, kRows,
                     Op::kAdd, sorted);
}

// How often each of 0..size-1 occurs in index [n]: int32[size].
Value count(Ctx& x, Value index, int64_t size) {
  return x.b.scatter(x.zeros({DType::kI32, {size}}), index,
                     x.b.splat({DType::kI32, index.dims()}, 1), kScalars, Op::kAdd);
}

// index, with `past` where it equals padding_idx.
Value drop_padding(Ctx& x, Value index, int64_t padding_idx, int64_t past) {
  if (padding_idx < 0) return index;
  const Value is_padding = x.b.compare(Cmp::kEq, index, x.b.splat(index.type(), padding_idx));
  return x.b.select(is_padding, x.b.splat(index.type(), past), index);
}

// v [n, ...] times s [n].
Value scale_rows(Ctx& x, Value v, Value s) {
  return x.b.mul(v, along(x, x.convert(s, v.dtype()), v.dims(), 0));
}

// updates [n, d] divided by how often their index occurs.
Value divide_by_frequency(Ctx& x, Value updates, Value index, int64_t size) {
  const Value often = x.convert(take(x, count(x, index, size), index, 0), updates.dtype());
  return scale_rows(x, updates, x.b.div(x.like(often, 1), often));
}

Value checked_rows(Ctx& x, Value index, int64_t size) {
  return x.checked_index(
      index, size, /*wrap=*/false,
      {ErrorKind::kIndex, cat("index out of range in self: {} is not in [0, ", size, ")")});
}

Value embedding(Ctx& x, Value weight, Value indices) {
  x.check(weight.rank() == 2, "'weight' must be 2-D");
  check_indices(x, indices, 1, "embedding");
  return rows(x, weight, checked_rows(x, indices, weight.dim(0)));
}

Value narrow_index(Ctx& x, Value index, int64_t size) {
  return size < (int64_t{1} << 31) ? x.b.convert(index, DType::kI32) : index;
}

Value embedding_dense_backward(Ctx& x, Value grad, Value indices, int64_t num_weights,
                               int64_t padding_idx, bool scale_grad_by_freq) {
  check_indices(x, indices, 2, "embedding_backward");
  const int64_t n = indices.numel();
  x.check(grad.rank() == indices.rank() + 1, "embedding_dense_backward: grad_output has ",
          grad.rank(), " dimensions, expected ", indices.rank() + 1);
  const int64_t features = grad.dim(grad.rank() - 1);
  const Value index = narrow_index(x, x.b.reshape(indices, {n}), num_weights);
  Value updates = x.to_compute(x.b.reshape(grad, {n, features}));
  if (scale_grad_by_freq) updates = divide_by_frequency(x, updates, index, num_weights);
  const Value kept = drop_padding(x, index, padding_idx, num_weights);
  return x.convert(sum_rows(x, updates, kept, num_weights), grad.dtype());
}

Value embedding_renorm(Ctx& x, Value self, Value indices, Scalar max_norm, double norm_type) {
  x.check(self.rank() == 2, "'self' must be 2-D");
  check_indices(x, indices, 2, "embedding_renorm_");
  const Value flat = x.b.reshape(indices, {indices.numel()});
  const Value index = checked_rows(x, flat, self.dim(0));
  const Value found = rows(x, self, index);
  const Value wide = x.to_compute(found);
  const Value magnitude = x.b.unary(Op::kAbs, wide);
  Value norm;
  if (norm_type == 2) {
    norm = x.b.unary(Op::kSqrt, x.sum(x.b.mul(wide, wide), {1}));
  } else if (norm_type == 1) {
    norm = x.sum(magnitude, {1});
  } else if (std::isinf(norm_type)) {
    norm = x.max(magnitude, {1});
  } else if (norm_type == 0) {
    norm = x.sum(x.b.convert(x.b.compare(Cmp::kNe, wide, x.like(wide, 0)), wide.dtype()), {1});
  } else {
    const Value power = x.b.binary(Op::kPower, magnitude, x.like(magnitude, norm_type));
    const Value total = x.sum(power, {1});
    norm = x.b.binary(Op::kPower, total, x.like(total, 1 / norm_type));
  }
  const Value limit = x.scalar_like(max_norm, norm);
  const Value too_long = x.b.compare(Cmp::kGt, norm, limit);
  const Value factor = x.b.div(limit, x.b.add(norm, x.like(norm, 1e-7)));
  const Value made = x.convert(scale_rows(x, wide, factor), self.dtype());
  const Value chosen = x.b.select(along(x, too_long, made.dims(), 0), made, found);
  return x.b.scatter(self, index, chosen, kRows, std::nullopt);  // equal indices write equal rows
}

// ---- Bags.

// For element i the number of bags that start at or before it, minus one.
Value bag_of_each(Ctx& x, Value offsets, int64_t n) {
  Value v = count(x, narrow_index(x, offsets, n), n);
  for (int64_t step = 1; step < n; step *= 2) {  // running sum by doubling
    v = x.b.add(v,
                x.b.pad(x.b.slice_dim(v, 0, 0, n - step), x.b.constant(v.dtype(), 0), {step}, {0}));
  }
  return x.b.sub(v, x.like(v, 1));
}

std::array<Value, 4> embedding_bag(Ctx& x, Value weight, Value indices, Value offsets, int64_t mode,
                                   Opt<Value> per_sample_weights, bool include_last_offset,
                                   int64_t padding_idx) {
  auto& b = x.b;
  check_indices(x, indices, 1, "embedding_bag");
  check_indices(x, offsets, 1, "embedding_bag");
  x.check(weight.rank() == 2 && indices.rank() == 1 && offsets.rank() == 1,
          "embedding_bag needs a 2-D weight, 1-D indices and 1-D offsets, got ", weight.dims(),
          ", ", indices.dims(), " and ", offsets.dims());
  x.check(hlo::is_float(weight.dtype()), "expected weight to be floating point type, got ",
          hlo::torch_name(weight.dtype()));
  x.check(mode >= kSum && mode <= kMax, "`mode` must be sum, mean, or max.");
  x.check(!per_sample_weights || mode == kSum,
          "embedding_bag: per_sample_weights only supported with mode='sum'");
  const DType index_type = ops::promote_types(indices.dtype(), offsets.dtype());
  const int64_t n = indices.dim(0), d = weight.dim(1), v = weight.dim(0);
  x.check(!include_last_offset || offsets.dim(0) >= 1,
          "include_last_offset: numBags should be at least 1");
  const int64_t bags = offsets.dim(0) - (include_last_offset ? 1 : 0);
  if (per_sample_weights) {
    x.check(
        per_sample_weights->dtype() == weight.dtype(),
        "Expected tensor for argument #1 'weight' to have the same type as tensor for argument #1 "
        "'per_sample_weights'; but type torch.",
        scalar_type_name(weight.dtype()), "Tensor does not equal torch.",
        scalar_type_name(per_sample_weights->dtype()),
        "Tensor (while checking arguments for embedding_bag)");
    x.check(per_sample_weights->dims() == indices.dims(),
            "expected per_sample_weights to have the shape ", indices.dims(),
            " of the indices, got ", per_sample_weights->dims());
  }
  if (offsets.dim(0) > 0) {
    const auto edge = [&](int64_t i) { return b.reshape(b.slice_dim(offsets, 0, i, i + 1), {}); };
    x.assert_none(
        b.compare(Cmp::kNe, edge(0), b.constant(offsets.dtype(), 0)),
        "offsets[0] has to be 0, i.e., the first sequence in the mini-batch has to start from "
        "position 0.");
    x.assert_none(b.compare(Cmp::kGt, edge(offsets.dim(0) - 1), b.constant(offsets.dtype(), n)),
                  cat("offsets[-1] can not be greater than input's length ", n));
  }
  const DType wide = hlo::compute_type(weight.dtype());
  const Type max_index_type{index_type, mode == kMax ? Dims{bags, d} : Dims{0}};
  if (n == 0 || bags == 0) {
    return {x.zeros({weight.dtype(), {bags, d}}), x.zeros({index_type, {n}}),
            x.zeros({index_type, offsets.dims()}), x.zeros(max_index_type)};
  }

  const Value index = x.checked_index(
      indices, v, /*wrap=*/false,
      {ErrorKind::kInvalid,
       cat("embedding_bag: Expected idx >= 0 && idx < num_embeddings but found idx to be {}, with ",
           v, " embeddings")});
  const Value starts = b.slice_dim(offsets, 0, 0, bags);
  const Value bag = bag_of_each(x, starts, n);
  Value counted_bag = bag;  // past the end for padding
  if (padding_idx >= 0) {
    const Value is_padding = b.compare(Cmp::kEq, index, b.splat(index.type(), padding_idx));
    counted_bag = b.select(is_padding, b.splat(bag.type(), bags), bag);
  }
  const bool sorted = padding_idx < 0;
  const Value bag_size = count(x, counted_bag, bags);
  Value found = b.convert(rows(x, weight, index), wide);
  Value out, max_index = x.zeros(max_index_type);
  if (mode == kMax) {
    out = b.scatter(b.splat({wide, {bags, d}}, -std::numeric_limits<double>::infinity()),
                    counted_bag, found, kRows, Op::kMaximum, sorted);
    // The first element of its bag that holds the maximum.
    const Value winner = rows(x, out, bag);
    const Value hit = b.logical_or(b.compare(Cmp::kEq, found, winner), x.is_nan(found));
    const Type at_type{DType::kI32, {n, d}};
    const Value position = b.select(hit, b.iota(at_type, 0), b.splat(at_type, n));
    const Value first = b.scatter(b.splat({DType::kI32, {bags, d}}, n), counted_bag, position,
                                  kRows, Op::kMinimum, sorted);
    const Value known = b.minimum(first, x.like(first, static_cast<double>(n - 1)));
    max_index = b.convert(take(x, index, b.reshape(known, {bags * d}), 0), index_type);
    const Value empty = b.compare(Cmp::kEq, bag_size, x.like(bag_size, 0));
    const Value no_row = along(x, empty, out.dims(), 0);
    max_index = b.reshape(max_index, {bags, d});
    max_index = b.select(no_row, x.like(max_index, 0), max_index);
    out = b.select(no_row, x.like(out, 0), out);
  } else {
    if (per_sample_weights) found = scale_rows(x, found, *per_sample_weights);
    out = sum_rows(x, found, counted_bag, bags, sorted);
    if (mode == kMean) {
      const Value size = b.convert(b.maximum(bag_size, x.like(bag_size, 1)), wide);
      out = b.div(out, along(x, size, out.dims(), 0));
    }
  }
  Value sizes = b.convert(bag_size, index_type);
  if (include_last_offset) sizes = b.pad(sizes, b.constant(index_type, 0), {0}, {1});
  return {b.convert(out, weight.dtype()), b.convert(bag, index_type), sizes, max_index};
}

Value embedding_bag_dense_backward(Ctx& x, Value grad, Value indices, Value offset2bag,
                                   Value bag_size, Value maximum_indices, int64_t num_weights,
                                   bool scale_grad_by_freq, int64_t mode,
                                   Opt<Value> per_sample_weights, int64_t padding_idx) {
  auto& b = x.b;
  check_indices(x, indices, 2, "embedding_bag_backward");
  const int64_t n = indices.dim(0), bags = grad.dim(0), d = grad.dim(1);
  const Type result{grad.dtype(), {num_weights, d}};
  if (n == 0 || bags == 0 || num_weights == 0) return x.zeros(result);
  const Value wide = x.to_compute(grad);
  if (mode == kMax) {
    const Value sizes = b.slice_dim(bag_size, 0, 0, bags);
    const Value empty = along(x, b.compare(Cmp::kEq, sizes, x.like(sizes, 0)), {bags, d}, 0);
    const Value row = narrow_index(x, maximum_indices, num_weights);
    const Value kept = b.select(empty, b.splat(row.type(), num_weights), row);
    const Dims pair{bags, d, 1};
    const Value where = b.concatenate({b.reshape(kept, pair), b.iota({kept.dtype(), pair}, 1)}, 2);
    const hlo::ScatterDims dims{.update_window_dims = {},
                                .inserted_window_dims = {0, 1},
                                .scatter_dims_to_operand_dims = {0, 1},
                                .index_vector_dim = 2};
    return x.convert(b.scatter(x.zeros({wide.dtype(), result.dims}), where, wide, dims, Op::kAdd),
                     grad.dtype());
  }
  const Value bag = narrow_index(x, offset2bag, bags);
  const Value index = narrow_index(x, indices, num_weights);
  Value updates = rows(x, wide, bag);
  if (mode == kMean) {
    const Value size = take(x, bag_size, bag, 0);
    const Value divisor = b.maximum(size, x.like(size, 1));
    updates = b.div(updates, along(x, b.convert(divisor, wide.dtype()), updates.dims(), 0));
  }
  if (per_sample_weights) updates = scale_rows(x, updates, *per_sample_weights);
  if (scale_grad_by_freq) updates = divide_by_frequency(x, updates, index, num_weights);
  const Value kept = drop_padding(x, index, padding_idx, num_weights);
  return x.convert(sum_rows(x, updates, kept, num_weights), grad.dtype());
}

Value per_sample_weights_backward(Ctx& x, Value grad, Value weight, Value indices, Value offset2bag,
                                  int64_t mode, int64_t padding_idx) {
  x.check(mode == kSum, "embedding_bag_backward: per_sample_weights only supported for mode='sum'");
  x.check(grad.rank() == 2 && weight.rank() == 2 && grad.dim(1) == weight.dim(1),
          "embedding_bag_backward: grad ", grad.dims(), " and weight ", weight.dims(),
          " must be 2-D with equally many columns");
  const int64_t n = indices.dim(0);
  if (n == 0 || grad.dim(0) == 0) return x.zeros({grad.dtype(), {n}});
  const Value bag = narrow_index(x, offset2bag, grad.dim(0));
  const Value of_bag = x.to_compute(rows(x, grad, bag));
  const Value of_weight = x.to_compute(rows(x, weight, narrow_index(x, indices, weight.dim(0))));
  Value out = x.sum(x.b.mul(of_bag, of_weight), {1});
  if (padding_idx >= 0) {
    const Value is_padding = x.b.compare(Cmp::kEq, indices, x.b.splat(indices.type(), padding_idx));
    out = x.b.select(is_padding, x.like(out, 0), out);
  }
  return x.convert(out, grad.dtype());
}

}  // namespace

void register_embedding(ops::Registry& r) {
  r.op("aten::embedding",
       [](Ctx& x, Value weight, Value indices, [[maybe_unused]] int64_t padding_idx,
          [[maybe_unused]] bool scale_grad_by_freq,
          [[maybe_unused]] bool sparse) { return embedding(x, weight, indices); });
  r.op("aten::embedding_dense_backward", embedding_dense_backward);
  r.op("aten::embedding_renorm", embedding_renorm);
  for (const char* name : {"aten::_embedding_bag", "aten::_embedding_bag_forward_only"}) {
    r.op(name,
         [](Ctx& x, Value weight, Value indices, Value offsets,
            [[maybe_unused]] bool scale_grad_by_freq, int64_t mode, [[maybe_unused]] bool sparse,
            Opt<Value> per_sample_weights, bool include_last_offset, int64_t padding_idx) {
           return embedding_bag(x, weight, indices, offsets, mode, per_sample_weights,
                                include_last_offset, padding_idx);
         });
  }
  r.op("aten::_embedding_bag_backward",
       [](Ctx& x, Value grad, Value indices, [[maybe_unused]] Value offsets, Value offset2bag,
          Value bag_size, Value maximum_indices, int64_t num_weights, bool scale_grad_by_freq,
          int64_t mode, bool sparse, Opt<Value> per_sample_weights, int64_t padding_idx) {
         x.check_supported(!sparse, "a sparse gradient has no TPU form; use sparse=False");
         return embedding_bag_dense_backward(x, grad, indices, offset2bag, bag_size,
                                             maximum_indices, num_weights, scale_grad_by_freq, mode,
                                             per_sample_weights, padding_idx);
       });
  r.op("aten::_embedding_bag_dense_backward", embedding_bag_dense_backward);
  r.op("aten::_embedding_bag_per_sample_weights_backward",
       [](Ctx& x, Value grad, Value weight, Value indices, [[maybe_unused]] Value offsets,
          Value offset2bag, int64_t mode, int64_t padding_idx) {
         return per_sample_weights_backward(x, grad, weight, indices, offset2bag, mode,
                                            padding_idx);
       });
}

}  // namespace tpu::aten
