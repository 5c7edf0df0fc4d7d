#include "bridge/precision.h"

#include <ATen/Context.h>

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

}  // namespace tpu::bridge
