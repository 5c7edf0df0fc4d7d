#include "aten/elementwise.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "aten/all.h"

namespace tpu::aten {

using ops::Registry;
using ops::scalar_type_name;

// ---- Shared helpers.

Class class_of(DType t) {
  if (hlo::is_bool(t)) return kBoolean;
  if (hlo::is_integer(t)) return kInteger;
  if (hlo::is_complex(t)) return kComplex;
  return is_narrow(t) ? kHalves : kReal;
}

void check_dtype(const Ctx& x, DType t, uint8_t classes, std::string_view kernel) {
  x.check_supported((class_of(t) & classes) != 0 && !hlo::is_float8(t), "\"", kernel,
                    "\" not implemented for '", scalar_type_name(t), "'");
}

Value checked_scalar(Ctx& x, const Scalar& s, DType t) {
  const std::string text = cat("value cannot be converted to type ", cpp_type_name(t), " without overflow");
  x.check(s.kind != NumberKind::kComplex || hlo::is_complex(t) || hlo::is_bool(t), text);
  const bool may_overflow =
      hlo::is_integer(t) && (s.kind == NumberKind::kFloat ||
                             (s.kind == NumberKind::kInt && hlo::size_bytes(t) < 8));
  if (may_overflow) {
    // Negative numbers wrap into unsigned types as far as their magnitude fits.
    const DType c = s.kind == NumberKind::kFloat ? DType::kF64 : DType::kI64;
    const Value v = x.scalar(s, c);
    const Value high = x.b.convert(x.b.max_value(t), c);
    const Value low = hlo::is_unsigned(t) ? x.b.neg(high) : x.b.convert(x.b.min_value(t), c);
    const Value inside = x.b.logical_and(x.b.compare(Cmp::kGe, v, low), x.b.compare(Cmp::kLe, v, high));
    x.assert_none(x.b.logical_not(inside), text);
  }
  return x.scalar(s, t);
}

namespace {

// Layout of a real floating type.
struct FloatLayout {
  DType unsigned_bits, signed_bits;
  int mantissa_bits, bias;
};
FloatLayout layout_of(DType t) {
  switch (t) {
    case DType::kF64: return {DType::kU64, DType::kI64, 52, 1023};
    case DType::kF32: return {DType::kU32, DType::kI32, 23, 127};
    case DType::kBF16: return {DType::kU16, DType::kI16, 7, 127};
    default: return {DType::kU16, DType::kI16, 10, 15};
  }
}

// 2^n for n (int32) inside the range of normal numbers.
Value power_of_two(Ctx& x, Value n, DType t) {
  const FloatLayout l = layout_of(t);
  const Value biased = x.b.convert(plus(x, n, l.bias), l.signed_bits);
  return x.b.bitcast_convert(x.b.binary(Op::kShiftLeft, biased, x.like(biased, l.mantissa_bits)), {t, n.dims()});
}

}  // namespace

Value to_bits(Ctx& x, Value v) { return x.b.bitcast_convert(v, {layout_of(v.dtype()).unsigned_bits, v.dims()}); }

Value from_bits(Ctx& x, Value bits, DType t) { return x.b.bitcast_convert(bits, {t, bits.dims()}); }

Value sign_bit(Ctx& x, Value v) {
  return lt(x, x.b.bitcast_convert(v, {layout_of(v.dtype()).signed_bits, v.dims()}), 0);
}

Value infinity_like(Ctx& x, Value v, bool negative) {
  const double inf = std::numeric_limits<double>::infinity();
  return x.like(v, negative ? -inf : inf);
}

Value sign(Ctx& x, Value v) {
  if (hlo::is_bool(v.dtype())) return v;
  if (hlo::is_complex(v.dtype())) {
    const Value size = abs(x, v);
    const Value wide = x.convert(size, v.dtype());
    return x.select(is_zero(x, size), zero_like(x, v), x.b.div(v, wide));
  }
  const Value above = x.b.convert(gt(x, v, 0), v.dtype());
  if (hlo::is_unsigned(v.dtype())) return above;
  return x.b.sub(above, x.b.convert(lt(x, v, 0), v.dtype()));
}

Parts split(Ctx& x, Value v) {
  const FloatLayout l = layout_of(v.dtype());
  // Subnormal numbers are scaled into the normal range first.
  const double smallest = std::ldexp(1.0, 1 - l.bias);
  const Value tiny = lt(x, abs(x, v), smallest);
  const Value normal = x.select(tiny, times(x, v, std::ldexp(1.0, l.mantissa_bits + 1)), v);
  const Value bits = to_bits(x, normal);
  const auto shift = x.like(bits, l.mantissa_bits);
  const Value field =
      x.b.binary(Op::kAnd, x.b.binary(Op::kShiftRightLogical, bits, shift), x.like(bits, 2 * l.bias + 1));
  const Value raw = x.b.convert(field, DType::kI32);
  const Value exponent =
      x.b.sub(raw, x.select(tiny, x.like(raw, l.bias - 1 + l.mantissa_bits + 1), x.like(raw, l.bias - 1)));
  // The mantissa keeps sign and fraction and gets the exponent of [0.5, 1).
  const Value hole = x.b.binary(Op::kShiftLeft, x.like(bits, 2 * l.bias + 1), shift);
  const Value half = x.b.binary(Op::kShiftLeft, x.like(bits, l.bias - 1), shift);
  const Value mantissa = x.b.logical_or(x.b.logical_and(bits, x.b.logical_not(hole)), half);
  return {from_bits(x, mantissa, v.dtype()), exponent};
}

Value scale(Ctx& x, Value v, Value n) {
  // Two factors that are normal numbers cover the whole range, subnormal results included.
  const Value half = x.b.binary(Op::kShiftRightArithmetic, n, x.like(n, 1));
  const Value first = x.b.mul(v, power_of_two(x, half, v.dtype()));
  return x.b.mul(first, power_of_two(x, x.b.sub(n, half), v.dtype()));
}

namespace {

// ---- One operand, real or complex: integers become the default dtype.

template <Op op>
Value plain(Ctx& x, Value v) {
  return x.b.unary(op, v);
}

// The fraction goes through exp and the whole part into the exponent: exp2(10) is exactly 1024.
Value exp2(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return exp(x, times(x, v, std::numbers::ln2));
  const double limit = v.dtype() == DType::kF64 ? 1100 : 160;
  const Value bounded = x.b.minimum(x.b.maximum(v, x.like(v, -limit)), x.like(v, limit));
  const Value whole = x.b.unary(Op::kRoundNearestEven, bounded);
  const Value fraction = exp(x, times(x, x.b.sub(bounded, whole), std::numbers::ln2));
  return scale(x, fraction, x.b.convert(whole, DType::kI32));
}

// log(v) / log(base) from v's exponent and mantissa, so that whole powers of the base come out whole.
// log_base(2) = high + low, where high times any exponent is exact.
Value log_in_base(Ctx& x, Value v, double log2_high, double log2_low, double log_e) {
  if (hlo::is_complex(v.dtype())) return times(x, log(x, v), log_e);
  const Parts p = split(x, v);
  const Value low_half = lt(x, p.mantissa, std::numbers::sqrt2 / 2);
  const Value m = x.select(low_half, times(x, p.mantissa, 2), p.mantissa);
  const Value e = x.b.convert(x.b.sub(p.exponent, x.b.convert(low_half, DType::kI32)), v.dtype());
  const Value small = x.b.add(times(x, log(x, m), log_e), times(x, e, log2_low));
  const Value result = x.b.add(times(x, e, log2_high), small);
  const Value ordinary = x.b.logical_and(gt(x, v, 0), x.b.is_finite(v));
  return x.select(ordinary, result, log(x, v));
}

Value log2(Ctx& x, Value v) { return log_in_base(x, v, 1, 0, std::numbers::log2e); }

Value log10(Ctx& x, Value v) {
  const double log10_2 = std::numbers::ln2 / std::numbers::ln10;
  const double high = static_cast<double>(static_cast<int>(log10_2 * 4096)) / 4096;  // 12 bits
  return log_in_base(x, v, high, log10_2 - high, std::numbers::log10e);
}

Value rsqrt(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return recip(x, sqrt(x, v));
  // 1 / -0.0 is -inf; not every implementation of rsqrt says so.
  return x.select(is_zero(x, v), recip(x, v), x.b.unary(Op::kRsqrt, v));
}

Value sigmoid(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return recip(x, plus(x, exp(x, x.b.neg(v)), 1));
  return x.b.unary(Op::kLogistic, v);
}

// Some expansions of erf round past 1.
Value erf(Ctx& x, Value v) {
  return x.b.clamp(x.constant(v.dtype(), -1), x.b.unary(Op::kErf, v), x.constant(v.dtype(), 1));
}

Value sinc(Ctx& x, Value v) {
  const Value a = times(x, v, std::numbers::pi);
  return x.select(is_zero(x, v), x.like(v, 1), x.b.div(x.b.unary(Op::kSine, a), a));
}

struct FloatUnary {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value);
};
constexpr FloatUnary kFloatUnary[] = {
    {"aten::acos", kAnyClass, "acos", plain<Op::kAcos>},
    {"aten::acosh", kAnyClass, "acosh", plain<Op::kAcosh>},
    {"aten::asin", kAnyClass, "asin", plain<Op::kAsin>},
    {"aten::asinh", kAnyClass, "asinh", plain<Op::kAsinh>},
    {"aten::atan", kAnyClass, "atan", plain<Op::kAtan>},
    {"aten::atanh", kAnyClass, "atanh", plain<Op::kAtanh>},
    {"aten::cos", kAnyClass, "cos", plain<Op::kCosine>},
    {"aten::cosh", kAnyClass, "cosh", plain<Op::kCosh>},
    {"aten::erf", kFloats, "erf_vml_cpu", erf},
    {"aten::erfc", kFloats, "erfc_vml_cpu", plain<Op::kErfc>},
    {"aten::erfinv", kFloats, "erfinv_vml_cpu", plain<Op::kErfInv>},
    {"aten::exp", kAnyClass, "exp", plain<Op::kExponential>},
    {"aten::exp2", kAnyClass, "exp2", exp2},
    {"aten::expm1", kAnyClass, "expm1", plain<Op::kExponentialMinusOne>},
    {"aten::log", kAnyClass, "log", plain<Op::kLog>},
    {"aten::log10", kAnyClass, "log10", log10},
    {"aten::log1p", kAnyClass, "log1p", plain<Op::kLogPlusOne>},
    {"aten::log2", kAnyClass, "log2", log2},
    {"aten::reciprocal", kAnyClass, "reciprocal", recip},
    {"aten::rsqrt", kAnyClass, "rsqrt", rsqrt},
    {"aten::sigmoid", kAnyClass, "sigmoid", sigmoid},
    {"aten::sin", kAnyClass, "sin", plain<Op::kSine>},
    {"aten::sinc", kAnyClass, "sinc", sinc},
    {"aten::sinh", kAnyClass, "sinh", plain<Op::kSinh>},
    {"aten::sqrt", kAnyClass, "sqrt", plain<Op::kSqrt>},
    {"aten::tan", kAnyClass, "tan", plain<Op::kTan>},
    {"aten::tanh", kAnyClass, "tanh", plain<Op::kTanh>},
};

void register_float_unary(Registry& r) {
  for (const FloatUnary& u : kFloatUnary) {
    r.op(u.name, [u](Ctx& x, Value self) {
       const Value v = x.to_float(self);
       check_dtype(x, v.dtype(), u.classes, u.kernel);
       return in_compute(x, v, [&](Value c) { return u.make(x, c); });
     }).elementwise();
  }
}

// ---- One operand, dtype kept.

Value truncate(Ctx& x, Value v) {
  const Value down = x.b.unary(Op::kFloor, abs(x, v));
  return x.select(sign_bit(x, v), x.b.neg(down), down);
}

struct Rounding {
  const char* name;
  const char* kernel;
  Value (*make)(Ctx&, Value);
};
constexpr Rounding kRoundings[] = {
    {"ceil", "ceil_vml_cpu", plain<Op::kCeil>},
    {"floor", "floor_vml_cpu", plain<Op::kFloor>},
    {"round", "round_vml_cpu", plain<Op::kRoundNearestEven>},
    {"trunc", "trunc_vml_cpu", truncate},
};

Value round_decimals(Ctx& x, Value v, int64_t decimals) {
  check_dtype(x, v.dtype(), decimals == 0 ? kOrdered : kFloats, decimals == 0 ? "round_vml_cpu" : "round_cpu");
  if (hlo::is_integer(v.dtype())) return v;
  if (decimals == 0) return in_compute(x, v, [&](Value c) { return plain<Op::kRoundNearestEven>(x, c); });
  const double power = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  const Value c = x.to_compute(v);
  const Value p = x.like(c, power);
  // The scaled number is rounded to v's type, as CPU does.
  const Value scaled = x.convert(x.convert(decimals < 0 ? x.b.div(c, p) : x.b.mul(c, p), v.dtype()), c.dtype());
  const Value whole = x.b.unary(Op::kRoundNearestEven, scaled);
  return x.convert(decimals < 0 ? x.b.mul(whole, p) : x.b.div(whole, p), v.dtype());
}

Value nan_to_num(Ctx& x, Value self, const Opt<Scalar>& nan, const Opt<Scalar>& high, const Opt<Scalar>& low) {
  if (hlo::is_integral(self.dtype())) return self;
  if (hlo::is_complex(self.dtype())) {
    const Value re = nan_to_num(x, x.b.real(self), nan, high, low);
    return x.b.complex(re, nan_to_num(x, x.b.imag(self), nan, high, low));
  }
  const double largest = hlo::float_max(self.dtype());
  const auto value = [&](const Opt<Scalar>& s, double fallback) {
    return s ? x.scalar_like(*s, self) : x.like(self, fallback);
  };
  const Value inf = infinity_like(x, self);
  Value v = x.b.select(x.is_nan(self), value(nan, 0), self);
  v = x.b.select(x.b.compare(Cmp::kEq, self, inf), value(high, largest), v);
  return x.b.select(x.b.compare(Cmp::kEq, self, x.b.neg(inf)), value(low, -largest), v);
}

void register_unary(Registry& r) {
  r.op("aten::abs", [](Ctx& x, Value self) {
     check_dtype(x, self.dtype(), kNumbers, "abs_cpu");
     return hlo::is_unsigned(self.dtype()) ? self : abs(x, self);
   }).elementwise();
  r.op("aten::neg", [](Ctx& x, Value self) {
     x.check(!hlo::is_bool(self.dtype()),
             "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to invert a "
             "mask, use the `~` or `logical_not()` operator instead.");
     return x.b.neg(self);
   }).elementwise();
  r.op("aten::sign", [](Ctx& x, Value self) {
     x.check_supported(!hlo::is_complex(self.dtype()),
                       "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
                       "torch.sgn instead.");
     return sign(x, self);
   }).elementwise();
  r.op("aten::sgn", [](Ctx& x, Value self) { return sign(x, self); }).elementwise();
  r.op("aten::signbit", [](Ctx& x, Value self) {
     const DType t = self.dtype();
     x.check_supported(!hlo::is_complex(t), "signbit is not implemented for complex tensors.");
     if (hlo::is_float(t)) return sign_bit(x, self);
     if (hlo::is_signed_integer(t)) return lt(x, self, 0);
     return x.zeros({DType::kBool, self.dims()});
   }).elementwise();
  for (const Rounding& k : kRoundings) {
    r.op(std::string("aten::") + k.name, [k](Ctx& x, Value self) {
       x.check_supported(!hlo::is_complex(self.dtype()) || k.name == std::string_view("round"), k.name,
                         " is not supported for complex inputs");
       check_dtype(x, self.dtype(), kOrdered, k.kernel);
       if (hlo::is_integer(self.dtype())) return self;
       return in_compute(x, self, [&](Value c) { return k.make(x, c); });
     }).elementwise();
  }
  r.op("aten::round.decimals", round_decimals).elementwise();
  r.op("aten::frac", [](Ctx& x, Value self) {
     check_dtype(x, self.dtype(), kFloats, "frac_cpu");
     return in_compute(x, self, [&](Value c) { return x.b.sub(c, truncate(x, c)); });
   }).elementwise();
  r.op("aten::bitwise_not", [](Ctx& x, Value self) {
     check_dtype(x, self.dtype(), kBoolean | kInteger, "bitwise_not_cpu");
     return x.b.logical_not(self);
   }).elementwise();
  r.op("aten::nan_to_num", nan_to_num).elementwise();
  r.op("aten::frexp.Tensor", [](Ctx& x, Value self) {
     x.check(hlo::is_float(self.dtype()), "torch.frexp() only supports floating-point dtypes");
     const Value c = x.to_compute(self);
     const Parts p = split(x, c);
     const Value ordinary = x.b.logical_and(x.b.is_finite(c), x.b.logical_not(is_zero(x, c)));
     return std::array{x.convert(x.select(ordinary, p.mantissa, c), self.dtype()),
                       x.select(ordinary, p.exponent, zero_like(x, p.exponent))};
   }).elementwise();
  r.op("aten::logit", [](Ctx& x, Value self, Opt<Scalar> eps) {
     const Value v = x.to_float(self);
     check_dtype(x, v.dtype(), kFloats, "logit_cpu");
     return in_compute(x, v, [&](Value c) {
       Value p = c;
       if (eps) {
         const Value low = x.scalar_like(*eps, c);
         const Value inside = x.b.minimum(x.b.maximum(c, low), x.b.sub(x.like(c, 1), low));
         p = x.b.select(lt(x, low, 0), c, inside);
       }
       // CPU rounds each step to the dtype.
       const auto rounded = [&](Value w) { return x.convert(x.convert(w, v.dtype()), c.dtype()); };
       return log(x, rounded(x.b.div(p, rounded(x.b.sub(x.like(p, 1), p)))));
     });
   }).elementwise();
}

// ---- Two operands.

void check_divisor(Ctx& x, Value b) {
  if (hlo::is_integer(b.dtype())) x.assert_none(is_zero(x, b), "ZeroDivisionError");
}

// The remainder (sign of a) is neither 0 nor of b's sign: Python's floor is one step away.
Value needs_step(Ctx& x, Value rest, Value b) {
  const Value opposite = x.b.compare(Cmp::kNe, lt(x, rest, 0), lt(x, b, 0));
  return x.b.logical_and(x.b.compare(Cmp::kNe, rest, zero_like(x, rest)), opposite);
}

Value divide_floor(Ctx& x, Value a, Value b) {
  if (hlo::is_unsigned(a.dtype())) return x.b.div(a, b);
  const Value rest = x.b.binary(Op::kRemainder, a, b);
  const Value step = x.b.convert(needs_step(x, rest, b), a.dtype());
  if (hlo::is_integer(a.dtype())) return x.b.sub(x.b.div(a, b), step);
  // As CPU: from the exact remainder, because a / b rounded may already be the next whole number.
  const Value plain_quotient = x.b.div(a, b);
  const Value q = x.b.sub(x.b.div(x.b.sub(a, rest), b), step);
  const Value low = x.b.unary(Op::kFloor, q);
  const Value nearest = x.select(gt(x, x.b.sub(q, low), 0.5), plus(x, low, 1), low);
  const Value zero = x.select(sign_bit(x, plain_quotient), x.like(a, -0.0), zero_like(x, a));
  return x.select(is_zero(x, b), plain_quotient, x.select(is_zero(x, q), zero, nearest));
}

Value remainder(Ctx& x, Value a, Value b) {
  const Value rest = x.b.binary(Op::kRemainder, a, b);
  if (hlo::is_unsigned(a.dtype())) return rest;
  return x.select(needs_step(x, rest, b), x.b.add(rest, b), rest);
}

template <Op op>
Value plain2(Ctx& x, Value a, Value b) {
  return x.b.binary(op, a, b);
}

// NaN loses.
template <Op op>
Value ignore_nan(Ctx& x, Value a, Value b) {
  const Value r = x.b.binary(op, a, b);
  if (!hlo::is_float(a.dtype())) return r;
  return x.select(x.is_nan(a), b, x.select(x.is_nan(b), a, r));
}

Value hypot(Ctx& x, Value a, Value b) {
  const Value p = abs(x, a), q = abs(x, b);
  const Value large = x.b.maximum(p, q), small = x.b.minimum(p, q);
  const Value ratio = x.b.div(small, x.select(is_zero(x, large), x.like(large, 1), large));
  const Value r = x.b.mul(large, sqrt(x, plus(x, x.b.mul(ratio, ratio), 1)));
  const Value inf = infinity_like(x, a);
  const Value any_inf = x.b.logical_or(x.b.compare(Cmp::kEq, p, inf), x.b.compare(Cmp::kEq, q, inf));
  return x.select(any_inf, inf, r);
}

Value copysign(Ctx& x, Value a, Value b) {
  const FloatLayout l = layout_of(a.dtype());
  const Value p = to_bits(x, a), q = to_bits(x, b);
  const Value mask = x.b.binary(Op::kShiftLeft, x.like(p, 1),
                                x.like(p, static_cast<double>(hlo::size_bytes(l.unsigned_bits) * 8 - 1)));
  const Value bits = x.b.logical_or(x.b.logical_and(p, x.b.logical_not(mask)), x.b.logical_and(q, mask));
  return from_bits(x, bits, a.dtype());
}

// The bits of floats of one sign are ordered as the numbers are: one step is one bit.
Value nextafter(Ctx& x, Value a, Value b) {
  const FloatLayout l = layout_of(a.dtype());
  const Type integer{l.signed_bits, a.dims()};
  const Value bits = x.b.bitcast_convert(a, integer);
  const Value one = x.like(bits, 1);
  const Value away = x.b.compare(Cmp::kEq, x.b.compare(Cmp::kLt, a, b), gt(x, a, 0));
  const Value moved = x.b.select(away, x.b.add(bits, one), x.b.sub(bits, one));
  const Value smallest = x.b.bitcast_convert(one, a.type());
  const Value from_zero = x.select(gt(x, b, 0), smallest, x.b.neg(smallest));
  const Value next = x.select(is_zero(x, a), from_zero, x.b.bitcast_convert(moved, a.type()));
  const Value same = x.select(x.b.compare(Cmp::kEq, a, b), b, next);
  return x.select(x.b.logical_or(x.is_nan(a), x.is_nan(b)), x.b.add(a, b), same);
}

// Euclid for all elements at once, until each has reached 0.
Value gcd(Ctx& x, Value a, Value b) {
  const auto positive = [&](Value v) { return hlo::is_unsigned(v.dtype()) ? v : abs(x, v); };
  const Values r = x.b.while_loop(
      {positive(a), positive(b)},
      [&](const Values& v) { return Values{x.any(x.b.compare(Cmp::kNe, v[1], zero_like(x, v[1])), x.all_axes(v[1]))}; },
      [&](const Values& v) {
        const Value done = is_zero(x, v[1]);
        const Value rest = x.b.binary(Op::kRemainder, v[0], x.b.select(done, x.like(v[1], 1), v[1]));
        return Values{x.b.select(done, v[0], v[1]), x.b.select(done, v[1], rest)};
      });
  return r[0];
}

Value lcm(Ctx& x, Value a, Value b) {
  const DType t = a.dtype();
  if (hlo::size_bytes(t) < 4) {  // as C++ computes: the absolute value is of the product that did not wrap
    return x.convert(lcm(x, x.convert(a, DType::kI32), x.convert(b, DType::kI32)), t);
  }
  const Value g = gcd(x, a, b);
  const Value none = is_zero(x, g);
  const Value product = x.b.mul(x.b.div(a, x.b.select(none, x.like(g, 1), g)), b);
  return x.b.select(none, zero_like(x, g), hlo::is_unsigned(g.dtype()) ? product : abs(x, product));
}

double bit_count(DType t) { return static_cast<double>(hlo::size_bytes(t) * 8); }

// Counts that are negative or too large push every bit out.
Value out_of_bits(Ctx& x, Value count) {
  const Value large = ge(x, count, bit_count(count.dtype()));
  return hlo::is_unsigned(count.dtype()) ? large : x.b.logical_or(large, lt(x, count, 0));
}

Value shift_left(Ctx& x, Value a, Value b) {
  const Value out = out_of_bits(x, b);
  const Value zero = zero_like(x, a);
  return x.b.select(out, zero, x.b.binary(Op::kShiftLeft, a, x.b.select(out, zero, b)));
}

Value shift_right(Ctx& x, Value a, Value b) {
  const Value out = out_of_bits(x, b);
  const bool has_sign = hlo::is_signed_integer(a.dtype());
  const Value count = x.b.select(out, has_sign ? x.like(a, bit_count(a.dtype()) - 1) : zero_like(x, a), b);
  if (has_sign) return x.b.binary(Op::kShiftRightArithmetic, a, count);
  return x.b.select(out, zero_like(x, a), x.b.binary(Op::kShiftRightLogical, a, count));
}

// log(exp(a) + exp(b)) with the larger one taken out.
Value logaddexp(Ctx& x, Value a, Value b) {
  const bool is_complex = hlo::is_complex(a.dtype());
  if (is_complex) {
    const Value p = x.b.real(a), q = x.b.real(b);
    const Value a_first = x.b.logical_or(x.b.compare(Cmp::kGe, p, q), x.is_nan(p));
    const Value high = x.b.select(a_first, a, b), low = x.b.select(a_first, b, a);
    const Value sum = x.b.add(high, x.b.unary(Op::kLogPlusOne, exp(x, x.b.sub(low, high))));
    // Two parts -inf: their difference is NaN, their sum -inf.
    return x.b.select(x.b.compare(Cmp::kEq, x.b.real(high), infinity_like(x, p, true)), high, sum);
  }
  const Value high = x.b.maximum(a, b);
  const Value r = x.b.add(high, x.b.unary(Op::kLogPlusOne, exp(x, x.b.neg(abs(x, x.b.sub(a, b))))));
  const Value infinite = x.b.compare(Cmp::kEq, abs(x, high), infinity_like(x, a));
  return x.select(infinite, high, r);
}

Value logaddexp2(Ctx& x, Value a, Value b) {
  const Value high = x.b.maximum(a, b);
  const Value low = exp2(x, x.b.neg(abs(x, x.b.sub(a, b))));
  const Value r = x.b.add(high, times(x, x.b.unary(Op::kLogPlusOne, low), std::numbers::log2e));
  const Value infinite = x.b.compare(Cmp::kEq, abs(x, high), infinity_like(x, a));
  return x.select(infinite, high, r);
}

template <Op op>
Value x_log(Ctx& x, Value a, Value b) {
  const Value r = x.b.mul(a, x.b.unary(op, b));
  const Value zero = x.select(is_zero(x, a), zero_like(x, a), r);
  return x.select(x.is_nan(b), b, zero);
}

enum BinaryFlags : uint8_t {
  kKeep = 0,
  kToFloat = 1,   // integers become the default dtype
  kNative = 2,    // f16 and bf16 need no wider type
  kDivides = 4,   // a zero divisor of an integer type is an error
  kNoComplex = 8  // refused by name, not by kernel
};
struct Binary {
  const char* name;
  uint8_t classes;
  uint8_t flags;
  const char* kernel;
  Value (*make)(Ctx&, Value, Value);
};
constexpr Binary kBinary[] = {
    {"aten::mul.Tensor", kAnyClass, kKeep, "mul_cpu", plain2<Op::kMultiply>},
    {"aten::div.Tensor", kAnyClass, kToFloat, "div_cpu", plain2<Op::kDivide>},
    {"aten::floor_divide", kOrdered, kDivides, "div_floor_cpu", divide_floor},
    {"aten::remainder.Tensor", kOrdered, kDivides, "remainder_cpu", remainder},
    {"aten::fmod.Tensor", kOrdered, kDivides, "fmod_cpu", plain2<Op::kRemainder>},
    {"aten::maximum", kBoolean | kOrdered, kNative | kNoComplex, "maximum", plain2<Op::kMaximum>},
    {"aten::minimum", kBoolean | kOrdered, kNative | kNoComplex, "minimum", plain2<Op::kMinimum>},
    {"aten::fmax", kBoolean | kOrdered, kNative | kNoComplex, "fmax", ignore_nan<Op::kMaximum>},
    {"aten::fmin", kBoolean | kOrdered, kNative | kNoComplex, "fmin", ignore_nan<Op::kMinimum>},
    {"aten::hypot", kFloats, kKeep, "hypot_cpu", hypot},
    {"aten::atan2", kFloats, kToFloat, "atan2_cpu", plain2<Op::kAtan2>},
    {"aten::copysign.Tensor", kFloats, kToFloat | kNative, "copysign_cpu", copysign},
    {"aten::nextafter", kFloats, kNative, "nextafter_cpu", nextafter},
    {"aten::gcd", kInteger, kKeep, "gcd_cpu", gcd},
    {"aten::lcm", kInteger, kKeep, "lcm_cpu", lcm},
    {"aten::bitwise_and.Tensor", kBoolean | kInteger, kKeep, "bitwise_and_cpu", plain2<Op::kAnd>},
    {"aten::bitwise_or.Tensor", kBoolean | kInteger, kKeep, "bitwise_or_cpu", plain2<Op::kOr>},
    {"aten::bitwise_xor.Tensor", kBoolean | kInteger, kKeep, "bitwise_xor_cpu", plain2<Op::kXor>},
    {"aten::bitwise_left_shift.Tensor", kInteger, kKeep, "lshift_cpu", shift_left},
    {"aten::bitwise_right_shift.Tensor", kInteger, kKeep, "rshift_cpu", shift_right},
    {"aten::__lshift__.Tensor", kInteger, kKeep, "lshift_cpu", shift_left},
    {"aten::__rshift__.Tensor", kInteger, kKeep, "rshift_cpu", shift_right},
    {"aten::__ilshift__.Tensor", kInteger, kKeep, "lshift_cpu", shift_left},
    {"aten::__irshift__.Tensor", kInteger, kKeep, "rshift_cpu", shift_right},
    {"aten::logaddexp", kFloats | kComplex, kKeep, "logaddexp_cpu", logaddexp},
    {"aten::logaddexp2", kFloats, kKeep, "logaddexp2_cpu", logaddexp2},
    {"aten::xlogy.Tensor", kFloats, kToFloat, "xlogy_cpu", x_log<Op::kLog>},
    {"aten::special_xlog1py", kFloats, kToFloat, "xlog1py_cpu", x_log<Op::kLogPlusOne>},
};

Value as(Ctx& x, Value v, DType t) { return x.convert(v, t); }
Value as(Ctx& x, const Scalar& s, DType t) { return x.scalar(s, t); }

// An operand is a tensor or a number. It goes straight to the compute type: CPU too does not round a
// number to bfloat16 before it computes in float32.
template <class A, class B>
Value binary(Ctx& x, const Binary& k, const A& self, const B& other) {
  DType t = x.promote(self, other);
  if (k.flags & kToFloat) t = x.float_type(t);
  x.check(!(k.flags & kNoComplex) || !hlo::is_complex(t), k.kernel, " not implemented for complex tensors.");
  check_dtype(x, t, k.classes, k.kernel);
  const DType c = k.flags & kNative ? t : hlo::compute_type(t);
  const Value v = as(x, self, c), w = as(x, other, c);
  if (k.flags & kDivides) check_divisor(x, w);
  const auto [p, q] = x.broadcast_all(c, v, w);
  return x.convert(k.make(x, p, q), t);
}

void register_binary(Registry& r) {
  for (const Binary& k : kBinary) {
    r.op(k.name, [k](Ctx& x, Value self, Value other) { return binary(x, k, self, other); }).elementwise();
  }
  // The operators' older names take numbers directly.
  static constexpr Binary kShifts[] = {
      {"aten::__lshift__.Scalar", kInteger, kKeep, "lshift_cpu", shift_left},
      {"aten::__rshift__.Scalar", kInteger, kKeep, "rshift_cpu", shift_right},
      {"aten::__ilshift__.Scalar", kInteger, kKeep, "lshift_cpu", shift_left},
      {"aten::__irshift__.Scalar", kInteger, kKeep, "rshift_cpu", shift_right},
  };
  for (const Binary& k : kShifts) {
    r.op(k.name, [k](Ctx& x, Value self, Scalar other) { return binary(x, k, self, other); }).elementwise();
  }
  static constexpr Binary kRemainder{"", kOrdered, kDivides, "remainder_cpu", remainder};
  r.op("aten::remainder.Scalar_Tensor", [](Ctx& x, Scalar self, Value other) {
     return binary(x, kRemainder, self, other);
   }).elementwise();
  r.op("aten::div.Tensor_mode", [](Ctx& x, Value self, Value other, Opt<std::string> mode) {
     x.check(!mode || *mode == "trunc" || *mode == "floor",
             "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
             mode.value_or(""), "'");
     if (!mode) return binary(x, {"", kAnyClass, kToFloat, "div_cpu", plain2<Op::kDivide>}, self, other);
     if (*mode == "floor") return binary(x, {"", kOrdered, kDivides, "div_floor_cpu", divide_floor}, self, other);
     // The quotient is rounded to the dtype before it is truncated, as CPU does.
     const Value q = binary(x, {"", kOrdered, kDivides, "div_trunc_cpu", plain2<Op::kDivide>}, self, other);
     if (hlo::is_integer(q.dtype())) return q;
     return in_compute(x, q, [&](Value c) { return truncate(x, c); });
   }).elementwise();
  r.op("aten::heaviside", [](Ctx& x, Value self, Value values) {
     x.check(!hlo::is_complex(self.dtype()) && !hlo::is_complex(values.dtype()),
             "heaviside is not yet implemented for complex tensors.");
     x.check(self.dtype() == values.dtype(),
             "heaviside is not yet implemented for tensors with different dtypes.");
     const auto [v, w] = x.broadcast_all(self.dtype(), self, values);
     const Value above = hlo::is_bool(v.dtype()) ? v : x.b.convert(gt(x, v, 0), v.dtype());
     return x.b.select(is_zero(x, v), w, above);
   }).elementwise();
}

// ---- Sums with a factor.

void check_alpha(Ctx& x, DType t, const Scalar& alpha) {
  x.check(alpha.kind != NumberKind::kBool || hlo::is_bool(t), "Boolean alpha only supported for Boolean results.");
  x.check(!hlo::is_integral(t) || alpha.kind <= NumberKind::kInt,
          "For integral input tensors, argument alpha must not be a floating point number.");
  x.check(hlo::is_complex(t) || alpha.kind != NumberKind::kComplex,
          "For non-complex input tensors, argument alpha must not be a complex number.");
}

void check_subtraction(Ctx& x, DType self, DType other) {
  x.check(!hlo::is_bool(self) || !hlo::is_bool(other),
          "Subtraction, the `-` operator, with two bool tensors is not supported. Use the `^` or "
          "`logical_xor()` operator instead.");
  x.check(!hlo::is_bool(self) && !hlo::is_bool(other),
          "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying to invert "
          "a mask, use the `~` or `logical_not()` operator instead.");
}

// self + alpha * other or self - alpha * other in the compute type of the promoted dtype t. CPU rounds
// the operands, alpha and the product to t: a sum that cancels shows it.
template <class B>
Value add_scaled(Ctx& x, Value self, const B& other, const Scalar& alpha, bool subtract, DType t) {
  check_alpha(x, t, alpha);
  const DType c = hlo::compute_type(t);
  const auto rounded = [&](Value v) { return x.convert(x.convert(v, t), c); };
  const auto [v, w] = x.broadcast_all(c, self, rounded(as(x, other, c)));
  const Value part = x.is(alpha, 1) ? w : rounded(x.b.mul(w, x.broadcast(rounded(x.scalar(alpha, c)), w.dims())));
  const Value base = rounded(v);
  return subtract ? x.b.sub(base, part) : x.b.add(base, part);
}

Value add(Ctx& x, Value self, Value other, const Scalar& alpha) {
  const DType t = x.promote(self, other);
  return x.convert(add_scaled(x, self, other, alpha, false, t), t);
}

Value sub(Ctx& x, Value self, Value other, const Scalar& alpha) {
  check_subtraction(x, self.dtype(), other.dtype());
  const DType t = x.promote(self, other);
  return x.convert(add_scaled(x, self, other, alpha, true, t), t);
}

template <class B>
Value add_relu(Ctx& x, Value self, const B& other, const Scalar& alpha) {
  const DType t = x.promote(self, other);
  check_dtype(x, t, kInteger | kReal, "_add_relu");
  const Value v = add_scaled(x, self, other, alpha, false, t);
  return x.convert(x.b.maximum(v, zero_like(x, v)), t);
}

// self + value * a * b, or a / b.
Value add_product(Ctx& x, Value self, Value t1, Value t2, const Scalar& value, bool divide) {
  const DType t = x.promote(self, t1, t2);
  const DType c = hlo::compute_type(t);
  const auto [v, p, q] = x.broadcast_all(c, self, t1, t2);
  const Value scaled = x.is(value, 1) ? p : x.b.mul(x.scalar_like(value, p), p);
  return x.convert(x.b.add(v, divide ? x.b.div(scaled, q) : x.b.mul(scaled, q)), t);
}

// CPU's two formulas meet the ends exactly: from self below weight 1/2, from end above.
Value lerp(Ctx& x, Value self, Value end, Value weight) {
  const Value distance = x.b.sub(end, self);
  const Value low = lt(x, hlo::is_integer(weight.dtype()) ? weight : abs(x, weight), 0.5);
  const Value base = x.select(low, self, end);
  const Value factor = x.select(low, weight, plus(x, weight, -1));
  return x.b.add(base, x.b.mul(x.broadcast(factor, distance.dims()), distance));
}

void check_lerp(Ctx& x, Value self, Value other, const char* what) {
  x.check(self.dtype() == other.dtype(), "expected dtype ", cpp_type_name(self.dtype()), " for `", what,
          "` but got dtype ", cpp_type_name(other.dtype()));
}

void register_sums(Registry& r) {
  r.op("aten::add.Tensor", add).fold("alpha", 1).elementwise();
  r.op("aten::sub.Tensor", sub).fold("alpha", 1).elementwise();
  r.op("aten::rsub.Tensor", [](Ctx& x, Value self, Value other, Scalar alpha) {
     return sub(x, other, self, alpha);
   }).fold("alpha", 1).elementwise();
  r.op("aten::_add_relu.Tensor", add_relu<Value>).fold("alpha", 1).elementwise();
  r.op("aten::_add_relu.Scalar", add_relu<Scalar>).fold("alpha", 1).elementwise();
  r.op("aten::addcmul", [](Ctx& x, Value self, Value tensor1, Value tensor2, Scalar value) {
     check_dtype(x, x.promote(self, tensor1, tensor2), kNumbers, "addcmul_cpu_out");
     return add_product(x, self, tensor1, tensor2, value, false);
   }).fold("value", 1).elementwise();
  r.op("aten::addcdiv", [](Ctx& x, Value self, Value tensor1, Value tensor2, Scalar value) {
     x.check(!hlo::is_integral(tensor1.dtype()) || !hlo::is_integral(tensor2.dtype()),
             "Integer division with addcdiv is no longer supported, and in a future  release addcdiv will "
             "perform a true division of tensor1 and tensor2; convert one of them to a floating dtype.");
     return add_product(x, self, tensor1, tensor2, value, true);
   }).fold("value", 1).elementwise();
  r.op("aten::lerp.Scalar", [](Ctx& x, Value self, Value end, Scalar weight) {
     check_lerp(x, self, end, "end");
     check_dtype(x, self.dtype(), kFloats | kComplex, "lerp_kernel_scalar");
     return in_compute(x, self, end, [&](Value p, Value q) { return lerp(x, p, q, x.scalar(weight, p.dtype())); });
   }).elementwise();
  r.op("aten::lerp.Tensor", [](Ctx& x, Value self, Value end, Value weight) {
     check_lerp(x, self, end, "end");
     if (weight.rank() > 0) check_lerp(x, self, weight, "weight");
     check_dtype(x, self.dtype(), kFloats | kComplex, "lerp_kernel_tensor");
     const auto [p, q, w] = x.broadcast_all(hlo::compute_type(self.dtype()), self, end, weight);
     return x.convert(lerp(x, p, q, w), self.dtype());
   }).elementwise();
}

// ---- Powers.

constexpr const char* kNegativePower = "Integers to negative integer powers are not allowed.";

// By squaring, for exponents of any size: XLA's own integer power reads only their low bits. The
// product wraps as CPU's does. exponent >= 0.
Value power_by_squaring(Ctx& x, Value base, Value exponent) {
  const Value one = x.like(base, 1), zero = zero_like(x, base);
  const Values r = x.b.while_loop(
      {one, base, exponent},
      [&](const Values& v) {
        const Value left = x.b.compare(Cmp::kNe, v[2], zero_like(x, v[2]));
        return Values{x.any(left, x.all_axes(left))};
      },
      [&](const Values& v) {
        const Value odd = x.b.compare(Cmp::kNe, x.b.logical_and(v[2], one), zero);
        return Values{x.b.select(odd, x.b.mul(v[0], v[1]), v[0]), x.b.mul(v[1], v[1]),
                      x.b.binary(Op::kShiftRightLogical, v[2], one)};
      });
  return r[0];
}

// A negative exponent leaves only +-1.
Value integer_power(Ctx& x, Value base, Value exponent) {
  const Value one = x.like(base, 1);
  if (hlo::is_unsigned(base.dtype())) return power_by_squaring(x, base, exponent);
  const Value negative = lt(x, exponent, 0);
  const Value r = power_by_squaring(x, base, x.b.select(negative, zero_like(x, exponent), exponent));
  const Value odd = x.b.compare(Cmp::kNe, x.b.logical_and(exponent, one), zero_like(x, one));
  const Value of_minus_one = x.b.select(odd, base, one);
  const Value unit = x.b.compare(Cmp::kEq, abs(x, base), one);
  const Value inverse = x.b.select(unit, x.b.select(gt(x, base, 0), one, of_minus_one), zero_like(x, base));
  return x.b.select(negative, inverse, r);
}

Value power(Ctx& x, Value base, Value exponent, DType t) {
  check_dtype(x, t, kNumbers, "pow");
  const auto [p, q] = x.broadcast_all(hlo::compute_type(t), base, exponent);
  if (hlo::is_integer(t)) return integer_power(x, p, q);
  Value r = x.b.binary(Op::kPower, p, q);
  if (!hlo::is_complex(t)) {  // 1 to the power of NaN and anything to the power of 0 are 1
    const Value one = x.like(p, 1);
    r = x.select(x.b.logical_or(x.b.compare(Cmp::kEq, p, one), is_zero(x, q)), one, r);
  }
  return x.convert(r, t);
}

Value power_scalar(Ctx& x, Value self, const Scalar& exponent) {
  const DType t = x.promote(self, exponent);
  const bool integers = hlo::is_integral(self.dtype()) && exponent.kind <= NumberKind::kInt;
  if (x.is(exponent, 0)) return x.like(x.convert(self, t), 1);
  if (x.is(exponent, 1)) return x.convert(self, t);
  check_dtype(x, t, kNumbers, "pow");
  if (integers && exponent.known) x.check(exponent.known->d >= 0, kNegativePower);
  const Value v = x.convert(self, hlo::compute_type(t));
  const auto done = [&](Value w) { return x.convert(w, t); };
  if (x.is(exponent, 2)) return done(x.b.mul(v, v));
  if (x.is(exponent, 3)) return done(x.b.mul(x.b.mul(v, v), v));
  if (x.is(exponent, -1)) return done(recip(x, v));
  if (x.is(exponent, -2)) return done(recip(x, x.b.mul(v, v)));
  if (x.is(exponent, 0.5)) return done(sqrt(x, v));
  if (x.is(exponent, -0.5)) return done(rsqrt(x, v));
  if (integers && !exponent.known) x.assert_none(lt(x, x.scalar(exponent, DType::kI64), 0), kNegativePower);
  return power(x, v, x.scalar(exponent, v.dtype()), t);
}

void register_powers(Registry& r) {
  r.op("aten::pow.Tensor_Tensor", [](Ctx& x, Value self, Value exponent) {
     return power(x, self, exponent, x.promote(self, exponent));
   }).elementwise();
  ops::OpBuilder scalar = r.op("aten::pow.Tensor_Scalar", power_scalar).elementwise();
  for (const double e : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0}) scalar.fold("exponent", e);
  r.op("aten::pow.Scalar", [](Ctx& x, Scalar self, Value exponent) {
     const DType t = x.promote(self, exponent);
     if (x.is(self, 1)) return x.like(x.convert(exponent, t), 1);
     if (x.is(self, 2) && (class_of(t) & kFloats)) {
       return x.convert(exp2(x, x.convert(exponent, hlo::compute_type(t))), t);
     }
     return power(x, x.scalar(self, hlo::compute_type(t)), exponent, t);
   }).fold("self", 1).fold("self", 2).elementwise();
}

