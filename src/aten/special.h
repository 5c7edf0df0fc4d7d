// What special.cpp and gamma.cpp share: sums of series in a Value and tables of functions that turn
// integers into the default dtype. All functions take and give values of their compute type.
#pragma once
#include <cstdint>
#include <limits>
#include <numbers>
#include <span>

#include "aten/elementwise.h"

namespace tpu::aten {

constexpr double kPi = std::numbers::pi;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

inline bool is_double(Value v) { return v.dtype() == DType::kF64; }
inline double epsilon(Value v) { return is_double(v) ? 0x1p-53 : 0x1p-24; }

inline Value one_minus(Ctx& x, Value v) { return x.b.sub(x.like(v, 1), v); }
inline Value square(Ctx& x, Value v) { return x.b.mul(v, v); }
inline Value sine(Ctx& x, Value v) { return x.b.unary(Op::kSine, v); }
inline Value cosine(Ctx& x, Value v) { return x.b.unary(Op::kCosine, v); }
inline Value over(Ctx& x, double c, Value v) { return x.b.div(x.like(v, c), v); }
inline Value lgamma(Ctx& x, Value v) { return x.b.unary(Op::kLgamma, v); }
inline Value power(Ctx& x, Value v, Value e) { return x.b.binary(Op::kPower, v, e); }

// sum c_k T_k(t) by Clenshaw's recurrence; float32 leaves out the terms it cannot see.
Value chebyshev(Ctx& x, std::span<const double> c, Value t);
// c_0 + c_1 v + ... by Horner's rule.
Value polynomial(Ctx& x, std::span<const double> c, Value v);

struct SpecialUnary {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value);
};
struct SpecialBinary {
  const char* name;
  uint8_t classes;
  bool to_float;  // integers become the default dtype
  const char* kernel;
  Value (*make)(Ctx&, Value, Value);
};
void register_unary(ops::Registry& r, std::span<const SpecialUnary> table);
void register_binary(ops::Registry& r, std::span<const SpecialBinary> table);

// The gamma family: a part of register_special (gamma.cpp).
void register_gamma(ops::Registry& r);

}  // namespace tpu::aten
