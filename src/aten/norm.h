// What the normalisations (norm.cpp, batch_norm.cpp) share.
#pragma once
#include "ops/registry.h"

namespace tpu::aten {

// Plain sum and mean in v's own type; the mean keeps the axes with size 1.
ops::Value sum_over(ops::Context& x, ops::Value v, const ops::Dims& axes, bool keepdim);
ops::Value mean_over(ops::Context& x, ops::Value v, const ops::Dims& axes);

// 1 / sqrt(var + eps).
ops::Value inverse_root(ops::Context& x, ops::Value var, const ops::Scalar& eps);

// NotImplementedError unless t is a real float of 16 bits or more.
void check_real(const ops::Context& x, ops::DType t, const char* kernel);

// v * weight + bias, both optional; `shape` is what the parameters' elements broadcast as.
ops::Value affine(ops::Context& x, ops::Value v, const ops::Opt<ops::Value>& weight,
                  const ops::Opt<ops::Value>& bias, const ops::Dims& shape);

// Gradient with respect to v of normal = (v - mean) * rstd, whose mean and rstd come from v's
// values along the axes; not `centred`: of v * rstd.
ops::Value normalized_gradient(ops::Context& x, ops::Value grad, ops::Value normal, ops::Value rstd,
                               const ops::Dims& axes, bool centred);

void register_batch_norm(ops::Registry& r);  // called by register_norm

}  // namespace tpu::aten
