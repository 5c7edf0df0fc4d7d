// Element types of StableHLO that PyTorch also has, and what is known about each.
//
// The table in dtype.cpp is the only place that lists them; everything else asks it.
// Values are plain enumerators; no torch, no PJRT.
#pragma once
#include <cstddef>
#include <cstdint>
#include <string_view>

namespace tpu::hlo {

enum class DType : uint8_t {
  kBool,
  kU8,
  kU16,
  kU32,
  kU64,
  kI8,
  kI16,
  kI32,
  kI64,
  kF8E4M3FN,
  kF8E5M2,
  kF8E4M3FNUZ,
  kF8E5M2FNUZ,
  kF8E8M0FNU,
  kF16,
  kBF16,
  kF32,
  kF64,
  kC64,
  kC128,
};
inline constexpr int kDTypeCount = 20;

// MLIR spelling: i1, ui8, si8 is written i8, f8E4M3FN, complex<f32>, ...
std::string_view mlir_name(DType t);
// PyTorch spelling without "torch.": bool, uint8, float32, ... (for messages).
std::string_view torch_name(DType t);
inline std::string_view to_string(DType t) { return torch_name(t); }
size_t size_bytes(DType t);

constexpr bool is_bool(DType t) { return t == DType::kBool; }
constexpr bool is_unsigned(DType t) { return t >= DType::kU8 && t <= DType::kU64; }
constexpr bool is_signed_integer(DType t) { return t >= DType::kI8 && t <= DType::kI64; }
// Integers without bool.
constexpr bool is_integer(DType t) { return t >= DType::kU8 && t <= DType::kI64; }
// Integers and bool.
constexpr bool is_integral(DType t) { return t <= DType::kI64; }
// Real floating point of any width, float8 included.
constexpr bool is_float(DType t) { return t >= DType::kF8E4M3FN && t <= DType::kF64; }
constexpr bool is_float8(DType t) { return t >= DType::kF8E4M3FN && t <= DType::kF8E8M0FNU; }
constexpr bool is_complex(DType t) { return t >= DType::kC64; }

// complex64 -> float32, complex128 -> float64, others unchanged.
DType real_type(DType t);
// float32 and narrower -> complex64, float64 -> complex128; complex unchanged.
DType complex_type(DType t);
// The type that sums and products of t are computed in: f16, bf16, f8 -> f32; others unchanged.
DType compute_type(DType t);

// Smallest and largest finite value of an integer or bool type, as 64-bit patterns
// (kU64's largest is -1 reinterpreted).
int64_t integer_min(DType t);
int64_t integer_max(DType t);
// Largest finite value of a floating type.
double float_max(DType t);

// The bit pattern of v in real floating type t, rounded to nearest even. Too large a value becomes
// what the type has: inf, else NaN. float8_e8m0fnu has neither sign nor zero: zero gives its
// smallest value, a negative number NaN.
uint64_t float_to_bits(DType t, double v);
double bits_to_double(DType t, uint64_t bits);

}  // namespace tpu::hlo
