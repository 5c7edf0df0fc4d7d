// take, put and masks: row-major positions, and sizes that depend on data (padded here, cut by
// bridge/).
#include <algorithm>

#include "aten/scan.h"
#include "aten/scatter.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Op;
using ops::scalar_type_name;

namespace {

Value flatten(Context& x, Value v) { return x.b.reshape(v, {v.numel()}); }

ops::BadIndex bad_element(int64_t n) {
  return {ErrorKind::kIndex,
          cat("out of range: tried to access index {} on a tensor of ", n, " elements.")};
}

Value take(Context& x, Value self, Value index) {
  x.check(index.dtype() == DType::kI64, "take(): Expected a long tensor for index, but got ",
          scalar_type_name(index.dtype()));
  x.check_index(self.numel() != 0 || index.numel() == 0,
                "take(): tried to take from an empty tensor");
  const int64_t n = self.numel();
  const Value at = x.checked_index(flatten(x, index), n, /*wrap=*/true, bad_element(n));
  return x.b.reshape(take_rows(x, flatten(x, self), 0, at), index.dims());
}

Value put(Context& x, Value self, Value index, Value source, bool accumulate) {
  x.check(index.dtype() == DType::kI64, "put_(): Expected a long tensor for index, but got ",
          scalar_type_name(index.dtype()));
  x.check(self.dtype() == source.dtype(),
          "put_(): self and source expected to have the same dtype, but got self.dtype = ",
          scalar_type_name(self.dtype()), " and source.dtype = ", scalar_type_name(source.dtype()));
  x.check_index(source.numel() == index.numel(),
                "put_(): Expected source and index to have the same number of elements, but got "
                "source.numel() = ",
                source.numel(), ", index.numel() = ", index.numel());
  x.check_index(self.numel() != 0 || index.numel() == 0,
                "put_(): Tried to put elements into an empty tensor");
  const int64_t n = self.numel();
  const Place at =
      along_dim(1, 0, x.checked_place(flatten(x, index), n, /*wrap=*/true, bad_element(n)));
  const Value v = flatten(x, self), s = flatten(x, source);
  return x.b.reshape(accumulate ? combine(x, v, at, s, Op::kAdd) : write(x, v, at, s), self.dims());
}

Value masked_scatter(Context& x, Value self, Value mask, Value source) {
  x.check(self.dtype() == source.dtype(),
          "masked_scatter: expected self and source to have same dtypes but got",
          scalar_type_name(self.dtype()), " and ", scalar_type_name(source.dtype()));
  x.check(hlo::is_bool(mask.dtype()),
          "masked_scatter_ only supports boolean masks, but got mask with dtype ",
          scalar_type_name(mask.dtype()));
  const Dims dims = x.broadcast_dims({self.dims(), mask.dims()});
  const int64_t n = hlo::product(dims);
  if (n == 0) return x.broadcast(self, dims);
  const DType t = position_type(n);
  const Value where = flatten(x, x.broadcast(mask, dims));
  const Value ranks = cumulative(x, x.b.convert(where, t), 0, Op::kAdd);
  if (source.numel() < n) {
    x.assert_none(x.b.compare(Cmp::kGt, x.b.slice_dim(ranks, 0, n - 1, n),
                              x.b.splat({t, {1}}, source.numel())),
                  "Number of elements of source < number of ones in mask");
  }
  const Value base = flatten(x, x.broadcast(self, dims));
  if (source.numel() == 0) return x.b.reshape(base, dims);
  const Value at = x.b.clamp(x.constant(t, 0), x.b.sub(ranks, x.like(ranks, 1)),
                             x.constant(t, static_cast<double>(source.numel() - 1)));
  const Value picked = take_rows(x, flatten(x, source), 0, at);
  return x.b.reshape(x.b.select(where, picked, base), dims);
}

// Elements of `v` where `mask` is true, in order, filled up with zeros to `size`.
Value selected(Context& x, Value v, Value mask, int64_t size) {
  const int64_t n = v.numel();
  if (n == 0 || size == 0) return x.zeros({v.dtype(), {size}});
  const Value at = true_positions(x, mask, size);
  const Value real = x.b.compare(Cmp::kLt, at, x.b.splat(at.type(), n));
  const Value in_range = x.b.minimum(at, x.b.splat(at.type(), n - 1));
  const Value picked = take_rows(x, flatten(x, v), 0, in_range);
  return x.b.select(real, picked, x.like(picked, 0));
}

// Coordinates of the true elements, one row a dim, filled up with `fill` to `size` columns.
Value coordinates(Context& x, Value mask, int64_t size, int64_t fill) {
  const int64_t rank = mask.rank(), n = mask.numel();
  const Type result{DType::kI64, {rank, size}};
  if (rank == 0 || n == 0 || size == 0) return x.b.splat(result, fill);
  const Value at = true_positions(x, mask, size);
  Values rows;
  for (const Value& c : unravel(x, at, mask.dims())) rows.push_back(x.unsqueeze(c, 0));
  const Value all = x.b.convert(x.b.concatenate(rows, 0), DType::kI64);
  const Value real = x.b.compare(Cmp::kLt, at, x.b.splat(at.type(), n));
  return x.b.select(x.broadcast(x.unsqueeze(real, 0), result.dims), all, x.b.splat(result, fill));
}

}  // namespace

