#include "trace/slot.h"

#include <algorithm>
#include <set>
#include <thread>
#include <vector>

#include "base/test.h"

namespace tpu::trace {
namespace {

const char* plus(const void* p, int64_t n) {
  return reinterpret_cast<const char*>(reinterpret_cast<uintptr_t>(p) + static_cast<uintptr_t>(n));
}

TEST(an_address_leads_back_to_its_slot) {
  Slot* s = new_slot(1024, 3);
  EXPECT_EQ(s->device, 3);
  EXPECT_EQ(s->size_bytes, 1024);
  EXPECT_TRUE(!s->value);
  const void* a = address(*s);
  EXPECT_TRUE(find_slot(a).slot == s);
  EXPECT_EQ(find_slot(a).offset_bytes, 0);
  EXPECT_TRUE(find_slot(plus(a, 1000)).slot == s);
  EXPECT_EQ(find_slot(plus(a, 1000)).offset_bytes, 1000);
  EXPECT_EQ(find_slot(plus(a, kMaxSlotBytes - 1)).offset_bytes, kMaxSlotBytes - 1);
  delete_slot(s);
}

TEST(addresses_fit_torch_and_no_processor) {
  Slot* s = new_slot(8, 0);
  const auto a = reinterpret_cast<uint64_t>(address(*s));
  EXPECT_TRUE(static_cast<int64_t>(a) > 0);
  // Not canonical: bits 63 to 47 are neither all 0 nor all 1, so the processor faults.
  EXPECT_TRUE(a >> 47 != 0);
  EXPECT_TRUE(a >> 47 != (uint64_t{1} << 17) - 1);
  delete_slot(s);
}

TEST(stale_and_foreign_addresses_find_nothing) {
  Slot* s = new_slot(8, 0);
  void* a = address(*s);
  delete_slot(s);
  EXPECT_TRUE(find_slot(a).slot == nullptr);
  int local = 0;
  EXPECT_TRUE(find_slot(&local).slot == nullptr);
  EXPECT_TRUE(find_slot(nullptr).slot == nullptr);
  EXPECT_TRUE(
      find_slot(reinterpret_cast<void*>(kTag | uint64_t{(1u << kSlotBits) - 1} << kOffsetBits))
          .slot == nullptr);
}

TEST(a_number_comes_back_late) {
  Slot* s = new_slot(8, 0);
  const uint32_t number = s->number;
  delete_slot(s);
  for (int i = 0; i < 1000; ++i) {
    Slot* other = new_slot(8, 0);
    EXPECT_TRUE(other->number != number);
    delete_slot(other);
  }
}

TEST(numbers_are_used_again) {
  uint32_t largest = 0;
  for (int i = 0; i < 50000; ++i) {
    Slot* s = new_slot(8, 0);
    largest = std::max(largest, s->number);
    delete_slot(s);
  }
  EXPECT_TRUE(largest < 10000);
}

TEST(sizes_are_bounded) {
  EXPECT_THROW_MSG(new_slot(kMaxSlotBytes + 1, 0), "256 GiB");
  delete_slot(new_slot(kMaxSlotBytes, 0));
}

TEST(visits_live_slots) {
  const int64_t before = live_slots();
  Slot* a = new_slot(111, 0);
  Slot* b = new_slot(222, 0);
  EXPECT_EQ(live_slots(), before + 2);
  int64_t seen = 0, bytes = 0;
  for_each_slot([&](const Slot& s) {
    ++seen;
    bytes += s.size_bytes;
  });
  EXPECT_EQ(seen, before + 2);
  EXPECT_TRUE(bytes >= 333);
  delete_slot(a);
  delete_slot(b);
  EXPECT_EQ(live_slots(), before);
}

TEST(threads_get_slots_of_their_own) {
  const int64_t before = live_slots();
  std::vector<std::vector<Slot*>> made(4);
  std::vector<std::thread> threads;
  for (auto& mine : made) {
    threads.emplace_back([&mine] {
      for (int i = 0; i < 2000; ++i) {
        mine.push_back(new_slot(16, 0));
        if (i % 3 == 0) {
          delete_slot(mine.back());
          mine.pop_back();
        }
      }
    });
  }
  for (auto& t : threads) t.join();
  std::set<uint32_t> numbers;
  size_t count = 0;
  for (const auto& mine : made) {
    for (Slot* s : mine) {
      numbers.insert(s->number);
      EXPECT_TRUE(find_slot(address(*s)).slot == s);
      ++count;
    }
  }
  EXPECT_EQ(numbers.size(), count);
  EXPECT_EQ(live_slots(), before + static_cast<int64_t>(count));
  for (const auto& mine : made) {
    for (Slot* s : mine) delete_slot(s);
  }
}

}  // namespace
}  // namespace tpu::trace
