// Views: (sizes, strides, offset) over a dense base, as the shortest chain of reshape, slice,
// transpose and broadcast, else a gather; and the inverse, an assignment through a view.
//
// A plan splits the base's dims into factors such that each view dim of nonzero stride walks along
// one factor with a constant step; every other factor is cut to one index. Only where a slice
// starts depends on the offset, and starts are run-time operands: x[k] in a loop is one program.
// Views whose dims overlap or straddle factors are read by a gather and written by a scatter of
// flat indices. Reinterpreting views (dtype of the view is not that of the base) go through a
// bitcast of the base.
#pragma once
#include <cstdint>
#include <span>

#include "ops/registry.h"
#include "trace/value.h"

namespace tpu::trace {

struct StridedPlan {
  bool gather = false;
  // Over the factors of the base, outermost first.
  Dims factor, start, count, step;
  // Per view dim: the factor it walks along, or -1 (size 1, or broadcast).
  Dims axis;
};

// `base`: dims of a dense row-major array in elements of the view's type; the view must lie inside
// it.
StridedPlan plan_view(std::span<const int64_t> base, std::span<const int64_t> sizes,
                      std::span<const int64_t> strides, int64_t offset);

// Dims of `base` when its bytes are read as `dtype`: the same when the sizes agree, else the last
// dim scaled when it divides, else flat (cut to whole elements).
Dims reinterpreted_dims(const Type& base, DType dtype);

// tpu::view_read(base, dtype, factor, count, step, axis, sizes, starts)      one start per cut
// factor tpu::view_read_gather(base, dtype, sizes, strides, offset) tpu::view_write(base, source,
// dtype, factor, count, step, axis, sizes, starts) tpu::view_write_scatter(base, source, dtype,
// sizes, strides, offset) tpu::permute(source, order), tpu::reshape(source, dims),
// tpu::convert(source, dtype), tpu::broadcast(source, dims),
// tpu::zeros(dtype, dims), tpu::resize(base, dtype, numel): flat, cut or padded with zeros
void register_views(ops::Registry& r);

}  // namespace tpu::trace
