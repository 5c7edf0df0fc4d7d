// L D L^T (or L D L^H) of indefinite matrices with Bunch and Kaufman's pivoting, in LAPACK's form:
// D has blocks of one or two rows. A pair of negative pivots marks a block of two. Matrices of a
// batch may choose differently, so every one has its own position k.
#include <cmath>

#include "aten/linalg.h"

namespace tpu::aten {

using ops::scalar_type_name;

namespace {

// One position a matrix ([batch] int32), and what is done there.
struct At {
  Context& x;
  int64_t n;

  Value numbers(Value v) const { return row_numbers(x, v.dims(), 1); }
  // v [batch, n, ...] where a comparison of the row number with k [batch] holds, else 0.
  Value where(Value v, Cmp c, Value k) const {
    return x.b.select(mask(v.dims(), c, k), v, x.like(v, 0));
  }
  Value mask(const Dims& d, Cmp c, Value k) const {
    return x.b.compare(c, row_numbers(x, d, 1), x.b.broadcast_in_dim(k, d, {0}));
  }
  Value row(Value v, Value k) const {  // v[b, k[b]]
    Dims d = v.dims();
    d.erase(d.begin() + 1);
    return x.b.reshape(gather_rows(x, v, x.b.reshape(in_range(k), {k.dim(0), 1})), d);
  }
  Value in_range(Value k) const { return x.b.clamp(int32(x, 0), k, int32(x, n - 1)); }
  // Rows p and q of v exchanged.
  Value exchanged(Value v, Value p, Value q) const {
    const Dims d{v.dim(0), v.dim(1)};
    const Value number = row_numbers(x, d, 1);
    const auto spread = [&](Value k) { return x.b.broadcast_in_dim(k, d, {0}); };
    const Value source =
        x.b.select(x.b.compare(Cmp::kEq, number, spread(p)), spread(q),
                   x.b.select(x.b.compare(Cmp::kEq, number, spread(q)), spread(p), number));
    return gather_rows(x, v, source);
  }
};

Value size_of(Context& x, Value v) {  // LAPACK's measure
  if (!hlo::is_complex(v.dtype())) return x.b.unary(Op::kAbs, v);
  return x.b.add(x.b.unary(Op::kAbs, x.b.real(v)), x.b.unary(Op::kAbs, x.b.imag(v)));
}

Value plus(Context& x, Value k, Value flag) { return x.b.add(k, x.b.convert(flag, DType::kI32)); }

// The block of D at k: [[d11, d12], [d21, d22]], or [[d11, 0], [0, 1]] where it has one row.
struct Block {
  Value d11, d12, d21, d22;
};

Block block_at(const At& at, Value full, Value k, Value two, bool hermitian) {
  Context& x = at.x;
  const Value next = plus(x, k, two);
  const Value row_k = at.row(full, k), row_next = at.row(full, next);
  const auto pick = [&](Value row, Value column) { return at.row(row, column); };
  const Value d21 = x.b.select(two, pick(row_next, k), x.like(pick(row_next, k), 0));
  const Value d22 = pick(row_next, next);
  return {pick(row_k, k), hermitian ? conjugated(x, d21) : d21, d21,
          x.b.select(two, d22, x.like(d22, 1))};
}

Value times(Context& x, Value v, Value per_matrix) {  // v [batch, ...] by one number a matrix
  return x.b.mul(v, x.b.broadcast_in_dim(per_matrix, v.dims(), {0}));
}

// [w1 w2] D^-1
std::pair<Value, Value> right_solve(Context& x, const Block& d, Value w1, Value w2) {
  const Value det = x.b.sub(x.b.mul(d.d11, d.d22), x.b.mul(d.d12, d.d21));
  const Value safe = x.b.select(x.b.compare(Cmp::kEq, det, x.like(det, 0)), x.like(det, 1), det);
  const auto over = [&](Value v) { return x.b.div(v, x.b.broadcast_in_dim(safe, v.dims(), {0})); };
  return {over(x.b.sub(times(x, w1, d.d22), times(x, w2, d.d21))),
          over(x.b.sub(times(x, w2, d.d11), times(x, w1, d.d12)))};
}

std::array<Value, 3> ldl_factor_ex(Context& x, Value a, bool hermitian, bool check_errors) {
  check_square(x, "torch.linalg.ldl_factor_ex", a);
  check_kernel_type(x, "ldl_factor_kernel_cpu", a.dtype());
  const Dims batch = batch_dims(a);
  const int64_t n = rows(a), count = hlo::product(batch);
  const Value info = x.zeros({DType::kI32, {count}});
  if (a.numel() == 0)
    return {a, with_batch(x, x.zeros({DType::kI32, {count, n}}), batch),
            with_batch(x, info, batch)};
  hermitian &= hlo::is_complex(a.dtype());
  const auto check_info = [&](Value found) {
    if (!check_errors) return;
    x.assert_none(x.b.compare(Cmp::kNe, found, x.like(found, 0)),
                  "torch.linalg.ldl_factor_ex: The factor D has a zero on its diagonal: the matrix "
                  "is singular.",
                  ErrorKind::kLinAlg);
  };
  if (x.has_lapack()) {
    const Value matrices = one_batch(x, a);
    const Values r = lapack(x, "ldl_factor", {matrices},
                            {matrices.type(), {DType::kI32, {count, n}}, info.type()},
                            {{"hermitian", hermitian}});
    check_info(r[2]);
    return {with_batch(x, r[0], batch), with_batch(x, r[1], batch), with_batch(x, r[2], batch)};
  }
  const DType t = a.dtype();
  const At at{x, n};
  const auto mirrored = [&](Value v) { return hermitian ? adjoint(x, v) : transposed(x, v); };

  const Value flat = lower_triangle(x, one_batch(x, a)), strict = lower_triangle(x, flat, -1);
  Value full = x.b.add(flat, mirrored(strict));
  if (hermitian) {  // the diagonal is real by definition
    const Value diagonal = x.convert(x.b.real(diagonal_of(x, flat)), t);
    const Value unit = identity_like(x, {count}, n, n, t);
    full = x.b.add(x.b.add(strict, mirrored(strict)), scale_columns(x, unit, diagonal));
  }
  const Value k0 = x.zeros({DType::kI32, {count}}), limit = x.b.splat({DType::kI32, {count}}, n);
  const double alpha = (1 + std::sqrt(17.0)) / 8;

  // State: k, the trailing matrix (whole and mirrored), L and D, pivots, info.
  const Values end = x.b.while_loop(
      {k0, full, x.like(full, 0), x.zeros({DType::kI32, {count, n}}), info},
      [&](const Values& s) { return Values{x.any(x.b.compare(Cmp::kLt, s[0], limit), {0})}; },
      [&](const Values& s) -> Values {
        const Value k = s[0], active = x.b.compare(Cmp::kLt, k, limit);
        const Value column_size = size_of(x, at.row(s[1], k));  // of a row or of its mirror image
        const Value own = at.row(column_size, k);
        const Value below = at.where(column_size, Cmp::kGt, k);
        const Value largest = x.max(below, {1});
        const Value hit = x.b.logical_and(
            x.b.compare(Cmp::kEq, below, x.b.broadcast_in_dim(largest, below.dims(), {0})),
            at.mask(below.dims(), Cmp::kGt, k));
        const Value number = at.numbers(below);
        const Value imax = at.in_range(x.min(x.b.select(hit, number, x.like(number, n)), {1}));
        const Value other = size_of(x, at.row(s[1], imax));
        const Value other_own = at.row(other, imax);
        const Value off = x.b.select(at.mask(other.dims(), Cmp::kEq, imax), x.like(other, 0),
                                     at.where(other, Cmp::kGe, k));
        const Value row_largest = x.max(off, {1});
        const Value zero = x.b.compare(Cmp::kEq, x.b.maximum(own, largest), x.like(own, 0));
        const auto bound = [&](Value v) { return x.b.mul(v, x.like(v, alpha)); };
        const Value safe_row = x.b.select(x.b.compare(Cmp::kEq, row_largest, x.like(own, 0)),
                                          x.like(own, 1), row_largest);
        const Value keep = x.b.logical_or(
            x.b.logical_or(zero, x.b.compare(Cmp::kGe, own, bound(largest))),
            x.b.compare(Cmp::kGe, own, bound(x.b.div(x.b.mul(largest, largest), safe_row))));
        const Value single =
            x.b.logical_or(keep, x.b.compare(Cmp::kGe, other_own, bound(row_largest)));
        const Value two = x.b.logical_and(x.b.logical_not(single), active);
        const Value kp = x.b.select(keep, k, imax), kk = plus(x, k, two);

        const Value by_row = at.exchanged(s[1], kk, kp);
        const Value w = mirrored(at.exchanged(mirrored(by_row), kk, kp));
        const Block d = block_at(at, w, k, two, hermitian);
        const auto column = [&](Value position) {  // below the block
          const Value r = at.row(w, position);
          return at.where(hermitian ? conjugated(x, r) : r, Cmp::kGt, kk);
        };
        const Value w1 = column(k);
        const Value w2_any = column(kk);
        const Value w2 =
            x.b.select(x.b.broadcast_in_dim(two, w2_any.dims(), {0}), w2_any, x.like(w2_any, 0));
        const auto [l1_any, l2] = right_solve(x, d, w1, w2);
        const Value l1 = x.b.select(x.b.broadcast_in_dim(zero, w1.dims(), {0}), w1, l1_any);
        const auto outer = [&](Value u, Value v) {
          const Dims& m = w.dims();
          return x.b.mul(x.b.broadcast_in_dim(u, m, {0, 1}),
                         x.b.broadcast_in_dim(hermitian ? conjugated(x, v) : v, m, {0, 2}));
        };
        const Value trailing = x.b.sub(w, x.b.add(outer(l1, w1), outer(l2, w2)));

        // Columns k and k + 1 of L, with the block of D on the diagonal.
        const auto placed = [&](Value base, Value position, Value v, Value when) {
          const Value here = x.b.logical_and(at.mask(base.dims(), Cmp::kEq, position),
                                             x.b.broadcast_in_dim(when, base.dims(), {0}));
          return x.b.select(here, x.b.broadcast_in_dim(v, base.dims(), {0}), base);
        };
        const Value first = placed(placed(l1, k, d.d11, active), kk, d.d21, two);
        const Value second = placed(l2, kk, d.d22, two);
        const auto write_column = [&](Value base, Value position, Value v, Value when) {
          const Dims& m = base.dims();
          const Value here = x.b.logical_and(
              x.b.compare(Cmp::kEq, row_numbers(x, m, 2), x.b.broadcast_in_dim(position, m, {0})),
              x.b.broadcast_in_dim(when, m, {0}));
          return x.b.select(here, x.b.broadcast_in_dim(v, m, {0, 1}), base);
        };
        const Value factors = write_column(write_column(s[2], k, first, active), kk, second, two);
        const Value from_one = x.b.add(kp, x.like(kp, 1));
        const Value pivot = x.b.select(two, x.b.neg(from_one), from_one);
        const Value pivots = placed(placed(s[3], k, pivot, active), kk, pivot, two);
        const Value failed = x.b.logical_and(x.b.logical_and(zero, active),
                                             x.b.compare(Cmp::kEq, s[4], x.like(s[4], 0)));
        const Value new_info = x.b.select(failed, x.b.add(k, x.like(k, 1)), s[4]);
        const Value done = x.b.add(kk, x.like(k, 1));
        const Value keep_all = x.b.broadcast_in_dim(active, w.dims(), {0});
        return {x.b.select(active, done, k), x.b.select(keep_all, trailing, s[1]), factors, pivots,
                new_info};
      });
  check_info(end[4]);
  return {with_batch(x, end[2], batch), with_batch(x, end[3], batch), with_batch(x, end[4], batch)};
}

Value ldl_solve(Context& x, Value ld, Value pivots, Value b, bool hermitian) {
  const char* name = "torch.linalg.ldl_solve";
  check_square(x, name, ld);
  check_matrix(x, name, b);
  x.check(ld.dtype() == b.dtype(), "Expected b and A to have the same dtype, but found b of type ",
          scalar_type_name(b.dtype()), " and A of type ", scalar_type_name(ld.dtype()),
          " instead.");
  x.check(rows(ld) == rows(b), "Incompatible matrix sizes for ", name, ": each A matrix is ",
          rows(ld), " by ", columns(ld), " but each b matrix is ", rows(b), " by ", columns(b));
  Dims expected = ld.dims();
  expected.pop_back();
  x.check(pivots.dims() == expected, name,
          ": Expected LD.shape[:-1] and pivots.shape to be the same, but got pivots with shape ",
          pivots.dims(), " instead");
  x.check(hlo::is_integer(pivots.dtype()), name, ": Expected pivots to be integers. Got ",
          scalar_type_name(pivots.dtype()));
  check_kernel_type(x, "ldl_solve_kernel_cpu", b.dtype());
  const Dims batch = x.broadcast_dims({batch_dims(ld), batch_dims(b)});
  const int64_t n = rows(ld), count = hlo::product(batch);
  const Value rhs = one_batch(x, broadcast_batch(x, b, batch));
  if (rhs.numel() == 0) return with_batch(x, rhs, batch);
  hermitian &= hlo::is_complex(ld.dtype());
  Dims pivot_dims = batch;
  pivot_dims.push_back(n);
  const Value signed_pivots =
      x.b.convert(x.b.reshape(x.broadcast(pivots, pivot_dims), {count, n}), DType::kI32);
  const Value factors = one_batch(x, broadcast_batch(x, ld, batch));
  if (x.has_lapack()) {
    return with_batch(x,
                      lapack(x, "ldl_solve", {factors, signed_pivots, rhs}, {rhs.type()},
                             {{"hermitian", hermitian}})[0],
                      batch);
  }
  const Value by_column = transposed(x, factors);
  const At at{x, n};
  const Value limit = x.b.splat({DType::kI32, {count}}, n), zero = x.like(limit, 0),
              one = x.like(limit, 1);
  const auto is_pair = [&](Value k) {
    const Value p = at.row(signed_pivots, k);
    return x.b.compare(Cmp::kLt, p, x.like(p, 0));
  };
  const auto target = [&](Value k) {
    return x.b.sub(x.b.unary(Op::kAbs, at.row(signed_pivots, k)), one);
  };
  const auto column = [&](Value k, Value below) {
    return at.where(at.row(by_column, k), Cmp::kGt, below);
  };
  const auto only = [&](Value v, Value when) {
    return x.b.select(x.b.broadcast_in_dim(when, v.dims(), {0}), v, x.like(v, 0));
  };
  const auto outer = [&](Value u, Value v) {
    return x.b.mul(x.b.broadcast_in_dim(u, rhs.dims(), {0, 1}),
                   x.b.broadcast_in_dim(v, rhs.dims(), {0, 2}));
  };
  const auto placed = [&](Value base, Value position, Value v, Value when) {
    const Value here = x.b.logical_and(at.mask(base.dims(), Cmp::kEq, position),
                                       x.b.broadcast_in_dim(when, base.dims(), {0}));
    return x.b.select(here, x.b.broadcast_in_dim(v, base.dims(), {0, 2}), base);
  };
  const auto chosen = [&](Value when, Value yes, Value no) {
    return x.b.select(x.b.broadcast_in_dim(when, yes.dims(), {0}), yes, no);
  };

  // From the top: exchange, subtract what L says, divide by D.
  const Values down = x.b.while_loop(
      {zero, rhs},
      [&](const Values& s) { return Values{x.any(x.b.compare(Cmp::kLt, s[0], limit), {0})}; },
      [&](const Values& s) -> Values {
        const Value k = s[0], active = x.b.compare(Cmp::kLt, k, limit);
        const Value two = x.b.logical_and(is_pair(k), active), kk = plus(x, k, two);
        const Value v = at.exchanged(s[1], at.in_range(kk), target(k));
        const Value x1 = at.row(v, k), x2 = only(at.row(v, kk), two);
        const Value step = x.b.add(outer(column(k, kk), x1), outer(only(column(kk, kk), two), x2));
        const Value rest = x.b.sub(v, step);
        // D y = x, written for rows: y^T D^T = x^T.
        const Block d = block_at(at, factors, k, two, hermitian);
        const Block mirrored{d.d11, d.d21, d.d12, d.d22};
        const auto [y1, y2] = right_solve(x, mirrored, x1, x2);
        const Value next = placed(placed(rest, k, y1, active), kk, y2, two);
        return {x.b.select(active, x.b.add(kk, one), k), chosen(active, next, s[1])};
      });
  // From the bottom: subtract what L^T (L^H) says, exchange back.
  const Values up = x.b.while_loop(
      {x.b.sub(limit, one), down[1]},
      [&](const Values& s) { return Values{x.any(x.b.compare(Cmp::kGe, s[0], zero), {0})}; },
      [&](const Values& s) -> Values {
        const Value k = s[0], active = x.b.compare(Cmp::kGe, k, zero);
        const Value two = x.b.logical_and(is_pair(k), active),
                    first = x.b.sub(k, x.b.convert(two, DType::kI32));
        const auto product_with =
            [&](Value position) {  // of column `position` of L, below k, and s[1]
              const Value l = column(position, k);
              const Value r =
                  product(x, x.b.reshape(hermitian ? conjugated(x, l) : l, {count, 1, n}), s[1]);
              return x.b.reshape(r, {count, rhs.dim(2)});
            };
        const Value x1 = x.b.sub(at.row(s[1], first), product_with(first));
        const Value x2 = x.b.sub(at.row(s[1], k), product_with(k));
        const Value v = placed(placed(s[1], first, x1, active), k, x2, two);
        const Value next = at.exchanged(v, at.in_range(k), target(k));
        return {x.b.select(active, x.b.sub(first, one), k), chosen(active, next, s[1])};
      });
  return with_batch(x, up[1], batch);
}

}  // namespace

void register_linalg_ldl(ops::Registry& r) {
  r.op("aten::linalg_ldl_factor_ex", ldl_factor_ex).column_major();
  r.op("aten::linalg_ldl_solve", ldl_solve).column_major();
}

}  // namespace tpu::aten
