// The header before a serialized executable: a magic word and the identity of what made it. A
// plugin loads bytes of another build without an error and then computes garbage, so only equal
// identities are let through.
#pragma once

#include <string>
#include <string_view>

#include "base/hash.h"
#include "pjrt/api.h"

namespace tpu::pjrt {

// Of a plugin build and the kind of device it compiles for (on the CPU also the processor's
// features).
Hash128 compiler_identity(const Api& api, std::string_view platform_name,
                          std::string_view device_kind);

std::string wrap_serialized(const Hash128& identity, std::string_view payload);
// The payload; throws kInvalid when the bytes are not ours or another identity made them.
std::string_view unwrap_serialized(const Hash128& identity, std::string_view bytes);

}  // namespace tpu::pjrt
