#include "base/error.h"

#include <utility>

namespace tpu {

std::string_view to_string(ErrorKind kind) {
  switch (kind) {
    case ErrorKind::kInvalid: return "invalid";
    case ErrorKind::kIndex: return "index";
    case ErrorKind::kType: return "type";
    case ErrorKind::kValue: return "value";
    case ErrorKind::kUnsupported: return "unsupported";
    case ErrorKind::kMissingOp: return "missing op";
    case ErrorKind::kLinAlg: return "linear algebra";
    case ErrorKind::kMemory: return "memory";
    case ErrorKind::kDevice: return "device";
    case ErrorKind::kInternal: return "internal";
  }
  return "unknown";
}

namespace detail {

void throw_error(ErrorKind kind, std::string text) { throw Error(kind, std::move(text)); }

}  // namespace detail
}  // namespace tpu
