#include "aten/special.h"

#include <algorithm>
#include <cmath>
#include <numbers>
#include <span>

#include "aten/all.h"
#include "aten/elementwise.h"
#include "aten/special_tables.h"

namespace tpu::aten {
Value chebyshev(Ctx& x, std::span<const double> c, Value t) {
  double largest = 0;
  for (const double e : c) largest = std::max(largest, std::abs(e));
  size_t count = c.size();
  for (double rest = 0; count > 2; --count) {
    rest += std::abs(c[count - 1]);
    if (rest > 0.125 * epsilon(t) * largest) break;
  }
  const Value twice = times(x, t, 2);
  Value b1 = x.like(t, c[count - 1]), b2 = zero_like(x, t);
  for (size_t k = count - 2; k > 0; --k) {
    const Value b0 = plus(x, x.b.sub(x.b.mul(twice, b1), b2), c[k]);
    b2 = b1;
    b1 = b0;
  }
  return plus(x, x.b.sub(x.b.mul(t, b1), b2), c[0]);
}

Value polynomial(Ctx& x, std::span<const double> c, Value v) {
  Value r = x.like(v, c.back());
  for (size_t k = c.size() - 1; k > 0; --k) r = plus(x, x.b.mul(r, v), c[k - 1]);
  return r;
}

void register_unary(ops::Registry& r, std::span<const SpecialUnary> table) {
  for (const SpecialUnary& u : table) {
    r.op(u.name, [u](Ctx& x, Value self) {
       const Value v = x.to_float(self);
       check_dtype(x, v.dtype(), u.classes, u.kernel);
       return in_compute(x, v, [&](Value c) { return u.make(x, c); });
     }).elementwise();
  }
}

void register_binary(ops::Registry& r, std::span<const SpecialBinary> table) {
  for (const SpecialBinary& k : table) {
    r.op(k.name, [k](Ctx& x, Value self, Value other) {
       DType t = x.promote(self, other);
       if (k.to_float) t = x.float_type(t);
       check_dtype(x, t, k.classes, k.kernel);
       const auto [p, q] = x.broadcast_all(hlo::compute_type(t), self, other);
       return x.convert(k.make(x, p, q), t);
     }).elementwise();
  }
}

namespace {

using ops::Registry;

// ---- Modified Bessel functions (DLMF 10.25).

Value i0e(Ctx& x, Value v) {
  const Value a = abs(x, v);
  const Value far = x.b.div(chebyshev(x, kI0Large, plus(x, over(x, 16, a), -1)), sqrt(x, a));
  return x.b.select(le(x, a, 8), chebyshev(x, kI0Small, plus(x, times(x, a, 0.25), -1)), far);
}

Value i1e(Ctx& x, Value v) {
  const Value a = abs(x, v);
  const Value far = x.b.div(chebyshev(x, kI1Large, plus(x, over(x, 16, a), -1)), sqrt(x, a));
  const Value near = x.b.mul(a, chebyshev(x, kI1Small, plus(x, times(x, a, 0.25), -1)));
  const Value r = x.b.select(le(x, a, 8), near, far);
  return x.b.select(lt(x, v, 0), x.b.neg(r), r);
}

Value i0(Ctx& x, Value v) { return x.b.mul(exp(x, abs(x, v)), i0e(x, v)); }
Value i1(Ctx& x, Value v) { return x.b.mul(exp(x, abs(x, v)), i1e(x, v)); }

// NaN below 0, inf at 0.
Value on_positive(Ctx& x, Value v, Value r, double at_zero) {
  return x.b.select(is_zero(x, v), x.like(v, at_zero), x.b.select(lt(x, v, 0), x.like(v, kNan), r));
}

// Order 0 or 1; exp(v) K(v) when scaled. Near 0 the logarithm is taken out (DLMF 10.31).
template <int order, bool scaled>
Value modified_k(Ctx& x, Value v) {
  const Value t = plus(x, times(x, square(x, v), 0.5), -1);
  const Value log_half = log(x, times(x, v, 0.5));
  Value near;
  if (order == 0) {
    near = x.b.sub(chebyshev(x, kK0Near, t), x.b.mul(log_half, chebyshev(x, kI0Near, t)));
  } else {
    const Value i = x.b.mul(v, chebyshev(x, kI1Near, t));
    near = x.b.add(x.b.mul(log_half, i), x.b.div(chebyshev(x, kK1Near, t), v));
  }
  if (scaled) near = x.b.mul(near, exp(x, v));
  const std::span<const double> table =
      order == 0 ? std::span<const double>(kK0Far) : std::span<const double>(kK1Far);
  Value far = x.b.div(chebyshev(x, table, plus(x, over(x, 4, v), -1)), sqrt(x, v));
  if (!scaled) far = x.b.mul(far, exp(x, x.b.neg(v)));
  return on_positive(x, v, x.b.select(le(x, v, 2), near, far), kInf);
}

// ---- Bessel functions of order 0 and 1: to 8 a series in x^2, above it Hankel's form with
// amplitude and phase, sqrt(2 / (pi x)) (P cos(chi) -+ Q sin(chi)), chi = x - (2 order + 1) pi / 4
// (DLMF 10.17.3).

struct Bessel {
  Value j, y;
};

template <int order>
Bessel bessel_far(Ctx& x, Value a) {
  const Value z = over(x, 8, a);
  const Value t = plus(x, times(x, square(x, z), 2), -1);
  const Value p = order == 0 ? chebyshev(x, kP0, t) : chebyshev(x, kP1, t);
  const Value q = x.b.mul(z, order == 0 ? chebyshev(x, kQ0, t) : chebyshev(x, kQ1, t));
  // sqrt(2) cos(chi) and sin(chi) without rounding chi.
  const Value s = sine(x, a), c = cosine(x, a);
  const Value sum = x.b.add(s, c), difference = x.b.sub(s, c);
  const Value cos_chi = order == 0 ? sum : difference;
  const Value sin_chi = order == 0 ? difference : x.b.neg(sum);
  const Value scale_factor = recip(x, sqrt(x, times(x, a, kPi)));
  return {x.b.mul(scale_factor, x.b.sub(x.b.mul(p, cos_chi), x.b.mul(q, sin_chi))),
          x.b.mul(scale_factor, x.b.add(x.b.mul(p, sin_chi), x.b.mul(q, cos_chi)))};
}

Value near_variable(Ctx& x, Value v) { return plus(x, times(x, square(x, v), 1.0 / 32), -1); }

Value bessel_j0(Ctx& x, Value v) {
  const Value a = abs(x, v);
  return x.b.select(le(x, a, 8), chebyshev(x, kJ0Near, near_variable(x, v)), bessel_far<0>(x, a).j);
}

Value bessel_j1(Ctx& x, Value v) {
  const Value a = abs(x, v);
  const Value far = bessel_far<1>(x, a).j;
  const Value near = x.b.mul(v, chebyshev(x, kJ1Near, near_variable(x, v)));
  return x.b.select(le(x, a, 8), near, x.b.select(lt(x, v, 0), x.b.neg(far), far));
}

Value bessel_y0(Ctx& x, Value v) {
  const Value t = near_variable(x, v);
  const Value part = times(x, x.b.mul(log(x, v), chebyshev(x, kJ0Near, t)), 2 / kPi);
  const Value near = x.b.add(part, chebyshev(x, kY0Near, t));
  return on_positive(x, v, x.b.select(le(x, v, 8), near, bessel_far<0>(x, v).y), -kInf);
}

Value bessel_y1(Ctx& x, Value v) {
  const Value t = near_variable(x, v);
  const Value j = x.b.mul(v, chebyshev(x, kJ1Near, t));
  const Value part = times(x, x.b.sub(x.b.mul(log(x, v), j), recip(x, v)), 2 / kPi);
  const Value near = x.b.add(part, x.b.mul(v, chebyshev(x, kY1Near, t)));
  return on_positive(x, v, x.b.select(le(x, v, 8), near, bessel_far<1>(x, v).y), -kInf);
}

// sin(x) / x; near 0 its power series.
Value spherical_bessel_j0(Ctx& x, Value v) {
  constexpr double kSeries[] = {
      1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0};
  const Value a = abs(x, v);
  const Value far = x.b.div(sine(x, v), v);
  const Value r = x.b.select(lt(x, a, 0.5), polynomial(x, kSeries, square(x, v)), far);
  return x.b.select(is_zero(x, recip(x, a)), zero_like(x, v), r);
}

// ---- Airy function (DLMF 9.7.5, 9.7.9): z = 2/3 |x|^(3/2).

Value airy_ai(Ctx& x, Value v) {
  const Value a = abs(x, v), root = sqrt(x, a), fourth = sqrt(x, root);
  const Value z = times(x, x.b.mul(a, root), 2.0 / 3);
  const double z2 = 2.0 / 3 * std::pow(2.0, 1.5), z7 = 2.0 / 3 * std::pow(7.0, 1.5);
  const Value decay =
      x.b.mul(exp(x, x.b.neg(z)), chebyshev(x, kAiryFar, plus(x, over(x, 2 * z2, z), -1)));
  const Value positive = times(x, x.b.div(decay, fourth), 0.5 * std::numbers::inv_sqrtpi);
  // sin(z + pi/4) P - cos(z + pi/4) Q
  const Value w = recip(x, z), t = plus(x, times(x, square(x, w), 2 * z7 * z7), -1);
  const Value p = chebyshev(x, kAiryP, t), q = x.b.mul(w, chebyshev(x, kAiryQ, t));
  const Value s = sine(x, z), c = cosine(x, z);
  const Value wave = x.b.sub(x.b.mul(x.b.add(s, c), p), x.b.mul(x.b.sub(c, s), q));
  const Value negative =
      times(x, x.b.div(wave, fourth), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
  const Value middle = chebyshev(x, kAiryMiddle, times(x, plus(x, v, 4.5), 0.4));
  const Value low = x.b.select(lt(x, v, -7), negative, middle);
  const Value near = x.b.select(lt(x, v, -2), low, chebyshev(x, kAiryNear, times(x, v, 0.5)));
  const Value r = x.b.select(gt(x, v, 2), positive, near);
  return x.b.select(x.b.is_finite(v), r, x.like(v, kNan));
}

// ---- Error functions and the normal distribution.

Value erfcx(Ctx& x, Value v) {
  const Value a = abs(x, v);
  const Value t = one_minus(x, over(x, 7.5, plus(x, a, 3.75)));
  const Value r = x.b.div(chebyshev(x, kErfcx, t), plus(x, times(x, a, 2), 1));
  const Value reflected = x.b.sub(times(x, exp(x, square(x, v)), 2), r);
  return x.b.select(lt(x, v, 0), reflected, r);
}

// Wichura's rational approximations (Applied Statistics 37, 1988, algorithm AS 241, PPND16).
Value ndtri(Ctx& x, Value p) {
  constexpr double kA[] = {3.3871328727963666080e0, 1.3314166789178437745e2,
                           1.9715909503065514427e3, 1.3731693765509461125e4,
                           4.5921953931549871457e4, 6.7265770927008700853e4,
                           3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr double kB[] = {1,
                           4.2313330701600911252e1,
                           6.8718700749205790830e2,
                           5.3941960214247511077e3,
                           2.1213794301586595867e4,
                           3.9307895800092710610e4,
                           2.8729085735721942674e4,
                           5.2264952788528545610e3};
  constexpr double kC[] = {1.42343711074968357734e0,  4.63033784615654529590e0,
                           5.76949722146069140550e0,  3.64784832476320460504e0,
                           1.27045825245236838258e0,  2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1,
                           2.05319162663775882187e0,
                           1.67638483018380384940e0,
                           6.89767334985100004550e-1,
                           1.48103976427480074590e-1,
                           1.51986665636164571966e-2,
                           5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720e0,  5.46378491116411436990e0,
                           1.78482653991729133580e0,  2.96560571828504891230e-1,
                           2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1,
                           5.99832206555887937690e-1,
                           1.36929880922735805310e-1,
                           1.48753612908506148525e-2,
                           7.86869131145613259100e-4,
                           1.84631831751005468180e-5,
                           1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  const auto ratio = [&](std::span<const double> top, std::span<const double> bottom, Value v) {
    return x.b.div(polynomial(x, top, v), polynomial(x, bottom, v));
  };
  const Value q = plus(x, p, -0.5);
  const Value center = x.b.mul(q, ratio(kA, kB, x.b.sub(x.like(q, 0.180625), square(x, q))));
  const Value tail = x.b.select(lt(x, q, 0), p, one_minus(x, p));
  const Value r = sqrt(x, x.b.neg(log(x, tail)));
  const Value outer =
      x.b.select(le(x, r, 5), ratio(kC, kD, plus(x, r, -1.6)), ratio(kE, kF, plus(x, r, -5)));
  const Value sided = x.b.select(lt(x, q, 0), x.b.neg(outer), outer);
  const Value inside = x.b.select(le(x, abs(x, q), 0.425), center, sided);
  const Value low = x.b.select(is_zero(x, p), x.like(p, -kInf), inside);
  const Value high = x.b.select(is_zero(x, one_minus(x, p)), x.like(p, kInf), low);
  return x.b.select(x.b.logical_or(lt(x, p, 0), gt(x, p, 1)), x.like(p, kNan), high);
}

Value log_ndtr(Ctx& x, Value v) {
  const Value t = times(x, v, std::numbers::sqrt2 / 2);
  const Value low = x.b.sub(log(x, times(x, erfcx(x, x.b.neg(t)), 0.5)), square(x, t));
  const Value high = x.b.unary(Op::kLogPlusOne, times(x, x.b.unary(Op::kErfc, t), -0.5));
  return x.b.select(lt(x, v, -1), low, high);
}

Value entr(Ctx& x, Value v) {
  const Value inside = x.b.select(is_zero(x, v), zero_like(x, v), x.b.neg(x.b.mul(v, log(x, v))));
  return x.b.select(lt(x, v, 0), x.like(v, -kInf), inside);
}

// ---- Orthogonal polynomials (DLMF 18.9): p_0 = 1, p_1 = first, then the recurrence with run-time
// n.

struct Family {
  Value (*first)(Ctx&, Value y);
  Value (*step)(Ctx&, Value y, Value k, Value p, Value q);  // p_(k+1) from p_(k-1) = p, p_k = q
};

Value chebyshev_step(Ctx& x, Value y, Value, Value p, Value q) {
  return x.b.sub(x.b.mul(times(x, y, 2), q), p);
}

// values[n] for n >= 1 where `wanted`; other elements stay where they are.
Value recur(Ctx& x, const Family& f, Value y, Value n, Value wanted) {
  const Value limit = x.b.select(wanted, n, zero_like(x, n));
  const Values loop = x.b.while_loop(
      {x.constant(y.dtype(), 1), x.like(y, 1), f.first(x, y)},
      [&](const Values& s) {
        const Value more = x.b.compare(Cmp::kLt, x.broadcast(s[0], limit.dims()), limit);
        return Values{x.any(more, x.all_axes(more))};
      },
      [&](const Values& s) {
        const Value k = x.broadcast(s[0], y.dims());
        const Value more = x.b.compare(Cmp::kLt, k, limit);
        const Value next = f.step(x, y, k, s[1], s[2]);
        return Values{plus(x, s[0], 1), x.b.select(more, s[2], s[1]), x.b.select(more, next, s[2])};
      });
  return loop[2];
}

// 0 below degree 0, 1 at it.
Value low_degrees(Ctx& x, Value n, Value r) {
  const Value from_zero = x.b.select(is_zero(x, n), x.like(r, 1), r);
  return x.b.select(ge(x, n, 0), from_zero, zero_like(x, r));
}

Value odd(Ctx& x, Value n) {
  const Value half = times(x, n, 0.5);
  return x.b.compare(Cmp::kNe, half, x.b.unary(Op::kFloor, half));
}

// Kinds t, u, v, w: inside (-1, 1) high degrees have a closed form in the angle; at the ends too.
template <char kind>
Value chebyshev_polynomial(Ctx& x, Value y, Value n) {
  const Family f{[](Ctx& c, Value z) {
                   if (kind == 't') return z;
                   return kind == 'u' ? times(c, z, 2)
                                      : plus(c, times(c, z, 2), kind == 'v' ? -1 : 1);
                 },
                 chebyshev_step};
  const Value size = abs(x, y);
  const Value at_end = x.b.compare(Cmp::kEq, size, x.like(y, 1));
  const Value closed = x.b.logical_and(gt(x, n, 6), lt(x, size, 1));
  const Value plain = recur(x, f, y, n, x.b.logical_not(x.b.logical_or(at_end, closed)));
  const Value angle = x.b.unary(Op::kAcos, y);
  const Value half = times(x, angle, 0.5), n_half = plus(x, n, 0.5);
  Value form;
  Value end_right = x.like(y, 1), end_left = x.like(y, 1);
  switch (kind) {
    case 't': form = cosine(x, x.b.mul(n, angle)); break;
    case 'u':
      form = x.b.div(sine(x, x.b.mul(plus(x, n, 1), angle)), sine(x, angle));
      end_right = end_left = plus(x, n, 1);
      break;
    case 'v':
      form = x.b.div(cosine(x, x.b.mul(n_half, angle)), cosine(x, half));
      end_left = plus(x, times(x, n, 2), 1);
      break;
    default:
      form = x.b.div(sine(x, x.b.mul(n_half, angle)), sine(x, half));
      end_right = plus(x, times(x, n, 2), 1);
  }
  const Value left = x.b.select(odd(x, n), x.b.neg(end_left), end_left);
  const Value end = x.b.select(gt(x, y, 0), end_right, left);
  return low_degrees(x, n, x.b.select(at_end, end, x.b.select(closed, form, plain)));
}

template <char kind>
Value shifted_chebyshev(Ctx& x, Value v, Value n) {
  return chebyshev_polynomial<kind>(x, plus(x, times(x, v, 2), -1), n);
}

// Physicists' (H) or probabilists' (He). CPU gives NaN beyond the degree that overflows everywhere.
template <bool physicists>
Value hermite(Ctx& x, Value y, Value n) {
  const Family f{[](Ctx& c, Value z) { return physicists ? times(c, z, 2) : z; },
                 [](Ctx& c, Value z, Value k, Value p, Value q) {
                   const Value r = c.b.sub(c.b.mul(z, q), c.b.mul(k, p));
                   return physicists ? times(c, r, 2) : r;
                 }};
  const Value too_high = gt(x, n, is_double(y) ? 512 : 128);
  const Value r = recur(x, f, y, n, x.b.logical_not(too_high));
  return low_degrees(x, n, x.b.select(too_high, x.like(y, kNan), r));
}

Value laguerre(Ctx& x, Value y, Value n) {
  const Family f{one_minus, [](Ctx& c, Value z, Value k, Value p, Value q) {
                   const Value factor = c.b.add(c.b.add(k, k), one_minus(c, z));
                   return c.b.div(c.b.sub(c.b.mul(factor, q), c.b.mul(k, p)), plus(c, k, 1));
                 }};
  const Value at_zero = is_zero(x, y);
  const Value r = recur(x, f, y, n, x.b.logical_not(at_zero));
  return low_degrees(x, n, x.b.select(at_zero, x.like(y, 1), r));
}

Value legendre(Ctx& x, Value y, Value n) {
  const Family f{[](Ctx&, Value z) { return z; },
                 [](Ctx& c, Value z, Value k, Value p, Value q) {
                   const Value factor = c.b.mul(plus(c, times(c, k, 2), 1), z);
                   return c.b.div(c.b.sub(c.b.mul(factor, q), c.b.mul(k, p)), plus(c, k, 1));
                 }};
  const Value at_end = x.b.compare(Cmp::kEq, abs(x, y), x.like(y, 1));
  const Value one = x.like(y, 1);
  const Value left = x.b.select(odd(x, n), x.b.neg(one), one);
  const Value end = x.b.select(gt(x, y, 0), one, left);
  const Value r = recur(x, f, y, n, x.b.logical_not(at_end));
  return low_degrees(x, n, x.b.select(at_end, end, r));
}

// ---- Tables.

constexpr SpecialUnary kUnary[] = {
    {"aten::i0", kFloats, "i0_vml_cpu", i0},
    {"aten::special_i0e", kFloats, "i0e_cpu", i0e},
    {"aten::special_i1", kFloats, "i1_cpu", i1},
    {"aten::special_i1e", kFloats, "i1e_cpu", i1e},
    {"aten::special_entr", kFloats, "entr_cpu", entr},
    {"aten::special_airy_ai", kReal, "airy_ai_cpu", airy_ai},
    {"aten::special_bessel_j0", kReal, "bessel_j0_cpu", bessel_j0},
    {"aten::special_bessel_j1", kReal, "bessel_j1_cpu", bessel_j1},
    {"aten::special_bessel_y0", kReal, "bessel_y0_cpu", bessel_y0},
    {"aten::special_bessel_y1", kReal, "bessel_y1_cpu", bessel_y1},
    {"aten::special_erfcx", kReal, "erfcx_cpu", erfcx},
    {"aten::special_log_ndtr", kReal, "log_ndtr_cpu", log_ndtr},
    {"aten::special_modified_bessel_i0", kReal, "modified_bessel_i0_cpu", i0},
    {"aten::special_modified_bessel_i1", kReal, "modified_bessel_i1_cpu", i1},
    {"aten::special_modified_bessel_k0", kReal, "modified_bessel_k0_cpu", modified_k<0, false>},
    {"aten::special_modified_bessel_k1", kReal, "modified_bessel_k1_cpu", modified_k<1, false>},
    {"aten::special_ndtri", kReal, "ndtri_cpu", ndtri},
    {"aten::special_scaled_modified_bessel_k0", kReal, "scaled_modified_bessel_k0_cpu",
     modified_k<0, true>},
    {"aten::special_scaled_modified_bessel_k1", kReal, "scaled_modified_bessel_k1_cpu",
     modified_k<1, true>},
    {"aten::special_spherical_bessel_j0", kReal, "spherical_bessel_j0_cpu", spherical_bessel_j0},
};

// The degree counts as a whole number.
template <Value (*make)(Ctx&, Value, Value)>
Value of_degree(Ctx& x, Value v, Value n) {
  const Value whole = x.b.unary(Op::kFloor, abs(x, n));
  return make(x, v, x.b.select(lt(x, n, 0), x.b.neg(whole), whole));
}

constexpr SpecialBinary kBinary[] = {
    {"aten::special_chebyshev_polynomial_t", kReal, true, "chebyshev_polynomial_t_cpu",
     of_degree<chebyshev_polynomial<'t'>>},
    {"aten::special_chebyshev_polynomial_u", kReal, true, "chebyshev_polynomial_u_cpu",
     of_degree<chebyshev_polynomial<'u'>>},
    {"aten::special_chebyshev_polynomial_v", kReal, true, "chebyshev_polynomial_v_cpu",
     of_degree<chebyshev_polynomial<'v'>>},
    {"aten::special_chebyshev_polynomial_w", kReal, true, "chebyshev_polynomial_w_cpu",
     of_degree<chebyshev_polynomial<'w'>>},
    {"aten::special_shifted_chebyshev_polynomial_t", kReal, true,
     "shifted_chebyshev_polynomial_t_cpu", of_degree<shifted_chebyshev<'t'>>},
    {"aten::special_shifted_chebyshev_polynomial_u", kReal, true,
     "shifted_chebyshev_polynomial_u_cpu", of_degree<shifted_chebyshev<'u'>>},
    {"aten::special_shifted_chebyshev_polynomial_v", kReal, true,
     "shifted_chebyshev_polynomial_v_cpu", of_degree<shifted_chebyshev<'v'>>},
    {"aten::special_shifted_chebyshev_polynomial_w", kReal, true,
     "shifted_chebyshev_polynomial_w_cpu", of_degree<shifted_chebyshev<'w'>>},
    {"aten::special_hermite_polynomial_h", kReal, true, "hermite_polynomial_h_cpu",
     of_degree<hermite<true>>},
    {"aten::special_hermite_polynomial_he", kReal, true, "hermite_polynomial_he_cpu",
     of_degree<hermite<false>>},
    {"aten::special_laguerre_polynomial_l", kReal, true, "laguerre_polynomial_l_cpu",
     of_degree<laguerre>},
    {"aten::special_legendre_polynomial_p", kReal, true, "legendre_polynomial_p_cpu",
     of_degree<legendre>},
};

}  // namespace

void register_special(Registry& r) {
  register_unary(r, kUnary);
  register_binary(r, kBinary);
  register_gamma(r);
}

}  // namespace tpu::aten
