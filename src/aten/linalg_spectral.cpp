// Eigenvalues of Hermitian matrices and singular values, by Jacobi rotations: in every round all
// columns are paired, and each pair is made orthogonal to each other at once; the pairing then
// moves on like a round-robin tournament, so that a sweep of n - 1 rounds meets every pair.
// Two-sided rotations diagonalise a Hermitian matrix, one-sided ones make columns orthogonal.
#include <algorithm>
#include <cctype>
#include <cmath>
#include <string>

#include "aten/linalg.h"
#include "aten/sort.h"

namespace tpu::aten {
namespace {

constexpr int64_t kMaxSweeps = 40;  // convergence is quadratic; ten are much already

double epsilon(DType t) { return std::ldexp(1.0, hlo::real_type(t) == DType::kF64 ? -52 : -23); }

// Column j of the left half of [batch, m, 2 h] is paired with column j of the right half.
struct Halves {
  Value left, right;
};
Halves split(Context& x, Value v, int64_t dim) {
  const int64_t h = v.dim(dim) / 2;
  return {x.b.slice_dim(v, dim, 0, h), x.b.slice_dim(v, dim, h, 2 * h)};
}

// The next pairing: the first stays, the others move on one place along the circle.
Value next_pairing(Context& x, const Halves& p, int64_t dim) {
  const int64_t h = p.left.dim(dim);
  const auto part = [&](Value v, int64_t from, int64_t to) {
    return x.b.slice_dim(v, dim, from, to);
  };
  if (h == 1) return x.b.concatenate({p.left, p.right}, dim);
  return x.b.concatenate({part(p.left, 0, 1), part(p.right, 0, 1), part(p.left, 1, h - 1),
                          part(p.right, 1, h), part(p.left, h - 1, h)},
                         dim);
}

// One rotation a pair: left' = c left - s phase right, right' = s left + c phase right.
struct Rotation {
  Value c, s, phase;  // [batch, h]; c and s real
};

// The rotation that diagonalises [[a, b], [conj(b), d]], a and d real.
Rotation rotation(Context& x, Value a, Value b, Value d) {
  const Value size = x.b.unary(Op::kAbs, b), zero = x.like(size, 0), one = x.like(size, 1);
  const Value none = x.b.compare(Cmp::kEq, size, zero);
  const Value safe = x.b.select(none, one, size);
  const Value ratio = x.b.div(x.b.sub(d, a), x.b.mul(safe, x.like(safe, 2)));
  const Value root = x.b.unary(Op::kSqrt, x.b.add(one, x.b.mul(ratio, ratio)));
  const Value magnitude = x.b.div(one, x.b.add(x.b.unary(Op::kAbs, ratio), root));
  const Value negative = x.b.compare(Cmp::kLt, ratio, zero);
  const Value tangent = x.b.select(none, zero, x.b.select(negative, x.b.neg(magnitude), magnitude));
  const Value c = x.b.div(one, x.b.unary(Op::kSqrt, x.b.add(one, x.b.mul(tangent, tangent))));
  const Value phase = x.b.div(conjugated(x, b), x.convert(safe, b.dtype()));
  return {c, x.b.mul(c, tangent), x.b.select(none, x.like(b, 1), phase)};
}

// The vectors of a pair of halves rotated: the columns (dim 2) or the rows (dim 1).
Halves rotated(Context& x, const Halves& p, const Rotation& r, int64_t dim) {
  const auto spread = [&](Value v) {
    return x.b.broadcast_in_dim(x.convert(v, p.left.dtype()), p.left.dims(), {0, dim});
  };
  const Value c = spread(r.c), s = spread(r.s);
  const Value right = x.b.mul(p.right, spread(r.phase));
  return {x.b.sub(x.b.mul(c, p.left), x.b.mul(s, right)),
          x.b.add(x.b.mul(s, p.left), x.b.mul(c, right))};
}

Value real_part(Context& x, Value v) { return hlo::is_complex(v.dtype()) ? x.b.real(v) : v; }

Value fill_up(Context& x, Value v, const Dims& high) {
  return x.b.pad(v, x.constant(v.dtype(), 0), {0, 0, 0}, high);
}

// Largest element of every matrix, 1 where it is 0: [batch].
Value matrix_scale(Context& x, Value a) {
  const Value largest = x.max(x.b.unary(Op::kAbs, a), {1, 2});
  return x.b.select(x.b.compare(Cmp::kGt, largest, x.like(largest, 0)), largest,
                    x.like(largest, 1));
}

Value divided(Context& x, Value a, Value scale) {
  return x.b.div(a, x.convert(x.b.broadcast_in_dim(scale, a.dims(), {0}), a.dtype()));
}

// Columns of v [batch, m, n] in the order of `order` [batch, n].
Value reordered(Context& x, Value v, Value order) {
  return transposed(x, gather_rows(x, transposed(x, v), order));
}

Value rank_0(Context& x, Value bools) { return x.any(bools, x.all_axes(bools)); }

// Runs sweeps until `pending` says that no matrix needs another one; gives the last state.
Values sweep(Context& x, const Values& state, int64_t rounds,
             const std::function<Value(const Values&)>& pending,
             const std::function<Values(const Values&)>& round) {
  Values init{int32(x, 0)};
  init.insert(init.end(), state.begin(), state.end());
  const auto rest = [](const Values& a) { return Values(a.begin() + 1, a.end()); };
  return rest(x.b.while_loop(
      init,
      [&](const Values& a) {
        return Values{
            x.b.logical_and(x.b.compare(Cmp::kLt, a[0], int32(x, kMaxSweeps)), pending(rest(a)))};
      },
      [&](const Values& a) {
        const Values s = repeat_for(x, int32(x, 0), int32(x, rounds), rest(a),
                                    [&](Value, const Values& now) { return round(now); });
        Values out{x.b.add(a[0], int32(x, 1))};
        out.insert(out.end(), s.begin(), s.end());
        return out;
      }));
}

// ---- Hermitian eigenvalues.

// Sum of squares off the diagonal against that of all: [batch] bool, true while more is left than
// rounding makes, an epsilon of a typical column in each element (and for NaN).
Value not_diagonal(Context& x, Value w) {
  const Value squares = squared_size(x, w);
  const Value on = x.b.compare(Cmp::kEq, row_numbers(x, w.dims(), 1), row_numbers(x, w.dims(), 2));
  const Value off = x.sum(x.b.select(on, x.like(squares, 0), squares), {1, 2});
  const double relative = std::pow(epsilon(w.dtype()), 2) * static_cast<double>(w.dim(1));
  const Value limit = x.b.mul(x.sum(squares, {1, 2}), x.like(off, relative));
  return x.b.logical_not(x.b.compare(Cmp::kLe, off, limit));
}

std::array<Value, 2> eigh(Context& x, Value a, const std::string& uplo, bool compute_v) {
  check_square(x, "linalg.eigh", a);
  check_linalg_type(x, "linalg.eigh", a.dtype());
  const char side =
      uplo.empty() ? ' ' : static_cast<char>(std::toupper(static_cast<unsigned char>(uplo[0])));
  x.check(uplo.size() == 1 && (side == 'L' || side == 'U'),
          "Expected UPLO argument to be 'L' or 'U', but got ", uplo);
  check_kernel_type(x, "linalg_eigh_cpu", a.dtype());
  const DType t = a.dtype(), real = hlo::real_type(t);
  const Dims batch = batch_dims(a);
  const int64_t n = rows(a), count = hlo::product(batch);
  Dims value_dims = batch;
  value_dims.push_back(n);
  const Value no_vectors = x.zeros({t, {0}});
  if (a.numel() == 0) return {x.zeros({real, value_dims}), compute_v ? a : no_vectors};

  const char* failure =
      "linalg.eigh: The algorithm failed to converge because the input matrix is "
      "ill-conditioned or has too many repeated eigenvalues";
  const Value flat = one_batch(x, a);
  if (x.has_lapack()) {
    std::vector<Type> types{{real, {count, n}}, flat.type(), {DType::kI32, {count}}};
    if (!compute_v) types.erase(types.begin() + 1);
    const Values r =
        lapack(x, "eigh", {flat}, types, {{"upper", side == 'U'}, {"vectors", compute_v}});
    x.assert_none(x.b.compare(Cmp::kNe, r.back(), x.like(r.back(), 0)), failure,
                  ErrorKind::kLinAlg);
    return {with_batch(x, r[0], batch), compute_v ? with_batch(x, r[1], batch) : no_vectors};
  }

  // Only one triangle counts, and the real part of the diagonal.
  const Value half = side == 'L' ? lower_triangle(x, flat, -1) : upper_triangle(x, flat, 1);
  const Value unit = identity_like(x, {count}, n, n, t);
  const Value diagonal = x.convert(real_part(x, diagonal_of(x, flat)), t);
  const Value full = x.b.add(x.b.add(half, adjoint(x, half)), scale_columns(x, unit, diagonal));
  const Value scale = matrix_scale(x, full);

  // An odd size gets a row and column of zeros, which no rotation touches.
  const int64_t even = n + n % 2;
  const Value w = fill_up(x, divided(x, full, scale), {0, even - n, even - n});
  Values state{w};
  if (compute_v) state.push_back(identity_like(x, {count}, even, even, t));
  const auto pending = [&](const Values& s) { return rank_0(x, not_diagonal(x, s[0])); };
  const Values end = sweep(x, state, std::max<int64_t>(even - 1, 1), pending, [&](const Values& s) {
    const Halves by_row = split(x, s[0], 1);
    const Halves top = split(x, by_row.left, 2), bottom = split(x, by_row.right, 2);
    const Rotation r =
        rotation(x, real_part(x, diagonal_of(x, top.left)), diagonal_of(x, top.right),
                 real_part(x, diagonal_of(x, bottom.right)));
    const Value columns_done = next_pairing(x, rotated(x, split(x, s[0], 2), r, 2), 2);
    const Rotation adjoint_r{r.c, r.s, conjugated(x, r.phase)};
    Values next{next_pairing(x, rotated(x, split(x, columns_done, 1), adjoint_r, 1), 1)};
    if (compute_v) next.push_back(next_pairing(x, rotated(x, split(x, s[1], 2), r, 2), 2));
    return next;
  });
  x.assert_none(not_diagonal(x, end[0]), failure, ErrorKind::kLinAlg);

  // Every sweep ends in the order it began with, so the row of zeros is the last one still.
  const Value values = x.b.slice_dim(real_part(x, diagonal_of(x, end[0])), 1, 0, n);
  const auto [sorted, order] = sort_along(x, values, 1);
  const Value scaled = x.b.mul(sorted, x.b.broadcast_in_dim(scale, sorted.dims(), {0}));
  Value vectors = no_vectors;
  if (compute_v) {
    vectors =
        with_batch(x, reordered(x, x.b.slice(end[1], {0, 0, 0}, {count, n, n}), order), batch);
  }
  return {with_batch(x, scaled, batch), vectors};
}

// ---- Singular values.

constexpr const char* kSvdFailure =
    "linalg.svd: The algorithm failed to converge because the input matrix contained "
    "non-finite values.";

struct Orthogonalised {
  Value columns;  // a V, orthogonal columns, largest first
  Value sizes;    // their norms, real
  Value v;        // invalid unless asked for
};

// Whether two rows of w still have an angle that rounding does not explain: [batch] bool (true for
// NaN). Rows as small as the rounding of the largest ones have no direction left to correct.
Value not_orthogonal(Context& x, Value w) {
  const Value gram = product(x, w, adjoint(x, w));
  const Dims& d = gram.dims();
  const double eps = epsilon(w.dtype());
  const Value squares = real_part(x, diagonal_of(x, gram));
  const double relative = std::pow(eps * static_cast<double>(w.dim(1)), 2);
  const Value noise = x.b.mul(x.sum(squares, {1}), x.b.splat({squares.dtype(), {d[0]}}, relative));
  const Value sizes = x.b.unary(Op::kSqrt, squares);
  const Value small =
      x.b.compare(Cmp::kLe, squares, x.b.broadcast_in_dim(noise, squares.dims(), {0}));
  const Value counted =
      x.b.select(small, x.b.broadcast_scalar(x.b.max_value(sizes.dtype()), sizes.dims()), sizes);
  const Value bound =
      x.b.mul(x.b.broadcast_in_dim(counted, d, {0, 1}), x.b.broadcast_in_dim(counted, d, {0, 2}));
  const Value limit = x.b.mul(bound, x.like(bound, eps * std::sqrt(static_cast<double>(w.dim(2)))));
  const Value on = x.b.compare(Cmp::kEq, row_numbers(x, d, 1), row_numbers(x, d, 2));
  const Value fine = x.b.logical_or(on, x.b.compare(Cmp::kLe, x.b.unary(Op::kAbs, gram), limit));
  const Value finite = x.b.is_finite(x.sum(squares, {1}));
  return x.b.logical_not(x.b.logical_and(x.all(fine, {1, 2}), finite));
}

// Of a [batch, m, n] with m >= n, n > 0. The columns are held as rows: contiguous vectors.
Orthogonalised orthogonalise(Context& x, Value a, bool compute_v) {
  const DType t = a.dtype();
  const int64_t count = a.dim(0), n = a.dim(2), even = n + n % 2;
  Values state{fill_up(x, transposed(x, a), {0, even - n, 0})};
  if (compute_v) state.push_back(identity_like(x, {count}, even, even, t));
  const auto pending = [&](const Values& s) { return rank_0(x, not_orthogonal(x, s[0])); };
  const Values end = sweep(x, state, std::max<int64_t>(even - 1, 1), pending, [&](const Values& s) {
    const Halves p = split(x, s[0], 1);
    // One pass for the three sums.
    const Value zero = x.constant(hlo::real_type(t), 0);
    const Values sums =
        x.b.reduce({squared_size(x, p.left), x.b.mul(conjugated(x, p.left), p.right),
                    squared_size(x, p.right)},
                   {zero, x.constant(t, 0), zero}, {2}, [&](const Values& v) {
                     return Values{x.b.add(v[0], v[3]), x.b.add(v[1], v[4]), x.b.add(v[2], v[5])};
                   });
    const Rotation r = rotation(x, sums[0], sums[1], sums[2]);
    Values next{next_pairing(x, rotated(x, p, r, 1), 1)};
    if (compute_v) next.push_back(next_pairing(x, rotated(x, split(x, s[1], 1), r, 1), 1));
    return next;
  });
  const Value vectors = x.b.slice_dim(end[0], 1, 0, n);
  const Value sizes = x.b.unary(Op::kSqrt, x.sum(squared_size(x, vectors), {2}));
  x.assert_none(not_orthogonal(x, end[0]), kSvdFailure, ErrorKind::kLinAlg);
  const auto [sorted, order] = sort_along(x, sizes, 1, true);
  Orthogonalised r{transposed(x, gather_rows(x, vectors, order)), sorted, {}};
  if (compute_v)
    r.v = transposed(x, gather_rows(x, x.b.slice(end[1], {0, 0, 0}, {count, n, n}), order));
  return r;
}

// a [batch, m, n] with m >= n > 0; u and v only when asked for.
Svd tall_svd(Context& x, Value a, bool full, bool compute_uv) {
  const int64_t count = a.dim(0), m = a.dim(1), n = a.dim(2);
  const Value scale = matrix_scale(x, a);
  const Value scaled = divided(x, a, scale);
  // Rotations on the small triangle are cheaper than on the tall matrix.
  Qr outer;
  Value core = scaled;
  if (m > n) {
    outer = qr_factor(x, scaled);
    core = upper_triangle(x, x.b.slice_dim(outer.reflectors, 1, 0, n));
  }
  const Orthogonalised o = orthogonalise(x, core, compute_uv);
  Svd r{{}, x.b.mul(o.sizes, x.b.broadcast_in_dim(scale, o.sizes.dims(), {0})), o.v};
  if (!compute_uv) return r;
  // Their QR normalises the columns, and completes those whose size is 0.
  const Qr inner = qr_factor(x, o.columns);
  const Value corner = diagonal_of(x, inner.reflectors);
  const Value signs = x.b.select(x.b.compare(Cmp::kEq, corner, x.like(corner, 0)),
                                 x.like(corner, 1), x.b.unary(Op::kSign, corner));
  const Value unit = identity_like(x, {count}, n, n, a.dtype());
  r.u = scale_columns(x, apply_q(x, inner.reflectors, inner.tau, unit, false), signs);
  if (m == n) return r;
  if (!full) {
    r.u = apply_q(x, outer.reflectors, outer.tau, fill_up(x, r.u, {0, m - n, 0}), false);
    return r;
  }
  const Value wide = fill_up(x, r.u, {0, m - n, m - n});
  const Value rest =
      x.b.sub(identity_like(x, {count}, m, m, a.dtype()), fill_up(x, unit, {0, m - n, m - n}));
  r.u = apply_q(x, outer.reflectors, outer.tau, x.b.add(wide, rest), false);
  return r;
}

Svd host_svd(Context& x, Value a, bool full, bool compute_uv) {
  const int64_t count = a.dim(0), m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  const DType t = a.dtype();
  const Type s{hlo::real_type(t), {count, k}}, info{DType::kI32, {count}};
  std::vector<Type> types{s, info};
  if (compute_uv) types = {{t, {count, m, full ? m : k}}, s, {t, {count, full ? n : k, n}}, info};
  const Values r = lapack(x, "svd", {a}, types, {{"full", full}, {"vectors", compute_uv}});
  x.assert_none(x.b.compare(Cmp::kNe, r.back(), x.like(r.back(), 0)), kSvdFailure,
                ErrorKind::kLinAlg);
  if (!compute_uv) return {{}, r[0], {}};
  return {r[0], r[1], adjoint(x, r[2])};
}

std::array<Value, 3> svd(Context& x, Value a, bool full_matrices, bool compute_uv,
                         const Opt<std::string>& driver) {
  check_matrix(x, "linalg.svd", a);
  check_linalg_type(x, "linalg.svd", a.dtype());
  x.check(!driver,
          "torch.linalg.svd: keyword argument `driver=` is only supported on CUDA inputs with "
          "cuSOLVER backend.");
  check_kernel_type(x, "linalg_svd_cpu", a.dtype());
  const DType t = a.dtype();
  const Dims batch = batch_dims(a);
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n), count = hlo::product(batch);
  const Value nothing = x.zeros({t, {0}});
  if (count == 0 || k == 0) {
    const Value s = with_batch(x, x.zeros({hlo::real_type(t), {count, k}}), batch);
    if (!compute_uv) return {nothing, s, nothing};
    const int64_t left = full_matrices ? m : k, right = full_matrices ? n : k;
    return {with_batch(x, identity_like(x, {count}, m, left, t), batch), s,
            with_batch(x, identity_like(x, {count}, right, n, t), batch)};
  }
  const Svd r = svd_factor(x, one_batch(x, a), full_matrices, compute_uv);
  const Value s = with_batch(x, r.s, batch);
  if (!compute_uv) return {nothing, s, nothing};
  return {with_batch(x, r.u, batch), s, with_batch(x, adjoint(x, r.v), batch)};
}

}  // namespace

Svd svd_factor(Context& x, Value a, bool full, bool compute_uv) {
  if (x.has_lapack()) return host_svd(x, a, full, compute_uv);
  if (rows(a) >= columns(a)) return tall_svd(x, a, full, compute_uv);
  // A^H = U S V^H is A = V S U^H.
  const Svd r = tall_svd(x, adjoint(x, a), full, compute_uv);
  return {r.v, r.s, r.u};
}

void register_linalg_spectral(ops::Registry& r) {
  // Without vectors the values of a batch would be the results of the highest rank.
  constexpr auto matrix = ops::LayoutRule::kColumnMajor, vector = ops::LayoutRule::kContiguous;
  r.op("aten::_linalg_eigh", eigh).column_major().first_layouts({vector, matrix});
  r.op("aten::_linalg_svd", svd).column_major().first_layouts({matrix, vector, matrix});
}

}  // namespace tpu::aten
