// The float32 matmul precision in force: this thread's innermost torch.tpu.precision, else
// torch.set_float32_matmul_precision.
#pragma once
#include "hlo/builder.h"
#include "trace/instance.h"

namespace tpu::bridge {

hlo::Precision current_precision();

// What less precision would gain, said once per process: at the first large float32 product in six
// passes that is recorded for a TPU, unless a block of torch.tpu.precision asks for them.
void hint_at_precision(const trace::Instance& inst);

}  // namespace tpu::bridge
