// A traced program to be recorded again and again: the nodes of a Trace, with its placeholders as
// the arguments of a call.
//
// Nothing is compiled here. Recorded into a window (Window::record), the nodes are looked up, run,
// donated from and, when they fail, told apart like any others; a call costs no more than a copy of
// some arrays. Made by Trace::graph.
#pragma once
#include <cstdint>
#include <vector>

#include "trace/window.h"

namespace tpu::trace {

struct Graph {
  // What a node or a result refers to besides nodes: an argument of the call, or a value that the
  // traced code brought along.
  struct Parameter {
    int32_t argument = -1;
    ValuePtr constant;  // where `argument` is -1
  };

  std::vector<Node> nodes;
  std::vector<int32_t> inputs;  // >= 0: parameter; < 0: output ~n of an earlier node
  std::vector<Parameter> parameters;
  std::vector<int32_t> results;  // as `inputs`
  // A random state in them is the number of its source and the offset from that source's state.
  Packs packs;
  std::vector<size_t> random_at;  // where such states begin in packs.i64
  std::vector<RandomSource> sources;

  const ValuePtr& parameter(int32_t n, std::span<const ValuePtr> arguments) const {
    const Parameter& p = parameters[static_cast<size_t>(n)];
    return p.argument >= 0 ? arguments[static_cast<size_t>(p.argument)] : p.constant;
  }
};

}  // namespace tpu::trace
