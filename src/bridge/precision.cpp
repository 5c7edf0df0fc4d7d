#include "bridge/precision.h"

#include <ATen/Context.h>
#include <c10/util/Exception.h>

#include "base/log.h"
#include "bridge/inherited.h"

namespace tpu::bridge {

hlo::Precision current_precision() {
  if (const auto p = pushed_precision()) return *p;
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST: return hlo::Precision::kHighest;
    case at::Float32MatmulPrecision::HIGH: return hlo::Precision::kHigh;
    case at::Float32MatmulPrecision::MEDIUM: return hlo::Precision::kDefault;
  }
  return hlo::Precision::kHighest;
}

void hint_at_precision(const trace::Instance& inst) {
  if (pushed_precision() || !first_time("hint at precision")) return;
  TORCH_WARN(inst.signature(),
             " takes six passes over the matrix unit, which is exact to float32 and PyTorch's "
             "default. torch.set_float32_matmul_precision('high') takes three (about 16 bits), "
             "'medium' one (8 bits): large products then run up to 2 and 6 times as fast. "
             "python -m torch_tpu.aot tells what a program gains. Said once");
}

}  // namespace tpu::bridge
