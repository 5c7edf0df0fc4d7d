// Resampling of images: interpolation, grid sampling, reflection and replication padding, shuffles.
// Interpolation is separable: along each dim an output element is a short weighted sum of input
// elements. Indices and weights are computed here with PyTorch's own float arithmetic (a rounding
// difference would pick another pixel) and enter the program as constants; the gradient uses the
// transposed table.
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

std::string named_sizes(const Dims& d) {
  const char* names = d.size() == 1 ? "W" : d.size() == 2 ? "HW" : "DHW";
  std::string s;
  for (size_t j = 0; j < d.size(); ++j) s += cat(j ? ", " : "", names[j], ": ", d[j]);
  return s;
}

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

// ---- Reflection and replication padding. Negative padding cuts off.

struct Padded {
  int64_t spatial;
  Dims low, high;  // per spatial dim, first dim first
  Dims in, out;    // whole dims
};

Padded check_padding(Ctx& x, Value self, const Dims& padding, int64_t spatial, bool reflect) {
  Padded p;
  p.spatial = spatial;
  x.check(static_cast<int64_t>(padding.size()) == 2 * spatial, "padding size is expected to be ",
          2 * spatial, ", but got: ", padding.size());
  const bool rank_ok = self.rank() == spatial + 1 || self.rank() == spatial + 2;
  bool sizes_ok = true;
  for (int64_t d = self.rank() == spatial + 2 ? 1 : 0; d < self.rank(); ++d)
    sizes_ok &= self.dim(d) != 0;
  x.check(rank_ok && sizes_ok, "Expected ", spatial + 1, "D or ", spatial + 2,
          "D (batch mode) tensor with possibly 0 batch size and other non-zero dimensions for "
          "input, but got: ",
          self.dims());
  p.in = p.out = self.dims();
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j;
    const int64_t low = padding[at(2 * (spatial - 1 - j))],
                  high = padding[at(2 * (spatial - 1 - j) + 1)];
    x.check(
        !reflect || (low < self.dim(d) && high < self.dim(d)), "Argument #", 2 * (spatial - j) + 2,
        ": Padding size should be less than the corresponding input dimension, but got: padding (",
        low, ", ", high, ") at dimension ", d, " of input ", self.dims());
    p.low.push_back(low);
    p.high.push_back(high);
    p.out[at(d)] += low + high;
  }
  const Dims tail(p.in.end() - spatial, p.in.end()), out_tail(p.out.end() - spatial, p.out.end());
  x.check(*std::min_element(out_tail.begin(), out_tail.end()) >= 1, "input (", named_sizes(tail),
          ") is too small. Calculated output ", named_sizes(out_tail));
  return p;
}

Value pad_edges(Ctx& x, Value self, const Dims& padding, int64_t spatial, bool reflect) {
  auto& b = x.b;
  const Padded p = check_padding(x, self, padding, spatial, reflect);
  x.check_supported(!hlo::is_bool(self.dtype()), "\"",
                    reflect ? "reflection_pad" : "replication_pad", spatial,
                    "d\" not implemented for 'Bool'");
  if (hlo::product(p.out) == 0) return x.zeros({self.dtype(), p.out});
  Value v = self;
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j, n = v.dim(d), low = p.low[at(j)],
                  high = p.high[at(j)];
    const auto edge = [&](int64_t i, int64_t times) {
      Dims dims = v.dims();
      dims[at(d)] = times;
      return x.broadcast(b.slice_dim(v, d, i, i + 1), dims);
    };
    Values parts;
    if (low > 0)
      parts.push_back(reflect ? b.reverse(b.slice_dim(v, d, 1, low + 1), {d}) : edge(0, low));
    const int64_t first = std::max<int64_t>(-low, 0), last = n - std::max<int64_t>(-high, 0);
    if (first < last) parts.push_back(b.slice_dim(v, d, first, last));
    if (high > 0)
      parts.push_back(reflect ? b.reverse(b.slice_dim(v, d, n - 1 - high, n - 1), {d})
                              : edge(n - 1, high));
    Value joined = parts.size() == 1 ? parts[0] : b.concatenate(parts, d);
    // Cut by more than the other side has: what was padded is cut too.
    const int64_t want = n + low + high, have = joined.dim(d);
    if (have > want)
      joined =
          low < 0 ? b.slice_dim(joined, d, have - want, have) : b.slice_dim(joined, d, 0, want);
    v = joined;
  }
  return v;
}

