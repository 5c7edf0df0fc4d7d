#include "bridge/allocator.h"

#include <ATen/core/CachingHostAllocator.h>
#include <c10/core/CPUAllocator.h>
#include <c10/core/CachingDeviceAllocator.h>
#include <c10/core/impl/VirtualGuardImpl.h>

#include <map>
#include <shared_mutex>

#include "bridge/errors.h"
#include "bridge/tensor.h"

namespace tpu::bridge {
namespace {

void free_slot(void* context) { trace::delete_slot(static_cast<trace::Slot*>(context)); }

class Allocator final : public c10::DeviceAllocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    return guarded([&] {
      const c10::impl::VirtualGuardImpl guard(c10::DeviceType::PrivateUse1);
      return new_data_ptr(static_cast<int64_t>(n), guard.getDevice().index(), {});
    });
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t n) const override {
    guarded([&] {
      RecorderLock lock;
      const trace::Place from = trace::find_slot(src), to = trace::find_slot(dst);
      TPU_CHECK(from.slot && to.slot && from.offset_bytes == 0 && to.offset_bytes == 0 &&
                    static_cast<int64_t>(n) == from.slot->size_bytes &&
                    from.slot->size_bytes == to.slot->size_bytes,
                "only whole storages of one size can be copied");
      to.slot->value = from.slot->value;
    });
  }

  bool initialized() override { return Runtime::started(); }
  void emptyCache(c10::MempoolId_t) override {}
  void recordStream(const c10::DataPtr&, c10::Stream) override {}
  c10::CachingDeviceAllocator::DeviceStats getDeviceStats(c10::DeviceIndex device) override {
    using c10::CachingAllocator::Stat;
    using c10::CachingAllocator::StatType;
    c10::CachingDeviceAllocator::DeviceStats stats;
    if (!Runtime::started()) return stats;
    const runtime::MemoryCounts& m =
        guarded([&]() -> auto& { return Runtime::get().device(device).memory; });
    auto fill = [](Stat& s, int64_t current, int64_t peak, int64_t allocated, int64_t freed) {
      s.current = current;
      s.peak = peak;
      s.allocated = allocated;
      s.freed = freed;
    };
    constexpr auto kAll = static_cast<size_t>(StatType::AGGREGATE);
    for (auto* s : {&stats.allocated_bytes, &stats.active_bytes, &stats.reserved_bytes,
                    &stats.requested_bytes}) {
      fill((*s)[kAll], m.current_bytes, m.peak_bytes, m.allocated_bytes, m.freed_bytes);
    }
    for (auto* s : {&stats.allocation, &stats.active, &stats.segment}) {
      fill((*s)[kAll], m.current_buffers, m.peak_buffers, m.allocated_buffers, m.freed_buffers);
    }
    stats.num_ooms = m.ooms;
    return stats;
  }
  void resetAccumulatedStats(c10::DeviceIndex device) override {
    if (Runtime::started()) Runtime::get().device(device).memory.reset_accumulated();
  }
  void resetPeakStats(c10::DeviceIndex device) override {
    if (Runtime::started()) Runtime::get().device(device).memory.reset_peak();
  }
  std::pair<size_t, size_t> getMemoryInfo(c10::DeviceIndex device) override {
    return guarded([&] {
      Device& d = Runtime::get().device(device);
      const int64_t free = std::max<int64_t>(d.total_memory_bytes - d.memory.current_bytes, 0);
      return std::pair(static_cast<size_t>(free), static_cast<size_t>(d.total_memory_bytes));
    });
  }
};

Allocator device_allocator;
REGISTER_ALLOCATOR(c10::DeviceType::PrivateUse1, &device_allocator)

// Host memory for transfers. On the CPU plugin there is nothing to lock into memory; what is
// promised is what torch asks: that is_pinned() says of a block what is true of it, namely that it
// came from here.
class PinnedAllocator final : public at::HostAllocator {
 public:
  c10::DataPtr allocate(size_t n) override {
    c10::DataPtr p = c10::GetDefaultCPUAllocator()->allocate(n);
    if (n > 0) {
      std::unique_lock lock(mutex_);
      blocks_[reinterpret_cast<uintptr_t>(p.get())] = n;
      current_bytes_ += static_cast<int64_t>(n);
      peak_bytes_ = std::max(peak_bytes_, current_bytes_);
    }
    auto* inner = new c10::DataPtr(std::move(p));
    return {inner->get(), inner, &free_block, c10::DeviceType::CPU};
  }
  c10::DeleterFnPtr raw_deleter() const override { return nullptr; }
  void copy_data(void* dst, const void* src, size_t n) const override {
    default_copy_data(dst, src, n);
  }
  bool record_event(void*, void*, c10::Stream) override { return true; }
  void empty_cache() override {}
  at::HostStats get_stats() override {
    std::shared_lock lock(mutex_);
    at::HostStats s;
    s.allocated_bytes.current = current_bytes_;
    s.allocated_bytes.peak = peak_bytes_;
    s.allocations.current = static_cast<int64_t>(blocks_.size());
    return s;
  }
  void reset_accumulated_stats() override {}
  void reset_peak_stats() override {
    std::unique_lock lock(mutex_);
    peak_bytes_ = current_bytes_;
  }
  bool owns(const void* p) const {
    std::shared_lock lock(mutex_);
    const auto a = reinterpret_cast<uintptr_t>(p);
    auto it = blocks_.upper_bound(a);
    return it != blocks_.begin() && a < (--it)->first + it->second;
  }

 private:
  static void free_block(void* context);
  mutable std::shared_mutex mutex_;
  std::map<uintptr_t, size_t> blocks_;
  int64_t current_bytes_ = 0, peak_bytes_ = 0;
};

PinnedAllocator& host_allocator() {
  static auto* a = new PinnedAllocator;
  return *a;
}

void PinnedAllocator::free_block(void* context) {
  auto* inner = static_cast<c10::DataPtr*>(context);
  PinnedAllocator& a = host_allocator();
  if (inner->get()) {
    std::unique_lock lock(a.mutex_);
    const auto it = a.blocks_.find(reinterpret_cast<uintptr_t>(inner->get()));
    if (it != a.blocks_.end()) {
      a.current_bytes_ -= static_cast<int64_t>(it->second);
      a.blocks_.erase(it);
    }
  }
  delete inner;
}

const bool registered = [] {
  at::setHostAllocator(c10::DeviceType::PrivateUse1, &host_allocator());
  return true;
}();

}  // namespace

c10::Allocator* allocator() { return &device_allocator; }

c10::DataPtr new_data_ptr(int64_t size_bytes, c10::DeviceIndex device, trace::ValuePtr v) {
  trace::Slot* s = trace::new_slot(size_bytes, device);
  s->value = std::move(v);
  return {trace::address(*s), s, &free_slot, c10::Device(c10::DeviceType::PrivateUse1, device)};
}

bool is_slot_pointer(const c10::DataPtr& p) { return p.get_deleter() == &free_slot; }

c10::Allocator* pinned_allocator() { return &host_allocator(); }
bool is_pinned(const void* p) { return host_allocator().owns(p); }

}  // namespace tpu::bridge
