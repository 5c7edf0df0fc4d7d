#include <array>
#include <cmath>
#include <numbers>
#include <tuple>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;

Value pow2(Ctx& x, Value v) { return x.b.mul(v, v); }
Value one_minus(Ctx& x, Value v) { return x.b.sub(x.like(v, 1), v); }
Value sigmoid(Ctx& x, Value v) { return x.b.unary(Op::kLogistic, v); }

// Gradient and saved tensor promoted, broadcast and in the compute type; the result is rounded
// once.
template <class F>
Value backward(Ctx& x, Value grad, Value self, uint8_t classes, const char* kernel, F f) {
  const DType t = x.promote(grad, self);
  check_dtype(x, t, classes, kernel);
  const auto [g, v] = x.broadcast_all(hlo::compute_type(t), grad, self);
  return x.convert(f(g, v), t);
}

// ---- Without parameters: {forward, backward given (grad, self)}.

Value hardsigmoid(Ctx& x, Value v) {
  const Value inside = x.b.minimum(x.b.maximum(plus(x, v, 3), x.like(v, 0)), x.like(v, 6));
  return x.b.div(inside, x.like(v, 6));
}

Value silu(Ctx& x, Value v) {
  if (hlo::is_complex(v.dtype())) return x.b.div(v, plus(x, exp(x, x.b.neg(v)), 1));
  return x.b.mul(v, sigmoid(x, v));
}

Value softplus1(Ctx& x, Value v) { return x.b.unary(Op::kLogPlusOne, exp(x, v)); }

Value mish(Ctx& x, Value v) { return x.b.mul(v, x.b.unary(Op::kTanh, softplus1(x, v))); }

struct Activation {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value);
};
constexpr Activation kActivations[] = {
    {"aten::hardsigmoid", kFloats, "hardsigmoid_cpu", hardsigmoid},
    {"aten::hardswish", kFloats, "hardswish_cpu",
     [](Ctx& x, Value v) { return x.b.mul(v, hardsigmoid(x, v)); }},
    {"aten::silu", kFloats | kComplex, "silu_cpu", silu},
    {"aten::mish", kFloats, "mish_cpu", mish},
};

struct ActivationBackward {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value grad, Value self);
};
constexpr ActivationBackward kBackwards[] = {
    {"aten::hardsigmoid_backward", kFloats, "hardsigmoid_backward",
     [](Ctx& x, Value g, Value v) {
       const Value inside = x.b.logical_and(gt(x, v, -3), lt(x, v, 3));
       return x.b.select(inside, times(x, g, 1.0 / 6), zero_like(x, g));
     }},
    {"aten::hardswish_backward", kFloats, "hardswish_backward_cpu",
     [](Ctx& x, Value g, Value v) {
       const Value slope = plus(x, x.b.div(v, x.like(v, 3)), 0.5);
       const Value inner = x.b.select(lt(x, v, 3), x.b.mul(g, slope), g);
       return x.b.select(le(x, v, -3), zero_like(x, g), inner);
     }},
    {"aten::silu_backward", kFloats | kComplex, "silu_backward_cpu",
     [](Ctx& x, Value g, Value v) {
       const bool is_complex = hlo::is_complex(v.dtype());
       const Value s = is_complex ? recip(x, plus(x, exp(x, x.b.neg(v)), 1)) : sigmoid(x, v);
       const Value slope = x.b.mul(s, plus(x, x.b.mul(v, one_minus(x, s)), 1));
       return x.b.mul(g, slope);
     }},
    {"aten::mish_backward", kFloats, "mish_backward_cpu",
     [](Ctx& x, Value g, Value v) {
       const Value t = x.b.unary(Op::kTanh, softplus1(x, v));
       const Value s = x.b.mul(x.b.mul(v, sigmoid(x, v)), one_minus(x, pow2(x, t)));
       return x.b.mul(g, x.b.add(t, s));
     }},
    // The next two get the forward result.
    {"aten::sigmoid_backward", kFloats | kComplex, "sigmoid_backward_cpu",
     [](Ctx& x, Value g, Value y) {
       const Value slope = x.b.mul(one_minus(x, y), y);
       return x.b.mul(g, hlo::is_complex(y.dtype()) ? x.b.unary(Op::kConj, slope) : slope);
     }},
    {"aten::tanh_backward", kFloats | kComplex, "tanh_backward_cpu",
     [](Ctx& x, Value g, Value y) {
       const Value slope = one_minus(x, pow2(x, y));
       return x.b.mul(g, hlo::is_complex(y.dtype()) ? x.b.unary(Op::kConj, slope) : slope);
     }},
};

