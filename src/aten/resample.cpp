// Interpolation of images. It is separable: along each dim an output element is a short weighted
// sum of input elements. Indices and weights are computed here with PyTorch's own float arithmetic
// (a rounding difference would pick another pixel) and enter the program as constants; the gradient
// uses the transposed table.
#include <cmath>
#include <numbers>

#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::scalar_type_name;

constexpr int64_t kMostGathers = 16;  // longer sums are one product with the dense matrix

// out[o] = sum over k of weight[k * out + o] * in[index[k * out + o]]; index -1: nothing.
struct Taps {
  int64_t in = 0, out = 0, n = 0;
  Dims index;
  std::vector<double> weight;
  bool is_identity = false;

  Taps(int64_t in_size, int64_t out_size, int64_t count)
      : in(in_size),
        out(out_size),
        n(count),
        index(at(count * out_size), -1),
        weight(index.size(), 0) {}
  void set(int64_t k, int64_t o, int64_t i, double w) {
    index[at(k * out + o)] = i;
    weight[at(k * out + o)] = w;
  }
  Taps transposed() const;
};

Taps Taps::transposed() const {
  std::vector<std::vector<std::pair<int64_t, double>>> rows(at(in));
  for (int64_t o = 0; o < out; ++o) {
    for (int64_t k = 0; k < n; ++k) {
      const int64_t i = index[at(k * out + o)];
      const double w = weight[at(k * out + o)];
      if (i < 0 || w == 0) continue;
      auto& row = rows[at(i)];
      if (!row.empty() && row.back().first == o) {
        row.back().second += w;  // clamped indices fall together
      } else {
        row.emplace_back(o, w);
      }
    }
  }
  size_t longest = 1;
  for (const auto& row : rows) longest = std::max(longest, row.size());
  Taps t(out, in, static_cast<int64_t>(longest));
  t.is_identity = is_identity;
  for (int64_t i = 0; i < in; ++i) {
    int64_t k = 0;
    for (const auto& [o, w] : rows[at(i)]) t.set(k++, i, o, w);
  }
  return t;
}

Value apply_dense(Ctx& x, Value v, int64_t dim, const Taps& t) {
  auto& b = x.b;
  const Dims cube{t.n, t.out, t.in};
  const auto spread = [&](Value c) { return b.broadcast_in_dim(c, cube, {0, 1}); };
  const Value index = spread(b.constant_ints(t.index, {DType::kI32, {t.n, t.out}}));
  const Value weight = spread(b.constant_floats(t.weight, {v.dtype(), {t.n, t.out}}));
  const Value here = b.compare(Cmp::kEq, index, b.iota({DType::kI32, cube}, 2));
  const Value matrix = x.sum(b.select(here, weight, x.like(weight, 0)), {0});
  const Value r = b.dot_general(v, matrix, {.lhs_contract = {dim}, .rhs_contract = {1}},
                                hlo::Precision::kHighest, v.dtype());
  Dims order;  // the new dim came last
  for (int64_t d = 0, other = 0; d < v.rank(); ++d)
    order.push_back(d == dim ? v.rank() - 1 : other++);
  return b.transpose(r, order);
}

Value apply(Ctx& x, Value v, int64_t dim, const Taps& t) {
  if (t.is_identity) return v;
  if (t.n > kMostGathers) return apply_dense(x, v, dim, t);
  Value sum;
  for (int64_t k = 0; k < t.n; ++k) {
    Dims index(t.index.begin() + k * t.out, t.index.begin() + (k + 1) * t.out), real;
    for (int64_t& i : index) {
      real.push_back(i >= 0);
      i = std::max<int64_t>(i, 0);
    }
    const std::vector<double> weight(t.weight.begin() + k * t.out,
                                     t.weight.begin() + (k + 1) * t.out);
    Value term = take(x, v, x.b.constant_ints(index, {DType::kI32, {t.out}}), dim);
    term = x.b.mul(term,
                   along(x, x.b.constant_floats(weight, {v.dtype(), {t.out}}), term.dims(), dim));
    if (std::find(real.begin(), real.end(), 0) != real.end()) {
      const Value mask =
          along(x, x.b.constant_ints(real, {DType::kBool, {t.out}}), term.dims(), dim);
      term = x.b.select(mask, term, x.like(term, 0));
    }
    sum = sum.valid() ? x.b.add(sum, term) : term;
  }
  return sum;
}

