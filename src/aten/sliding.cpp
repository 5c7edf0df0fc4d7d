// Windows along a dim as data: sliding ones (im2col, col2im, unfold_backward and what pooling and
// convolution share of them) and irregular runs.
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::scalar_type_name;

Dims spatial_dims(Value v) { return Dims(v.dims().begin() + 2, v.dims().end()); }

constexpr int64_t kUnrolled =
    32;  // windows up to this size are slices; larger ones gather or scatter

Value pad_dim(Ctx& x, Value v, int64_t dim, int64_t low, int64_t high, int64_t interior = 0) {
  Dims l(at(v.rank()), 0), h = l, i = l;
  l[at(dim)] = low, h[at(dim)] = high, i[at(dim)] = interior;
  return x.b.pad(v, x.constant(v.dtype(), 0), l, h, i);
}

// position[size, out] = i * dilation + j * stride, int32.
Value window_positions(Ctx& x, const Sliding& w) {
  const Type t{DType::kI32, {w.size, w.out}};
  const auto scaled = [&](int64_t dim, int64_t by) {
    return x.b.mul(x.b.iota(t, dim), x.b.splat(t, by));
  };
  return x.b.add(scaled(0, w.dilation), scaled(1, w.stride));
}

Dims split_dim(const Dims& d, int64_t dim, int64_t a, int64_t b) {
  Dims r = d;
  r[at(dim)] = a;
  r.insert(r.begin() + dim + 1, b);
  return r;
}

Dims join_dim(const Dims& d, int64_t dim) {
  Dims r = d;
  r[at(dim)] *= r[at(dim) + 1];
  r.erase(r.begin() + dim + 1);
  return r;
}

Value add_up(Ctx& x, Value v, Value more) {
  return v.valid() ? x.b.binary(hlo::is_bool(v.dtype()) ? Op::kOr : Op::kAdd, v, more) : more;
}

}  // namespace

Value to_windows(Ctx& x, Value v, int64_t dim, const Sliding& w) {
  if (w.size > kUnrolled) {
    const Value position = x.b.reshape(window_positions(x, w), {w.size * w.out});
    const Value taken = take(x, v, position, dim);
    return x.b.reshape(taken, split_dim(taken.dims(), dim, w.size, w.out));
  }
  Values parts;
  for (int64_t i = 0; i < w.size; ++i) {
    const int64_t start = i * w.dilation;
    const Value s = x.b.slice_dim(v, dim, start, start + (w.out - 1) * w.stride + 1, w.stride);
    parts.push_back(x.b.reshape(s, split_dim(s.dims(), dim, 1, w.out)));
  }
  return parts.size() == 1 ? parts[0] : x.b.concatenate(parts, dim);
}

Value from_windows(Ctx& x, Value v, int64_t dim, const Sliding& w, int64_t length) {
  if (v.numel() == 0) {
    Dims d = v.dims();
    d.erase(d.begin() + dim);
    d[at(dim)] = length;
    return x.zeros({v.dtype(), d});
  }
  if (w.size <= kUnrolled || (w.stride == 1 && w.out < w.size && w.out <= kUnrolled)) {
    // One shifted copy for each element of a window.
    Value sum;
    for (int64_t i = 0; i < w.size; ++i) {
      const Value s = x.squeeze(x.b.slice_dim(v, dim, i, i + 1), dim);
      const int64_t low = i * w.dilation;
      sum = add_up(
          x, sum, pad_dim(x, s, dim, low, length - low - (w.out - 1) * w.stride - 1, w.stride - 1));
    }
    return sum;
  }
  const int64_t pieces = (w.size + w.stride - 1) / w.stride;
  if (w.dilation == 1 && pieces <= kUnrolled) {
    // Cut each window into pieces of `stride` elements: piece j of window t lands in row t + j of
    // [rows, stride].
    const Value whole = pad_dim(x, v, dim, 0, pieces * w.stride - w.size);
    Dims cut = whole.dims();
    cut[at(dim)] = pieces;
    cut.insert(cut.begin() + dim + 1, w.stride);
    const Value parts = x.b.reshape(whole, cut);  // [pieces, stride, out]
    Dims order;
    for (int64_t i = 0; i + 1 < parts.rank(); ++i) order.push_back(i);
    std::swap(order[at(dim)], order[at(dim) + 1]);
    Value sum;
    for (int64_t j = 0; j < pieces; ++j) {
      const Value piece = x.squeeze(x.b.slice_dim(parts, dim, j, j + 1), dim);  // [stride, out]
      sum = add_up(x, sum, pad_dim(x, x.b.transpose(piece, order), dim, j, pieces - 1 - j));
    }
    const Value flat = x.b.reshape(sum, join_dim(sum.dims(), dim));
    const int64_t have = flat.dim(dim);
    return have >= length ? x.b.slice_dim(flat, dim, 0, length)
                          : pad_dim(x, flat, dim, 0, length - have);
  }
  const Value flat = x.b.reshape(v, join_dim(v.dims(), dim));
  hlo::ScatterDims d;
  Dims dims = flat.dims();
  dims[at(dim)] = length;
  for (int64_t i = 0; i < flat.rank(); ++i) {
    if (i != dim) d.update_window_dims.push_back(i);
  }
  d.inserted_window_dims = {dim};
  d.scatter_dims_to_operand_dims = {dim};
  d.index_vector_dim = 1;
  const Value position = x.b.reshape(window_positions(x, w), {w.size * w.out});
  return x.b.scatter(x.zeros({v.dtype(), dims}), position, flat, d,
                     hlo::is_bool(v.dtype()) ? Op::kOr : Op::kAdd);
}

