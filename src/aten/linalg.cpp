// Cholesky, triangular solves, least squares, the matrix exponential and the cross product, and the
// helpers of the factorisation files.
#include "aten/linalg.h"

#include <algorithm>
#include <cmath>
#include <string>

#include "aten/all.h"

namespace tpu::aten {

using ops::scalar_type_name;

// ---- Checks.

void check_matrix(Context& x, const char* name, Value a) {
  x.check(a.rank() >= 2, name, ": The input tensor A must have at least 2 dimensions.");
}

void check_square(Context& x, const char* name, Value a) {
  check_matrix(x, name, a);
  x.check(rows(a) == columns(a), name, ": A must be batches of square matrices, but they are ",
          rows(a), " by ", columns(a), " matrices");
}

void check_linalg_type(Context& x, const char* name, DType t) {
  x.check(!hlo::is_integral(t), name,
          ": Expected a floating point or complex tensor as input. Got ", scalar_type_name(t));
}

void check_kernel_type(Context& x, const char* kernel, DType t) {
  x.check_supported(!hlo::is_integral(t) && hlo::compute_type(t) == t, "\"", kernel,
                    "\" not implemented for '", scalar_type_name(t), "'");
}

// ---- Batches.

int64_t rows(Value a) { return a.dim(a.rank() - 2); }
int64_t columns(Value a) { return a.dim(a.rank() - 1); }
Dims batch_dims(Value a) { return Dims(a.dims().begin(), a.dims().end() - 2); }

Value one_batch(Context& x, Value a) {
  return x.b.reshape(a, {hlo::product(batch_dims(a)), rows(a), columns(a)});
}

Value with_batch(Context& x, Value v, Dims batch) {
  batch.insert(batch.end(), v.dims().begin() + 1, v.dims().end());
  return x.b.reshape(v, batch);
}

Value broadcast_batch(Context& x, Value a, const Dims& batch) {
  Dims d = batch;
  d.insert(d.end(), {rows(a), columns(a)});
  return x.broadcast(a, d);
}

// ---- Matrices.

Value transposed(Context& x, Value a) {
  Dims order = x.all_axes(a);
  std::swap(order[order.size() - 1], order[order.size() - 2]);
  return x.b.transpose(a, order);
}

Value conjugated(Context& x, Value a) {
  return hlo::is_complex(a.dtype()) ? x.b.unary(Op::kConj, a) : a;
}
Value adjoint(Context& x, Value a) { return transposed(x, conjugated(x, a)); }

Value product(Context& x, Value a, Value b) {
  hlo::DotDims d;
  for (int64_t i = 0; i < a.rank() - 2; ++i) {
    d.lhs_batch.push_back(i);
    d.rhs_batch.push_back(i);
  }
  d.lhs_contract = {a.rank() - 1};
  d.rhs_contract = {a.rank() - 2};
  return x.b.dot_general(a, b, d, hlo::Precision::kHighest, a.dtype());
}

namespace {

// Row number minus column number, [m, n].
Value distance_from_diagonal(Context& x, int64_t m, int64_t n) {
  return x.b.sub(row_numbers(x, {m, n}, 0), row_numbers(x, {m, n}, 1));
}

Value keep(Context& x, Value a, Cmp c, int64_t distance) {
  const Value d = distance_from_diagonal(x, rows(a), columns(a));
  const Value kept = x.b.compare(c, d, x.b.splat(d.type(), distance));
  return x.b.select(x.broadcast(kept, a.dims()), a, x.like(a, 0));
}

}  // namespace

Value identity_like(Context& x, const Dims& batch, int64_t m, int64_t n, DType t) {
  const Value d = distance_from_diagonal(x, m, n);
  Dims dims = batch;
  dims.insert(dims.end(), {m, n});
  return x.broadcast(x.convert(x.b.compare(Cmp::kEq, d, x.like(d, 0)), t), dims);
}

Value lower_triangle(Context& x, Value a, int64_t offset) { return keep(x, a, Cmp::kGe, -offset); }
Value upper_triangle(Context& x, Value a, int64_t offset) { return keep(x, a, Cmp::kLe, -offset); }

Value diagonal_of(Context& x, Value a) {
  const int64_t k = std::min(rows(a), columns(a)), r = a.rank();
  const Value corner = x.b.slice_dim(x.b.slice_dim(a, r - 2, 0, k), r - 1, 0, k);
  return x.sum(keep(x, corner, Cmp::kEq, 0), {r - 1});
}

Value scale_columns(Context& x, Value a, Value factors) {
  Dims map;
  for (int64_t i = 0; i < a.rank(); ++i) {
    if (i != a.rank() - 2) map.push_back(i);
  }
  return x.b.mul(a, x.b.broadcast_in_dim(x.convert(factors, a.dtype()), a.dims(), map));
}

Value solve_triangular(Context& x, Value a, Value b, bool left, bool lower, bool unit,
                       char transpose) {
  if (b.numel() == 0) return b;
  if (x.has_lapack()) {
    return lapack(x, "solve_triangular", {a, b}, {b.type()},
                  {{"left", left},
                   {"lower", lower},
                   {"unit", unit},
                   {"transpose", transpose != 'N'},
                   {"conjugate", transpose == 'C'}})[0];
  }
  return x.b.triangular_solve(a, b, left, lower, unit, transpose);
}

Value squared_size(Context& x, Value v) {
  if (!hlo::is_complex(v.dtype())) return x.b.mul(v, v);
  const Value re = x.b.real(v), im = x.b.imag(v);
  return x.b.add(x.b.mul(re, re), x.b.mul(im, im));
}

Values lapack(Context& x, const char* function, const Values& operands,
              const std::vector<Type>& results, const LapackFlags& flags) {
  std::string config;
  for (const auto& [name, on] : flags)
    config += cat(config.empty() ? "" : ", ", name, on ? " = true" : " = false");
  return x.b.custom_call(cat("torch_tpu.", function), operands, results, cat("{", config, "}"));
}

Values tpu_call(Context& x, const char* function, const Values& operands,
                const std::vector<Type>& results) {
  constexpr int kUntyped = 1;
  return x.b.custom_call(function, operands, results, "", false, kUntyped);
}

// ---- Loops and positions.

Value int32(Context& x, int64_t v) { return x.b.constant(DType::kI32, v); }
Value row_numbers(Context& x, const Dims& dims, int64_t dim) {
  return x.b.iota({DType::kI32, dims}, dim);
}

Values repeat_for(Context& x, Value first, Value last, const Values& state,
                  const std::function<Values(Value i, const Values& state)>& body) {
  Values init{first, last};
  init.insert(init.end(), state.begin(), state.end());
  const Values end = x.b.while_loop(
      init, [&](const Values& a) { return Values{x.b.compare(Cmp::kLt, a[0], a[1])}; },
      [&](const Values& a) {
        const Values next = body(a[0], Values(a.begin() + 2, a.end()));
        Values out{x.b.add(a[0], int32(x, 1)), a[1]};
        out.insert(out.end(), next.begin(), next.end());
        return out;
      });
  return Values(end.begin() + 2, end.end());
}

Value slice_at(Context& x, Value v, int64_t dim, Value start, int64_t size) {
  Dims sizes = v.dims();
  sizes[static_cast<size_t>(dim)] = size;
  Values starts(sizes.size(), int32(x, 0));
  starts[static_cast<size_t>(dim)] = start;
  return x.b.dynamic_slice(v, starts, sizes);
}

Value update_at(Context& x, Value v, Value block, int64_t dim, Value start) {
  Values starts(v.dims().size(), int32(x, 0));
  starts[static_cast<size_t>(dim)] = start;
  return x.b.dynamic_update_slice(v, block, starts);
}

Value gather_rows(Context& x, Value v, Value index) {
  Dims slice = v.dims(), offset;
  slice[0] = slice[1] = 1;
  for (int64_t i = 2; i < v.rank(); ++i) offset.push_back(i);
  return x.b.gather(v, index,
                    {.offset_dims = offset,
                     .collapsed_slice_dims = {1},
                     .start_index_map = {1},
                     .operand_batching_dims = {0},
                     .start_indices_batching_dims = {0},
                     .index_vector_dim = 2},
                    slice);
}

namespace {

// ---- Cholesky.

// 1 + the first row where the factorisation meets a pivot that is not positive, or 0: [batch]
// int32. Only run for input that the instruction gave up on, which says no more than NaN.
Value first_bad_minor(Context& x, Value a) {
  const int64_t count = a.dim(0), n = a.dim(1);
  const DType real = hlo::real_type(a.dtype());
  const Value none = x.zeros({DType::kI32, {count}});
  const Values r =
      repeat_for(x, int32(x, 0), int32(x, n), {a, none}, [&](Value k, const Values& s) -> Values {
        const Value column = slice_at(x, s[0], 2, k, 1);
        const Value pivot = x.b.reshape(slice_at(x, column, 1, k, 1), {count});
        const Value value = hlo::is_complex(pivot.dtype()) ? x.b.real(pivot) : pivot;
        const Value good = x.b.compare(Cmp::kGt, value, x.zeros({real, {count}}));
        const Value first =
            x.b.logical_and(x.b.logical_not(good), x.b.compare(Cmp::kEq, s[1], none));
        const Value info =
            x.b.select(first, x.b.add(x.broadcast(k, {count}), x.like(none, 1)), s[1]);
        const Value safe = x.convert(x.b.select(good, value, x.like(value, 1)), a.dtype());
        const Value scaled = x.b.div(column, x.b.broadcast_in_dim(safe, column.dims(), {0}));
        return {x.b.sub(s[0], product(x, scaled, adjoint(x, column))), info};
      });
  return r[1];
}

struct Cholesky {
  Value factor;  // [batch, n, n], of no use where it failed
  Value info;    // int32 [batch]
};

Cholesky cholesky(Context& x, Value a, bool upper) {
  if (x.has_lapack()) {
    const Values r =
        lapack(x, "cholesky", {a}, {a.type(), {DType::kI32, {a.dim(0)}}}, {{"upper", upper}});
    return {r[0], r[1]};
  }
  const Value lower = upper ? adjoint(x, a) : a;
  const Value native = lower_triangle(x, x.b.cholesky(lower, true));
  const Value diagonal = diagonal_of(x, native);
  const Value bad = x.any(x.is_nan(diagonal), {1});
  const Value info = x.b.if_else(
      x.any(bad, {0}),
      [&](const Values&) {
        const Value strict = lower_triangle(x, lower, -1);
        const Value full = x.b.add(lower_triangle(x, lower), adjoint(x, strict));
        const Value found = first_bad_minor(x, full);
        // Rounding may let this loop pass where the instruction failed: then it is the last minor.
        const Value some =
            x.b.maximum(found, x.b.select(x.b.compare(Cmp::kEq, found, x.like(found, 0)),
                                          x.b.splat(found.type(), a.dim(1)), x.like(found, 0)));
        return Values{x.b.select(bad, some, x.like(found, 0))};
      },
      [&](const Values&) { return Values{x.zeros({DType::kI32, {a.dim(0)}})}; })[0];
  return {upper ? adjoint(x, native) : native, info};
}

std::array<Value, 2> cholesky_ex(Context& x, Value a, bool upper, bool check_errors) {
  check_square(x, "linalg.cholesky", a);
  check_linalg_type(x, "linalg.cholesky", a.dtype());
  check_kernel_type(x, "cholesky_cpu", a.dtype());
  const Dims batch = batch_dims(a);
  if (a.numel() == 0) return {a, x.zeros({DType::kI32, batch})};
  const Cholesky r = cholesky(x, one_batch(x, a), upper);
  if (check_errors) {
    x.assert_none(x.b.compare(Cmp::kNe, r.info, x.like(r.info, 0)),
                  "linalg.cholesky_ex: The factorization could not be completed because the input "
                  "is not positive-definite",
                  ErrorKind::kLinAlg);
  }
  return {with_batch(x, r.factor, batch), with_batch(x, r.info, batch)};
}

Value cholesky_op(Context& x, Value a, bool upper) {
  check_square(x, "cholesky", a);
  check_kernel_type(x, "cholesky_cpu", a.dtype());
  if (a.numel() == 0) return a;
  const Value flat = one_batch(x, a);
  Value factor, failed;
  if (x.has_lapack()) {
    const Cholesky r = cholesky(x, flat, upper);
    factor = r.factor;
    failed = x.b.compare(Cmp::kNe, r.info, x.like(r.info, 0));
  } else {
    const Value lower = lower_triangle(x, x.b.cholesky(upper ? adjoint(x, flat) : flat, true));
    factor = upper ? adjoint(x, lower) : lower;
    failed = x.is_nan(diagonal_of(x, lower));
  }
  x.assert_none(failed,
                "cholesky: The factorization could not be completed because the input is not "
                "positive-definite",
                ErrorKind::kLinAlg);
  return with_batch(x, factor, batch_dims(a));
}

// Solves L L^H v = b (upper: U^H U).
Value cholesky_solve(Context& x, Value factor, Value b, bool upper) {
  const Value first = solve_triangular(x, factor, b, true, !upper, false, upper ? 'C' : 'N');
  return solve_triangular(x, factor, first, true, !upper, false, upper ? 'N' : 'C');
}

Value cholesky_inverse(Context& x, Value factor, bool upper) {
  check_square(x, "cholesky_inverse", factor);
  check_kernel_type(x, "cholesky_inverse_out_cpu", factor.dtype());
  if (factor.numel() == 0) return factor;
  return cholesky_solve(
      x, factor, identity_like(x, batch_dims(factor), rows(factor), rows(factor), factor.dtype()),
      upper);
}

// ---- Triangular solves.

Value solve_triangular_op(Context& x, Value a, Value b, bool upper, bool left, bool unit) {
  const char* name = "linalg.solve_triangular";
  check_square(x, name, a);
  x.check(b.rank() >= 2, name, ": The input tensor B must have at least 2 dimensions.");
  x.check(a.dtype() == b.dtype(), name,
          ": Expected A and B to have the same dtype, but found A of type ",
          scalar_type_name(a.dtype()), " and B of type ", scalar_type_name(b.dtype()), " instead");
  x.check(rows(a) == (left ? rows(b) : columns(b)), name,
          ": Incompatible shapes of A and B for the equation ", left ? "AX = B" : "XA = B", " (",
          rows(a), "x", columns(a), " and ", rows(b), "x", columns(b), ")");
  check_kernel_type(x, "triangular_solve_cpu", a.dtype());
  const Dims batch = x.broadcast_dims({batch_dims(a), batch_dims(b)});
  return solve_triangular(x, broadcast_batch(x, a, batch), broadcast_batch(x, b, batch), left,
                          !upper, unit);
}

std::array<Value, 2> triangular_solve_op(Context& x, Value self, Value a, bool upper,
                                         bool transpose, bool unit) {
  x.check(self.rank() >= 2,
          "torch.triangular_solve: Expected b to have at least 2 dimensions, but it has ",
          self.rank(), " dimensions instead");
  x.check(a.rank() >= 2,
          "torch.triangular_solve: Expected A to have at least 2 dimensions, but it has ", a.rank(),
          " dimensions instead");
  x.check(
      self.dtype() == a.dtype(), "Expected b and A to have the same dtype, but found b of type ",
      scalar_type_name(self.dtype()), " and A of type ", scalar_type_name(a.dtype()), " instead.");
  x.check(rows(a) == columns(a), "A must be batches of square matrices, but they are ", rows(a),
          " by ", columns(a), " matrices");
  x.check(rows(a) == rows(self),
          "Incompatible matrix sizes for triangular_solve: each A matrix is ", rows(a), " by ",
          columns(a), " but each b matrix is ", rows(self), " by ", columns(self));
  check_kernel_type(x, "triangular_solve_cpu", a.dtype());
  const Dims batch = x.broadcast_dims({batch_dims(a), batch_dims(self)});
  const Value wide = broadcast_batch(x, a, batch);
  return {solve_triangular(x, wide, broadcast_batch(x, self, batch), true, !upper, unit,
                           transpose ? 'T' : 'N'),
          wide};
}

Value cholesky_solve_helper(Context& x, Value b, Value factor, bool upper) {
  check_kernel_type(x, "cholesky_solve_cpu", b.dtype());
  return cholesky_solve(x, factor, b, upper);
}

// ---- The matrix exponential: Taylor polynomials of a scaled matrix, squared afterwards.

Value matrix_exp(Context& x, Value a) {
  check_square(x, "linalg.matrix_exp", a);
  check_linalg_type(x, "linalg.matrix_exp", a.dtype());
  if (a.numel() == 0) return a;
  const DType t = hlo::compute_type(a.dtype()), real = hlo::real_type(t);
  const Value flat = one_batch(x, x.convert(a, t));
  const int64_t count = flat.dim(0), n = flat.dim(1);
  const bool wide = real == DType::kF64;
  // Powers up to `step`, polynomials of degree step * groups - 1: the rest of the series is below
  // the rounding for norms up to 1.5.
  const int64_t step = wide ? 5 : 4, groups = 4;
  const Value norm = x.max(x.sum(x.b.unary(Op::kAbs, flat), {1}), {1});
  const Value ratio = x.b.maximum(x.b.div(norm, x.like(norm, 1.5)), x.like(norm, 1));
  const Value halvings =
      x.b.unary(Op::kCeil, x.b.div(x.b.unary(Op::kLog, ratio), x.like(norm, std::log(2.0))));
  // Norms that are not finite give NaN without scaling.
  const Value times =
      x.b.convert(x.b.select(x.b.is_finite(halvings), halvings, x.like(halvings, 0)), DType::kI32);
  const Value most = x.max(times, {0});
  const auto while_active = [&](Value i, Value v, Value next) {
    const Value active = x.b.compare(Cmp::kLt, x.broadcast(i, {count}), times);
    return x.b.select(x.b.broadcast_in_dim(active, v.dims(), {0}), next, v);
  };
  const Value s = repeat_for(x, int32(x, 0), most, {flat}, [&](Value i, const Values& v) -> Values {
    return {while_active(i, v[0], x.b.mul(v[0], x.like(v[0], 0.5)))};
  })[0];
  Values powers{identity_like(x, {count}, n, n, t), s};
  while (static_cast<int64_t>(powers.size()) <= step)
    powers.push_back(product(x, powers.back(), s));
  double factorial = 1;
  std::vector<double> inverse_factorials{1};
  for (int64_t i = 1; i < step * groups; ++i)
    inverse_factorials.push_back(1 / (factorial *= static_cast<double>(i)));
  Value sum;
  for (int64_t g = groups - 1; g >= 0; --g) {
    if (sum) sum = product(x, sum, powers[static_cast<size_t>(step)]);
    for (int64_t i = 0; i < step; ++i) {
      const Value p = powers[static_cast<size_t>(i)];
      const Value term =
          x.b.mul(p, x.like(p, inverse_factorials[static_cast<size_t>(g * step + i)]));
      sum = sum ? x.b.add(sum, term) : term;
    }
  }
  const Values r = repeat_for(x, int32(x, 0), most, {sum}, [&](Value i, const Values& v) -> Values {
    return {while_active(i, v[0], product(x, v[0], v[0]))};
  });
  return x.convert(with_batch(x, r[0], batch_dims(a)), a.dtype());
}

// ---- Least squares.

// Full rank is assumed: R x = Q^H b, or for more columns than rows x = Q R^-H b of A^H = Q R.
Value solve_by_qr(Context& x, Value a, Value b) {
  const int64_t m = rows(a), n = columns(a);
  if (m >= n) {
    const Qr f = qr_factor(x, a);
    const Value y = x.b.slice_dim(apply_q(x, f.reflectors, f.tau, b, true), 1, 0, n);
    return solve_triangular(x, x.b.slice_dim(f.reflectors, 1, 0, n), y, true, false, false);
  }
  const Qr f = qr_factor(x, adjoint(x, a));
  const Value y =
      solve_triangular(x, x.b.slice_dim(f.reflectors, 1, 0, m), b, true, false, false, 'C');
  const Value wide = x.b.pad(y, x.constant(y.dtype(), 0), {0, 0, 0}, {0, n - m, 0});
  return apply_q(x, f.reflectors, f.tau, wide, false);
}

// (solution, residuals, rank, singular_values). gelsy differs from gelsd and gelss in what it
// returns only: all three give the solution of least norm, from the singular values above rcond
// times the largest.
std::array<Value, 4> lstsq(Context& x, Value a_arg, Value b_arg, Opt<double> rcond,
                           const Opt<std::string>& driver) {
  const char* name = "torch.linalg.lstsq";
  x.check(a_arg.rank() >= 2, name, ": input must have at least 2 dimensions.");
  x.check(b_arg.rank() >= 1, name, ": other must have at least 1 dimension.");
  Dims vectors = a_arg.dims();
  vectors.pop_back();
  const bool is_vector = b_arg.rank() == 1 || b_arg.dims() == vectors;
  const Value rhs = is_vector ? x.unsqueeze(b_arg, -1) : b_arg;
  x.check(rows(a_arg) == rows(rhs), name, ": input.size(-2) should match other.size(",
          is_vector ? "-1)" : "-2)");
  x.check(a_arg.dtype() == b_arg.dtype(), name,
          ": Expected input and other to have the same dtype, but got input's dtype ",
          scalar_type_name(a_arg.dtype()), " and other's dtype ", scalar_type_name(b_arg.dtype()));
  const std::string how = driver.value_or("gelsy");
  x.check(how == "gels" || how == "gelsy" || how == "gelsd" || how == "gelss", name,
          ": parameter `driver` should be one of (gels, gelsy, gelsd, gelss)");
  check_linalg_type(x, name, a_arg.dtype());
  check_kernel_type(x, "linalg_lstsq_cpu", a_arg.dtype());

  const Dims batch = x.broadcast_dims({batch_dims(a_arg), batch_dims(rhs)});
  const Value a = one_batch(x, broadcast_batch(x, a_arg, batch)),
              b = one_batch(x, broadcast_batch(x, rhs, batch));
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n), count = a.dim(0);
  const DType t = a.dtype(), real = hlo::real_type(t);
  Value solution, rank = x.zeros({DType::kI64, {0}}), values = x.zeros({real, {0}});
  if (a.numel() == 0 || b.numel() == 0) {
    solution = x.zeros({t, {count, n, columns(b)}});
    if (how != "gels") rank = with_batch(x, x.zeros({DType::kI64, {count}}), batch);
    if (how == "gelsd" || how == "gelss")
      values = with_batch(x, x.zeros({real, {count, k}}), batch);
  } else if (how == "gels") {
    solution = solve_by_qr(x, a, b);
  } else {
    const Svd f = svd_factor(x, a, false, true);
    const double epsilon = std::ldexp(1.0, real == DType::kF64 ? -52 : -23);
    const double limit = rcond.value_or(epsilon * static_cast<double>(std::max(m, n)));
    const Value largest = x.b.broadcast_in_dim(x.max(f.s, {1}), f.s.dims(), {0});
    const Value used = x.b.compare(Cmp::kGt, f.s, x.b.mul(largest, x.like(largest, limit)));
    const Value inverse = x.b.select(used, x.b.div(x.like(f.s, 1), f.s), x.like(f.s, 0));
    solution = product(x, scale_columns(x, f.v, inverse), product(x, adjoint(x, f.u), b));
    rank = with_batch(x, x.sum(x.b.convert(used, DType::kI64), {1}), batch);
    if (how != "gelsy") values = with_batch(x, f.s, batch);
  }
  Value residuals = x.zeros({real, {0}});
  if (how != "gelsy" && m > n) {
    residuals =
        with_batch(x, x.sum(squared_size(x, x.b.sub(b, product(x, a, solution))), {1}), batch);
  }
  solution = with_batch(x, solution, batch);
  return {is_vector ? x.squeeze(solution, -1) : solution, residuals, rank, values};
}

Value cross(Context& x, Value self, Value other, int64_t dim_arg) {
  x.check(self.rank() == other.rank(),
          "linalg.cross: inputs must have the same number of dimensions.");
  const int64_t dim = x.axis(dim_arg, self);
  x.check(self.rank() > 0 && self.dim(dim) == 3 && other.dim(dim) == 3,
          "linalg.cross: inputs dimension ", dim_arg, " must have length 3. Got ",
          self.rank() > 0 ? self.dim(dim) : 0, " and ", other.rank() > 0 ? other.dim(dim) : 0);
  x.check(self.dtype() == other.dtype(), "expected scalar type ", scalar_type_name(self.dtype()),
          " but found ", scalar_type_name(other.dtype()));
  x.check_supported(!hlo::is_bool(self.dtype()), "\"cross\" not implemented for 'Bool'");
  const Dims d = x.broadcast_dims({self.dims(), other.dims()});
  const Value u = x.broadcast(self, d), v = x.broadcast(other, d);
  // (1, 2, 0) and (2, 0, 1) of each.
  const auto turned = [&](Value w, int64_t by) {
    return x.b.concatenate({x.b.slice_dim(w, dim, by, 3), x.b.slice_dim(w, dim, 0, by)}, dim);
  };
  return x.b.sub(x.b.mul(turned(u, 1), turned(v, 2)), x.b.mul(turned(u, 2), turned(v, 1)));
}

}  // namespace

void register_linalg(ops::Registry& r) {
  r.op("aten::linalg_cholesky_ex", cholesky_ex).column_major();
  r.op("aten::cholesky", cholesky_op).column_major().out_casts(true);
  r.op("aten::cholesky_inverse", cholesky_inverse).column_major().out_casts(true);
  r.op("aten::_cholesky_solve_helper", cholesky_solve_helper).column_major();
  r.op("aten::linalg_solve_triangular", solve_triangular_op).column_major();
  r.op("aten::triangular_solve", triangular_solve_op).column_major();
  r.op("aten::linalg_matrix_exp", matrix_exp);
  r.op("aten::linalg_lstsq", lstsq).column_major().out_casts(true);
  r.op("aten::linalg_cross", cross);
  register_linalg_lu(r);
  register_linalg_qr(r);
  register_linalg_eig(r);
  register_linalg_ldl(r);
  register_linalg_spectral(r);
}

}  // namespace tpu::aten
