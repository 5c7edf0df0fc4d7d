#include "bridge/lapack.h"

#include <ATen/Functions.h>
#include <c10/core/impl/LocalDispatchKeySet.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <vector>

#include "base/error.h"
#include "runtime/runtime.h"

namespace tpu::bridge {
namespace {

using pjrt::ElementType;
using pjrt::FfiBuffer;
using pjrt::FfiCall;
using Tensors = std::vector<at::Tensor>;

// A handler runs on whatever thread launches the program: what that thread has switched on in the
// dispatcher (modes, autocast, functorch) is not meant for it.
class PlainCpu {
  c10::impl::ForceDispatchKeyGuard guard_{
      c10::default_included_set,
      c10::default_excluded_set | c10::autograd_dispatch_keyset_with_ADInplaceOrView};
};

c10::ScalarType scalar_type(ElementType t) {
  switch (t) {
    case ElementType::kS32: return at::kInt;
    case ElementType::kF32: return at::kFloat;
    case ElementType::kF64: return at::kDouble;
    case ElementType::kC64: return at::kComplexFloat;
    case ElementType::kC128: return at::kComplexDouble;
    default: TPU_THROW(ErrorKind::kInvalid, "LAPACK has no type ", to_string(t));
  }
}

Tensors tensors(const std::vector<FfiBuffer>& buffers) {
  Tensors out;
  for (const FfiBuffer& b : buffers) {
    out.push_back(at::from_blob(b.data, at::IntArrayRef(b.dims.data(), b.dims.size()),
                                at::TensorOptions(scalar_type(b.element_type))));
  }
  return out;
}

template <size_t N>
std::array<at::Tensor, N> operands(const FfiCall& call) {
  TPU_CHECK(call.operands.size() == N, "the call has ", call.operands.size(),
            " operands; it takes ", N);
  std::array<at::Tensor, N> out;
  std::ranges::move(tensors(call.operands), out.begin());
  return out;
}

// Matrices first ... first + count - 1 of the results are `values`.
void give(const Tensors& results, at::ArrayRef<at::Tensor> values, int64_t first, int64_t count) {
  TPU_CHECK(results.size() == values.size(), "the call has ", results.size(), " results; it gives ",
            values.size());
  for (size_t i = 0; i < values.size(); ++i) {
    TPU_CHECK(results[i].dim() > 0 && results[i].size(0) >= first + count, "result ", i,
              " is too small");
    const at::Tensor to = results[i].narrow(0, first, count);
    TPU_CHECK(to.sizes() == values[i].sizes() && to.scalar_type() == values[i].scalar_type(),
              "result ", i, " is ", to.toString(), " of ", cat(to.sizes().vec()), " and not ",
              values[i].toString(), " of ", cat(values[i].sizes().vec()));
    to.copy_(values[i]);
  }
}

void give(const FfiCall& call, at::ArrayRef<at::Tensor> values) {
  TPU_CHECK(!call.results.empty() && !call.results[0].dims.empty(), "the call has no results");
  give(tensors(call.results), values, 0, call.results[0].dims[0]);
}

// For functions of torch that throw LAPACK's code. The last result is info, 1 for each matrix that
// failed, whose other results are NaN.
template <class F>
void give_checked(const FfiCall& call, const at::Tensor& a, const F& f) {
  Tensors results = tensors(call.results);
  TPU_CHECK(!results.empty() && results.back().sizes() == a.sizes().slice(0, 1),
            "the last result is no info");
  const at::Tensor info = results.back();
  results.pop_back();
  info.zero_();
  try {
    give(results, f(a), 0, a.size(0));
    return;
  } catch (const c10::LinAlgError&) {
  }
  for (int64_t i = 0; i < a.size(0); ++i) {
    try {
      give(results, f(a.narrow(0, i, 1)), i, 1);
    } catch (const c10::LinAlgError&) {
      for (const at::Tensor& r : results) r.select(0, i).fill_(NAN);
      info.select(0, i).fill_(1);
    }
  }
}

// The rows that the exchanges of pivots [batch, k] (from 1) leave in the places 0 ... m - 1. Pivots
// that name no row are for the program to report.
at::Tensor permutation(const at::Tensor& pivots, int64_t m) {
  const int64_t batch = pivots.size(0), k = pivots.size(1);
  const at::Tensor source = pivots.contiguous();
  at::Tensor out = at::arange(m, at::kInt).expand({batch, m}).contiguous();
  for (int64_t b = 0; b < batch; ++b) {
    const int* from = source.const_data_ptr<int>() + b * k;
    int* row = out.mutable_data_ptr<int>() + b * m;
    for (int64_t i = 0; i < k; ++i) {
      if (from[i] >= 1 && from[i] <= m && i < m) std::swap(row[i], row[from[i] - 1]);
    }
  }
  return out;
}

void lu_factor(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const auto [factors, pivots, info] = at::linalg_lu_factor_ex(a);
  give(call, {factors, pivots, permutation(pivots, a.size(-2)), info});
}

void lu_permutation(const FfiCall& call) {
  const auto [pivots] = operands<1>(call);
  TPU_CHECK(call.results.size() == 1 && call.results[0].dims.size() == 2 && pivots.dim() == 2 &&
                pivots.scalar_type() == at::kInt,
            "pivots and permutation are matrices of int32");
  give(call, {permutation(pivots, call.results[0].dims[1])});
}

void solve_triangular(const FfiCall& call) {
  auto [a, b] = operands<2>(call);
  bool lower = call.flag("lower");
  if (call.flag("transpose")) {
    a = a.mT();
    lower = !lower;
  }
  if (call.flag("conjugate")) a = a.conj();
  give(call, {at::linalg_solve_triangular(a, b, !lower, call.flag("left"), call.flag("unit"))});
}

void cholesky(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const auto [factor, info] = at::linalg_cholesky_ex(a, call.flag("upper"));
  give(call, {factor, info});
}

void geqrf(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const auto [reflectors, tau] = at::geqrf(a);
  give(call, {reflectors, tau});
}

void householder_product(const FfiCall& call) {
  const auto [a, tau] = operands<2>(call);
  give(call, {at::linalg_householder_product(a, tau)});
}

void ormqr(const FfiCall& call) {
  const auto [a, tau, c] = operands<3>(call);
  give(call, {at::ormqr(a, tau, c, true, call.flag("adjoint"))});
}

void eigh(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const bool vectors = call.flag("vectors");
  const char* triangle = call.flag("upper") ? "U" : "L";
  give_checked(call, a, [&](const at::Tensor& part) -> Tensors {
    const auto [values, v] = at::_linalg_eigh(part, triangle, vectors);
    return vectors ? Tensors{values, v} : Tensors{values};
  });
}

void svd(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const bool vectors = call.flag("vectors"), full = call.flag("full");
  give_checked(call, a, [&](const at::Tensor& part) -> Tensors {
    const auto [u, s, vh] = at::_linalg_svd(part, full, vectors);
    return vectors ? Tensors{u, s, vh} : Tensors{s};
  });
}

void eig(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const bool vectors = call.flag("vectors");
  // What is not finite is reported by the program; LAPACK does not take it.
  const at::Tensor finite = a.isfinite().all(-1, true).all(-2, true);
  give_checked(call, at::where(finite, a, at::zeros({}, a.options())),
               [&](const at::Tensor& part) -> Tensors {
                 if (!vectors) return {at::linalg_eigvals(part)};
                 const auto [values, v] = at::linalg_eig(part);
                 return {values, v};
               });
}

void ldl_factor(const FfiCall& call) {
  const auto [a] = operands<1>(call);
  const auto [factors, pivots, info] = at::linalg_ldl_factor_ex(a, call.flag("hermitian"));
  give(call, {factors, pivots, info});
}

// LAPACK trusts pivots: each names a row, and those of a block of two are negative both.
void check_ldl_pivots(const at::Tensor& pivots) {
  const int64_t batch = pivots.size(0), n = pivots.size(1);
  const at::Tensor rows = pivots.contiguous();
  for (int64_t b = 0; b < batch; ++b) {
    const int* p = rows.const_data_ptr<int>() + b * n;
    for (int64_t i = 0; i < n; ++i) {
      const bool pair = p[i] < 0;
      bool good = p[i] != 0 && p[i] >= -n && p[i] <= n;
      if (pair) good &= ++i < n && p[i] < 0 && p[i] >= -n;
      TPU_CHECK(good, "torch.linalg.ldl_solve: the pivots are not those of a factorization");
    }
  }
}

void ldl_solve(const FfiCall& call) {
  const auto [factors, pivots, b] = operands<3>(call);
  TPU_CHECK(pivots.dim() == 2 && pivots.scalar_type() == at::kInt, "pivots are a matrix of int32");
  check_ldl_pivots(pivots);
  give(call, {at::linalg_ldl_solve(factors, pivots, b, call.flag("hermitian"))});
}

template <pjrt::FfiHandler kFunction>
void handler(const FfiCall& call) {
  const PlainCpu plain;
  try {
    kFunction(call);
  } catch (const c10::Error& e) {
    TPU_THROW(ErrorKind::kInvalid, e.what_without_backtrace());
  }
}

template <pjrt::FfiHandler kFunction>
runtime::FfiTarget target(const char* name) {
  return {name, pjrt::ffi_entry<handler<kFunction>>()};
}

}  // namespace

void register_lapack() {
  static const std::array targets{
      target<lu_factor>("torch_tpu.lu_factor"),
      target<lu_permutation>("torch_tpu.lu_permutation"),
      target<solve_triangular>("torch_tpu.solve_triangular"),
      target<cholesky>("torch_tpu.cholesky"),
      target<geqrf>("torch_tpu.geqrf"),
      target<householder_product>("torch_tpu.householder_product"),
      target<ormqr>("torch_tpu.ormqr"),
      target<eigh>("torch_tpu.eigh"),
      target<svd>("torch_tpu.svd"),
      target<eig>("torch_tpu.eig"),
      target<ldl_factor>("torch_tpu.ldl_factor"),
      target<ldl_solve>("torch_tpu.ldl_solve"),
  };
  runtime::set_lapack(targets);
}

}  // namespace tpu::bridge
