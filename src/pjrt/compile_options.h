// What the compiler is told beside the program. `encode` writes xla.CompileOptionsProto, which is
// why this layer needs no protobuf library. Options of the XLA compiler go into `overrides` by
// their flag name without dashes; a name that the plugin does not know is an error of the compile
// call.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

namespace tpu::pjrt {

using OptionValue = std::variant<std::string, bool, int64_t, double>;

struct CompileOptions {
  int num_replicas = 1;
  int num_partitions = 1;
  // Local device to compile for; -1 is the client's default.
  int device_ordinal = -1;
  // Global device ids, replica by replica; empty is the client's default assignment. num_replicas x
  // num_partitions.
  std::vector<int64_t> device_assignment = {};
  bool use_spmd_partitioning = false;
  // Needed for programs with `sdy` attributes, together with use_spmd_partitioning.
  bool use_shardy_partitioner = false;
  // The program then runs on any one device, which `execute` names.
  bool portable = false;
  bool parameter_is_tupled = false;
  std::map<std::string, OptionValue, std::less<>> overrides = {};
  // A serialized xla.DebugOptions that replaces the plugin's default one, see Client::fast_options.
  std::string debug_options = {};

  std::string encode() const;
};

// "key=value key=value" as `overrides` values: true/false, whole numbers, decimals, else text.
std::map<std::string, OptionValue, std::less<>> parse_overrides(std::string_view text);

// One entry of the map xla_backend_extra_options, to be appended to a serialized xla.DebugOptions.
std::string backend_extra_option(std::string_view key, std::string_view value = "");

// The bytes of one length-delimited field of a serialized message, all its occurrences joined
// (which merges sub-messages); empty when it is absent. Throws on bytes that are no message.
std::string read_message_field(std::string_view message, uint32_t field);

}  // namespace tpu::pjrt