Value pad_edges_backward(Ctx& x, Value grad, Value self, const Dims& padding, int64_t spatial,
                         bool reflect) {
  auto& b = x.b;
  const Padded p = check_padding(x, self, padding, spatial, reflect);
  const char* names[] = {"depth", "height", "width"};
  x.check(grad.rank() == self.rank(), "gradOutput has ", grad.rank(), " dimensions, expected ",
          self.rank());
  for (int64_t d = 0; d < grad.rank(); ++d) {
    const int64_t j = d - (self.rank() - 3);
    x.check(grad.dim(d) == p.out[at(d)], "gradOutput ",
            j >= 0 && d >= self.rank() - spatial ? names[j] : "size",
            " unexpected. Expected: ", p.out[at(d)], ", Got: ", grad.dim(d));
  }
  if (self.numel() == 0) return x.zeros(self.type());
  Value v = x.to_compute(grad);
  for (int64_t j = 0; j < spatial; ++j) {
    const int64_t d = self.rank() - spatial + j, n = self.dim(d), low = p.low[at(j)],
                  high = p.high[at(j)];
    const int64_t out = n + low + high;
    const auto place =
        [&](Value t, int64_t start) {  // t at [start, ...) of n elements; what lies outside is cut
          Dims l(at(v.rank()), 0), h = l;
          l[at(d)] = start, h[at(d)] = n - start - t.dim(d);
          return b.pad(t, x.constant(t.dtype(), 0), l, h);
        };
    const int64_t first = std::max<int64_t>(low, 0), last = out - std::max<int64_t>(high, 0);
    Value sum;
    const auto add = [&](Value t) { sum = sum.valid() ? b.add(sum, t) : t; };
    if (first < last) add(place(b.slice_dim(v, d, first, last), first - low));
    if (low > 0) {
      const Value side = b.slice_dim(v, d, 0, std::min(low, out));
      add(reflect ? place(b.reverse(side, {d}), 1 + low - side.dim(d))
                  : place(x.sum(side, {d}, true), 0));
    }
    if (high > 0) {
      const Value side = b.slice_dim(v, d, std::max<int64_t>(out - high, 0), out);
      add(reflect ? place(b.reverse(side, {d}), n - 1 - high)
                  : place(x.sum(side, {d}, true), n - 1));
    }
    v = sum;
  }
  return x.convert(v, self.dtype());
}

// ---- Shuffles.

Value shuffle(Ctx& x, Value v, Dims split, const Dims& order, Dims joined) {
  const Dims lead(v.dims().begin(), v.dims().end() - 3);
  Dims all;
  for (size_t i = 0; i < lead.size(); ++i) all.push_back(static_cast<int64_t>(i));
  for (const int64_t o : order) all.push_back(o + static_cast<int64_t>(lead.size()));
  split.insert(split.begin(), lead.begin(), lead.end());
  joined.insert(joined.begin(), lead.begin(), lead.end());
  return x.b.reshape(x.b.transpose(x.b.reshape(v, split), all), joined);
}

Value pixel_shuffle(Ctx& x, Value self, int64_t f) {
  x.check(self.rank() >= 3,
          "pixel_shuffle expects input to have at least 3 dimensions, but got input with ",
          self.rank(), " dimension(s)");
  x.check(f > 0, "pixel_shuffle expects a positive upscale_factor, but got ", f);
  const int64_t r = self.rank(), c = self.dim(r - 3), h = self.dim(r - 2), w = self.dim(r - 1);
  x.check(c % (f * f) == 0,
          "pixel_shuffle expects its input's 'channel' dimension to be divisible by the square of "
          "upscale_factor, but input.size(-3)=",
          c, " is not divisible by ", f * f);
  const int64_t o = c / (f * f);
  return shuffle(x, self, {o, f, f, h, w}, {0, 3, 1, 4, 2}, {o, h * f, w * f});
}

