#include "pjrt/serialized.h"

#include <array>
#include <fstream>

namespace tpu::pjrt {
namespace {

constexpr std::string_view kMagic = "torch_tpu executable 1\n";
constexpr size_t kIdentitySize = 32;

// Lines of /proc/cpuinfo that say what code the processor can run, for x86 and Arm.
std::string cpu_features() {
  constexpr std::array<std::string_view, 7> kKeys = {
      "flags",           "cpu family",       "model",   "Features",
      "CPU implementer", "CPU architecture", "CPU part"};
  std::ifstream file("/proc/cpuinfo");
  std::string out;
  for (std::string line; std::getline(file, line) && !line.empty();) {
    const std::string_view key = trim(std::string_view(line).substr(0, line.find(':')));
    for (const std::string_view wanted : kKeys) {
      if (key == wanted) out += line + "\n";
    }
  }
  return out;
}

}  // namespace

Hash128 compiler_identity(const Api& api, std::string_view platform_name,
                          std::string_view device_kind) {
  Hasher hasher;
  hasher.add(api.identity()).add(platform_name).add(device_kind);
  if (platform_name == "cpu") hasher.add(cpu_features());
  return hasher.finish();
}

std::string wrap_serialized(const Hash128& identity, std::string_view payload) {
  return cat(kMagic, identity, payload);
}

std::string_view unwrap_serialized(const Hash128& identity, std::string_view bytes) {
  TPU_CHECK(bytes.size() >= kMagic.size() + kIdentitySize && bytes.starts_with(kMagic),
            "these bytes are no serialized executable of torch_tpu; compile the program again");
  bytes.remove_prefix(kMagic.size());
  TPU_CHECK(bytes.substr(0, kIdentitySize) == identity.hex(),
            "the executable was made by another plugin build or for another processor (",
            bytes.substr(0, kIdentitySize), ", here ", identity, "); compile the program again");
  return bytes.substr(kIdentitySize);
}

}  // namespace tpu::pjrt
