#include "bridge/fallback.h"

#include <ATen/native/CPUFallback.h>
#include <torch/library.h>

#include <atomic>

#include "base/settings.h"
#include "bridge/errors.h"
#include "bridge/stream.h"
#include "runtime/counters.h"
#include "runtime/events.h"

namespace tpu::bridge {
namespace {

std::atomic<int> mode{-1};
CallSite call_site = nullptr;

constexpr const char* kNames[] = {"warn", "error", "quiet"};

bool returns_alias(const c10::FunctionSchema& s) {
  for (const c10::Argument& r : s.returns()) {
    if (r.alias_info() && !r.alias_info()->isWrite()) return true;
  }
  return false;
}

void fallback(const c10::OperatorHandle& op, torch::jit::Stack* stack) {
  const c10::FunctionSchema& schema = op.schema();
  const std::string name =
      schema.overload_name().empty() ? schema.name() : schema.name() + "." + schema.overload_name();
  // A copy cannot stand in for a view: writes would be lost.
  if (returns_alias(schema)) {
    rethrow({ErrorKind::kMissingOp,
             "this view op has no TPU kernel, and a copy through the CPU would not alias"},
            name + ": ");
  }
  if (runtime::current_trace(current_device_index())) {
    rethrow({ErrorKind::kMissingOp,
             "no TPU lowering, and a program that is traced cannot run an op on the CPU; "
             "docs/ops.md lists what there is"},
            name + ": ");
  }
  if (fallback_mode() == FallbackMode::kError) {
    rethrow({ErrorKind::kMissingOp,
             "no TPU lowering; torch_tpu.set_fallback('warn') or TORCH_TPU_FALLBACK=warn lets it "
             "run on the CPU"},
            name + ": ");
  }
  bool first = false;
  {
    auto& c = runtime::counters();
    std::lock_guard lock(c.mutex);
    first = c.fallbacks[name]++ == 0;
  }
  if (runtime::events_kept()) {
    runtime::add_event({.kind = runtime::Event::Kind::kFallback,
                        .where = call_site ? call_site() : "",
                        .what = name});
  }
  if (first && fallback_mode() == FallbackMode::kWarn) {
    const std::string where = call_site ? call_site() : "";
    TORCH_WARN(name, " has no TPU lowering and runs on the CPU, which is slow",
               where.empty() ? "" : " (at " + where + ")", "; said once per op");
  }
  at::native::cpu_fallback(op, stack);
}

TORCH_LIBRARY_IMPL(_, PrivateUse1, m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&fallback>());
}

}  // namespace

FallbackMode fallback_mode() {
  int m = mode.load(std::memory_order_relaxed);
  if (m < 0) {
    m = static_cast<int>(
        guarded([] { return parse_fallback_mode(settings().get_string("cpu_fallback")); }));
    mode = m;
  }
  return static_cast<FallbackMode>(m);
}

void set_fallback_mode(FallbackMode m) { mode = static_cast<int>(m); }

const char* to_string(FallbackMode m) { return kNames[static_cast<int>(m)]; }

FallbackMode parse_fallback_mode(const std::string& s) {
  for (int i = 0; i < 3; ++i) {
    if (s == kNames[i]) return static_cast<FallbackMode>(i);
  }
  TPU_THROW(ErrorKind::kInvalid, "the fallback mode is '", s, "'; it must be warn, error or quiet");
}

void set_call_site(CallSite f) { call_site = f; }

}  // namespace tpu::bridge
