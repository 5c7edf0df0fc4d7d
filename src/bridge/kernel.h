// The one boxed kernel behind every registered op: stack in, recorded node out.
//
// A Kernel is made per overload from the op's definition and the overload's schema. It turns
// tensors into values, Scalars into operands and everything else into key bytes, records one node,
// and gives back fresh tensors, or writes the results into the arguments that the schema marks as
// written (in-place and out= forms).
#pragma once
#include <ATen/core/dispatch/Dispatcher.h>
#include <ATen/core/function_schema.h>

#include <memory>
#include <string>
#include <vector>

#include "bridge/tensor.h"

namespace tpu::bridge {

class Kernel final : public c10::OperatorKernel {
 public:
  // Throws kInternal, with both signatures, when the lowering's parameters are not the schema's
  // inputs.
  Kernel(const ops::OpDef& def, const c10::FunctionSchema& schema);
  void operator()(const c10::OperatorHandle& op, c10::DispatchKeySet keys,
                  torch::jit::Stack* stack);

 private:
  struct Input {
    size_t position;  // in the schema
    ops::ArgKind kind;
    std::vector<ops::Number> folds;
  };
  struct Return {
    int argument = -1;  // alias of this argument, else a fresh result
  };
  std::string prefix(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) const;

  const ops::OpDef& def_;
  std::vector<Input> inputs_;
  std::vector<size_t> written_;  // schema positions of written arguments, in order
  std::vector<Return> returns_;
  int generator_ = -1;
  bool is_out_ = false;
  const bool fills_;  // writes one number everywhere: the destination's elements may share memory
  size_t argument_count_;
};

// Schema arguments that a lowering sees: not out=, layout, device, pin_memory, memory_format,
// generator; dtype stays in functional forms.
bool is_input(const c10::Argument& a);

// Calls one of our own ops (any registered definition) on tensors: `args` has one IValue per
// parameter of the lowering, None for an absent one. Fresh tensors come back, undefined where the
// op has none.
std::vector<at::Tensor> call(const char* op, c10::ArrayRef<c10::IValue> args,
                             const std::optional<at::Generator>& generator = std::nullopt);

}  // namespace tpu::bridge
