#include <array>
#include <cmath>
#include <numbers>
#include <string>

#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::cpp_type_name;
using ops::Registry;

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
  const Value step = x.convert(needs_step(x, rest, b), a.dtype());
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
  const Value any_inf =
      x.b.logical_or(x.b.compare(Cmp::kEq, p, inf), x.b.compare(Cmp::kEq, q, inf));
  return x.select(any_inf, inf, r);
}

Value copysign(Ctx& x, Value a, Value b) {
  const FloatLayout l = layout_of(a.dtype());
  const Value p = to_bits(x, a), q = to_bits(x, b);
  const Value mask =
      x.b.binary(Op::kShiftLeft, x.like(p, 1),
                 x.like(p, static_cast<double>(hlo::size_bytes(l.unsigned_bits) * 8 - 1)));
  const Value bits =
      x.b.logical_or(x.b.logical_and(p, x.b.logical_not(mask)), x.b.logical_and(q, mask));
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
      [&](const Values& v) {
        return Values{x.any(x.b.compare(Cmp::kNe, v[1], zero_like(x, v[1])), x.all_axes(v[1]))};
      },
      [&](const Values& v) {
        const Value done = is_zero(x, v[1]);
        const Value rest =
            x.b.binary(Op::kRemainder, v[0], x.b.select(done, x.like(v[1], 1), v[1]));
        return Values{x.b.select(done, v[0], v[1]), x.b.select(done, v[1], rest)};
      });
  return r[0];
}

