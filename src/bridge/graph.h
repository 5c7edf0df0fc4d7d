// A traced program as a function of tensors: torch.compile's graphs.
//
// A call records all nodes of the graph at once (trace/graph.h), writes what the traced code wrote
// into its arguments, launches, and makes the results: fresh tensors, views of each other or of
// arguments, as they were when traced.
#pragma once
#include <ATen/core/Tensor.h>

#include <vector>

#include "bridge/tensor.h"
#include "trace/graph.h"

namespace tpu::bridge {

class CompiledGraph {
 public:
  // The placeholder of a tensor argument: a value with the argument's dims in `order`, outermost
  // first; empty where they lie as they are.
  struct Argument {
    c10::ScalarType dtype;
    trace::Dims sizes, strides, order;
    bool viewed = false;  // a result is a view of it: its strides must be those
    int written = -1;     // the result of the graph that it gets as its new value
  };
  // Where the elements of results lie: a fresh storage, or that of an argument.
  struct Memory {
    int argument = -1;
    int value = -1;  // the result of the graph, -1: nothing was written
    int64_t size_bytes = 0;
  };
  struct Result {
    int memory = -1;  // -1: an undefined tensor
    c10::ScalarType dtype;
    trace::Dims sizes, strides;
    int64_t offset = 0;  // in elements; of an argument's memory, from the argument's first one
  };

  CompiledGraph(c10::DeviceIndex device, trace::Graph graph, std::vector<Argument> arguments,
                std::vector<Memory> memories, std::vector<Result> results)
      : device_(device),
        modes_(current_modes()),
        graph_(std::move(graph)),
        arguments_(std::move(arguments)),
        memories_(std::move(memories)),
        results_(std::move(results)) {}
  ~CompiledGraph();
  CompiledGraph(const CompiledGraph&) = delete;
  CompiledGraph& operator=(const CompiledGraph&) = delete;

  size_t nodes() const { return graph_.nodes.size(); }

  // Whether these are arguments as those it was traced with, precision and default dtype are those
  // of then, and this thread runs what it calls.
  bool fits(const std::vector<at::Tensor>& arguments) const;
  // The results for arguments that fit, which are let go of as soon as nothing needs them. One
  // launch, under way when this returns.
  std::vector<at::Tensor> call(std::vector<at::Tensor> arguments);

 private:
  const c10::DeviceIndex device_;
  const trace::Modes modes_;
  trace::Graph graph_;
  const std::vector<Argument> arguments_;
  const std::vector<Memory> memories_;
  const std::vector<Result> results_;
};

}  // namespace tpu::bridge
