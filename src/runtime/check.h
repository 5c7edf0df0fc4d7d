// What launched programs assert, and what depends on it.
//
// A program tells at its end whether its assertions held (trace/lower.h). Nobody waits for that:
// results carry the assertions they depend on, from launch to launch, until they are known to hold.
// A result that depends on one that did not hold is never read: reading it gives the error, every
// time. Safe from any thread.
#pragma once
#include <atomic>
#include <memory>
#include <mutex>
#include <optional>
#include <thread>
#include <vector>

#include "pjrt/buffer.h"
#include "trace/lower.h"

namespace tpu::runtime {

class Check;
using Checks = std::vector<std::shared_ptr<Check>>;
// Null: none.
using SharedChecks = std::shared_ptr<const Checks>;

// The last output of a launch, s64[2 n]: a flag and a value for each of n assertions.
class Flags {
 public:
  Flags(pjrt::Buffer buffer, size_t count, bool on_cpu)
      : buffer_(std::move(buffer)), values_(2 * count), on_cpu_(on_cpu) {}
  bool is_ready() const;
  // Waits for the launch.
  const std::vector<int64_t>& values();

 private:
  mutable std::mutex mutex_;
  std::optional<pjrt::Buffer> buffer_;  // until it has been read
  std::vector<int64_t> values_;
  bool on_cpu_;
};

// One assertion of one launch.
class Check {
 public:
  // `before`: what the op that asserts depends on itself.
  Check(std::shared_ptr<Flags> flags, size_t number, const trace::Assertion& assertion,
        trace::Location location, SharedChecks before);

  // Waits for the launch; the error, or null where the assertion holds.
  std::shared_ptr<const Error> failure();
  // Whether it is known to hold; looks, but does not wait.
  bool holds();
  // Whether it is a consequence of `other`.
  bool follows(const Check& other) const;
  std::thread::id thread() const { return thread_; }

 private:
  std::shared_ptr<Flags> flags_;
  const size_t number_;
  const ErrorKind kind_;
  const std::string text_;
  const trace::Location location_;
  const SharedChecks before_;
  const std::thread::id thread_ = std::this_thread::get_id();
  std::atomic<bool> holds_ = false;
  std::mutex mutex_;
  std::shared_ptr<const Error> failure_;
};

// The two together, without those that are known to hold.
SharedChecks merged(const SharedChecks& a, const SharedChecks& b);

// Checks of a device that nobody was told about.
class CheckList {
 public:
  void add(const Checks& checks);
  // Waits for what was launched, by the calling thread or by all, and throws the first failure.
  // What it caused is told with it.
  void tell(bool of_all_threads);
  // A reader was told.
  void forget(const Check& told);

 private:
  std::mutex mutex_;
  Checks checks_;
};

}  // namespace tpu::runtime