namespace {

struct Columns {
  Dims kernel, dilation, padding, stride, out;
};

std::string pair_text(const Dims& d) { return cat("(", d[0], ", ", d[1], ")"); }

Columns make_columns(Ctx& x, const Dims& size, const Dims& kernel, const Dims& dilation,
                     const Dims& padding, const Dims& stride) {
  Columns c{per_dim(x, kernel, 2, "kernel_size"),
            per_dim(x, dilation, 2, "dilation"),
            per_dim(x, padding, 2, "padding"),
            per_dim(x, stride, 2, "stride"),
            {}};
  const auto positive = [&](const Dims& d, const char* what, const char* name) {
    x.check(d[0] > 0 && d[1] > 0, what, " should be greater than zero, but got ", name,
            "_height: ", d[0], " ", name, "_width: ", d[1]);
  };
  positive(c.kernel, "kernel size", "kernel");
  positive(c.dilation, "dilation", "dilation");
  x.check(c.padding[0] >= 0 && c.padding[1] >= 0,
          "padding should be non-negative, but got pad_height: ", c.padding[0],
          " pad_width: ", c.padding[1]);
  positive(c.stride, "stride", "stride");
  for (size_t j = 0; j < 2; ++j) {
    const int64_t room = size[j] + 2 * c.padding[j] - c.dilation[j] * (c.kernel[j] - 1) - 1;
    c.out.push_back(room < 0 ? 0 : room / c.stride[j] + 1);
  }
  x.check(c.out[0] > 0 && c.out[1] > 0, "Given input with spatial size ", pair_text(size),
          ", kernel_size=", pair_text(c.kernel), ", dilation=", pair_text(c.dilation),
          ", padding=", pair_text(c.padding),
          ", calculated shape of the array of sliding blocks as ", pair_text(c.out),
          ", but its components must be at least one.");
  return c;
}

Sliding sliding(const Columns& c, size_t j) {
  return {c.kernel[j], c.stride[j], c.dilation[j], c.out[j]};
}

void check_columns_type(Ctx& x, Value v, const char* kernel) {
  x.check_supported(!hlo::is_integer(v.dtype()), "\"", kernel, "\" not implemented for '",
                    scalar_type_name(v.dtype()), "'");
}

Value im2col(Ctx& x, Value self, Dims kernel, Dims dilation, Dims padding, Dims stride) {
  const int64_t r = self.rank();
  const bool ok = (r == 3 || r == 4) &&
                  hlo::product(Dims(self.dims().begin() + (r == 4), self.dims().end())) != 0;
  x.check(ok,
          "Expected 3D or 4D (batch mode) tensor with possibly 0 batch size and other non-zero "
          "dimensions for "
          "input, but got: ",
          self.dims());
  check_columns_type(x, self, "im2col_out_cpu");
  const Value v = r == 3 ? x.unsqueeze(self, 0) : self;
  const Columns c = make_columns(x, spatial_dims(v), kernel, dilation, padding, stride);
  const int64_t n = v.dim(0), channels = v.dim(1), k = c.kernel[0] * c.kernel[1],
                blocks = c.out[0] * c.out[1];
  Dims result{n, channels * k, blocks};
  if (r == 3) result.erase(result.begin());
  if (n == 0) return x.zeros({v.dtype(), result});
  const Value padded =
      pad_dim(x, pad_dim(x, v, 2, c.padding[0], c.padding[0]), 3, c.padding[1], c.padding[1]);
  // [n, c, h, w] -> [n, c, kh, oh, kw, ow] -> [n, c, kh, kw, oh, ow]
  const Value windows = to_windows(x, to_windows(x, padded, 2, sliding(c, 0)), 4, sliding(c, 1));
  return x.b.reshape(x.b.transpose(windows, {0, 1, 2, 4, 3, 5}), result);
}

Value col2im(Ctx& x, Value self, Dims output_size, Dims kernel, Dims dilation, Dims padding,
             Dims stride) {
  const int64_t r = self.rank();
  const Dims size = per_dim(x, output_size, 2, "output_size");
  const bool ok = (r == 2 || r == 3) &&
                  hlo::product(Dims(self.dims().begin() + (r == 3), self.dims().end())) != 0;
  x.check(ok,
          "Expected 2D or 3D (batch mode) tensor for input with possibly 0 batch size and non-zero "
          "dimensions for "
          "input, but got: ",
          self.dims());
  check_columns_type(x, self, "col2im_out_cpu");
  const Value v = r == 2 ? x.unsqueeze(self, 0) : self;
  const Columns c = make_columns(x, size, kernel, dilation, padding, stride);
  const int64_t n = v.dim(0), k = c.kernel[0] * c.kernel[1], blocks = c.out[0] * c.out[1];
  x.check(v.dim(1) % k == 0,
          "Expected size of input's dimension 1 to be divisible by the product of kernel_size, "
          "but got input.size(1)=",
          v.dim(1), " and kernel_size=", pair_text(c.kernel), ".");
  x.check(
      v.dim(2) == blocks, "Given output_size=", pair_text(size),
      ", kernel_size=", pair_text(c.kernel), ", dilation=", pair_text(c.dilation),
      ", padding=", pair_text(c.padding), ", stride=", pair_text(c.stride),
      ", expected size of input's dimension 2 to match the calculated number of sliding blocks ",
      c.out[0], " * ", c.out[1], " = ", blocks, ", but got input.size(2)=", v.dim(2), ".");
  const int64_t channels = v.dim(1) / k;
  Dims result{n, channels, size[0], size[1]};
  if (r == 2) result.erase(result.begin());
  if (n == 0) return x.zeros({v.dtype(), result});
  const Value cut =
      x.b.reshape(x.to_compute(v), {n, channels, c.kernel[0], c.kernel[1], c.out[0], c.out[1]});
  const Value windows = x.b.transpose(cut, {0, 1, 2, 4, 3, 5});
  const Value rows = from_windows(x, windows, 4, sliding(c, 1), size[1] + 2 * c.padding[1]);
  const Value whole = from_windows(x, rows, 2, sliding(c, 0), size[0] + 2 * c.padding[0]);
  const Value inner = x.b.slice_dim(x.b.slice_dim(whole, 2, c.padding[0], c.padding[0] + size[0]),
                                    3, c.padding[1], c.padding[1] + size[1]);
  return x.b.reshape(x.convert(inner, v.dtype()), result);
}

// grad_in [..., out at dim, ..., size] -> input_sizes.
Value unfold_backward(Ctx& x, Value grad_in, Dims input_sizes, int64_t dim, int64_t size,
                      int64_t step) {
  const auto rank = static_cast<int64_t>(input_sizes.size());
  if (rank == 0)
    return x.convert(x.sum(x.to_compute(grad_in), x.all_axes(grad_in)), grad_in.dtype());
  const int64_t d = x.axis(dim, rank);
  Dims order;
  for (int64_t i = 0; i < rank; ++i) {
    if (i == d) order.push_back(rank);  // the window's elements come before its position
    order.push_back(i);
  }
  const Value windows = x.b.transpose(x.to_compute(grad_in), order);
  const Sliding w{size, step, 1, grad_in.dim(d)};
  return x.convert(from_windows(x, windows, d, w, input_sizes[at(d)]), grad_in.dtype());
}

}  // namespace

