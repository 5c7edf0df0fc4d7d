// Custom calls that this process answers: a handler runs inside a program of a CPU plugin.
//
// A handler may be called from any thread, by several at once. Operands and results are memory of
// the running program, dense and row-major; operands are only read, results are uninitialized. What
// it throws becomes the error of the launch. Handlers live as long as the process.
#pragma once

#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "pjrt/api.h"
#include "pjrt/element_type.h"

namespace tpu::pjrt {

struct FfiBuffer {
  ElementType element_type = ElementType::kInvalid;
  std::span<const int64_t> dims;
  void* data = nullptr;
};

struct FfiAttributes;  // of the C interface

struct FfiCall {
  std::vector<FfiBuffer> operands, results;

  // An attribute of type i1; throws where there is none.
  bool flag(std::string_view name) const;

  const FfiAttributes* attributes = nullptr;
};

using FfiHandler = void (*)(const FfiCall&);

struct FfiFrame;
struct FfiError;
using FfiEntry = FfiError*(FfiFrame*);

// Calls the handler with what is in the frame, and turns what it throws into an error.
FfiError* answer_ffi_call(FfiFrame* frame, FfiHandler handler) noexcept;

// The C function that stands for a handler.
template <FfiHandler kHandler>
FfiEntry* ffi_entry() {
  return [](FfiFrame* frame) { return answer_ffi_call(frame, kHandler); };
}

bool takes_ffi_handlers(const Api& api);
// Makes the handler callable as custom call `target` with api_version 4, once per plugin and name.
void register_ffi_handler(const Api& api, std::string_view target, FfiEntry* entry);

}  // namespace tpu::pjrt
