// The end of something asynchronous, with its error. An empty Event has already happened without
// one. All members may be called from any thread.
#pragma once

#include <functional>

#include "pjrt/owned.h"

namespace tpu::pjrt {

class Event {
 public:
  Event() = default;
  Event(const Api& api, PJRT_Event* handle) noexcept : handle_(api, handle) {}

  // Has it happened, well or not?
  bool is_ready() const;
  // Blocks; throws the error of the event.
  void await() const;
  // Calls `callback` once: with nullptr, or with the error. It runs on a thread of the plugin or,
  // if the event has happened, perhaps in this call; it must be quick, must not enter the plugin,
  // and what it throws is logged and dropped. The event may be destroyed before it runs.
  void on_ready(std::function<void(const Error*)> callback) const;

  PJRT_Event* handle() const { return handle_.get(); }

 private:
  Owned<PJRT_Event> handle_;
};

}  // namespace tpu::pjrt