Runs Runs::make(const Dims& start, Dims count) {
  Runs t;
  t.count = std::move(count);
  const size_t runs = start.size();
  for (size_t r = 0; r < runs; ++r) t.size = std::max(t.size, t.count[r]);
  t.size = std::max<int64_t>(t.size, 1);
  for (int64_t k = 0; k < t.size; ++k) {
    for (size_t r = 0; r < runs; ++r) {
      t.real.push_back(k < t.count[r]);
      t.index.push_back(start[r] + std::max<int64_t>(std::min(k, t.count[r] - 1), 0));
    }
  }
  return t;
}

Value gather_runs(Ctx& x, Value v, int64_t dim, const Runs& r) {
  const auto runs = static_cast<int64_t>(r.count.size());
  const Value index = x.b.constant_ints(r.index, {DType::kI32, {r.size * runs}});
  const Value taken = take(x, v, index, dim);
  Dims d = taken.dims();
  d[at(dim)] = r.size;
  d.insert(d.begin() + dim + 1, runs);
  return x.b.reshape(taken, d);
}

Value sum_runs(Ctx& x, Value v, int64_t dim, const Runs& r) {
  const auto runs = static_cast<int64_t>(r.count.size());
  Value w = gather_runs(x, v, dim, r);
  if (std::find(r.real.begin(), r.real.end(), 0) != r.real.end()) {
    const Value real = x.b.constant_ints(r.real, {DType::kBool, {r.size, runs}});
    w = x.b.select(x.b.broadcast_in_dim(real, w.dims(), {dim, dim + 1}), w, x.like(w, 0));
  }
  return x.sum(w, {dim});
}

void register_sliding(ops::Registry& r) {
  r.op("aten::im2col", im2col);
  r.op("aten::col2im", col2im);
  r.op("aten::unfold_backward", unfold_backward);
}

}  // namespace tpu::aten
