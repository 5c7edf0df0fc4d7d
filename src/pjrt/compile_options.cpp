#include "pjrt/compile_options.h"

#include <charconv>
#include <cstring>

#include "base/error.h"

namespace tpu::pjrt {
namespace {

// The protobuf wire format, as far as we write and read it.
enum WireType : uint32_t { kVarint = 0, kFixed64 = 1, kBytes = 2, kFixed32 = 5 };

struct Message {
  std::string bytes;

  void varint(uint64_t value) {
    for (; value >= 128; value >>= 7) bytes += static_cast<char>(value | 128);
    bytes += static_cast<char>(value);
  }
  void tag(uint32_t field, WireType type) { varint((uint64_t{field} << 3) | type); }
  Message& number(uint32_t field, int64_t value) {
    tag(field, kVarint);
    varint(static_cast<uint64_t>(value));
    return *this;
  }
  Message& text(uint32_t field, std::string_view value) {
    tag(field, kBytes);
    varint(value.size());
    bytes += value;
    return *this;
  }
  Message& real(uint32_t field, double value) {
    tag(field, kFixed64);
    char raw[sizeof value];
    std::memcpy(raw, &value, sizeof value);
    bytes.append(raw, sizeof raw);
    return *this;
  }
  Message& message(uint32_t field, const Message& value) { return text(field, value.bytes); }
};

// Field numbers of xla/pjrt/proto/compile_options.proto and xla/xla_data.proto.
namespace options_field {
constexpr uint32_t kParameterIsTupled = 2, kBuildOptions = 3, kPortable = 4, kOverrides = 7;
}
namespace build_field {
constexpr uint32_t kDeviceOrdinal = 1, kDebugOptions = 3, kNumReplicas = 4, kNumPartitions = 5,
                   kUseSpmd = 6, kDeviceAssignment = 9, kUseShardy = 19;
}
namespace assignment_field {
constexpr uint32_t kReplicaCount = 1, kComputationCount = 2, kComputationDevices = 3;
constexpr uint32_t kReplicaDeviceIds = 1;
}  // namespace assignment_field
namespace debug_field {
constexpr uint32_t kBackendExtraOptions = 500;
}

Message encode_value(const OptionValue& value) {
  Message m;
  if (const auto* text = std::get_if<std::string>(&value)) return m.text(1, *text);
  if (const auto* flag = std::get_if<bool>(&value)) return m.number(2, *flag ? 1 : 0);
  if (const auto* number = std::get_if<int64_t>(&value)) return m.number(3, *number);
  return m.real(4, std::get<double>(value));
}

Message encode_assignment(const CompileOptions& o) {
  const auto replicas = static_cast<size_t>(o.num_replicas);
  const auto partitions = static_cast<size_t>(o.num_partitions);
  TPU_CHECK(o.device_assignment.size() == replicas * partitions, "the device assignment ",
            o.device_assignment, " does not have ", replicas, " x ", partitions, " devices");
  Message m;
  m.number(assignment_field::kReplicaCount, o.num_replicas);
  m.number(assignment_field::kComputationCount, o.num_partitions);
  for (size_t p = 0; p < partitions; ++p) {
    Message devices;
    for (size_t r = 0; r < replicas; ++r) {
      devices.number(assignment_field::kReplicaDeviceIds, o.device_assignment[r * partitions + p]);
    }
    m.message(assignment_field::kComputationDevices, devices);
  }
  return m;
}

}  // namespace

std::string CompileOptions::encode() const {
  TPU_CHECK(num_replicas >= 1 && num_partitions >= 1, num_replicas, " replicas x ", num_partitions,
            " partitions: both must be at least 1");
  Message build;
  build.number(build_field::kDeviceOrdinal, device_ordinal);
  if (!debug_options.empty()) build.text(build_field::kDebugOptions, debug_options);
  build.number(build_field::kNumReplicas, num_replicas);
  build.number(build_field::kNumPartitions, num_partitions);
  if (use_spmd_partitioning) build.number(build_field::kUseSpmd, 1);
  if (!device_assignment.empty()) {
    build.message(build_field::kDeviceAssignment, encode_assignment(*this));
  }
  if (use_shardy_partitioner) build.number(build_field::kUseShardy, 1);

  Message all;
  if (parameter_is_tupled) all.number(options_field::kParameterIsTupled, 1);
  all.message(options_field::kBuildOptions, build);
  if (portable) all.number(options_field::kPortable, 1);
  for (const auto& [name, value] : overrides) {
    Message entry;
    entry.text(1, name).message(2, encode_value(value));
    all.message(options_field::kOverrides, entry);
  }
  return std::move(all.bytes);
}

std::map<std::string, OptionValue, std::less<>> parse_overrides(std::string_view text) {
  std::map<std::string, OptionValue, std::less<>> out;
  for (std::string_view word : split(text, ' ')) {
    word = trim(word);
    if (word.empty()) continue;
    if (word.starts_with("--")) word.remove_prefix(2);
    const size_t equals = word.find('=');
    TPU_CHECK(equals != std::string_view::npos && equals > 0, "the compile option \"", word,
              "\" is not of the form key=value");
    const std::string_view value = word.substr(equals + 1);
    OptionValue parsed = std::string(value);
    double real = 0;
    const auto [end, error] = std::from_chars(value.data(), value.data() + value.size(), real);
    if (value == "true" || value == "false") {
      parsed = value == "true";
    } else if (const auto number = parse_int(value)) {
      parsed = *number;
    } else if (error == std::errc() && end == value.data() + value.size()) {
      parsed = real;
    }
    out.insert_or_assign(std::string(word.substr(0, equals)), std::move(parsed));
  }
  return out;
}

std::string backend_extra_option(std::string_view key, std::string_view value) {
  Message entry, all;
  entry.text(1, key).text(2, value);
  return std::move(all.message(debug_field::kBackendExtraOptions, entry).bytes);
}

std::string read_message_field(std::string_view message, uint32_t field) {
  std::string out;
  const auto varint = [&message] {
    uint64_t value = 0;
    for (int shift = 0; shift < 64; shift += 7) {
      TPU_CHECK(!message.empty(), ErrorKind::kInternal, "a serialized message ends too early");
      const auto byte = static_cast<unsigned char>(message.front());
      message.remove_prefix(1);
      value |= uint64_t{byte & 127U} << shift;
      if (byte < 128) return value;
    }
    TPU_THROW(ErrorKind::kInternal, "a serialized message holds a number that is too long");
  };
  while (!message.empty()) {
    const uint64_t tag = varint();
    uint64_t size = 0;
    switch (tag & 7) {
      case kVarint: varint(); break;
      case kFixed64: size = 8; break;
      case kFixed32: size = 4; break;
      case kBytes: size = varint(); break;
      default: TPU_THROW(ErrorKind::kInternal, "a serialized message has wire type ", tag & 7);
    }
    TPU_CHECK(size <= message.size(), ErrorKind::kInternal, "a serialized message ends too early");
    if ((tag & 7) == kBytes && (tag >> 3) == field) out += message.substr(0, size);
    message.remove_prefix(size);
  }
  return out;
}

}  // namespace tpu::pjrt
