// Dense linear algebra: what the factorisation files share.
//
// On a CPU plugin the host's LAPACK does the work (`lapack`), on a TPU the plugin's own LU and QR.
// Elsewhere: StableHLO has Cholesky and triangular solves; everything else is a loop written with
// its instructions, so that it runs on every plugin. All factorisations work on one batch dim
// ([batch, rows, columns]), in float32, float64 or their complex types, with products in full
// precision. Loops have a fixed body: programs do not grow with the matrix.
#pragma once
#include <functional>

#include "ops/context.h"
#include "ops/registry.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Context;
using ops::Dims;
using ops::DType;
using ops::Op;
using ops::Opt;
using ops::Type;
using ops::Value;
using ops::Values;

// ---- Checks with PyTorch's texts.
void check_matrix(Context& x, const char* name, Value a);  // two dims or more
void check_square(Context& x, const char* name, Value a);
void check_linalg_type(Context& x, const char* name, DType t);    // a float or complex type
void check_kernel_type(Context& x, const char* kernel, DType t);  // and not a narrow one

// ---- Batches.
int64_t rows(Value a);
int64_t columns(Value a);
Dims batch_dims(Value a);                           // all but the last two
Value one_batch(Context& x, Value a);               // [..., m, n] -> [batch, m, n]
Value with_batch(Context& x, Value v, Dims batch);  // [batch, ...] -> [*batch, ...]
Value broadcast_batch(Context& x, Value a, const Dims& batch);

// ---- Matrices [..., m, n].
Value transposed(Context& x, Value a);  // the last two dims swapped
Value adjoint(Context& x, Value a);     // and conjugated
Value conjugated(Context& x, Value a);
Value product(Context& x, Value a, Value b);  // full precision
Value identity_like(Context& x, const Dims& batch, int64_t m, int64_t n, DType t);
// Elements on and below (above) the diagonal, moved by `offset`; zeros elsewhere.
Value lower_triangle(Context& x, Value a, int64_t offset = 0);
Value upper_triangle(Context& x, Value a, int64_t offset = 0);
Value diagonal_of(Context& x, Value a);                   // [..., min(m, n)]
Value scale_columns(Context& x, Value a, Value factors);  // factors [..., n], real or a's type
Value solve_triangular(Context& x, Value a, Value b, bool left, bool lower, bool unit,
                       char transpose = 'N');
Value squared_size(Context& x, Value v);  // |v|^2, real

// ---- Loops and positions.
// state = body(i, state) for i = first, ..., last - 1 (rank-0 int32).
Values repeat_for(Context& x, Value first, Value last, const Values& state,
                  const std::function<Values(Value i, const Values& state)>& body);
// A slice of `size` at a run-time position along one dim, and writing it back.
Value slice_at(Context& x, Value v, int64_t dim, Value start, int64_t size);
Value update_at(Context& x, Value v, Value block, int64_t dim, Value start);
Value row_numbers(Context& x, const Dims& dims, int64_t dim);  // int32 iota
Value int32(Context& x, int64_t v);
// v[b, index[b, i], ...]; v [batch, n, ...], index [batch, m] int32 in range.
Value gather_rows(Context& x, Value v, Value index);

// ---- Factorisations (linalg_lu.cpp, linalg_qr.cpp, linalg_spectral.cpp).
struct Lu {
  Value factors;      // L below the diagonal (ones left out), U on and above it
  Value pivots;       // int32 [batch, k]: row exchanged with row i, from 0
  Value permutation;  // int32 [batch, m]: which row of A is row i of L U
  Value info;         // int32 [batch]: 1 + first zero pivot, or 0
};
Lu lu_factor(Context& x, Value a, bool pivot);  // a [batch, m, n]
Value lu_solve(Context& x, Value factors, Value permutation, Value b, bool left, bool adjoint);

struct Qr {
  Value reflectors;  // LAPACK's geqrf: R on and above the diagonal, vectors below it
  Value tau;         // [batch, k]
};
Qr qr_factor(Context& x, Value a);
// Q c, Q^H c (adjoint), with Q of the k reflectors of `a`; c [batch, m, n].
Value apply_q(Context& x, Value a, Value tau, Value c, bool adjoint);
// The first `columns` columns of Q.
Value form_q(Context& x, Value a, Value tau, int64_t columns);

struct Svd {
  Value u, s, v;  // a = u diag(s) v^H; largest s first
};
// a [batch, m, n], not empty; u [batch, m, m] if full and m > n, else [batch, m, k], v likewise.
Svd svd_factor(Context& x, Value a, bool full, bool compute_uv);

// ---- A function of the host's LAPACK, where Context::has_lapack says that there is one
// (src/bridge/lapack.cpp). Matrices [batch, m, n] that are not empty; info int32 [batch] is 0 where
// all went well; operands and results are of one type or its real type.
//   lu_factor            a -> factors, pivots from 1, permutation from 0, info
//   lu_permutation       pivots from 1 -> permutation from 0
//   solve_triangular     a, b -> x; left lower unit transpose conjugate
//   cholesky             a -> factor, info; upper
//   geqrf                a -> reflectors and R, tau
//   householder_product  reflectors, tau -> Q
//   ormqr                reflectors, tau, c -> Q c; adjoint
//   eigh                 a -> values, vectors if wanted, info; upper vectors
//   svd                  a -> u if wanted, s, v^H if wanted, info; full vectors
//   eig                  a -> values, vectors if wanted, info; vectors. Not finite counts as 0
//   ldl_factor           a -> factors, pivots, info; hermitian
//   ldl_solve            factors, pivots, b -> x; hermitian
using LapackFlags = std::vector<std::pair<const char*, bool>>;
Values lapack(Context& x, const char* function, const Values& operands,
              const std::vector<Type>& results, const LapackFlags& flags = {});

// A function of libtpu, where Context::has_tpu_calls says so. Batches as above.
//   LuDecomposition                          a -> factors, pivots from 0, permutation from 0
//   Qr                                       a -> reflectors and R, tau
//   ProductOfElementaryHouseholderReflectors reflectors, tau -> Q
Values tpu_call(Context& x, const char* function, const Values& operands,
                const std::vector<Type>& results);

void register_linalg_lu(ops::Registry& r);
void register_linalg_qr(ops::Registry& r);
void register_linalg_eig(ops::Registry& r);
void register_linalg_ldl(ops::Registry& r);
void register_linalg_spectral(ops::Registry& r);

}  // namespace tpu::aten