// ---- Source positions. T is the type PyTorch computes in: float, or double for float64.

template <class T>
T scale_of(int64_t in, int64_t out, bool align_corners, Opt<double> scale) {
  if (align_corners) return out > 1 ? static_cast<T>(in - 1) / static_cast<T>(out - 1) : T(0);
  if (scale && *scale > 0) return static_cast<T>(1.0 / *scale);
  return static_cast<T>(in) / static_cast<T>(out);
}

template <class T>
T source_of(T scale, int64_t o, bool align_corners, bool cubic) {
  if (align_corners) return scale * static_cast<T>(o);
  const T s = scale * (static_cast<T>(o) + T(0.5)) - T(0.5);
  return !cubic && s < T(0) ? T(0) : s;
}

// Whole and fractional part of a source position.
template <class T>
std::pair<int64_t, T> split_source(T s, int64_t in) {
  const int64_t i = std::min(static_cast<int64_t>(std::floor(static_cast<float>(s))), in - 1);
  return {i, std::min(std::max(s - static_cast<T>(i), T(0)), T(1))};
}

template <class T>
T cubic_near(T v, T a) {
  return ((a + 2) * v - (a + 3)) * v * v + 1;
}
template <class T>
T cubic_far(T v, T a) {
  return ((a * v - 5 * a) * v + 8 * a) * v - 4 * a;
}

template <class T>
Taps linear_taps(int64_t in, int64_t out, bool align_corners, Opt<double> scales) {
  Taps t(in, out, 2);
  t.is_identity = in == out;
  const T scale = scale_of<T>(in, out, align_corners, scales);
  for (int64_t o = 0; o < out; ++o) {
    const auto [i, f] = split_source(source_of(scale, o, align_corners, false), in);
    t.set(0, o, i, T(1) - f);
    t.set(1, o, std::min(i + 1, in - 1), f);
  }
  return t;
}

template <class T>
Taps cubic_taps(int64_t in, int64_t out, bool align_corners, Opt<double> scales) {
  Taps t(in, out, 4);
  const T scale = scale_of<T>(in, out, align_corners, scales), a = T(-0.75);
  for (int64_t o = 0; o < out; ++o) {
    const auto [i, f] = split_source(source_of(scale, o, align_corners, true), in);
    const T back = T(1) - f;
    const T w[] = {cubic_far(f + 1, a), cubic_near(f, a), cubic_near(back, a),
                   cubic_far(back + 1, a)};
    for (int64_t k = 0; k < 4; ++k) t.set(k, o, std::clamp<int64_t>(i - 1 + k, 0, in - 1), w[k]);
  }
  return t;
}

enum class Filter { kLinear, kCubic, kLanczos };

constexpr int filter_size(Filter f) {
  return f == Filter::kLinear ? 2 : f == Filter::kCubic ? 4 : 6;
}

template <class T>
T filter_at(Filter f, T v, T a) {
  v = std::abs(v);
  switch (f) {
    case Filter::kLinear: return v < 1 ? 1 - v : T(0);
    case Filter::kCubic: return v < 1 ? cubic_near(v, a) : v < 2 ? cubic_far(v, a) : T(0);
    case Filter::kLanczos: {
      const auto sinc = [](T s) {
        if (s == 0) return T(1);
        const T p = s * static_cast<T>(std::numbers::pi);
        return std::sin(p) / p;
      };
      return v < 3 ? sinc(v) * sinc(v / 3) : T(0);
    }
  }
  return T(0);
}

// Antialiased: the filter is as wide as one output element, and its weights sum to 1.
template <class T>
Taps filter_taps(Filter f, int64_t in, int64_t out, bool align_corners, Opt<double> scales) {
  const T scale = scale_of<T>(in, out, align_corners, scales);
  const auto support =
      static_cast<T>(scale >= 1 ? filter_size(f) * 0.5 * scale : filter_size(f) * 0.5);
  const auto most = static_cast<int64_t>(std::ceil(support)) * 2 + 1;
  const T inverse = scale >= 1 ? static_cast<T>(1.0 / scale) : T(1);
  Taps t(in, out, most);
  t.is_identity = in == out;
  for (int64_t o = 0; o < out; ++o) {
    const auto center = static_cast<T>(scale * (static_cast<double>(o) + 0.5));
    const int64_t first = std::max<int64_t>(static_cast<int64_t>(center - support + 0.5), 0);
    const int64_t count = std::clamp<int64_t>(
        std::min(static_cast<int64_t>(center + support + 0.5), in) - first, 0, most);
    std::vector<T> w;
    T total = 0;
    for (int64_t j = 0; j < count; ++j) {
      w.push_back(filter_at(f, static_cast<T>((static_cast<T>(j + first) - center + 0.5) * inverse),
                            T(-0.5)));
      total += w.back();
    }
    for (int64_t j = 0; j < count; ++j)
      t.set(j, o, first + j, total != 0 ? w[at(j)] / total : w[at(j)]);
  }
  return t;
}

