#include "pjrt/executable.h"

#include <algorithm>

#include "pjrt/api_newer.h"
#include "pjrt/serialized.h"

namespace tpu::pjrt {
namespace {

template <auto kFunction, class T>
Args<T> ask(const Owned<PJRT_Executable>& program) {
  TPU_CHECK(static_cast<bool>(program), ErrorKind::kInternal, "an empty executable was used");
  Args<T> args;
  args.executable = program.get();
  program.api().call<kFunction>(args);
  return args;
}
#define TPU_ASK(Name) \
  ask<&PJRT_Api::PJRT_Executable_##Name, PJRT_Executable_##Name##_Args>(program_)

// The same for what a plugin may not offer: empty then.
template <auto kFunction, class T>
std::optional<Args<T>> ask_if_offered(const Owned<PJRT_Executable>& program) {
  Args<T> args;
  args.executable = program.get();
  if (!program.api().template has<kFunction>()) return std::nullopt;
  if (const auto failure = program.api().template try_call<kFunction>(args)) {
    if (failure->code == StatusCode::kUnimplemented) return std::nullopt;
    throw_failure(*failure, detail::function_name<kFunction>());
  }
  return args;
}
#define TPU_ASK_IF_OFFERED(Name) \
  ask_if_offered<&PJRT_Api::PJRT_Executable_##Name, PJRT_Executable_##Name##_Args>(program_)

PJRT_Executable* program_of(const Api& api, PJRT_LoadedExecutable* handle) {
  Args<PJRT_LoadedExecutable_GetExecutable_Args> args;
  args.loaded_executable = handle;
  api.call<&PJRT_Api::PJRT_LoadedExecutable_GetExecutable>(args);
  return args.executable;
}

}  // namespace

Compiled::Compiled(const Api& api, PJRT_Executable* handle, Hash128 identity)
    : program_(api, handle), identity_(identity), num_outputs_(TPU_ASK(NumOutputs).num_outputs) {}

std::vector<OutputType> Compiled::output_types() const {
  const auto types = TPU_ASK(OutputElementTypes);
  const auto shapes = TPU_ASK(OutputDimensions);
  TPU_CHECK(types.num_output_types == num_outputs_ && shapes.num_outputs == num_outputs_,
            ErrorKind::kInternal, "the plugin describes ", types.num_output_types, " types and ",
            shapes.num_outputs, " shapes of ", num_outputs_, " outputs");
  std::vector<OutputType> out;
  const int64_t* dim = shapes.dims;
  for (size_t i = 0; i < num_outputs_; ++i) {
    const size_t rank = shapes.dim_sizes[i];
    out.push_back(
        {static_cast<ElementType>(detail::enum_number(types.output_types[i])), {dim, dim + rank}});
    dim += rank;
  }
  return out;
}

std::string Compiled::name() const {
  const auto args = TPU_ASK(Name);
  return {args.executable_name, args.executable_name_size};
}

int Compiled::num_replicas() const { return static_cast<int>(TPU_ASK(NumReplicas).num_replicas); }

int Compiled::num_partitions() const {
  return static_cast<int>(TPU_ASK(NumPartitions).num_partitions);
}

int64_t Compiled::code_size_bytes() const {
  return TPU_ASK(SizeOfGeneratedCodeInBytes).size_in_bytes;
}

std::string Compiled::fingerprint() const {
  const auto args = TPU_ASK_IF_OFFERED(Fingerprint);
  if (!args) return {};
  return {args->executable_fingerprint, args->executable_fingerprint_size};
}

std::optional<CompiledMemoryStats> Compiled::memory_stats() const {
  const auto args = TPU_ASK_IF_OFFERED(GetCompiledMemoryStats);
  if (!args) return std::nullopt;
  return CompiledMemoryStats{
      .code_bytes = args->generated_code_size_in_bytes,
      .argument_bytes = args->argument_size_in_bytes,
      .output_bytes = args->output_size_in_bytes,
      .alias_bytes = args->alias_size_in_bytes,
      .temporary_bytes = args->temp_size_in_bytes,
      .host_argument_bytes = args->host_argument_size_in_bytes,
      .host_output_bytes = args->host_output_size_in_bytes,
      .host_temporary_bytes = args->host_temp_size_in_bytes,
      .peak_bytes = args->peak_memory_in_bytes,
  };
}

std::optional<CostAnalysis> Compiled::cost_analysis() const {
  const auto args = TPU_ASK_IF_OFFERED(GetCostAnalysis);
  if (!args) return std::nullopt;
  CostAnalysis out;
  for (const auto& [name, value] : named_values(args->properties, args->num_properties)) {
    if (const auto* real = std::get_if<float>(&value)) out[name] = *real;
    if (const auto* whole = std::get_if<int64_t>(&value)) out[name] = static_cast<double>(*whole);
  }
  return out;
}

std::optional<Compiled::Program> Compiled::optimized_program() const {
  constexpr auto kFunction = &PJRT_Api::PJRT_Executable_OptimizedProgram;
  // The first call gives the size, the second the bytes.
  PJRT_Program program{};
  program.struct_size = PJRT_Program_STRUCT_SIZE;
  Args<PJRT_Executable_OptimizedProgram_Args> args;
  args.executable = program_.get();
  args.program = &program;
  if (const auto failure = program_.api().try_call<kFunction>(args)) {
    if (failure->code == StatusCode::kUnimplemented) return std::nullopt;
    throw_failure(*failure, detail::function_name<kFunction>());
  }
  Program out;
  out.code.resize(program.code_size);
  program.code = out.code.data();
  program_.api().call<kFunction>(args);
  out.format.assign(program.format, program.format_size);
  return out;
}

std::optional<std::string> Compiled::compile_options() const {
  auto* function =
      program_.api().newer_function<newer::GetCompileOptions>(newer::kGetCompileOptionsSlot);
  if (function == nullptr) return std::nullopt;
  if (detail::forked()) detail::throw_forked();
  newer::GetCompileOptionsArgs args{};
  args.struct_size = sizeof args;
  args.executable = program_.get();
  if (PJRT_Error* error = function(&args)) {
    const Failure failure = program_.api().take_failure(error);
    if (failure.code == StatusCode::kUnimplemented) return std::nullopt;
    throw_failure(failure, "PJRT_Executable_GetCompileOptions");
  }
  std::string out(args.bytes, args.bytes_size);
  args.deleter(args.backing);
  return out;
}

std::string Compiled::serialize() const {
  TPU_CHECK(!deserialized_, ErrorKind::kInternal,
            "a deserialized program cannot be serialized again; keep the bytes it was loaded from");
  const auto args = TPU_ASK(Serialize);
  std::string out = wrap_serialized(identity_, {args.serialized_bytes, args.serialized_bytes_size});
  args.serialized_executable_deleter(args.serialized_executable);
  return out;
}

Executable::Executable(const Api& api, PJRT_LoadedExecutable* handle, Hash128 identity,
                       bool deserialized)
    : loaded_(api, handle) {
  // Not in the list above: when this throws, loaded_ already owns the handle.
  static_cast<Compiled&>(*this) = Compiled(api, program_of(api, handle), identity);
  deserialized_ = deserialized;
}

Event Executable::execute(const Launch& launch) const {
  TPU_CHECK(launch.outputs.size() == num_outputs_, ErrorKind::kInternal, "a program with ",
            num_outputs_, " outputs was given room for ", launch.outputs.size());
  std::ranges::fill(launch.outputs, nullptr);
  Args<PJRT_ExecuteOptions> options;
  options.launch_id = launch.launch_id;
  options.non_donatable_input_indices = launch.non_donatable.data();
  options.num_non_donatable_input_indices = launch.non_donatable.size();

  PJRT_Buffer* const* arg_list = launch.args.data();
  PJRT_Buffer** output_list = launch.outputs.data();
  PJRT_Event* completion = nullptr;
  Args<PJRT_LoadedExecutable_Execute_Args> args;
  args.executable = loaded_.get();
  args.options = &options;
  args.argument_lists = &arg_list;
  args.num_devices = 1;
  args.num_args = launch.args.size();
  args.output_lists = &output_list;
  args.device_complete_events = launch.want_completion ? &completion : nullptr;
  args.execute_device = launch.device;
  loaded_.api().call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(args);
  return {loaded_.api(), completion};
}

std::vector<Event> Executable::execute_all(std::span<const std::span<PJRT_Buffer* const>> args,
                                           std::span<const std::span<PJRT_Buffer*>> outputs,
                                           std::span<const int64_t> non_donatable, int launch_id,
                                           bool want_completion) const {
  TPU_CHECK(!args.empty() && args.size() == outputs.size(), ErrorKind::kInternal,
            "a launch has arguments for ", args.size(), " devices and outputs for ",
            outputs.size());
  std::vector<PJRT_Buffer* const*> arg_lists;
  std::vector<PJRT_Buffer**> output_lists;
  for (size_t i = 0; i < args.size(); ++i) {
    TPU_CHECK(args[i].size() == args[0].size() && outputs[i].size() == num_outputs_,
              ErrorKind::kInternal, "device ", i, " of a launch has ", args[i].size(),
              " arguments and ", outputs[i].size(), " outputs; ", args[0].size(), " and ",
              num_outputs_, " are needed");
    std::ranges::fill(outputs[i], nullptr);
    arg_lists.push_back(args[i].data());
    output_lists.push_back(outputs[i].data());
  }
  Args<PJRT_ExecuteOptions> options;
  options.launch_id = launch_id;
  options.non_donatable_input_indices = non_donatable.data();
  options.num_non_donatable_input_indices = non_donatable.size();
  std::vector<PJRT_Event*> completions(args.size(), nullptr);
  Args<PJRT_LoadedExecutable_Execute_Args> call;
  call.executable = loaded_.get();
  call.options = &options;
  call.argument_lists = arg_lists.data();
  call.num_devices = arg_lists.size();
  call.num_args = args[0].size();
  call.output_lists = output_lists.data();
  call.device_complete_events = want_completion ? completions.data() : nullptr;
  loaded_.api().call<&PJRT_Api::PJRT_LoadedExecutable_Execute>(call);
  std::vector<Event> events;
  for (PJRT_Event* e : completions) events.emplace_back(loaded_.api(), e);
  return events;
}

std::vector<PJRT_Device*> Executable::devices() const {
  Args<PJRT_LoadedExecutable_AddressableDevices_Args> args;
  args.executable = loaded_.get();
  loaded_.api().call<&PJRT_Api::PJRT_LoadedExecutable_AddressableDevices>(args);
  return {args.addressable_devices, args.addressable_devices + args.num_addressable_devices};
}

}  // namespace tpu::pjrt