// ---- Bounds and choices.

template <class B>
Value clamp(Ctx& x, Value self, const Opt<B>& low, const Opt<B>& high) {
  x.check(low || high, "torch.clamp: At least one of 'min' or 'max' must not be None");
  const DType t = x.promote(self, low, high);
  x.check_supported(!hlo::is_complex(t), "clamp is not supported for complex types");
  if (std::is_same_v<B, Scalar>) {
    check_dtype(x, t, kOrdered, !high ? "clamp_min_scalar_cpu" : !low ? "clamp_max_scalar_cpu" : "clamp_scalar_cpu");
  }
  Value v = x.convert(self, t);
  if (low) v = x.binary(Op::kMaximum, v, as(x, *low, t));
  if (high) v = x.binary(Op::kMinimum, v, as(x, *high, t));
  return v;
}

void check_mask(Ctx& x, Value mask) {
  x.check(hlo::is_bool(mask.dtype()), "masked_fill_ only supports boolean masks, but got mask with dtype ",
          cpp_type_name(mask.dtype()));
}

void register_choices(Registry& r) {
  r.op("aten::clamp", [](Ctx& x, Value self, Opt<Scalar> min, Opt<Scalar> max) { return clamp(x, self, min, max); })
      .elementwise();
  r.op("aten::clamp.Tensor", [](Ctx& x, Value self, Opt<Value> min, Opt<Value> max) { return clamp(x, self, min, max); })
      .elementwise();
  r.op("aten::clamp_min", [](Ctx& x, Value self, Scalar min) { return clamp<Scalar>(x, self, min, {}); }).elementwise();
  r.op("aten::clamp_max", [](Ctx& x, Value self, Scalar max) { return clamp<Scalar>(x, self, {}, max); }).elementwise();
  r.op("aten::clamp_min.Tensor", [](Ctx& x, Value self, Value min) {
     check_dtype(x, x.promote(self, min), kBoolean | kOrdered, "maximum_cpu");
     return clamp<Value>(x, self, min, {});
   }).elementwise();
  r.op("aten::clamp_max.Tensor", [](Ctx& x, Value self, Value max) {
     check_dtype(x, x.promote(self, max), kBoolean | kOrdered, "minimum_cpu");
     return clamp<Value>(x, self, {}, max);
   }).elementwise();
  r.op("aten::where.self", [](Ctx& x, Value condition, Value self, Value other) {
     x.check(hlo::is_bool(condition.dtype()) || condition.dtype() == DType::kU8,
             "where expected condition to be a boolean tensor, but got a tensor with dtype ",
             scalar_type_name(condition.dtype()));
     const DType t = x.promote(self, other);
     return x.select(x.convert(condition, DType::kBool), x.convert(self, t), x.convert(other, t));
   }).elementwise();
  r.op("aten::masked_fill.Scalar", [](Ctx& x, Value self, Value mask, Scalar value) {
     check_mask(x, mask);
     return x.select(mask, checked_scalar(x, value, self.dtype()), self);
   }).elementwise();
  r.op("aten::masked_fill.Tensor", [](Ctx& x, Value self, Value mask, Value value) {
     check_mask(x, mask);
     x.check(value.rank() == 0, "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
             value.rank(), " dimension(s).");
     return x.select(mask, x.convert(value, self.dtype()), self);
   }).elementwise();
  r.op("aten::fill.Scalar", [](Ctx& x, Value self, Scalar value) {
     return x.broadcast(checked_scalar(x, value, self.dtype()), self.dims());
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::fill.Tensor", [](Ctx& x, Value self, Value value) {
     x.check(value.rank() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ", value.rank(),
             " dimensions.");
     return x.broadcast(x.convert(value, self.dtype()), self.dims());
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::zero", [](Ctx& x, Value self) { return zero_like(x, self); }).layout(ops::LayoutRule::kLikeSelf);
}

}  // namespace

void register_elementwise(Registry& r) {
  register_float_unary(r);
  register_unary(r);
  register_binary(r);
  register_sums(r);
  register_powers(r);
  register_choices(r);
}

}  // namespace tpu::aten
