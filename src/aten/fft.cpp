// Fourier transforms over any dims. The instruction works on one to three trailing dims, and its
// inverse forms divide by the number of points; PyTorch says with a mode whether to divide.
#include <algorithm>
#include <cmath>

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

// One instruction over `dims` (at most three); the last of them is the halved one of kRfft and
// kIrfft, and `last_size` its real size.
Value transform(Context& x, Value v, FftKind kind, const Dims& dims, int64_t last_size) {
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
  r.op("aten::_fft_c2c", fft_c2c);
  r.op("aten::_fft_r2c", fft_r2c);
  r.op("aten::_fft_c2r", fft_c2r);
}

}  // namespace tpu::aten
