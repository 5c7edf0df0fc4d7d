// Reductions that other families build on.
#pragma once
#include <array>
#include <string>

#include "ops/registry.h"

namespace tpu::aten {

// The largest (smallest) element along `dim` and its int64 position: NaN wins over everything, the
// first of equals is taken. Rank 0 gives the value itself and 0; the size along `dim` must not be
// 0.
std::array<ops::Value, 2> arg_reduce(ops::Context& x, ops::Value v, int64_t dim, bool largest,
                                     bool keepdim);

// Mean and sum of squared distances from it along the axes (kept with size 1), in the type that v
// is computed in; the second is real for complex v.
std::array<ops::Value, 2> moments(ops::Context& x, ops::Value v, const ops::Dims& axes);

// (sum |v|^p)^(1/p) over the axes, without the root when !root, in real compute type. p: 0, 1, 2,
// inf and -inf are special when known (OpBuilder::fold).
ops::Value p_norm(ops::Context& x, ops::Value v, const ops::Scalar& p, const ops::Dims& axes,
                  bool keepdim, bool root = true);

// The type in which n integers of type `from` are summed exactly for a sum of type `to`: int32,
// native everywhere, instead of int64 where it cannot overflow.
ops::DType exact_sum_type(ops::DType from, ops::DType to, int64_t n);

// Elements that one result is made of.
int64_t reduced_count(ops::Value v, const ops::Dims& axes);

// IndexError "name: Expected reduction dim 1 to have non-zero size."
void check_nonempty(const ops::Context& x, const std::string& name, ops::Value v, int64_t dim);

void register_segment(ops::Registry& r);  // called by register_reduce
void register_jagged(ops::Registry& r);   // the same

}  // namespace tpu::aten