// ---- Images: [n, c, spatial...] and what the checks say about them.

Dims spatial_of(const Dims& d) { return Dims(d.begin() + 2, d.end()); }

// [n, c, output_size...] after PyTorch's checks.
Dims resized(Ctx& x, const Dims& input, const Dims& output_size, int64_t spatial) {
  x.check(static_cast<int64_t>(output_size.size()) == spatial,
          "It is expected output_size equals to ", spatial, ", but got size ", output_size.size());
  x.check(static_cast<int64_t>(input.size()) == spatial + 2, "It is expected input_size equals to ",
          spatial + 2, ", but got size ", input.size());
  const Dims in = spatial_of(input);
  const auto positive = [](const Dims& d) { return *std::min_element(d.begin(), d.end()) > 0; };
  x.check(positive(in) && positive(output_size),
          "Input and output sizes should be greater than 0, but got input (", named_sizes(in),
          spatial == 2 ? ") output (" : ") and output (", named_sizes(output_size), ")");
  Dims d{input[0], input[1]};
  d.insert(d.end(), output_size.begin(), output_size.end());
  return d;
}

Dims check_forward(Ctx& x, Value self, const Dims& output_size, int64_t spatial) {
  const Dims d = resized(x, self.dims(), output_size, spatial);
  x.check(self.dim(1) != 0, "Non-empty ", spatial + 2,
          "D data tensor expected but got a tensor with sizes ", self.dims());
  return d;
}

void check_backward(Ctx& x, Value grad, const Dims& output_size, const Dims& input_size,
                    int64_t spatial) {
  const Dims d = resized(x, input_size, output_size, spatial);
  x.check(grad.rank() == spatial + 2, "Expected grad_output to be a tensor of dimension ",
          spatial + 2, " but got: dimension ", grad.rank());
  for (int64_t i = 0; i < grad.rank(); ++i) {
    x.check(grad.dim(i) == d[at(i)],
            "Expected grad_output to have the same shape as output; output.size(", i,
            ") = ", d[at(i)], " but got grad_output.size(", i, ") = ", grad.dim(i));
  }
}

void check_type(Ctx& x, Value v, std::string_view kernel, bool bytes) {
  x.check_supported((hlo::is_float(v.dtype()) && !hlo::is_float8(v.dtype())) ||
                        (bytes && v.dtype() == DType::kU8),
                    "\"", kernel, "\" not implemented for '", scalar_type_name(v.dtype()), "'");
}

using Scales = std::vector<Opt<double>>;

// ---- Nearest.

Dims nearest_index(int64_t in, int64_t out, Opt<double> scales, bool exact, bool wide) {
  Dims index;
  const auto pick = [&]<class T>(T scale, int64_t o) {
    const T s =
        exact ? static_cast<T>((static_cast<double>(o) + 0.5) * scale) : static_cast<T>(o) * scale;
    return std::min(static_cast<int64_t>(std::floor(static_cast<float>(s))), in - 1);
  };
  for (int64_t o = 0; o < out; ++o) {
    if (!exact && out == in) {
      index.push_back(o);
    } else if (!exact && out == 2 * in) {
      index.push_back(o / 2);
    } else {
      index.push_back(wide ? pick(scale_of<double>(in, out, false, scales), o)
                           : pick(scale_of<float>(in, out, false, scales), o));
    }
  }
  return index;
}

// How often each element is taken when every one is taken equally often and in order, else 0.
int64_t even_repeat(const Dims& index, int64_t in) {
  const auto out = static_cast<int64_t>(index.size());
  if (out % in != 0) return 0;
  for (int64_t o = 0; o < out; ++o) {
    if (index[at(o)] != o / (out / in)) return 0;
  }
  return out / in;
}

