#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numbers>
#include <span>

#include "aten/all.h"
#include "aten/elementwise.h"
#include "aten/special_tables.h"

namespace tpu::aten {
namespace {

using ops::Registry;

constexpr double kPi = std::numbers::pi;
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInf = std::numeric_limits<double>::infinity();

bool is_double(Value v) { return v.dtype() == DType::kF64; }
double epsilon(Value v) { return is_double(v) ? 0x1p-53 : 0x1p-24; }

Value one_minus(Ctx& x, Value v) { return x.b.sub(x.like(v, 1), v); }
Value square(Ctx& x, Value v) { return x.b.mul(v, v); }
Value sine(Ctx& x, Value v) { return x.b.unary(Op::kSine, v); }
Value cosine(Ctx& x, Value v) { return x.b.unary(Op::kCosine, v); }
Value over(Ctx& x, double c, Value v) { return x.b.div(x.like(v, c), v); }
Value lgamma(Ctx& x, Value v) { return x.b.unary(Op::kLgamma, v); }
Value power(Ctx& x, Value v, Value e) { return x.b.binary(Op::kPower, v, e); }

// sum c_k T_k(t) by Clenshaw's recurrence; float32 leaves out the terms it cannot see.
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

// c_0 + c_1 v + ... by Horner's rule.
Value polynomial(Ctx& x, std::span<const double> c, Value v) {
  Value r = x.like(v, c.back());
  for (size_t k = c.size() - 1; k > 0; --k) r = plus(x, x.b.mul(r, v), c[k - 1]);
  return r;
}

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
  const std::span<const double> table = order == 0 ? std::span<const double>(kK0Far) : std::span<const double>(kK1Far);
  Value far = x.b.div(chebyshev(x, table, plus(x, over(x, 4, v), -1)), sqrt(x, v));
  if (!scaled) far = x.b.mul(far, exp(x, x.b.neg(v)));
  return on_positive(x, v, x.b.select(le(x, v, 2), near, far), kInf);
}

// ---- Bessel functions of order 0 and 1: to 8 a series in x^2, above it Hankel's form with amplitude
// and phase, sqrt(2 / (pi x)) (P cos(chi) -+ Q sin(chi)), chi = x - (2 order + 1) pi / 4 (DLMF 10.17.3).

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
  constexpr double kSeries[] = {1, -1.0 / 6, 1.0 / 120, -1.0 / 5040, 1.0 / 362880, -1.0 / 39916800, 1.0 / 6227020800.0};
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
  const Value decay = x.b.mul(exp(x, x.b.neg(z)), chebyshev(x, kAiryFar, plus(x, over(x, 2 * z2, z), -1)));
  const Value positive = times(x, x.b.div(decay, fourth), 0.5 * std::numbers::inv_sqrtpi);
  // sin(z + pi/4) P - cos(z + pi/4) Q
  const Value w = recip(x, z), t = plus(x, times(x, square(x, w), 2 * z7 * z7), -1);
  const Value p = chebyshev(x, kAiryP, t), q = x.b.mul(w, chebyshev(x, kAiryQ, t));
  const Value s = sine(x, z), c = cosine(x, z);
  const Value wave = x.b.sub(x.b.mul(x.b.add(s, c), p), x.b.mul(x.b.sub(c, s), q));
  const Value negative = times(x, x.b.div(wave, fourth), std::numbers::inv_sqrtpi / std::numbers::sqrt2);
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
  constexpr double kA[] = {3.3871328727963666080e0, 1.3314166789178437745e2, 1.9715909503065514427e3,
                           1.3731693765509461125e4, 4.5921953931549871457e4, 6.7265770927008700853e4,
                           3.3430575583588128105e4, 2.5090809287301226727e3};
  constexpr double kB[] = {1, 4.2313330701600911252e1, 6.8718700749205790830e2, 5.3941960214247511077e3,
                           2.1213794301586595867e4, 3.9307895800092710610e4, 2.8729085735721942674e4,
                           5.2264952788528545610e3};
  constexpr double kC[] = {1.42343711074968357734e0, 4.63033784615654529590e0, 5.76949722146069140550e0,
                           3.64784832476320460504e0, 1.27045825245236838258e0, 2.41780725177450611770e-1,
                           2.27238449892691845833e-2, 7.74545014278341407640e-4};
  constexpr double kD[] = {1, 2.05319162663775882187e0, 1.67638483018380384940e0, 6.89767334985100004550e-1,
                           1.48103976427480074590e-1, 1.51986665636164571966e-2, 5.47593808499534494600e-4,
                           1.05075007164441684324e-9};
  constexpr double kE[] = {6.65790464350110377720e0, 5.46378491116411436990e0, 1.78482653991729133580e0,
                           2.96560571828504891230e-1, 2.65321895265761230930e-2, 1.24266094738807843860e-3,
                           2.71155556874348757815e-5, 2.01033439929228813265e-7};
  constexpr double kF[] = {1, 5.99832206555887937690e-1, 1.36929880922735805310e-1, 1.48753612908506148525e-2,
                           7.86869131145613259100e-4, 1.84631831751005468180e-5, 1.42151175831644588870e-7,
                           2.04426310338993978564e-15};
  const auto ratio = [&](std::span<const double> top, std::span<const double> bottom, Value v) {
    return x.b.div(polynomial(x, top, v), polynomial(x, bottom, v));
  };
  const Value q = plus(x, p, -0.5);
  const Value center = x.b.mul(q, ratio(kA, kB, x.b.sub(x.like(q, 0.180625), square(x, q))));
  const Value tail = x.b.select(lt(x, q, 0), p, one_minus(x, p));
  const Value r = sqrt(x, x.b.neg(log(x, tail)));
  const Value outer = x.b.select(le(x, r, 5), ratio(kC, kD, plus(x, r, -1.6)), ratio(kE, kF, plus(x, r, -5)));
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

// ---- Gamma family.

Value digamma(Ctx& x, Value v) {
  const Value pole = x.b.select(sign_bit(x, v), x.like(v, kInf), x.like(v, -kInf));
  return x.b.select(is_zero(x, v), pole, x.b.unary(Op::kDigamma, v));
}

// Recurrence to above 6 and the asymptotic series (DLMF 5.15.5, 5.15.8); reflection below 1/2 (5.15.6).
Value trigamma(Ctx& x, Value v) {
  const Value reflect = lt(x, v, 0.5);
  Value a = x.b.select(reflect, one_minus(x, v), v);
  Value sum = zero_like(x, v);
  for (int i = 0; i < 6; ++i) {
    sum = x.b.add(sum, recip(x, square(x, a)));
    a = plus(x, a, 1);
  }
  constexpr double kSeries[] = {1.0 / 6, -1.0 / 30, 1.0 / 42, -1.0 / 30, 5.0 / 66, -691.0 / 2730, 7.0 / 6};
  const Value w = recip(x, a), w2 = square(x, w);
  const Value series = plus(x, x.b.add(times(x, w, 0.5), x.b.mul(w2, polynomial(x, kSeries, w2))), 1);
  const Value direct = x.b.add(sum, x.b.mul(series, w));
  const Value s = sine(x, times(x, v, kPi));
  const Value mirrored = x.b.sub(x.b.div(x.like(v, kPi * kPi), square(x, s)), direct);
  return x.b.select(reflect, mirrored, direct);
}

// Hurwitz zeta by Euler and Maclaurin (DLMF 25.11.5) from the first q + k above 9.
Value zeta(Ctx& x, Value s, Value q) {
  const Value minus_s = x.b.neg(s);
  const Values loop = x.b.while_loop(
      {x.b.constant(DType::kI32, 0), q, power(x, q, minus_s), zero_like(x, q)},
      [&](const Values& v) {
        const Value low = x.any(x.b.logical_and(le(x, v[1], 9), x.b.is_finite(v[1])), x.all_axes(v[1]));
        return Values{x.b.logical_or(lt(x, v[0], 9), low)};
      },
      [&](const Values& v) {
        // The first nine terms are for all elements, the others for those that begin far below.
        const Value active = x.b.logical_or(x.broadcast(lt(x, v[0], 9), q.dims()), le(x, v[1], 9));
        const Value a = plus(x, v[1], 1), term = power(x, a, minus_s);
        return Values{plus(x, v[0], 1), x.b.select(active, a, v[1]), x.b.select(active, x.b.add(v[2], term), v[2]),
                      x.b.select(active, term, v[3])};
      });
  const Value w = loop[1], last = loop[3];
  // B_2j / (2j)!
  constexpr double kBernoulli[] = {1.0 / 12,          -1.0 / 720,          1.0 / 30240,          -1.0 / 1209600,
                                   1.0 / 47900160,    -5.284190138687493e-10, 1.3382536530684679e-11,
                                   -3.3896802963225827e-13, 8.586062056277845e-15, -2.174868698558062e-16,
                                   5.509002828360229e-18, -1.3954464685812523e-19};
  Value sum = x.b.add(loop[2], x.b.div(x.b.mul(last, w), plus(x, s, -1)));
  sum = x.b.sub(sum, times(x, last, 0.5));
  Value factor = x.b.div(x.b.mul(last, s), w);
  const size_t terms = is_double(s) ? std::size(kBernoulli) : 6;
  for (size_t j = 0; j < terms; ++j) {
    sum = x.b.add(sum, times(x, factor, kBernoulli[j]));
    const double k = 2.0 * static_cast<double>(j);
    const Value rising = x.b.mul(plus(x, s, k + 1), plus(x, s, k + 2));
    factor = x.b.div(x.b.mul(factor, rising), square(x, w));
  }
  // A first term that no other changes: s is large.
  const Value first = power(x, q, minus_s);
  const Value next = power(x, plus(x, q, 1), minus_s);
  const Value only_first = x.b.compare(Cmp::kLt, abs(x, next), times(x, abs(x, first), epsilon(s)));
  sum = x.b.select(only_first, first, sum);
  const Value whole_q = x.b.compare(Cmp::kEq, q, x.b.unary(Op::kFloor, q));
  const Value whole_s = x.b.compare(Cmp::kEq, s, x.b.unary(Op::kFloor, s));
  const Value below = x.b.select(whole_q, x.like(q, kInf), x.b.select(whole_s, sum, x.like(q, kNan)));
  const Value r = x.b.select(le(x, q, 0), below, sum);
  const Value at_one = x.b.select(is_zero(x, plus(x, s, -1)), x.like(s, kInf), r);
  const Value bad = x.b.logical_or(lt(x, s, 1), x.b.logical_or(x.is_nan(s), x.is_nan(q)));
  return x.b.select(bad, x.like(s, kNan), at_one);
}

Value polygamma(Ctx& x, int64_t n, Value self) {
  x.check(n >= 0, "polygamma(n, x) does not support negative n.");
  const Value v = x.to_float(self);
  check_dtype(x, v.dtype(), kFloats, n == 0 ? "digamma" : n == 1 ? "trigamma" : "polygamma");
  return in_compute(x, v, [&](Value c) {
    if (n == 0) return digamma(x, c);
    if (n == 1) return trigamma(x, c);
    // (-1)^(n + 1) n! zeta(n + 1, x), DLMF 25.11.12
    const double factorial = std::tgamma(static_cast<double>(n) + 1);
    const Value z = zeta(x, x.like(c, static_cast<double>(n + 1)), c);
    return times(x, z, n % 2 == 1 ? factorial : -factorial);
  });
}

// ---- Regularised incomplete gamma functions P(a, x) and Q(a, x) (DLMF 8.2.4).

// a ln(a / x) + x - a, without cancellation near x = a (Loader 2000).
Value deviance(Ctx& x, Value a, Value v) {
  const Value d = x.b.sub(v, a);
  const Value t = x.b.div(d, x.b.add(v, a)), t2 = square(x, t);
  std::vector<double> series;
  for (int j = 1; j <= (is_double(a) ? 14 : 7); ++j) series.push_back(1.0 / (2 * j + 1));
  const Value tail = x.b.mul(x.b.mul(times(x, a, 2), t), x.b.mul(t2, polynomial(x, series, t2)));
  const Value near = x.b.sub(x.b.mul(t, d), tail);
  const Value far = x.b.add(x.b.mul(a, log(x, x.b.div(a, v))), d);
  return x.b.select(x.b.compare(Cmp::kLe, abs(x, d), times(x, a, 0.4)), near, far);
}

// ln Gamma(1 + a), to the last bit near a = 0. a >= 0.
Value log_gamma_1p(Ctx& x, Value a) {
  const Value near = x.b.mul(a, chebyshev(x, kLogGamma, plus(x, times(x, a, 1.6), -1)));
  return x.b.select(lt(x, a, 1.25), near, lgamma(x, plus(x, a, 1)));
}

// x^a exp(-x) / Gamma(a + 1): for larger a through Stirling's series (DLMF 5.11.1).
Value poisson(Ctx& x, Value a, Value v, Value dev) {
  constexpr double kStirling[] = {1.0 / 12, -1.0 / 360, 1.0 / 1260, -1.0 / 1680, 1.0 / 1188, -691.0 / 360360, 1.0 / 156,
                                  -3617.0 / 122400};
  const Value w = recip(x, a);
  const Value stirling = x.b.mul(w, polynomial(x, kStirling, square(x, w)));
  const Value large = x.b.div(exp(x, x.b.neg(x.b.add(stirling, dev))), sqrt(x, times(x, a, 2 * kPi)));
  const Value exponent = x.b.sub(x.b.sub(x.b.mul(a, log(x, v)), v), log_gamma_1p(x, a));
  return x.b.select(ge(x, a, is_double(a) ? 10 : 3), large, exp(x, exponent));
}

struct Igamma {
  Value p, q;
};

Igamma igamma(Ctx& x, Value a, Value v) {
  const double eps = epsilon(a);
  const Value one = x.like(a, 1);
  const Value dev = deviance(x, a, v);
  const Value density = poisson(x, a, v, dev);

  // Temme's uniform expansion where a is large and x close (DLMF 8.12.3-4, 8.12.7).
  const Value d = x.b.sub(v, a);
  const Value close = x.b.compare(Cmp::kLt, abs(x, d), times(x, sqrt(x, a), 4.5));
  const Value uniform = x.b.logical_and(gt(x, a, 200), close);
  const Value root = sqrt(x, x.b.maximum(dev, zero_like(x, dev)));
  const Value eta_size = x.b.div(times(x, root, std::numbers::sqrt2), sqrt(x, a));
  const Value below = lt(x, d, 0);
  const Value eta = x.b.select(below, x.b.neg(eta_size), eta_size);
  const Value w = recip(x, a);
  const size_t orders = is_double(a) ? 8 : 4, terms = is_double(a) ? 18 : 9;
  Value sum = zero_like(x, a);
  for (size_t k = orders; k > 0; --k) {
    sum = x.b.add(x.b.mul(sum, w), polynomial(x, std::span(kTemme[k - 1]).first(terms), eta));
  }
  const Value correction = x.b.div(x.b.mul(exp(x, x.b.neg(dev)), sum), sqrt(x, times(x, a, 2 * kPi)));
  const Value signed_root = x.b.select(below, x.b.neg(root), root);
  const auto half_erfc = [&](Value z) { return times(x, x.b.unary(Op::kErfc, z), 0.5); };
  const Value uniform_q = x.b.add(half_erfc(signed_root), correction);
  const Value uniform_p = x.b.sub(half_erfc(x.b.neg(signed_root)), correction);

  // Q by its own power series for small x (DLMF 8.7.3), where 1 - P would lose it.
  const Value log_v = log(x, v);
  Value power_term = one, small_sum = zero_like(x, a);
  for (int n = 1; n <= (is_double(a) ? 22 : 13); ++n) {
    power_term = times(x, x.b.mul(power_term, v), -1.0 / n);
    small_sum = x.b.add(small_sum, x.b.div(power_term, plus(x, a, n)));
  }
  const Value exponent = x.b.sub(x.b.mul(a, log_v), log_gamma_1p(x, a));
  const Value head = x.b.neg(x.b.unary(Op::kExponentialMinusOne, exponent));
  const Value small_q = x.b.sub(head, x.b.mul(x.b.mul(a, exp(x, exponent)), small_sum));
  const Value tiny_bound = x.b.compare(Cmp::kGe, over(x, -0.4, log_v), a);
  const Value small_bound = x.b.compare(Cmp::kGe, times(x, v, 1.1), a);
  const Value use_small = x.b.logical_and(le(x, v, 1.1), x.b.select(le(x, v, 0.5), tiny_bound, small_bound));

  // P by the series of DLMF 8.7.1, Q by the continued fraction of 8.9.2 (modified Lentz), both at once.
  const Value ordinary = x.b.logical_and(x.b.logical_and(gt(x, a, 0), gt(x, v, 0)),
                                         x.b.logical_and(x.b.is_finite(a), x.b.is_finite(v)));
  const Value iterated = x.b.logical_and(ordinary, x.b.logical_not(uniform));
  const Value above = x.b.logical_and(gt(x, v, 1.1), x.b.compare(Cmp::kGe, v, a));
  const Value use_fraction = x.b.logical_and(iterated, above);
  const Value use_series = x.b.logical_and(iterated, x.b.logical_not(above));
  const double smallest = is_double(a) ? 1e-300 : 1e-30;
  const auto not_zero = [&](Value z) { return x.b.select(lt(x, abs(x, z), smallest), x.like(z, smallest), z); };
  const Value b_start = x.b.add(plus(x, v, 1), x.b.neg(a));
  const Value d_start = recip(x, not_zero(b_start));
  // n, term, sum; b, c, d, fraction, its last factor
  const Values loop = x.b.while_loop(
      {x.constant(a.dtype(), 0), one, one, b_start, x.like(a, 1 / smallest), d_start, d_start, x.like(a, 2)},
      [&](const Values& s) {
        const Value series_open = x.b.compare(Cmp::kGt, s[1], times(x, s[2], eps));
        const Value fraction_open = gt(x, abs(x, plus(x, s[7], -1)), 2 * eps);
        const Value open = x.b.logical_or(x.b.logical_and(use_series, series_open),
                                          x.b.logical_and(use_fraction, fraction_open));
        return Values{x.b.logical_and(lt(x, s[0], 2000), x.any(open, x.all_axes(open)))};
      },
      [&](const Values& s) {
        const Value n = plus(x, s[0], 1), wide = x.broadcast(n, a.dims());
        const Value term = x.b.mul(s[1], x.b.div(v, x.b.add(a, wide)));
        const Value numerator = x.b.mul(wide, x.b.sub(a, wide));
        const Value b = plus(x, s[3], 2);
        const Value next_d = recip(x, not_zero(x.b.add(x.b.mul(numerator, s[5]), b)));
        const Value c = not_zero(x.b.add(b, x.b.div(numerator, s[4])));
        const Value factor = x.b.mul(next_d, c);
        return Values{n, term, x.b.add(s[2], term), b, c, next_d, x.b.mul(s[6], factor), factor};
      });
  const Value series_p = x.b.mul(density, loop[2]);
  const Value fraction_q = x.b.mul(x.b.mul(density, a), loop[6]);

  const Value plain_q = x.b.select(use_small, small_q, x.b.select(use_fraction, fraction_q, one_minus(x, series_p)));
  const Value p_from_q = x.b.logical_and(gt(x, v, 1), x.b.compare(Cmp::kGt, v, a));
  const Value plain_p = x.b.select(p_from_q, one_minus(x, plain_q), series_p);
  Value p = x.b.select(uniform, uniform_p, plain_p);
  // Edges: x = 0, a = 0, infinities, and arguments outside the domain.
  const Value inf_v = x.b.compare(Cmp::kEq, v, x.like(v, kInf)), inf_a = x.b.compare(Cmp::kEq, a, x.like(a, kInf));
  const Value zero_a = is_zero(x, a), zero_v = is_zero(x, v);
  const Value is_one = x.b.logical_or(inf_v, x.b.logical_and(zero_a, gt(x, v, 0)));
  const Value is_none = x.b.logical_or(zero_v, inf_a);
  const Value bad = x.b.logical_or(x.b.logical_or(x.b.logical_and(zero_a, zero_v), x.b.logical_and(inf_a, inf_v)),
                                   x.b.logical_or(x.b.logical_or(lt(x, a, 0), lt(x, v, 0)),
                                                  x.b.logical_or(x.is_nan(a), x.is_nan(v))));
  const auto edges = [&](Value r, double at_one, double at_none) {
    const Value inner = x.b.select(is_none, x.like(a, at_none), r);
    return x.b.select(bad, x.like(a, kNan), x.b.select(is_one, x.like(a, at_one), inner));
  };
  p = edges(p, 1, 0);
  return {p, edges(x.b.select(uniform, uniform_q, plain_q), 0, 1)};
}

// ---- Orthogonal polynomials (DLMF 18.9): p_0 = 1, p_1 = first, then the recurrence with run-time n.

struct Family {
  Value (*first)(Ctx&, Value y);
  Value (*step)(Ctx&, Value y, Value k, Value p, Value q);  // p_(k+1) from p_(k-1) = p, p_k = q
};

Value chebyshev_step(Ctx& x, Value y, Value, Value p, Value q) { return x.b.sub(x.b.mul(times(x, y, 2), q), p); }

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
                   return kind == 'u' ? times(c, z, 2) : plus(c, times(c, z, 2), kind == 'v' ? -1 : 1);
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

struct Unary {
  const char* name;
  uint8_t classes;
  const char* kernel;
  Value (*make)(Ctx&, Value);
};
constexpr Unary kUnary[] = {
    {"aten::digamma", kFloats, "digamma", digamma},
    {"aten::lgamma", kFloats, "lgamma_vml_cpu", lgamma},
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
    {"aten::special_scaled_modified_bessel_k0", kReal, "scaled_modified_bessel_k0_cpu", modified_k<0, true>},
    {"aten::special_scaled_modified_bessel_k1", kReal, "scaled_modified_bessel_k1_cpu", modified_k<1, true>},
    {"aten::special_spherical_bessel_j0", kReal, "spherical_bessel_j0_cpu", spherical_bessel_j0},
};

struct Binary {
  const char* name;
  uint8_t classes;
  bool to_float;  // integers become the default dtype
  const char* kernel;
  Value (*make)(Ctx&, Value, Value);
};

// The degree counts as a whole number.
template <Value (*make)(Ctx&, Value, Value)>
Value of_degree(Ctx& x, Value v, Value n) {
  const Value whole = x.b.unary(Op::kFloor, abs(x, n));
  return make(x, v, x.b.select(lt(x, n, 0), x.b.neg(whole), whole));
}

constexpr Binary kBinary[] = {
    {"aten::special_zeta", kReal, true, "zeta_cpu", zeta},
    {"aten::igamma", kFloats, false, "igamma_cpu", [](Ctx& x, Value a, Value v) { return igamma(x, a, v).p; }},
    {"aten::igammac", kFloats, false, "igammac_cpu", [](Ctx& x, Value a, Value v) { return igamma(x, a, v).q; }},
    {"aten::special_chebyshev_polynomial_t", kReal, true, "chebyshev_polynomial_t_cpu",
     of_degree<chebyshev_polynomial<'t'>>},
    {"aten::special_chebyshev_polynomial_u", kReal, true, "chebyshev_polynomial_u_cpu",
     of_degree<chebyshev_polynomial<'u'>>},
    {"aten::special_chebyshev_polynomial_v", kReal, true, "chebyshev_polynomial_v_cpu",
     of_degree<chebyshev_polynomial<'v'>>},
    {"aten::special_chebyshev_polynomial_w", kReal, true, "chebyshev_polynomial_w_cpu",
     of_degree<chebyshev_polynomial<'w'>>},
    {"aten::special_shifted_chebyshev_polynomial_t", kReal, true, "shifted_chebyshev_polynomial_t_cpu",
     of_degree<shifted_chebyshev<'t'>>},
    {"aten::special_shifted_chebyshev_polynomial_u", kReal, true, "shifted_chebyshev_polynomial_u_cpu",
     of_degree<shifted_chebyshev<'u'>>},
    {"aten::special_shifted_chebyshev_polynomial_v", kReal, true, "shifted_chebyshev_polynomial_v_cpu",
     of_degree<shifted_chebyshev<'v'>>},
    {"aten::special_shifted_chebyshev_polynomial_w", kReal, true, "shifted_chebyshev_polynomial_w_cpu",
     of_degree<shifted_chebyshev<'w'>>},
    {"aten::special_hermite_polynomial_h", kReal, true, "hermite_polynomial_h_cpu", of_degree<hermite<true>>},
    {"aten::special_hermite_polynomial_he", kReal, true, "hermite_polynomial_he_cpu", of_degree<hermite<false>>},
    {"aten::special_laguerre_polynomial_l", kReal, true, "laguerre_polynomial_l_cpu", of_degree<laguerre>},
    {"aten::special_legendre_polynomial_p", kReal, true, "legendre_polynomial_p_cpu", of_degree<legendre>},
};

}  // namespace

