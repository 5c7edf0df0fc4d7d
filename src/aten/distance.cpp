#include <cmath>
#include <limits>
#include <utility>
#include <vector>

#include "aten/elementwise.h"
#include "aten/loss.h"

namespace tpu::aten {
namespace {

using ops::Registry;
using ops::scalar_type_name;

Value square(Ctx& x, Value v) { return x.b.mul(v, v); }

// Distances between rows: x1 [..., P, M], x2 [..., R, M] -> [..., P, R].

const double kInf = std::numeric_limits<double>::infinity();

// |d| summed (p = 1), counted (0), its largest (inf), ... along the last axis.
Value norm_of(Ctx& x, Value d, double p) {
  const Dims last{d.rank() - 1};
  const Value a = abs(x, d);
  if (p == 0) return x.sum(x.b.convert(x.b.compare(Cmp::kNe, d, zero_like(x, d)), d.dtype()), last);
  if (p == 1) return x.sum(a, last);
  if (p == 2) return sqrt(x, x.sum(square(x, d), last));
  if (p == kInf) return x.reduce(a, x.constant(a.dtype(), 0), last, false, Op::kMaximum);
  const auto power = [&](Value v, double e) { return x.b.binary(Op::kPower, v, x.like(v, e)); };
  return power(x.sum(power(a, p), last), 1 / p);
}

// Slope of the distance `dist` in each element of the difference d (dims of d).
Value norm_slope(Ctx& x, Value d, Value dist, double p) {
  if (p == 0) return zero_like(x, d);
  const Value s = sign(x, d);
  if (p == 1) return s;
  const Value zero = zero_like(x, d);
  if (p == kInf) return x.b.select(x.b.compare(Cmp::kEq, abs(x, d), dist), s, zero);
  const Value same = is_zero(x, dist);
  const Value safe = x.b.select(same, x.like(dist, 1), dist);
  if (p == 2) return x.b.select(same, zero, x.b.div(d, safe));
  const auto power = [&](Value v, double e) { return x.b.binary(Op::kPower, v, x.like(v, e)); };
  const Value r = x.b.mul(s, x.b.div(power(abs(x, d), p - 1), power(safe, p - 1)));
  // Below 1 the slope at 0 is infinite; CPU drops it.
  return x.b.select(x.b.logical_or(same, is_zero(x, d)), zero, r);
}

struct Pairs {
  Value left, right;  // [..., P, R, M]
};
Pairs pair_rows(Ctx& x, Value x1, Value x2) {
  Dims batch1(x1.dims().begin(), x1.dims().end() - 2),
      batch2(x2.dims().begin(), x2.dims().end() - 2);
  Dims dims = x.broadcast_dims({batch1, batch2});
  dims.insert(dims.end(), {x1.dim(x1.rank() - 2), x2.dim(x2.rank() - 2), x1.dim(x1.rank() - 1)});
  return {x.broadcast(x.unsqueeze(x1, -2), dims), x.broadcast(x.unsqueeze(x2, -3), dims)};
}

void check_cdist(Ctx& x, Value x1, Value x2, double p) {
  for (const auto& [v, name] : {std::pair{x1, "X1"}, std::pair{x2, "X2"}}) {
    x.check(v.rank() >= 2, "cdist only supports at least 2D tensors, ", name, " got: ", v.rank(),
            "D");
    x.check(hlo::is_float(v.dtype()), "cdist only supports floating-point dtypes, ", name,
            " got: ", scalar_type_name(v.dtype()));
  }
  x.check(x1.dim(x1.rank() - 1) == x2.dim(x2.rank() - 1),
          "X1 and X2 must have the same number of columns. X1: ", x1.dim(x1.rank() - 1),
          " X2: ", x2.dim(x2.rank() - 1));
  x.check(p >= 0, "cdist only supports non-negative p values");
  x.check(x1.dtype() == x2.dtype(), "expected scalar type ", scalar_type_name(x1.dtype()),
          " but found ", scalar_type_name(x2.dtype()));
  check_dtype(x, x1.dtype(), kReal, "cdist");
}

// |a|^2 + |b|^2 - 2 a b: a matrix product instead of P R M differences.
Value euclidean_by_product(Ctx& x, Value x1, Value x2) {
  const Dims batch = x.broadcast_dims(
      {Dims(x1.dims().begin(), x1.dims().end() - 2), Dims(x2.dims().begin(), x2.dims().end() - 2)});
  const auto expand = [&](Value v) {
    Dims d = batch;
    d.insert(d.end(), {v.dim(v.rank() - 2), v.dim(v.rank() - 1)});
    return x.broadcast(v, d);
  };
  const Value a = expand(x1), b = expand(x2);
  const Value product = wide_matmul(x, a, b, true);
  const int64_t last = a.rank() - 1;
  const Value aa = x.unsqueeze(x.sum(square(x, a), {last}), -1),
              bb = x.unsqueeze(x.sum(square(x, b), {last}), -2);
  const Value sum = x.b.add(x.broadcast(aa, product.dims()), x.broadcast(bb, product.dims()));
  const Value squared = x.b.sub(sum, times(x, product, 2));
  return sqrt(x, x.b.maximum(squared, zero_like(x, squared)));
}

Value cdist(Ctx& x, Value x1, Value x2, double p, const Opt<int64_t>& compute_mode) {
  check_cdist(x, x1, x2, p);
  const int64_t mode = compute_mode.value_or(0);
  x.check(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  const bool large = x1.dim(x1.rank() - 2) > 25 || x2.dim(x2.rank() - 2) > 25;
  if (p == 2 && (mode == 1 || (mode == 0 && large))) return euclidean_by_product(x, x1, x2);
  const Pairs pairs = pair_rows(x, x1, x2);
  return norm_of(x, x.b.sub(pairs.left, pairs.right), p);
}

Value cdist_backward(Ctx& x, Value grad, Value x1, Value x2, double p, Value dist) {
  if (grad.numel() == 0 || x1.numel() == 0 || x2.numel() == 0) return x.zeros(x1.type());
  const Pairs pairs = pair_rows(x, x1, x2);
  const Value d = x.b.sub(pairs.left, pairs.right);
  const auto spread = [&](Value v) { return x.broadcast(x.unsqueeze(v, -1), d.dims()); };
  return x.sum(x.b.mul(norm_slope(x, d, spread(dist), p), spread(grad)), {d.rank() - 2});
}

// Position of the pair (i, j), i < j, among the n (n - 1) / 2 distances, for all i and j ([n, n]):
// symmetric; 0 on the diagonal, which `off_diagonal` masks.
struct PairIndex {
  Value position, off_diagonal;
};
PairIndex pair_index(Ctx& x, int64_t n) {
  const Type t{DType::kI32, {n, n}};
  const Value i = x.b.iota(t, 0), j = x.b.iota(t, 1);
  const Value low = x.b.minimum(i, j), high = x.b.maximum(i, j);
  // low n - low (low + 1) / 2 + high - low - 1
  const Value triangle = x.b.div(x.b.mul(low, plus(x, low, 1)), x.like(low, 2));
  const Value start = x.b.sub(times(x, low, static_cast<double>(n)), triangle);
  const Value off = x.b.compare(Cmp::kNe, i, j);
  const Value position = plus(x, x.b.add(start, x.b.sub(high, low)), -1);
  return {x.b.select(off, position, x.like(position, 0)), off};
}

}  // namespace

void register_distance(Registry& r) {
  r.op("aten::_cdist_forward", cdist);
  r.op("aten::_cdist_backward", cdist_backward);
  r.op("aten::_pdist_forward", [](Ctx& x, Value self, double p) {
    x.check(self.rank() == 2, "pdist only supports 2D tensors, got: ", self.rank(), "D");
    check_dtype(x, self.dtype(), kReal, "pdist");
    x.check(p >= 0, "pdist only supports non-negative p values");
    const int64_t n = self.dim(0), count = n * (n - 1) / 2;
    if (count <= 0) return x.zeros({self.dtype(), {0}});
    // All pairs, of which the upper triangle is read.
    const Pairs pairs = pair_rows(x, self, self);
    const Value all = norm_of(x, x.b.sub(pairs.left, pairs.right), p);
    std::vector<int64_t> index;
    index.reserve(at(count));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) index.push_back(i * n + j);
    }
    return take(x, x.b.reshape(all, {n * n}), x.b.constant_ints(index, {DType::kI32, {count}}), 0,
                true);
  });
  r.op("aten::_pdist_backward", [](Ctx& x, Value grad, Value self, double p, Value dist) {
    const int64_t n = self.dim(0);
    if (n < 2 || self.numel() == 0) return x.zeros(self.type());
    const PairIndex k = pair_index(x, n);
    const Value flat = x.b.reshape(k.position, {n * n});
    const auto matrix = [&](Value v) {
      const Value m = x.b.reshape(take(x, v, flat, 0), {n, n});
      return x.b.select(k.off_diagonal, m, zero_like(x, m));
    };
    return cdist_backward(x, matrix(grad), self, self, p, matrix(dist));
  });
}

}  // namespace tpu::aten
