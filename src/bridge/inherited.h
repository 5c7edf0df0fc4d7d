// Eager mode, precision and traced program of a thread, and what a backward pass takes over from
// the thread that started it.
//
// Torch runs backward on threads of its own and hands them the caller's ThreadLocalPythonObjects:
// what is pushed here is written there too. A thread that has pushed something itself does not
// look.
#pragma once
#include <optional>

#include "hlo/builder.h"
#include "runtime/runtime.h"

namespace tpu::bridge {

// With the GIL.
void push_mode(runtime::Mode m);
void pop_mode();
void push_precision(hlo::Precision p);
void pop_precision();
void push_trace(trace::Trace* t);
void pop_trace();

// This thread's innermost precision, or the inherited one; nothing where neither is.
std::optional<hlo::Precision> pushed_precision();

}  // namespace tpu::bridge
