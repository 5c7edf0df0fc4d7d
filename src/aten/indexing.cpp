#include "aten/indexing.h"

#include <algorithm>
#include <limits>

#include "aten/scan.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Op;

DType position_type(int64_t size) {
  return size <= std::numeric_limits<int32_t>::max() ? DType::kI32 : DType::kI64;
}

Value positions(Context& x, const Dims& dims, int64_t dim) {
  return x.b.iota({position_type(dims[static_cast<size_t>(dim)]), dims}, dim);
}

Value count_true(Context& x, Value mask) {
  const DType t = position_type(mask.numel());
  return x.b.convert(x.sum(x.b.convert(mask, t), x.all_axes(mask)), DType::kI64);
}

Value true_positions(Context& x, Value mask, int64_t size) {
  const int64_t n = mask.numel();
  const DType t = position_type(n);
  const Value flat = x.b.reshape(mask, {n});
  const Value fill = x.b.splat({t, {size}}, n);
  if (n == 0 || size == 0) return fill;
  const Value all = x.b.iota({t, {n}}, 0);
  if (!x.on_cpu_plugin()) {
    // A TPU sorts faster than it scatters: the others sort behind as n.
    const Value key = x.b.select(flat, all, x.b.splat({t, {n}}, n));
    const Value sorted = x.b.sort({key}, 0, false, [&](const Values& a) {
      return Values{x.b.compare(Cmp::kLt, a[0], a[1])};
    })[0];
    return x.b.pad(sorted, x.b.constant(t, n), {0}, {size - n});
  }
  // Each true element goes to the place that its rank among them names; the others go nowhere (a
  // scatter skips what is out of range).
  const Value place =
      x.b.sub(cumulative(x, x.b.convert(flat, t), 0, Op::kAdd), x.b.splat({t, {n}}, 1));
  const Value to = x.b.select(flat, place, x.b.splat({t, {n}}, std::max(n, size)));
  return x.b.scatter(fill, to, all,
                     {.update_window_dims = {},
                      .inserted_window_dims = {0},
                      .scatter_dims_to_operand_dims = {0},
                      .index_vector_dim = 1},
                     std::nullopt, false, true);
}

Values unravel(Context& x, Value flat, const Dims& dims) {
  Values out(dims.size());
  Value rest = flat;
  for (size_t i = dims.size(); i-- > 0;) {
    const Value size = x.b.splat(flat.type(), std::max<int64_t>(dims[i], 1));
    out[i] = i == 0 ? rest : x.b.binary(Op::kRemainder, rest, size);
    if (i != 0) rest = x.b.div(rest, size);
  }
  return out;
}

Value take_rows(Context& x, Value v, int64_t dim, Value index) {
  Dims result = v.dims(), slice = v.dims(), offset;
  result[static_cast<size_t>(dim)] = index.dim(0);
  slice[static_cast<size_t>(dim)] = 1;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != dim) offset.push_back(i);
  }
  if (hlo::product(result) == 0) return x.zeros({v.dtype(), result});
  return x.b.gather(v, index,
                    {.offset_dims = offset,
                     .collapsed_slice_dims = {dim},
                     .start_index_map = {dim},
                     .index_vector_dim = 1},
                    slice);
}

Value put_block(Context& x, Value v, Value block, const Dims& starts) {
  if (block.dims() == v.dims()) return block;
  if (block.numel() == 0) return v;
  Values at;
  for (const int64_t s : starts) at.push_back(x.b.constant(DType::kI32, s));
  return x.b.dynamic_update_slice(v, block, at);
}

std::pair<Value, Value> spread_diagonal(Context& x, Value diagonal, const Dims& dims,
                                        int64_t offset, int64_t dim1, int64_t dim2) {
  const int64_t rows = dims[static_cast<size_t>(dim1)];
  const int64_t below = std::max<int64_t>(-offset, 0);
  Dims low(static_cast<size_t>(diagonal.rank()), 0), high = low, map;
  low.back() = below;
  high.back() = rows - below - diagonal.dim(diagonal.rank() - 1);
  const Value by_row = x.b.pad(diagonal, x.constant(diagonal.dtype(), 0), low, high);
  for (int64_t i = 0; i < static_cast<int64_t>(dims.size()); ++i) {
    if (i != dim1 && i != dim2) map.push_back(i);
  }
  map.push_back(dim1);
  const Type t{DType::kI32, dims};
  const Value row = x.b.add(x.b.iota(t, dim1), x.b.splat(t, offset));
  return {x.b.broadcast_in_dim(by_row, dims, map), x.b.compare(Cmp::kEq, row, x.b.iota(t, dim2))};
}

Value triangle(Context& x, int64_t rows, int64_t columns, int64_t offset, bool lower) {
  const int64_t limit = std::numeric_limits<int32_t>::max() / 2;
  const Type t{DType::kI32, {rows, columns}};
  // Any offset beyond the matrix does the same; this one cannot overflow.
  const int64_t o = std::clamp(offset, -limit, limit);
  const Value row = x.b.add(x.b.iota(t, 0), x.b.splat(t, o));
  return x.b.compare(lower ? Cmp::kGe : Cmp::kLe, row, x.b.iota(t, 1));
}

}  // namespace tpu::aten
