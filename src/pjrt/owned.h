// A handle of the plugin and the api to destroy it with: 16 bytes, move-only, empty after a move.
// Sharing is decided above this layer. The Client must outlive every handle made from it.
#pragma once

#include <utility>

#include "pjrt/api.h"

namespace tpu::pjrt {

template <class T>
struct Destroy;  // Destroy<T>::run(const Api&, T*) noexcept

#define TPU_PJRT_DESTROY(Type, field)                               \
  template <>                                                       \
  struct Destroy<PJRT_##Type> {                                     \
    static void run(const Api& api, PJRT_##Type* handle) noexcept { \
      Args<PJRT_##Type##_Destroy_Args> args;                        \
      args.field = handle;                                          \
      api.call_quietly<&PJRT_Api::PJRT_##Type##_Destroy>(args);     \
    }                                                               \
  }
TPU_PJRT_DESTROY(Client, client);
TPU_PJRT_DESTROY(Buffer, buffer);
TPU_PJRT_DESTROY(Event, event);
TPU_PJRT_DESTROY(Executable, executable);
TPU_PJRT_DESTROY(LoadedExecutable, executable);
TPU_PJRT_DESTROY(TopologyDescription, topology);
#undef TPU_PJRT_DESTROY

template <class T>
class Owned {
 public:
  Owned() = default;
  Owned(const Api& api, T* handle) noexcept : api_(&api), handle_(handle) {}
  Owned(Owned&& other) noexcept
      : api_(other.api_), handle_(std::exchange(other.handle_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    Owned old(std::move(other));
    std::swap(api_, old.api_);
    std::swap(handle_, old.handle_);
    return *this;
  }
  ~Owned() {
    if (handle_ != nullptr) Destroy<T>::run(*api_, handle_);
  }

  explicit operator bool() const { return handle_ != nullptr; }
  T* get() const { return handle_; }
  const Api& api() const { return *api_; }
  // Gives the handle away without destroying it.
  T* release() noexcept { return std::exchange(handle_, nullptr); }

 private:
  const Api* api_ = nullptr;
  T* handle_ = nullptr;
};

}  // namespace tpu::pjrt