// ---- gelu (Hendrycks and Gimpel 2016): exact with erf, or its tanh approximation.

bool is_tanh(const Ctx& x, const std::string& approximate) {
  x.check(approximate == "none" || approximate == "tanh",
          "approximate argument must be either none or tanh.");
  return approximate == "tanh";
}

constexpr double kGeluCubic = 0.044715;
const double kGeluScale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)

Value gelu(Ctx& x, Value v, bool tanh) {
  const Value half = times(x, v, 0.5);
  if (!tanh)
    return x.b.mul(half, plus(x, x.b.unary(Op::kErf, times(x, v, 1 / std::numbers::sqrt2)), 1));
  const Value cube = x.b.mul(pow2(x, v), v);
  const Value inner = times(x, x.b.add(v, times(x, cube, kGeluCubic)), kGeluScale);
  return x.b.mul(half, plus(x, x.b.unary(Op::kTanh, inner), 1));
}

Value gelu_slope(Ctx& x, Value v, bool tanh) {
  if (!tanh) {
    const Value cdf =
        times(x, plus(x, x.b.unary(Op::kErf, times(x, v, 1 / std::numbers::sqrt2)), 1), 0.5);
    const Value pdf = times(x, exp(x, times(x, pow2(x, v), -0.5)),
                            std::numbers::inv_sqrtpi / std::numbers::sqrt2);
    return x.b.add(cdf, x.b.mul(v, pdf));
  }
  const Value square = pow2(x, v);
  const Value inner = times(x, x.b.add(v, times(x, x.b.mul(square, v), kGeluCubic)), kGeluScale);
  const Value t = x.b.unary(Op::kTanh, inner);
  const Value left = times(x, plus(x, t, 1), 0.5);
  const Value inner_slope = times(x, plus(x, times(x, square, 3 * kGeluCubic), 1), kGeluScale);
  const Value right = x.b.mul(x.b.mul(times(x, v, 0.5), one_minus(x, pow2(x, t))), inner_slope);
  return x.b.add(left, right);
}

// ---- Thresholds and slopes.

Value threshold(Ctx& x, Value self, const Scalar& bound, const Scalar& value) {
  check_dtype(x, self.dtype(), kOrdered, "threshold_cpu");
  const Value v = x.to_compute(self);
  const Value low = x.b.compare(Cmp::kLe, v, x.scalar_like(bound, v));
  return x.b.select(low, x.scalar_like(value, self), self);
}

Value hardtanh(Ctx& x, Value self, const Scalar& low, const Scalar& high) {
  const DType t = self.dtype();
  x.check(!hlo::is_bool(t), "Bool inputs not supported for hardtanh");
  x.check_supported(!hlo::is_complex(t), "clamp is not supported for complex types");
  if (hlo::is_unsigned(t)) {
    x.check_numbers(
        [](const Number& a, const Number& b) {
          TPU_CHECK(a.d >= 0 && b.d >= 0,
                    "cannot do hardtanh on an unsigned type with negative limits");
        },
        low, high);
  }
  return x.b.minimum(x.b.maximum(self, x.scalar_like(low, self)), x.scalar_like(high, self));
}

