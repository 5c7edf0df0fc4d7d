#include "aten/elementwise.h"

#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <string>

#include "aten/all.h"

namespace tpu::aten {

using ops::cpp_type_name;
using ops::Registry;
using ops::scalar_type_name;

// ---- Shared helpers.

Class class_of(DType t) {
  if (hlo::is_bool(t)) return kBoolean;
  if (hlo::is_integer(t)) return kInteger;
  if (hlo::is_complex(t)) return kComplex;
  if (hlo::is_float8(t)) return kFloat8;
  return is_narrow(t) ? kHalves : kReal;
}

void check_dtype(const Ctx& x, DType t, uint8_t classes, std::string_view kernel) {
  x.check_supported((class_of(t) & classes) != 0, "\"", kernel, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

FloatLayout layout_of(DType t) {
  switch (t) {
    case DType::kF64: return {DType::kU64, DType::kI64, 52, 1023};
    case DType::kF32: return {DType::kU32, DType::kI32, 23, 127};
    case DType::kBF16: return {DType::kU16, DType::kI16, 7, 127};
    default: return {DType::kU16, DType::kI16, 10, 15};
  }
}

namespace {

// 2^n for n (int32) inside the range of normal numbers.
Value power_of_two(Ctx& x, Value n, DType t) {
  const FloatLayout l = layout_of(t);
  const Value biased = x.b.convert(plus(x, n, l.bias), l.signed_bits);
  return x.b.bitcast_convert(x.b.binary(Op::kShiftLeft, biased, x.like(biased, l.mantissa_bits)),
                             {t, n.dims()});
}

}  // namespace

Value to_bits(Ctx& x, Value v) {
  return x.b.bitcast_convert(v, {layout_of(v.dtype()).unsigned_bits, v.dims()});
}

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
  const Value above = x.convert(gt(x, v, 0), v.dtype());
  if (hlo::is_unsigned(v.dtype())) return above;
  return x.b.sub(above, x.convert(lt(x, v, 0), v.dtype()));
}

// Zero and no subnormal number.
Value is_plain_zero(Ctx& x, Value v) {
  const Value bits = to_bits(x, v);
  return is_zero(x, x.b.binary(Op::kShiftLeft, bits, x.like(bits, 1)));
}

Parts split(Ctx& x, Value v) {
  const FloatLayout l = layout_of(v.dtype());
  const Value given = to_bits(x, v);
  const auto shift = x.like(given, l.mantissa_bits);
  const auto exponent_field = [&](Value bits) {
    const Value field = x.b.binary(Op::kShiftRightLogical, bits, shift);
    return x.b.binary(Op::kAnd, field, x.like(bits, 2 * l.bias + 1));
  };
  const Value ones = x.like(given, 1);
  const Value below = x.b.sub(x.b.binary(Op::kShiftLeft, ones, shift), ones);
  // Arithmetic may take a subnormal number for zero: its mantissa is read as a whole number.
  const Value tiny = is_zero(x, exponent_field(given));
  const Value mantissa_field = x.b.logical_and(given, below);
  const Value bits = to_bits(x, x.select(tiny, x.convert(mantissa_field, v.dtype()), v));
  const Value raw = x.b.convert(exponent_field(bits), DType::kI32);
  const Value exponent = x.b.sub(
      raw, x.select(tiny, x.like(raw, 2 * l.bias - 2 + l.mantissa_bits), x.like(raw, l.bias - 1)));
  // The mantissa keeps sign and fraction and gets the exponent of [0.5, 1).
  const Value half = x.b.binary(Op::kShiftLeft, x.like(bits, l.bias - 1), shift);
  const Value sign =
      x.b.binary(Op::kShiftLeft, ones, x.like(given, 8 * hlo::size_bytes(v.dtype()) - 1));
  const Value mantissa = x.b.logical_or(x.b.logical_or(x.b.logical_and(bits, below), half),
                                        x.b.logical_and(given, sign));
  return {from_bits(x, mantissa, v.dtype()), exponent};
}

Value scale(Ctx& x, Value v, Value n) {
  // Two factors that are normal numbers cover the whole range, subnormal results included.
  const Value half = x.b.binary(Op::kShiftRightArithmetic, n, x.like(n, 1));
  const Value first = x.b.mul(v, power_of_two(x, half, v.dtype()));
  return x.b.mul(first, power_of_two(x, x.b.sub(n, half), v.dtype()));
}

// A complex number times a real one, part by part: as a product of complex ones inf * 0 gets in.
Value scaled(Ctx& x, Value v, double c) {
  return x.b.complex(times(x, x.b.real(v), c), times(x, x.b.imag(v), c));
}

// The fraction goes through exp and the whole part into the exponent: exp2(10) is exactly 1024.
Value exp2(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return exp(x, scaled(x, v, std::numbers::ln2));
  const double limit = v.dtype() == DType::kF64 ? 1100 : 160;
  const Value bounded = x.b.minimum(x.b.maximum(v, x.like(v, -limit)), x.like(v, limit));
  const Value whole = x.b.unary(Op::kRoundNearestEven, bounded);
  const Value fraction = exp(x, times(x, x.b.sub(bounded, whole), std::numbers::ln2));
  return scale(x, fraction, x.b.convert(whole, DType::kI32));
}

namespace {

// f(conj z) = conj f(z) for those that have one, and f(-z) = -f(z) for odd, f(z) for even ones.
// XLA's forms for complex numbers lose the sign of a zero part, which tells the sides of a branch
// cut apart: they are asked in one half or quarter of the plane.
enum class Symmetry : uint8_t { kNone, kMirror, kOdd, kEven };

Value by_symmetry(Ctx& x, Value z, Symmetry symmetry, Value (*f)(Ctx&, Value)) {
  if (symmetry == Symmetry::kNone) return f(x, z);
  const Value re = x.b.real(z), im = x.b.imag(z);
  const bool quarter = symmetry != Symmetry::kMirror;
  const Value w = f(x, x.b.complex(quarter ? abs(x, re) : re, abs(x, im)));
  const Value left = sign_bit(x, re);
  Value below = sign_bit(x, im);
  if (symmetry == Symmetry::kEven) below = x.b.compare(Cmp::kNe, below, left);
  Value u = x.b.real(w);
  const Value v = x.b.imag(w);
  if (symmetry == Symmetry::kOdd) u = x.b.select(left, x.b.neg(u), u);
  return x.b.complex(u, x.b.select(below, x.b.neg(v), v));
}

template <Op op>
Value plain(Ctx& x, Value v) {
  return x.b.unary(op, v);
}

}  // namespace

Value sqrt(Ctx& x, Value v) {
  if (!hlo::is_complex(v.dtype())) return x.b.unary(Op::kSqrt, v);
  return by_symmetry(x, v, Symmetry::kMirror, plain<Op::kSqrt>);
}

Value rsqrt(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return recip(x, sqrt(x, v));
  // 1 / -0.0 is -inf; not every implementation of rsqrt says so.
  return x.select(is_zero(x, v), recip(x, v), x.b.unary(Op::kRsqrt, v));
}

Value truncate(Ctx& x, Value v) {
  const Value down = x.b.unary(Op::kFloor, abs(x, v));
  return x.select(sign_bit(x, v), x.b.neg(down), down);
}

namespace {

// ---- One operand, real or complex: integers become the default dtype.

// log(v) / log(base) from v's exponent and mantissa, so that whole powers of the base come out
// whole. log_base(2) = high + low, where high times any exponent is exact.
Value log_in_base(Ctx& x, Value v, double log2_high, double log2_low, double log_e) {
  if (hlo::is_complex(v.dtype())) return scaled(x, log(x, v), log_e);
  const Parts p = split(x, v);
  const Value low_half = lt(x, p.mantissa, std::numbers::sqrt2 / 2);
  const Value m = x.select(low_half, times(x, p.mantissa, 2), p.mantissa);
  const Value e = x.b.convert(x.b.sub(p.exponent, x.b.convert(low_half, DType::kI32)), v.dtype());
  const Value small = x.b.add(times(x, log(x, m), log_e), times(x, e, log2_low));
  const Value result = x.b.add(times(x, e, log2_high), small);
  const Value positive = x.b.logical_not(x.b.logical_or(sign_bit(x, v), is_plain_zero(x, v)));
  const Value ordinary = x.b.logical_and(positive, x.b.is_finite(v));
  return x.select(ordinary, result, log(x, v));
}

Value log2(Ctx& x, Value v) { return log_in_base(x, v, 1, 0, std::numbers::log2e); }

Value log10(Ctx& x, Value v) {
  const double log10_2 = std::numbers::ln2 / std::numbers::ln10;
  const double high = static_cast<double>(static_cast<int>(log10_2 * 4096)) / 4096;  // 12 bits
  return log_in_base(x, v, high, log10_2 - high, std::numbers::log10e);
}

Value sigmoid(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return recip(x, plus(x, exp(x, x.b.neg(v)), 1));
  return x.b.unary(Op::kLogistic, v);
}

Value times_i(Ctx& x, Value z) { return x.b.complex(x.b.neg(x.b.imag(z)), x.b.real(z)); }

// As atan2: a CPU plugin's own atan gives 0 for float64 vectors outside [-1, 1].
Value atan(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) {  // atan(z) = -i atanh(iz)
    const Value w = by_symmetry(x, times_i(x, v), Symmetry::kOdd, plain<Op::kAtanh>);
    return x.b.complex(x.b.imag(w), x.b.neg(x.b.real(w)));
  }
  return x.b.binary(Op::kAtan2, v, x.like(v, 1));
}

Value cos(Ctx& x, Value v) {
  if (!hlo::is_complex(v.dtype())) return x.b.unary(Op::kCosine, v);
  // cos(z) = cosh(iz)
  return by_symmetry(x, times_i(x, v), Symmetry::kEven, plain<Op::kCosh>);
}

// Some expansions of erf round past 1.
Value erf(Ctx& x, Value v) {
  return x.b.clamp(x.constant(v.dtype(), -1), x.b.unary(Op::kErf, v), x.constant(v.dtype(), 1));
}

Value sinc(Ctx& x, Value v) {
  const Value a = times(x, v, std::numbers::pi);
  return x.select(is_zero(x, v), x.like(v, 1), x.b.div(x.b.unary(Op::kSine, a), a));
}

// exp of a complex number: 0 at -inf, whatever the angle.
Value exponential(Ctx& x, Value v) {
  const Value e = exp(x, v);
  if (!hlo::is_complex(v.dtype())) return e;
  const Value re = x.b.real(v);
  const Value vanishes = x.b.logical_and(x.b.compare(Cmp::kEq, re, infinity_like(x, re, true)),
                                         x.b.logical_not(x.b.is_finite(x.b.imag(v))));
  return x.select(vanishes, zero_like(x, e), e);
}

struct FloatUnary {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value);
  Symmetry symmetry = Symmetry::kNone;
};
constexpr FloatUnary kFloatUnary[] = {
    {"aten::acos", kAnyClass, "acos", plain<Op::kAcos>, Symmetry::kMirror},
    {"aten::acosh", kAnyClass, "acosh", plain<Op::kAcosh>, Symmetry::kMirror},
    {"aten::asin", kAnyClass, "asin", plain<Op::kAsin>, Symmetry::kOdd},
    {"aten::asinh", kAnyClass, "asinh", plain<Op::kAsinh>, Symmetry::kOdd},
    {"aten::atan", kAnyClass, "atan", atan},
    {"aten::atanh", kAnyClass, "atanh", plain<Op::kAtanh>, Symmetry::kOdd},
    {"aten::cos", kAnyClass, "cos", cos},
    {"aten::cosh", kAnyClass, "cosh", plain<Op::kCosh>, Symmetry::kEven},
    {"aten::erf", kFloats, "erf_vml_cpu", erf},
    {"aten::erfc", kFloats, "erfc_vml_cpu", plain<Op::kErfc>},
    {"aten::erfinv", kFloats, "erfinv_vml_cpu", plain<Op::kErfInv>},
    {"aten::exp", kAnyClass, "exp", exponential, Symmetry::kMirror},
    {"aten::exp2", kAnyClass, "exp2", exp2, Symmetry::kMirror},
    {"aten::expm1", kAnyClass, "expm1", plain<Op::kExponentialMinusOne>, Symmetry::kMirror},
    {"aten::log", kAnyClass, "log", plain<Op::kLog>, Symmetry::kMirror},
    {"aten::log10", kAnyClass, "log10", log10, Symmetry::kMirror},
    {"aten::log1p", kAnyClass, "log1p", plain<Op::kLogPlusOne>, Symmetry::kMirror},
    {"aten::log2", kAnyClass, "log2", log2, Symmetry::kMirror},
    {"aten::reciprocal", kAnyClass, "reciprocal", recip},
    {"aten::rsqrt", kAnyClass, "rsqrt", rsqrt},
    {"aten::sigmoid", kAnyClass, "sigmoid", sigmoid},
    {"aten::sin", kAnyClass, "sin", plain<Op::kSine>, Symmetry::kOdd},
    {"aten::sinc", kAnyClass, "sinc", sinc},
    {"aten::sinh", kAnyClass, "sinh", plain<Op::kSinh>, Symmetry::kOdd},
    {"aten::sqrt", kAnyClass, "sqrt", sqrt},
    {"aten::tan", kAnyClass, "tan", plain<Op::kTan>, Symmetry::kOdd},
    {"aten::tanh", kAnyClass, "tanh", plain<Op::kTanh>, Symmetry::kOdd},
};

void register_float_unary(Registry& r) {
  for (const FloatUnary& u : kFloatUnary) {
    r.op(u.name, [u](Ctx& x, Value self) {
       const Value v = x.to_float(self);
       check_dtype(x, v.dtype(), u.classes, u.kernel);
       if (hlo::is_complex(v.dtype())) return by_symmetry(x, v, u.symmetry, u.make);
       return in_compute(x, v, [&](Value c) { return u.make(x, c); });
     }).elementwise();
  }
}

// ---- One operand, dtype kept.

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
  check_dtype(x, v.dtype(), decimals == 0 ? kOrdered : kFloats,
              decimals == 0 ? "round_vml_cpu" : "round_cpu");
  if (hlo::is_integer(v.dtype())) return v;
  if (decimals == 0)
    return in_compute(x, v, [&](Value c) { return plain<Op::kRoundNearestEven>(x, c); });
  const double power = std::pow(10.0, static_cast<double>(decimals < 0 ? -decimals : decimals));
  const Value c = x.to_compute(v);
  const Value p = x.like(c, power);
  // The scaled number is rounded to v's type, as CPU does.
  const Value scaled =
      x.convert(x.convert(decimals < 0 ? x.b.div(c, p) : x.b.mul(c, p), v.dtype()), c.dtype());
  const Value whole = x.b.unary(Op::kRoundNearestEven, scaled);
  return x.convert(decimals < 0 ? x.b.mul(whole, p) : x.b.div(whole, p), v.dtype());
}

