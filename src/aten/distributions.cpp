// Samplers that reject or search, and the derivatives of samples with respect to parameters.
//
// A rejection loop runs until every element has been accepted; it carries the state of its own
// generator. Sources: Hörmann, "The transformed rejection method for generating Poisson random
// variables" (1993) and "The generation of binomial random variates" (1993); Marsaglia and Tsang,
// "A simple method for generating gamma variables" (2000). Derivatives are implicit ones: with the
// distribution function F and the density f, dx/da = -(dF/da) / f.
#include <cmath>
#include <functional>
#include <limits>
#include <numbers>

#include "aten/random.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Op;
using ops::scalar_type_name;

namespace {

// Arithmetic on one real type, with C++ operators: the formulas below are long enough as they are.
struct Real {
  Context* x;
  Value v;
};
Real splat(Real like, double c) { return {like.x, like.x->like(like.v, c)}; }
Real operator+(Real a, Real b) { return {a.x, a.x->b.add(a.v, b.v)}; }
Real operator-(Real a, Real b) { return {a.x, a.x->b.sub(a.v, b.v)}; }
Real operator*(Real a, Real b) { return {a.x, a.x->b.mul(a.v, b.v)}; }
Real operator/(Real a, Real b) { return {a.x, a.x->b.div(a.v, b.v)}; }
Real operator-(Real a) { return {a.x, a.x->b.neg(a.v)}; }
Real operator+(Real a, double c) { return a + splat(a, c); }
Real operator-(Real a, double c) { return a - splat(a, c); }
Real operator*(Real a, double c) { return a * splat(a, c); }
Real operator/(Real a, double c) { return a / splat(a, c); }
Real operator+(double c, Real a) { return splat(a, c) + a; }
Real operator-(double c, Real a) { return splat(a, c) - a; }
Real operator*(double c, Real a) { return splat(a, c) * a; }
Real operator/(double c, Real a) { return splat(a, c) / a; }
Real unary(Op op, Real a) { return {a.x, a.x->b.unary(op, a.v)}; }
Real log(Real a) { return unary(Op::kLog, a); }
Real log1p(Real a) { return unary(Op::kLogPlusOne, a); }
Real exp(Real a) { return unary(Op::kExponential, a); }
Real sqrt(Real a) { return unary(Op::kSqrt, a); }
Real floor(Real a) { return unary(Op::kFloor, a); }
Real abs(Real a) { return unary(Op::kAbs, a); }
Real digamma(Real a) { return unary(Op::kDigamma, a); }
Real max(Real a, Real b) { return {a.x, a.x->b.maximum(a.v, b.v)}; }
Real min(Real a, Real b) { return {a.x, a.x->b.minimum(a.v, b.v)}; }

struct Bool {
  Context* x;
  Value v;
};
Bool compare(Cmp c, Real a, Real b) { return {a.x, a.x->b.compare(c, a.v, b.v)}; }
Bool operator<(Real a, Real b) { return compare(Cmp::kLt, a, b); }
Bool operator<=(Real a, Real b) { return compare(Cmp::kLe, a, b); }
Bool operator>(Real a, Real b) { return compare(Cmp::kGt, a, b); }
Bool operator>=(Real a, Real b) { return compare(Cmp::kGe, a, b); }
Bool operator<(Real a, double c) { return a < splat(a, c); }
Bool operator<=(Real a, double c) { return a <= splat(a, c); }
Bool operator>(Real a, double c) { return a > splat(a, c); }
Bool operator>=(Real a, double c) { return a >= splat(a, c); }
Bool operator&(Bool a, Bool b) { return {a.x, a.x->b.logical_and(a.v, b.v)}; }
Bool operator|(Bool a, Bool b) { return {a.x, a.x->b.logical_or(a.v, b.v)}; }
Bool operator~(Bool a) { return {a.x, a.x->b.logical_not(a.v)}; }
Bool is_finite(Real a) { return {a.x, a.x->b.is_finite(a.v)}; }
Bool is_nan(Real a) { return compare(Cmp::kNe, a, a); }
Real select(Bool p, Real a, Real b) { return {p.x, p.x->b.select(p.v, a.v, b.v)}; }
Value all(Bool p) { return p.x->all(p.v, p.x->all_axes(p.v)); }

// ---- Loops.

// {new state, `count` arrays of uniform numbers in (0, 1) shaped and typed as `like`}.
std::pair<Value, std::vector<Real>> draw(Context& x, Value state, int64_t count, Value like) {
  const DType t = like.dtype();
  const bool wide = t == DType::kF64;
  Dims dims = like.dims();
  dims.insert(dims.begin(), count);
  const auto [next, raw] = x.b.rng_bit_generator(hlo::RngAlgorithm::kPhilox, state,
                                                 {wide ? DType::kU64 : DType::kU32, dims});
  const int bits = wide ? 52 : 23;
  const Value top = x.b.binary(Op::kShiftRightLogical, raw, x.like(raw, (wide ? 64 : 32) - bits));
  const Value whole =
      x.b.convert(x.b.bitcast_convert(top, {wide ? DType::kI64 : DType::kI32, dims}), t);
  const Value u =
      x.b.mul(x.b.add(whole, x.like(whole, 0.5)), x.like(whole, std::ldexp(1.0, -bits)));
  std::vector<Real> out;
  for (int64_t i = 0; i < count; ++i) {
    out.push_back({&x, x.b.reshape(x.b.slice_dim(u, 0, i, i + 1), like.dims())});
  }
  return {next, out};
}

struct Proposal {
  Real value;
  Bool accepted;
};

// Repeats `propose` with fresh uniform numbers until every element is `done` or accepted.
Real reject(Context& x, Bool done, Real initial, int64_t uniforms,
            const std::function<Proposal(const std::vector<Real>&)>& propose) {
  const Value state = x.random_bits(DType::kU64, {2});
  const Values r = x.b.while_loop(
      {state, done.v, initial.v},
      [&](const Values& a) { return Values{x.b.logical_not(all(Bool{&x, a[1]}))}; },
      [&](const Values& a) {
        const auto [next, u] = draw(x, a[0], uniforms, a[2]);
        const Bool before{&x, a[1]};
        const Proposal p = propose(u);
        return Values{next, (before | p.accepted).v, select(before, Real{&x, a[2]}, p.value).v};
      });
  return {&x, r[2]};
}

// Smallest k for which the cumulated probabilities reach u; the first is p0, then p *= ratio(k).
Real search(Context& x, Bool done, Real u, Real p0, const std::function<Real(Real k)>& ratio) {
  const Real zero = splat(u, 0);
  const Values r = x.b.while_loop(
      {done.v, zero.v, p0.v, u.v},
      [&](const Values& a) { return Values{x.b.logical_not(all(Bool{&x, a[0]}))}; },
      [&](const Values& a) {
        const Bool before{&x, a[0]};
        const Real k{&x, a[1]}, p{&x, a[2]}, left{&x, a[3]};
        const Bool reached = left <= p;
        const Real next = k + 1;
        const Real next_p = p * ratio(next);
        // Rounding may leave a rest that no probability covers.
        const Bool stop = before | reached | (next_p <= 0.0);
        return Values{stop.v, select(stop, k, next).v, select(stop, p, next_p).v,
                      select(stop, left, left - p).v};
      });
  return {&x, r[1]};
}

// What Stirling's formula for log k! lacks at k >= 0.
Real stirling_rest(Real k) {
  const Real n = k + 1, square = n * n;
  return (1 / 12.0 - (1 / 360.0 - 1 / 1260.0 / square) / square) / n;
}

// ---- poisson.

Real poisson_small(Context& x, Bool done, Real rate) {
  const Value u = x.uniform(rate.v.dtype(), rate.v.dims());
  return search(x, done, {&x, u}, exp(-rate), [&](Real k) { return rate / k; });
}

Real poisson_large(Context& x, Bool done, Real rate) {
  const Real b = 0.931 + 2.53 * sqrt(rate);
  const Real a = -0.059 + 0.02483 * b;
  const Real inv_alpha = 1.1239 + 1.1328 / (b - 3.4);
  const Real squeeze = 0.9277 - 3.6224 / (b - 2);
  return reject(x, done, splat(rate, 0), 2, [=](const std::vector<Real>& uniforms) {
    const Real u = uniforms[0] - 0.5, v = uniforms[1];
    const Real us = 0.5 - abs(u);
    const Real k = floor((2 * a / us + b) * u + rate + 0.43);
    const Bool inside = (us >= 0.07) & (v <= squeeze);
    const Bool outside = (k < 0.0) | ((us < 0.013) & (v > us));
    // log of the probability of k: -rate + k log rate - log k!, written so that large terms cancel
    // before they are rounded.
    const Real safe = max(k, splat(k, 0)), n = safe + 1;
    const Real delta = (n - rate) / rate;
    const Real log_p = -rate * ((1 + delta) * log1p(delta) - delta) - log(rate) +
                       0.5 * log(n / (2 * std::numbers::pi)) - stirling_rest(safe);
    const Bool exact = log(v * inv_alpha / (a / (us * us) + b)) <= log_p;
    return Proposal{k, inside | (~outside & exact)};
  });
}

// ---- binomial, for p <= 1/2.

Real binomial_small(Context& x, Bool done, Real count, Real p) {
  const Value u = x.uniform(count.v.dtype(), count.v.dims());
  const Real odds = p / (1 - p);
  return search(x, done, {&x, u}, exp(count * log1p(-p)),
                [&](Real k) { return (count - k + 1) / k * odds; });
}

Real binomial_large(Context& x, Bool done, Real count, Real p) {
  const Real q = 1 - p, deviation = sqrt(count * p * q);
  const Real b = 1.15 + 2.53 * deviation;
  const Real a = -0.0873 + 0.0248 * b + 0.01 * p;
  const Real centre = count * p + 0.5;
  const Real squeeze = 0.92 - 4.2 / b;
  const Real alpha = (2.83 + 5.1 / b) * deviation;
  const Real odds = p / q, mode = floor((count + 1) * p);
  const Real above = count - mode + 1;
  const Real at_mode = (mode + 0.5) * log((mode + 1) / (odds * above)) + stirling_rest(mode) +
                       stirling_rest(count - mode);
  return reject(x, done, splat(count, 0), 2, [=](const std::vector<Real>& uniforms) {
    const Real u = uniforms[0] - 0.5, v = uniforms[1];
    const Real us = 0.5 - abs(u);
    const Real k = floor((2 * a / us + b) * u + centre);
    const Bool inside = (us >= 0.07) & (v <= squeeze);
    const Bool outside = (k < 0.0) | (k > count);
    const Real safe = min(max(k, splat(k, 0)), count);
    const Real rest = count - safe + 1;
    const Real log_ratio = at_mode + (count + 1) * log1p((safe - mode) / rest) +
                           (safe + 0.5) * log(odds * rest / (safe + 1)) - stirling_rest(safe) -
                           stirling_rest(count - safe);
    const Bool exact = log(v * alpha / (a / (us * us) + b)) <= log_ratio;
    return Proposal{k, (inside & ~outside) | (~outside & exact)};
  });
}

Value poisson(Context& x, Value self) {
  const DType t = self.dtype();
  check_float(x, "poisson_cpu", t);
  if (self.numel() == 0) return self;
  const Real rate{&x, x.to_compute(self)};
  x.assert_none((rate < 0.0).v, "invalid Poisson rate, expected rate to be non-negative");
  const Bool none = ~(rate > 0.0) | ~is_finite(rate), large = (rate >= 10.0) & ~none;
  const Real as_it_is = select(rate < 0.0, splat(rate, 0), rate);
  // Elements of the other kind get a harmless rate and are done before they start.
  const Real small = poisson_small(x, large | none, select(large | none, splat(rate, 1), rate));
  const Real big = poisson_large(x, ~large, select(large, rate, splat(rate, 10)));
  return x.convert(select(large, big, select(none, as_it_is, small)).v, t);
}

Value binomial(Context& x, Value count, Value prob) {
  const DType t = count.dtype();
  x.check(hlo::is_float(t),
          "binomial only supports floating-point dtypes for count, got: ", scalar_type_name(t));
  x.check(hlo::is_float(prob.dtype()),
          "binomial only supports floating-point dtypes for prob, got: ",
          scalar_type_name(prob.dtype()));
  x.check(t == prob.dtype(), "Found dtype ", scalar_type_name(prob.dtype()), " but expected ",
          scalar_type_name(t));
  const Dims dims = x.broadcast_dims({count.dims(), prob.dims()});
  if (hlo::product(dims) == 0) return x.zeros({t, dims});
  const Real n{&x, x.broadcast(x.to_compute(count), dims)},
      p{&x, x.broadcast(x.to_compute(prob), dims)};
  const Bool flip = p > 0.5;
  const Real less = select(flip, 1 - p, p);
  const Bool none = ~(n > 0.0) | ~(p > 0.0), every = (p >= 1.0) | ~is_finite(n);
  const Bool trivial = none | every;
  const Bool large = (n * less >= 10.0) & ~trivial, small = ~large & ~trivial;
  const Real a =
      binomial_small(x, ~small, select(small, n, splat(n, 1)), select(small, less, splat(p, 0.5)));
  const Real b =
      binomial_large(x, ~large, select(large, n, splat(n, 40)), select(large, less, splat(p, 0.5)));
  const Real drawn = min(select(large, b, a), n);
  const Real r = select(flip, n - drawn, drawn);
  const Real edge = select(every & (n > 0.0), n, splat(n, 0));
  const Real result =
      select(is_nan(n) | is_nan(p), splat(n, std::nan("")), select(trivial, edge, r));
  return x.convert(result.v, t);
}

// ---- gamma and dirichlet.

// log of a standard gamma sample: for shapes below 1e-2 the sample itself underflows.
Real log_gamma_sample(Context& x, Real shape) {
  const Bool boost = shape < 1.0;
  const Real used = select(boost, shape + 1, shape);
  const Real d = used - 1 / 3.0, c = 1 / sqrt(9 * d);
  const Real sample =
      reject(x, ~(shape > 0.0), splat(shape, 0), 3, [=](const std::vector<Real>& u) {
        const Real angle = 2 * std::numbers::pi * u[1];
        const Real n = sqrt(-2 * log(u[0])) * unary(Op::kCosine, angle);
        const Real root = 1 + c * n, v = root * root * root;
        const Real safe = select(root > 0.0, v, splat(v, 1));
        const Bool good = log(u[2]) < 0.5 * n * n + d * (1 - safe + log(safe));
        return Proposal{log(d * safe), (root > 0.0) & good};
      });
  const Value state = x.random_bits(DType::kU64, {2});
  const Real u = draw(x, state, 1, shape.v).second[0];
  const Real scaled = select(boost, sample + log(u) / shape, sample);
  return select(shape > 0.0, scaled, splat(shape, -std::numeric_limits<double>::infinity()));
}

double smallest_normal(DType t) {
  return t == DType::kF64 ? 2.2250738585072014e-308 : 1.17549435e-38;
}

void check_wide_float(Context& x, const char* name, DType t) {
  x.check_supported(t == DType::kF32 || t == DType::kF64, "\"", name, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

Value standard_gamma(Context& x, Value self) {
  check_wide_float(x, "gamma_cpu", self.dtype());
  if (self.numel() == 0) return self;
  const Real sample = exp(log_gamma_sample(x, {&x, self}));
  return max(sample, splat(sample, smallest_normal(self.dtype()))).v;
}

Value sample_dirichlet(Context& x, Value self) {
  const DType t = self.dtype();
  check_wide_float(x, "dirichlet", t);
  x.check_index(self.rank() > 0, "Dimension specified as -1 but tensor has no dimensions");
  if (self.numel() == 0) return self;
  const int64_t last = self.rank() - 1;
  const Real logs = log_gamma_sample(x, {&x, self});
  const Value top = x.max(logs.v, {last}, true);
  const Value e = x.b.unary(Op::kExponential, x.binary(Op::kSubtract, logs.v, top));
  const Value share = x.binary(Op::kDivide, e, x.sum(e, {last}, true));
  const double epsilon = t == DType::kF64 ? std::ldexp(1.0, -52) : std::ldexp(1.0, -23);
  return x.b.clamp(x.constant(t, smallest_normal(t)), share, x.constant(t, 1 - epsilon));
}

// ---- Derivatives of samples.

constexpr int64_t kMaxTerms = 5000;

// Runs `step` on `state` until its second result says that all elements have converged.
std::vector<Real> iterate(
    Context& x, const std::vector<Real>& initial,
    const std::function<std::pair<std::vector<Real>, Bool>(const std::vector<Real>&, Real)>& step) {
  Values state{x.constant(DType::kI32, 0), x.constant(DType::kBool, 0)};
  for (const Real& r : initial) state.push_back(r.v);
  const Value like = state[2];
  const Values end = x.b.while_loop(
      state,
      [&](const Values& a) {
        return Values{
            x.b.logical_and(x.b.compare(Cmp::kLt, a[0], x.constant(DType::kI32, kMaxTerms)),
                            x.b.logical_not(a[1]))};
      },
      [&](const Values& a) {
        const Value n = x.b.add(a[0], x.constant(DType::kI32, 1));
        std::vector<Real> now;
        for (size_t i = 2; i < a.size(); ++i) now.push_back({&x, a[i]});
        const auto [next, done] =
            step(now, {&x, x.broadcast(x.b.convert(n, like.dtype()), like.dims())});
        Values r{n, all(done)};
        for (const Real& v : next) r.push_back(v.v);
        return r;
      });
  std::vector<Real> out;
  for (size_t i = 2; i < end.size(); ++i) out.push_back({&x, end[i]});
  return out;
}

double precision_of(DType t) { return std::ldexp(1.0, t == DType::kF64 ? -53 : -24); }

// F(a, x) = x^a e^-x / Gamma(a + 1) * S, S = sum of x^n / ((a + 1) ... (a + n)).
Real gamma_gradient_series(Context& x, Real a, Real s) {
  const Real one = splat(a, 1), zero = splat(a, 0);
  const double eps = precision_of(a.v.dtype());
  // term, sum of 1 / (a + j), S, dS/da
  const auto r = iterate(x, {one, zero, one, zero}, [&](const std::vector<Real>& now, Real n) {
    const Real term = now[0] * s / (a + n), harmonic = now[1] + 1 / (a + n);
    const Bool done = ~(term > now[2] * eps) & (n > s - a);
    return std::pair{std::vector{term, harmonic, now[2] + term, now[3] - term * harmonic}, done};
  });
  return -(s / a) * (r[2] * (log(s) - digamma(a + 1)) + r[3]);
}

// 1 - F(a, x) = x^a e^-x / Gamma(a) * C with Legendre's continued fraction C, by Lentz's method;
// C's logarithmic derivative is summed along.
Real gamma_gradient_fraction(Context& x, Real a, Real s) {
  const Real b0 = s + 1 - a, zero = splat(a, 0);
  const double eps = precision_of(a.v.dtype());
  // C and its derivative start from infinity: 1 / C_0 = 0.
  const Real d0 = 1 / b0;
  // numerator ratio's inverse, its derivative, denominator ratio, its derivative, value, log
  // derivative
  const auto r =
      iterate(x, {zero, zero, d0, d0 * d0, d0, d0}, [&](const std::vector<Real>& now, Real n) {
        const Real k = n * (a - n), b = b0 + 2 * n;
        const Real d = 1 / (b + k * now[2]);
        const Real dd = -d * d * (-1 + n * now[2] + k * now[3]);
        const Real c = b + k * now[0];
        const Real dc = -1 + n * now[0] + k * now[1];
        const Real inverse = 1 / c, factor = c * d;
        const Real log_step = dc * inverse + dd / d;
        const Bool done =
            (abs(factor - 1) <= 4 * eps) & (abs(log_step) <= 4 * eps * (abs(now[5]) + 1e-3));
        return std::pair{std::vector{inverse, -dc * inverse * inverse, d, dd, now[4] * factor,
                                     now[5] + log_step},
                         done};
      });
  return s * r[4] * (log(s) - digamma(a) + r[5]);
}

Value standard_gamma_grad(Context& x, Value self, Value output) {
  check_wide_float(x, "_standard_gamma_grad_cpu", self.dtype());
  const Dims dims = x.broadcast_dims({self.dims(), output.dims()});
  if (hlo::product(dims) == 0) return x.zeros({self.dtype(), dims});
  const Real a{&x, x.broadcast(self, dims)},
      s{&x, x.broadcast(x.convert(output, self.dtype()), dims)};
  const Bool series = s <= a + 1.0, valid = (a > 0.0) & (s > 0.0);
  const Real one = splat(a, 1), three = splat(a, 3);
  const Bool left = series & valid, right = ~series & valid;
  const Real by_series = gamma_gradient_series(x, select(left, a, one), select(left, s, one));
  const Real by_fraction =
      gamma_gradient_fraction(x, select(right, a, one), select(right, s, three));
  return select(valid, select(series, by_series, by_fraction), splat(a, 0)).v;
}

// B(x; a, b) = x^a (1 - x)^b / a * S with S = sum of (a + b)_n / (a + 1)_n x^n. Gives {S, dS/da,
// dS/db}.
std::vector<Real> beta_series(Context& x, Real s, Real a, Real b) {
  const Real one = splat(a, 1), zero = splat(a, 0);
  const double eps = precision_of(a.v.dtype());
  // term, d log term / da, d log term / db, S, dS/da, dS/db
  const auto r =
      iterate(x, {one, zero, zero, one, zero, zero}, [&](const std::vector<Real>& now, Real n) {
        const Real up = a + b + n - 1, down = a + n;
        const Real term = now[0] * s * up / down;
        const Real by_b = now[2] + 1 / up, by_a = now[1] + 1 / up - 1 / down;
        const Bool done = ~(term > now[3] * eps) & (s * up < down);
        return std::pair{std::vector{term, by_a, by_b, now[3] + term, now[4] + term * by_a,
                                     now[5] + term * by_b},
                         done};
      });
  return {r[3], r[4], r[5]};
}

// The sample x of a Beta(alpha, total - alpha) marginal, differentiated by alpha, over 1 - x.
Value dirichlet_grad(Context& x, Value sample, Value alpha, Value total) {
  check_wide_float(x, "_dirichlet_grad_cpu", sample.dtype());
  const Dims dims = x.broadcast_dims({sample.dims(), alpha.dims(), total.dims()});
  if (hlo::product(dims) == 0) return x.zeros({sample.dtype(), dims});
  const Real s{&x, x.broadcast(sample, dims)}, a{&x, x.broadcast(alpha, dims)};
  const Real sum{&x, x.broadcast(total, dims)}, b = sum - a;
  // The series converges fast below the mean; above it the mirrored distribution is used.
  const Bool left = s * (sum + 2) <= a + 1;
  const Real y = select(left, s, 1 - s), p = select(left, a, b), q = select(left, b, a);
  const auto series = beta_series(x, y, p, q);
  const Real by_alpha = series[0] * (log(y) - digamma(p) + digamma(sum) - 1 / p) + series[1];
  const Real by_beta = series[0] * (log1p(-y) - digamma(q) + digamma(sum)) + series[2];
  // -(dF/da) / f / (1 - x); mirrored, F = 1 - F'.
  return select(left, -(s / p) * by_alpha, (s / p) * by_beta).v;
}

}  // namespace

void register_distributions(ops::Registry& r) {
  r.op("aten::poisson", poisson).random();
  r.op("aten::binomial", binomial).random();
  r.op("aten::_standard_gamma", standard_gamma).random();
  r.op("aten::_sample_dirichlet", sample_dirichlet).random();
  r.op("aten::_standard_gamma_grad", standard_gamma_grad).elementwise();
  r.op("aten::_dirichlet_grad", dirichlet_grad).elementwise();
}

}  // namespace tpu::aten
