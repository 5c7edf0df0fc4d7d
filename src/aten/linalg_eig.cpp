// Eigenvalues and eigenvectors of general matrices: Householder reflections to Hessenberg form, QR
// steps with Wilkinson's shift until it is triangular (a complex Schur form, for real matrices
// too), and the vectors of the triangle by back-substitution. One matrix of a batch at a time: each
// takes its own number of steps. The order of eigenvalues is that of the triangle.
#include <cmath>

#include "aten/linalg.h"

namespace tpu::aten {
namespace {

constexpr int64_t kStepsPerColumn = 40;  // three are usual

double epsilon(DType t) { return std::ldexp(1.0, hlo::real_type(t) == DType::kF64 ? -52 : -23); }

Value complex_of(Context& x, Value real) { return x.b.complex(real, x.like(real, 0)); }

// |re| + |im|.
Value size_of(Context& x, Value v) {
  return x.b.add(x.b.unary(Op::kAbs, x.b.real(v)), x.b.unary(Op::kAbs, x.b.imag(v)));
}

Value either(Context& x, Value condition, Value a, Value b) { return x.b.select(condition, a, b); }
Value is_zero(Context& x, Value real) { return x.b.compare(Cmp::kEq, real, x.like(real, 0)); }

// Element [i, j] of a matrix, rank 0.
Value element(Context& x, Value m, Value i, Value j) {
  return x.b.reshape(x.b.dynamic_slice(m, {i, j}, {1, 1}), {});
}

Value root_of_sum(Context& x, Value squared_sizes) {
  return x.b.unary(Op::kSqrt, x.sum(squared_sizes, x.all_axes(squared_sizes)));
}

struct Schur {
  Value t, q;   // a = q t q^H, t upper triangular
  Value steps;  // that are left; 0: not converged
};

// H, Q -> the same with column k of H zero below the subdiagonal.
Values reflect(Context& x, Value k, const Values& s) {
  const Value h = s[0], q = s[1];
  const int64_t n = rows(h);
  const Value below = x.b.compare(Cmp::kGt, row_numbers(x, {n, 1}, 0), x.broadcast(k, {n, 1}));
  const Value column = slice_at(x, h, 1, k, 1);
  const Value v = x.b.select(below, column, x.like(column, 0));
  const Value next = x.b.add(k, int32(x, 1));
  const Value head = x.b.reshape(slice_at(x, v, 0, next, 1), {});
  const Value length = root_of_sum(x, squared_size(x, v));
  const Value size = x.b.unary(Op::kSqrt, squared_size(x, head));
  const Value phase =
      either(x, is_zero(x, size), x.like(head, 1),
             x.b.div(head, complex_of(x, either(x, is_zero(x, size), x.like(size, 1), size))));
  const Value moved = x.b.add(head, x.b.mul(phase, complex_of(x, length)));
  const Value u = update_at(x, v, x.b.reshape(moved, {1, 1}), 0, next);
  const Value weight = x.sum(squared_size(x, u), {0, 1});
  const Value factor =
      either(x, is_zero(x, weight), x.like(weight, 0),
             x.b.div(x.like(weight, 2), either(x, is_zero(x, weight), x.like(weight, 1), weight)));
  const Value scaled = x.b.mul(u, x.broadcast(complex_of(x, factor), u.dims()));
  const Value u_h = adjoint(x, u);
  const Value left = x.b.sub(h, product(x, scaled, product(x, u_h, h)));
  const auto from_right = [&](Value m) {
    return x.b.sub(m, product(x, product(x, m, scaled), u_h));
  };
  return {from_right(left), from_right(q)};
}

// The eigenvalue of [[a, b], [c, d]] that is nearer to d.
Value wilkinson(Context& x, Value a, Value b, Value c, Value d) {
  const Value half = x.b.mul(x.b.sub(a, d), x.like(a, 0.5));
  const Value bc = x.b.mul(b, c);
  const Value root = x.b.unary(Op::kSqrt, x.b.add(x.b.mul(half, half), bc));
  const Value plus = x.b.add(half, root), minus = x.b.sub(half, root);
  const Value denominator =
      either(x, x.b.compare(Cmp::kGe, size_of(x, plus), size_of(x, minus)), plus, minus);
  const Value none = is_zero(x, size_of(x, denominator));
  const Value step = x.b.div(bc, either(x, none, x.like(denominator, 1), denominator));
  return either(x, none, d, x.b.sub(d, step));
}

// One rotation of rows and columns k, k + 1 of H, and of columns of Q: it zeroes what the last one
// left below the subdiagonal; the first of a sweep brings the shift in.
Values rotate(Context& x, Value k, Value first, Value shift, const Values& s) {
  const Value h = s[0], q = s[1];
  const Value starts = x.b.compare(Cmp::kEq, k, first);
  const Value one = int32(x, 1);
  const Value column = x.b.select(starts, first, x.b.sub(k, one));
  const Value top = x.b.sub(element(x, h, k, column), either(x, starts, shift, x.like(shift, 0)));
  const Value bottom = element(x, h, x.b.add(k, one), column);
  const Value length = x.b.unary(Op::kSqrt, x.b.add(squared_size(x, top), squared_size(x, bottom)));
  const Value none = is_zero(x, length);
  const Value divisor = complex_of(x, either(x, none, x.like(length, 1), length));
  const Value c = either(x, none, x.like(top, 1), x.b.div(top, divisor));
  const Value w = either(x, none, x.like(top, 0), x.b.div(bottom, divisor));
  const auto cell = [&](Value v) { return x.b.reshape(v, {1, 1}); };
  const Value rotation =
      x.b.concatenate({x.b.concatenate({cell(conjugated(x, c)), cell(conjugated(x, w))}, 1),
                       x.b.concatenate({cell(x.b.neg(w)), cell(c)}, 1)},
                      0);
  const Value back = adjoint(x, rotation);
  const Value turned = update_at(x, h, product(x, rotation, slice_at(x, h, 0, k, 2)), 0, k);
  const auto columns_turned = [&](Value m) {
    return update_at(x, m, product(x, slice_at(x, m, 1, k, 2), back), 1, k);
  };
  return {columns_turned(turned), columns_turned(q)};
}

// One sweep of rotations over the last block that has not split, or, where its last row has split
// off, that row is left behind. State: H, Q, last row of the block, sweeps over it, steps left.
Values sweep(Context& x, const Values& s) {
  const Value q = s[1], last = s[2], tries = s[3];
  const int64_t n = rows(q);
  const DType t = q.dtype();
  const Value distance = x.b.sub(row_numbers(x, {n, n}, 0), row_numbers(x, {n, n}, 1));
  const Value size = size_of(x, s[0]);
  const auto band = [&](int64_t d) {  // by row
    const Value in = x.b.compare(Cmp::kEq, distance, x.b.splat(distance.type(), d));
    return x.sum(x.b.select(in, size, x.like(size, 0)), {1});
  };
  const Value diagonal = band(0);
  const Value before =
      x.b.concatenate({x.b.slice_dim(diagonal, 0, 0, 1), x.b.slice_dim(diagonal, 0, 0, n - 1)}, 0);
  const Value scale = x.b.add(diagonal, before);
  const Value number = row_numbers(x, {n}, 0);
  const Value split =
      x.b.logical_or(x.b.compare(Cmp::kLe, band(1), x.b.mul(scale, x.like(scale, epsilon(t)))),
                     x.b.compare(Cmp::kEq, number, x.like(number, 0)));
  const Value in_block = x.b.compare(Cmp::kLe, number, x.broadcast(last, {n}));
  const Value first =
      x.max(x.b.select(x.b.logical_and(split, in_block), number, x.like(number, 0)), {0});
  const Value done = x.b.compare(Cmp::kEq, first, last);
  const Value cut = x.b.logical_and(x.b.compare(Cmp::kEq, distance, x.like(distance, 1)),
                                    x.b.broadcast_in_dim(split, {n, n}, {0}));
  const Value h = x.b.select(cut, x.like(s[0], 0), s[0]);

  const Value one = int32(x, 1);
  const Value above = x.b.maximum(x.b.sub(last, one), int32(x, 0));
  const Value c = element(x, h, last, above), d = element(x, h, last, last);
  const Value usual = wilkinson(x, element(x, h, above, above), element(x, h, above, last), c, d);
  // A cycle of shifts that converges nowhere is left by an odd one.
  const Value odd =
      x.b.compare(Cmp::kEq, x.b.binary(Op::kRemainder, tries, int32(x, 10)), int32(x, 9));
  const Value off = x.b.add(d, complex_of(x, x.b.mul(size_of(x, c), x.like(size_of(x, c), 0.75))));
  const Value shift = either(x, odd, off, usual);
  const Values turned =
      repeat_for(x, first, last, {h, q, first, shift}, [&](Value k, const Values& v) -> Values {
        const Values r = rotate(x, k, v[2], v[3], {v[0], v[1]});
        return {r[0], r[1], v[2], v[3]};
      });
  return {turned[0], turned[1], x.b.select(done, x.b.sub(last, one), last),
          x.b.select(done, int32(x, 0), x.b.add(tries, one)), x.b.sub(s[4], one)};
}

Schur schur(Context& x, Value a) {
  const int64_t n = rows(a);
  Values s{a, identity_like(x, {}, n, n, a.dtype())};
  if (n == 1) return {s[0], s[1], int32(x, 1)};
  if (n > 2) {
    s = repeat_for(x, int32(x, 0), int32(x, n - 2), s,
                   [&](Value k, const Values& v) { return reflect(x, k, v); });
  }
  const Values start{s[0], s[1], int32(x, n - 1), int32(x, 0), int32(x, kStepsPerColumn * n + 40)};
  const Values end = x.b.while_loop(
      start,
      [&](const Values& v) {
        return Values{x.b.logical_and(x.b.compare(Cmp::kGt, v[2], int32(x, 0)),
                                      x.b.compare(Cmp::kGt, v[4], int32(x, 0)))};
      },
      [&](const Values& v) { return sweep(x, v); });
  return {upper_triangle(x, end[0]), end[1],
          x.b.select(x.b.compare(Cmp::kGt, end[2], int32(x, 0)), int32(x, 0), end[4])};
}

// Vectors of an upper triangle, columns of an upper triangle with ones on the diagonal: row after
// row from the last.
Value vectors_of_triangle(Context& x, Value t, Value values) {
  const int64_t n = rows(t);
  const Value norm = x.max(size_of(x, t), {0, 1});
  const Value least = x.b.maximum(x.b.mul(norm, x.like(norm, epsilon(t.dtype()))),
                                  x.like(norm, std::ldexp(1.0, -100)));
  const Value row_of_values = x.b.reshape(values, {1, n});
  const Value number = row_numbers(x, {1, n}, 1);
  const Values r = repeat_for(
      x, int32(x, 0), int32(x, n), {identity_like(x, {}, n, n, t.dtype())},
      [&](Value step, const Values& v) -> Values {
        const Value i = x.b.sub(int32(x, n - 1), step);
        const Value right = x.b.compare(Cmp::kGt, number, x.broadcast(i, {1, n}));
        const Value row = slice_at(x, t, 0, i, 1);
        const Value sum = product(x, x.b.select(right, row, x.like(row, 0)), v[0]);
        const Value gap = x.b.sub(row_of_values, x.broadcast(element(x, t, i, i), {1, n}));
        const Value floor = x.broadcast(least, {1, n});
        const Value safe =
            x.b.select(x.b.compare(Cmp::kLt, size_of(x, gap), floor), complex_of(x, floor), gap);
        const Value old = slice_at(x, v[0], 0, i, 1);
        return {update_at(x, v[0], x.b.select(right, x.b.div(sum, safe), old), 0, i)};
      });
  return r[0];
}

// Columns of length 1 whose largest element is real, as LAPACK's.
Value normalized(Context& x, Value v) {
  const int64_t n = rows(v);
  const Value squares = squared_size(x, v);
  const Value length = x.b.unary(Op::kSqrt, x.sum(squares, {0}, true));
  const Value most = x.max(squares, {0}, true);
  const Value number = row_numbers(x, {n, n}, 0);
  const Value hit = x.compare(Cmp::kEq, squares, x.broadcast(most, {n, n}));
  const Value first = x.min(x.b.select(hit, number, x.like(number, n)), {0}, true);
  const Value chosen = x.compare(Cmp::kEq, number, x.broadcast(first, {n, n}));
  const Value largest = x.sum(x.b.select(chosen, v, x.like(v, 0)), {0}, true);
  const Value size = x.b.unary(Op::kSqrt, squared_size(x, largest));
  const Value turn = x.b.div(conjugated(x, largest), complex_of(x, x.b.mul(size, length)));
  return x.b.mul(v, x.broadcast(turn, {n, n}));
}

struct Eig {
  Value values, vectors;
};

Eig eig(Context& x, const char* name, Value a, bool vectors) {
  check_square(x, name, a);
  check_kernel_type(x, "linalg_eig_out_cpu", a.dtype());
  const Dims batch = batch_dims(a);
  const int64_t n = rows(a);
  const Value complex = hlo::is_complex(a.dtype()) ? a : complex_of(x, a);
  const DType t = complex.dtype();
  Dims value_dims = batch;
  value_dims.push_back(n);
  if (complex.numel() == 0) return {x.zeros({t, value_dims}), x.zeros({t, a.dims()})};
  const Value size = size_of(x, complex);
  x.assert_none(x.b.logical_not(x.b.is_finite(size)),
                "torch.linalg.eig: input tensor should not contain infs or NaNs.");
  const std::string failure = cat(name,
                                  ": The algorithm failed to converge because the input matrix is "
                                  "ill-conditioned or has too many repeated eigenvalues.");
  if (x.has_lapack()) {
    const Value flat = one_batch(x, a);
    const int64_t batches = flat.dim(0);
    std::vector<Type> types{{t, {batches, n}}, {t, flat.dims()}, {DType::kI32, {batches}}};
    if (!vectors) types.erase(types.begin() + 1);
    const Values r = lapack(x, "eig", {flat}, types, {{"vectors", vectors}});
    x.assert_none(x.b.compare(Cmp::kNe, r.back(), x.like(r.back(), 0)), failure,
                  ErrorKind::kLinAlg);
    return {with_batch(x, r[0], batch), vectors ? with_batch(x, r[1], batch) : Value()};
  }
  const Value all = one_batch(x, complex);
  const int64_t count = all.dim(0);
  const Values r = repeat_for(
      x, int32(x, 0), int32(x, count),
      {x.zeros({t, {count, n}}), x.zeros({t, all.dims()}), x.zeros({DType::kI32, {count}})},
      [&](Value i, const Values& s) -> Values {
        const Schur f = schur(x, x.b.reshape(slice_at(x, all, 0, i, 1), {n, n}));
        const Value values = diagonal_of(x, f.t);
        Value v = x.b.reshape(slice_at(x, s[1], 0, i, 1), {n, n});
        if (vectors) v = normalized(x, product(x, f.q, vectors_of_triangle(x, f.t, values)));
        return {update_at(x, s[0], x.b.reshape(values, {1, n}), 0, i),
                update_at(x, s[1], x.b.reshape(v, {1, n, n}), 0, i),
                update_at(x, s[2], x.b.reshape(f.steps, {1}), 0, i)};
      });
  x.assert_none(x.b.compare(Cmp::kEq, r[2], x.like(r[2], 0)), failure, ErrorKind::kLinAlg);
  return {x.b.reshape(r[0], value_dims), x.b.reshape(r[1], a.dims())};
}

}  // namespace

void register_linalg_eig(ops::Registry& r) {
  r.op("aten::linalg_eig", [](Context& x, Value self) {
     const Eig e = eig(x, "linalg.eig", self, true);
     return std::array{e.values, e.vectors};
   }).column_major();
  r.op("aten::_linalg_eigvals",
       [](Context& x, Value self) { return eig(x, "linalg.eigvals", self, false).values; });
  r.out_op("aten::linalg_eigvals.out", [](Context& x, Type, Value self) {
    return eig(x, "linalg.eigvals", self, false).values;
  });
}

}  // namespace tpu::aten
