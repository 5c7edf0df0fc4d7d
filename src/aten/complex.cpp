#include <cmath>
#include <numbers>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;
using ops::scalar_type_name;

// Two real parts of one dtype, broadcast.
std::array<Value, 2> parts(Ctx& x, Value a, Value b) {
  const DType t = a.dtype();
  const auto fits = [](DType d) {
    return d == DType::kF16 || d == DType::kF32 || d == DType::kF64;
  };
  x.check(fits(t) && fits(b.dtype()),
          "Expected both inputs to be Half, Float or Double tensors but got ", scalar_type_name(t),
          " and ", scalar_type_name(b.dtype()));
  x.check(t == b.dtype(), "Expected object of scalar type ", scalar_type_name(t),
          " but got scalar type ", scalar_type_name(b.dtype()), " for second argument");
  x.check_supported(t != DType::kF16, "complex32 has no TPU type; convert both parts to float32");
  const auto [p, q] = x.broadcast_all(t, a, b);
  return {p, q};
}

Value conj(Ctx& x, Value v) { return hlo::is_complex(v.dtype()) ? x.b.unary(Op::kConj, v) : v; }

// atan2(imag, real); of a real number 0, pi or NaN.
Value angle(Ctx& x, Value self) {
  if (hlo::is_complex(self.dtype())) return x.b.binary(Op::kAtan2, x.b.imag(self), x.b.real(self));
  const Value v = x.to_float(self);
  const Value turned = x.b.select(lt(x, v, 0), x.like(v, std::numbers::pi), zero_like(x, v));
  return x.b.select(x.is_nan(v), v, turned);
}

}  // namespace

void register_complex(Registry& r) {
  r.op("aten::complex",
       [](Ctx& x, Value real, Value imag) {
         const auto [re, im] = parts(x, real, imag);
         return x.b.complex(re, im);
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::polar",
       [](Ctx& x, Value abs_value, Value phase) {
         const auto [radius, a] = parts(x, abs_value, phase);
         return x.b.complex(x.b.mul(radius, x.b.unary(Op::kCosine, a)),
                            x.b.mul(radius, x.b.unary(Op::kSine, a)));
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::angle", angle).elementwise();
  r.op("aten::_conj_physical", conj).elementwise();
  // conj_physical itself is composite, its out= and in-place forms are not.
  r.op("aten::conj_physical_", conj).elementwise();
  r.out_op("aten::conj_physical.out", [](Ctx& x, Type, Value self) { return conj(x, self); })
      .elementwise()
      .out_casts(false);
}

}  // namespace tpu::aten
