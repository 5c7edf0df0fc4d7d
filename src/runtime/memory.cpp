#include "runtime/memory.h"

namespace tpu::runtime {
namespace {

void raise_to(std::atomic<int64_t>& peak, int64_t value) {
  int64_t p = peak.load(std::memory_order_relaxed);
  while (p < value && !peak.compare_exchange_weak(p, value, std::memory_order_relaxed)) {
  }
}

}  // namespace

void MemoryCounts::add(int64_t size_bytes) {
  allocated_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
  allocated_buffers.fetch_add(1, std::memory_order_relaxed);
  raise_to(peak_bytes, current_bytes.fetch_add(size_bytes, std::memory_order_relaxed) + size_bytes);
  raise_to(peak_buffers, current_buffers.fetch_add(1, std::memory_order_relaxed) + 1);
}

void MemoryCounts::remove(int64_t size_bytes) {
  freed_bytes.fetch_add(size_bytes, std::memory_order_relaxed);
  freed_buffers.fetch_add(1, std::memory_order_relaxed);
  current_bytes.fetch_sub(size_bytes, std::memory_order_relaxed);
  current_buffers.fetch_sub(1, std::memory_order_relaxed);
}

void MemoryCounts::reset_peak() {
  peak_bytes = current_bytes.load();
  peak_buffers = current_buffers.load();
}

void MemoryCounts::reset_accumulated() {
  allocated_bytes = freed_bytes = allocated_buffers = freed_buffers = 0;
  ooms = 0;
}

}  // namespace tpu::runtime
