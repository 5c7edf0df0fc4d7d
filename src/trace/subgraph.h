// A traced subgraph: what a control-flow op runs in a region of its own.
//
// It is made like a graph (Trace::subgraph), from a trace inside of another, and belongs to the
// table of its nodes' instances, which gives equal ones one number. That number stands in the key
// of the op, so that windows with equal subgraphs are equal. Everything it needs is an argument:
// what the traced code brought along becomes one. Python numbers are constants of it.
#pragma once
#include <string>
#include <vector>

#include "trace/graph.h"

namespace tpu::trace {

struct Subgraph {
  Graph graph;  // all its parameters are arguments
  std::vector<const Type*> arguments;
  std::vector<std::string> lines;  // of the user, one a node; empty for those that assert nothing
  int64_t draws = 0;
  int64_t assertions = 0;

  const Type* argument_type(int32_t parameter) const {
    const Graph::Parameter& p = graph.parameters[static_cast<size_t>(parameter)];
    return arguments[static_cast<size_t>(p.argument)];
  }
  // Everything that its code and its messages depend on.
  std::string content() const;
};

// tpu::cond, tpu::while_loop and tpu::scan (src/trace/control.cpp).
void register_control_flow(ops::Registry& r);

}  // namespace tpu::trace
