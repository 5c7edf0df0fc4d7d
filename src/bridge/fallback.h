// Ops without a lowering: run on the CPU (counted, named once) or refused, as
// torch_tpu.set_fallback says.
#pragma once
#include <string>

namespace tpu::bridge {

enum class FallbackMode { kWarn, kError, kQuiet };
FallbackMode fallback_mode();
void set_fallback_mode(FallbackMode m);
const char* to_string(FallbackMode m);
FallbackMode parse_fallback_mode(const std::string& s);  // throws on an unknown word

// The user's line of the calling thread, "train.py:12", or empty. Set by the Python bindings.
using CallSite = std::string (*)();
void set_call_site(CallSite f);

}  // namespace tpu::bridge
