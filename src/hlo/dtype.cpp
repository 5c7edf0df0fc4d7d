#include "hlo/dtype.h"

#include <array>
#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"

namespace tpu::hlo {
namespace {

// How a floating type spends the patterns that IEEE 754 gives to infinities and NaNs.
enum class Special : uint8_t {
  kNone,   // not a floating type
  kIeee,   // infinities and NaNs
  kFn,     // finite: only the all-ones magnitudes are NaN
  kFnuz,   // finite, unsigned zero: only the pattern of -0 is NaN
  kScale,  // a power of two without sign, zero and mantissa: all ones is NaN
};

struct Info {
  std::string_view mlir, torch;
  uint8_t size_bytes;
  Special special = Special::kNone;
  int exponent_bits = 0, mantissa_bits = 0, bias = 0;
};

constexpr std::array<Info, kDTypeCount> kInfo = {{
    {"i1", "bool", 1},
    {"ui8", "uint8", 1},
    {"ui16", "uint16", 2},
    {"ui32", "uint32", 4},
    {"ui64", "uint64", 8},
    {"i8", "int8", 1},
    {"i16", "int16", 2},
    {"i32", "int32", 4},
    {"i64", "int64", 8},
    {"f8E4M3FN", "float8_e4m3fn", 1, Special::kFn, 4, 3, 7},
    {"f8E5M2", "float8_e5m2", 1, Special::kIeee, 5, 2, 15},
    {"f8E4M3FNUZ", "float8_e4m3fnuz", 1, Special::kFnuz, 4, 3, 8},
    {"f8E5M2FNUZ", "float8_e5m2fnuz", 1, Special::kFnuz, 5, 2, 16},
    {"f8E8M0FNU", "float8_e8m0fnu", 1, Special::kScale, 8, 0, 127},
    {"f16", "float16", 2, Special::kIeee, 5, 10, 15},
    {"bf16", "bfloat16", 2, Special::kIeee, 8, 7, 127},
    {"f32", "float32", 4, Special::kIeee, 8, 23, 127},
    {"f64", "float64", 8, Special::kIeee, 11, 52, 1023},
    {"complex<f32>", "complex64", 8},
    {"complex<f64>", "complex128", 16},
}};

const Info& info(DType t) { return kInfo[static_cast<size_t>(t)]; }

const Info& float_info(DType t) {
  const Info& f = info(t);
  TPU_CHECK(f.special != Special::kNone, ErrorKind::kInternal, t, " is not a real floating type");
  return f;
}

constexpr uint64_t low_bits(int n) { return (uint64_t{1} << n) - 1; }

// Bits below the sign; kScale has no sign.
uint64_t magnitude_mask(const Info& f) { return low_bits(f.exponent_bits + f.mantissa_bits); }

uint64_t largest_magnitude(const Info& f) {
  switch (f.special) {
    case Special::kIeee: return (low_bits(f.exponent_bits) << f.mantissa_bits) - 1;
    case Special::kFnuz: return magnitude_mask(f);
    default: return magnitude_mask(f) - 1;
  }
}

uint64_t nan_bits(const Info& f, uint64_t sign) {
  switch (f.special) {
    case Special::kIeee:
      return sign | low_bits(f.exponent_bits) << f.mantissa_bits |
             uint64_t{1} << (f.mantissa_bits - 1);
    case Special::kFnuz: return magnitude_mask(f) + 1;
    default: return sign | magnitude_mask(f);
  }
}

}  // namespace

std::string_view mlir_name(DType t) { return info(t).mlir; }
std::string_view torch_name(DType t) { return info(t).torch; }
size_t size_bytes(DType t) { return info(t).size_bytes; }

DType real_type(DType t) {
  if (t == DType::kC64) return DType::kF32;
  return t == DType::kC128 ? DType::kF64 : t;
}

DType complex_type(DType t) {
  if (is_complex(t)) return t;
  return t == DType::kF64 ? DType::kC128 : DType::kC64;
}

DType compute_type(DType t) { return is_float(t) && t < DType::kF32 ? DType::kF32 : t; }

int64_t integer_min(DType t) {
  TPU_CHECK(is_integral(t), ErrorKind::kInternal, t, " is not an integer type");
  if (!is_signed_integer(t)) return 0;
  return std::numeric_limits<int64_t>::min() >> (64 - 8 * size_bytes(t));
}

int64_t integer_max(DType t) {
  TPU_CHECK(is_integral(t), ErrorKind::kInternal, t, " is not an integer type");
  if (is_bool(t)) return 1;
  const int unused = 64 - 8 * static_cast<int>(size_bytes(t)) + (is_signed_integer(t) ? 1 : 0);
  return static_cast<int64_t>(~uint64_t{0} >> unused);
}

double float_max(DType t) { return bits_to_double(t, largest_magnitude(float_info(t))); }

uint64_t float_to_bits(DType t, double v) {
  if (t == DType::kF64) return std::bit_cast<uint64_t>(v);
  const Info& f = float_info(t);
  const uint64_t sign = f.special != Special::kScale && std::signbit(v) ? magnitude_mask(f) + 1 : 0;
  if (std::isnan(v)) return nan_bits(f, sign);
  if (f.special == Special::kScale) {
    if (v < 0) return nan_bits(f, 0);
    if (v == 0) return 0;
  }
  uint64_t magnitude = 0;
  if (std::isinf(v)) {
    magnitude = largest_magnitude(f) + 1;
  } else if (v != 0) {
    // In units of the last place the value is a small number that rounds to nearest even; adding
    // the exponent above it lets a carry reach the exponent by itself. Subnormals share the
    // smallest exponent.
    const bool has_subnormals = f.special != Special::kScale;
    const int smallest = (has_subnormals ? 1 : 0) - f.bias;
    const int exponent = std::max(std::ilogb(v), smallest);
    const double units = std::nearbyint(std::ldexp(std::fabs(v), f.mantissa_bits - exponent));
    magnitude = static_cast<uint64_t>(units) +
                (static_cast<uint64_t>(exponent - smallest) << f.mantissa_bits);
    if (!has_subnormals && magnitude > 0) --magnitude;
  }
  if (magnitude > largest_magnitude(f)) {
    if (f.special != Special::kIeee) return nan_bits(f, sign);
    magnitude = largest_magnitude(f) + 1;
  }
  if (magnitude == 0 && f.special == Special::kFnuz) return 0;
  return sign | magnitude;
}

double bits_to_double(DType t, uint64_t bits) {
  if (t == DType::kF64) return std::bit_cast<double>(bits);
  const Info& f = float_info(t);
  const uint64_t magnitude = bits & magnitude_mask(f);
  const bool negative = (bits & ~magnitude_mask(f)) != 0;
  constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
  if (f.special == Special::kFnuz && negative && magnitude == 0) return kNan;
  if (magnitude > largest_magnitude(f)) {
    const bool infinite = f.special == Special::kIeee && magnitude == largest_magnitude(f) + 1;
    return std::copysign(infinite ? std::numeric_limits<double>::infinity() : kNan,
                         negative ? -1.0 : 1.0);
  }
  if (f.special == Special::kScale) return std::ldexp(1.0, static_cast<int>(magnitude) - f.bias);
  const int exponent = static_cast<int>(magnitude >> f.mantissa_bits);
  uint64_t units = magnitude & low_bits(f.mantissa_bits);
  if (exponent > 0) units += uint64_t{1} << f.mantissa_bits;
  const double value =
      std::ldexp(static_cast<double>(units), std::max(exponent, 1) - f.bias - f.mantissa_bits);
  return negative ? -value : value;
}

}  // namespace tpu::hlo
