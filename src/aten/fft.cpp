// Fourier transforms over any dims. The instruction works on one to three trailing dims, and its
// inverse forms divide by the number of points; PyTorch says with a mode whether to divide.
#include <algorithm>
#include <cmath>
#include <numbers>

#include "aten/all.h"
#include "aten/indexing.h"

namespace tpu::aten {

using hlo::FftKind;
using ops::scalar_type_name;

namespace {

// aten's fft_norm_mode.
enum class Norm : int64_t { kNone = 0, kByRootN = 1, kByN = 2 };

constexpr size_t kMaxFftDims = 3;

Dims checked_dims(Context& x, Value self, const Dims& dims) {
  Dims out;
  for (const int64_t d : dims) {
    const int64_t axis = x.axis(d, self);
    x.check(std::find(out.begin(), out.end(), axis) == out.end(), "FFT dims must be unique");
    x.check(self.dim(axis) > 0, "Invalid number of data points (", self.dim(axis), ") specified");
    out.push_back(axis);
  }
  return out;
}

// ---- Double precision for TPUs, whose compilers have the instruction in single only: products
// with a matrix of roots of unity.

constexpr int64_t kMaxMatrixPoints = 8192;  // the matrix takes 1 GiB

// cos and sin of 2 pi j k / n for j below `rows` and k below `columns`.
std::pair<Value, Value> roots(Context& x, int64_t rows, int64_t columns, int64_t n) {
  x.check_supported(n <= kMaxMatrixPoints, "a float64 transform of ", n,
                    " points; TPUs take up to ", kMaxMatrixPoints,
                    " in double precision: use float32");
  const Type whole{DType::kI32, {rows, columns}};
  const Value product = x.b.mul(x.b.iota(whole, 0), x.b.iota(whole, 1));  // below 2^26
  const Value turn =
      x.b.convert(x.b.binary(hlo::Op::kRemainder, product, x.like(product, static_cast<double>(n))),
                  DType::kF64);
  const Value angle = x.b.mul(turn, x.like(turn, 2 * std::numbers::pi / static_cast<double>(n)));
  return {x.b.unary(hlo::Op::kCosine, angle), x.b.unary(hlo::Op::kSine, angle)};
}

// v's dim `axis` replaced by the products of it with the rows of `m`.
Value along_axis(Context& x, Value v, Value m, int64_t axis) {
  hlo::DotDims d;
  d.lhs_contract = {axis};
  d.rhs_contract = {0};
  const Value r = x.dot(v, m, d);
  Dims order = x.all_axes(r);
  std::rotate(order.begin() + axis, order.end() - 1, order.end());
  return x.b.transpose(r, order);
}

Value matrix_transform(Context& x, Value v, FftKind kind, Dims dims, int64_t last_size) {
  const auto complex_axis = [&](Value u, int64_t axis, bool forward) {
    const int64_t n = u.dim(axis);
    const auto [cosine, sine] = roots(x, n, n, n);
    const Value r = along_axis(x, u, x.b.complex(cosine, forward ? x.b.neg(sine) : sine), axis);
    return forward ? r : x.b.div(r, x.like(r, static_cast<double>(n)));
  };
  const int64_t last = dims.back();
  if (kind == FftKind::kRfft) v = x.b.complex(v, x.zeros(v.type()));
  if (kind == FftKind::kIrfft) dims.pop_back();
  for (const int64_t axis : dims)
    v = complex_axis(v, axis, kind == FftKind::kFft || kind == FftKind::kRfft);
  if (kind == FftKind::kRfft) return x.b.slice_dim(v, last, 0, last_size / 2 + 1);
  if (kind != FftKind::kIrfft) return v;
  // Each of the halved dim's numbers stands for two but the first and, of an even size, the last.
  const int64_t half = v.dim(last);
  const auto [cosine, sine] = roots(x, half, last_size, last_size);
  const Value row = x.b.iota({DType::kI32, {half, last_size}}, 0);
  Value once = x.b.compare(hlo::Cmp::kEq, row, x.like(row, 0));
  if (last_size % 2 == 0) {
    once = x.b.logical_or(
        once, x.b.compare(hlo::Cmp::kEq, row, x.like(row, static_cast<double>(half - 1))));
  }
  const double n = static_cast<double>(last_size);
  const Value weight = x.b.select(once, x.like(cosine, 1 / n), x.like(cosine, 2 / n));
  return x.b.sub(along_axis(x, x.b.real(v), x.b.mul(cosine, weight), last),
                 along_axis(x, x.b.imag(v), x.b.mul(sine, weight), last));
}

// One instruction over `dims` (at most three); the last of them is the halved one of kRfft and
// kIrfft, and `last_size` its real size.
Value transform(Context& x, Value v, FftKind kind, const Dims& dims, int64_t last_size) {
  if (!x.on_cpu_plugin() && (v.dtype() == DType::kF64 || v.dtype() == DType::kC128))
    return matrix_transform(x, v, kind, dims, last_size);
  Dims to_end, back(static_cast<size_t>(v.rank()));
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (std::find(dims.begin(), dims.end(), i) == dims.end()) to_end.push_back(i);
  }
  to_end.insert(to_end.end(), dims.begin(), dims.end());
  for (size_t i = 0; i < to_end.size(); ++i) {
    back[static_cast<size_t>(to_end[i])] = static_cast<int64_t>(i);
  }
  Dims lengths;
  for (const int64_t d : dims) lengths.push_back(v.dim(d));
  lengths.back() = last_size;
  return x.b.transpose(x.b.fft(x.b.transpose(v, to_end), kind, lengths), back);
}

// The complex transform over any number of dims.
Value transform_complex(Context& x, Value v, Dims dims, bool forward) {
  while (!dims.empty()) {
    const size_t n = std::min(kMaxFftDims, dims.size());
    const Dims group(dims.end() - static_cast<std::ptrdiff_t>(n), dims.end());
    dims.resize(dims.size() - n);
    v = transform(x, v, forward ? FftKind::kFft : FftKind::kIfft, group, v.dim(group.back()));
  }
  return v;
}

// The last group of dims (it holds the halved one), and what is left.
std::pair<Dims, Dims> split_last_group(const Dims& dims) {
  const size_t n = std::min(kMaxFftDims, dims.size());
  const auto at = dims.end() - static_cast<std::ptrdiff_t>(n);
  return {Dims(dims.begin(), at), Dims(at, dims.end())};
}

Value normalise(Context& x, Value v, int64_t normalization, int64_t points, bool divided_already) {
  double factor = divided_already ? static_cast<double>(points) : 1;
  switch (static_cast<Norm>(normalization)) {
    case Norm::kNone: break;
    case Norm::kByRootN: factor /= std::sqrt(static_cast<double>(points)); break;
    case Norm::kByN: factor /= static_cast<double>(points); break;
    default: x.check(false, "unsupported FFT normalization mode ", normalization);
  }
  return factor == 1 ? v : x.b.mul(v, x.like(v, factor));
}

int64_t count_points(Value v, const Dims& dims) {
  int64_t n = 1;
  for (const int64_t d : dims) n *= v.dim(d);
  return n;
}

Value fft_c2c(Context& x, Value self, const Dims& dim, int64_t normalization, bool forward) {
  x.check(hlo::is_complex(self.dtype()),
          "Only supports complex dtypes, but found: ", scalar_type_name(self.dtype()));
  const Dims dims = checked_dims(x, self, dim);
  if (dims.empty() || self.numel() == 0) return self;
  const Value v = transform_complex(x, self, dims, forward);
  return normalise(x, v, normalization, count_points(self, dims), !forward);
}

Value fft_r2c(Context& x, Value self, const Dims& dim, int64_t normalization, bool onesided) {
  x.check(hlo::is_float(self.dtype()),
          "Only supports floating-point dtypes, but found: ", scalar_type_name(self.dtype()));
  x.check(self.dtype() == DType::kF32 || self.dtype() == DType::kF64,
          "FFT doesn't support tensors of type: ", scalar_type_name(self.dtype()));
  const Dims dims = checked_dims(x, self, dim);
  x.check(!dims.empty(), "_fft_r2c must be over at least one dim");
  const DType t = hlo::complex_type(self.dtype());
  Dims result = self.dims();
  int64_t& last = result[static_cast<size_t>(dims.back())];
  if (onesided) last = last / 2 + 1;
  if (self.numel() == 0) return x.zeros({t, result});
  Value v;
  if (onesided) {
    const auto [rest, group] = split_last_group(dims);
    v = transform(x, self, FftKind::kRfft, group, self.dim(group.back()));
    v = transform_complex(x, v, rest, true);
  } else {
    v = transform_complex(x, x.convert(self, t), dims, true);
  }
  return normalise(x, v, normalization, count_points(self, dims), false);
}

Value fft_c2r(Context& x, Value self, const Dims& dim, int64_t normalization,
              int64_t last_dim_size) {
  x.check(hlo::is_complex(self.dtype()),
          "Only supports complex dtypes, but found: ", scalar_type_name(self.dtype()));
  const Dims dims = checked_dims(x, self, dim);
  x.check(!dims.empty(), "_fft_c2r must be over at least one dim");
  x.check(last_dim_size >= 1, "Invalid number of data points (", last_dim_size, ") specified");
  const int64_t last = dims.back(), half = last_dim_size / 2 + 1;
  x.check(self.dim(last) >= half, "needs ", half, " points along dim ", last, " for ",
          last_dim_size, " results, got ", self.dim(last));
  Dims result = self.dims();
  result[static_cast<size_t>(last)] = last_dim_size;
  if (hlo::product(result) == 0) return x.zeros({hlo::real_type(self.dtype()), result});
  const auto [rest, group] = split_last_group(dims);
  Value v = x.b.slice_dim(self, last, 0, half);
  v = transform_complex(x, v, rest, false);
  v = transform(x, v, FftKind::kIrfft, group, last_dim_size);
  return normalise(x, v, normalization, count_points(v, dims), true);
}

}  // namespace

void register_fft(ops::Registry& r) {
  r.op("aten::_fft_c2c", fft_c2c).layout(ops::LayoutRule::kFft);
  r.op("aten::_fft_r2c", fft_r2c).layout(ops::LayoutRule::kFft);
  r.op("aten::_fft_c2r", fft_c2r).layout(ops::LayoutRule::kFft).out_casts(true);
}

}  // namespace tpu::aten
