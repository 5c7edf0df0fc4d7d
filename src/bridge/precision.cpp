#include "bridge/precision.h"

#include <ATen/Context.h>

#include <vector>

#include "base/error.h"

namespace tpu::bridge {
namespace {
thread_local std::vector<hlo::Precision> stack;
}

hlo::Precision current_precision() {
  if (!stack.empty()) return stack.back();
  switch (at::globalContext().float32MatmulPrecision()) {
    case at::Float32MatmulPrecision::HIGHEST: return hlo::Precision::kHighest;
    case at::Float32MatmulPrecision::HIGH: return hlo::Precision::kHigh;
    case at::Float32MatmulPrecision::MEDIUM: return hlo::Precision::kDefault;
  }
  return hlo::Precision::kHighest;
}

void push_precision(hlo::Precision p) { stack.push_back(p); }

void pop_precision() {
  TPU_CHECK(!stack.empty(), "no precision was pushed on this thread");
  stack.pop_back();
}

}  // namespace tpu::bridge
