// What the two files of random lowerings share. Plain draws come from Context (one counter range an
// op); a rejection loop carries its own generator state, since every round must draw afresh.
#pragma once
#include "aten/indexing.h"
#include "ops/registry.h"

namespace tpu::aten {

// "name" not implemented for ... unless t is a real float (float8 excluded).
void check_float(Context& x, const char* name, DType t);

// Samplers that reject or search: poisson, binomial, gamma, dirichlet, and their gradients.
void register_distributions(ops::Registry& r);

}  // namespace tpu::aten
