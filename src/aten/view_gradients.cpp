// Gradients and functional forms of views: pad, update or select instead of writing through a view.
#include <algorithm>

#include "aten/scatter.h"

namespace tpu::aten {
namespace {

struct Slice {
  int64_t dim, start, length, step;
};

Slice resolve_slice(Context& x, const Dims& dims, int64_t dim_arg, Opt<int64_t> start,
                    Opt<int64_t> end, int64_t step) {
  x.check(!dims.empty(), "slice() cannot be applied to a 0-dim tensor.");
  x.check(step > 0, "slice step must be positive");
  const int64_t dim = x.axis(dim_arg, static_cast<int64_t>(dims.size()));
  const int64_t n = dims[static_cast<size_t>(dim)];
  const auto place = [n](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  const int64_t from = place(start.value_or(0)), to = std::max(from, place(end.value_or(n)));
  return {dim, from, (to - from + step - 1) / step, step};
}

int64_t resolve_select(Context& x, const Dims& dims, int64_t dim, int64_t index) {
  const int64_t n = dims[static_cast<size_t>(dim)];
  x.check_index(index >= -n && index < n, "select(): index ", index,
                " out of range for tensor of size ", dims, " at dimension ", dim);
  return index < 0 ? index + n : index;
}

Value check_source(Context& x, Value self, Value src, const Dims& slice) {
  x.check(src.dims() == slice,
          "expected src to have a size equal to the slice of self. src size = ", src.dims(),
          ", slice size = ", slice);
  return x.convert(src, self.dtype());
}

// v's elements at start, start + step, ... along a dim of the given size, zeros elsewhere.
Value spread(Context& x, Value v, const Slice& s, int64_t size) {
  if (v.dim(s.dim) == 0) {
    Dims d = v.dims();
    d[static_cast<size_t>(s.dim)] = size;
    return x.zeros({v.dtype(), d});
  }
  Dims low(static_cast<size_t>(v.rank()), 0), high = low, interior = low;
  low[static_cast<size_t>(s.dim)] = s.start;
  interior[static_cast<size_t>(s.dim)] = s.step - 1;
  high[static_cast<size_t>(s.dim)] = size - s.start - (s.length - 1) * s.step - 1;
  return x.b.pad(v, x.constant(v.dtype(), 0), low, high, interior);
}

struct Diagonal {
  int64_t dim1, dim2;
  Dims shape;  // of the diagonal: the other dims, then its length
};

Diagonal resolve_diagonal(Context& x, const Dims& dims, int64_t offset, int64_t dim1,
                          int64_t dim2) {
  const auto rank = static_cast<int64_t>(dims.size());
  Diagonal d{x.axis(dim1, rank), x.axis(dim2, rank), {}};
  x.check(d.dim1 != d.dim2, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  for (int64_t i = 0; i < rank; ++i) {
    if (i != d.dim1 && i != d.dim2) d.shape.push_back(dims[static_cast<size_t>(i)]);
  }
  const int64_t rows = dims[static_cast<size_t>(d.dim1)],
                columns = dims[static_cast<size_t>(d.dim2)];
  d.shape.push_back(std::max<int64_t>(
      0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns)));
  return d;
}

}  // namespace

void register_view_gradients(ops::Registry& r) {
  r.op("aten::select_backward",
       [](Context& x, Value grad_output, Dims input_sizes, int64_t dim_arg, int64_t index) {
         const int64_t dim = x.axis(dim_arg, static_cast<int64_t>(input_sizes.size()));
         const int64_t at = resolve_select(x, input_sizes, dim, index);
         return spread(x, x.unsqueeze(grad_output, dim), {dim, at, 1, 1},
                       input_sizes[static_cast<size_t>(dim)]);
       });
  r.op("aten::slice_backward", [](Context& x, Value grad_output, Dims input_sizes, int64_t dim,
                                  int64_t start, int64_t end, int64_t step) {
    const Slice s = resolve_slice(x, input_sizes, dim, start, end, step);
    Dims shape = input_sizes;
    shape[static_cast<size_t>(s.dim)] = s.length;
    return spread(x, x.broadcast(grad_output, shape), s, input_sizes[static_cast<size_t>(s.dim)]);
  });
  r.op("aten::diagonal_backward", [](Context& x, Value grad_output, Dims input_sizes,
                                     int64_t offset, int64_t dim1, int64_t dim2) {
    const Diagonal d = resolve_diagonal(x, input_sizes, offset, dim1, dim2);
    if (d.shape.back() == 0) return x.zeros({grad_output.dtype(), input_sizes});
    const auto [values, on] =
        spread_diagonal(x, x.broadcast(grad_output, d.shape), input_sizes, offset, d.dim1, d.dim2);
    return x.b.select(on, values, x.like(values, 0));
  });
  r.op("aten::select_scatter", [](Context& x, Value self, Value src, int64_t dim_arg,
                                  int64_t index) {
     x.check_index(self.rank() > 0, "select() cannot be applied to a 0-dim tensor.");
     const int64_t dim = x.axis(dim_arg, self);
     Dims at(static_cast<size_t>(self.rank()), 0), slice = self.dims();
     at[static_cast<size_t>(dim)] = resolve_select(x, self.dims(), dim, index);
     slice.erase(slice.begin() + dim);
     return put_block(x, self, x.unsqueeze(check_source(x, self, src, slice), dim), at);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::slice_scatter", [](Context& x, Value self, Value src, int64_t dim, Opt<int64_t> start,
                                 Opt<int64_t> end, int64_t step) {
     const Slice s = resolve_slice(x, self.dims(), dim, start, end, step);
     Dims at(static_cast<size_t>(self.rank()), 0), slice = self.dims();
     at[static_cast<size_t>(s.dim)] = s.start;
     slice[static_cast<size_t>(s.dim)] = s.length;
     const Value from = check_source(x, self, src, slice);
     if (s.step == 1 || s.length <= 1) return put_block(x, self, from, at);
     const Value marks = spread(x, x.b.splat({DType::kBool, {s.length}}, 1),
                                {0, s.start, s.length, s.step}, self.dim(s.dim));
     return x.b.select(x.b.broadcast_in_dim(marks, self.dims(), {s.dim}),
                       spread(x, from, s, self.dim(s.dim)), self);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::diagonal_scatter", [](Context& x, Value self, Value src, int64_t offset, int64_t dim1,
                                    int64_t dim2) {
     const Diagonal d = resolve_diagonal(x, self.dims(), offset, dim1, dim2);
     const Value from = check_source(x, self, src, d.shape);
     if (d.shape.back() == 0) return self;
     const auto [values, on] = spread_diagonal(x, from, self.dims(), offset, d.dim1, d.dim2);
     return x.b.select(on, values, self);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::diag_embed", [](Context& x, Value self, int64_t offset, int64_t dim1, int64_t dim2) {
    Dims dims = self.dims();
    x.check(!dims.empty(), "diag_embed needs at least one dimension");
    const int64_t n = dims.back() + std::abs(offset);
    const int64_t rank = self.rank() + 1;
    const int64_t d1 = x.axis(dim1, rank), d2 = x.axis(dim2, rank);
    x.check(d1 != d2, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
    dims.pop_back();
    dims.insert(dims.begin() + std::min(d1, d2), n);
    dims.insert(dims.begin() + std::max(d1, d2), n);
    if (self.numel() == 0) return x.zeros({self.dtype(), dims});
    const auto [values, on] = spread_diagonal(x, self, dims, offset, d1, d2);
    return x.b.select(on, values, x.like(values, 0));
  });
}

}  // namespace tpu::aten
