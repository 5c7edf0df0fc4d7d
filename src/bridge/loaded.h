// A program that was compiled elsewhere, or of which only the text is known, as a function of
// tensors: what a package holds.
//
// Nothing is traced or lowered. A call launches the program once; arguments are taken in their
// logical dims, whatever their strides, and results are row-major.
#pragma once
#include <ATen/core/Tensor.h>

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "bridge/tensor.h"

namespace tpu::bridge {

class LoadedProgram {
 public:
  struct TensorType {
    c10::ScalarType dtype;
    trace::Dims dims;
  };
  struct Signature {
    std::vector<TensorType> arguments;
    std::vector<int> updated_by;      // one an argument: the output that is its new value, or -1
    std::vector<TensorType> outputs;  // without what is asserted, which is one more
    std::vector<trace::Assertion> assertions;
  };
  // Of `executable` (`compile` below, or pjrt::Compiled::serialize); where that is empty or was
  // made by another plugin build or for another processor, `text` is compiled. Throws kValue where
  // the executable's types are not those of the signature.
  LoadedProgram(Signature signature, const std::string& text, std::string_view executable);
  ~LoadedProgram();
  LoadedProgram(const LoadedProgram&) = delete;
  LoadedProgram& operator=(const LoadedProgram&) = delete;

  // Whether the text was compiled, and why; empty where the executable was taken.
  const std::string& why_compiled() const { return why_compiled_; }
  // The outputs that are no updates; these are written to the arguments. All on one device.
  std::vector<at::Tensor> call(std::vector<at::Tensor> arguments);

 private:
  const Signature signature_;
  std::string why_compiled_;
  std::shared_ptr<runtime::Program> program_;
};

// StableHLO text compiled for the device of this process, as bytes for a package.
std::string compile_for_package(const std::string& text);

}  // namespace tpu::bridge
