#include "runtime/counters.h"

namespace tpu::runtime {

const char* to_string(FlushReason r) {
  switch (r) {
    case FlushReason::kStrict: return "strict";
    case FlushReason::kRead: return "read";
    case FlushReason::kSynchronize: return "synchronize";
    case FlushReason::kEvent: return "event";
    case FlushReason::kSize: return "size";
    case FlushReason::kBoundary: return "boundary";
    case FlushReason::kUser: return "user";
    case FlushReason::kStep: return "step";
    case FlushReason::kRepeat: return "repeat";
    case FlushReason::kBytes: return "bytes";
    case FlushReason::kGraph: return "graph";
  }
  return "?";
}

void Counters::reset() {
  for (auto* c : {&compiles, &executes, &memory_hits, &disk_hits, &bytes_h2d, &bytes_d2h, &nodes})
    *c = 0;
  for (auto& f : flushes) f = 0;
  std::lock_guard lock(mutex);
  fallbacks.clear();
}

Counters& counters() {
  static auto* c = new Counters;
  return *c;
}

}  // namespace tpu::runtime
