// The end of launched work, for synchronize, events and streams.
#pragma once
#include <atomic>
#include <chrono>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>

#include "pjrt/event.h"

namespace tpu::runtime {

// Launches of one device that are not known to be over. Safe from any thread.
class LaunchQueue {
 public:
  // Blocks on the oldest launch when too many are under way, so that deferred work cannot pile up.
  void push(pjrt::Event done);
  // What was pushed up to now and is not over.
  std::vector<std::shared_ptr<pjrt::Event>> pending();

 private:
  void drop_finished();
  std::mutex mutex_;
  std::deque<std::shared_ptr<pjrt::Event>> launches_;
};

// All work before a point: done when the launches it holds are. Carries the time at which that
// became so.
class Marker : public std::enable_shared_from_this<Marker> {
 public:
  using Clock = std::chrono::steady_clock;
  static std::shared_ptr<Marker> make(std::vector<std::shared_ptr<pjrt::Event>> launches,
                                      bool timed);
  bool done() const;
  void wait() const;  // throws the error of a launch
  // Of a timed marker that is done.
  std::optional<Clock::time_point> time() const;

 private:
  std::vector<std::shared_ptr<pjrt::Event>> launches_;
  std::atomic<int64_t> left_{0};
  mutable std::mutex mutex_;
  std::optional<Clock::time_point> time_;
};

}  // namespace tpu::runtime
