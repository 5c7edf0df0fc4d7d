#include "pjrt/error.h"

namespace tpu::pjrt {

std::string_view to_string(StatusCode code) {
  switch (code) {
    case StatusCode::kCancelled: return "CANCELLED";
    case StatusCode::kUnknown: return "UNKNOWN";
    case StatusCode::kInvalidArgument: return "INVALID_ARGUMENT";
    case StatusCode::kDeadlineExceeded: return "DEADLINE_EXCEEDED";
    case StatusCode::kNotFound: return "NOT_FOUND";
    case StatusCode::kAlreadyExists: return "ALREADY_EXISTS";
    case StatusCode::kPermissionDenied: return "PERMISSION_DENIED";
    case StatusCode::kResourceExhausted: return "RESOURCE_EXHAUSTED";
    case StatusCode::kFailedPrecondition: return "FAILED_PRECONDITION";
    case StatusCode::kAborted: return "ABORTED";
    case StatusCode::kOutOfRange: return "OUT_OF_RANGE";
    case StatusCode::kUnimplemented: return "UNIMPLEMENTED";
    case StatusCode::kInternal: return "INTERNAL";
    case StatusCode::kUnavailable: return "UNAVAILABLE";
    case StatusCode::kDataLoss: return "DATA_LOSS";
    case StatusCode::kUnauthenticated: return "UNAUTHENTICATED";
  }
  return "unknown code";
}

Error to_error(const Failure& failure, std::string_view function) {
  ErrorKind kind = ErrorKind::kDevice;
  if (failure.code == StatusCode::kResourceExhausted) kind = ErrorKind::kMemory;
  if (failure.code == StatusCode::kUnimplemented) kind = ErrorKind::kUnsupported;
  return {kind, cat(failure.message, " (", function, ": ", failure.code, ")")};
}

void throw_failure(const Failure& failure, std::string_view function) {
  throw to_error(failure, function);
}

}  // namespace tpu::pjrt