Value repeat_each(Ctx& x, Value v, int64_t dim, int64_t times) {
  if (times == 1) return v;
  Dims wide = v.dims(), merged = v.dims(), map;
  wide.insert(wide.begin() + dim + 1, times);
  merged[at(dim)] *= times;
  for (int64_t d = 0; d < static_cast<int64_t>(wide.size()); ++d) {
    if (d != dim + 1) map.push_back(d);
  }
  return x.b.reshape(x.b.broadcast_in_dim(v, wide, map), merged);
}

Value upsample_nearest(Ctx& x, Value self, const Dims& output_size, const Scales& scales,
                       bool exact) {
  const auto spatial = static_cast<int64_t>(scales.size());
  const Dims result = check_forward(x, self, output_size, spatial);
  check_type(x, self,
             spatial == 2 ? "upsample_nearest2d_channels_last" : "compute_indices_weights_nearest",
             true);
  if (hlo::product(result) == 0) return x.zeros({self.dtype(), result});
  Value v = self;
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t in = v.dim(j + 2);
    const Dims index =
        nearest_index(in, output_size[at(j)], scales[at(j)], exact, self.dtype() == DType::kF64);
    if (const int64_t times = even_repeat(index, in)) {
      v = repeat_each(x, v, j + 2, times);
    } else {
      v = take(x, v, x.b.constant_ints(index, {DType::kI32, {output_size[at(j)]}}), j + 2,
               /*sorted=*/true);
    }
  }
  return v;
}

Value upsample_nearest_backward(Ctx& x, Value grad, const Dims& output_size, const Dims& input_size,
                                const Scales& scales, bool exact) {
  const auto spatial = static_cast<int64_t>(scales.size());
  check_backward(x, grad, output_size, input_size, spatial);
  check_type(x, grad, cat("upsample_nearest", spatial, "d_backward"), false);
  if (hlo::product(input_size) == 0) return x.zeros({grad.dtype(), input_size});
  Value v = x.to_compute(grad);
  for (int64_t j = spatial - 1; j >= 0; --j) {
    const int64_t in = input_size[at(j + 2)];
    const Dims index = nearest_index(in, output_size[at(j)], scales[at(j)], exact, false);
    if (const int64_t times = even_repeat(index, in)) {
      if (times == 1) continue;
      Dims split = v.dims();
      split[at(j + 2)] = in;
      split.insert(split.begin() + j + 3, times);
      v = x.sum(x.b.reshape(v, split), {j + 3});
    } else {
      Dims start(at(in), 0), count(at(in), 0);
      for (int64_t o = output_size[at(j)] - 1; o >= 0; --o) {
        start[at(index[at(o)])] = o;
        ++count[at(index[at(o)])];
      }
      v = sum_runs(x, v, j + 2, Runs::make(start, count));
    }
  }
  return x.convert(v, grad.dtype());
}

// ---- Linear, cubic and antialiased.

enum class Kind { kLinear, kCubic, kLinearAa, kCubicAa, kLanczosAa };

Taps taps_of(Kind kind, int64_t in, int64_t out, bool align_corners, Opt<double> scales,
             bool wide) {
  const auto make = [&]<class T>(T) {
    switch (kind) {
      case Kind::kLinear: return linear_taps<T>(in, out, align_corners, scales);
      case Kind::kCubic: return cubic_taps<T>(in, out, align_corners, scales);
      case Kind::kLinearAa: return filter_taps<T>(Filter::kLinear, in, out, align_corners, scales);
      case Kind::kCubicAa: return filter_taps<T>(Filter::kCubic, in, out, align_corners, scales);
      default: return filter_taps<T>(Filter::kLanczos, in, out, align_corners, scales);
    }
  };
  return wide ? make(double{}) : make(float{});
}

