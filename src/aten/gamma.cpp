#include <cmath>
#include <numbers>
#include <span>
#include <vector>

#include "aten/elementwise.h"
#include "aten/special.h"
#include "aten/special_tables.h"

namespace tpu::aten {
namespace {

Value digamma(Ctx& x, Value v) {
  const Value pole = x.b.select(sign_bit(x, v), x.like(v, kInf), x.like(v, -kInf));
  return x.b.select(is_zero(x, v), pole, x.b.unary(Op::kDigamma, v));
}

// Recurrence to above 6 and the asymptotic series (DLMF 5.15.5, 5.15.8); reflection below 1/2
// (5.15.6).
Value trigamma(Ctx& x, Value v) {
  const Value reflect = lt(x, v, 0.5);
  Value a = x.b.select(reflect, one_minus(x, v), v);
  Value sum = zero_like(x, v);
  for (int i = 0; i < 6; ++i) {
    sum = x.b.add(sum, recip(x, square(x, a)));
    a = plus(x, a, 1);
  }
  constexpr double kSeries[] = {1.0 / 6,  -1.0 / 30,     1.0 / 42, -1.0 / 30,
                                5.0 / 66, -691.0 / 2730, 7.0 / 6};
  const Value w = recip(x, a), w2 = square(x, w);
  const Value series =
      plus(x, x.b.add(times(x, w, 0.5), x.b.mul(w2, polynomial(x, kSeries, w2))), 1);
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
        const Value low =
            x.any(x.b.logical_and(le(x, v[1], 9), x.b.is_finite(v[1])), x.all_axes(v[1]));
        return Values{x.b.logical_or(lt(x, v[0], 9), low)};
      },
      [&](const Values& v) {
        // The first nine terms are for all elements, the others for those that begin far below.
        const Value active = x.b.logical_or(x.broadcast(lt(x, v[0], 9), q.dims()), le(x, v[1], 9));
        const Value a = plus(x, v[1], 1), term = power(x, a, minus_s);
        return Values{plus(x, v[0], 1), x.b.select(active, a, v[1]),
                      x.b.select(active, x.b.add(v[2], term), v[2]),
                      x.b.select(active, term, v[3])};
      });
  const Value w = loop[1], last = loop[3];
  // B_2j / (2j)!
  constexpr double kBernoulli[] = {1.0 / 12,
                                   -1.0 / 720,
                                   1.0 / 30240,
                                   -1.0 / 1209600,
                                   1.0 / 47900160,
                                   -5.284190138687493e-10,
                                   1.3382536530684679e-11,
                                   -3.3896802963225827e-13,
                                   8.586062056277845e-15,
                                   -2.174868698558062e-16,
                                   5.509002828360229e-18,
                                   -1.3954464685812523e-19};
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
  const Value below =
      x.b.select(whole_q, x.like(q, kInf), x.b.select(whole_s, sum, x.like(q, kNan)));
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
  constexpr double kStirling[] = {1.0 / 12,   -1.0 / 360,      1.0 / 1260, -1.0 / 1680,
                                  1.0 / 1188, -691.0 / 360360, 1.0 / 156,  -3617.0 / 122400};
  const Value w = recip(x, a);
  const Value stirling = x.b.mul(w, polynomial(x, kStirling, square(x, w)));
  const Value large =
      x.b.div(exp(x, x.b.neg(x.b.add(stirling, dev))), sqrt(x, times(x, a, 2 * kPi)));
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
  const Value correction =
      x.b.div(x.b.mul(exp(x, x.b.neg(dev)), sum), sqrt(x, times(x, a, 2 * kPi)));
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
  const Value use_small =
      x.b.logical_and(le(x, v, 1.1), x.b.select(le(x, v, 0.5), tiny_bound, small_bound));

