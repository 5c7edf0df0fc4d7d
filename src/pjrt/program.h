// The text of a program on its way into a plugin.
#pragma once

#include <string_view>

#include "pjrt/api.h"

namespace tpu::pjrt {

// Throws for what a plugin would answer by ending the process: an unbounded dynamic dimension
// (`tensor<?xf32>` without bounds) in MLIR text. Bytecode and HLO are not looked into.
void check_program(std::string_view program, std::string_view format);
// Refers to both texts, which must outlive it.
PJRT_Program make_program(std::string_view program, std::string_view format);

}  // namespace tpu::pjrt
