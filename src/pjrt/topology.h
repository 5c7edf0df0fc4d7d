// A description of devices that need not be here: for compiling ahead of time. libtpu takes names
// such as "v6e:2x2" and "tpu7x:1x1x1", and the caller must have set TPU_SKIP_MDS_QUERY=1 in the
// environment first, since it else asks a metadata server for minutes.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/compile_options.h"
#include "pjrt/executable.h"

namespace tpu::pjrt {

struct DeviceDescription {
  int id = 0;
  int process_index = 0;
  std::string kind;  // "TPU v6 lite", "cpu"
  std::string debug_string;
  NamedValues attributes;  // coords, core_on_chip, num_cores, ...
};
DeviceDescription describe(const Api& api, PJRT_DeviceDescription* handle);

class Topology {
 public:
  static Topology create(std::shared_ptr<const Api> api, std::string_view name,
                         const NamedValues& options = {});

  const Api& api() const { return *api_; }
  std::string platform_name() const;
  std::string platform_version() const;
  std::vector<DeviceDescription> devices() const;
  NamedValues attributes() const;
  // Compiles without a device. The result can be asked and serialized, and loaded by a Client of
  // such a device.
  Compiled compile(std::string_view program, std::string_view format,
                   const CompileOptions& options) const;

 private:
  Topology(std::shared_ptr<const Api> api, PJRT_TopologyDescription* handle)
      : api_(std::move(api)), handle_(*api_, handle) {}

  std::shared_ptr<const Api> api_;
  Owned<PJRT_TopologyDescription> handle_;
};

}  // namespace tpu::pjrt
