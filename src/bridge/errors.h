// tpu::Error as the exception PyTorch users expect. Every entry from torch into the layers below
// runs in `guarded`.
#pragma once
#include <string>
#include <utility>

#include "base/error.h"

namespace tpu::bridge {

// Throws the c10 error of this kind (IndexError, TypeError, NotImplementedError, OutOfMemoryError,
// else RuntimeError); `prefix` is "aten::mm(self: Float[2, 3], ...): " or empty.
[[noreturn]] void rethrow(const Error& e, const std::string& prefix);

template <class F>
decltype(auto) guarded(F&& f) {
  try {
    return std::forward<F>(f)();
  } catch (const Error& e) {
    rethrow(e, "");
  }
}

}  // namespace tpu::bridge
