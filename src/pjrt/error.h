// What a plugin reports: a status code and a message. `throw_failure` makes a tpu::Error of it,
// kind kMemory for RESOURCE_EXHAUSTED, kUnsupported for UNIMPLEMENTED, else kDevice; the text is
// the plugin's message, then the function and the code.
#pragma once

#include <string>
#include <string_view>

#include "base/error.h"

namespace tpu::pjrt {

// Values of PJRT_Error_Code.
enum class StatusCode : int {
  kCancelled = 1,
  kUnknown = 2,
  kInvalidArgument = 3,
  kDeadlineExceeded = 4,
  kNotFound = 5,
  kAlreadyExists = 6,
  kPermissionDenied = 7,
  kResourceExhausted = 8,
  kFailedPrecondition = 9,
  kAborted = 10,
  kOutOfRange = 11,
  kUnimplemented = 12,
  kInternal = 13,
  kUnavailable = 14,
  kDataLoss = 15,
  kUnauthenticated = 16,
};
// "INVALID_ARGUMENT"
std::string_view to_string(StatusCode code);

struct Failure {
  StatusCode code;
  std::string message;
};

Error to_error(const Failure& failure, std::string_view function);
[[noreturn]] void throw_failure(const Failure& failure, std::string_view function);

}  // namespace tpu::pjrt