Value pixel_unshuffle(Ctx& x, Value self, int64_t f) {
  x.check(self.rank() >= 3,
          "pixel_unshuffle expects input to have at least 3 dimensions, but got input with ",
          self.rank(), " dimension(s)");
  x.check(f > 0, "pixel_unshuffle expects a positive downscale_factor, but got ", f);
  const int64_t r = self.rank(), c = self.dim(r - 3), h = self.dim(r - 2), w = self.dim(r - 1);
  x.check(h % f == 0,
          "pixel_unshuffle expects height to be divisible by downscale_factor, but input.size(-2)=",
          h, " is not divisible by ", f);
  x.check(w % f == 0,
          "pixel_unshuffle expects width to be divisible by downscale_factor, but input.size(-1)=",
          w, " is not divisible by ", f);
  return shuffle(x, self, {c, h / f, f, w / f, f}, {0, 2, 4, 1, 3}, {c * f * f, h / f, w / f});
}

Value channel_shuffle(Ctx& x, Value self, int64_t groups) {
  x.check(self.rank() > 2, "channel_shuffle expects input with > 2 dims, but got input with sizes ",
          self.dims());
  x.check(groups > 0,
          "Number of groups to divide channels in must be positive. Value of groups:", groups);
  const int64_t c = self.dim(1);
  x.check(c % groups == 0, "Number of channels must be divisible by groups. Got ", c,
          " channels and ", groups, " groups.");
  Dims split = self.dims(), order;
  split[1] = groups;
  split.insert(split.begin() + 2, c / groups);
  for (int64_t i = 0; i < static_cast<int64_t>(split.size()); ++i) order.push_back(i);
  std::swap(order[1], order[2]);
  return x.b.reshape(x.b.transpose(x.b.reshape(self, split), order), self.dims());
}

// ---- Grid sampling. Coordinates are kept per spatial dim (depth, height, width) as [n, points].

enum Interpolation : int64_t { kBilinear = 0, kNearest = 1, kBicubic = 2 };
enum Padding : int64_t { kZeros = 0, kBorder = 1, kReflection = 2 };

struct Grid {
  int64_t spatial, n, channels, points, mode, padding;
  bool align_corners;
  Dims in, out;  // spatial sizes
  Value input;   // compute type
  DType wide;
};

// A coordinate and its derivative by the grid's number (valid only if wanted).
struct Coordinate {
  Value at, slope;
};

Grid make_grid(Ctx& x, Value input, Value grid, int64_t mode, int64_t padding, bool align_corners,
               int64_t spatial) {
  Grid g;
  const int64_t rank = spatial + 2;
  x.check(input.rank() == rank && grid.rank() == rank, "grid_sampler(): expected ", rank,
          "D input and grid with same number of dimensions, but got input with sizes ",
          input.dims(), " and grid with sizes ", grid.dims());
  x.check(input.dim(0) == grid.dim(0),
          "grid_sampler(): expected grid and input to have same batch size, but got input "
          "with sizes ",
          input.dims(), " and grid with sizes ", grid.dims());
  x.check(grid.dim(rank - 1) == spatial, "grid_sampler(): expected grid to have size ", spatial,
          " in last dimension, but got grid with sizes ", grid.dims());
  for (int64_t d = 2; d < rank; ++d) {
    x.check(
        input.dim(d) > 0,
        "grid_sampler(): expected input to have non-empty spatial dimensions, but input has sizes ",
        input.dims(), " with dimension ", d, " being empty");
  }
  x.check(spatial == 2 || mode != kBicubic,
          "grid_sampler(): bicubic interpolation only supports 4D input");
  x.check(input.dtype() == grid.dtype(), "expected scalar type ", scalar_type_name(input.dtype()),
          " but found ", scalar_type_name(grid.dtype()));
  x.check_supported(hlo::is_float(input.dtype()), "\"grid_sampler_", spatial,
                    "d_cpu\" not implemented for '", scalar_type_name(input.dtype()), "'");
  g.spatial = spatial, g.mode = mode, g.padding = padding, g.align_corners = align_corners;
  g.n = input.dim(0), g.channels = input.dim(1);
  g.in = spatial_of(input.dims());
  g.out = Dims(grid.dims().begin() + 1, grid.dims().end() - 1);
  g.points = hlo::product(g.out);
  g.input = x.to_compute(input);
  g.wide = g.input.dtype();
  return g;
}

