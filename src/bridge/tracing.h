// A traced program seen from torch: placeholder tensors in, results out.
//
// Between enter() and exit(), which are called on one thread, every op on the device goes into the
// program and nothing runs. Placeholders are ordinary tensors of the device without memory; what
// the traced code writes into one is an update, an output of the program in the same memory.
#pragma once
#include <ATen/core/Tensor.h>

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "bridge/graph.h"
#include "trace/trace.h"

namespace tpu::bridge {

class Tracing {
 public:
  // `for_tpu`: the lowerings of a TPU, else those of the plugin in use.
  Tracing(c10::DeviceIndex device, bool for_tpu);
  // For `graph`: what is traced runs here.
  explicit Tracing(c10::DeviceIndex device);
  // For `subgraph`: of the program that this thread traces; null where it traces none.
  static std::unique_ptr<Tracing> inside(c10::DeviceIndex device);
  ~Tracing();
  Tracing(const Tracing&) = delete;
  Tracing& operator=(const Tracing&) = delete;

  void enter();
  void exit();

  // A parameter. `strides` that are dense are kept, others become row-major.
  at::Tensor placeholder(c10::IntArrayRef sizes, c10::IntArrayRef strides, c10::ScalarType dtype);

  // Random draws so far from the state that the default generator has.
  int64_t drawn() const;

  struct Argument {
    enum class Kind { kPlaceholder, kConstant, kGenerator } kind;
    int index = -1;       // of the placeholder, or of the constant
    int updated_by = -1;  // the output that takes over its memory
  };
  struct Program {
    std::string text;  // StableHLO
    std::vector<Argument> arguments;
    std::vector<at::Tensor> constants;  // tensors with values that the traced code used
    size_t output_count = 0;            // then updates in the order of the arguments, generator
    std::vector<trace::Assertion> assertions;  // a last output s64[2 n], as trace/lower.h says
  };
  struct FinishOptions {
    bool assertions = false;
    bool locations = true;  // in the text: module, op and line of each instruction
    // Placeholders that become constants of the program, with their bytes, row-major.
    std::map<int, std::string_view> embedded = {};
  };
  // The program of these results; inside of enter and exit, once.
  Program finish(const std::vector<at::Tensor>& outputs, const FinishOptions& options);
  // The same as a function of the placeholders; undefined outputs stay so.
  std::unique_ptr<CompiledGraph> graph(const std::vector<at::Tensor>& outputs);

  // The same for a control-flow op to run (trace/subgraph.h): its number, and tensors that it takes
  // behind the placeholders. Their strides are lost: results are row-major.
  struct Inner {
    int64_t number;
    std::vector<at::Tensor> captured;
  };
  Inner subgraph(const std::vector<at::Tensor>& outputs);

 private:
  Tracing(c10::DeviceIndex device, trace::Trace& around);
  struct Placeholder {
    at::Tensor base;  // row-major over the storage of what the user has
    trace::ValuePtr value;
    CompiledGraph::Argument argument;
  };
  const c10::DeviceIndex device_;
  bool entered_ = false;
  trace::Trace trace_;
  std::vector<Placeholder> placeholders_;
};

}  // namespace tpu::bridge
