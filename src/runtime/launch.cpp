#include "runtime/launch.h"

#include <algorithm>

namespace tpu::runtime {
namespace {

constexpr size_t kMaxInFlight = 64;

}  // namespace

void LaunchQueue::drop_finished() {
  while (!launches_.empty() && launches_.front()->is_ready()) launches_.pop_front();
  if (launches_.size() > kMaxInFlight) {
    std::erase_if(launches_, [](const auto& e) { return e->is_ready(); });
  }
}

void LaunchQueue::push(pjrt::Event done) {
  std::shared_ptr<pjrt::Event> oldest;
  {
    std::lock_guard lock(mutex_);
    drop_finished();
    launches_.push_back(std::make_shared<pjrt::Event>(std::move(done)));
    if (launches_.size() > kMaxInFlight) oldest = launches_.front();
  }
  if (!oldest) return;
  try {
    oldest->await();
  } catch (const Error&) {
    // Whoever reads the results gets this error.
  }
}

std::vector<std::shared_ptr<pjrt::Event>> LaunchQueue::pending() {
  std::lock_guard lock(mutex_);
  drop_finished();
  return {launches_.begin(), launches_.end()};
}

std::shared_ptr<Marker> Marker::make(std::vector<std::shared_ptr<pjrt::Event>> launches,
                                     bool timed) {
  auto m = std::make_shared<Marker>();
  m->launches_ = std::move(launches);
  if (!timed) return m;
  m->left_ = static_cast<int64_t>(m->launches_.size());
  if (m->launches_.empty()) m->time_ = Clock::now();
  for (const auto& e : m->launches_) {
    e->on_ready([m](const Error*) {
      if (m->left_.fetch_sub(1) != 1) return;
      std::lock_guard lock(m->mutex_);
      m->time_ = Clock::now();
    });
  }
  return m;
}

bool Marker::done() const {
  return std::all_of(launches_.begin(), launches_.end(),
                     [](const auto& e) { return e->is_ready(); });
}

void Marker::wait() const {
  for (const auto& e : launches_) e->await();
}

std::optional<Marker::Clock::time_point> Marker::time() const {
  std::lock_guard lock(mutex_);
  return time_;
}

}  // namespace tpu::runtime