void register_masked(ops::Registry& r) {
  r.op("aten::take", take);
  r.op("aten::put", put).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::masked_scatter", masked_scatter);
  // The source's gradient: the selected elements, then zeros.
  r.op("aten::masked_scatter_backward", [](Context& x, Value grad_output, Value mask, Dims sizes) {
    const Value m = x.broadcast(x.convert(mask, DType::kBool), grad_output.dims());
    return x.b.reshape(selected(x, grad_output, m, hlo::product(sizes)), sizes);
  });
  // (Tensor self, Tensor mask) -> (Tensor elements [n], Tensor count int64 []), n = elements of
  // both broadcast together: the first `count` are the result of aten::masked_select.
  r.op("tpu::masked_select_padded", [](Context& x, Value self, Value mask) {
    x.check(hlo::is_bool(mask.dtype()), "masked_select: expected BoolTensor for mask");
    const Dims dims = x.broadcast_dims({self.dims(), mask.dims()});
    const Value m = x.broadcast(mask, dims);
    return std::array{selected(x, x.broadcast(self, dims), m, m.numel()), count_true(x, m)};
  });
  // (Tensor self) -> (Tensor coordinates int64 [rank, numel], Tensor count int64 []): row d holds
  // the coordinates along dim d; the first `count` columns, transposed, are the result of
  // aten::nonzero (whose strides on CPU are those of a transposed tensor, too).
  r.op("tpu::nonzero_padded", [](Context& x, Value self) {
    const Value mask = x.convert(self, DType::kBool);
    return std::array{coordinates(x, mask, mask.numel(), 0), count_true(x, mask)};
  });
  r.op("aten::nonzero_static", [](Context& x, Value self, int64_t size, int64_t fill_value) {
    x.check(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
    const Value c = coordinates(x, x.convert(self, DType::kBool), size, fill_value);
    return x.b.transpose(c, {1, 0});
  });
  // Needs output_size: without it the size depends on data, and bridge/ reads the sum of `repeats`.
  r.op("aten::repeat_interleave.Tensor", [](Context& x, Value repeats, Opt<int64_t> output_size) {
    x.check(repeats.rank() == 1, "repeat_interleave only accept 1D vector as repeat");
    x.check_supported(is_index_type(repeats), "\"repeat_interleave_cpu\" not implemented for '",
                      scalar_type_name(repeats.dtype()), "'");
    x.check_supported(output_size.has_value(),
                      "the size of the result depends on data; pass output_size");
    const int64_t n = repeats.dim(0), size = *output_size;
    const DType t = repeats.dtype();
    if (n == 0) {
      x.check(size == 0, "allocated size does not match required size");
      return x.zeros({t, {0}});
    }
    const Value ends = cumulative(x, repeats, 0, Op::kAdd);
    x.assert_none(x.b.compare(Cmp::kLt, repeats, x.like(repeats, 0)),
                  "repeats can not be negative");
    x.assert_none(
        x.b.compare(Cmp::kNe, x.b.slice_dim(ends, 0, n - 1, n), x.b.splat({t, {1}}, size)),
        "allocated size does not match required size");
    if (size == 0) return x.zeros({t, {0}});
    // One step up where each element's run ends; steps at or beyond the end fall out of range.
    const DType p = position_type(std::max(n, size));
    const Value steps =
        combine(x, x.zeros({p, {size}}), along_dim(1, 0, ends), x.b.splat({p, {n}}, 1), Op::kAdd);
    return x.b.convert(cumulative(x, steps, 0, Op::kAdd), t);
  });
}

}  // namespace tpu::aten
