// The float32 matmul precision in force: this thread's innermost torch.tpu.precision, else
// torch.set_float32_matmul_precision.
#pragma once
#include "hlo/builder.h"

namespace tpu::bridge {

hlo::Precision current_precision();

}  // namespace tpu::bridge
