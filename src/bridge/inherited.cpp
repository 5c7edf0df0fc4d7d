#include "bridge/inherited.h"

#include <ATen/ThreadLocalPythonObjects.h>
#include <Python.h>
#include <torch/csrc/PyInterpreter.h>

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <vector>

namespace tpu::bridge {
namespace {

using at::impl::ThreadLocalPythonObjects;

// Pushes of all threads that are in force: while there is none, nobody looks.
std::atomic<int> pushes{0};
thread_local std::vector<runtime::Mode> modes;
thread_local std::vector<hlo::Precision> precisions;
thread_local std::vector<int> traces;
// What this thread had taken over when its first push came; it holds again after the last pop.
thread_local long taken_over = 0;

const std::string& key() {
  static const auto* k = new std::string("torch_tpu");
  return *k;
}

// mode + 1, precision + 1, number of the trace; 0 is nothing.
constexpr long kPrecisionUnit = 16, kTraceUnit = 256;

long mode_in(long code) { return code % kPrecisionUnit; }
long precision_in(long code) { return code / kPrecisionUnit % (kTraceUnit / kPrecisionUnit); }
long trace_in(long code) { return code / kTraceUnit; }

bool pushed_here() { return !modes.empty() || !precisions.empty() || !traces.empty(); }

// The object of a code, kept for ever: one that died with a backward pass would take the GIL on
// torch's thread, which ends the process when the interpreter is going down.
const std::shared_ptr<c10::SafePyObject>& published(long code) {
  static auto* objects = new std::map<long, std::shared_ptr<c10::SafePyObject>>;  // under the GIL
  auto& object = (*objects)[code];
  if (!object)
    object = std::make_shared<c10::SafePyObject>(PyLong_FromLong(code), getPyInterpreter());
  return object;
}

void publish() {
  const long mode = modes.empty() ? mode_in(taken_over) : static_cast<long>(modes.back()) + 1;
  const long precision =
      precisions.empty() ? precision_in(taken_over) : static_cast<long>(precisions.back()) + 1;
  const long trace = traces.empty() ? trace_in(taken_over) : static_cast<long>(traces.back());
  const long code = mode + kPrecisionUnit * precision + kTraceUnit * trace;
  if (code == 0) {
    if (ThreadLocalPythonObjects::contains(key())) ThreadLocalPythonObjects::erase(key());
    return;
  }
  ThreadLocalPythonObjects::set(key(), published(code));
}

long inherited() {
  if (pushes.load(std::memory_order_relaxed) == 0) return 0;
  if (pushed_here()) return taken_over;
  if (!ThreadLocalPythonObjects::contains(key())) return 0;
  // A small int is never changed: reading it needs no GIL.
  return PyLong_AsLong(ThreadLocalPythonObjects::get(key())->ptr(getPyInterpreter()));
}

template <class T>
void push(std::vector<T>& stack, T value) {
  if (!pushed_here()) taken_over = inherited();
  stack.push_back(value);
  ++pushes;
  publish();
}

template <class T>
void pop(std::vector<T>& stack) {
  stack.pop_back();
  --pushes;
  publish();
}

int inherited_mode() { return static_cast<int>(mode_in(inherited())) - 1; }
int inherited_trace() { return static_cast<int>(trace_in(inherited())); }

[[maybe_unused]] const bool registered = [] {
  runtime::set_inherited_mode(&inherited_mode);
  runtime::set_inherited_trace(&inherited_trace);
  return true;
}();

}  // namespace

void push_mode(runtime::Mode m) {
  push(modes, m);
  runtime::push_mode(m);
}

void pop_mode() {
  runtime::pop_mode();
  pop(modes);
}

void push_precision(hlo::Precision p) { push(precisions, p); }

void pop_precision() {
  TPU_CHECK(!precisions.empty(), "no precision was pushed on this thread");
  pop(precisions);
}

void push_trace(trace::Trace* t) { push(traces, runtime::push_trace(t)); }

void pop_trace() {
  runtime::pop_trace();
  pop(traces);
}

std::optional<hlo::Precision> pushed_precision() {
  if (!precisions.empty()) return precisions.back();
  const long p = precision_in(inherited());
  return p > 0 ? std::optional(static_cast<hlo::Precision>(p - 1)) : std::nullopt;
}

}  // namespace tpu::bridge