void check_slope(Ctx& x, const Scalar& slope, const char* what) {
  // Given its own result, the backward function cannot tell which side the input was on.
  x.check_numbers(
      [what](const Number& n) {
        TPU_CHECK(n.d >= 0, "In-place ", what,
                  " backward calculation is triggered with a negative slope which is not "
                  "supported. This is caused by calling in-place forward function with a negative "
                  "slope, please call out-of-place version instead.");
      },
      slope);
}

Value elu(Ctx& x, Value self, const Scalar& alpha, const Scalar& out_scale,
          const Scalar& in_scale) {
  check_dtype(x, self.dtype(), kFloats, "elu_cpu");
  return in_compute(x, self, [&](Value v) {
    const auto scaled = [&](Value w, const Scalar& s) {
      return x.is(s, 1) ? w : x.b.mul(w, x.scalar_like(s, w));
    };
    const Value curve = x.b.unary(Op::kExponentialMinusOne, scaled(v, in_scale));
    return scaled(x.b.select(lt(x, v, 0), scaled(curve, alpha), v), out_scale);
  });
}

Value elu_backward(Ctx& x, Value grad, const Scalar& alpha, const Scalar& out_scale,
                   const Scalar& in_scale, bool is_result, Value saved) {
  if (is_result) check_slope(x, alpha, "elu");
  return backward(x, grad, saved, kFloats, "elu_backward_cpu", [&](Value g, Value v) {
    const auto number = [&](const Scalar& s) { return x.scalar_like(s, v); };
    const Value low_scale = x.b.mul(number(alpha), number(out_scale));
    const Value curve = is_result ? x.b.add(v, low_scale)
                                  : x.b.mul(low_scale, exp(x, x.b.mul(v, number(in_scale))));
    const Value low = x.b.mul(x.b.mul(g, number(in_scale)), curve);
    return x.b.select(le(x, v, 0), low, x.b.mul(g, number(out_scale)));
  });
}

// True where |v| <= lambd.
Value in_shrink(Ctx& x, Value v, const Scalar& lambd) {
  const Value most = x.scalar_like(lambd, v);
  return x.b.logical_and(x.b.compare(Cmp::kGe, v, x.b.neg(most)), x.b.compare(Cmp::kLe, v, most));
}

