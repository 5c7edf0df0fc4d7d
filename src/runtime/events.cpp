#include "runtime/events.h"

#include <atomic>
#include <deque>
#include <iterator>
#include <mutex>

namespace tpu::runtime {
namespace {

constexpr size_t kMaxEvents = 100'000;

std::atomic<int> keepers{0};
std::mutex mutex;
std::deque<Event>& kept() {
  static auto* events = new std::deque<Event>;
  return *events;
}

}  // namespace

const char* to_string(Event::Kind k) {
  switch (k) {
    case Event::Kind::kFlush: return "flush";
    case Event::Kind::kCompile: return "compile";
    case Event::Kind::kUpload: return "upload";
    case Event::Kind::kDownload: return "download";
    case Event::Kind::kFallback: return "fallback";
  }
  return "?";
}

void keep_events(bool on) { keepers += on ? 1 : -1; }
bool events_kept() { return keepers.load(std::memory_order_relaxed) > 0; }

void add_event(Event e) {
  if (!events_kept()) return;
  const std::lock_guard lock(mutex);
  kept().push_back(std::move(e));
  if (kept().size() > kMaxEvents) kept().pop_front();
}

std::vector<Event> take_events() {
  const std::lock_guard lock(mutex);
  std::vector<Event> all(std::make_move_iterator(kept().begin()),
                         std::make_move_iterator(kept().end()));
  kept().clear();
  return all;
}

}  // namespace tpu::runtime
