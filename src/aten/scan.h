// Inclusive scans along one dimension.
#pragma once
#include <functional>

#include "ops/context.h"

namespace tpu::aten {

// op: kAdd, kMultiply, kMaximum or kMinimum (NaN propagates), in v's own type. O(n): windows over
// blocks of blocks; on a TPU one window over everything, which its compiler splits.
ops::Value cumulative(ops::Context& x, ops::Value v, int64_t dim, ops::Op op);

// Any associative `combine` with a rank-0 `identity`; O(n) work in O(sqrt n) steps of a loop.
using Combine = std::function<ops::Value(ops::Value, ops::Value)>;
ops::Value scan(ops::Context& x, ops::Value v, int64_t dim, ops::Value identity,
                const Combine& combine);

}  // namespace tpu::aten
