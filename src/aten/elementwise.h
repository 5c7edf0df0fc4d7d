// What the elementwise families (elementwise, compare, activation, special, complex, loss, foreach,
// optim) share: classes of dtypes with CPU's words for a missing one, math done in the compute type
// and rounded once, and functions that several of them need. Pure functions on a Context.
#pragma once
#include <cstdint>
#include <string_view>

#include "aten/nn.h"
#include "ops/registry.h"

namespace tpu::aten {

using ops::Number;
using ops::NumberKind;

// Classes of element types, as bits.
enum Class : uint8_t {
  kBoolean = 1,
  kInteger = 2,
  kHalves = 4,  // float16, bfloat16
  kReal = 8,    // float32, float64
  kComplex = 16,
  kFloat8 = 32,  // only where a row of an op names it
  kFloats = kHalves | kReal,
  kNumbers = kInteger | kFloats | kComplex,
  kOrdered = kInteger | kFloats,
  kAnyClass = kBoolean | kNumbers,
};

Class class_of(DType t);
// NotImplementedError: "kernel" not implemented for 'Bool'.
void check_dtype(const Ctx& x, DType t, uint8_t classes, std::string_view kernel);

// f on v in its compute type; the result has v's dtype (unless f gives a bool).
template <class F>
Value in_compute(Ctx& x, Value v, F f) {
  return x.convert(f(x.to_compute(v)), v.dtype());
}
// Same for two values, the first of which says the dtype; they are broadcast.
template <class F>
Value in_compute(Ctx& x, Value v, Value w, F f) {
  const DType c = hlo::compute_type(v.dtype());
  const auto [p, q] = x.broadcast_all(c, v, w);
  return x.convert(f(p, q), v.dtype());
}

// Short forms of the builder's calls.
inline Value recip(Ctx& x, Value v) { return x.b.div(x.like(v, 1), v); }
inline Value times(Ctx& x, Value v, double c) { return x.b.mul(v, x.like(v, c)); }
inline Value plus(Ctx& x, Value v, double c) { return x.b.add(v, x.like(v, c)); }
inline Value zero_like(Ctx& x, Value v) { return x.like(v, 0); }
inline Value is_zero(Ctx& x, Value v) { return x.b.compare(Cmp::kEq, v, x.like(v, 0)); }
inline Value gt(Ctx& x, Value v, double c) { return x.b.compare(Cmp::kGt, v, x.like(v, c)); }
inline Value lt(Ctx& x, Value v, double c) { return x.b.compare(Cmp::kLt, v, x.like(v, c)); }
inline Value ge(Ctx& x, Value v, double c) { return x.b.compare(Cmp::kGe, v, x.like(v, c)); }
inline Value le(Ctx& x, Value v, double c) { return x.b.compare(Cmp::kLe, v, x.like(v, c)); }
inline Value abs(Ctx& x, Value v) { return x.b.unary(Op::kAbs, v); }
inline Value exp(Ctx& x, Value v) { return x.b.unary(Op::kExponential, v); }
inline Value log(Ctx& x, Value v) { return x.b.unary(Op::kLog, v); }
Value sqrt(Ctx& x, Value v);

// An operand that is a tensor or a number, as t.
inline Value as(Ctx& x, Value v, DType t) { return x.convert(v, t); }
inline Value as(Ctx& x, const Scalar& s, DType t) { return x.scalar(s, t); }

// Layout of a real floating type.
struct FloatLayout {
  DType unsigned_bits, signed_bits;
  int mantissa_bits, bias;
};
FloatLayout layout_of(DType t);
// Bits of a real floating value as unsigned integers of its width, and back.
Value to_bits(Ctx& x, Value v);
Value from_bits(Ctx& x, Value bits, DType t);
// The sign bit is set (-0.0 and NaN included). v: real floating.
Value sign_bit(Ctx& x, Value v);
// 1, -1 or 0; 0 for NaN; z / |z| for complex.
Value sign(Ctx& x, Value v);
// v = mantissa * 2^exponent (int32) with 0.5 <= |mantissa| < 1. v: float32 or float64, finite, not
// 0.
struct Parts {
  Value mantissa, exponent;
};
Parts split(Ctx& x, Value v);
// v * 2^n (n: int32, |n| below four times the largest exponent), rounded once at most.
Value scale(Ctx& x, Value v, Value n);
// 2^v and 1 / sqrt(v); v in its compute type, real or complex.
Value exp2(Ctx& x, Value v);
Value rsqrt(Ctx& x, Value v);
// Towards zero; v real floating.
Value truncate(Ctx& x, Value v);
// +-inf of v's type where `negative` is false / true.
Value infinity_like(Ctx& x, Value v, bool negative = false);

// Ops of two and three operands and powers: a part of register_elementwise (arithmetic.cpp).
void register_arithmetic(ops::Registry& r);

}  // namespace tpu::aten
