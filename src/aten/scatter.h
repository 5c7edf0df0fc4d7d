// Writing into a tensor at positions that index tensors name: what the index, scatter and mask
// lowerings share, and the parts that register_index is made of.
#pragma once
#include <string>

#include "aten/indexing.h"
#include "ops/registry.h"

namespace tpu::aten {

// Where a scatter writes (Context::checked_place): indices beyond the range are left out.
struct Place {
  Value indices;
  hlo::ScatterDims dims;
};

// Whole slices of a tensor of this rank along `dim`, one for each element of `index` (rank 1).
Place along_dim(int64_t rank, int64_t dim, Value index);

// On bool, addition and maximum are "or", multiplication and minimum "and".
ops::Op combiner(ops::Op op, DType t);

Value write(Context& x, Value base, const Place& at, Value updates);
// base op= updates; narrow floats are combined in float32 and rounded once.
Value combine(Context& x, Value base, const Place& at, Value updates, ops::Op op);

enum class Reduction : uint8_t { kSum, kProd, kMean, kMax, kMin };
Opt<Reduction> find_reduction(const std::string& name);  // "sum", "prod", "mean", "amax", "amin"
// scatter_reduce: without include_self, what is written to counts alone.
Value reduce_into(Context& x, Value self, const Place& at, Value updates, Reduction r,
                  bool include_self);

bool is_index_type(Value v);  // int32 or int64
// Scalars stand for vectors of one element wherever there is a dim argument.
Value at_least_1d(Context& x, Value v);
Dims other_dims(int64_t rank, int64_t dim);  // all but `dim`

void register_scatter(ops::Registry& r);
void register_masked(ops::Registry& r);
void register_view_gradients(ops::Registry& r);

}  // namespace tpu::aten