// uint8: weights of 15 bits, integer sums, rounded after each dim, the last dim first.
Value upsample_bytes(Ctx& x, Value self, Kind kind, const Dims& output_size, bool align_corners,
                     const Scales& scales) {
  auto& b = x.b;
  Value v = self;
  for (int64_t j = static_cast<int64_t>(scales.size()) - 1; j >= 0; --j) {
    const int64_t in = v.dim(j + 2), out = output_size[at(j)];
    if (in == out) continue;
    Taps t = taps_of(kind, in, out, align_corners, scales[at(j)], /*wide=*/true);
    // Weights that share an element (clamped borders) are one weight.
    Taps merged(in, out, t.n);
    double largest = 0;
    for (int64_t o = 0; o < out; ++o) {
      int64_t last = -1;
      for (int64_t k = 0; k < t.n; ++k) {
        const int64_t i = t.index[at(k * out + o)];
        if (i < 0) continue;
        if (last < 0 || merged.index[at(last * out + o)] != i) merged.set(++last, o, i, 0);
        double& w = merged.weight[at(last * out + o)];
        w += t.weight[at(k * out + o)];
        largest = std::max(largest, w);
      }
    }
    int bits = 0;
    while (bits < 22 && static_cast<int>(0.5 + largest * (1 << (bits + 1))) < (1 << 15)) ++bits;
    Value sum = b.splat({DType::kI32, {}}, int64_t{1} << (bits - 1));
    Dims dims = v.dims();
    dims[at(j + 2)] = out;
    sum = b.broadcast_scalar(sum, dims);
    for (int64_t k = 0; k < merged.n; ++k) {
      Dims index, weight;
      for (int64_t o = 0; o < out; ++o) {
        index.push_back(std::max<int64_t>(merged.index[at(k * out + o)], 0));
        const double w = merged.weight[at(k * out + o)] * (1 << bits);
        weight.push_back(static_cast<int64_t>(w < 0 ? w - 0.5 : w + 0.5));
      }
      const Value taken = take(x, v, b.constant_ints(index, {DType::kI32, {out}}), j + 2);
      const Value factor = along(x, b.constant_ints(weight, {DType::kI32, {out}}), dims, j + 2);
      sum = b.add(sum, b.mul(b.convert(taken, DType::kI32), factor));
    }
    const Value shifted = b.binary(Op::kShiftRightArithmetic, sum, b.splat(sum.type(), bits));
    v = b.convert(b.clamp(b.constant(DType::kI32, 0), shifted, b.constant(DType::kI32, 255)),
                  DType::kU8);
  }
  return v;
}

bool is_aa(Kind k) { return k >= Kind::kLinearAa; }

Value upsample(Ctx& x, Value self, Kind kind, const Dims& output_size, bool align_corners,
               const Scales& scales) {
  const auto spatial = static_cast<int64_t>(scales.size());
  const Dims result = check_forward(x, self, output_size, spatial);
  const char* kernel = is_aa(kind)            ? "compute_index_ranges_weights"
                       : kind == Kind::kCubic ? "compute_indices_weights_cubic"
                                              : "compute_indices_weights_linear";
  check_type(x, self, kernel, spatial == 2);
  if (hlo::product(result) == 0) return x.zeros({self.dtype(), result});
  if (self.dtype() == DType::kU8)
    return upsample_bytes(x, self, kind, output_size, align_corners, scales);
  Value v = x.to_compute(self);
  for (int64_t j = 0; j < spatial; ++j) {
    v = apply(x, v, j + 2,
              taps_of(kind, v.dim(j + 2), output_size[at(j)], align_corners, scales[at(j)],
                      v.dtype() == DType::kF64));
  }
  return x.convert(v, self.dtype());
}

Value upsample_backward(Ctx& x, Value grad, Kind kind, const Dims& output_size,
                        const Dims& input_size, bool align_corners, const Scales& scales) {
  const auto spatial = static_cast<int64_t>(scales.size());
  check_backward(x, grad, output_size, input_size, spatial);
  check_type(x, grad, "upsample_backward", false);
  if (hlo::product(input_size) == 0) return x.zeros({grad.dtype(), input_size});
  Value v = x.to_compute(grad);
  for (int64_t j = spatial - 1; j >= 0; --j) {
    const Taps t = taps_of(kind, input_size[at(j + 2)], output_size[at(j)], align_corners,
                           scales[at(j)], v.dtype() == DType::kF64);
    v = apply(x, v, j + 2, t.transposed());
  }
  return x.convert(v, grad.dtype());
}

// ---- Registration: the ops of one kind differ in the number of scales only.

