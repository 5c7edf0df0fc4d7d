// c10::ScalarType and hlo::DType: one table. Types without a StableHLO form are refused by name.
#pragma once
#include <c10/core/ScalarType.h>

#include "hlo/dtype.h"

namespace tpu::bridge {

hlo::DType to_dtype(c10::ScalarType t);  // throws kUnsupported, with what to use instead
bool has_dtype(c10::ScalarType t);
c10::ScalarType to_scalar_type(hlo::DType t);

}  // namespace tpu::bridge