void register_slopes(Registry& r) {
  r.op("aten::relu", [](Ctx& x, Value self) {
     x.check(!hlo::is_bool(self.dtype()), "Boolean inputs not supported for relu");
     x.check_supported(!hlo::is_complex(self.dtype()), "clamp is not supported for complex types");
     return x.b.maximum(self, zero_like(x, self));
   }).elementwise();
  r.op("aten::threshold", threshold).elementwise();
  r.op("aten::threshold_backward",
       [](Ctx& x, Value grad, Value self, Scalar bound) {
         const DType t = x.promote(grad, self);
         check_dtype(x, t, kOrdered, "threshold_cpu");
         const auto [g, v] = x.broadcast_all(t, grad, self);
         const Value w = x.to_compute(v);
         return x.b.select(x.b.compare(Cmp::kLe, w, x.scalar_like(bound, w)), zero_like(x, g), g);
       })
      .fold("threshold", 0)
      .elementwise();
  r.op("aten::hardtanh", hardtanh).elementwise();
  r.op("aten::hardtanh_backward", [](Ctx& x, Value grad, Value self, Scalar low, Scalar high) {
     return backward(x, grad, self, kFloats, "hardtanh_backward_cpu", [&](Value g, Value v) {
       const Value outside = x.b.logical_or(x.b.compare(Cmp::kLe, v, x.scalar_like(low, v)),
                                            x.b.compare(Cmp::kGe, v, x.scalar_like(high, v)));
       return x.b.select(outside, zero_like(x, g), g);
     });
   }).elementwise();
  r.op("aten::leaky_relu", [](Ctx& x, Value self, Scalar slope) {
     check_dtype(x, self.dtype(), kFloats, "leaky_relu_cpu");
     return in_compute(x, self, [&](Value v) {
       return x.b.select(gt(x, v, 0), v, x.b.mul(v, x.scalar_like(slope, v)));
     });
   }).elementwise();
  r.op("aten::leaky_relu_backward", [](Ctx& x, Value grad, Value self, Scalar slope,
                                       bool is_result) {
     if (is_result) check_slope(x, slope, "leakyReLu");
     return backward(x, grad, self, kFloats, "leaky_relu_backward_cpu", [&](Value g, Value v) {
       return x.b.select(gt(x, v, 0), g, x.b.mul(g, x.scalar_like(slope, g)));
     });
   }).elementwise();
  r.op("aten::_prelu_kernel", [](Ctx& x, Value self, Value weight) {
     x.check(self.dtype() == weight.dtype(), "Found dtype ", ops::scalar_type_name(weight.dtype()),
             " but expected ", ops::scalar_type_name(self.dtype()));
     check_dtype(x, self.dtype(), kFloats, "prelu_cpu");
     return in_compute(x, self, weight,
                       [&](Value v, Value w) { return x.b.select(gt(x, v, 0), v, x.b.mul(w, v)); });
   }).elementwise();
  r.op("aten::_prelu_kernel_backward", [](Ctx& x, Value grad, Value self, Value weight) {
     const DType t = self.dtype();
     check_dtype(x, t, kFloats, "prelu_backward_cpu");
     const auto [g, v, w] = x.broadcast_all(hlo::compute_type(t), grad, self, weight);
     const Value above = gt(x, v, 0);
     return std::array{x.convert(x.b.select(above, g, x.b.mul(w, g)), t),
                       x.convert(x.b.select(above, zero_like(x, g), x.b.mul(v, g)), t)};
   }).elementwise();
  r.op("aten::elu", elu).fold("alpha", 1).fold("scale", 1).fold("input_scale", 1).elementwise();
  r.op("aten::elu_backward", elu_backward).elementwise();
  r.op("aten::softshrink",
       [](Ctx& x, Value self, Scalar lambd) {
         check_dtype(x, self.dtype(), kFloats, "softshrink_check");
         const double most = hlo::float_max(self.dtype());
         x.check_number(
             lambd, [most](double v) { return v >= 0 && v <= most; },
             cat("lambda must be in range [0, ", most, "] for input dtype ",
                 ops::scalar_type_name(self.dtype()), ", but found {}"));
         return in_compute(x, self, [&](Value v) {
           const Value bound = x.scalar_like(lambd, v);
           const Value low = x.b.select(x.b.compare(Cmp::kLt, v, x.b.neg(bound)), x.b.add(v, bound),
                                        times(x, v, 0));
           return x.b.select(x.b.compare(Cmp::kGt, v, bound), x.b.sub(v, bound), low);
         });
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::hardshrink",
       [](Ctx& x, Value self, Scalar lambd) {
         check_dtype(x, self.dtype(), kFloats, "hardshrink_cpu");
         return in_compute(x, self, [&](Value v) {
           return x.b.select(in_shrink(x, v, lambd), zero_like(x, v), v);
         });
       })
      .elementwise()
      .out_casts(false);
  for (const char* name : {"aten::softshrink_backward", "aten::hardshrink_backward"}) {
    r.op(name, [](Ctx& x, Value grad, Value self, Scalar lambd) {
       return backward(x, grad, self, kFloats, "shrink_backward_cpu", [&](Value g, Value v) {
         return x.b.select(in_shrink(x, v, lambd), zero_like(x, g), g);
       });
     }).elementwise();
  }
}

// ---- Smooth functions with parameters.

void register_smooth(Registry& r) {
  r.op("aten::gelu",
       [](Ctx& x, Value self, std::string approximate) {
         check_dtype(x, self.dtype(), kFloats, "GeluKernelImpl");
         const bool tanh = is_tanh(x, approximate);
         return in_compute(x, self, [&](Value v) { return gelu(x, v, tanh); });
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::gelu_backward", [](Ctx& x, Value grad, Value self, std::string approximate) {
     const bool tanh = is_tanh(x, approximate);
     return backward(x, grad, self, kFloats, "GeluBackwardKernelImpl",
                     [&](Value g, Value v) { return x.b.mul(g, gelu_slope(x, v, tanh)); });
   }).elementwise();
  r.op("aten::softplus",
       [](Ctx& x, Value self, Scalar beta, Scalar bound) {
         check_dtype(x, self.dtype(), kFloats, "softplus_cpu");
         return in_compute(x, self, [&](Value v) {
           const Value k = x.scalar_like(beta, v), scaled = x.b.mul(v, k);
           const Value linear = x.b.compare(Cmp::kGt, scaled, x.scalar_like(bound, v));
           return x.b.select(linear, v, x.b.div(softplus1(x, scaled), k));
         });
       })
      .elementwise()
      .out_casts(false);
  r.op("aten::softplus_backward", [](Ctx& x, Value grad, Value self, Scalar beta, Scalar bound) {
     return backward(x, grad, self, kFloats, "softplus_backward_cpu", [&](Value g, Value v) {
       const Value scaled = x.b.mul(v, x.scalar_like(beta, v)), z = exp(x, scaled);
       const Value linear = x.b.compare(Cmp::kGt, scaled, x.scalar_like(bound, v));
       return x.b.select(linear, g, x.b.div(x.b.mul(g, z), plus(x, z, 1)));
     });
   }).elementwise();
  // buffer = exp(-|x|), which the backward function reads again.
  r.op("aten::log_sigmoid_forward", [](Ctx& x, Value self) {
    check_dtype(x, self.dtype(), kFloats, "log_sigmoid_cpu");
    const Value v = x.to_compute(self);
    const Value z = exp(x, x.b.neg(abs(x, v)));
    const Value out = x.b.sub(x.b.minimum(v, zero_like(x, v)), x.b.unary(Op::kLogPlusOne, z));
    return std::array{x.convert(out, self.dtype()), x.convert(z, self.dtype())};
  });
  r.op("aten::log_sigmoid_backward", [](Ctx& x, Value grad, Value self, Value) {
     // From x itself: the buffer may have been rounded.
     return backward(x, grad, self, kFloats, "log_sigmoid_backward_cpu",
                     [&](Value g, Value v) { return x.b.mul(g, sigmoid(x, x.b.neg(v))); });
   }).elementwise();
  r.op("aten::logit_backward", [](Ctx& x, Value grad, Value self, Opt<Scalar> eps) {
     return backward(x, grad, self, kFloats, "logit_backward_cpu", [&](Value g, Value v) {
       const Value inner = x.b.div(g, x.b.mul(v, one_minus(x, v)));
       const Value edge = x.b.logical_or(is_zero(x, v), is_zero(x, one_minus(x, v)));
       const Value inside = x.b.select(edge, x.b.mul(g, infinity_like(x, g)), inner);
       const Value nan = x.like(v, std::nan(""));
       if (!eps) return x.b.select(x.b.logical_or(lt(x, v, 0), gt(x, v, 1)), nan, inside);
       const Value e = x.scalar_like(*eps, v), none = lt(x, e, 0);
       const Value low = x.b.select(none, zero_like(x, v), e);
       const Value outside = x.b.logical_or(x.b.compare(Cmp::kLt, v, low),
                                            x.b.compare(Cmp::kGt, v, one_minus(x, low)));
       return x.b.select(outside, x.b.select(none, nan, zero_like(x, v)), inside);
     });
   }).elementwise();
}

// ---- glu: the first half times the sigmoid of the second.

struct Halves {
  Value first, second;
};
Halves halve(Ctx& x, Value v, int64_t dim) {
  const int64_t n = v.dim(dim) / 2;
  return {x.b.slice_dim(v, dim, 0, n), x.b.slice_dim(v, dim, n, 2 * n)};
}

int64_t glu_axis(Ctx& x, Value self, int64_t dim) {
  x.check(self.rank() > 0,
          "glu does not support 0-dimensional tensors: glu does not support scalars because "
          "halving size must be even");
  const int64_t d = x.axis(dim, self);
  x.check(self.dim(d) % 2 == 0, "Halving dimension must be even, but dimension ", d, " is size ",
          self.dim(d));
  return d;
}

void register_glu(Registry& r) {
  r.op("aten::glu", [](Ctx& x, Value self, int64_t dim) {
     const int64_t d = glu_axis(x, self, dim);
     check_dtype(x, self.dtype(), kFloats, "glu_cpu");
     return in_compute(x, self, [&](Value v) {
       const Halves h = halve(x, v, d);
       return x.b.mul(h.first, sigmoid(x, h.second));
     });
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::glu_backward", [](Ctx& x, Value grad, Value self, int64_t dim) {
    const int64_t d = glu_axis(x, self, dim);
    check_dtype(x, self.dtype(), kFloats, "glu_backward_cpu");
    return in_compute(x, self, [&](Value v) {
      const Halves h = halve(x, v, d);
      const Value s = sigmoid(x, h.second),
                  g = x.b.mul(x.broadcast(x.convert(grad, v.dtype()), s.dims()), s);
      return x.b.concatenate({g, x.b.mul(x.b.mul(g, one_minus(x, s)), h.first)}, d);
    });
  });
  r.op("aten::glu_jvp", [](Ctx& x, Value glu, Value self, Value dx, int64_t dim) {
    const int64_t d = glu_axis(x, self, dim);
    return in_compute(x, glu, [&](Value y) {
      const Value second = halve(x, x.convert(self, y.dtype()), d).second;
      const Halves t = halve(x, x.convert(dx, y.dtype()), d);
      const Value s = sigmoid(x, second);
      return x.b.add(x.b.mul(t.first, s), x.b.mul(y, x.b.mul(t.second, one_minus(x, s))));
    });
  });
  // Tangent of glu_backward: derivative of (g s, g s (1 - s) a) along (dgrad_glu, dx).
  r.op("aten::glu_backward_jvp", [](Ctx& x, Value grad_x, Value grad_glu, Value self,
                                    Value dgrad_glu, Value dx, int64_t dim) {
    const int64_t d = glu_axis(x, self, dim);
    return in_compute(x, grad_x, [&](Value gx) {
      const DType c = gx.dtype();
      const Halves v = halve(x, x.convert(self, c), d), t = halve(x, x.convert(dx, c), d);
      const Value g = x.convert(grad_glu, c), dg = x.convert(dgrad_glu, c);
      const Value s = sigmoid(x, v.second), rest = one_minus(x, s);
      const Value ds = x.b.mul(x.b.mul(s, rest), t.second);
      const Value first = x.b.add(x.b.mul(dg, s), x.b.mul(g, ds));
      // d(g s (1 - s) a) = d(g s) (1 - s) a - g s ds a + g s (1 - s) da
      const Value gs = x.b.mul(g, s);
      const Value inner = x.b.sub(x.b.mul(first, rest), x.b.mul(gs, ds));
      const Value second = x.b.add(x.b.mul(inner, v.first), x.b.mul(x.b.mul(gs, rest), t.first));
      return x.b.concatenate({first, second}, d);
    });
  });
}

// ---- Random.

// {result, noise}: the slope of each element that is not above 0.
std::array<Value, 2> rrelu(Ctx& x, Value self, Value noise, const Scalar& lower,
                           const Scalar& upper, bool training) {
  x.check(self.dtype() == noise.dtype() && self.dims() == noise.dims(),
          "noise tensor shape must match self tensor shape. Got self.shape = ", self.dims(),
          " noise.shape = ", noise.dims());
  check_dtype(x, self.dtype(), kFloats, "rrelu_with_noise_out_cpu");
  const Value v = x.to_compute(self);
  const Value low = x.scalar_like(lower, v), high = x.scalar_like(upper, v);
  const Value above = gt(x, v, 0);
  if (!training) {
    const Value slope = times(x, x.b.add(low, high), 0.5);
    return {x.convert(x.b.select(above, v, x.b.mul(v, slope)), self.dtype()), noise};
  }
  const Value random = x.b.add(low, x.b.mul(x.uniform(v.dtype(), v.dims()), x.b.sub(high, low)));
  const Value slope = x.b.select(above, x.like(v, 1), random);
  return {x.convert(x.b.mul(v, slope), self.dtype()), x.convert(slope, self.dtype())};
}

void register_random_activations(Registry& r) {
  // The noise is an output too: written arguments come first, in the schema's order.
  r.op("aten::rrelu_with_noise", [](Ctx& x, Value self, Value noise, Scalar lower, Scalar upper,
                                    bool training) {
     const auto [out, slope] = rrelu(x, self, noise, lower, upper, training);
     return std::array{slope, out};
   }).random();
  r.op("aten::rrelu_with_noise_", rrelu).random();
  r.op("aten::native_dropout",
       [](Ctx& x, Value self, Scalar p, Opt<bool> train) {
         check_dtype(x, self.dtype(), kFloats | kComplex, "native_dropout");
         const bool keeps_all = (train && !*train) || x.is(p, 0);
         x.check_numbers(
             [](const Number& n) {
               TPU_CHECK(n.d >= 0 && n.d <= 1,
                         "dropout probability has to be between 0 and 1, but got ", n.d);
             },
             p);
         if (keeps_all || self.numel() == 0)
           return std::array{self, x.b.splat({DType::kBool, self.dims()}, 1)};
         const Value v = x.to_compute(self);
         const DType real = hlo::real_type(v.dtype());
         const Value keep = x.b.sub(x.constant(real, 1), x.scalar(p, real));
         const Value mask = x.compare(Cmp::kLt, x.uniform(real, v.dims()), keep);
         // p = 1 drops everything; 0 * inf would be NaN.
         const Value none = is_zero(x, keep);
         const Value factor = x.b.select(none, keep, recip(x, keep));
         const Value scaled = x.b.mul(v, x.broadcast(x.convert(factor, v.dtype()), v.dims()));
         return std::array{x.convert(x.b.select(mask, scaled, zero_like(x, v)), self.dtype()),
                           mask};
       })
      .fold("p", 0)
      .random()
      .layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::native_dropout_backward", [](Ctx& x, Value grad, Value mask, Scalar factor) {
     const Value real = x.convert(grad, x.promote(grad, factor));  // integers become floats
     return in_compute(x, real, [&](Value g) {
       return x.select(x.convert(mask, DType::kBool), x.b.mul(g, x.scalar_like(factor, g)),
                       zero_like(x, g));
     });
   }).layout(ops::LayoutRule::kLikeSelf);
}

}  // namespace

void register_activation(Registry& r) {
  for (const Activation& k : kActivations) {
    r.op(k.name, [k](Ctx& x, Value self) {
       check_dtype(x, self.dtype(), k.classes, k.kernel);
       return in_compute(x, self, [&](Value v) { return k.make(x, v); });
     }).elementwise();
  }
  for (const ActivationBackward& k : kBackwards) {
    r.op(k.name, [k](Ctx& x, Value grad, Value saved) {
       return backward(x, grad, saved, k.classes, k.kernel,
                       [&](Value g, Value v) { return k.make(x, g, v); });
     }).elementwise();
  }
  register_slopes(r);
  register_smooth(r);
  register_glu(r);
  register_random_activations(r);
}

}  // namespace tpu::aten
