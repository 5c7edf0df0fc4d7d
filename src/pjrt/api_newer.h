// Parts of the PJRT C API that are younger than the header of the build (0.81), in our own words:
// the place of a function in the table and the layout of its arguments. Each is used only after the
// plugin's table was found long enough (`Api::newer_function`), so an older plugin is never asked.
// Remove an entry once the header has it.
#pragma once

#include <cstddef>
#include <cstdint>

#include "pjrt_c_api.h"

namespace tpu::pjrt::newer {

// 0.87: the options an executable was compiled with. The plugin owns `bytes` until
// `deleter(backing)`.
inline constexpr size_t kGetCompileOptionsSlot = 124;
struct GetCompileOptionsArgs {
  size_t struct_size;
  PJRT_Extension_Base* extension_start;
  PJRT_Executable* executable;
  const char* bytes;       // out
  size_t bytes_size;       // out
  void* backing;           // out
  void (*deleter)(void*);  // out
};
using GetCompileOptions = PJRT_Error*(GetCompileOptionsArgs*);

}  // namespace tpu::pjrt::newer