template <int64_t N, class F>
void op_with_scales(ops::Registry& r, const std::string& name, F f) {
  constexpr auto layout = ops::LayoutRule::kChannelsLast;
  if constexpr (N == 1) {
    r.op(name, [f](Ctx& x, Value v, Dims size, Opt<double> s) {
       return f(x, v, size, Scales{s});
     }).layout(layout);
  } else if constexpr (N == 2) {
    r.op(name, [f](Ctx& x, Value v, Dims size, Opt<double> h, Opt<double> w) {
       return f(x, v, size, Scales{h, w});
     }).layout(layout);
  } else {
    r.op(name, [f](Ctx& x, Value v, Dims size, Opt<double> d, Opt<double> h, Opt<double> w) {
       return f(x, v, size, Scales{d, h, w});
     }).layout(layout);
  }
}
template <int64_t N, class F>
void backward_with_scales(ops::Registry& r, const std::string& name, F f) {
  constexpr auto layout = N == 3 ? ops::LayoutRule::kContiguous : ops::LayoutRule::kChannelsLast;
  if constexpr (N == 1) {
    r.op(name, [f](Ctx& x, Value g, Dims out, Dims in, Opt<double> s) {
       return f(x, g, out, in, Scales{s});
     }).layout(layout);
  } else if constexpr (N == 2) {
    r.op(name, [f](Ctx& x, Value g, Dims out, Dims in, Opt<double> h, Opt<double> w) {
       return f(x, g, out, in, Scales{h, w});
     }).layout(layout);
  } else {
    r.op(name, [f](Ctx& x, Value g, Dims out, Dims in, Opt<double> d, Opt<double> h,
                   Opt<double> w) {
       return f(x, g, out, in, Scales{d, h, w});
     }).layout(layout);
  }
}

template <int64_t N>
void register_nearest(ops::Registry& r) {
  for (const bool exact : {false, true}) {
    const std::string name =
        cat("aten::", exact ? "_upsample_nearest_exact" : "upsample_nearest", N, "d");
    op_with_scales<N>(r, name, [exact](Ctx& x, Value v, const Dims& size, const Scales& s) {
      return upsample_nearest(x, v, size, s, exact);
    });
    backward_with_scales<N>(
        r, name + "_backward",
        [exact](Ctx& x, Value g, const Dims& out, const Dims& in, const Scales& s) {
          return upsample_nearest_backward(x, g, out, in, s, exact);
        });
  }
}

template <int64_t N>
void register_linear(ops::Registry& r, const std::string& name, Kind kind) {
  constexpr auto layout = ops::LayoutRule::kChannelsLast;
  const std::string back = name + "_backward";
  if constexpr (N == 1) {
    r.op(name, [kind](Ctx& x, Value v, Dims size, bool align, Opt<double> s) {
       return upsample(x, v, kind, size, align, {s});
     }).layout(layout);
    r.op(back, [kind](Ctx& x, Value g, Dims out, Dims in, bool align, Opt<double> s) {
       return upsample_backward(x, g, kind, out, in, align, {s});
     }).layout(layout);
  } else if constexpr (N == 2) {
    r.op(name, [kind](Ctx& x, Value v, Dims size, bool align, Opt<double> h, Opt<double> w) {
       return upsample(x, v, kind, size, align, {h, w});
     }).layout(layout);
    r.op(back, [kind](Ctx& x, Value g, Dims out, Dims in, bool align, Opt<double> h,
                      Opt<double> w) {
       return upsample_backward(x, g, kind, out, in, align, {h, w});
     }).layout(kind == Kind::kCubic ? ops::LayoutRule::kContiguous : layout);
  } else {
    r.op(name, [kind](Ctx& x, Value v, Dims size, bool align, Opt<double> d, Opt<double> h,
                      Opt<double> w) {
       return upsample(x, v, kind, size, align, {d, h, w});
     }).layout(layout);
    r.op(back, [kind](Ctx& x, Value g, Dims out, Dims in, bool align, Opt<double> d, Opt<double> h,
                      Opt<double> w) {
       return upsample_backward(x, g, kind, out, in, align, {d, h, w});
     }).layout(layout);
  }
}

}  // namespace

void register_resample(ops::Registry& r) {
  register_nearest<1>(r);
  register_nearest<2>(r);
  register_nearest<3>(r);
  register_linear<1>(r, "aten::upsample_linear1d", Kind::kLinear);
  register_linear<2>(r, "aten::upsample_bilinear2d", Kind::kLinear);
  register_linear<3>(r, "aten::upsample_trilinear3d", Kind::kLinear);
  register_linear<2>(r, "aten::upsample_bicubic2d", Kind::kCubic);
  register_linear<2>(r, "aten::_upsample_bilinear2d_aa", Kind::kLinearAa);
  register_linear<2>(r, "aten::_upsample_bicubic2d_aa", Kind::kCubicAa);
  register_linear<2>(r, "aten::_upsample_lanczos2d_aa", Kind::kLanczosAa);
  register_edge_pad(r);
  register_grid_sampler(r);
}

}  // namespace tpu::aten
