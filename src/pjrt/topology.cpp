#include "pjrt/topology.h"

#include "pjrt/program.h"
#include "pjrt/serialized.h"

namespace tpu::pjrt {

DeviceDescription describe(const Api& api, PJRT_DeviceDescription* handle) {
  DeviceDescription out;
  Args<PJRT_DeviceDescription_Id_Args> id;
  id.device_description = handle;
  api.call<&PJRT_Api::PJRT_DeviceDescription_Id>(id);
  out.id = id.id;
  Args<PJRT_DeviceDescription_ProcessIndex_Args> process;
  process.device_description = handle;
  api.call<&PJRT_Api::PJRT_DeviceDescription_ProcessIndex>(process);
  out.process_index = process.process_index;
  Args<PJRT_DeviceDescription_Kind_Args> kind;
  kind.device_description = handle;
  api.call<&PJRT_Api::PJRT_DeviceDescription_Kind>(kind);
  out.kind.assign(kind.device_kind, kind.device_kind_size);
  Args<PJRT_DeviceDescription_DebugString_Args> text;
  text.device_description = handle;
  api.call<&PJRT_Api::PJRT_DeviceDescription_DebugString>(text);
  out.debug_string.assign(text.debug_string, text.debug_string_size);
  Args<PJRT_DeviceDescription_Attributes_Args> attributes;
  attributes.device_description = handle;
  api.call<&PJRT_Api::PJRT_DeviceDescription_Attributes>(attributes);
  out.attributes = named_values(attributes.attributes, attributes.num_attributes);
  return out;
}

Topology Topology::create(std::shared_ptr<const Api> api, std::string_view name,
                          const NamedValues& options) {
  const NamedValueList list(options);
  Args<PJRT_TopologyDescription_Create_Args> args;
  args.topology_name = name.data();
  args.topology_name_size = name.size();
  args.create_options = list.data();
  args.num_options = list.size();
  api->call<&PJRT_Api::PJRT_TopologyDescription_Create>(args);
  return {std::move(api), args.topology};
}

std::string Topology::platform_name() const {
  Args<PJRT_TopologyDescription_PlatformName_Args> args;
  args.topology = handle_.get();
  api_->call<&PJRT_Api::PJRT_TopologyDescription_PlatformName>(args);
  return {args.platform_name, args.platform_name_size};
}

std::string Topology::platform_version() const {
  Args<PJRT_TopologyDescription_PlatformVersion_Args> args;
  args.topology = handle_.get();
  api_->call<&PJRT_Api::PJRT_TopologyDescription_PlatformVersion>(args);
  return {args.platform_version, args.platform_version_size};
}

std::vector<DeviceDescription> Topology::devices() const {
  Args<PJRT_TopologyDescription_GetDeviceDescriptions_Args> args;
  args.topology = handle_.get();
  api_->call<&PJRT_Api::PJRT_TopologyDescription_GetDeviceDescriptions>(args);
  std::vector<DeviceDescription> out;
  for (size_t i = 0; i < args.num_descriptions; ++i) {
    out.push_back(describe(*api_, args.descriptions[i]));
  }
  return out;
}

NamedValues Topology::attributes() const {
  Args<PJRT_TopologyDescription_Attributes_Args> args;
  args.topology = handle_.get();
  api_->call<&PJRT_Api::PJRT_TopologyDescription_Attributes>(args);
  return named_values(args.attributes, args.num_attributes);
}

Compiled Topology::compile(std::string_view program, std::string_view format,
                           const CompileOptions& options) const {
  check_program(program, format);
  const std::string encoded = options.encode();
  PJRT_Program source = make_program(program, format);
  Args<PJRT_Compile_Args> args;
  args.topology = handle_.get();
  args.program = &source;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  api_->call<&PJRT_Api::PJRT_Compile>(args);
  const auto described = devices();
  const std::string kind = described.empty() ? std::string() : described.front().kind;
  return {*api_, args.executable, compiler_identity(*api_, platform_name(), kind)};
}

}  // namespace tpu::pjrt
