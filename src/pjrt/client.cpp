#include "pjrt/client.h"

#include "base/log.h"
#include "base/settings.h"
#include "pjrt/program.h"
#include "pjrt/serialized.h"

namespace tpu::pjrt {
namespace {

constexpr std::string_view kTinyProgram = R"("builtin.module"() ({
 "func.func"() ({
 ^bb0(%0: tensor<f32>):
  %1 = "stablehlo.add"(%0, %0) : (tensor<f32>, tensor<f32>) -> tensor<f32>
  "func.return"(%1) : (tensor<f32>) -> ()
 }) {sym_name = "main", function_type = (tensor<f32>) -> tensor<f32>} : () -> ()
}) : () -> ()
)";

PJRT_HostBufferSemantics to_c(HostSemantics semantics) {
  switch (semantics) {
    case HostSemantics::kCopyDuringCall: return PJRT_HostBufferSemantics_kImmutableOnlyDuringCall;
    case HostSemantics::kCopyUntilDone:
      return PJRT_HostBufferSemantics_kImmutableUntilTransferCompletes;
    case HostSemantics::kZeroCopy: return PJRT_HostBufferSemantics_kImmutableZeroCopy;
    case HostSemantics::kMutableZeroCopy: return PJRT_HostBufferSemantics_kMutableZeroCopy;
  }
  TPU_THROW(ErrorKind::kInternal, "unknown host semantics");
}

// Runs and frees the caller's function, once the plugin no longer uses the memory of a view.
void run_on_delete(void*, void* data) noexcept {
  const std::unique_ptr<std::function<void()>> callback(static_cast<std::function<void()>*>(data));
  try {
    (*callback)();
  } catch (const std::exception& e) {
    TPU_LOG(LogLevel::kError, "the deleter of a device view threw: ", e.what());
  }
}

}  // namespace

Device::Device(const Api& api, PJRT_Device* handle) : api_(&api), handle_(handle) {
  Args<PJRT_Device_GetDescription_Args> description;
  description.device = handle;
  api.call<&PJRT_Api::PJRT_Device_GetDescription>(description);
  description_ = describe(api, description.device_description);
  Args<PJRT_Device_LocalHardwareId_Args> hardware;
  hardware.device = handle;
  api.call<&PJRT_Api::PJRT_Device_LocalHardwareId>(hardware);
  local_hardware_id_ = hardware.local_hardware_id;
  Args<PJRT_Device_IsAddressable_Args> addressable;
  addressable.device = handle;
  api.call<&PJRT_Api::PJRT_Device_IsAddressable>(addressable);
  is_addressable_ = addressable.is_addressable;
}

std::optional<MemoryStats> Device::memory_stats() const {
  Args<PJRT_Device_MemoryStats_Args> args;
  args.device = handle_;
  if (const auto failure = api_->try_call<&PJRT_Api::PJRT_Device_MemoryStats>(args)) {
    if (failure->code == StatusCode::kUnimplemented) return std::nullopt;
    throw_failure(*failure, "PJRT_Device_MemoryStats");
  }
  const auto optional = [](int64_t value, bool is_set) {
    return is_set ? std::optional<int64_t>(value) : std::nullopt;
  };
  return MemoryStats{
      .in_use_bytes = args.bytes_in_use,
      .peak_in_use_bytes = optional(args.peak_bytes_in_use, args.peak_bytes_in_use_is_set),
      .limit_bytes = optional(args.bytes_limit, args.bytes_limit_is_set),
      .reserved_bytes = optional(args.bytes_reserved, args.bytes_reserved_is_set),
      .largest_free_block_bytes =
          optional(args.largest_free_block_bytes, args.largest_free_block_bytes_is_set),
      .largest_allocation_bytes = optional(args.largest_alloc_size, args.largest_alloc_size_is_set),
      .allocations = optional(args.num_allocs, args.num_allocs_is_set),
  };
}

std::unique_ptr<Client> Client::create(std::shared_ptr<const Api> api, const NamedValues& options) {
  const NamedValueList list(options);
  Args<PJRT_Client_Create_Args> args;
  args.create_options = list.data();
  args.num_options = list.size();
  api->call<&PJRT_Api::PJRT_Client_Create>(args);
  return std::unique_ptr<Client>(new Client(std::move(api), args.client));
}