Value lcm(Ctx& x, Value a, Value b) {
  const DType t = a.dtype();
  if (hlo::size_bytes(t) <
      4) {  // as C++ computes: the absolute value is of the product that did not wrap
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
  const Value count =
      x.b.select(out, has_sign ? x.like(a, bit_count(a.dtype()) - 1) : zero_like(x, a), b);
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
    {"aten::mul.Tensor", kAnyClass | kFloat8, kKeep, "mul_cpu", plain2<Op::kMultiply>},
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

// An operand is a tensor or a number. It goes straight to the compute type: CPU too does not round
// a number to bfloat16 before it computes in float32.
template <class A, class B>
Value binary(Ctx& x, const Binary& k, const A& self, const B& other) {
  DType t = x.promote(self, other);
  if (k.flags & kToFloat) t = x.float_type(t);
  x.check(!(k.flags & kNoComplex) || !hlo::is_complex(t), k.kernel,
          " not implemented for complex tensors.");
  check_dtype(x, t, k.classes, k.kernel);
  const DType c = k.flags & kNative ? t : hlo::compute_type(t);
  const Value v = as(x, self, c), w = as(x, other, c);
  if (k.flags & kDivides) check_divisor(x, w);
  const auto [p, q] = x.broadcast_all(c, v, w);
  return x.convert(k.make(x, p, q), t);
}

void register_binary(Registry& r) {
  for (const Binary& k : kBinary) {
    r.op(k.name, [k](Ctx& x, Value self, Value other) {
       return binary(x, k, self, other);
     }).elementwise();
  }
  // The operators' older names take numbers directly.
  static constexpr Binary kShifts[] = {
      {"aten::__lshift__.Scalar", kInteger, kKeep, "lshift_cpu", shift_left},
      {"aten::__rshift__.Scalar", kInteger, kKeep, "rshift_cpu", shift_right},
      {"aten::__ilshift__.Scalar", kInteger, kKeep, "lshift_cpu", shift_left},
      {"aten::__irshift__.Scalar", kInteger, kKeep, "rshift_cpu", shift_right},
  };
  for (const Binary& k : kShifts) {
    r.op(k.name, [k](Ctx& x, Value self, Scalar other) { return binary(x, k, self, other); })
        .elementwise()
        .number_is_operand();
  }
  static constexpr Binary kRemainder{"", kOrdered, kDivides, "remainder_cpu", remainder};
  r.op("aten::remainder.Scalar_Tensor",
       [](Ctx& x, Scalar self, Value other) { return binary(x, kRemainder, self, other); })
      .elementwise()
      .number_is_operand();
  r.op("aten::div.Tensor_mode", [](Ctx& x, Value self, Value other, Opt<std::string> mode) {
     x.check(!mode || *mode == "trunc" || *mode == "floor",
             "div expected rounding_mode to be one of None, 'trunc', or 'floor' but found '",
             mode.value_or(""), "'");
     if (!mode)
       return binary(x, {"", kAnyClass, kToFloat, "div_cpu", plain2<Op::kDivide>}, self, other);
     if (*mode == "floor")
       return binary(x, {"", kOrdered, kDivides, "div_floor_cpu", divide_floor}, self, other);
     // The quotient is rounded to the dtype before it is truncated, as CPU does.
     const Value q =
         binary(x, {"", kOrdered, kDivides, "div_trunc_cpu", plain2<Op::kDivide>}, self, other);
     if (hlo::is_integer(q.dtype())) return q;
     return in_compute(x, q, [&](Value c) { return truncate(x, c); });
   }).elementwise();
  r.op("aten::heaviside",
       [](Ctx& x, Value self, Value values) {
         x.check(!hlo::is_complex(self.dtype()) && !hlo::is_complex(values.dtype()),
                 "heaviside is not yet implemented for complex tensors.");
         x.check(self.dtype() == values.dtype(),
                 "heaviside is not yet implemented for tensors with different dtypes.");
         const auto [v, w] = x.broadcast_all(self.dtype(), self, values);
         const Value above = hlo::is_bool(v.dtype()) ? v : x.convert(gt(x, v, 0), v.dtype());
         return x.b.select(is_zero(x, v), w, above);
       })
      .elementwise()
      .out_casts(false);
}

// ---- Sums with a factor.

void check_alpha(Ctx& x, DType t, const Scalar& alpha) {
  x.check(alpha.kind != NumberKind::kBool || hlo::is_bool(t),
          "Boolean alpha only supported for Boolean results.");
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
          "Subtraction, the `-` operator, with a bool tensor is not supported. If you are trying "
          "to invert "
          "a mask, use the `~` or `logical_not()` operator instead.");
}

// self + alpha * other or self - alpha * other in the compute type of the promoted dtype t. CPU
// rounds the operands, alpha and the product to t: a sum that cancels shows it.
template <class B>
Value add_scaled(Ctx& x, Value self, const B& other, const Scalar& alpha, bool subtract, DType t) {
  check_alpha(x, t, alpha);
  const DType c = hlo::compute_type(t);
  const auto rounded = [&](Value v) { return x.convert(x.convert(v, t), c); };
  const auto [v, w] = x.broadcast_all(c, self, rounded(as(x, other, c)));
  const Value part =
      x.is(alpha, 1) ? w
                     : rounded(x.b.mul(w, x.broadcast(x.convert(x.scalar(alpha, t), c), w.dims())));
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
  x.check(self.dtype() == other.dtype(), "expected dtype ", cpp_type_name(self.dtype()), " for `",
          what, "` but got dtype ", cpp_type_name(other.dtype()));
}

void register_sums(Registry& r) {
  r.op("aten::add.Tensor", add).fold("alpha", 1).elementwise();
  r.op("aten::sub.Tensor", sub).fold("alpha", 1).elementwise();
  r.op("aten::rsub.Tensor",
       [](Ctx& x, Value self, Value other, Scalar alpha) { return sub(x, other, self, alpha); })
      .fold("alpha", 1)
      .elementwise();
  r.op("aten::_add_relu.Tensor", add_relu<Value>).fold("alpha", 1).elementwise();
  r.op("aten::_add_relu.Scalar", add_relu<Scalar>).fold("alpha", 1).elementwise();
  r.op("aten::addcmul",
       [](Ctx& x, Value self, Value tensor1, Value tensor2, Scalar value) {
         check_dtype(x, x.promote(self, tensor1, tensor2), kNumbers, "addcmul_cpu_out");
         return add_product(x, self, tensor1, tensor2, value, false);
       })
      .fold("value", 1)
      .elementwise();
  r.op("aten::addcdiv",
       [](Ctx& x, Value self, Value tensor1, Value tensor2, Scalar value) {
         x.check(!hlo::is_integral(tensor1.dtype()) || !hlo::is_integral(tensor2.dtype()),
                 "Integer division with addcdiv is no longer supported, and in a future  release "
                 "addcdiv will "
                 "perform a true division of tensor1 and tensor2; convert one of them to a "
                 "floating dtype.");
         return add_product(x, self, tensor1, tensor2, value, true);
       })
      .fold("value", 1)
      .elementwise();
  r.op("aten::lerp.Scalar", [](Ctx& x, Value self, Value end, Scalar weight) {
     check_lerp(x, self, end, "end");
     check_dtype(x, self.dtype(), kFloats | kComplex, "lerp_kernel_scalar");
     return in_compute(x, self, end, [&](Value p, Value q) {
       return lerp(x, p, q, x.scalar(weight, p.dtype()));
     });
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
  const Value r =
      power_by_squaring(x, base, x.b.select(negative, zero_like(x, exponent), exponent));
  const Value odd = x.b.compare(Cmp::kNe, x.b.logical_and(exponent, one), zero_like(x, one));
  const Value of_minus_one = x.b.select(odd, base, one);
  const Value unit = x.b.compare(Cmp::kEq, abs(x, base), one);
  const Value inverse =
      x.b.select(unit, x.b.select(gt(x, base, 0), one, of_minus_one), zero_like(x, base));
  return x.b.select(negative, inverse, r);
}

Value power(Ctx& x, Value base, Value exponent, DType t) {
  check_dtype(x, t, kNumbers, "pow");
  const auto [p, q] = x.broadcast_all(hlo::compute_type(t), base, exponent);
  if (hlo::is_integer(t)) return integer_power(x, p, q);
  Value r = x.b.binary(Op::kPower, p, q);
  if (hlo::is_complex(t)) {  // 0 to a power above 0 is 0, where the logarithm's way gives NaN
    const Value zero = zero_like(x, p);
    const Value vanishes = x.b.logical_and(is_zero(x, p), gt(x, x.b.real(q), 0));
    r = x.select(vanishes, zero, r);
  } else {  // 1 to the power of NaN and anything to the power of 0 are 1
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
  if (integers)
    x.check_numbers([](const Number& n) { TPU_CHECK(n.d >= 0, kNegativePower); }, exponent);
  const Value v = x.convert(self, hlo::compute_type(t));
  const auto done = [&](Value w) { return x.convert(w, t); };
  if (x.is(exponent, 2)) return done(x.b.mul(v, v));
  if (x.is(exponent, 3)) return done(x.b.mul(x.b.mul(v, v), v));
  if (x.is(exponent, -1)) return done(recip(x, v));
  if (x.is(exponent, -2)) return done(recip(x, x.b.mul(v, v)));
  if (x.is(exponent, 0.5)) return done(sqrt(x, v));
  if (x.is(exponent, -0.5)) return done(rsqrt(x, v));
  const Value e = integers ? x.scalar(exponent, v.dtype()) : x.wrapped_scalar(exponent, v.dtype());
  return power(x, v, e, t);
}

void register_powers(Registry& r) {
  r.op("aten::pow.Tensor_Tensor", [](Ctx& x, Value self, Value exponent) {
     return power(x, self, exponent, x.promote(self, exponent));
   }).elementwise();
  ops::OpBuilder scalar = r.op("aten::pow.Tensor_Scalar", power_scalar).elementwise();
  for (const double e : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0}) scalar.fold("exponent", e);
  r.op("aten::pow.Scalar",
       [](Ctx& x, Scalar self, Value exponent) {
         const DType t = x.promote(self, exponent);
         if (x.is(self, 1)) return x.like(x.convert(exponent, t), 1);
         if (x.is(self, 2) && (class_of(t) & kFloats)) {
           return x.convert(exp2(x, x.convert(exponent, hlo::compute_type(t))), t);
         }
         return power(x, x.wrapped_scalar(self, hlo::compute_type(t)), exponent, t);
       })
      .fold("self", 1)
      .fold("self", 2)
      .elementwise();
}

}  // namespace

void register_arithmetic(Registry& r) {
  register_binary(r);
  register_sums(r);
  register_powers(r);
}

}  // namespace tpu::aten
