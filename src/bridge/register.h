// Registers a kernel for every op definition and its schema family with PyTorch's dispatcher.
#pragma once
#include <string>
#include <vector>

namespace tpu::bridge {

// Once, at load; throws kInternal on the first definition that does not fit its schema.
void register_ops();

// What was registered, for docs and tests: definition name, overloads that run on it.
struct RegisteredOp {
  std::string name;
  std::vector<std::string> overloads;
};
const std::vector<RegisteredOp>& registered_ops();

}  // namespace tpu::bridge
