// The user's line of a recorded op, without the GIL and without strings until somebody asks.
//
// A thread's own frames cannot change while it is in C++, so they may be walked without the GIL.
// Frames of torch and torch_tpu are skipped. A code object is kept alive from the first time it is
// seen, so that a location stays valid; there are as many of them as functions that call torch.
#pragma once
#include <string>

#include "trace/window.h"

namespace tpu::python {

void install_location_source();
// The calling thread's user line, "train.py:12 in step"; empty without a Python frame.
std::string current_call_site();

}  // namespace tpu::python
