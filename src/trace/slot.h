// What a tensor's storage owns: a place that holds one Value. Mutation replaces the value.
//
// Torch treats a storage's address as a number and copies it into storages of its own making
// (DLPack, pickle, from_blob), so the address itself leads back to the slot: 01 | 24-bit slot |
// 38-bit byte offset. It is positive as int64 and not canonical on x86-64: a stray dereference
// faults at once instead of corrupting memory. 16 M live slots of up to 256 GiB. The table may be
// used from any thread; `value` and `size_bytes` are guarded by the recorder's lock.
#pragma once
#include <cstdint>

#include "trace/value.h"

namespace tpu::trace {

struct Slot {
  ValuePtr value;  // null: never written
  int64_t size_bytes = 0;
  int32_t device = 0;
  uint32_t number = 0;
  uint64_t serial = 0;  // of this slot alone: numbers are used again
};

inline constexpr int kOffsetBits = 38;
inline constexpr int kSlotBits = 24;
inline constexpr uint64_t kTag = uint64_t{1} << 62;
inline constexpr int64_t kMaxSlotBytes = int64_t{1} << kOffsetBits;

// A fresh slot; throws kMemory when the table is full or the size does not fit an address.
Slot* new_slot(int64_t size_bytes, int32_t device);
void delete_slot(Slot* s) noexcept;

inline void* address(const Slot& s) {
  return reinterpret_cast<void*>(kTag | uint64_t{s.number} << kOffsetBits);
}

struct Place {
  Slot* slot;
  int64_t offset_bytes;
};
// Null slot when the address is none of ours or its slot is gone.
Place find_slot(const void* address);

// Null when that slot is gone.
Slot* find_slot(uint32_t number, uint64_t serial);

// Number of live slots.
int64_t live_slots();

// Calls `f` for each live slot, under the table's lock: for memory reports only.
template <class F>
void for_each_slot(F f);

namespace detail {
void visit_slots(void (*f)(void*, const Slot&), void* context);
}
template <class F>
void for_each_slot(F f) {
  detail::visit_slots([](void* c, const Slot& s) { (*static_cast<F*>(c))(s); }, &f);
}

}  // namespace tpu::trace
