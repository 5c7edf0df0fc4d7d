// Pooling over the last two or three dims. Values come from native window reductions; maxima's
// positions from a second, variadic one, which is dead (and removed) where nobody keeps the
// indices. Gradients are sums of shifted copies or window sums; a scatter only where windows are
// irregular. Of equal maxima the first counts, of NaN the last, as in CPU's loops.
#include "aten/pool.h"

#include "aten/all.h"

namespace tpu::aten {

using ops::cpp_type_name;
using ops::scalar_type_name;

Planes planes(Ctx& x, Value self, int64_t spatial) {
  Planes p;
  p.unbatched = self.rank() == spatial + 1;
  p.v = p.unbatched ? x.unsqueeze(self, 0) : self;
  p.n = p.v.dim(0), p.c = p.v.dim(1);
  p.in = Dims(p.v.dims().begin() + 2, p.v.dims().end());
  return p;
}

Dims with_batch(const Planes& p, const Dims& spatial) {
  Dims d{p.n, p.c};
  d.insert(d.end(), spatial.begin(), spatial.end());
  return d;
}

Value unbatch(Ctx& x, const Planes& p, Value v) { return p.unbatched ? x.squeeze(v, 0) : v; }

void check_floating(Ctx& x, Value v, std::string_view kernel, bool int64_too) {
  x.check_supported((hlo::is_float(v.dtype()) && !hlo::is_float8(v.dtype())) ||
                        (int64_too && v.dtype() == DType::kI64),
                    "\"", kernel, "\" not implemented for '", scalar_type_name(v.dtype()), "'");
}

namespace {

Window make_window(Ctx& x, std::string_view op, const Planes& p, const Dims& kernel,
                   const Dims& stride, const Dims& pad, const Dims& dilation, bool ceil_mode) {
  const auto n = static_cast<int64_t>(p.in.size());
  const char* numbers = n == 2 ? "two ints" : "three ints";
  const auto list = [&](const Dims& d, std::string_view what, std::string_view choice) {
    x.check(d.size() == 1 || static_cast<int64_t>(d.size()) == n, op, ": ", what, " must ", choice,
            "a single int, or a tuple of ", numbers);
    return d.size() == 1 ? Dims(at(n), d[0]) : d;
  };
  Window w;
  w.kernel = list(kernel, "kernel_size", "either be ");
  w.stride = stride.empty() ? w.kernel : list(stride, "stride", "either be omitted, ");
  w.pad = list(pad, "padding", "either be ");
  w.dilation = list(dilation, "dilation", "be either ");
  const Dims rest(p.v.dims().begin() + 1, p.v.dims().end());
  const auto named = [&](const Dims& d, std::string_view name) {
    std::string s;
    for (size_t j = 0; j < d.size(); ++j)
      s += cat(j ? " " : "", name, (n == 2 ? "HW" : "THW")[j], ": ", d[j]);
    return s;
  };
  for (size_t j = 0; j < at(n); ++j) {
    x.check(w.stride[j] != 0, "stride should not be zero");
    x.check(w.pad[j] >= 0, "pad must be non-negative, but got pad: ", w.pad[j]);
    x.check(w.pad[j] <= ((w.kernel[j] - 1) * w.dilation[j] + 1) / 2,
            "pad should be at most half of effective kernel size, but got pad=", w.pad[j],
            ", kernel_size=", w.kernel[j], " and dilation=", w.dilation[j]);
    const int64_t room = p.in[j] + 2 * w.pad[j] - w.dilation[j] * (w.kernel[j] - 1) - 1 +
                         (ceil_mode ? w.stride[j] - 1 : 0);
    const int64_t floor =
        room >= 0 ? room / w.stride[j] : -((-room + w.stride[j] - 1) / w.stride[j]);
    int64_t out = floor + 1;
    if (ceil_mode && (out - 1) * w.stride[j] >= p.in[j] + w.pad[j]) --out;
    w.out.push_back(out);
  }
  const auto least = [](const Dims& d) { return *std::min_element(d.begin(), d.end()); };
  x.check(least(w.kernel) > 0, "kernel size should be greater than zero, but got ",
          named(w.kernel, "k"));
  x.check(least(w.stride) > 0, "stride should be greater than zero, but got ",
          named(w.stride, "d"));
  x.check(least(w.dilation) > 0, "dilation should be greater than zero, but got ",
          named(w.dilation, "dilation"));
  x.check(hlo::product(rest) != 0,
          n == 2 ? "Expected 3D or 4D (batch mode) tensor with optional 0 dim batch size for "
                   "input, but got:"
                 : "Expected input's non-batch dimensions to have positive length, but input has a "
                   "shape of ",
          p.v.dims());
  for (size_t j = 0; j < at(n); ++j) {
    x.check(w.kernel[j] / 2 >= w.pad[j],
            "pad should be smaller than or equal to half of kernel size, but got ",
            named(w.pad, "pad"), ", ", named(w.kernel, "k"));
  }
  Dims result{p.c};
  result.insert(result.end(), w.out.begin(), w.out.end());
  x.check(least(w.out) >= 1, "Given input size: (", by(rest), "). Calculated output size: (",
          by(result), "). Output size is too small");
  return w;
}

void check_rank(Ctx& x, Value self, int64_t spatial) {
  x.check(self.rank() == spatial + 1 || self.rank() == spatial + 2, "non-empty ", spatial + 1,
          "D or ", spatial + 2, "D (batch mode) tensor expected for input");
}

}  // namespace

hlo::ReduceWindow reduce_window(const Window& w, const Dims& in) {
  hlo::ReduceWindow r{.sizes = {1, 1},
                      .strides = {1, 1},
                      .pad_low = {0, 0},
                      .pad_high = {0, 0},
                      .window_dilation = {1, 1}};
  for (size_t j = 0; j < in.size(); ++j) {
    r.sizes.push_back(w.kernel[j]);
    r.strides.push_back(w.stride[j]);
    r.window_dilation.push_back(w.dilation[j]);
    r.pad_low.push_back(w.pad[j]);
    r.pad_high.push_back((w.out[j] - 1) * w.stride[j] + (w.kernel[j] - 1) * w.dilation[j] + 1 -
                         in[j] - w.pad[j]);
  }
  // The last window may end before the input does; what is never read is cut off.
  return r;
}

namespace {

// reduce_window has no negative padding: cut what no window reaches.
Value cut(Ctx& x, Value v, hlo::ReduceWindow& r) {
  for (int64_t j = 0; j < v.rank(); ++j) {
    int64_t& high = r.pad_high[at(j)];
    if (high >= 0) continue;
    v = x.b.slice_dim(v, j, 0, v.dim(j) + high);
    high = 0;
  }
  return v;
}

}  // namespace

// Row-major position in a plane of sizes `in`, as int32 of the plane's dims.
Value plane_positions(Ctx& x, const Dims& in) {
  return x.b.reshape(x.b.iota({DType::kI32, {hlo::product(in)}}, 0), in);
}

namespace {

// (value, position) pairs: does the second displace the first?
Value displaces(Ctx& x, Value a, Value a_at, Value c, Value c_at) {
  auto& b = x.b;
  const Value later = b.compare(Cmp::kGt, c_at, a_at), earlier = b.compare(Cmp::kLt, c_at, a_at);
  Value wins =
      b.logical_or(b.compare(Cmp::kGt, c, a), b.logical_and(b.compare(Cmp::kEq, c, a), earlier));
  if (hlo::is_float(a.dtype())) {
    const Value a_nan = x.is_nan(a), c_nan = x.is_nan(c);
    wins = b.logical_or(b.logical_and(wins, b.logical_not(a_nan)),
                        b.logical_and(c_nan, b.logical_or(b.logical_not(a_nan), later)));
  }
  return wins;
}

}  // namespace

Values better_of(Ctx& x, const Values& a) {
  const Value wins = displaces(x, a[0], a[1], a[2], a[3]);
  return {x.b.select(wins, a[2], a[0]), x.b.select(wins, a[3], a[1])};
}

Values max_init(Ctx& x, DType t) { return {x.b.min_value(t), x.b.max_value(DType::kI32)}; }

std::array<Value, 2> max_pool(Ctx& x, Value self, const Dims& kernel, const Dims& stride,
                              const Dims& padding, const Dims& dilation, bool ceil_mode,
                              int64_t spatial) {
  check_rank(x, self, spatial);
  const Planes p = planes(x, self, spatial);
  const std::string name = cat("max_pool", spatial, "d");
  const Window w = make_window(x, name, p, kernel, stride, padding, dilation, ceil_mode);
  x.check_supported(!hlo::is_bool(self.dtype()) && !hlo::is_complex(self.dtype()), "\"", name,
                    "\" not implemented for '", scalar_type_name(self.dtype()), "'");
  const Dims result = with_batch(p, w.out);
  if (p.n == 0) {
    return {unbatch(x, p, x.zeros({self.dtype(), result})),
            unbatch(x, p, x.zeros({DType::kI64, result}))};
  }
  hlo::ReduceWindow r = reduce_window(w, p.in);
  Dims map;
  for (int64_t j = 0; j < spatial; ++j) map.push_back(j + 2);
  const Value where = x.b.broadcast_in_dim(plane_positions(x, p.in), p.v.dims(), map);
  hlo::ReduceWindow same = r;
  const Value v = cut(x, p.v, r), v_at = cut(x, where, same);
  const Value best = x.b.reduce_window(v, x.b.min_value(v.dtype()), r, Op::kMaximum);
  const Value best_at = x.b.reduce_window({v, v_at}, max_init(x, v.dtype()), r,
                                          [&](const Values& a) { return better_of(x, a); })[1];
  return {unbatch(x, p, best), unbatch(x, p, x.b.convert(best_at, DType::kI64))};
}

namespace {

void check_dim(Ctx& x, Value v, int64_t dim, int64_t size) {
  x.check(v.rank() > dim && v.dim(dim) == size, "Expected a tensor of dimension ", v.rank(),
          " and tensor.size[", dim, "] == ", size, " but got: dimension ", v.rank(),
          " and tensor.size[", dim, "] = ", v.rank() > dim ? v.dim(dim) : 0);
}

void check_like_output(Ctx& x, Value v, const Dims& dims) {
  x.check(v.rank() == static_cast<int64_t>(dims.size()), "Expected a tensor of dimension ",
          dims.size(), " but got: dimension ", v.rank());
  for (size_t j = 0; j < dims.size(); ++j) check_dim(x, v, static_cast<int64_t>(j), dims[j]);
}

}  // namespace

void check_indices(Ctx& x, Value indices) {
  x.check(indices.dtype() == DType::kI64,
          "elements in indices should be type int64 but got: ", scalar_type_name(indices.dtype()),
          "; expected scalar type Long");
}

// grad [n, c, out...] added at its positions in planes of sizes `in`.
Value scatter_planes(Ctx& x, Value grad, Value indices, const Dims& in) {
  const int64_t n = grad.dim(0) * grad.dim(1), size = hlo::product(in);
  const int64_t count = n == 0 ? 0 : grad.numel() / n;
  const Dims pair{n, count, 1};
  const Value where = x.b.concatenate(
      {x.b.iota({DType::kI32, pair}, 0), x.b.convert(x.b.reshape(indices, pair), DType::kI32)}, 2);
  const hlo::ScatterDims d{.update_window_dims = {},
                           .inserted_window_dims = {0, 1},
                           .scatter_dims_to_operand_dims = {0, 1},
                           .index_vector_dim = 2};
  const Value sum = x.b.scatter(x.zeros({grad.dtype(), {n, size}}), where,
                                x.b.reshape(grad, {n, count}), d, Op::kAdd);
  Dims dims{grad.dim(0), grad.dim(1)};
  dims.insert(dims.end(), in.begin(), in.end());
  return x.b.reshape(sum, dims);
}

// For each element of a window: the gradients whose maximum it was, moved to where it lies.
Value max_pool_grad(Ctx& x, Value grad, Value indices, const Window& w, const Dims& in) {
  auto& b = x.b;
  const auto spatial = static_cast<int64_t>(in.size());
  const Value at_index = b.convert(indices, DType::kI32);
  Dims tap(at(spatial), 0);
  Value sum;
  for (int64_t t = 0; t < w.taps(); ++t) {
    // Position of this element of each window. Outside of the input it may look like another one's,
    // but what is selected there the padding below cuts off.
    Value position;
    Dims low{0, 0}, high{0, 0}, interior{0, 0};
    int64_t pitch = hlo::product(in);
    for (int64_t j = 0; j < spatial; ++j) {
      const size_t s = at(j);
      pitch /= in[s];
      const int64_t first = tap[s] * w.dilation[s] - w.pad[s];
      const Type line{DType::kI32, {w.out[s]}};
      const Value along_dim = b.add(b.mul(b.iota(line, 0), b.splat(line, w.stride[s] * pitch)),
                                    b.splat(line, first * pitch));
      const Value part = along(x, along_dim, grad.dims(), j + 2);
      position = j == 0 ? part : b.add(position, part);
      low.push_back(first);
      high.push_back(in[s] - first - (w.out[s] - 1) * w.stride[s] - 1);
      interior.push_back(w.stride[s] - 1);
    }
    const Value mine = b.select(b.compare(Cmp::kEq, at_index, position), grad, x.like(grad, 0));
    const Value moved = b.pad(mine, x.constant(grad.dtype(), 0), low, high, interior);
    sum = sum.valid() ? b.add(sum, moved) : moved;
    for (int64_t j = spatial - 1; j >= 0 && ++tap[at(j)] == w.kernel[at(j)]; --j) tap[at(j)] = 0;
  }
  return sum;
}

namespace {

// The same from the input, one instruction of TPUs; nothing for dilated windows. Of equal elements
// the first takes the gradient, as in the indices of the forward pass.
Opt<Value> max_pool_grad_of_input(Ctx& x, Value grad, Value v, const Window& w, const Dims& in) {
  int64_t summed = 1;  // gradients that may meet in an element
  for (size_t j = 0; j < in.size(); ++j) {
    if (w.dilation[j] != 1) return std::nullopt;
    summed *= (w.kernel[j] + w.stride[j] - 1) / w.stride[j];
  }
  hlo::ReduceWindow r = reduce_window(w, in);
  r.window_dilation.clear();
  const DType t = summed <= 4 ? v.dtype() : hlo::compute_type(v.dtype());
  const Value reached = cut(x, v, r);
  const Value sums = x.b.select_and_scatter(x.convert(reached, t), x.convert(grad, t),
                                            x.constant(t, 0), r, Cmp::kGe, Op::kAdd);
  const Dims none(at(v.rank()), 0);
  Dims rest = none;
  for (int64_t j = 0; j < v.rank(); ++j) rest[at(j)] = v.dim(j) - reached.dim(j);
  return x.b.pad(sums, x.constant(t, 0), none, rest, none);
}

Value max_pool_backward(Ctx& x, Value grad_output, Value self, const Dims& kernel,
                        const Dims& stride, const Dims& padding, const Dims& dilation,
                        bool ceil_mode, Value indices, int64_t spatial) {
  check_rank(x, self, spatial);
  const Planes p = planes(x, self, spatial);
  const Window w = make_window(x, cat("max_pool", spatial, "d"), p, kernel, stride, padding,
                               dilation, ceil_mode);
  x.check(grad_output.dtype() == self.dtype(), "expected dtype ", cpp_type_name(self.dtype()),
          " for `gradOutput` but got dtype ", cpp_type_name(grad_output.dtype()));
  const Dims out = with_batch(p, w.out);
  const Dims given = p.unbatched ? Dims(out.begin() + 1, out.end()) : out;
  check_like_output(x, grad_output, given);
  check_like_output(x, indices, given);
  check_indices(x, indices);
  if (self.numel() == 0) return x.zeros(self.type());
  // TPUs compute float64 as pairs of float32, for which XLA has no select_and_scatter.
  const bool selects = hlo::is_float(self.dtype()) && self.dtype() != DType::kF64;
  if (!x.on_cpu_plugin() && selects) {
    const Value given_grad = x.b.reshape(grad_output, out);
    if (const auto r = max_pool_grad_of_input(x, given_grad, p.v, w, p.in)) {
      return x.b.reshape(x.convert(*r, self.dtype()), self.dims());
    }
  }
  const Value grad = x.to_compute(x.b.reshape(grad_output, out)), where = x.b.reshape(indices, out);
  const Value r = w.taps() <= kUnrolledTaps ? max_pool_grad(x, grad, where, w, p.in)
                                            : scatter_planes(x, grad, where, p.in);
  return x.b.reshape(x.convert(r, self.dtype()), self.dims());
}

// ---- Averages.

// How many elements each window of a dim counts.
Dims window_counts(const Window& w, const Dims& in, size_t j, bool count_include_pad) {
  Dims counts;
  for (int64_t o = 0; o < w.out[j]; ++o) {
    const int64_t start = o * w.stride[j] - w.pad[j];
    const int64_t end = std::min(start + w.kernel[j], in[j] + w.pad[j]);
    counts.push_back(count_include_pad ? end - start
                                       : std::min(end, in[j]) - std::max<int64_t>(start, 0));
  }
  return counts;
}

// v divided by the number of elements its window counts.
Value divide_by_counts(Ctx& x, Value v, const Window& w, const Dims& in, bool count_include_pad,
                       Opt<int64_t> divisor_override) {
  if (divisor_override) return x.b.div(v, x.b.splat(v.type(), *divisor_override));
  double common = 1;
  Value divisor;
  for (size_t j = 0; j < in.size(); ++j) {
    const Dims counts = window_counts(w, in, j, count_include_pad);
    if (std::adjacent_find(counts.begin(), counts.end(), std::not_equal_to<>()) == counts.end()) {
      common *= static_cast<double>(counts[0]);
      continue;
    }
    const Value line = x.convert(x.b.constant_ints(counts, {DType::kI32, {w.out[j]}}), v.dtype());
    const Value part = along(x, line, v.dims(), static_cast<int64_t>(j) + 2);
    divisor = divisor.valid() ? x.b.mul(divisor, part) : part;
  }
  const Value constant = x.like(v, common);
  return x.b.div(v, divisor.valid() ? x.b.mul(divisor, constant) : constant);
}

Window avg_window(Ctx& x, const Planes& p, const Dims& kernel, const Dims& stride,
                  const Dims& padding, bool ceil_mode, Opt<int64_t> divisor_override) {
  const auto n = static_cast<int64_t>(p.in.size());
  x.check(!divisor_override || *divisor_override != 0, "divisor must be not zero");
  const Window w =
      make_window(x, cat("avg_pool", n, "d"), p, kernel, stride, padding, {1}, ceil_mode);
  if (n == 3) {
    x.check(p.in[0] >= w.kernel[0] && p.in[1] >= w.kernel[1] && p.in[2] >= w.kernel[2],
            "input image (T: ", p.in[0], " H: ", p.in[1], " W: ", p.in[2],
            ") smaller than kernel size (kT: ", w.kernel[0], " kH: ", w.kernel[1],
            " kW: ", w.kernel[2], ")");
  }
  return w;
}

}  // namespace

Value window_sums(Ctx& x, Value v, hlo::ReduceWindow r) {
  v = cut(x, v, r);
  return x.b.reduce_window(v, x.b.constant(v.dtype(), 0), r, Op::kAdd);
}

namespace {

Value avg_pool(Ctx& x, Value self, const Dims& kernel, const Dims& stride, const Dims& padding,
               bool ceil_mode, bool count_include_pad, Opt<int64_t> divisor_override,
               int64_t spatial) {
  check_rank(x, self, spatial);
  const Planes p = planes(x, self, spatial);
  const Window w = avg_window(x, p, kernel, stride, padding, ceil_mode, divisor_override);
  check_floating(x, self, spatial == 2 ? "avg_pool2d" : "avg_pool3d_out_frame", /*int64_too=*/true);
  if (p.n == 0) return x.zeros({self.dtype(), with_batch(p, w.out)});
  const Value sums = window_sums(x, x.to_compute(p.v), reduce_window(w, p.in));
  const Value r = divide_by_counts(x, sums, w, p.in, count_include_pad, divisor_override);
  return unbatch(x, p, x.convert(r, self.dtype()));
}

Value avg_pool_backward(Ctx& x, Value grad_output, Value self, const Dims& kernel,
                        const Dims& stride, const Dims& padding, bool ceil_mode,
                        bool count_include_pad, Opt<int64_t> divisor_override, int64_t spatial) {
  check_rank(x, self, spatial);
  const Planes p = planes(x, self, spatial);
  const Window w = avg_window(x, p, kernel, stride, padding, ceil_mode, divisor_override);
  check_floating(x, self, spatial == 2 ? "avg_pool2d_backward" : "avg_pool3d_backward_out_frame",
                 true);
  const Dims out = with_batch(p, w.out);
  check_like_output(x, grad_output, p.unbatched ? Dims(out.begin() + 1, out.end()) : out);
  if (self.numel() == 0) return x.zeros(self.type());
  const Value grad = divide_by_counts(x, x.to_compute(x.b.reshape(grad_output, out)), w, p.in,
                                      count_include_pad, divisor_override);
  // Each input element sums the windows it lies in: a window sum over the gradients set `stride`
  // apart.
  Dims low{0, 0}, high{0, 0}, interior{0, 0};
  hlo::ReduceWindow r{.sizes = {1, 1},
                      .strides = Dims(out.size(), 1),
                      .pad_low = Dims(out.size(), 0),
                      .pad_high = Dims(out.size(), 0)};
  for (size_t j = 0; j < p.in.size(); ++j) {
    const int64_t first = w.kernel[j] - 1 - w.pad[j];
    low.push_back(first);
    high.push_back(p.in[j] + w.kernel[j] - 1 - first - ((w.out[j] - 1) * w.stride[j] + 1));
    interior.push_back(w.stride[j] - 1);
    r.sizes.push_back(w.kernel[j]);
  }
  const Value spread = x.b.pad(grad, x.constant(grad.dtype(), 0), low, high, interior);
  return unbatch(x, p, x.convert(window_sums(x, spread, r), self.dtype()));
}

template <int64_t N>
void register_rank(ops::Registry& r) {
  const auto channels_last = ops::LayoutRule::kChannelsLast;
  const auto average = N == 3 ? ops::LayoutRule::kContiguous : channels_last;
  const std::string d = cat(N, "d");
  r.op("aten::max_pool" + d + "_with_indices", [](Ctx& x, Value self, Dims kernel_size, Dims stride,
                                                  Dims padding, Dims dilation, bool ceil_mode) {
     return max_pool(x, self, kernel_size, stride, padding, dilation, ceil_mode, N);
   }).layout(channels_last);
  r.op("aten::max_pool" + d + "_with_indices_backward", [](Ctx& x, Value grad_output, Value self,
                                                           Dims kernel_size, Dims stride,
                                                           Dims padding, Dims dilation,
                                                           bool ceil_mode, Value indices) {
     return max_pool_backward(x, grad_output, self, kernel_size, stride, padding, dilation,
                              ceil_mode, indices, N);
   }).layout(channels_last);
  r.op("aten::avg_pool" + d, [](Ctx& x, Value self, Dims kernel_size, Dims stride, Dims padding,
                                bool ceil_mode, bool count_include_pad,
                                Opt<int64_t> divisor_override) {
     return avg_pool(x, self, kernel_size, stride, padding, ceil_mode, count_include_pad,
                     divisor_override, N);
   }).layout(average);
  r.op("aten::avg_pool" + d + "_backward", [](Ctx& x, Value grad_output, Value self,
                                              Dims kernel_size, Dims stride, Dims padding,
                                              bool ceil_mode, bool count_include_pad,
                                              Opt<int64_t> divisor_override) {
     return avg_pool_backward(x, grad_output, self, kernel_size, stride, padding, ceil_mode,
                              count_include_pad, divisor_override, N);
   }).layout(average);
}

}  // namespace

void register_pool(ops::Registry& r) {
  register_rank<2>(r);
  register_rank<3>(r);
  register_adaptive_pool(r);
}

}  // namespace tpu::aten
