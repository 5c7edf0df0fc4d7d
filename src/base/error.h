// The one error of the project: a kind, which decides the Python exception class, and a text of the
// form "reason with values; remedy". TPU_CHECK(condition, [kind,] parts...) throws where the
// condition is false (kind kInvalid when none is named), TPU_THROW(kind, parts...) always; parts
// are written by `cat`. The parts are evaluated only when the error is thrown.
#pragma once

#include <cstdint>
#include <exception>
#include <string>
#include <string_view>
#include <type_traits>

#include "base/strings.h"

namespace tpu {

enum class ErrorKind : uint8_t {
  kInvalid,      // wrong argument or state            -> RuntimeError
  kIndex,        // out of range                       -> IndexError
  kType,         // wrong type of argument             -> TypeError
  kValue,        // right type, wrong value            -> ValueError
  kUnsupported,  // right, but the device cannot       -> NotImplementedError
  kMissingOp,    // no lowering is registered          -> NotImplementedError
  kLinAlg,       // no solution, no convergence        -> torch.linalg.LinAlgError
  kMemory,       // device memory is exhausted         -> torch.OutOfMemoryError
  kDevice,       // the plugin or the device failed    -> RuntimeError
  kInternal,     // a broken promise of this project   -> RuntimeError
};

std::string_view to_string(ErrorKind kind);

struct Error : std::exception {
  Error(ErrorKind error_kind, std::string error_text)
      : kind(error_kind), text(std::move(error_text)) {}
  const char* what() const noexcept override { return text.c_str(); }

  ErrorKind kind;
  std::string text;
};

namespace detail {

[[noreturn]] void throw_error(ErrorKind kind, std::string text);

template <class First, class... Rest>
[[noreturn]] void fail(const First& first, const Rest&... rest) {
  if constexpr (std::is_same_v<First, ErrorKind>) {
    throw_error(first, cat(rest...));
  } else {
    throw_error(ErrorKind::kInvalid, cat(first, rest...));
  }
}

}  // namespace detail
}  // namespace tpu

#define TPU_CHECK(condition, ...)       \
  do {                                  \
    if (!(condition)) [[unlikely]]      \
      ::tpu::detail::fail(__VA_ARGS__); \
  } while (false)

#define TPU_THROW(kind, ...) ::tpu::detail::throw_error((kind), ::tpu::cat(__VA_ARGS__))
