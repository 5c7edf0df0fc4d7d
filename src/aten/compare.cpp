#include <string>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;

struct Comparison {
  const char* name;
  Cmp direction;
  const char* kernel;
};
constexpr Comparison kComparisons[] = {
    {"aten::eq", Cmp::kEq, "eq_cpu"}, {"aten::ne", Cmp::kNe, "ne_cpu"},
    {"aten::lt", Cmp::kLt, "lt_cpu"}, {"aten::le", Cmp::kLe, "le_cpu"},
    {"aten::gt", Cmp::kGt, "gt_cpu"}, {"aten::ge", Cmp::kGe, "ge_cpu"},
};

void check_ordered(Ctx& x, const Comparison& k, DType t) {
  const bool equality = k.direction == Cmp::kEq || k.direction == Cmp::kNe;
  check_dtype(x, t, equality ? kAnyClass | kFloat8 : kBoolean | kOrdered, k.kernel);
}

// StableHLO does not say how float8 compares.
Value comparable(Ctx& x, Value v) { return hlo::is_float8(v.dtype()) ? x.to_compute(v) : v; }

Value compare_tensors(Ctx& x, const Comparison& k, Value self, Value other) {
  const DType t = x.promote(self, other);
  check_ordered(x, k, t);
  const auto [p, q] = x.broadcast_all(t, self, other);
  return x.b.compare(k.direction, comparable(x, p), comparable(x, q));
}

// A whole number that the tensor's integer type cannot hold must not wrap into it: the comparison
// is made in a type that holds both.
Value compare_number(Ctx& x, const Comparison& k, Value self, const Scalar& other) {
  DType t = x.promote(self, other);
  check_ordered(x, k, t);
  if (hlo::is_integral(self.dtype()) && other.kind == NumberKind::kInt) {
    if (hlo::size_bytes(self.dtype()) <
        4) {  // int64 compares cost a TPU twice: bring the number next to the range
      const Value number = x.wrapped_scalar(other, DType::kI64);
      const Value low = x.b.constant(DType::kI64, int64_t{-(1 << 17)});
      const Value high = x.b.constant(DType::kI64, int64_t{1 << 17});
      const Value near = x.b.convert(x.b.clamp(low, number, high), DType::kI32);
      const Value v = x.b.convert(self, DType::kI32);
      return x.b.compare(k.direction, v, x.broadcast(near, v.dims()));
    }
    if (t == DType::kI32 || t == DType::kU32) t = DType::kI64;
  }
  const Value v = comparable(x, x.convert(self, t));
  const Value number = comparable(x, x.wrapped_scalar(other, t));
  return x.b.compare(k.direction, v, x.broadcast(number, v.dims()));
}

struct Logical {
  const char* name;
  Op op;
};
constexpr Logical kLogicals[] = {{"aten::logical_and", Op::kAnd},
                                 {"aten::logical_or", Op::kOr},
                                 {"aten::logical_xor", Op::kXor}};

Value is_infinity(Ctx& x, Value self, bool negative, const char* name) {
  x.check(!hlo::is_complex(self.dtype()), name, " does not support complex inputs.");
  if (hlo::is_integral(self.dtype())) return x.zeros({DType::kBool, self.dims()});
  return x.b.compare(Cmp::kEq, self, infinity_like(x, self, negative));
}

Value is_nan(Ctx& x, Value self) { return x.is_nan(self); }

Value is_infinite(Ctx& x, Value self) {
  const DType t = self.dtype();
  if (hlo::is_integral(t)) return x.zeros({DType::kBool, self.dims()});
  if (!hlo::is_complex(t)) return x.b.compare(Cmp::kEq, abs(x, self), infinity_like(x, self));
  const Value re = abs(x, x.b.real(self)), im = abs(x, x.b.imag(self));
  const Value inf = infinity_like(x, re);
  return x.b.logical_or(x.b.compare(Cmp::kEq, re, inf), x.b.compare(Cmp::kEq, im, inf));
}

Value is_finite(Ctx& x, Value self) {
  const DType t = self.dtype();
  if (hlo::is_integral(t)) return x.b.logical_not(x.zeros({DType::kBool, self.dims()}));
  if (!hlo::is_complex(t)) return x.b.is_finite(x.to_compute(self));
  return x.b.logical_and(x.b.is_finite(x.b.real(self)), x.b.is_finite(x.b.imag(self)));
}

struct NumberTest {
  const char* name;
  Value (*make)(Ctx&, Value);
};
constexpr NumberTest kNumberTests[] = {
    {"aten::isfinite", is_finite},
    {"aten::isinf", is_infinite},
    {"aten::isnan", is_nan},
};

// Told at the next read or synchronization, as any assertion.
void assert_nonzero(Ctx& x, Value self, const std::string& text) {
  x.check(self.numel() != 0, "Boolean value of Tensor with no values is ambiguous");
  x.check(self.numel() == 1, "Boolean value of Tensor with more than one value is ambiguous");
  x.assert_none(x.b.logical_not(x.convert(self, DType::kBool)), text);
}

void register_asserts(Registry& r) {
  const auto text = [](const std::string& s) { return s.empty() ? "Assertion is failed" : s; };
  r.op("aten::_assert_async", [](Ctx& x, Value self) {
    assert_nonzero(x, self, "Expected Tensor with single nonzero value, but got zero");
    return Values();
  });
  r.op("aten::_assert_async.msg", [text](Ctx& x, Value self, std::string assert_msg) {
    assert_nonzero(x, self, text(assert_msg));
    return Values();
  });
  r.op("aten::_functional_assert_async.msg",
       [text](Ctx& x, Value self, std::string assert_msg, Value dep_token) {
         assert_nonzero(x, self, text(assert_msg));
         return dep_token;
       });
  r.op("aten::_make_dep_token",
       [](Ctx& x, Opt<DType> dtype) { return x.zeros({dtype.value_or(x.default_dtype()), {}}); });
}

}  // namespace

void register_compare(Registry& r) {
  register_asserts(r);
  for (const Comparison& k : kComparisons) {
    r.op(std::string(k.name) + ".Tensor", [k](Ctx& x, Value self, Value other) {
       return compare_tensors(x, k, self, other);
     }).elementwise();
    r.op(std::string(k.name) + ".Scalar",
         [k](Ctx& x, Value self, Scalar other) { return compare_number(x, k, self, other); })
        .elementwise()
        .number_is_operand();
  }
  for (const Logical& k : kLogicals) {
    r.op(k.name, [k](Ctx& x, Value self, Value other) {
       x.promote(self, other);  // types without a common one are refused
       const auto [p, q] = x.broadcast_all(DType::kBool, self, other);
       return x.b.binary(k.op, p, q);
     }).elementwise();
  }
  r.op("aten::logical_not", [](Ctx& x, Value self) {
     return x.b.logical_not(x.convert(self, DType::kBool));
   }).elementwise();
  for (const NumberTest& t : kNumberTests) {
    r.op(t.name, [t](Ctx& x, Value self) { return t.make(x, self); }).elementwise();
  }
  r.op("aten::isposinf", [](Ctx& x, Value self) { return is_infinity(x, self, false, "isposinf"); })
      .elementwise()
      .out_casts(false);
  r.op("aten::isneginf", [](Ctx& x, Value self) { return is_infinity(x, self, true, "isneginf"); })
      .elementwise()
      .out_casts(false);
}

}  // namespace tpu::aten
