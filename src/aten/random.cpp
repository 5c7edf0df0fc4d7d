// Random fills and samples. Parameters that a schedule may change (mean, std, bounds, rates) are
// run-time numbers, checked at the call; checks of tensors are reported at the next sync. Supports
// and moments are those of PyTorch's CPU kernels, the streams are not: bits come from a
// counter-based generator.
#include "aten/random.h"

#include <cmath>
#include <limits>
#include <numbers>

#include "aten/all.h"
#include "aten/reduce.h"
#include "aten/scan.h"
#include "aten/sort.h"

namespace tpu::aten {

using ops::Cmp;
using ops::LayoutRule;
using ops::Number;
using ops::Op;
using ops::Scalar;
using ops::scalar_type_name;

void check_float(Context& x, const char* name, DType t) {
  x.check_supported(hlo::is_float(t) && !hlo::is_float8(t), "\"", name, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

namespace {

void check_continuous(Context& x, const char* name, DType t) {
  x.check(hlo::is_float(t), name,
          " distribution is a continuous probability distribution. dtype must be "
          "a floating point but you specified ",
          scalar_type_name(t));
}

// The spacing of t's numbers just below 1.
double epsilon(DType t) {
  switch (t) {
    case DType::kF64: return std::ldexp(1.0, -52);
    case DType::kF16: return std::ldexp(1.0, -10);
    case DType::kBF16: return std::ldexp(1.0, -7);
    default: return std::ldexp(1.0, -23);
  }
}

int significand_bits(DType t) {
  switch (t) {
    case DType::kF64: return 53;
    case DType::kF16: return 11;
    case DType::kBF16: return 8;
    default: return 24;
  }
}

// ---- uniform and normal.

void check_bounds(DType t, double from, double to) {
  const double largest = hlo::float_max(t);
  const auto inside = [&](double v) { return v >= -largest && v <= largest; };
  TPU_CHECK(inside(from), "from is out of bounds for ", ops::cpp_type_name(t));
  TPU_CHECK(inside(to), "to is out of bounds for ", ops::cpp_type_name(t));
  TPU_CHECK(from <= to, "uniform_ expects to return a [from, to) range, but found from=", from,
            " > to=", to);
  TPU_CHECK(to - from <= largest, "uniform_ expects to-from <= std::numeric_limits<",
            scalar_type_name(t), ">::max(), but found to=", to, " and from=", from,
            " which result in to-from to exceed the limit");
}

Value uniform(Context& x, Value self, Scalar from, Scalar to) {
  const DType t = self.dtype();
  if (hlo::is_complex(t)) {  // both parts alike
    Dims d = self.dims();
    d.insert(d.begin(), 2);
    const Value both = uniform(x, x.zeros({hlo::real_type(t), d}), from, to);
    return x.b.complex(x.b.reshape(x.b.slice_dim(both, 0, 0, 1), self.dims()),
                       x.b.reshape(x.b.slice_dim(both, 0, 1, 2), self.dims()));
  }
  check_float(x, "check_uniform_bounds", t);
  x.check_numbers([t](const Number& low, const Number& high) { check_bounds(t, low.d, high.d); },
                  from, to);
  const DType wide = hlo::compute_type(t);
  const Value low = x.scalar(from, wide), high = x.scalar(to, wide);
  const Value u = x.convert(x.uniform(t, self.dims()), wide);
  const Value span = x.broadcast(x.b.sub(high, low), self.dims());
  return x.convert(x.b.add(x.b.mul(u, span), x.broadcast(low, self.dims())), t);
}

// mean + std * n for standard normal n, in the compute type, rounded once.
Value shifted_normal(Context& x, Value mean, Value std, const Dims& dims, DType t) {
  const DType wide = hlo::compute_type(t);
  const Value n = x.normal(wide, dims);
  const Value spread = x.b.mul(n, x.broadcast(x.convert(std, wide), dims));
  return x.convert(x.b.add(spread, x.broadcast(x.convert(mean, wide), dims)), t);
}

void check_normal_type(Context& x, DType t) {
  x.check_supported((hlo::is_float(t) && !hlo::is_float8(t)) || hlo::is_complex(t),
                    "\"normal_kernel_cpu\" not implemented for '", scalar_type_name(t), "'");
}

Value std_value(Context& x, const Scalar& std, DType t) {
  x.check_numbers(
      [](const Number& n) {
        TPU_CHECK(n.d >= 0, "normal expects std >= 0.0, but found std ", n.d);
      },
      std);
  return x.scalar(std, hlo::real_type(hlo::compute_type(t)));
}

Value std_value(Context& x, Value std) {
  x.check(!hlo::is_complex(std.dtype()), "normal expects standard deviation to be non-complex");
  if (hlo::is_float(std.dtype()) || hlo::is_signed_integer(std.dtype())) {
    x.assert_none(x.b.compare(Cmp::kLt, std, x.like(std, 0)),
                  "normal expects all elements of std >= 0.0");
  }
  return std;
}

Value normal(Context& x, Value self, Scalar mean, Scalar std) {
  const DType t = self.dtype();
  check_normal_type(x, t);
  Value m = x.scalar(mean, hlo::real_type(hlo::compute_type(t)));
  if (hlo::is_complex(t)) m = x.b.complex(m, m);  // PyTorch fills both parts alike
  return shifted_normal(x, m, std_value(x, std, t), self.dims(), t);
}

// ---- bernoulli.

// In the type that probabilities are compared in: float64 keeps its resolution.
DType probability_type(DType t) { return t == DType::kF64 ? t : DType::kF32; }

Value bernoulli(Context& x, DType result, const Dims& dims, Value p) {
  x.check_supported(!hlo::is_complex(result), "\"bernoulli_scalar_cpu_\" not implemented for '",
                    scalar_type_name(result), "'");
  const Value u = x.uniform(p.dtype(), dims);
  return x.convert(x.b.compare(Cmp::kLt, u, x.broadcast(p, dims)), result);
}

Value bernoulli_by_tensor(Context& x, Value self, Value p) {
  check_float(x, "bernoulli_tensor_cpu_p_", p.dtype());
  const Value wide = x.convert(p, probability_type(p.dtype()));
  const Value ok = x.b.logical_and(x.b.compare(Cmp::kGe, wide, x.like(wide, 0)),
                                   x.b.compare(Cmp::kLe, wide, x.like(wide, 1)));
  x.assert_none(x.b.logical_not(ok), "Expected p_in >= 0 && p_in <= 1 to be true, but got false.");
  return bernoulli(x, self.dtype(), self.dims(), x.broadcast(wide, self.dims()));
}

// ---- Transformed uniforms.

// -log(1 - u). Small values have the resolution of all random bits, not of u's significand: the
// smallest of many such samples decides in multinomial and Gumbel sampling. Never 0, also after
// rounding to t, because quotients by it must stay finite.
Value standard_exponential(Context& x, DType wide, DType t, const Dims& dims) {
  if (hlo::product(dims) == 0) return x.zeros({wide, dims});
  const int bits = wide == DType::kF64 ? 64 : 32;
  const Value raw = x.b.convert(x.random_bits(bits == 64 ? DType::kU64 : DType::kU32, dims), wide);
  const Value below_1 = x.like(raw, 1 - epsilon(wide) / 2);
  const Value u = x.b.minimum(x.b.mul(raw, x.like(raw, std::ldexp(1.0, -bits))), below_1);
  const Value sample = x.b.neg(x.b.unary(Op::kLogPlusOne, x.b.neg(u)));
  return x.b.maximum(sample, x.like(u, t == wide ? std::ldexp(1.0, -bits - 1) : epsilon(t) / 2));
}

Value geometric(Context& x, Value self, Scalar p) {
  const DType t = self.dtype();
  x.check_number(
      p, [](double v) { return v > 0 && v < 1; },
      "geometric_ expects p to be in (0, 1), but got p={}");
  x.check_supported(!hlo::is_bool(t) && !hlo::is_complex(t),
                    "\"geometric_cpu\" not implemented for '", scalar_type_name(t), "'");
  const DType wide = t == DType::kF64 || t == DType::kI64 ? DType::kF64 : DType::kF32;
  const Value e = standard_exponential(x, wide, wide, self.dims());
  const Value rate = x.b.neg(x.b.unary(Op::kLogPlusOne, x.b.neg(x.scalar_like(p, e))));
  return x.convert(x.b.unary(Op::kCeil, x.b.div(e, rate)), t);
}

Value cauchy(Context& x, Value self, Scalar median, Scalar sigma) {
  const DType t = self.dtype();
  x.check_number(
      sigma, [](double v) { return v > 0; }, "cauchy_ expects sigma > 0.0, but found sigma={}");
  check_continuous(x, "Cauchy", t);
  const Value u = x.uniform(hlo::compute_type(t), self.dims());
  // Half a step up: u = 0 and u = 1/2 are drawn, and the tangent has its pole at the first.
  const Value centred =
      x.b.sub(u, x.like(u, 0.5 - std::ldexp(1.0, -significand_bits(u.dtype()) - 1)));
  const Value tangent = x.b.unary(Op::kTan, x.b.mul(centred, x.like(u, std::numbers::pi)));
  return x.convert(x.b.add(x.b.mul(tangent, x.scalar_like(sigma, u)), x.scalar_like(median, u)), t);
}

Value log_normal(Context& x, Value self, Scalar mean, Scalar std) {
  const DType t = self.dtype();
  x.check_number(
      std, [](double v) { return v > 0; }, "log_normal_ expects std > 0.0, but found std={}");
  check_float(x, "log_normal_cpu", t);
  const DType wide = hlo::compute_type(t);
  const Value n = x.normal(wide, self.dims());
  const Value moved = x.b.add(x.b.mul(n, x.scalar_like(std, n)), x.scalar_like(mean, n));
  return x.convert(x.b.unary(Op::kExponential, moved), t);
}

// ---- Integers.

// Integers in [0, size) for size in [1, 2^64), 0 meaning 2^64: 32 random bits each, or 64 where 32
// would favour some of them visibly.
Value integers_below(Context& x, uint64_t size, const Dims& dims) {
  const bool wide = size == 0 || size >= (uint64_t{1} << 28);
  const Value bits = x.random_bits(wide ? DType::kU64 : DType::kU32, dims);
  if (size == 0) return bits;
  if ((size & (size - 1)) == 0) {
    return x.b.binary(Op::kAnd, bits, x.b.splat(bits.type(), static_cast<int64_t>(size - 1)));
  }
  return x.b.binary(Op::kRemainder, bits, x.b.splat(bits.type(), static_cast<int64_t>(size)));
}

void check_random_type(Context& x, DType t) {
  x.check_supported(
      !hlo::is_complex(t) && !hlo::is_float8(t) && !(hlo::is_unsigned(t) && t != DType::kU8),
      "\"random_kernel_cpu\" not implemented for '", scalar_type_name(t), "'");
}

// start + [0, size), exact in 64 bits, as t.
Value random_range(Context& x, int64_t start, uint64_t size, Type type) {
  if (type.numel() == 0) return x.zeros(type);
  Value v = integers_below(x, size, type.dims);
  v = v.dtype() == DType::kU64 ? x.b.bitcast_convert(v, {DType::kI64, type.dims}) : v;
  // Small ranges stay in 32 bits.
  if (v.dtype() == DType::kU32) {
    v = x.b.bitcast_convert(v, {DType::kI32, type.dims});
    const auto last = static_cast<double>(start) + static_cast<double>(size);
    const bool narrow =
        start >= std::numeric_limits<int32_t>::min() && last <= std::numeric_limits<int32_t>::max();
    if (!narrow) v = x.b.convert(v, DType::kI64);
  }
  if (start != 0) v = x.b.add(v, x.b.splat(v.type(), start));
  return x.convert(v, type.dtype);
}

// Every value from 0 to the largest integer, or 2^digits of a floating type.
Value random_full(Context& x, Value self) {
  const DType t = self.dtype();
  check_random_type(x, t);
  if (hlo::is_float(t)) {
    return random_range(x, 0, (uint64_t{1} << significand_bits(t)) + 1, self.type());
  }
  return random_range(x, 0, static_cast<uint64_t>(hlo::integer_max(t)) + 1, self.type());
}

Value random_from_to(Context& x, Value self, int64_t from, Opt<int64_t> to) {
  const DType t = self.dtype();
  check_random_type(x, t);
  if (!to && from == std::numeric_limits<int64_t>::min()) {  // all of int64
    return random_range(x, from, 0, self.type());
  }
  const bool floating = hlo::is_float(t);
  const double largest = floating ? hlo::float_max(t) : static_cast<double>(hlo::integer_max(t));
  const double smallest = floating ? -largest : static_cast<double>(hlo::integer_min(t));
  x.check(t == DType::kI64 ||
              (static_cast<double>(from) >= smallest && static_cast<double>(from) <= largest),
          "from is out of bounds for ", ops::cpp_type_name(t));
  if (!to) {
    const int64_t last = floating ? int64_t{1} << significand_bits(t) : hlo::integer_max(t);
    x.check(from < last,
            "random_ expects 'from' casted to dtype to be less than or equal to "
            "'to_inc' casted to dtype, but got from=",
            from, " > to_inc=", last);
    return random_range(x, from, static_cast<uint64_t>(last) - static_cast<uint64_t>(from) + 1,
                        self.type());
  }
  x.check(from < *to, "random_ expects 'from' to be less than 'to', but got from=", from,
          " >= to=", *to);
  const auto last = static_cast<double>(*to - 1);
  x.check(t == DType::kI64 || (last >= smallest && last <= largest), "to - 1 is out of bounds for ",
          ops::cpp_type_name(t));
  return random_range(x, from, static_cast<uint64_t>(*to) - static_cast<uint64_t>(from),
                      self.type());
}

// 0 ... n - 1 ordered by random keys. Equal keys would keep their order, so the keys are wide
// enough for that to be rare.
Value random_permutation(Context& x, int64_t n, DType t) {
  x.check(n >= 0, "n must be non-negative, got", n);
  x.check_supported(!hlo::is_bool(t) && !hlo::is_complex(t) && !hlo::is_float8(t),
                    "\"randperm\" not implemented for '", scalar_type_name(t), "'");
  if (hlo::is_float(t)) {
    const int64_t limit = (int64_t{1} << significand_bits(t)) + 1;
    x.check(n <= limit, "n cannot be greater than ", limit, " for ", scalar_type_name(t), " type.");
  } else {
    x.check(t == DType::kI64 || t == DType::kU64 || n - 1 <= hlo::integer_max(t),
            "value cannot be converted to type ", hlo::torch_name(t), "_t without overflow");
  }
  if (n == 0) return x.zeros({t, {0}});
  const Value keys = x.random_bits(n <= 4096 ? DType::kU32 : DType::kU64, {n});
  const Values sorted =
      x.b.sort({keys, x.b.iota({position_type(n), {n}}, 0)}, 0, false,
               [&](const Values& a) { return Values{x.b.compare(Cmp::kLt, a[0], a[1])}; });
  return x.convert(sorted[1], t);
}

// ---- multinomial.

// First category whose cumulated probability exceeds a uniform number, for each of n draws a row.
Value draw_with_replacement(Context& x, Value p, int64_t n) {
  const int64_t rows = p.dim(0), k = p.dim(1);
  const Value zero = x.like(p, 0);
  // Rounding must not open a gap at a category of probability 0, so those repeat the one before.
  const Value sums =
      x.b.select(x.b.compare(Cmp::kGt, p, zero), cumulative(x, p, 1, Op::kAdd), zero);
  const Value ends = cumulative(x, sums, 1, Op::kMaximum);
  const Value total = x.broadcast(x.b.slice_dim(ends, 1, k - 1, k), {rows, n});
  const Value below_1 = x.like(total, 1 - epsilon(p.dtype()) / 2);
  const Value u = x.b.mul(total, x.b.minimum(x.uniform(p.dtype(), {rows, n}), below_1));
  return search_sorted(x, ends, u, true);
}

Value multinomial(Context& x, Value self, int64_t n, bool replacement) {
  const DType t = self.dtype();
  x.check(self.rank() == 1 || self.rank() == 2, "prob_dist must be 1 or 2 dim");
  x.check(hlo::is_float(t),
          "multinomial only supports floating-point dtypes for input, got: ", scalar_type_name(t));
  const int64_t k = self.dim(self.rank() - 1);
  x.check(n > 0, "cannot sample n_sample <= 0 samples");
  x.check(replacement || n <= k,
          "cannot sample n_sample > prob_dist.size(-1) samples without replacement");
  x.check(k <= (int64_t{1} << 24), "number of categories cannot exceed 2^24");
  Dims result = self.dims();
  result.back() = n;
  if (self.numel() == 0) return x.zeros({DType::kI64, result});
  const Value p = x.to_compute(x.b.reshape(self, {self.numel() / k, k}));
  const Value zero = x.like(p, 0);
  x.assert_none(x.b.logical_not(x.b.logical_and(x.b.compare(Cmp::kGe, p, zero), x.b.is_finite(p))),
                "probability tensor contains either `inf`, `nan` or element < 0");
  const Value sums = x.sum(p, {1});
  x.assert_none(x.b.compare(Cmp::kLe, sums, x.like(sums, 0)),
                "invalid multinomial distribution (sum of probabilities <= 0)");
  Value chosen;
  if (replacement && n > 1) {
    chosen = draw_with_replacement(x, p, n);
  } else {
    // The n largest of p / exponential noise are n draws without replacement.
    const Value scores = x.b.div(p, standard_exponential(x, p.dtype(), p.dtype(), p.dims()));
    chosen = n == 1 ? arg_reduce(x, scores, 1, true, true)[1] : x.b.top_k(scores, n)[1];
  }
  return x.b.reshape(x.convert(chosen, DType::kI64), result);
}

}  // namespace

void register_random(ops::Registry& r) {
  const auto like_self = LayoutRule::kLikeSelf;
  r.op("aten::uniform", uniform).random().layout(like_self);
  r.op("aten::normal_", normal).random().layout(like_self);
  r.op("aten::normal_functional", normal).random().layout(like_self);
  r.op("aten::normal.Tensor_float",
       [](Context& x, Value mean, Scalar std) {
         check_normal_type(x, mean.dtype());
         return shifted_normal(x, mean, std_value(x, std, mean.dtype()), mean.dims(), mean.dtype());
       })
      .random()
      .out_casts(true);
  r.op("aten::normal.float_Tensor",
       [](Context& x, Scalar mean, Value std) {
         check_normal_type(x, std.dtype());
         const Value m = x.scalar(mean, hlo::compute_type(std.dtype()));
         return shifted_normal(x, m, std_value(x, std), std.dims(), std.dtype());
       })
      .random()
      .out_casts(true);
  r.op("aten::normal.Tensor_Tensor",
       [](Context& x, Value mean, Value std) {
         check_normal_type(x, mean.dtype());
         const Dims dims = x.broadcast_dims({mean.dims(), std.dims()});
         return shifted_normal(x, mean, std_value(x, std), dims, mean.dtype());
       })
      .random()
      .out_casts(true);

  r.op("aten::bernoulli", [](Context& x, Value self) { return bernoulli_by_tensor(x, self, self); })
      .random()
      .out_casts(true);
  r.op("aten::bernoulli.Tensor", bernoulli_by_tensor).random().layout(like_self);
  r.op("aten::bernoulli.p", [](Context& x, Value self, Scalar p) {
     x.check_numbers(
         [](const Number& n) {
           TPU_CHECK(n.d >= 0 && n.d <= 1, "bernoulli_ expects p to be in [0, 1], but got p=", n.d);
         },
         p);
     return bernoulli(x, self.dtype(), self.dims(), x.scalar(p, probability_type(self.dtype())));
   }).random();

  r.op("aten::exponential",
       [](Context& x, Value self, Scalar lambd) {
         const DType t = self.dtype(), wide = hlo::compute_type(t);
         check_continuous(x, "Exponential", t);
         x.check_numbers(
             [](const Number& n) {
               TPU_CHECK(n.d > 0, "exponential_ expects lambda > 0.0, but found lambda=", n.d);
             },
             lambd);
         const Value e = standard_exponential(x, wide, t, self.dims());
         return x.convert(x.b.div(e, x.scalar_like(lambd, e)), t);
       })
      .random()
      .layout(like_self);
  r.op("aten::geometric", geometric).random().layout(like_self);
  r.op("aten::cauchy", cauchy).random().layout(like_self);
  r.op("aten::log_normal", log_normal).random().layout(like_self);

  r.op("aten::random", random_full).random().layout(like_self);
  r.op("aten::random.to",
       [](Context& x, Value self, int64_t to) { return random_from_to(x, self, 0, to); })
      .random()
      .layout(like_self);
  r.op("aten::random.from", random_from_to).random().layout(like_self);
  r.out_op("aten::randperm.generator_out", [](Context& x, Type out, int64_t n) {
     return random_permutation(x, n, out.dtype);
   }).random();
  r.op("aten::multinomial", multinomial).random();
  register_distributions(r);
}

}  // namespace tpu::aten