Value scalar_of(Ctx& x, Value like, double v) { return x.like(like, v); }

// Into the image: unchanged, clipped or reflected. Slopes at a border are 0.
Coordinate into_image(Ctx& x, const Grid& g, Coordinate c, int64_t size) {
  auto& b = x.b;
  if (g.padding == kZeros) return c;
  const auto constant = [&](double v) { return scalar_of(x, c.at, v); };
  if (g.padding == kReflection) {
    const double low = g.align_corners ? 0 : -0.5;
    const double span = g.align_corners ? static_cast<double>(size - 1) : static_cast<double>(size);
    if (span == 0) {
      c.at = constant(0);
      if (c.slope.valid()) c.slope = constant(0);
    } else {
      const Value moved = b.sub(c.at, constant(low));
      const Value distance = b.unary(Op::kAbs, moved);
      const Value extra = b.binary(Op::kRemainder, distance, constant(span));
      const Value flips = b.unary(Op::kFloor, b.div(distance, constant(span)));
      const Value odd =
          b.compare(Cmp::kNe, b.binary(Op::kRemainder, flips, constant(2)), constant(0));
      c.at = b.add(b.select(odd, b.sub(constant(span), extra), extra), constant(low));
      if (c.slope.valid()) {
        const Value negative = b.compare(Cmp::kLt, moved, constant(0));
        const Value turned = b.binary(Op::kXor, negative, odd);
        c.slope = b.select(turned, b.neg(c.slope), c.slope);
      }
    }
  }
  const Value last = constant(static_cast<double>(size - 1));
  if (c.slope.valid()) {
    const Value inside =
        b.logical_and(b.compare(Cmp::kGt, c.at, constant(0)), b.compare(Cmp::kLt, c.at, last));
    c.slope = b.select(inside, c.slope, constant(0));
  }
  c.at = b.minimum(last, b.maximum(c.at, constant(0)));
  return c;
}

// Per spatial dim. The grid's last dim lists the width first.
std::vector<Coordinate> coordinates(Ctx& x, const Grid& g, Value grid, bool slopes) {
  auto& b = x.b;
  const Value flat = x.to_compute(b.reshape(grid, {g.n, g.points, g.spatial}));
  std::vector<Coordinate> all;
  for (int64_t j = 0; j < g.spatial; ++j) {
    const int64_t k = g.spatial - 1 - j;
    const auto size = static_cast<double>(g.in[at(j)]);
    const Value v = b.reshape(b.slice_dim(flat, 2, k, k + 1), {g.n, g.points});
    const auto constant = [&](double c) { return scalar_of(x, v, c); };
    Coordinate c;
    const Value shifted = b.add(v, constant(1));
    if (g.align_corners) {
      c.at = b.mul(b.mul(shifted, constant(0.5)), constant(size - 1));
      if (slopes) c.slope = constant((size - 1) / 2);
    } else {
      c.at = b.mul(b.sub(b.mul(shifted, constant(size)), constant(1)), constant(0.5));
      if (slopes) c.slope = constant(size / 2);
    }
    // Cubic taps are brought into the image one by one.
    all.push_back(g.mode == kBicubic ? c : into_image(x, g, c, g.in[at(j)]));
  }
  return all;
}

