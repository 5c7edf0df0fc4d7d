// Which PJRT plugin to use, found without loading any.
#pragma once
#include <string>

namespace tpu::runtime {

enum class PluginKind : uint8_t { kTpu, kCpu, kCustom };

struct Plugin {
  std::string path;
  PluginKind kind = PluginKind::kCpu;
};

// Where the packages' libraries lie; empty when not installed. Set by the Python bindings.
struct PluginPaths {
  std::string libtpu, cpu;
};
using PluginPathSource = PluginPaths (*)();
void set_plugin_path_source(PluginPathSource f);

// TORCH_TPU_PJRT_PLUGIN, else libtpu when a TPU is attached, else the CPU plugin. Throws kDevice
// with the remedy when the one wanted is missing: a TPU that is there but cannot be used is never
// passed over in silence.
Plugin find_plugin();

// TPU chips on this machine, from the device nodes; 0 without.
int tpu_chip_count();
// Names the processes that hold the TPU's device nodes ("pid 12 (python)"), empty when none is
// seen.
std::string tpu_holders();

}  // namespace tpu::runtime
