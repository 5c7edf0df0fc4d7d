// LU with partial pivoting, and what follows from it: solve, inv, det, slogdet, lu, lu_solve,
// lu_unpack.
#include <algorithm>
#include <string>

#include "aten/linalg.h"

namespace tpu::aten {

using ops::scalar_type_name;

namespace {

// Columns that are eliminated together: the trailing matrix is updated once a block, by a product.
constexpr int64_t kBlock = 64;

// What LAPACK compares to choose a pivot.
Value pivot_size(Context& x, Value v) {
  if (!hlo::is_complex(v.dtype())) return x.b.unary(Op::kAbs, v);
  return x.b.add(x.b.unary(Op::kAbs, x.b.real(v)), x.b.unary(Op::kAbs, x.b.imag(v)));
}

// Position of the first largest element of v [batch, n]: [batch].
Value first_largest(Context& x, Value v) {
  const Values r =
      x.b.reduce({v, row_numbers(x, v.dims(), 1)}, {x.constant(v.dtype(), -2), int32(x, 0)}, {1},
                 [&](const Values& a) {
                   const Value tie = x.b.logical_and(x.b.compare(Cmp::kEq, a[0], a[2]),
                                                     x.b.compare(Cmp::kLt, a[1], a[3]));
                   const Value left = x.b.logical_or(x.b.compare(Cmp::kGt, a[0], a[2]), tie);
                   return Values{x.b.select(left, a[0], a[2]), x.b.select(left, a[1], a[3])};
                 });
  return r[1];
}

// Rows k and p[b] of v [batch, m, n] exchanged.
Value exchange_rows(Context& x, Value v, Value k, Value p) {
  const int64_t batch = v.dim(0), n = v.dim(2);
  const Value number = row_numbers(x, v.dims(), 1);
  const Value at_k = x.compare(Cmp::kEq, number, k);
  const Value at_p = x.b.compare(Cmp::kEq, number, x.b.broadcast_in_dim(p, v.dims(), {0}));
  const Value row_k = slice_at(x, v, 1, k, 1);
  const Value row_p = gather_rows(x, v, x.b.reshape(p, {batch, 1}));
  const auto spread = [&](Value row) {
    return x.b.broadcast_in_dim(x.b.reshape(row, {batch, n}), v.dims(), {0, 2});
  };
  return x.b.select(x.broadcast(at_k, v.dims()), spread(row_p), x.b.select(at_p, spread(row_k), v));
}

// Eliminates columns 0 ... steps - 1 of `panel` [batch, m, width], whose column 0 is column `first`
// of the matrix. State: panel, permutation [batch, m], pivots [batch, k], info [batch].
Values eliminate(Context& x, const Values& start, Value first, Value steps, int64_t real_rows,
                 bool pivot) {
  const Dims d = start[0].dims();
  const int64_t batch = d[0], m = d[1];
  return repeat_for(x, int32(x, 0), steps, start, [&](Value i, const Values& s) -> Values {
    const Value k = x.b.add(first, i);
    const Value number = row_numbers(x, {batch, m}, 1);
    const Value k_rows = x.broadcast(k, {batch, m});
    Value panel = s[0], permutation = s[1], pivots = s[2];
    if (pivot) {
      const Value column = x.b.reshape(slice_at(x, panel, 2, i, 1), {batch, m});
      const Value size = pivot_size(x, column);
      const Value candidate =
          x.b.logical_and(x.b.compare(Cmp::kGe, number, k_rows),
                          x.b.compare(Cmp::kLt, number, x.b.splat(number.type(), real_rows)));
      const Value p = first_largest(x, x.b.select(candidate, size, x.like(size, -1)));
      panel = exchange_rows(x, panel, k, p);
      permutation =
          x.b.reshape(exchange_rows(x, x.b.reshape(permutation, {batch, m, 1}), k, p), {batch, m});
      pivots = update_at(x, pivots, x.b.reshape(p, {batch, 1}), 1, k);
    } else {
      pivots = update_at(x, pivots, x.broadcast(k, {batch, 1}), 1, k);
    }
    const Value row = slice_at(x, panel, 1, k, 1);                       // [batch, 1, width]
    const Value head = x.b.reshape(slice_at(x, row, 2, i, 1), {batch});  // the pivot
    const Value zero = x.b.compare(Cmp::kEq, head, x.like(head, 0));
    const Value unset = x.b.compare(Cmp::kEq, s[3], x.like(s[3], 0));
    const Value info = x.b.select(x.b.logical_and(zero, unset),
                                  x.b.add(x.broadcast(k, {batch}), x.like(s[3], 1)), s[3]);
    const Value divisor = x.b.select(zero, x.like(head, 1), head);
    const Value column = x.b.reshape(slice_at(x, panel, 2, i, 1), {batch, m});
    const Value below = x.b.compare(Cmp::kGt, number, k_rows);
    const Value factors = x.b.select(
        below, x.b.div(column, x.b.broadcast_in_dim(divisor, {batch, m}, {0})), x.like(column, 0));
    const Value right =
        x.b.compare(Cmp::kGt, row_numbers(x, row.dims(), 2), x.broadcast(i, row.dims()));
    const Value outer = x.b.mul(x.b.broadcast_in_dim(factors, d, {0, 1}),
                                x.broadcast(x.b.select(right, row, x.like(row, 0)), d));
    const Value in_column = x.b.compare(Cmp::kEq, row_numbers(x, d, 2), x.broadcast(i, d));
    const Value written = x.b.logical_and(in_column, x.b.broadcast_in_dim(below, d, {0, 1}));
    panel = x.b.select(written, x.b.broadcast_in_dim(factors, d, {0, 1}), x.b.sub(panel, outer));
    return {panel, permutation, pivots, info};
  });
}

// 1 + the position of the first 0 of each row of v [batch, k], or 0.
Value first_zero(Context& x, Value v) {
  const Value number = row_numbers(x, v.dims(), 1), none = x.like(number, v.dim(1));
  const Value zero = x.b.compare(Cmp::kEq, v, x.like(v, 0));
  const Value first = x.min(x.b.select(zero, number, none), {1});
  const Value info = x.b.add(first, x.like(first, 1));
  return x.b.select(x.b.compare(Cmp::kGt, info, x.like(info, v.dim(1))), x.like(info, 0), info);
}

Value from_zero(Context& x, Value pivots) { return x.b.sub(pivots, x.like(pivots, 1)); }
Value from_one(Context& x, Value pivots) { return x.b.add(pivots, x.like(pivots, 1)); }

// Exchanges applied to 0 ... m - 1, from pivots [batch, k] (from 0).
Value to_permutation(Context& x, Value pivots, int64_t m) {
  const int64_t batch = pivots.dim(0);
  if (pivots.numel() == 0) return row_numbers(x, {batch, m}, 1);
  if (x.has_lapack())
    return lapack(x, "lu_permutation", {from_one(x, pivots)}, {{DType::kI32, {batch, m}}})[0];
  const Value start = row_numbers(x, {batch, m, 1}, 1);
  const Values r = repeat_for(
      x, int32(x, 0), int32(x, pivots.dim(1)), {start}, [&](Value i, const Values& s) -> Values {
        return {exchange_rows(x, s[0], i, x.b.reshape(slice_at(x, pivots, 1, i, 1), {batch}))};
      });
  return x.b.reshape(r[0], {batch, m});
}

Value inverse_permutation(Context& x, Value permutation) {
  return x.b.scatter(permutation, permutation, row_numbers(x, permutation.dims(), 1),
                     {.update_window_dims = {},
                      .inserted_window_dims = {1},
                      .scatter_dims_to_operand_dims = {1},
                      .input_batching_dims = {0},
                      .scatter_indices_batching_dims = {0},
                      .index_vector_dim = 2},
                     std::nullopt, false, true);
}

// +1 or -1 a matrix: whether the number of exchanges is even.
Value permutation_sign(Context& x, Value pivots, DType t) {
  const Value moved = x.b.compare(Cmp::kNe, pivots, row_numbers(x, pivots.dims(), 1));
  const Value count = x.sum(x.b.convert(moved, DType::kI32), {1});
  const Value odd =
      x.b.compare(Cmp::kEq, x.b.binary(Op::kAnd, count, x.like(count, 1)), x.like(count, 1));
  const Value one = x.b.splat({t, count.dims()}, 1);
  return x.b.select(odd, x.b.neg(one), one);
}

struct Factored {
  Lu lu;
  Dims batch;
  Value factors() const { return lu.factors; }
};

Factored factor(Context& x, Value a, bool pivot = true) {
  return {lu_factor(x, one_batch(x, a), pivot), batch_dims(a)};
}

// The factors as the schema returns them.
Value result_factors(Context& x, const Factored& f) { return with_batch(x, f.lu.factors, f.batch); }
Value result_pivots(Context& x, const Factored& f) {
  return with_batch(x, from_one(x, f.lu.pivots), f.batch);
}
Value result_info(Context& x, const Factored& f) { return with_batch(x, f.lu.info, f.batch); }

void check_info(Context& x, bool check_errors, Value info, const char* text) {
  if (check_errors)
    x.assert_none(x.b.compare(Cmp::kNe, info, x.like(info, 0)), text, ErrorKind::kLinAlg);
}

std::array<Value, 3> lu_factor_ex(Context& x, Value a, bool pivot, bool check_errors) {
  x.check(a.rank() >= 2,
          "torch.lu_factor: Expected tensor with 2 or more dimensions. Got size: ", a.dims(),
          " instead");
  check_kernel_type(x, "lu_cpu", a.dtype());
  const Factored f = factor(x, a, pivot);
  check_info(x, check_errors, f.lu.info,
             "torch.linalg.lu_factor_ex: U is singular: a diagonal element is zero and using it on "
             "lu_solve "
             "would result in a division by zero. If you still want to perform the factorization, "
             "consider calling "
             "linalg.lu(A, pivot) or linalg.lu_factor_ex(A, pivot)");
  return {result_factors(x, f), result_pivots(x, f), result_info(x, f)};
}

// L (m x k) with its unit diagonal, U (k x n).
std::pair<Value, Value> split_factors(Context& x, Value factors) {
  const int64_t m = rows(factors), n = columns(factors), k = std::min(m, n), r = factors.rank();
  const Value left = x.b.slice_dim(factors, r - 1, 0, k), top = x.b.slice_dim(factors, r - 2, 0, k);
  const Value unit = identity_like(x, batch_dims(factors), m, k, factors.dtype());
  return {x.b.add(lower_triangle(x, left, -1), unit), upper_triangle(x, top)};
}

// P with A = P L U, from the permutation [batch, m].
Value permutation_matrix(Context& x, Value permutation, DType t) {
  const int64_t batch = permutation.dim(0), m = permutation.dim(1);
  const Dims d{batch, m, m};
  const Value column = x.b.broadcast_in_dim(permutation, d, {0, 2});
  return x.convert(x.b.compare(Cmp::kEq, row_numbers(x, d, 1), column), t);
}

std::array<Value, 3> lu(Context& x, Value a, bool pivot) {
  check_matrix(x, "linalg.lu", a);
  check_kernel_type(x, "lu_cpu", a.dtype());
  const Factored f = factor(x, a, pivot);
  const auto [l, u] = split_factors(x, f.lu.factors);
  const Value p = pivot ? with_batch(x, permutation_matrix(x, f.lu.permutation, a.dtype()), f.batch)
                        : x.zeros({a.dtype(), {0}});
  return {p, with_batch(x, l, f.batch), with_batch(x, u, f.batch)};
}

std::array<Value, 3> lu_unpack(Context& x, Value data, Value pivots, bool unpack_data,
                               bool unpack_pivots) {
  check_matrix(x, "torch.lu_unpack", data);
  x.check(!unpack_pivots || pivots.dtype() == DType::kI32,
          "torch.lu_unpack: LU_pivots is expected to be a contiguous tensor of torch.int32 dtype.");
  const DType t = data.dtype();
  const Value nothing = x.zeros({t, {0}});
  std::array<Value, 3> out{nothing, nothing, nothing};
  if (unpack_data) std::tie(out[1], out[2]) = split_factors(x, data);
  if (unpack_pivots) {
    const int64_t m = rows(data);
    x.assert_none(x.b.logical_or(x.b.compare(Cmp::kLt, pivots, x.like(pivots, 1)),
                                 x.b.compare(Cmp::kGt, pivots, x.b.splat(pivots.type(), m))),
                  "pivots passed to lu_unpack must be between 1 and LU.size(-2) inclusive."
                  "Did you properly pass the result of lu_factor?");
    const int64_t k = pivots.dim(pivots.rank() - 1);
    const Value flat = from_zero(x, x.b.reshape(pivots, {hlo::product(batch_dims(data)), k}));
    out[0] = with_batch(x, permutation_matrix(x, to_permutation(x, flat, m), t), batch_dims(data));
  }
  return out;
}

Value lu_solve_op(Context& x, Value factors, Value pivots, Value b, bool left, bool adjoint_form) {
  const char* name = "torch.linalg.lu_solve";
  x.check(factors.dtype() == b.dtype(),
          "linalg.lu_solve: Expected LU and B to have the same dtype, but found LU of type ",
          scalar_type_name(factors.dtype()), " and B of type ", scalar_type_name(b.dtype()),
          " instead");
  check_kernel_type(x, "lu_solve_cpu", factors.dtype());
  x.check(pivots.dtype() == DType::kI32,
          "linalg.lu_solve: pivots should be a Tensor of scalar type torch.int32");
  check_square(x, name, factors);
  check_matrix(x, "linalg.lu_solve", b);
  x.check(rows(factors) == (left ? rows(b) : columns(b)),
          "linalg.lu_solve: Incompatible shapes of A and B for the equation ",
          left ? "AX = B" : "XA = B", " (", rows(factors), "x", columns(factors), " and ", rows(b),
          "x", columns(b), ")");
  const int64_t n = rows(factors);
  x.check(
      pivots.dim(pivots.rank() - 1) == n,
      "linalg.lu_solve: Number of pivots per batch should be same as the dimension of the matrix");
  const auto check_pivots = [&](Cmp violated, int64_t bound, const char* what) {
    x.assert_none(x.b.compare(violated, pivots, x.b.splat(pivots.type(), bound)),
                  cat("Pivots given to lu_solve must all be ", what,
                      ". Did you properly pass the result of lu_factor?"));
  };
  check_pivots(Cmp::kLt, 1, "greater or equal to 1");
  check_pivots(Cmp::kGt, n, "smaller or equal to LU.size(-2)");
  const Dims batch = x.broadcast_dims({batch_dims(factors), batch_dims(b)});
  Dims pivot_dims = batch;
  pivot_dims.push_back(n);
  const Value p =
      from_zero(x, x.b.reshape(x.broadcast(pivots, pivot_dims), {hlo::product(batch), n}));
  const Value r =
      lu_solve(x, one_batch(x, broadcast_batch(x, factors, batch)), to_permutation(x, p, n),
               one_batch(x, broadcast_batch(x, b, batch)), left, adjoint_form);
  return with_batch(x, r, batch);
}

// (result, LU, pivots, info)
std::array<Value, 4> solve(Context& x, Value a, Value b, bool left, bool check_errors) {
  check_square(x, "linalg.solve", a);
  check_linalg_type(x, "linalg.solve", a.dtype());
  x.check(a.dtype() == b.dtype(),
          "linalg.solve: Expected A and B to have the same dtype, but found A of type ",
          scalar_type_name(a.dtype()), " and B of type ", scalar_type_name(b.dtype()), " instead");
  check_kernel_type(x, "lu_cpu", a.dtype());
  Dims vectors = a.dims();
  vectors.pop_back();
  const bool is_vector = b.rank() == 1 || (b.rank() == a.rank() - 1 && b.dims() == vectors);
  x.check(left || !is_vector,
          "linalg.solve: Vector broadcasting of the left hand side is not supported for "
          "left=False. In this "
          "case linalg.solve is equivalent to B / A.squeeze(-1)");
  const Value rhs = is_vector ? x.unsqueeze(b, -1) : b;
  x.check(rows(a) == (left ? rows(rhs) : columns(rhs)),
          "linalg.solve: Incompatible shapes of A and B for the equation ",
          left ? "AX = B" : "XA = B", " (", rows(a), "x", columns(a), " and ", rows(rhs), "x",
          columns(rhs), ")");
  const Dims batch = x.broadcast_dims({batch_dims(a), batch_dims(rhs)});
  const Factored f = factor(x, a);
  check_info(x, check_errors, f.lu.info,
             "torch.linalg.solve_ex: The solver failed because the input matrix is singular.");
  const Value factors = broadcast_batch(x, result_factors(x, f), batch);
  Dims permutation_dims = batch;
  permutation_dims.push_back(rows(a));
  const Value permutation =
      x.b.reshape(x.broadcast(with_batch(x, f.lu.permutation, f.batch), permutation_dims),
                  {hlo::product(batch), rows(a)});
  const Value flat = lu_solve(x, one_batch(x, factors), permutation,
                              one_batch(x, broadcast_batch(x, rhs, batch)), left, false);
  Value result = with_batch(x, flat, batch);
  if (is_vector) result = x.squeeze(result, -1);
  return {result, result_factors(x, f), result_pivots(x, f), result_info(x, f)};
}

std::array<Value, 2> inverse(Context& x, Value a, bool check_errors) {
  check_square(x, "linalg.inv", a);
  check_linalg_type(x, "linalg.inv", a.dtype());
  x.check(hlo::compute_type(a.dtype()) == a.dtype(),
          "linalg.inv: Low precision dtypes not supported. Got ", scalar_type_name(a.dtype()));
  const Factored f = factor(x, a);
  check_info(
      x, check_errors, f.lu.info,
      "linalg.inv_ex: A diagonal element is zero, the inversion could not be completed because the "
      "input matrix is singular.");
  const Value unit = identity_like(x, {f.lu.factors.dim(0)}, rows(a), rows(a), a.dtype());
  return {with_batch(x, lu_solve(x, f.lu.factors, f.lu.permutation, unit, true, false), f.batch),
          result_info(x, f)};
}

// `of_transpose`: LU are the factors of A^T.
Factored factor_for_determinant(Context& x, const char* name, Value a, bool of_transpose) {
  check_square(x, name, a);
  check_linalg_type(x, name, a.dtype());
  check_kernel_type(x, "lu_cpu", a.dtype());
  return factor(x, of_transpose ? transposed(x, a) : a);
}

std::array<Value, 3> determinant(Context& x, Value a, bool of_transpose) {
  const Factored f = factor_for_determinant(x, "linalg.det", a, of_transpose);
  const DType t = a.dtype();
  const Value diagonal = diagonal_of(x, f.lu.factors);
  const Value value = x.reduce(diagonal, x.constant(t, 1), {1}, false, Op::kMultiply);
  return {with_batch(x, x.b.mul(value, permutation_sign(x, f.lu.pivots, t)), f.batch),
          result_factors(x, f), result_pivots(x, f)};
}

std::array<Value, 4> log_determinant(Context& x, Value a, bool of_transpose) {
  const Factored f = factor_for_determinant(x, "linalg.slogdet", a, of_transpose);
  const DType t = a.dtype();
  const Value diagonal = diagonal_of(x, f.lu.factors);
  const Value sizes = x.b.unary(Op::kAbs, diagonal);
  const Value signs =
      x.reduce(x.b.unary(Op::kSign, diagonal), x.constant(t, 1), {1}, false, Op::kMultiply);
  const Value logs = x.sum(x.b.unary(Op::kLog, sizes), {1});
  return {with_batch(x, x.b.mul(signs, permutation_sign(x, f.lu.pivots, t)), f.batch),
          with_batch(x, logs, f.batch), result_factors(x, f), result_pivots(x, f)};
}

}  // namespace

Lu lu_factor(Context& x, Value a, bool pivot) {
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  const DType t = a.dtype();
  Lu r{a, x.zeros({DType::kI32, {batch, k}}), row_numbers(x, {batch, m}, 1),
       x.zeros({DType::kI32, {batch}})};
  if (batch == 0 || k == 0) return r;
  if (x.has_lapack() && pivot) {
    const Values v = lapack(x, "lu_factor", {a},
                            {a.type(), r.pivots.type(), r.permutation.type(), r.info.type()});
    return {v[0], from_zero(x, v[1]), v[2], v[3]};
  }
  if (x.has_tpu_calls() && pivot) {
    const Values v =
        tpu_call(x, "LuDecomposition", {a}, {a.type(), r.pivots.type(), r.permutation.type()});
    return {v[0], v[1], v[2], first_zero(x, diagonal_of(x, v[0]))};
  }
  if (k <= kBlock) {
    const Values s =
        eliminate(x, {a, r.permutation, r.pivots, r.info}, int32(x, 0), int32(x, k), m, pivot);
    return {s[0], s[2], s[1], s[3]};
  }
  // Whole blocks: the matrix is filled up with zeros, the loops stop before them.
  const int64_t blocks = (k + kBlock - 1) / kBlock, padded = blocks * kBlock;
  const int64_t more_rows = std::max<int64_t>(padded - m, 0),
                more_columns = std::max<int64_t>(padded - n, 0);
  const Value start = x.b.pad(a, x.constant(t, 0), {0, 0, 0}, {0, more_rows, more_columns});
  const Dims& d = start.dims();
  const Value order = row_numbers(x, {batch, d[1]}, 1);
  const Value number = row_numbers(x, {batch, d[1], kBlock}, 1),
              column = row_numbers(x, {batch, kBlock, d[2]}, 2);
  const Values s = repeat_for(
      x, int32(x, 0), int32(x, blocks), {start, order, r.pivots, r.info},
      [&](Value i, const Values& state) -> Values {
        const Value first = x.b.mul(i, int32(x, kBlock)), next = x.b.add(first, int32(x, kBlock));
        const Value steps = x.b.minimum(int32(x, kBlock), x.b.sub(int32(x, k), first));
        const Values p =
            eliminate(x, {slice_at(x, state[0], 2, first, kBlock), order, state[2], state[3]},
                      first, steps, m, pivot);
        const Value panel = p[0];
        const Value moved = pivot ? update_at(x, gather_rows(x, state[0], p[1]), panel, 2, first)
                                  : update_at(x, state[0], panel, 2, first);
        const Value permutation = x.b.reshape(
            gather_rows(x, x.b.reshape(state[1], {batch, d[1], 1}), p[1]), {batch, d[1]});
        // The block's rows right of it: L^-1 A; the rows below: minus their product.
        const Value corner = slice_at(x, panel, 1, first, kBlock),
                    block_rows = slice_at(x, moved, 1, first, kBlock);
        const Value solved = solve_triangular(x, corner, block_rows, true, true, true);
        const Value right = x.b.compare(Cmp::kGe, column, x.broadcast(next, column.dims()));
        const Value top = x.b.select(right, solved, block_rows);
        const Value below = x.b.compare(Cmp::kGe, number, x.broadcast(next, number.dims()));
        const Value update = product(x, x.b.select(below, panel, x.like(panel, 0)),
                                     x.b.select(right, solved, x.like(solved, 0)));
        return {x.b.sub(update_at(x, moved, top, 1, first), update), permutation, p[2], p[3]};
      });
  r.factors = x.b.slice(s[0], {0, 0, 0}, {batch, m, n});
  r.permutation = x.b.slice_dim(s[1], 1, 0, m);
  r.pivots = s[2];
  r.info = s[3];
  return r;
}

// A = P L U, and row i of P^T b is row permutation[i] of b.
Value lu_solve(Context& x, Value factors, Value permutation, Value b, bool left,
               bool adjoint_form) {
  if (b.numel() == 0) return b;
  if (!left) {  // x A = b is A^H x^H = b^H
    return adjoint(x, lu_solve(x, factors, permutation, adjoint(x, b), true, !adjoint_form));
  }
  if (!adjoint_form) {
    const Value y = solve_triangular(x, factors, gather_rows(x, b, permutation), true, true, true);
    return solve_triangular(x, factors, y, true, false, false);
  }
  const Value y = solve_triangular(x, factors, b, true, false, false, 'C');
  const Value z = solve_triangular(x, factors, y, true, true, true, 'C');
  return gather_rows(x, z, inverse_permutation(x, permutation));
}

void register_linalg_lu(ops::Registry& r) {
  r.op("aten::linalg_lu_factor_ex", lu_factor_ex).column_major();
  r.op("aten::linalg_lu", lu);
  r.op("aten::lu_unpack", lu_unpack);
  r.op("aten::linalg_lu_solve", lu_solve_op).column_major();
  r.op("aten::linalg_inv_ex", inverse).column_major();
  // Solutions of a batch of vectors, too: as if the batch were a matrix.
  r.op("aten::_linalg_solve_ex", solve)
      .column_major()
      .first_layouts({ops::LayoutRule::kColumnMajor});
  // Of a real contiguous A PyTorch's CPU kernel factors A^T, of others A, and the gradient
  // formulas, which see the strides, count on it. The schema's form is the one for contiguous
  // inputs; for others bridge/ calls the tpu:: form.
  r.op("aten::_linalg_det",
       [](Context& x, Value a) { return determinant(x, a, !hlo::is_complex(a.dtype())); });
  r.op("tpu::linalg_det", determinant).column_major();  // (Tensor A, bool of_transpose)
  r.op("aten::_linalg_slogdet",
       [](Context& x, Value a) { return log_determinant(x, a, !hlo::is_complex(a.dtype())); });
  r.op("tpu::linalg_slogdet", log_determinant).column_major();  // (Tensor A, bool of_transpose)
}

}  // namespace tpu::aten