// One tap of one dim: a whole coordinate, its weight and (for gradients) the weight's derivative.
struct Tap {
  Value index;  // int32 [n, points]; may lie outside
  Value weight, slope;
};

// Clamped first: a huge or NaN coordinate must not wrap around into the image.
Value to_index(Ctx& x, Value whole, int64_t size) {
  const auto constant = [&](double v) { return x.constant(whole.dtype(), v); };
  const Value safe = x.b.select(x.is_nan(whole), x.like(whole, -2), whole);
  return x.b.convert(x.b.clamp(constant(-2), safe, constant(static_cast<double>(size) + 1)),
                     DType::kI32);
}

Value polynomial(Ctx& x, Value v, std::initializer_list<double> highest_first) {
  Value r;
  for (const double c : highest_first) {
    r = r.valid() ? x.b.add(x.b.mul(r, v), x.like(v, c)) : x.like(v, c);
  }
  return r;
}

std::vector<Tap> taps_at(Ctx& x, const Grid& g, Coordinate c, int64_t size, bool slopes) {
  auto& b = x.b;
  const auto constant = [&](double v) { return scalar_of(x, c.at, v); };
  if (g.mode == kNearest) {
    return {{to_index(x, b.unary(Op::kRoundNearestEven, c.at), size), {}, {}}};
  }
  const Value floor = b.unary(Op::kFloor, c.at);
  const Value f = b.sub(c.at, floor);
  if (g.mode == kBilinear) {
    const Value next = b.add(floor, constant(1));
    Tap low{to_index(x, floor, size), b.sub(next, c.at), {}}, high{to_index(x, next, size), f, {}};
    if (slopes) low.slope = constant(-1), high.slope = constant(1);
    return {low, high};
  }
  // Cubic convolution with a = -0.75: weights at distances 1 + f, f, 1 - f, 2 - f.
  const double a = -0.75;
  const Value distance[] = {b.add(f, constant(1)), f, b.sub(constant(1), f), b.sub(constant(2), f)};
  std::vector<Tap> taps;
  for (int k = 0; k < 4; ++k) {
    const bool far = k == 0 || k == 3;
    const Value d = distance[k];
    Tap t;
    t.weight = far ? polynomial(x, d, {a, -5 * a, 8 * a, -4 * a})
                   : polynomial(x, d, {a + 2, -(a + 3), 0, 1});
    if (slopes) {
      t.slope = far ? polynomial(x, d, {3 * a, -10 * a, 8 * a})
                    : polynomial(x, d, {3 * (a + 2), -2 * (a + 3), 0});
      if (k >= 2) t.slope = b.neg(t.slope);
    }
    const Coordinate here = into_image(x, g, {b.add(floor, constant(k - 1)), {}}, size);
    t.index = to_index(x, b.unary(Op::kFloor, here.at), size);
    taps.push_back(t);
  }
  return taps;
}

// Every choice of one tap per dim.
template <class F>
void for_each_corner(const std::vector<std::vector<Tap>>& taps, F f) {
  std::vector<size_t> pick(taps.size(), 0);
  for (;;) {
    std::vector<const Tap*> corner;
    for (size_t j = 0; j < taps.size(); ++j) corner.push_back(&taps[j][pick[j]]);
    f(corner);
    size_t j = taps.size();
    while (j > 0 && ++pick[j - 1] == taps[j - 1].size()) pick[--j] = 0;
    if (j == 0) return;
  }
}

Value position_of(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner, bool clamped) {
  const Dims one{g.n, g.points, 1};
  Values parts{x.b.iota({DType::kI32, one}, 0)};
  for (size_t j = 0; j < corner.size(); ++j) {
    Value i = corner[j]->index;
    if (clamped)
      i = x.b.clamp(x.constant(DType::kI32, 0), i, x.b.constant(DType::kI32, g.in[j] - 1));
    parts.push_back(x.b.reshape(i, one));
  }
  return x.b.concatenate(parts, 2);
}