Client::Client(std::shared_ptr<const Api> api, PJRT_Client* handle)
    : api_(std::move(api)), handle_(*api_, handle) {
  Args<PJRT_Client_PlatformName_Args> name;
  name.client = handle;
  api_->call<&PJRT_Api::PJRT_Client_PlatformName>(name);
  platform_name_.assign(name.platform_name, name.platform_name_size);
  Args<PJRT_Client_PlatformVersion_Args> version;
  version.client = handle;
  api_->call<&PJRT_Api::PJRT_Client_PlatformVersion>(version);
  platform_version_.assign(version.platform_version, version.platform_version_size);
  Args<PJRT_Client_AddressableDevices_Args> devices;
  devices.client = handle;
  api_->call<&PJRT_Api::PJRT_Client_AddressableDevices>(devices);
  TPU_CHECK(devices.num_addressable_devices > 0, ErrorKind::kDevice, "the plugin ", api_->path(),
            " offers no device");
  for (size_t i = 0; i < devices.num_addressable_devices; ++i) {
    addressable_.emplace_back(*api_, devices.addressable_devices[i]);
  }
  detail::count_client(1);
}

Client::~Client() { detail::count_client(-1); }

int Client::process_index() const {
  Args<PJRT_Client_ProcessIndex_Args> args;
  args.client = handle_.get();
  api_->call<&PJRT_Api::PJRT_Client_ProcessIndex>(args);
  return args.process_index;
}

std::vector<Device> Client::all_devices() const {
  Args<PJRT_Client_Devices_Args> args;
  args.client = handle_.get();
  api_->call<&PJRT_Api::PJRT_Client_Devices>(args);
  std::vector<Device> out;
  for (size_t i = 0; i < args.num_devices; ++i) out.emplace_back(*api_, args.devices[i]);
  return out;
}

Hash128 Client::identity() const {
  std::call_once(identity_once_, [this] {
    identity_ = compiler_identity(*api_, platform_name_, addressable_.front().kind());
  });
  return identity_;
}

Executable Client::compile(std::string_view program, std::string_view format,
                           const CompileOptions& options) const {
  check_program(program, format);
  const std::string encoded = options.encode();
  const PJRT_Program source = make_program(program, format);
  Args<PJRT_Client_Compile_Args> args;
  args.client = handle_.get();
  args.program = &source;
  args.compile_options = encoded.data();
  args.compile_options_size = encoded.size();
  api_->call<&PJRT_Api::PJRT_Client_Compile>(args);
  return {*api_, args.executable, identity()};
}

Executable Client::deserialize(std::string_view serialized) const {
  const std::string_view payload = unwrap_serialized(identity(), serialized);
  Args<PJRT_Executable_DeserializeAndLoad_Args> args;
  args.client = handle_.get();
  args.serialized_executable = payload.data();
  args.serialized_executable_size = payload.size();
  api_->call<&PJRT_Api::PJRT_Executable_DeserializeAndLoad>(args);
  return {*api_, args.loaded_executable, identity(), /*deserialized=*/true};
}

CompileOptions Client::program_options() const {
  CompileOptions options;
  options.overrides = parse_overrides(settings().get_string("xla_options"));
  // XLA's CPU compiler lets minimum and maximum drop NaN unless told otherwise.
  if (platform_name_ == "cpu") options.overrides.emplace("xla_cpu_enable_fast_min_max", false);
  if (settings().get_string("compile_tier") == "fast") options = fast_options(std::move(options));
  return options;
}

CompileOptions Client::fast_options(CompileOptions options) const {
  if (platform_name_ != "cpu") return options;
  const std::lock_guard lock(fast_mutex_);
  if (!fast_tier_) fast_tier_ = probe_fast_tier();
  if (options.debug_options.empty()) options.debug_options = fast_tier_->debug_options;
  // What the caller set stays.
  for (const auto& [name, value] : fast_tier_->overrides)
    options.overrides.try_emplace(name, value);
  return options;
}

