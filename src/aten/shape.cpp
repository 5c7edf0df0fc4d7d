// Joining, padding, reordering and triangles: everything that moves elements without index tensors.
#include <algorithm>
#include <numeric>

#include "aten/all.h"
#include "aten/indexing.h"

namespace tpu::aten {

using ops::LayoutRule;
using ops::Scalar;
using ops::scalar_type_name;

namespace {

// A tensor of shape [0] joins anything: it has a type but no say in the shape.
bool is_legacy_empty(Value v) { return v.rank() == 1 && v.dim(0) == 0; }

Value concatenate(Context& x, const Values& tensors, int64_t dim_arg) {
  x.check(!tensors.empty(), "torch.cat(): expected a non-empty list of Tensors");
  const DType t = x.promote(tensors);
  Values parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Value v = tensors[i];
    x.check(v.rank() > 0, "zero-dimensional tensor (at position ", i, ") cannot be concatenated");
    if (is_legacy_empty(v)) continue;
    if (!parts.empty()) {
      const Value first = parts.front();
      x.check(v.rank() == first.rank(), "Tensors must have same number of dimensions: got ",
              first.rank(), " and ", v.rank());
      const int64_t dim = x.axis(dim_arg, first);
      for (int64_t d = 0; d < v.rank(); ++d) {
        x.check(d == dim || v.dim(d) == first.dim(d),
                "Sizes of tensors must match except in dimension ", dim, ". Expected size ",
                first.dim(d), " but got size ", v.dim(d), " for tensor number ", i,
                " in the list.");
      }
    }
    parts.push_back(x.convert(v, t));
  }
  if (parts.empty()) return x.zeros({t, {0}});
  const int64_t dim = x.axis(dim_arg, parts.front());
  return parts.size() == 1 ? parts.front() : x.b.concatenate(parts, dim);
}

Value stack(Context& x, const Values& tensors, int64_t dim_arg) {
  x.check(!tensors.empty(), "stack expects a non-empty TensorList");
  const int64_t dim = x.axis(dim_arg, tensors.front().rank() + 1);
  const DType t = x.promote(tensors);
  Values parts;
  for (size_t i = 0; i < tensors.size(); ++i) {
    x.check(tensors[i].dims() == tensors.front().dims(),
            "stack expects each tensor to be equal size, but got ", tensors.front().dims(),
            " at entry 0 and ", tensors[i].dims(), " at entry ", i);
    parts.push_back(x.unsqueeze(x.convert(tensors[i], t), dim));
  }
  return parts.size() == 1 ? parts.front() : x.b.concatenate(parts, dim);
}

Value constant_pad(Context& x, Value self, const Dims& pad, Scalar value) {
  x.check(pad.size() % 2 == 0, "Length of pad must be even but instead it equals ", pad.size());
  x.check(static_cast<int64_t>(pad.size()) <= 2 * self.rank(),
          "Length of pad should be no more than twice the number of dimensions of the input. Pad "
          "length is ",
          pad.size(), "while the input has ", self.rank(), "dimensions.");
  Dims low(static_cast<size_t>(self.rank()), 0), high = low;
  for (size_t i = 0; i < pad.size() / 2; ++i) {  // pairs, from the last dim on
    const size_t d = low.size() - 1 - i;
    low[d] = pad[2 * i];
    high[d] = pad[2 * i + 1];
    x.check(self.dims()[d] + low[d] + high[d] >= 0, "The input size ", self.dims()[d],
            ", plus negative padding ", low[d], " and ", high[d],
            " resulted in a negative output size, which is invalid. Check dimension ", d,
            " of your input.");
  }
  return x.b.pad(self, x.scalar(value, self.dtype()), low, high);
}

// The last n positions along dim come first.
Value rotate(Context& x, Value v, int64_t shift, int64_t dim) {
  const int64_t size = v.dim(dim);
  if (size == 0) return v;
  const int64_t n = (shift % size + size) % size;
  if (n == 0) return v;
  return x.b.concatenate(
      {x.b.slice_dim(v, dim, size - n, size), x.b.slice_dim(v, dim, 0, size - n)}, dim);
}

Value roll(Context& x, Value self, const Dims& shifts, const Dims& dims) {
  if (dims.empty() && shifts.size() == 1) {
    const Value flat = x.b.reshape(self, {self.numel()});
    return x.b.reshape(rotate(x, flat, shifts[0], 0), self.dims());
  }
  x.check(!shifts.empty(), "`shifts` required");
  x.check(shifts.size() == dims.size(), "shifts and dimensions must align. shifts: ", shifts.size(),
          ", dims:", dims.size());
  x.check_index(self.rank() > 0, "Dimension specified as ", dims[0],
                " but tensor has no dimensions");
  Value v = self;
  for (size_t i = 0; i < dims.size(); ++i) v = rotate(x, v, shifts[i], x.axis(dims[i], self));
  return v;
}

Value flip(Context& x, Value self, const Dims& dims) {
  if (dims.empty()) return self;
  const Dims axes = x.axes(dims, self);
  return axes.empty() ? self : x.b.reverse(self, axes);
}

Value keep_triangle(Context& x, Value self, int64_t diagonal, bool lower) {
  x.check(self.rank() >= 2, lower ? "tril" : "triu",
          ": input tensor must have at least 2 dimensions");
  const int64_t r = self.rank();
  const Value keep = triangle(x, self.dim(r - 2), self.dim(r - 1), diagonal, lower);
  return x.b.select(x.broadcast(keep, self.dims()), self, x.like(self, 0));
}

// Coordinates of a triangle, row by row: [2, number of elements].
Value triangle_indices(Context& x, int64_t rows, int64_t columns, int64_t offset, DType t,
                       bool lower) {
  x.check(rows >= 0, "row must be non-negative, got", rows);
  x.check(columns >= 0, "col must be non-negative, got", columns);
  x.check_supported(t == DType::kI32 || t == DType::kI64, lower ? "\"tril" : "\"triu",
                    "_indices\" not implemented for '", scalar_type_name(t), "'");
  int64_t size = 0;
  for (int64_t i = 0; i < rows; ++i) {
    // Below and on the diagonal: columns 0 to i + offset.
    const int64_t below = std::clamp<int64_t>(i + offset + (lower ? 1 : 0), 0, columns);
    size += lower ? below : columns - below;
  }
  if (size == 0) return x.zeros({t, {2, 0}});
  const Value mask = triangle(x, rows, columns, offset, lower);
  const Values c = unravel(x, true_positions(x, mask, size), {rows, columns});
  return x.b.convert(x.b.concatenate({x.unsqueeze(c[0], 0), x.unsqueeze(c[1], 0)}, 0), t);
}

Value repeat(Context& x, Value self, const Dims& repeats) {
  const auto rank = static_cast<int64_t>(repeats.size());
  const int64_t added = rank - self.rank();
  x.check(added >= 0,
          "Number of dimensions of repeat dims can not be smaller than number of "
          "dimensions of tensor");
  Dims result, split, map;  // split: each dim as (repeats, size)
  for (int64_t i = 0; i < rank; ++i) {
    const int64_t n = repeats[static_cast<size_t>(i)], size = i < added ? 1 : self.dim(i - added);
    x.check(n >= 0, "Trying to create tensor with negative dimension ", n * size);
    result.push_back(n * size);
    split.push_back(n);
    if (i >= added) {
      map.push_back(static_cast<int64_t>(split.size()));
      split.push_back(size);
    }
  }
  return x.b.reshape(x.b.broadcast_in_dim(self, split, map), result);
}

Value narrow_copy(Context& x, Value self, int64_t dim_arg, int64_t start_arg, int64_t length) {
  x.check(self.rank() > 0, "narrow() cannot be applied to a 0-dim tensor.");
  const int64_t dim = x.axis(dim_arg, self), size = self.dim(dim);
  x.check_index(start_arg >= -size && start_arg <= size,
                "start out of range (expected to be in range of [", -size, ", ", size,
                "], but got ", start_arg, ")");
  const int64_t start = start_arg < 0 ? start_arg + size : start_arg;
  x.check(length >= 0, "narrow(): length must be non-negative.");
  x.check(start <= size - length, "start (", start, ") + length (", length,
          ") exceeds dimension size (", size, ").");
  return x.b.slice_dim(self, dim, start, start + length);
}

Value block_diagonal(Context& x, const Values& tensors) {
  x.check(!tensors.empty(), "torch.block_diag: expected a non-empty list of tensors");
  const DType t = x.promote(tensors);
  Values blocks;
  int64_t columns = 0;
  for (size_t i = 0; i < tensors.size(); ++i) {
    const Value v = tensors[i];
    x.check(v.rank() <= 2,
            "torch.block_diag: Input tensors must have 2 or fewer dimensions. Input ", i, " has ",
            v.rank(), " dimensions");
    const Dims d = v.rank() == 2 ? v.dims() : Dims{1, v.numel()};
    blocks.push_back(x.b.reshape(x.convert(v, t), d));
    columns += d[1];
  }
  Values rows;
  int64_t before = 0;
  for (const Value& v : blocks) {
    const int64_t after = columns - before - v.dim(1);
    rows.push_back(x.b.pad(v, x.constant(t, 0), {0, before}, {0, after}));
    before += v.dim(1);
  }
  return rows.size() == 1 ? rows[0] : x.b.concatenate(rows, 0);
}

}  // namespace

