// Device memory by count: every buffer of ours adds its size while it lives. The CPU plugin reports
// nothing itself. Safe from any thread.
#pragma once
#include <atomic>
#include <cstdint>

#include "pjrt/buffer.h"
#include "runtime/check.h"
#include "trace/value.h"

namespace tpu::runtime {

struct MemoryCounts {
  std::atomic<int64_t> current_bytes{0}, peak_bytes{0}, allocated_bytes{0}, freed_bytes{0};
  std::atomic<int64_t> current_buffers{0}, peak_buffers{0}, allocated_buffers{0}, freed_buffers{0};
  std::atomic<int64_t> ooms{0};

  void add(int64_t size_bytes);
  void remove(int64_t size_bytes);
  void reset_peak();
  void reset_accumulated();
};

// A ready value's device buffer.
class DeviceBuffer final : public trace::Payload {
 public:
  DeviceBuffer(pjrt::Buffer b, int64_t size_bytes, MemoryCounts& counts)
      : buffer(std::move(b)), size_bytes_(size_bytes), counts_(counts) {
    counts_.add(size_bytes_);
  }
  ~DeviceBuffer() override { counts_.remove(size_bytes_); }
  DeviceBuffer(const DeviceBuffer&) = delete;
  DeviceBuffer& operator=(const DeviceBuffer&) = delete;

  pjrt::Buffer buffer;
  SharedChecks checks;  // what it depends on and is not known to hold
  int64_t size_bytes() const { return size_bytes_; }

 private:
  int64_t size_bytes_;
  MemoryCounts& counts_;
};

inline DeviceBuffer& buffer_of(const trace::Value& v) {
  return static_cast<DeviceBuffer&>(*v.payload);
}

}  // namespace tpu::runtime
