#include "pjrt/compile_options.h"

#include "base/error.h"
#include "base/strings.h"
#include "base/test.h"

namespace tpu::pjrt {
namespace {

// The bytes below were read back with jaxlib's CompileOptions.ParseFromString, which gave the
// values shown.

TEST(compile_options_default) {
  EXPECT_EQ(to_hex(CompileOptions{}.encode()), std::string("1a0f08ffffffffffffffffff0120012801"));
}

TEST(compile_options_partitions) {
  const CompileOptions options{.num_replicas = 2,
                               .num_partitions = 4,
                               .device_ordinal = 3,
                               .device_assignment = {0, 1, 2, 3, 4, 5, 6, 700},
                               .use_spmd_partitioning = true,
                               .use_shardy_partitioner = true,
                               .portable = true,
                               .parameter_is_tupled = true};
  // Computation0{0 4} Computation1{1 5} Computation2{2 6} Computation3{3 700}
  EXPECT_EQ(to_hex(options.encode()),
            std::string("10011a2a08032002280430014a1d080210041a04080008041a04080108051a04080208061a"
                        "05080308bc059801012001"));
  EXPECT_THROW_MSG((CompileOptions{.num_replicas = 2, .device_assignment = {1}}.encode()),
                   "the device assignment [1] does not have 2 x 1 devices");
  EXPECT_THROW_MSG((CompileOptions{.num_partitions = 0}.encode()), "both must be at least 1");
}

TEST(compile_options_overrides) {
  const CompileOptions options{
      .overrides = {
          {"a", std::string("text")}, {"b", true}, {"c", int64_t{-7}}, {"d", 2.5}, {"e", false}}};
  EXPECT_EQ(to_hex(options.encode()),
            std::string("1a0f08ffffffffffffffffff01200128013a0b0a016112060a04746578743a070a01621202"
                        "10013a100a0163120b18f9ffffffffffffffff013a0e0a0164120921000000000000044"
                        "03a070a016512021000"));
}

TEST(compile_options_debug_options) {
  const std::string debug = backend_extra_option("k1", "v1") + backend_extra_option("k2");
  const std::string bytes = CompileOptions{.debug_options = debug}.encode();
  EXPECT_EQ(read_message_field(read_message_field(bytes, 3), 3), debug);
  EXPECT_EQ(to_hex(debug), std::string("a21f080a026b3112027631a21f060a026b321200"));
}

TEST(read_message_field_joins_and_checks) {
  // 1: varint 300, 2: "ab", 3: fixed64, 2: "c", 4: fixed32
  const std::string message(
      "\x08\xac\x02\x12\x02"
      "ab\x19"
      "12345678\x12\x01"
      "c\x25"
      "1234",
      24);
  EXPECT_EQ(read_message_field(message, 2), std::string("abc"));
  EXPECT_EQ(read_message_field(message, 9), std::string());
  EXPECT_EQ(read_message_field("", 1), std::string());
  EXPECT_THROW_MSG(read_message_field(message.substr(0, 6), 2), "ends too early");
  EXPECT_THROW_MSG(read_message_field("\x80", 2), "ends too early");
  EXPECT_THROW_MSG(read_message_field(std::string(12, '\xff'), 2), "too long");
  EXPECT_THROW_MSG(read_message_field("\x0b", 2), "wire type 3");
}

TEST(parse_overrides_guesses_types) {
  const auto o = parse_overrides(" xla_a=true  --xla_b=12 xla_c=0.5 xla_d=SAFE=1 xla_e= ");
  EXPECT_EQ(o.size(), size_t{5});
  EXPECT_TRUE(o.at("xla_a") == OptionValue(true));
  EXPECT_TRUE(o.at("xla_b") == OptionValue(int64_t{12}));
  EXPECT_TRUE(o.at("xla_c") == OptionValue(0.5));
  EXPECT_TRUE(o.at("xla_d") == OptionValue(std::string("SAFE=1")));
  EXPECT_TRUE(o.at("xla_e") == OptionValue(std::string()));
  EXPECT_THROW_MSG(parse_overrides("xla_a"), "\"xla_a\" is not of the form key=value");
}

}  // namespace
}  // namespace tpu::pjrt