void register_shape(ops::Registry& r) {
  r.op("aten::cat", concatenate).layout(LayoutRule::kChannelsLast).out_casts(true);
  r.op("aten::_stack", stack);
  r.op("aten::block_diag", block_diagonal);
  r.op("aten::constant_pad_nd", constant_pad).layout(LayoutRule::kChannelsLast);
  r.op("aten::repeat", repeat);
  r.op("aten::narrow_copy", narrow_copy);
  r.op("aten::flip", flip).layout(LayoutRule::kLikeSelf);
  r.op("aten::roll", roll).layout(LayoutRule::kChannelsLast);
  r.op("aten::tril", [](Context& x, Value self, int64_t diagonal) {
    return keep_triangle(x, self, diagonal, true);
  });
  r.op("aten::triu", [](Context& x, Value self, int64_t diagonal) {
    return keep_triangle(x, self, diagonal, false);
  });
  r.op("aten::tril_indices",
       [](Context& x, int64_t row, int64_t col, int64_t offset, Opt<DType> dtype) {
         return triangle_indices(x, row, col, offset, dtype.value_or(DType::kI64), true);
       });
  r.op("aten::triu_indices",
       [](Context& x, int64_t row, int64_t col, int64_t offset, Opt<DType> dtype) {
         return triangle_indices(x, row, col, offset, dtype.value_or(DType::kI64), false);
       });
}

}  // namespace tpu::aten
