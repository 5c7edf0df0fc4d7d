#include "runtime/plugin.h"

#include <unistd.h>

#include <algorithm>
#include <filesystem>
#include <fstream>
#include <set>

#include "base/error.h"
#include "base/settings.h"

namespace tpu::runtime {
namespace {

namespace fs = std::filesystem;

PluginPathSource path_source = nullptr;

// /dev/accel0.. (the accel driver), or VFIO groups when a PCI device of Google's TPU vendor id is
// there.
std::vector<std::string> tpu_device_nodes() {
  std::vector<std::string> nodes;
  std::error_code ec;
  for (const auto& e : fs::directory_iterator("/dev", ec)) {
    const std::string name = e.path().filename();
    if (name.starts_with("accel") && name.size() > 5 &&
        std::isdigit(static_cast<unsigned char>(name[5]))) {
      nodes.push_back(e.path());
    }
  }
  if (!nodes.empty()) return nodes;
  bool has_tpu = false;
  for (const auto& e : fs::directory_iterator("/sys/bus/pci/devices", ec)) {
    std::ifstream vendor(e.path() / "vendor");
    std::string id;
    if (vendor >> id && id == "0x1ae0") {
      std::ifstream cls(e.path() / "class");
      std::string code;
      // Google's network cards share the vendor id: a TPU is a processing accelerator or
      // unclassified.
      if (cls >> code &&
          (code.starts_with("0x12") || code.starts_with("0x00") || code.starts_with("0xff")))
        has_tpu = true;
    }
  }
  if (!has_tpu) return nodes;
  for (const auto& e : fs::directory_iterator("/dev/vfio", ec)) {
    const std::string name = e.path().filename();
    if (!name.empty() &&
        std::all_of(name.begin(), name.end(), [](unsigned char c) { return std::isdigit(c); })) {
      nodes.push_back(e.path());
    }
  }
  return nodes;
}

}  // namespace

void set_plugin_path_source(PluginPathSource f) { path_source = f; }

int tpu_chip_count() { return static_cast<int>(tpu_device_nodes().size()); }

std::string tpu_holders() {
  const auto nodes = tpu_device_nodes();
  std::set<std::string> holders;
  std::error_code ec;
  for (const auto& process : fs::directory_iterator("/proc", ec)) {
    const std::string pid = process.path().filename();
    if (pid.empty() || !std::isdigit(static_cast<unsigned char>(pid[0])) ||
        pid == std::to_string(getpid()))
      continue;
    for (const auto& fd : fs::directory_iterator(process.path() / "fd", ec)) {
      const fs::path target = fs::read_symlink(fd.path(), ec);
      if (std::find(nodes.begin(), nodes.end(), target.string()) == nodes.end()) continue;
      std::ifstream comm(process.path() / "comm");
      std::string name;
      std::getline(comm, name);
      holders.insert(cat("pid ", pid, " (", name, ")"));
    }
  }
  return join(holders);
}

Plugin find_plugin() {
  const std::string given = settings().get_string("plugin");
  if (!given.empty()) return {given, PluginKind::kCustom};
  const std::string platform = settings().get_string("platform");
  const PluginPaths paths = path_source ? path_source() : PluginPaths();
  if (platform != "cpu" && tpu_chip_count() > 0) {
    TPU_CHECK(!paths.libtpu.empty(), ErrorKind::kDevice,
              "a TPU is attached but libtpu is not installed; run `pip install libtpu`, or set "
              "TORCH_TPU_PLATFORM=cpu to use the CPU plugin");
    return {paths.libtpu, PluginKind::kTpu};
  }
  TPU_CHECK(platform != "tpu", ErrorKind::kDevice,
            "TORCH_TPU_PLATFORM=tpu, but no TPU is attached to this machine");
  TPU_CHECK(!paths.cpu.empty(), ErrorKind::kDevice,
            "no PJRT plugin was found; run `pip install lammps-jax-pjrt-cpu`, or name one in "
            "TORCH_TPU_PJRT_PLUGIN");
  return {paths.cpu, PluginKind::kCpu};
}

}  // namespace tpu::runtime
