// The devices of one plugin in this process, and everything that is made on them: programs and
// buffers. A Client outlives its children and may be used from any thread. Callbacks run on threads
// of the plugin.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/buffer.h"
#include "pjrt/compile_options.h"
#include "pjrt/executable.h"
#include "pjrt/topology.h"

namespace tpu::pjrt {

class Device {
 public:
  Device(const Api& api, PJRT_Device* handle);

  PJRT_Device* handle() const { return handle_; }
  int id() const { return description_.id; }
  int local_hardware_id() const { return local_hardware_id_; }
  int process_index() const { return description_.process_index; }
  const std::string& kind() const { return description_.kind; }
  const std::string& debug_string() const { return description_.debug_string; }
  const NamedValues& attributes() const { return description_.attributes; }
  bool is_addressable() const { return is_addressable_; }
  // Empty where the plugin does not count (the CPU plugins).
  std::optional<MemoryStats> memory_stats() const;

 private:
  const Api* api_;
  PJRT_Device* handle_;
  DeviceDescription description_;
  int local_hardware_id_ = -1;
  bool is_addressable_ = true;
};

// How long the plugin may use the caller's memory.
enum class HostSemantics : uint8_t {
  kCopyDuringCall,   // copied when the call returns
  kCopyUntilDone,    // read until the done event
  kZeroCopy,         // read as long as the buffer lives (CPU, 64-byte aligned; else copied)
  kMutableZeroCopy,  // read, and written by donation, as long as the buffer lives (the same)
};
// Alignment that zero copy and views of host memory need on the CPU plugins.
constexpr size_t kZeroCopyAlignment = 64;

struct HostArray {
  const void* data = nullptr;
  ElementType element_type = ElementType::kInvalid;
  std::span<const int64_t> dims = {};
  std::span<const int64_t> byte_strides = {};  // empty: dense and row-major; may be negative or 0
};

struct Upload {
  Buffer buffer;
  // The plugin no longer uses the host memory. With zero copy: when the buffer's memory is freed.
  Event host_done;
};

class Client {
 public:
  // Options are the plugin's, e.g. cpu_device_count (int64) for the CPU plugins.
  static std::unique_ptr<Client> create(std::shared_ptr<const Api> api,
                                        const NamedValues& options = {});
  ~Client();
  Client(const Client&) = delete;
  Client& operator=(const Client&) = delete;

  const Api& api() const { return *api_; }
  const std::shared_ptr<const Api>& shared_api() const { return api_; }
  const std::string& platform_name() const { return platform_name_; }
  const std::string& platform_version() const { return platform_version_; }
  int process_index() const;
  // Of this process, in the plugin's order.
  const std::vector<Device>& devices() const { return addressable_; }
  // Of all processes.
  std::vector<Device> all_devices() const;
  // Key of what this client compiles: plugin build, platform version and, on the CPU, the
  // processor's features.
  Hash128 identity() const;

  // `format` is "mlir" (text, bytecode or portable artifact) or "hlo". Text with an unbounded
  // dynamic dimension is refused here, because some plugins abort on it.
  Executable compile(std::string_view program, std::string_view format,
                     const CompileOptions& options) const;
  // Loads what `serialize` wrote; throws kInvalid when another plugin build or kind of processor
  // made it.
  Executable deserialize(std::string_view serialized) const;
  // What every program of this project is compiled with: the settings xla_options and compile_tier,
  // and what makes the CPU's minimum and maximum keep NaN.
  CompileOptions program_options() const;
  // The given options changed for a quick compile of programs that run seldom: less optimization,
  // 3 (tiny) to 6 times quicker on the CPU plugins. The first call compiles tiny programs to learn
  // what the plugin takes (about 60 ms). On other platforms the options come back unchanged.
  CompileOptions fast_options(CompileOptions options) const;

  // `device` null: the first. Dense device layout, chosen by the plugin. `on_host_done` is called
  // as by Event::on_ready, whatever the outcome.
  Upload buffer_from_host(const HostArray& array, HostSemantics semantics,
                          PJRT_Device* device = nullptr,
                          std::function<void()> on_host_done = {}) const;
  Buffer uninitialized_buffer(ElementType type, std::span<const int64_t> dims,
                              PJRT_Device* device = nullptr) const;
  // Memory of another owner as a buffer, without a copy; `on_delete` is called, on any thread and
  // maybe after the buffer's end, when the plugin no longer uses it. Host memory on the CPU plugins
  // must be aligned to kZeroCopyAlignment.
  Buffer view_of_device_buffer(void* data, ElementType type, std::span<const int64_t> dims,
                               PJRT_Device* device = nullptr,
                               std::function<void()> on_delete = {}) const;

 private:
  Client(std::shared_ptr<const Api> api, PJRT_Client* handle);
  PJRT_Device* device_or_first(PJRT_Device* device) const;
  struct FastTier {
    std::string debug_options;
    std::map<std::string, OptionValue, std::less<>> overrides;
  };
  FastTier probe_fast_tier() const;

  std::shared_ptr<const Api> api_;
  Owned<PJRT_Client> handle_;
  std::string platform_name_;
  std::string platform_version_;
  std::vector<Device> addressable_;
  mutable std::once_flag identity_once_;
  mutable Hash128 identity_;
  mutable std::mutex fast_mutex_;
  mutable std::optional<FastTier> fast_tier_;
};

}  // namespace tpu::pjrt
