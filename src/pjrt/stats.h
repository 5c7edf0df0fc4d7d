// Numbers that a plugin reports of a device's memory and of a program. A plugin that does not
// report them gives an empty optional; the CPU plugins know no device memory statistics, and most
// of them no cost analysis.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <string>

namespace tpu::pjrt {

// Of one device's allocator.
struct MemoryStats {
  int64_t in_use_bytes = 0;
  std::optional<int64_t> peak_in_use_bytes;
  std::optional<int64_t> limit_bytes;
  std::optional<int64_t> reserved_bytes;
  std::optional<int64_t> largest_free_block_bytes;
  std::optional<int64_t> largest_allocation_bytes;
  std::optional<int64_t> allocations;
};

// Of one program, as the compiler planned it, in bytes.
struct CompiledMemoryStats {
  int64_t code_bytes = 0;
  int64_t argument_bytes = 0;
  int64_t output_bytes = 0;
  int64_t alias_bytes = 0;  // arguments whose memory outputs reuse
  int64_t temporary_bytes = 0;
  int64_t host_argument_bytes = 0;
  int64_t host_output_bytes = 0;
  int64_t host_temporary_bytes = 0;
  int64_t peak_bytes = 0;  // 0 when the plugin does not say
};

// "flops", "bytes accessed", "optimal_seconds", "transcendentals", ...: names and values are the
// plugin's. optimal_seconds of a large program may be negative: do not use it then.
using CostAnalysis = std::map<std::string, double, std::less<>>;

}  // namespace tpu::pjrt
