// Pooling into a given number of outputs (adaptive, fractional) and unpooling. Where the windows
// come out even this is the pooling of pool.cpp, else they are gathered as irregular runs.
#include <numeric>

#include "aten/all.h"
#include "aten/pool.h"

namespace tpu::aten {
namespace {

using ops::cpp_type_name;
using ops::scalar_type_name;

// Window o of a dim covers [o * in / out, ceil((o + 1) * in / out)).

bool divides(const Dims& in, const Dims& out) {
  for (size_t j = 0; j < in.size(); ++j) {
    if (out[j] == 0 || in[j] % out[j] != 0) return false;
  }
  return true;
}

Window even_window(const Dims& in, const Dims& out) {
  Window w{.kernel = {},
           .stride = {},
           .pad = Dims(in.size(), 0),
           .dilation = Dims(in.size(), 1),
           .out = out};
  for (size_t j = 0; j < in.size(); ++j) w.kernel.push_back(in[j] / out[j]);
  w.stride = w.kernel;
  return w;
}

Runs adaptive_runs(int64_t in, int64_t out) {
  Dims start, count;
  for (int64_t o = 0; o < out; ++o) {
    start.push_back(o * in / out);
    count.push_back(((o + 1) * in + out - 1) / out - start.back());
  }
  return Runs::make(start, std::move(count));
}

Value divide_along(Ctx& x, Value v, int64_t dim, const Dims& counts) {
  const Value line = x.b.constant_ints(counts, {DType::kI32, {v.dim(dim)}});
  return x.b.div(v, along(x, x.convert(line, v.dtype()), v.dims(), dim));
}

Planes adaptive_planes(Ctx& x, Value self, int64_t spatial, std::string_view op) {
  x.check(self.rank() == spatial + 1 || self.rank() == spatial + 2, op, "(): Expected ",
          spatial + 1, "D or ", spatial + 2, "D tensor, but got: ", self.dims());
  for (int64_t j = self.rank() - spatial; j < self.rank(); ++j) {
    x.check(
        self.dim(j) > 0, op,
        "(): Expected input to have non-zero size for non-batch dimensions, but input has sizes ",
        self.dims(), " with dimension ", j, " being empty");
  }
  return planes(x, self, spatial);
}

Dims adaptive_size(Ctx& x, const Dims& size, int64_t spatial, std::string_view op) {
  x.check(static_cast<int64_t>(size.size()) == spatial, op, ": output_size must be ", spatial,
          "; internal error: output_size.size() must be ", spatial);
  for (const int64_t s : size)
    x.check(s >= 0, op, ": Trying to create tensor with negative dimension ", s,
            "; elements of output_size must not be negative, got ", size);
  return size;
}

Value adaptive_avg_pool(Ctx& x, Value self, const Dims& output_size, int64_t spatial) {
  const std::string name = cat("adaptive_avg_pool", spatial, "d");
  const Dims out = adaptive_size(x, output_size, spatial, name);
  const Planes p = adaptive_planes(x, self, spatial, name);
  check_floating(x, self, spatial == 2 ? name : name + "_cpu");
  const Dims result = with_batch(p, out);
  if (hlo::product(result) == 0) return unbatch(x, p, x.zeros({self.dtype(), result}));
  Value v = x.to_compute(p.v);
  if (divides(p.in, out)) {
    const Window w = even_window(p.in, out);
    Dims axes(at(spatial));
    std::iota(axes.begin(), axes.end(), 2);
    v = hlo::product(out) == 1 ? x.sum(v, axes, /*keepdim=*/true)
                               : window_sums(x, v, reduce_window(w, p.in));
    v = x.b.div(v, x.like(v, static_cast<double>(w.taps())));
  } else {
    for (int64_t j = spatial - 1; j >= 0; --j) {
      const Runs t = adaptive_runs(p.in[at(j)], out[at(j)]);
      v = divide_along(x, sum_runs(x, v, j + 2, t), j + 2, t.count);
    }
  }
  return unbatch(x, p, x.convert(v, self.dtype()));
}

Value adaptive_avg_pool_backward(Ctx& x, Value grad_output, Value self, int64_t spatial) {
  const std::string name = cat("adaptive_avg_pool", spatial, "d_backward");
  x.check(grad_output.dtype() == self.dtype(), "expected dtype ", scalar_type_name(self.dtype()),
          " for `grad_output` but got dtype ", scalar_type_name(grad_output.dtype()));
  x.check(grad_output.rank() == self.rank(), name, "(): Expected grad_output to have ", self.rank(),
          " dimensions, got ", grad_output.rank());
  const Planes p = adaptive_planes(x, self, spatial, name);
  const Planes g = planes(x, grad_output, spatial);
  check_floating(x, self, name);
  if (self.numel() == 0 || grad_output.numel() == 0) return x.zeros(self.type());
  Value v = x.to_compute(g.v);
  // Input element i lies in the windows that element i of the reverse pooling covers.
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t in = p.in[at(j)], out = g.in[at(j)];
    v = divide_along(x, v, j + 2, adaptive_runs(in, out).count);
    if (in % out == 0) {
      Dims wide = v.dims(), map, merged = v.dims();
      wide.insert(wide.begin() + j + 3, in / out);
      merged[at(j + 2)] = in;
      for (int64_t d = 0; d < static_cast<int64_t>(wide.size()); ++d) {
        if (d != j + 3) map.push_back(d);
      }
      v = x.b.reshape(x.b.broadcast_in_dim(v, wide, map), merged);
    } else {
      v = sum_runs(x, v, j + 2, adaptive_runs(out, in));
    }
  }
  return unbatch(x, p, x.convert(v, self.dtype()));
}

// Maximum and position over gathered windows: v [n, c, k0, o0, k1, o1, ...], where [n or 1, ...]
// alike.
std::array<Value, 2> max_of_windows(Ctx& x, Value v, Value where, int64_t spatial) {
  Dims axes;
  for (int64_t j = 0; j < spatial; ++j) axes.push_back(2 + 2 * j);
  const Value at_all = x.broadcast(where, v.dims());
  const Value best = x.max(v, axes);
  const Value best_at = x.b.reduce({v, at_all}, max_init(x, v.dtype()), axes,
                                   [&](const Values& a) { return better_of(x, a); })[1];
  return {best, x.b.convert(best_at, DType::kI64)};
}

std::array<Value, 2> adaptive_max_pool(Ctx& x, Value self, const Dims& output_size,
                                       int64_t spatial) {
  const std::string name = cat("adaptive_max_pool", spatial, "d");
  const Dims out = adaptive_size(x, output_size, spatial, name + "()");
  const Planes p = adaptive_planes(x, self, spatial, name);
  check_floating(x, self, spatial == 2 ? name : name + "_cpu");
  const Dims result = with_batch(p, out);
  if (hlo::product(result) == 0) {
    return {unbatch(x, p, x.zeros({self.dtype(), result})),
            unbatch(x, p, x.zeros({DType::kI64, result}))};
  }
  if (divides(p.in, out)) {
    const Window w = even_window(p.in, out);
    return max_pool(x, self, w.kernel, w.stride, w.pad, w.dilation, false, spatial);
  }
  Value v = p.v, where = plane_positions(x, p.in);
  where = x.b.reshape(where, [&] {
    Dims d{1, 1};
    d.insert(d.end(), p.in.begin(), p.in.end());
    return d;
  }());
  for (int64_t j = spatial - 1; j >= 0; --j) {
    const Runs t = adaptive_runs(p.in[at(j)], out[at(j)]);
    v = gather_runs(x, v, j + 2, t);
    where = gather_runs(x, where, j + 2, t);
  }
  const auto [best, best_at] = max_of_windows(x, v, where, spatial);
  return {unbatch(x, p, best), unbatch(x, p, best_at)};
}

// Gradient of any pooling whose indices are positions in the input's plane.
Value indexed_backward(Ctx& x, Value grad_output, Value self, Value indices, int64_t spatial,
                       std::string_view name) {
  x.check(grad_output.dtype() == self.dtype(), "expected dtype ", cpp_type_name(self.dtype()),
          " for `grad_output` but got dtype ", cpp_type_name(grad_output.dtype()));
  check_indices(x, indices);
  x.check(grad_output.rank() == self.rank() && grad_output.dims() == indices.dims(), name,
          "(): grad_output ", grad_output.dims(), " and indices ", indices.dims(),
          " do not fit the input ", self.dims());
  const Planes p = planes(x, self, spatial), g = planes(x, grad_output, spatial);
  x.check(p.n == g.n && p.c == g.c, name, "(): grad_output ", grad_output.dims(),
          " does not fit the input ", self.dims());
  if (self.numel() == 0 || grad_output.numel() == 0) return x.zeros(self.type());
  const Value grad = x.to_compute(g.v), where = x.b.reshape(indices, g.v.dims());
  const bool even = divides(p.in, g.in);
  const Window w = even ? even_window(p.in, g.in) : Window{};
  const Value r = even && w.taps() <= kUnrolledTaps && name.starts_with("adaptive")
                      ? max_pool_grad(x, grad, where, w, p.in)
                      : scatter_planes(x, grad, where, p.in);
  return unbatch(x, p, x.convert(r, self.dtype()));
}

// ---- Fractional maximum pooling: window starts drawn by the caller, one sequence for each plane
// and dim.

std::array<Value, 2> fractional_max_pool(Ctx& x, Value self, const Dims& kernel,
                                         const Dims& output_size, Value samples, int64_t spatial) {
  auto& b = x.b;
  const std::string name = cat("fractional_max_pool", spatial, "d");
  x.check(static_cast<int64_t>(kernel.size()) == spatial, name,
          ": kernel_size must either be a single Int or tuple of Ints");
  x.check(static_cast<int64_t>(output_size.size()) == spatial, name,
          ": output_size must either be a single Int or tuple of Ints");
  x.check(self.rank() == spatial + 1 || self.rank() == spatial + 2, name, "(): Expected ",
          spatial + 1, "D or ", spatial + 2, "D tensor, but got: ", self.dims());
  const Planes p = planes(x, self, spatial);
  x.check(
      hlo::product(Dims(p.v.dims().begin() + 1, p.v.dims().end())) > 0, name,
      "(): Expected input to have non-zero size for non-batch dimensions, but got: ", self.dims());
  x.check(self.dtype() == samples.dtype(),
          "Expect _random_samples to have the same dtype as input");
  x.check(samples.rank() == 3, "Expect _random_samples to have 3 dimensions, got ", samples.rank());
  x.check(samples.dim(0) >= p.n, "Expect _random_samples.size(0) no less then input batch size.");
  x.check(samples.dim(1) == p.c, "Expect _random_samples.size(1) equals to input channel size.");
  x.check(samples.dim(2) == spatial, "Expect _random_samples.size(2) equals to ", spatial, "; got ",
          samples.dim(2), ".");
  check_floating(x, self, name + "_out_frame");
  const char* dim_names[] = {"time", "height", "width"};
  for (int64_t j = 0; j < spatial; ++j) {
    const size_t s = at(j);
    // CPU demands one element more in three dims.
    x.check(output_size[s] + kernel[s] - 1 + (spatial == 3) <= p.in[s], name, "(): pool ",
            dim_names[j + 3 - spatial], " ", kernel[s], " too large relative to input ",
            dim_names[j + 3 - spatial], " ", p.in[s]);
  }
  const Dims result = with_batch(p, output_size);
  if (hlo::product(result) == 0) {
    return {unbatch(x, p, x.zeros({self.dtype(), result})),
            unbatch(x, p, x.zeros({DType::kI64, result}))};
  }
  const int64_t n = p.n * p.c;
  Dims flat{n};
  flat.insert(flat.end(), p.in.begin(), p.in.end());
  // Rows of [n, ...] taken per plane along one dim after the other.
  Value v = b.reshape(p.v, flat);
  Value where = b.broadcast_in_dim(plane_positions(x, p.in), flat, [&] {
    Dims d(at(spatial));
    std::iota(d.begin(), d.end(), 1);
    return d;
  }());
  const Value wide = x.to_compute(b.slice_dim(samples, 0, 0, p.n));
  for (int64_t j = spatial - 1; j >= 0; --j) {
    const size_t s = at(j);
    const int64_t out = output_size[s], k = kernel[s];
    const int64_t channel =
        spatial == 2 ? 1 - j : j;  // two dims: the first sample is for the width
    const Value u = b.reshape(b.slice_dim(wide, 2, channel, channel + 1), {n});
    const Dims table{n, out};
    Value start = b.splat({DType::kI32, table}, p.in[s] - k);  // the last window
    if (out > 1) {
      const double step = wide.dtype() == DType::kF64
                              ? static_cast<double>(p.in[s] - k) / static_cast<double>(out - 1)
                              : static_cast<float>(p.in[s] - k) / static_cast<float>(out - 1);
      const Value i = b.iota({DType::kI32, table}, 1);
      const Value sample = b.broadcast_in_dim(u, table, {0});
      const Value moved = b.mul(b.add(b.convert(i, wide.dtype()), sample), x.like(sample, step));
      const Value base = b.mul(sample, x.like(sample, step));
      const Value drawn = b.sub(b.convert(moved, DType::kI32), b.convert(base, DType::kI32));
      start = b.select(b.compare(Cmp::kEq, i, b.splat(i.type(), out - 1)), start, drawn);
    }
    const Dims all{n, k, out};
    const Value index =
        b.clamp(b.constant(DType::kI32, 0),
                b.add(b.broadcast_in_dim(start, all, {0, 2}), b.iota({DType::kI32, all}, 1)),
                b.constant(DType::kI32, p.in[s] - 1));
    const Dims pair{n, k * out, 1};
    const Value pairs = b.concatenate({b.iota({DType::kI32, pair}, 0), b.reshape(index, pair)}, 2);
    const auto gather = [&](Value t) {
      hlo::GatherDims g{.offset_dims = {},
                        .collapsed_slice_dims = {0, j + 1},
                        .start_index_map = {0, j + 1},
                        .index_vector_dim = 2};
      Dims sizes = t.dims(), made = t.dims();
      sizes[0] = sizes[at(j + 1)] = 1;
      // Offset dims come before position j + 1 and after it; batch dims (plane, element) take the
      // rest.
      Dims order{0};
      for (int64_t d = 2; d < t.rank(); ++d) g.offset_dims.push_back(d);
      const Value r = b.gather(t, pairs, g, sizes);  // [n, k * out, other dims in order]
      for (int64_t d = 1, other = 2; d < t.rank(); ++d) order.push_back(d == j + 1 ? 1 : other++);
      made[at(j + 1)] = k;
      made.insert(made.begin() + j + 2, out);
      return b.reshape(b.transpose(r, order), made);
    };
    v = gather(v);
    where = gather(where);
  }
  Dims split = v.dims();
  split[0] = p.c;
  split.insert(split.begin(), p.n);
  const auto [best, best_at] =
      max_of_windows(x, b.reshape(v, split), b.reshape(where, split), spatial);
  return {unbatch(x, p, best), unbatch(x, p, best_at)};
}

// ---- Unpooling.

Value max_unpool(Ctx& x, Value self, Value indices, const Dims& size, int64_t spatial) {
  check_indices(x, indices);
  x.check(static_cast<int64_t>(size.size()) == spatial, "There should be exactly ",
          spatial == 2 ? "two" : "three", " elements ",
          spatial == 2 ? "(height, width)" : "(depth, height, width)", " in output_size, but got ",
          size.size(), " elements.");
  x.check(self.rank() == spatial + 1 || self.rank() == spatial + 2, "Input to max_unpooling",
          spatial, "d should be a ", spatial + 1, "d or ", spatial + 2,
          "d Tensor, but got a tensor with ", self.rank(), " dimensions.");
  x.check(self.dims() == indices.dims(),
          "Expected shape of indices to be same as that of the input tensor (", self.dims(),
          ") but got indices tensor with shape: ", indices.dims());
  check_floating(x, self, cat("max_unpool", spatial, "d"));
  const Planes p = planes(x, self, spatial);
  for (size_t j = 0; j < p.in.size(); ++j) {
    x.check(p.v.dim(static_cast<int64_t>(j) + 2) > 0 && p.c > 0, "max_unpooling", spatial,
            "d(): Expected input to have non-zero size for non-batch dimensions, but got: ",
            self.dims());
  }
  Dims result = with_batch(p, size);
  if (p.unbatched) result.erase(result.begin());
  if (self.numel() == 0 || hlo::product(size) == 0) return x.zeros({self.dtype(), result});
  const int64_t n = p.n * p.c, count = hlo::product(p.in);
  const Value index = x.checked_index(
      x.b.reshape(indices, {n, count, 1}), hlo::product(size), /*wrap=*/false,
      {ErrorKind::kInvalid,
       cat("Found an invalid max index: {} (output volumes are of size ", join(size, "x"), ")")});
  const Value where = x.b.concatenate({x.b.iota({index.dtype(), {n, count, 1}}, 0), index}, 2);
  const hlo::ScatterDims d{.update_window_dims = {},
                           .inserted_window_dims = {0, 1},
                           .scatter_dims_to_operand_dims = {0, 1},
                           .index_vector_dim = 2};
  const Value r = x.b.scatter(x.zeros({self.dtype(), {n, hlo::product(size)}}), where,
                              x.b.reshape(self, {n, count}), d, std::nullopt);
  return x.b.reshape(r, result);
}

template <int64_t N>
void register_rank(ops::Registry& r) {
  const auto channels_last = N == 3 ? ops::LayoutRule::kContiguous : ops::LayoutRule::kChannelsLast;
  const std::string d = cat(N, "d");
  r.op("aten::_adaptive_avg_pool" + d, [](Ctx& x, Value self, Dims output_size) {
     return adaptive_avg_pool(x, self, output_size, N);
   }).layout(channels_last);
  r.out_op("aten::adaptive_avg_pool" + d + ".out", [](Ctx& x, Type, Value self, Dims output_size) {
    return adaptive_avg_pool(x, self, output_size, N);
  });
  r.op("aten::_adaptive_avg_pool" + d + "_backward", [](Ctx& x, Value grad_output, Value self) {
     return adaptive_avg_pool_backward(x, grad_output, self, N);
   }).layout(channels_last);
  r.op("aten::adaptive_max_pool" + d, [](Ctx& x, Value self, Dims output_size) {
     return adaptive_max_pool(x, self, output_size, N);
   }).layout(channels_last);
  r.op("aten::adaptive_max_pool" + d + "_backward", [](Ctx& x, Value grad_output, Value self,
                                                       Value indices) {
     return indexed_backward(x, grad_output, self, indices, N,
                             cat("adaptive_max_pool", N, "d_backward"));
   }).layout(channels_last);
  r.op("aten::fractional_max_pool" + d,
       [](Ctx& x, Value self, Dims kernel_size, Dims output_size, Value random_samples) {
         return fractional_max_pool(x, self, kernel_size, output_size, random_samples, N);
       });
  r.op("aten::fractional_max_pool" + d + "_backward",
       [](Ctx& x, Value grad_output, Value self, [[maybe_unused]] Dims kernel_size,
          [[maybe_unused]] Dims output_size, Value indices) {
         return indexed_backward(x, grad_output, self, indices, N,
                                 cat("fractional_max_pool", N, "d_backward"));
       });
}

}  // namespace

void register_adaptive_pool(ops::Registry& r) {
  register_rank<2>(r);
  register_rank<3>(r);
  r.out_op("aten::adaptive_avg_pool3d_backward.grad_input",
           [](Ctx& x, Type, Value grad_output, Value self) {
             return adaptive_avg_pool_backward(x, grad_output, self, 3);
           });
  r.op("aten::max_unpool2d", [](Ctx& x, Value self, Value indices, Dims output_size) {
    return max_unpool(x, self, indices, output_size, 2);
  });
  r.op("aten::max_unpool3d",
       [](Ctx& x, Value self, Value indices, Dims output_size, Dims stride, Dims padding) {
         x.check(stride.size() == 3 && padding.size() == 3,
                 "There should be exactly three elements in stride and padding");
         for (const int64_t s : stride)
           x.check(s > 0, "strides should be greater than zero, but got stride: ", stride);
         return max_unpool(x, self, indices, output_size, 3);
       });
}

}  // namespace tpu::aten