Client::FastTier Client::probe_fast_tier() const {
  FastTier tier;
  tier.overrides = {{"xla_backend_optimization_level", int64_t{0}},
                    {"xla_cpu_parallel_codegen_split_count", int64_t{1}}};
  const auto try_compile = [this](const FastTier& t) -> std::optional<Executable> {
    try {
      return compile(kTinyProgram, "mlir",
                     {.overrides = t.overrides, .debug_options = t.debug_options});
    } catch (const Error&) {
      return std::nullopt;
    }
  };
  // Most of a small program's compile time is the compiler of fusions. Plugins differ in how it is
  // switched off: by an option of its own, or by an entry of the map xla_backend_extra_options,
  // which an override cannot set. Then the entry is appended to the plugin's full options, which it
  // tells of a program that was compiled with an override.
  FastTier own_option = tier;
  own_option.overrides["xla_cpu_use_fusion_emitters"] = false;
  if (try_compile(own_option)) return own_option;

  const auto plain = try_compile(tier);
  if (!plain) return {};
  if (const auto options = plain->compile_options()) {
    constexpr uint32_t kBuildOptions = 3, kDebugOptions = 3;
    FastTier extra = tier;
    extra.debug_options =
        read_message_field(read_message_field(*options, kBuildOptions), kDebugOptions);
    if (!extra.debug_options.empty()) {
      extra.debug_options += backend_extra_option("xla_cpu_disable_new_fusion_emitters");
      if (try_compile(extra)) return extra;
    }
  }
  return tier;
}

PJRT_Device* Client::device_or_first(PJRT_Device* device) const {
  return device != nullptr ? device : addressable_.front().handle();
}

Upload Client::buffer_from_host(const HostArray& array, HostSemantics semantics,
                                PJRT_Device* device, std::function<void()> on_host_done) const {
  TPU_CHECK(array.byte_strides.empty() || array.byte_strides.size() == array.dims.size(),
            ErrorKind::kInternal, "byte strides ", array.byte_strides, " do not fit the dims ",
            array.dims);
  Args<PJRT_Client_BufferFromHostBuffer_Args> args;
  args.client = handle_.get();
  args.data = array.data;
  args.type = static_cast<PJRT_Buffer_Type>(array.element_type);
  args.dims = array.dims.data();
  args.num_dims = array.dims.size();
  args.byte_strides = array.byte_strides.data();
  args.num_byte_strides = array.byte_strides.size();
  args.host_buffer_semantics = to_c(semantics);
  args.device = device_or_first(device);
  api_->call<&PJRT_Api::PJRT_Client_BufferFromHostBuffer>(args);
  Upload upload{{*api_, args.buffer}, {*api_, args.done_with_host_buffer}};
  if (on_host_done) {
    upload.host_done.on_ready([done = std::move(on_host_done)](const Error*) { done(); });
  }
  return upload;
}

Buffer Client::uninitialized_buffer(ElementType type, std::span<const int64_t> dims,
                                    PJRT_Device* device) const {
  Args<PJRT_Client_CreateUninitializedBuffer_Args> args;
  args.client = handle_.get();
  args.shape_dims = dims.data();
  args.shape_num_dims = dims.size();
  args.shape_element_type = static_cast<PJRT_Buffer_Type>(type);
  args.device = device_or_first(device);
  api_->call<&PJRT_Api::PJRT_Client_CreateUninitializedBuffer>(args);
  return {*api_, args.buffer};
}

Buffer Client::view_of_device_buffer(void* data, ElementType type, std::span<const int64_t> dims,
                                     PJRT_Device* device, std::function<void()> on_delete) const {
  std::unique_ptr<std::function<void()>> holder;
  if (on_delete) holder = std::make_unique<std::function<void()>>(std::move(on_delete));
  Args<PJRT_Client_CreateViewOfDeviceBuffer_Args> args;
  args.client = handle_.get();
  args.device_buffer_ptr = data;
  args.dims = dims.data();
  args.num_dims = dims.size();
  args.element_type = static_cast<PJRT_Buffer_Type>(type);
  args.device = device_or_first(device);
  args.on_delete_callback = holder ? run_on_delete : nullptr;
  args.on_delete_callback_arg = holder.get();
  api_->call<&PJRT_Api::PJRT_Client_CreateViewOfDeviceBuffer>(args);
  holder.release();  // run_on_delete owns it from here
  return {*api_, args.buffer};
}

}  // namespace tpu::pjrt