Value nan_to_num(Ctx& x, Value self, const Opt<Scalar>& nan, const Opt<Scalar>& high,
                 const Opt<Scalar>& low) {
  if (hlo::is_integral(self.dtype())) return self;
  if (hlo::is_complex(self.dtype())) {
    const Value re = nan_to_num(x, x.b.real(self), nan, high, low);
    return x.b.complex(re, nan_to_num(x, x.b.imag(self), nan, high, low));
  }
  const double largest = hlo::float_max(self.dtype());
  const auto value = [&](const Opt<Scalar>& s, double fallback) {
    return s ? x.broadcast(x.wrapped_scalar(*s, self.dtype()), self.dims())
             : x.like(self, fallback);
  };
  const Value inf = infinity_like(x, self);
  Value v = x.b.select(x.is_nan(self), value(nan, 0), self);
  v = x.b.select(x.b.compare(Cmp::kEq, self, inf), value(high, largest), v);
  return x.b.select(x.b.compare(Cmp::kEq, self, x.b.neg(inf)), value(low, -largest), v);
}

void register_unary(Registry& r) {
  r.op("aten::abs",
       [](Ctx& x, Value self) {
         const DType t = self.dtype();
         // The one without a sign has no abs.
         check_dtype(x, t, t == DType::kF8E8M0FNU ? kNumbers : kNumbers | kFloat8, "abs_cpu");
         if (hlo::is_float8(t)) return in_compute(x, self, [&](Value v) { return abs(x, v); });
         return hlo::is_unsigned(t) ? self : abs(x, self);
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::neg",
       [](Ctx& x, Value self) {
         x.check(
             !hlo::is_bool(self.dtype()),
             "Negation, the `-` operator, on a bool tensor is not supported. If you are trying to "
             "invert a "
             "mask, use the `~` or `logical_not()` operator instead.");
         return x.b.neg(self);
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::sign",
       [](Ctx& x, Value self) {
         x.check_supported(
             !hlo::is_complex(self.dtype()),
             "Unlike NumPy, torch.sign is not intended to support complex numbers. Please use "
             "torch.sgn instead.");
         return sign(x, self);
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::sgn", [](Ctx& x, Value self) { return sign(x, self); })
      .elementwise()
      .out_casts(false);
  r.op("aten::signbit",
       [](Ctx& x, Value self) {
         const DType t = self.dtype();
         x.check_supported(!hlo::is_complex(t), "signbit is not implemented for complex tensors.");
         if (hlo::is_float(t)) return sign_bit(x, self);
         if (hlo::is_signed_integer(t)) return lt(x, self, 0);
         return x.zeros({DType::kBool, self.dims()});
       })
      .elementwise()
      .out_casts(false);
  for (const Rounding& k : kRoundings) {
    r.op(std::string("aten::") + k.name,
         [k](Ctx& x, Value self) {
           x.check_supported(!hlo::is_complex(self.dtype()) || k.name == std::string_view("round"),
                             k.name, " is not supported for complex inputs");
           check_dtype(x, self.dtype(), kOrdered, k.kernel);
           if (hlo::is_integer(self.dtype())) return self;
           return in_compute(x, self, [&](Value c) { return k.make(x, c); });
         })
        .elementwise()
        .out_casts(false);
  }
  r.op("aten::round.decimals", round_decimals).elementwise().out_casts(false);
  r.op("aten::frac",
       [](Ctx& x, Value self) {
         check_dtype(x, self.dtype(), kFloats, "frac_cpu");
         return in_compute(x, self, [&](Value c) { return x.b.sub(c, truncate(x, c)); });
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::bitwise_not",
       [](Ctx& x, Value self) {
         check_dtype(x, self.dtype(), kBoolean | kInteger, "bitwise_not_cpu");
         return x.b.logical_not(self);
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::nan_to_num", nan_to_num).elementwise().out_casts(false);
  r.op("aten::frexp.Tensor",
       [](Ctx& x, Value self) {
         x.check(hlo::is_float(self.dtype()), "torch.frexp() only supports floating-point dtypes");
         const Value c = x.to_compute(self);
         const Parts p = split(x, c);
         const Value ordinary =
             x.b.logical_and(x.b.is_finite(c), x.b.logical_not(is_plain_zero(x, c)));
         return std::array{x.convert(x.select(ordinary, p.mantissa, c), self.dtype()),
                           x.select(ordinary, p.exponent, zero_like(x, p.exponent))};
       })
      .elementwise()
      .out_casts(false);
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

// ---- Bounds and choices.

template <class B>
Value clamp(Ctx& x, Value self, const Opt<B>& low, const Opt<B>& high) {
  x.check(low || high, "torch.clamp: At least one of 'min' or 'max' must not be None");
  const DType t = x.promote(self, low, high);
  x.check_supported(!hlo::is_complex(t), "clamp is not supported for complex types");
  if (std::is_same_v<B, Scalar>) {
    check_dtype(x, t, kOrdered,
                !high  ? "clamp_min_scalar_cpu"
                : !low ? "clamp_max_scalar_cpu"
                       : "clamp_scalar_cpu");
  }
  Value v = x.convert(self, t);
  if (low) v = x.binary(Op::kMaximum, v, as(x, *low, t));
  if (high) v = x.binary(Op::kMinimum, v, as(x, *high, t));
  return v;
}

// A 0-d tensor that stands for a number.
Value checked_value(Ctx& x, Value v, DType t) {
  x.check(!hlo::is_complex(v.dtype()) || hlo::is_complex(t) || hlo::is_bool(t),
          "value cannot be converted to type ", cpp_type_name(t), " without overflow");
  return x.convert(v, t);
}

void check_mask(Ctx& x, Value mask) {
  x.check(hlo::is_bool(mask.dtype()),
          "masked_fill_ only supports boolean masks, but got mask with dtype ",
          cpp_type_name(mask.dtype()));
}

void register_choices(Registry& r) {
  r.op("aten::clamp", [](Ctx& x, Value self, Opt<Scalar> min, Opt<Scalar> max) {
     return clamp(x, self, min, max);
   }).elementwise();
  r.op("aten::clamp.Tensor", [](Ctx& x, Value self, Opt<Value> min, Opt<Value> max) {
     return clamp(x, self, min, max);
   }).elementwise();
  r.op("aten::clamp_min", [](Ctx& x, Value self, Scalar min) {
     return clamp<Scalar>(x, self, min, {});
   }).elementwise();
  r.op("aten::clamp_max", [](Ctx& x, Value self, Scalar max) {
     return clamp<Scalar>(x, self, {}, max);
   }).elementwise();
  r.op("aten::clamp_min.Tensor", [](Ctx& x, Value self, Value min) {
     check_dtype(x, x.promote(self, min), kBoolean | kOrdered, "maximum_cpu");
     return clamp<Value>(x, self, min, {});
   }).elementwise();
  r.op("aten::clamp_max.Tensor", [](Ctx& x, Value self, Value max) {
     check_dtype(x, x.promote(self, max), kBoolean | kOrdered, "minimum_cpu");
     return clamp<Value>(x, self, {}, max);
   }).elementwise();
  r.op("aten::where.self",
       [](Ctx& x, Value condition, Value self, Value other) {
         x.check(hlo::is_bool(condition.dtype()) || condition.dtype() == DType::kU8,
                 "where expected condition to be a boolean tensor, but got a tensor with dtype ",
                 scalar_type_name(condition.dtype()));
         const DType t = x.promote(self, other);
         return x.select(x.convert(condition, DType::kBool), x.convert(self, t),
                         x.convert(other, t));
       })
      .elementwise()
      .out_casts(false);
  // Row-major, whatever self is: the CPU fills a contiguous copy.
  r.op("aten::masked_fill.Scalar", [](Ctx& x, Value self, Value mask, Scalar value) {
    check_mask(x, mask);
    return x.select(mask, x.scalar(value, self.dtype()), self);
  });
  r.op("aten::masked_fill.Tensor", [](Ctx& x, Value self, Value mask, Value value) {
    check_mask(x, mask);
    x.check(value.rank() == 0,
            "masked_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
            value.rank(), " dimension(s).");
    return x.select(mask, checked_value(x, value, self.dtype()), self);
  });
  r.op("aten::fill.Scalar", [](Ctx& x, Value self, Scalar value) {
     return x.broadcast(x.scalar(value, self.dtype()), self.dims());
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::fill.Tensor", [](Ctx& x, Value self, Value value) {
     x.check(value.rank() == 0, "fill_ only supports 0-dimension value tensor but got tensor with ",
             value.rank(), " dimensions.");
     return x.broadcast(checked_value(x, value, self.dtype()), self.dims());
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::zero", [](Ctx& x, Value self) {
     return zero_like(x, self);
   }).layout(ops::LayoutRule::kLikeSelf);
}

}  // namespace

void register_elementwise(Registry& r) {
  register_float_unary(r);
  register_unary(r);
  register_choices(r);
  register_arithmetic(r);
}

}  // namespace tpu::aten
