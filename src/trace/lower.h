// A window as a StableHLO function: the same lowerings, run on the live nodes in order.
//
// Arguments: the window's parameters, then the scalar packs that are not empty (f32, f64, i32,
// i64). Results: the live outputs in order, then, when something is asserted, s64[2 * n]: a flag
// and a value for each of n assertions.
#pragma once
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "hlo/function.h"
#include "trace/window.h"

namespace tpu::trace {

struct Assertion {
  ErrorKind kind;
  std::string text;  // "{}" stands for the value
  uint32_t node;     // of the window: its line is that of the window, not of the program
  bool spoils;       // the node's results are wrong where it does not hold
};

struct Lowered {
  std::unique_ptr<hlo::Function> function;
  std::vector<Assertion> assertions;
};

Lowered lower(const Window& w, std::span<const int32_t> live, const std::vector<bool>& donated,
              ops::Target target);

// For each assertion, then for each live output: whether its node depends on each parameter of the
// window and, after those, on each assertion.
std::vector<std::vector<bool>> dependencies(const Window& w, std::span<const int32_t> live,
                                            std::span<const Assertion> assertions);

// What a traced program gives, in terms of its window (Window::reference).
struct TraceResults {
  std::vector<int32_t> outputs;
  // One a parameter: the output that takes over its memory, or -1.
  std::vector<int32_t> aliases;
  uint64_t random_draws = 0;  // > 0: a last argument and a last output ui64[2], {seed, offset}
  bool assertions = false;    // else what is asserted is left out
  // One a parameter, or nothing at all: its bytes where it is a constant of the program and no
  // argument.
  std::vector<std::optional<std::string_view>> embedded;
};
// The window as a program of its own: scalars are constants in it, the state of the generator is an
// argument and a result, and each instruction is named after module, op and line.
Lowered lower_trace(const Window& w, const TraceResults& results, ops::Target target);

}  // namespace tpu::trace
