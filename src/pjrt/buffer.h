// One array on one device. Its content may still be on the way: `ready_event` tells when it is
// there and whether the program that makes it failed. A donated or deleted buffer keeps its type;
// its memory is gone. Copies to the host are dense and in row-major order, whatever the device's
// layout.
#pragma once

#include <cstddef>
#include <cstdint>
#include <span>

#include "pjrt/element_type.h"
#include "pjrt/event.h"

namespace tpu::pjrt {

class Buffer {
 public:
  Buffer() = default;
  // Takes ownership; `Executable::execute` hands out such handles.
  Buffer(const Api& api, PJRT_Buffer* handle) noexcept : handle_(api, handle) {}

  explicit operator bool() const { return static_cast<bool>(handle_); }
  PJRT_Buffer* handle() const { return handle_.get(); }
  PJRT_Buffer* release() noexcept { return handle_.release(); }

  ElementType element_type() const;
  // Valid while the buffer lives.
  std::span<const int64_t> dims() const;
  // Differs from dims() where a dimension is bounded and dynamic: then these are the sizes of this
  // value.
  std::span<const int64_t> unpadded_dims() const;
  // On the device, with its padding.
  size_t size_bytes() const;
  // Needed by to_host; of the unpadded dims.
  size_t host_size_bytes() const;
  PJRT_Device* device() const;
  // Whether the memory can be read by the host at unsafe_pointer().
  bool is_on_cpu() const;
  // Address of the first byte in the device's memory. Only valid while the buffer is neither
  // deleted nor donated.
  uintptr_t unsafe_pointer() const;

  Event ready_event() const;
  // Waits for the content; throws the error of the program that should have made it.
  void await() const { ready_event().await(); }

  // Starts a copy of the whole array to `dst`, of host_size_bytes() at least. `dst` must live until
  // the event.
  [[nodiscard]] Event to_host(void* dst, size_t dst_size_bytes) const;
  // Bytes [offset, offset + size) of the device's memory, in its own layout: for linear layouts
  // (CPU) only.
  [[nodiscard]] Event copy_raw_to_host(void* dst, int64_t offset_bytes, int64_t size_bytes) const;
  // A copy on another device of the same client.
  Buffer copy_to_device(PJRT_Device* device) const;

  // Frees the memory when its last use is over; the handle stays valid for questions.
  void delete_memory();
  bool is_deleted() const;

 private:
  Owned<PJRT_Buffer> handle_;
};

}  // namespace tpu::pjrt
