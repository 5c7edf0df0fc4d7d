#include "bridge/errors.h"

#include <c10/util/Exception.h>

namespace tpu::bridge {

void rethrow(const Error& e, const std::string& prefix) {
  const std::string text = prefix + e.text;
  switch (e.kind) {
    case ErrorKind::kIndex: TORCH_CHECK_INDEX(false, text);
    case ErrorKind::kType: TORCH_CHECK_TYPE(false, text);
    case ErrorKind::kValue: TORCH_CHECK_VALUE(false, text);
    case ErrorKind::kUnsupported:
    case ErrorKind::kMissingOp: TORCH_CHECK_NOT_IMPLEMENTED(false, text);
    case ErrorKind::kLinAlg: TORCH_CHECK_LINALG(false, text);
    case ErrorKind::kMemory: TORCH_CHECK_WITH(OutOfMemoryError, false, text);
    case ErrorKind::kInternal:
      TORCH_CHECK(false, text,
                  " (a fault of torch_tpu: please report it with a script that shows it)");
    case ErrorKind::kInvalid:
    case ErrorKind::kDevice: break;
  }
  TORCH_CHECK(false, text);
}

}  // namespace tpu::bridge