Value inside(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner) {
  Value all;
  for (size_t j = 0; j < corner.size(); ++j) {
    const Value i = corner[j]->index;
    const Value in = x.b.logical_and(x.b.compare(Cmp::kGe, i, x.like(i, 0)),
                                     x.b.compare(Cmp::kLt, i, x.b.splat(i.type(), g.in[j])));
    all = all.valid() ? x.b.logical_and(all, in) : in;
  }
  return all;
}

Value over_channels(Ctx& x, const Grid& g, Value v) {
  return x.b.broadcast_in_dim(v, {g.n, g.channels, g.points}, {0, 2});
}

// The input at a corner, 0 outside: [n, channels, points].
Value value_at(Ctx& x, const Grid& g, const std::vector<const Tap*>& corner) {
  hlo::GatherDims d{.offset_dims = {1},
                    .collapsed_slice_dims = {0},
                    .start_index_map = {0},
                    .index_vector_dim = 2};
  Dims sizes(at(g.spatial + 2), 1);
  sizes[1] = g.channels;
  for (int64_t j = 0; j < g.spatial; ++j) {
    d.collapsed_slice_dims.push_back(j + 2);
    d.start_index_map.push_back(j + 2);
  }
  const Value v = x.b.gather(g.input, position_of(x, g, corner, true), d, sizes);
  return x.b.select(over_channels(x, g, inside(x, g, corner)), v, x.like(v, 0));
}

Value times(Ctx& x, Value a, Value c) { return !a.valid() ? c : !c.valid() ? a : x.b.mul(a, c); }

std::vector<std::vector<Tap>> all_taps(Ctx& x, const Grid& g, const std::vector<Coordinate>& c,
                                       bool slopes) {
  std::vector<std::vector<Tap>> taps;
  for (size_t j = 0; j < c.size(); ++j) taps.push_back(taps_at(x, g, c[j], g.in[j], slopes));
  return taps;
}

Value grid_sampler(Ctx& x, Value input, Value grid, int64_t mode, int64_t padding,
                   bool align_corners, int64_t spatial) {
  const Grid g = make_grid(x, input, grid, mode, padding, align_corners, spatial);
  Dims result{g.n, g.channels};
  result.insert(result.end(), g.out.begin(), g.out.end());
  if (hlo::product(result) == 0) return x.zeros({input.dtype(), result});
  Value sum;
  for_each_corner(all_taps(x, g, coordinates(x, g, grid, false), false),
                  [&](const std::vector<const Tap*>& corner) {
                    Value weight;
                    for (const Tap* t : corner) weight = times(x, weight, t->weight);
                    Value v = value_at(x, g, corner);
                    if (weight.valid()) v = x.b.mul(v, over_channels(x, g, weight));
                    sum = sum.valid() ? x.b.add(sum, v) : v;
                  });
  return x.convert(x.b.reshape(sum, result), input.dtype());
}