  // P by the series of DLMF 8.7.1, Q by the continued fraction of 8.9.2 (modified Lentz), both at
  // once.
  const Value ordinary = x.b.logical_and(x.b.logical_and(gt(x, a, 0), gt(x, v, 0)),
                                         x.b.logical_and(x.b.is_finite(a), x.b.is_finite(v)));
  const Value iterated = x.b.logical_and(ordinary, x.b.logical_not(uniform));
  const Value above = x.b.logical_and(gt(x, v, 1.1), x.b.compare(Cmp::kGe, v, a));
  const Value use_fraction = x.b.logical_and(iterated, above);
  const Value use_series = x.b.logical_and(iterated, x.b.logical_not(above));
  const double smallest = is_double(a) ? 1e-300 : 1e-30;
  const auto not_zero = [&](Value z) {
    return x.b.select(lt(x, abs(x, z), smallest), x.like(z, smallest), z);
  };
  const Value b_start = x.b.add(plus(x, v, 1), x.b.neg(a));
  const Value d_start = recip(x, not_zero(b_start));
  // n, term, sum; b, c, d, fraction, its last factor
  const Values loop = x.b.while_loop(
      {x.constant(a.dtype(), 0), one, one, b_start, x.like(a, 1 / smallest), d_start, d_start,
       x.like(a, 2)},
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

  const Value plain_q =
      x.b.select(use_small, small_q, x.b.select(use_fraction, fraction_q, one_minus(x, series_p)));
  // Wherever the fraction was: the series may have stopped early there.
  const Value p_from_q = x.b.logical_and(gt(x, v, 1), x.b.compare(Cmp::kGe, v, a));
  const Value plain_p = x.b.select(p_from_q, one_minus(x, plain_q), series_p);
  Value p = x.b.select(uniform, uniform_p, plain_p);
  // Edges: x = 0, a = 0, infinities, and arguments outside the domain.
  const Value inf_v = x.b.compare(Cmp::kEq, v, x.like(v, kInf)),
              inf_a = x.b.compare(Cmp::kEq, a, x.like(a, kInf));
  const Value zero_a = is_zero(x, a), zero_v = is_zero(x, v);
  const Value is_one = x.b.logical_or(inf_v, x.b.logical_and(zero_a, gt(x, v, 0)));
  const Value is_none = x.b.logical_or(zero_v, inf_a);
  const Value bad =
      x.b.logical_or(x.b.logical_or(x.b.logical_and(zero_a, zero_v), x.b.logical_and(inf_a, inf_v)),
                     x.b.logical_or(x.b.logical_or(lt(x, a, 0), lt(x, v, 0)),
                                    x.b.logical_or(x.is_nan(a), x.is_nan(v))));
  const auto edges = [&](Value r, double at_one, double at_none) {
    const Value inner = x.b.select(is_none, x.like(a, at_none), r);
    return x.b.select(bad, x.like(a, kNan), x.b.select(is_one, x.like(a, at_one), inner));
  };
  p = edges(p, 1, 0);
  return {p, edges(x.b.select(uniform, uniform_q, plain_q), 0, 1)};
}

constexpr SpecialUnary kUnary[] = {
    {"aten::digamma", kFloats, "digamma", digamma},
    {"aten::lgamma", kFloats, "lgamma_vml_cpu", lgamma},
};
constexpr SpecialBinary kBinary[] = {
    {"aten::special_zeta", kReal, true, "zeta_cpu", zeta},
    {"aten::igamma", kFloats, false, "igamma_cpu",
     [](Ctx& x, Value a, Value v) { return igamma(x, a, v).p; }},
    {"aten::igammac", kFloats, false, "igammac_cpu",
     [](Ctx& x, Value a, Value v) { return igamma(x, a, v).q; }},
};

}  // namespace

void register_gamma(ops::Registry& r) {
  register_unary(r, kUnary);
  register_binary(r, kBinary);
  r.op("aten::polygamma", polygamma).elementwise();
  // sum of lgamma(x - j / 2), DLMF 35.3.4
  r.op("aten::mvlgamma", [](Ctx& x, Value self, int64_t p) {
     x.check(p >= 1, "p has to be greater than or equal to 1");
     const Value v = x.to_float(self);
     check_dtype(x, v.dtype(), kFloats, "mvlgamma");
     return in_compute(x, v, [&](Value c) {
       const auto order = static_cast<double>(p);
       Value sum = x.like(c, order * (order - 1) / 4 * std::log(kPi));
       for (int64_t j = 0; j < p; ++j)
         sum = x.b.add(sum, lgamma(x, plus(x, c, -0.5 * static_cast<double>(j))));
       return sum;
     });
   }).out_casts(true);
}

}  // namespace tpu::aten
