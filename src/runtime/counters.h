// What the runtime did, for users (torch_tpu.debug.counters) and tests. Safe from any thread.
#pragma once
#include <array>
#include <atomic>
#include <cstdint>
#include <map>
#include <mutex>
#include <string>

namespace tpu::runtime {

enum class FlushReason : uint8_t {
  kStrict,       // strict or debug mode: every op
  kRead,         // a value is needed on the host
  kSynchronize,  // torch.tpu.synchronize, Event.synchronize, Stream.synchronize
  kEvent,        // an event was recorded, a stream switched or waited for
  kSize,         // the window reached its bound
  kBoundary,     // an op that stands alone, a copy to another device, a generator's state
  kUser,         // torch_tpu.debug.flush
  kStep,         // an optimizer's step ended
  kRepeat,       // a loop came round
  kBytes,        // what is recorded keeps much memory
  kGraph,        // the end of a graph of torch.compile: one program, the first time, too
};
inline constexpr int kFlushReasons = 11;
const char* to_string(FlushReason r);

struct Counters {
  std::atomic<int64_t> compiles{0}, executes{0}, memory_hits{0}, disk_hits{0};
  std::atomic<int64_t> bytes_h2d{0}, bytes_d2h{0}, nodes{0};
  std::array<std::atomic<int64_t>, kFlushReasons> flushes{};
  std::mutex mutex;
  std::map<std::string, int64_t> fallbacks;  // by op, under the mutex

  void reset();
};
Counters& counters();

}  // namespace tpu::runtime
