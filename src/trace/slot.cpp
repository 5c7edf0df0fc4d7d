#include "trace/slot.h"

#include <mutex>
#include <vector>

namespace tpu::trace {
namespace {

// Numbers of freed slots are reused first-in first-out, so that a stale address stays detectable
// for long.
struct Table {
  std::mutex mutex;
  std::vector<Slot*> slots;
  std::vector<uint32_t> free;
  size_t next_free = 0;
  int64_t live = 0;
  uint64_t made = 0;
};

Table& table() {
  static auto* t = new Table;
  return *t;
}

constexpr size_t kReuseAfter = 4096;

}  // namespace

Slot* new_slot(int64_t size_bytes, int32_t device) {
  TPU_CHECK(size_bytes <= kMaxSlotBytes, ErrorKind::kMemory, "a storage of ", size_bytes,
            " bytes is larger than the 256 GiB that one storage can address");
  auto* s = new Slot;
  s->size_bytes = size_bytes;
  s->device = device;
  Table& t = table();
  std::lock_guard lock(t.mutex);
  if (t.free.size() - t.next_free > kReuseAfter) {
    s->number = t.free[t.next_free++];
    t.slots[s->number] = s;
    if (t.next_free > 2 * kReuseAfter) {
      t.free.erase(t.free.begin(), t.free.begin() + static_cast<std::ptrdiff_t>(t.next_free));
      t.next_free = 0;
    }
  } else {
    if (t.slots.size() >= size_t{1} << kSlotBits) {
      delete s;
      TPU_THROW(ErrorKind::kMemory, "16777216 tensor storages are alive; free some");
    }
    s->number = static_cast<uint32_t>(t.slots.size());
    t.slots.push_back(s);
  }
  s->serial = ++t.made;
  ++t.live;
  return s;
}

void delete_slot(Slot* s) noexcept {
  {
    Table& t = table();
    std::lock_guard lock(t.mutex);
    t.slots[s->number] = nullptr;
    t.free.push_back(s->number);
    --t.live;
  }
  delete s;
}

Place find_slot(const void* address) {
  const auto a = reinterpret_cast<uint64_t>(address);
  if (a >> 62 != 1) return {nullptr, 0};
  const auto number = static_cast<size_t>(a >> kOffsetBits & ((1u << kSlotBits) - 1));
  Table& t = table();
  std::lock_guard lock(t.mutex);
  Slot* s = number < t.slots.size() ? t.slots[number] : nullptr;
  return {s, static_cast<int64_t>(a & ((uint64_t{1} << kOffsetBits) - 1))};
}

Slot* find_slot(uint32_t number, uint64_t serial) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  Slot* s = number < t.slots.size() ? t.slots[number] : nullptr;
  return s && s->serial == serial ? s : nullptr;
}

int64_t live_slots() {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  return t.live;
}

void detail::visit_slots(void (*f)(void*, const Slot&), void* context) {
  Table& t = table();
  std::lock_guard lock(t.mutex);
  for (const Slot* s : t.slots) {
    if (s) f(context, *s);
  }
}

}  // namespace tpu::trace
