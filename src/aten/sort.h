// Sorting and searching that other families build on. NaN is the largest number; positions are
// int32.
#pragma once
#include <array>

#include "ops/registry.h"

namespace tpu::aten {

// Stable sort along `dim`: values and where each came from.
std::array<ops::Value, 2> sort_along(ops::Context& x, ops::Value v, int64_t dim,
                                     bool descending = false);

// result[..., i, ...] = v[..., index[..., i, ...], ...] along `dim`; the other dims of index are
// v's. Indices are in range.
ops::Value take_along(ops::Context& x, ops::Value v, ops::Value index, int64_t dim);

// First position in the sorted `boundaries` (their last dim) whose value is not below v, or is
// above v
// (`right`). boundaries: [n], or [..., n] for v [..., m]. Both have one dtype.
ops::Value search_sorted(ops::Context& x, ops::Value boundaries, ops::Value v, bool right);

void register_search(ops::Registry& r);  // called by register_sort
void register_unique(ops::Registry& r);

}  // namespace tpu::aten
