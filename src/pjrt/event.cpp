#include "pjrt/event.h"

#include <memory>

#include "base/log.h"

namespace tpu::pjrt {
namespace {

struct Waiter {
  const Api* api;
  std::function<void(const Error*)> callback;
};

void run_waiter(PJRT_Error* error, void* data) noexcept {
  const std::unique_ptr<Waiter> waiter(static_cast<Waiter*>(data));
  try {
    if (error == nullptr) {
      waiter->callback(nullptr);
    } else {
      const Error e = to_error(waiter->api->take_failure(error), "event");
      waiter->callback(&e);
    }
  } catch (const std::exception& e) {
    TPU_LOG(LogLevel::kError, "a callback of a device event threw: ", e.what());
  }
}

}  // namespace

bool Event::is_ready() const {
  if (!handle_) return true;
  Args<PJRT_Event_IsReady_Args> args;
  args.event = handle_.get();
  handle_.api().call<&PJRT_Api::PJRT_Event_IsReady>(args);
  return args.is_ready;
}

void Event::await() const {
  if (!handle_) return;
  Args<PJRT_Event_Await_Args> args;
  args.event = handle_.get();
  handle_.api().call<&PJRT_Api::PJRT_Event_Await>(args);
}

void Event::on_ready(std::function<void(const Error*)> callback) const {
  if (!handle_) {
    callback(nullptr);
    return;
  }
  auto waiter = std::make_unique<Waiter>(Waiter{&handle_.api(), std::move(callback)});
  Args<PJRT_Event_OnReady_Args> args;
  args.event = handle_.get();
  args.callback = run_waiter;
  args.user_arg = waiter.get();
  handle_.api().call<&PJRT_Api::PJRT_Event_OnReady>(args);
  waiter.release();  // run_waiter owns it from here, and may have run already
}

}  // namespace tpu::pjrt
