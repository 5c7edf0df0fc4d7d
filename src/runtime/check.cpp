#include "runtime/check.h"

#include <algorithm>
#include <cstring>

#include "ops/context.h"
#include "trace/trace.h"

namespace tpu::runtime {
namespace {

// A loop of lookups that nobody waits for must not pile up what it asserts.
constexpr size_t kMaxUntold = 256;

bool contains(const SharedChecks& checks, const Check& c) {
  return checks && std::ranges::any_of(*checks, [&](const auto& x) { return x.get() == &c; });
}

}  // namespace

bool Flags::is_ready() const {
  const std::lock_guard lock(mutex_);
  return !buffer_ || buffer_->ready_event().is_ready();
}

const std::vector<int64_t>& Flags::values() {
  const std::lock_guard lock(mutex_);
  if (!buffer_) return values_;
  buffer_->await();
  const size_t size = values_.size() * sizeof(int64_t);
  if (on_cpu_ && buffer_->is_on_cpu()) {
    std::memcpy(values_.data(), reinterpret_cast<const void*>(buffer_->unsafe_pointer()), size);
  } else {
    buffer_->to_host(values_.data(), size).await();
  }
  buffer_.reset();
  return values_;
}

Check::Check(std::shared_ptr<Flags> flags, size_t number, const trace::Assertion& assertion,
             trace::Location location, SharedChecks before)
    : flags_(std::move(flags)),
      number_(number),
      kind_(assertion.kind),
      text_(assertion.text),
      location_(location),
      before_(std::move(before)) {}

std::shared_ptr<const Error> Check::failure() {
  if (holds_) return nullptr;
  const std::vector<int64_t>& flags = flags_->values();
  if (flags[2 * number_] == 0) {
    holds_ = true;
    return nullptr;
  }
  const std::lock_guard lock(mutex_);
  if (failure_) return failure_;
  std::string text = ops::with_number(text_, std::to_string(flags[2 * number_ + 1]));
  if (const std::string line = trace::line_of(location_); !line.empty()) text += "\n  at " + line;
  return failure_ = std::make_shared<const Error>(kind_, std::move(text));
}

bool Check::holds() { return holds_ || (flags_->is_ready() && !failure()); }

bool Check::follows(const Check& other) const { return contains(before_, other); }

SharedChecks merged(const SharedChecks& a, const SharedChecks& b) {
  if (!b || a == b) return a;
  auto all = std::make_shared<Checks>();
  for (const SharedChecks& checks : {a, b}) {
    if (!checks) continue;
    for (const auto& c : *checks) {
      if (!c->holds() && std::ranges::find(*all, c) == all->end()) all->push_back(c);
    }
  }
  return all->empty() ? nullptr : all;
}

void CheckList::add(const Checks& checks) {
  const std::lock_guard lock(mutex_);
  checks_.insert(checks_.end(), checks.begin(), checks.end());
  if (checks_.size() < kMaxUntold) return;
  std::erase_if(checks_, [](const auto& c) { return c->holds(); });
}

void CheckList::tell(bool of_all_threads) {
  Checks mine;
  {
    const std::lock_guard lock(mutex_);
    if (checks_.empty()) return;
    std::erase_if(checks_, [&](const auto& c) {
      const bool take = of_all_threads || c->thread() == std::this_thread::get_id();
      if (take) mine.push_back(c);
      return take;
    });
  }
  for (size_t i = 0; i < mine.size(); ++i) {
    const auto failure = mine[i]->failure();
    if (!failure) continue;
    // What comes after it is looked at the next time.
    const std::shared_ptr<Check> told = mine[i];
    mine.erase(mine.begin(), mine.begin() + static_cast<std::ptrdiff_t>(i) + 1);
    {
      const std::lock_guard lock(mutex_);
      checks_.insert(checks_.begin(), mine.begin(), mine.end());
    }
    forget(*told);
    throw Error(*failure);
  }
}

void CheckList::forget(const Check& told) {
  const std::lock_guard lock(mutex_);
  std::erase_if(checks_, [&](const auto& c) { return c.get() == &told || c->follows(told); });
}

}  // namespace tpu::runtime
