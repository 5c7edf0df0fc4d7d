// What the lowerings of contractions, windows, attention and cells share: dots that keep the width
// of their sums, parameters given once for all spatial dims, reads along one dim, and mixing by
// alpha and beta. Pure functions on a Context.
#pragma once
#include <algorithm>
#include <string_view>

#include "ops/registry.h"

namespace tpu::aten {

using Ctx = ops::Context;
using hlo::Cmp;
using hlo::Dims;
using hlo::DType;
using hlo::Op;
using hlo::Type;
using hlo::Value;
using ops::Opt;
using ops::Scalar;
using ops::Values;

inline size_t at(int64_t i) { return static_cast<size_t>(i); }

inline bool is_narrow(DType t) { return hlo::is_float(t) && hlo::compute_type(t) != t; }

// Context::dot, but f16 and bf16 operands give their f32 sums: the caller rounds once at its end.
Value wide_dot(Ctx& x, Value lhs, Value rhs, const hlo::DotDims& d);

// [batch..., m, k] by [batch..., k, n], or by [batch..., n, k] when `transposed`.
inline Value wide_matmul(Ctx& x, Value lhs, Value rhs, bool transposed = false) {
  const int64_t r = lhs.rank();
  hlo::DotDims d;
  for (int64_t i = 0; i < r - 2; ++i) {
    d.lhs_batch.push_back(i);
    d.rhs_batch.push_back(i);
  }
  d.lhs_contract = {r - 1};
  d.rhs_contract = {transposed ? r - 1 : r - 2};
  return wide_dot(x, lhs, rhs, d);
}

// A parameter given once (int[2] x = 3) stands for all `n` spatial dims.
inline Dims per_dim(Ctx& x, const Dims& v, int64_t n, std::string_view what) {
  if (v.size() == 1) return Dims(at(n), v[0]);
  x.check(static_cast<int64_t>(v.size()) == n, "expected ", what,
          " to be a single integer value or a list of ", n, " values, but got ", v.size(), ": ", v);
  return v;
}

// Elements `index` ([n] or rank 0, in range) along dim: dims of v with dim replaced by n.
inline Value take(Ctx& x, Value v, Value index, int64_t dim, bool sorted = false) {
  hlo::GatherDims g;
  Dims sizes = v.dims();
  sizes[at(dim)] = 1;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != dim) g.offset_dims.push_back(i);
  }
  g.collapsed_slice_dims = {dim};
  g.start_index_map = {dim};
  g.index_vector_dim = 1;
  return x.b.gather(v, index, g, sizes, sorted);
}

// v (rank 1) laid along `dim` of `dims`.
inline Value along(Ctx& x, Value v, const Dims& dims, int64_t dim) {
  return x.b.broadcast_in_dim(v, dims, {dim});
}

// ---- Sliding windows along one dim (sliding.cpp). `out` positions, `stride` apart, of `size`
// elements, `dilation` apart.
struct Sliding {
  int64_t size, stride, dilation, out;
  int64_t extent() const { return out == 0 ? 0 : (out - 1) * stride + (size - 1) * dilation + 1; }
};

// dims[dim] (at least extent) becomes [size, out].
Value to_windows(Ctx& x, Value v, int64_t dim, const Sliding& w);
// The adjoint: [size, out] at dim, dim + 1 are summed into `length` elements (at least extent).
Value from_windows(Ctx& x, Value v, int64_t dim, const Sliding& w, int64_t length);

// ---- Irregular runs along one dim (sliding.cpp): run r takes the elements [start, start + count),
// laid out as index[k * runs + r], of which real[...] = 0 are fillers.
struct Runs {
  int64_t size = 0;  // longest run
  Dims index, real, count;
  static Runs make(const Dims& start, Dims count);
};
// dims[dim] becomes [size, runs]; fillers repeat the run's last element.
Value gather_runs(Ctx& x, Value v, int64_t dim, const Runs& r);
// dims[dim] becomes [runs]. Empty runs give 0.
Value sum_runs(Ctx& x, Value v, int64_t dim, const Runs& r);

// Spatial sizes as "H: 2, W: 3" for messages.
inline std::string named_sizes(const Dims& d) {
  const char* names = d.size() == 1 ? "W" : d.size() == 2 ? "HW" : "DHW";
  std::string s;
  for (size_t j = 0; j < d.size(); ++j) s += cat(j ? ", " : "", names[j], ": ", d[j]);
  return s;
}

// [s0, s1, ...] without the batch: sizes as "2x3" for messages.
inline std::string by(const Dims& d) { return join(d, "x"); }

// Parts of register_conv, register_pool and register_resample.
void register_sliding(ops::Registry& r);
void register_adaptive_pool(ops::Registry& r);
void register_edge_pad(ops::Registry& r);
void register_grid_sampler(ops::Registry& r);

}  // namespace tpu::aten
