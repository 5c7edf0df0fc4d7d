// Prints a function as a StableHLO module in MLIR's generic form: one rule for all ops.
#pragma once
#include <string>

#include "hlo/function.h"

namespace tpu::hlo {

struct PrintOptions {
  bool locations = true;  // loc("...") after instructions that have one
  std::string module_name = "torch_tpu";
  int64_t num_replicas = 1;
  int64_t num_partitions = 1;
};

std::string print(const Function& f, const PrintOptions& options = {});

}  // namespace tpu::hlo
