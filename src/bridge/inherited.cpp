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

const std::string& key() {
  static const auto* k = new std::string("torch_tpu");
  return *k;
}

// mode + 1, precision + 1, number of the trace; 0 is nothing.
constexpr long kPrecisionUnit = 16, kTraceUnit = 256;

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
  const long code =
      (modes.empty() ? 0 : static_cast<long>(modes.back()) + 1) +
      (precisions.empty() ? 0 : kPrecisionUnit * (static_cast<long>(precisions.back()) + 1)) +
      (traces.empty() ? 0 : kTraceUnit * static_cast<long>(traces.back()));
  if (code == 0) {
    if (ThreadLocalPythonObjects::contains(key())) ThreadLocalPythonObjects::erase(key());
    return;
  }
  ThreadLocalPythonObjects::set(key(), published(code));
}

long inherited() {
  if (pushes.load(std::memory_order_relaxed) == 0) return 0;
  if (!modes.empty() || !precisions.empty() || !traces.empty()) return 0;
  if (!ThreadLocalPythonObjects::contains(key())) return 0;
  // A small int is never changed: reading it needs no GIL.
  return PyLong_AsLong(ThreadLocalPythonObjects::get(key())->ptr(getPyInterpreter()));
}

int inherited_mode() { return static_cast<int>(inherited() % kPrecisionUnit) - 1; }
int inherited_trace() { return static_cast<int>(inherited() / kTraceUnit); }

[[maybe_unused]] const bool registered = [] {
  runtime::set_inherited_mode(&inherited_mode);
  runtime::set_inherited_trace(&inherited_trace);
  return true;
}();

}  // namespace

void push_mode(runtime::Mode m) {
  runtime::push_mode(m);
  modes.push_back(m);
  ++pushes;
  publish();
}

void pop_mode() {
  runtime::pop_mode();
  modes.pop_back();
  --pushes;
  publish();
}

void push_precision(hlo::Precision p) {
  precisions.push_back(p);
  ++pushes;
  publish();
}

void pop_precision() {
  TPU_CHECK(!precisions.empty(), "no precision was pushed on this thread");
  precisions.pop_back();
  --pushes;
  publish();
}

void push_trace(trace::Trace* t) {
  traces.push_back(runtime::push_trace(t));
  ++pushes;
  publish();
}

void pop_trace() {
  runtime::pop_trace();
  traces.pop_back();
  --pushes;
  publish();
}

std::optional<hlo::Precision> pushed_precision() {
  if (!precisions.empty()) return precisions.back();
  const long p = inherited() / kPrecisionUnit % (kTraceUnit / kPrecisionUnit);
  return p > 0 ? std::optional(static_cast<hlo::Precision>(p - 1)) : std::nullopt;
}

}  // namespace tpu::bridge
