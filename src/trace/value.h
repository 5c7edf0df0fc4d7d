// An immutable result: the output of a recorded node, a device buffer, or the error that prevented
// both. A placeholder is a parameter of a traced program: it has a type and never any memory.
//
// A Value is shared by the slots (tensor storages) that hold it, by the window that will compute it
// and by readers. It starts pending (a node of the open window makes it) or ready, and a flush
// turns pending into ready or failed. `refs` may change on any thread; everything else is guarded
// by the recorder's lock. What a ready value holds is the runtime's business: a Payload.
#pragma once
#include <atomic>
#include <cstdint>
#include <memory>
#include <utility>

#include "base/error.h"
#include "hlo/type.h"

namespace tpu::trace {

using hlo::Dims;
using hlo::DType;
using hlo::Type;

// One address per type for the life of the process: pointer equality is type equality.
const Type* intern(const Type& t);

class Payload {
 public:
  virtual ~Payload() = default;
};

struct Value {
  enum class State : uint8_t { kPending, kReady, kFailed, kPlaceholder };

  std::atomic<int32_t> refs{0};
  int32_t device = 0;
  const Type* type = nullptr;
  State state = State::kPending;
  // Place in the window whose epoch this is: an output of it when pending, else a parameter.
  uint64_t epoch = 0;
  int32_t index = -1;
  std::unique_ptr<Payload> payload;      // kReady
  std::shared_ptr<const Error> failure;  // kFailed
};

// Intrusive pointer to a Value.
class ValuePtr {
 public:
  ValuePtr() = default;
  explicit ValuePtr(Value* v) : v_(v) { retain(); }
  ValuePtr(const ValuePtr& o) : v_(o.v_) { retain(); }
  ValuePtr(ValuePtr&& o) noexcept : v_(std::exchange(o.v_, nullptr)) {}
  ValuePtr& operator=(ValuePtr o) noexcept {
    std::swap(v_, o.v_);
    return *this;
  }
  ~ValuePtr() { release(); }

  Value* get() const { return v_; }
  Value* operator->() const { return v_; }
  Value& operator*() const { return *v_; }
  explicit operator bool() const { return v_ != nullptr; }
  bool operator==(const ValuePtr&) const = default;
  int32_t refs() const { return v_->refs.load(std::memory_order_acquire); }
  // Nobody else holds it. Stable under the recorder's lock when the caller is the window.
  bool sole_owner() const { return refs() == 1; }

 private:
  void retain() {
    if (v_) v_->refs.fetch_add(1, std::memory_order_relaxed);
  }
  void release() {
    if (v_ && v_->refs.fetch_sub(1, std::memory_order_acq_rel) == 1) delete v_;
  }
  Value* v_ = nullptr;
};

ValuePtr make_value(const Type* type, int32_t device);

}  // namespace tpu::trace