void register_special(Registry& r) {
  for (const Unary& u : kUnary) {
    r.op(u.name, [u](Ctx& x, Value self) {
       const Value v = x.to_float(self);
       check_dtype(x, v.dtype(), u.classes, u.kernel);
       return in_compute(x, v, [&](Value c) { return u.make(x, c); });
     }).elementwise();
  }
  for (const Binary& k : kBinary) {
    r.op(k.name, [k](Ctx& x, Value self, Value other) {
       DType t = x.promote(self, other);
       if (k.to_float) t = x.float_type(t);
       check_dtype(x, t, k.classes, k.kernel);
       const auto [p, q] = x.broadcast_all(hlo::compute_type(t), self, other);
       return x.convert(k.make(x, p, q), t);
     }).elementwise();
  }
  r.op("aten::polygamma", polygamma).elementwise();
  // sum of lgamma(x - j / 2), DLMF 35.3.4
  r.op("aten::mvlgamma", [](Ctx& x, Value self, int64_t p) {
     x.check(p >= 1, "p has to be greater than or equal to 1");
     const Value v = x.to_float(self);
     check_dtype(x, v.dtype(), kFloats, "mvlgamma");
     return in_compute(x, v, [&](Value c) {
       const auto order = static_cast<double>(p);
       Value sum = x.like(c, order * (order - 1) / 4 * std::log(kPi));
       for (int64_t j = 0; j < p; ++j) sum = x.b.add(sum, lgamma(x, plus(x, c, -0.5 * static_cast<double>(j))));
       return sum;
     });
   }).elementwise();
}

}  // namespace tpu::aten