std::array<Value, 2> grid_sampler_backward(Ctx& x, Value grad_output, Value input, Value grid,
                                           int64_t mode, int64_t padding, bool align_corners,
                                           const std::vector<bool>& output_mask, int64_t spatial) {
  auto& b = x.b;
  const Grid g = make_grid(x, input, grid, mode, padding, align_corners, spatial);
  x.check(grad_output.rank() == spatial + 2 && grad_output.numel() == g.n * g.channels * g.points,
          "grid_sampler backward: grad_output ", grad_output.dims(), " does not fit input ",
          input.dims(), " and grid ", grid.dims());
  const bool want_input = output_mask[0];
  if (grad_output.numel() == 0) {
    return {want_input ? x.zeros(input.type()) : Value{}, x.zeros(grid.type())};
  }
  const Value grad = x.to_compute(b.reshape(grad_output, {g.n, g.channels, g.points}));
  const std::vector<Coordinate> c = coordinates(x, g, grid, true);
  Values updates, positions;
  std::vector<Value> slopes(at(spatial));  // [n, points], per dim
  for_each_corner(all_taps(x, g, c, true), [&](const std::vector<const Tap*>& corner) {
    Value weight;
    for (const Tap* t : corner) weight = times(x, weight, t->weight);
    if (want_input) {
      updates.push_back(weight.valid() ? b.mul(grad, over_channels(x, g, weight)) : grad);
      positions.push_back(position_of(x, g, corner, false));  // a scatter drops what lies outside
    }
    if (mode == kNearest) return;
    const Value share = x.sum(b.mul(value_at(x, g, corner), grad), {1});
    for (size_t j = 0; j < corner.size(); ++j) {
      Value w = corner[j]->slope;
      for (size_t k = 0; k < corner.size(); ++k) {
        if (k != j) w = times(x, w, corner[k]->weight);
      }
      const Value part = b.mul(share, w);
      slopes[j] = slopes[j].valid() ? b.add(slopes[j], part) : part;
    }
  });
  Value grad_input;
  if (want_input) {
    hlo::ScatterDims d{.update_window_dims = {1},
                       .inserted_window_dims = {0},
                       .scatter_dims_to_operand_dims = {0},
                       .index_vector_dim = 2};
    for (int64_t j = 0; j < spatial; ++j) {
      d.inserted_window_dims.push_back(j + 2);
      d.scatter_dims_to_operand_dims.push_back(j + 2);
    }
    const auto join = [&](const Values& v, int64_t dim) {
      return v.size() == 1 ? v[0] : b.concatenate(v, dim);
    };
    grad_input = x.convert(
        b.scatter(x.zeros(g.input.type()), join(positions, 1), join(updates, 2), d, Op::kAdd),
        input.dtype());
  }
  if (mode == kNearest) return {grad_input, x.zeros(grid.type())};
  Values columns;
  for (int64_t k = 0; k < spatial; ++k) {
    const size_t j = at(spatial - 1 - k);
    columns.push_back(b.reshape(b.mul(slopes[j], c[j].slope), {g.n, g.points, 1}));
  }
  return {grad_input, x.convert(b.reshape(b.concatenate(columns, 2), grid.dims()), grid.dtype())};
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
  constexpr auto layout = ops::LayoutRule::kChannelsLast;
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
     }).layout(layout);
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

template <int64_t N>
void register_padding(ops::Registry& r) {
  for (const bool reflect : {true, false}) {
    const std::string name = cat("aten::", reflect ? "reflection" : "replication", "_pad", N, "d");
    r.op(name, [reflect](Ctx& x, Value self, Dims padding) {
       return pad_edges(x, self, padding, N, reflect);
     }).layout(ops::LayoutRule::kChannelsLast);
    r.op(name + "_backward", [reflect](Ctx& x, Value grad_output, Value self, Dims padding) {
       return pad_edges_backward(x, grad_output, self, padding, N, reflect);
     }).layout(ops::LayoutRule::kChannelsLast);
  }
}

template <int64_t N>
void register_grid(ops::Registry& r) {
  r.op(cat("aten::grid_sampler_", N, "d"),
       [](Ctx& x, Value input, Value grid, int64_t interpolation_mode, int64_t padding_mode,
          bool align_corners) {
         return grid_sampler(x, input, grid, interpolation_mode, padding_mode, align_corners, N);
       });
  r.op(cat("aten::grid_sampler_", N, "d_backward"),
       [](Ctx& x, Value grad_output, Value input, Value grid, int64_t interpolation_mode,
          int64_t padding_mode, bool align_corners, std::vector<bool> output_mask) {
         return grid_sampler_backward(x, grad_output, input, grid, interpolation_mode, padding_mode,
                                      align_corners, output_mask, N);
       });
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
  register_padding<1>(r);
  register_padding<2>(r);
  register_padding<3>(r);
  register_grid<2>(r);
  register_grid<3>(r);
  r.op("aten::pixel_shuffle", pixel_shuffle);
  r.op("aten::pixel_unshuffle", pixel_unshuffle);
  r.op("aten::channel_shuffle", channel_shuffle).layout(ops::LayoutRule::kChannelsLast);
}

}  // namespace tpu::aten
