#include "trace/value.h"

#include <mutex>
#include <unordered_set>

#include "base/hash.h"

namespace tpu::trace {
namespace {

struct TypeHash {
  size_t operator()(const Type& t) const { return Hasher().add(t.dtype).add(t.dims).finish().low; }
};

}  // namespace

const Type* intern(const Type& t) {
  static std::mutex mutex;
  static auto* types = new std::unordered_set<Type, TypeHash>;  // node-based: addresses are stable
  std::lock_guard lock(mutex);
  return &*types->insert(t).first;
}

ValuePtr make_value(const Type* type, int32_t device) {
  auto* v = new Value;
  v->type = type;
  v->device = device;
  return ValuePtr(v);
}

}  // namespace tpu::trace
