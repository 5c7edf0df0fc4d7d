// QR by Householder reflections, in LAPACK's form: H = 1 - tau v v^H with v = (1, ...), and what
// follows from it: qr, geqrf, householder_product, ormqr. Blocks of reflections are applied as one
// product, H1 H2 ... = 1 - V T V^H (compact WY form).
#include <algorithm>
#include <string>

#include "aten/linalg.h"

namespace tpu::aten {

using ops::scalar_type_name;

namespace {

constexpr int64_t kBlock = 32;

// Columns 0 ... steps - 1 of `panel` [batch, m, width] become reflectors; column 0 is column
// `first` of the matrix, so reflector i starts at row first + i. State: panel, tau [batch, k].
Values reflect(Context& x, const Values& start, Value first, Value steps) {
  const Dims d = start[0].dims();
  const int64_t batch = d[0], m = d[1];
  const DType t = start[0].dtype(), real = hlo::real_type(t);
  return repeat_for(x, int32(x, 0), steps, start, [&](Value i, const Values& s) -> Values {
    const Value k = x.b.add(first, i);
    const Value number = row_numbers(x, {batch, m}, 1), k_rows = x.broadcast(k, {batch, m});
    const Value below = x.b.compare(Cmp::kGt, number, k_rows),
                here = x.b.compare(Cmp::kEq, number, k_rows);
    const Value column = x.b.reshape(slice_at(x, s[0], 2, i, 1), {batch, m});
    const Value tail = x.b.select(below, column, x.like(column, 0));
    const Value alpha = x.b.reshape(slice_at(x, slice_at(x, s[0], 1, k, 1), 2, i, 1), {batch});
    // Scaled by the largest element, so that squares neither overflow nor vanish.
    const Value largest =
        x.b.maximum(x.max(x.b.unary(Op::kAbs, tail), {1}), x.b.unary(Op::kAbs, alpha));
    const Value zero = x.zeros({real, {batch}}), one = x.b.splat({real, {batch}}, 1);
    const Value scale = x.b.select(x.b.compare(Cmp::kGt, largest, zero), largest, one);
    const Value scaled_tail =
        x.b.div(tail, x.convert(x.b.broadcast_in_dim(scale, {batch, m}, {0}), t));
    const Value scaled_alpha = x.b.div(alpha, x.convert(scale, t));
    const Value tail_square = x.sum(squared_size(x, scaled_tail), {1});
    const Value alpha_real = hlo::is_complex(t) ? x.b.real(scaled_alpha) : scaled_alpha;
    const Value norm = x.b.unary(Op::kSqrt, x.b.add(tail_square, squared_size(x, scaled_alpha)));
    // Nothing to reflect when the tail is 0 (and alpha is real).
    Value trivial = x.b.compare(Cmp::kEq, tail_square, zero);
    if (hlo::is_complex(t))
      trivial = x.b.logical_and(trivial, x.b.compare(Cmp::kEq, x.b.imag(scaled_alpha), zero));
    const Value negative = x.b.compare(Cmp::kLt, alpha_real, zero);
    const Value scaled_beta = x.b.select(negative, norm, x.b.neg(norm));
    const Value safe_beta = x.convert(x.b.select(trivial, one, scaled_beta), t);
    const Value tau_value = x.b.div(x.b.sub(safe_beta, scaled_alpha), safe_beta);
    const Value tau = x.b.select(trivial, x.like(tau_value, 0), tau_value);
    const Value beta = x.b.select(trivial, alpha, x.convert(x.b.mul(scaled_beta, scale), t));
    const Value divisor = x.b.select(trivial, x.like(alpha, 1), x.b.sub(scaled_alpha, safe_beta));
    const Value v_tail = x.b.div(scaled_tail, x.b.broadcast_in_dim(divisor, {batch, m}, {0}));
    const Value v = x.b.select(here, x.like(v_tail, 1), v_tail);
    // panel = H^H panel on the columns right of i; column i becomes (beta, v).
    const Value row =
        product(x, adjoint(x, x.b.reshape(v, {batch, m, 1})), s[0]);  // [batch, 1, width]
    const Value right =
        x.b.compare(Cmp::kGt, row_numbers(x, row.dims(), 2), x.broadcast(i, row.dims()));
    const Value scaled_row = x.b.mul(x.b.select(right, row, x.like(row, 0)),
                                     x.b.broadcast_in_dim(conjugated(x, tau), row.dims(), {0}));
    const Value updated =
        x.b.sub(s[0], x.b.mul(x.b.broadcast_in_dim(v, d, {0, 1}), x.broadcast(scaled_row, d)));
    const Value stored = x.b.select(below, v_tail, x.b.broadcast_in_dim(beta, {batch, m}, {0}));
    const Value at_or_below = x.b.logical_or(below, here);
    const Value in_column = x.b.compare(Cmp::kEq, row_numbers(x, d, 2), x.broadcast(i, d));
    const Value written = x.b.logical_and(in_column, x.b.broadcast_in_dim(at_or_below, d, {0, 1}));
    return {x.b.select(written, x.b.broadcast_in_dim(stored, d, {0, 1}), updated),
            update_at(x, s[1], x.b.reshape(tau, {batch, 1}), 1, k)};
  });
}

// The vectors of a panel as a matrix V [batch, m, width] (ones at row first + i, zeros above), and
// T.
std::pair<Value, Value> compact_form(Context& x, Value panel, Value tau, Value first) {
  const Dims& d = panel.dims();
  const Type number{DType::kI32, d};
  const Value row = x.b.iota(number, 1),
              start = x.b.add(x.b.iota(number, 2), x.broadcast(first, d));
  const Value tail = x.b.select(x.b.compare(Cmp::kGt, row, start), panel, x.like(panel, 0));
  const Value v = x.b.select(x.b.compare(Cmp::kEq, row, start), x.like(panel, 1), tail);
  // T^-1 = diag(1 / tau) + the strict upper triangle of V^H V, so (1 + diag(tau) U) T = diag(tau),
  // which also holds where tau is 0.
  const Value overlaps = upper_triangle(x, product(x, adjoint(x, v), v), 1);
  const Value rows_scaled = x.b.mul(overlaps, x.b.broadcast_in_dim(tau, overlaps.dims(), {0, 1}));
  const Value unit = identity_like(x, {d[0]}, d[2], d[2], panel.dtype());
  const Value diagonal = x.b.mul(unit, x.b.broadcast_in_dim(tau, overlaps.dims(), {0, 1}));
  return {v, solve_triangular(x, rows_scaled, diagonal, true, false, true)};
}

// c - V T V^H c, or with T^H.
Value apply_block(Context& x, const std::pair<Value, Value>& form, Value c, bool adjoint_form) {
  const auto& [v, t] = form;
  const Value inner = product(x, adjoint_form ? adjoint(x, t) : t, product(x, adjoint(x, v), c));
  return x.b.sub(c, product(x, v, inner));
}

// a filled up with zero rows and columns to at least m x n.
Value padded(Context& x, Value a, int64_t m, int64_t n) {
  return x.b.pad(a, x.constant(a.dtype(), 0), {0, 0, 0},
                 {0, std::max<int64_t>(m - rows(a), 0), std::max<int64_t>(n - columns(a), 0)});
}

int64_t whole_blocks(int64_t k) { return (k + kBlock - 1) / kBlock * kBlock; }

// ---- Ops.

std::array<Value, 2> geqrf(Context& x, Value a) {
  x.check(a.rank() >= 2, "torch.geqrf: input must have at least 2 dimensions.");
  check_kernel_type(x, "geqrf_cpu", a.dtype());
  const Qr f = qr_factor(x, one_batch(x, a));
  return {with_batch(x, f.reflectors, batch_dims(a)), with_batch(x, f.tau, batch_dims(a))};
}

std::array<Value, 2> qr(Context& x, Value a, const std::string& mode) {
  check_matrix(x, "linalg.qr", a);
  check_linalg_type(x, "linalg.qr", a.dtype());
  x.check(mode == "reduced" || mode == "complete" || mode == "r", "qr received unrecognized mode '",
          mode, "' but expected one of 'reduced' (default), 'r', or 'complete'");
  check_kernel_type(x, "geqrf_cpu", a.dtype());
  const int64_t m = rows(a), n = columns(a), k = std::min(m, n);
  const Dims batch = batch_dims(a);
  const Qr f = qr_factor(x, one_batch(x, a));
  const int64_t kept = mode == "complete" ? m : k;
  const Value r = with_batch(x, upper_triangle(x, x.b.slice_dim(f.reflectors, 1, 0, kept)), batch);
  if (mode == "r") return {x.zeros({a.dtype(), {0}}), r};
  return {with_batch(x, form_q(x, f.reflectors, f.tau, kept), batch), r};
}

Value householder_product(Context& x, Value input, Value tau) {
  const char* name = "torch.linalg.householder_product";
  x.check(input.rank() >= 2, name, ": input must have at least 2 dimensions.");
  const int64_t m = rows(input), n = columns(input);
  x.check(m >= n, name, ": input.shape[-2] must be greater than or equal to input.shape[-1]");
  const int64_t k = tau.rank() == 0 ? 1 : tau.dim(tau.rank() - 1);
  x.check(n >= k, name, ": input.shape[-1] must be greater than or equal to tau.shape[-1]");
  x.check(input.rank() - tau.rank() == 1, name,
          ": Expected tau to have one dimension less than input, but got tau.ndim equal to ",
          tau.rank(), " and input.ndim is equal to ", input.rank());
  const Dims batch = batch_dims(input);
  Dims tau_dims = batch;
  tau_dims.push_back(k);
  x.check(tau.dims() == tau_dims, name,
          ": Expected batch dimensions of tau to be equal to input.shape[:-2], but got ",
          tau.dims());
  x.check(tau.dtype() == input.dtype(), name, ": tau dtype ", scalar_type_name(tau.dtype()),
          " does not match input dtype ", scalar_type_name(input.dtype()));
  check_kernel_type(x, "orgqr_cpu", input.dtype());
  const Value factors = x.b.reshape(tau, {hlo::product(batch), k});
  return with_batch(x, form_q(x, one_batch(x, input), factors, n), batch);
}

Value ormqr(Context& x, Value self, Value tau, Value other, bool left, bool transpose) {
  const char* name = "torch.ormqr";
  x.check(self.rank() >= 2, name, ": input must have at least 2 dimensions.");
  x.check(other.rank() >= 2, name, ": other must have at least 2 dimensions.");
  const int64_t m = rows(self), k = tau.dim(tau.rank() - 1);
  x.check((left ? rows(other) : columns(other)) >= k, name, ": other.shape[", left ? "-2" : "-1",
          "] must be greater than or equal to tau.shape[-1]");
  x.check((left ? rows(other) : columns(other)) == m, name, ": other.shape[", left ? "-2" : "-1",
          "] must be equal to input.shape[-2]");
  const int64_t across = left ? rows(other) : columns(other);
  x.check(k == std::min(across, columns(self)), name,
          ": tau.shape[-1] must be equal to min(other.shape[", left ? "-2" : "-1",
          "], input.shape[-1])");
  x.check(self.rank() - tau.rank() == 1 && self.rank() == other.rank(), name,
          ": Expected tau to have one dimension less than input, and other as many, but got ",
          tau.rank(), ", ", self.rank(), " and ", other.rank());
  x.check(tau.dtype() == self.dtype() && other.dtype() == self.dtype(), name,
          ": Expected input, tau and other to have the same dtype, but input has dtype ",
          scalar_type_name(self.dtype()), ", tau ", scalar_type_name(tau.dtype()), " and other ",
          scalar_type_name(other.dtype()));
  const Dims batch = batch_dims(self);
  x.check(batch_dims(other) == batch, name,
          ": Expected batch dimensions of other to be equal to input.shape[:-2], but got ",
          batch_dims(other));
  check_kernel_type(x, "ormqr_cpu", self.dtype());
  const Value a = one_batch(x, self), t = x.b.reshape(tau, {hlo::product(batch), k}),
              c = one_batch(x, other);
  // c Q = (Q^H c^H)^H
  const Value r = left ? apply_q(x, a, t, c, transpose)
                       : adjoint(x, apply_q(x, a, t, adjoint(x, c), !transpose));
  return with_batch(x, r, batch);
}

}  // namespace

Qr qr_factor(Context& x, Value a) {
  const int64_t batch = a.dim(0), m = a.dim(1), n = a.dim(2), k = std::min(m, n);
  Qr r{a, x.zeros({a.dtype(), {batch, k}})};
  if (batch == 0 || k == 0) return r;
  if (x.has_lapack()) {
    const Values v = lapack(x, "geqrf", {a}, {a.type(), r.tau.type()});
    return {v[0], v[1]};
  }
  if (x.has_tpu_calls()) {
    const Values v = tpu_call(x, "Qr", {a}, {a.type(), r.tau.type()});
    return {v[0], v[1]};
  }
  if (k <= kBlock) {
    const Values s = reflect(x, {a, r.tau}, int32(x, 0), int32(x, k));
    return {s[0], s[1]};
  }
  const int64_t full = whole_blocks(k);
  const Value start = padded(x, a, full, full);
  const Dims& d = start.dims();
  const Value column = row_numbers(x, d, 2);
  const Value no_tau = x.zeros({a.dtype(), {batch, full}});
  const Values s = repeat_for(
      x, int32(x, 0), int32(x, full / kBlock), {start, no_tau},
      [&](Value i, const Values& state) -> Values {
        const Value first = x.b.mul(i, int32(x, kBlock)), next = x.b.add(first, int32(x, kBlock));
        const Value steps = x.b.minimum(int32(x, kBlock), x.b.sub(int32(x, k), first));
        const Values p =
            reflect(x, {slice_at(x, state[0], 2, first, kBlock), state[1]}, first, steps);
        const auto form = compact_form(x, p[0], slice_at(x, p[1], 1, first, kBlock), first);
        const Value applied = apply_block(x, form, state[0], true);
        const Value right = x.b.compare(Cmp::kGe, column, x.broadcast(next, d));
        return {update_at(x, x.b.select(right, applied, state[0]), p[0], 2, first), p[1]};
      });
  return {x.b.slice(s[0], {0, 0, 0}, {batch, m, n}), x.b.slice_dim(s[1], 1, 0, k)};
}

Value apply_q(Context& x, Value a, Value tau, Value c, bool adjoint_form) {
  const int64_t batch = a.dim(0), m = a.dim(1), k = tau.dim(1);
  if (c.numel() == 0 || k == 0) return c;
  if (x.has_lapack()) {
    return lapack(x, "ormqr", {x.b.slice_dim(a, 2, 0, k), tau, c}, {c.type()},
                  {{"adjoint", adjoint_form}})[0];
  }
  if (k <= kBlock) {
    return apply_block(x, compact_form(x, x.b.slice_dim(a, 2, 0, k), tau, int32(x, 0)), c,
                       adjoint_form);
  }
  const int64_t full = whole_blocks(k), blocks = full / kBlock;
  // Reflectors beyond k have tau 0: they do nothing.
  const Value vectors = padded(x, x.b.slice_dim(a, 2, 0, k), 0, full);
  const Value factors = x.b.pad(tau, x.constant(tau.dtype(), 0), {0, 0}, {0, full - k});
  const Values s = repeat_for(
      x, int32(x, 0), int32(x, blocks), {c}, [&](Value i, const Values& state) -> Values {
        const Value block =
            adjoint_form ? i : x.b.sub(int32(x, blocks - 1), i);  // Q applies the last block first
        const Value first = x.b.mul(block, int32(x, kBlock));
        const auto form = compact_form(x, slice_at(x, vectors, 2, first, kBlock),
                                       slice_at(x, factors, 1, first, kBlock), first);
        return {apply_block(x, form, state[0], adjoint_form)};
      });
  return x.b.reshape(s[0], {batch, m, c.dim(2)});
}

Value form_q(Context& x, Value a, Value tau, int64_t columns_of_q) {
  const int64_t batch = a.dim(0), m = a.dim(1), k = tau.dim(1);
  const Dims d{batch, m, columns_of_q};
  if (!(x.has_lapack() || x.has_tpu_calls()) || k == 0 || hlo::product(d) == 0)
    return apply_q(x, a, tau, identity_like(x, {batch}, m, columns_of_q, a.dtype()), false);
  const Value vectors = padded(x, x.b.slice_dim(a, 2, 0, k), m, columns_of_q);
  if (x.has_lapack()) return lapack(x, "householder_product", {vectors, tau}, {{a.dtype(), d}})[0];
  const Value factors = x.b.pad(tau, x.constant(tau.dtype(), 0), {0, 0}, {0, columns_of_q - k});
  return tpu_call(x, "ProductOfElementaryHouseholderReflectors", {vectors, factors},
                  {{a.dtype(), d}})[0];
}

void register_linalg_qr(ops::Registry& r) {
  r.op("aten::geqrf", geqrf).column_major().out_casts(true);
  r.op("aten::linalg_qr", qr).column_major();
  r.op("aten::linalg_householder_product", householder_product).column_major().out_casts(true);
  r.op("aten::ormqr", ormqr).column_major();
}

}  // namespace tpu::aten
