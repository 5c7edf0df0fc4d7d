#include "pjrt/api.h"

#include <dlfcn.h>

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <string>
#include <utility>
#include <vector>

#include "base/test.h"
#include "pjrt/element_type.h"
#include "pjrt/owned.h"
#include "pjrt/program.h"
#include "pjrt/serialized.h"

namespace tpu::pjrt {
namespace {

TEST(api_load_says_what_is_wrong_with_the_library) {
  EXPECT_THROW_MSG(Api::load("/nowhere/plugin.so"),
                   "the plugin library /nowhere/plugin.so cannot be found: No such file");
  const std::string path = cat("./api_test_", reinterpret_cast<uintptr_t>(&path), ".so");
  std::ofstream(path) << "text";
  EXPECT_THROW_MSG(Api::load(path), cat("the plugin library ", path, " cannot be loaded: "));
  setenv("XLA_FLAGS", "--xla_flag_of_no_plugin", 1);
  EXPECT_THROW_MSG(Api::load(path), "XLA_FLAGS holds --xla_flag_of_no_plugin, which the plugin");
  unsetenv("XLA_FLAGS");
  std::remove(path.c_str());
  Dl_info c_library = {};
  dladdr(reinterpret_cast<void*>(&std::abort), &c_library);
  EXPECT_THROW_MSG(Api::load(c_library.dli_fname),
                   "is no PJRT plugin: it has no function GetPjrtApi");
}

TEST(xla_flags_are_looked_up_as_whole_names) {
  const std::string path = cat("./flags_test_", reinterpret_cast<uintptr_t>(&path), ".tmp");
  std::ofstream(path) << std::string("ab\0longer_xla_one\0xla_two_more\0xla_three", 40);
  check_xla_flags(path, "");
  check_xla_flags(path, "file_with_flags");
  check_xla_flags(path, "--xla_one=1  --xla_two_more --xla_three=a=b");
  EXPECT_THROW_MSG(check_xla_flags(path, "--xla_one --xla_two=1"), "--xla_two, which");
  std::remove(path.c_str());
  EXPECT_THROW_MSG(check_xla_flags(path, "--xla_one"), "cannot read");
}

TEST(function_names_come_from_the_table) {
  EXPECT_EQ(detail::function_name<&PJRT_Api::PJRT_Client_Create>(),
            std::string_view("PJRT_Client_Create"));
}

TEST(args_know_their_size_and_are_zero) {
  const Args<PJRT_Buffer_IsDeleted_Args> args;
  EXPECT_TRUE(args.struct_size >= PJRT_Buffer_IsDeleted_Args_STRUCT_SIZE);
  EXPECT_TRUE(args.buffer == nullptr && args.extension_start == nullptr);
  EXPECT_TRUE(sizeof args >= args.struct_size + 128);
}

TEST(named_values_make_the_round_trip) {
  const NamedValues values = {{"text", std::string("a\0b", 3)},
                              {"number", int64_t{-5}},
                              {"flag", true},
                              {"real", 1.5F},
                              {"numbers", std::vector<int64_t>{1, 2}},
                              {"nothing", std::vector<int64_t>{}}};
  const NamedValueList list(values);
  EXPECT_TRUE(named_values(list.data(), list.size()) == values);
  EXPECT_EQ(to_string(values.at("numbers")), std::string("[1, 2]"));
  EXPECT_EQ(to_string(values.at("flag")), std::string("true"));
}

// A table of functions that counts what it is asked to destroy, and fails the first question.
int g_destroyed = 0;
PJRT_Error* count_destroyed(PJRT_Buffer_Destroy_Args* args) {
  EXPECT_TRUE(args->buffer != nullptr);
  ++g_destroyed;
  return nullptr;
}

TEST(owned_is_two_words_and_destroys_once) {
  static_assert(sizeof(Owned<PJRT_Buffer>) == 16);
  static_assert(!std::is_copy_constructible_v<Owned<PJRT_Buffer>>);
  static_assert(std::is_nothrow_move_constructible_v<Owned<PJRT_Buffer>>);
  static_assert(std::is_nothrow_move_assignable_v<Owned<PJRT_Buffer>>);
  PJRT_Api table{};
  table.struct_size = PJRT_Api_STRUCT_SIZE;
  table.PJRT_Buffer_Destroy = count_destroyed;
  const Api api("a test", &table);
  int places[3];
  const auto make = [&](int i) {
    return Owned<PJRT_Buffer>(api, reinterpret_cast<PJRT_Buffer*>(&places[i]));
  };
  {
    Owned<PJRT_Buffer> first = make(0);
    Owned<PJRT_Buffer> second = std::move(first);
    EXPECT_TRUE(!first && second);  // NOLINT(bugprone-use-after-move)
    EXPECT_EQ(g_destroyed, 0);
    second = make(1);  // destroys 0
    EXPECT_EQ(g_destroyed, 1);
    Owned<PJRT_Buffer> released = make(2);
    EXPECT_TRUE(released.release() != nullptr);
    second = Owned<PJRT_Buffer>();  // destroys 1
    EXPECT_EQ(g_destroyed, 2);
  }
  EXPECT_EQ(g_destroyed, 2);
}

TEST(a_missing_function_is_named) {
  PJRT_Api table{};
  table.struct_size = offsetof(PJRT_Api, PJRT_Client_Compile);  // an older, shorter table
  table.pjrt_api_version.minor_version = 81;
  const Api api("a test", &table);
  Args<PJRT_Client_Compile_Args> compile;
  EXPECT_THROW_MSG((api.call<&PJRT_Api::PJRT_Client_Compile>(compile), 0),
                   "the plugin a test (PJRT 0.81) has no PJRT_Client_Compile; use a newer plugin");
  Args<PJRT_Client_Destroy_Args> destroy;  // inside the table, but null
  EXPECT_THROW_MSG((api.call<&PJRT_Api::PJRT_Client_Destroy>(destroy), 0),
                   "has no PJRT_Client_Destroy");
  EXPECT_TRUE(api.newer_function<PJRT_Error*(void*)>(124) == nullptr);
}

TEST(failures_map_to_kinds) {
  const auto kind = [](StatusCode code) { return to_error({code, "why"}, "PJRT_X").kind; };
  EXPECT_EQ(kind(StatusCode::kResourceExhausted), ErrorKind::kMemory);
  EXPECT_EQ(kind(StatusCode::kUnimplemented), ErrorKind::kUnsupported);
  EXPECT_EQ(kind(StatusCode::kInvalidArgument), ErrorKind::kDevice);
  EXPECT_EQ(to_error({StatusCode::kInternal, "why"}, "PJRT_X").text,
            std::string("why (PJRT_X: INTERNAL)"));
}

TEST(element_types_have_names_and_widths) {
  EXPECT_EQ(to_string(ElementType::kBF16), std::string_view("bf16"));
  EXPECT_EQ(to_string(ElementType::kPred), std::string_view("i1"));
  EXPECT_EQ(bit_width(ElementType::kS4), 4);
  EXPECT_EQ(host_size_bytes(ElementType::kS4), 1);
  EXPECT_EQ(host_size_bytes(ElementType::kC128), 16);
  EXPECT_EQ(host_size_bytes(ElementType::kToken), 0);
  EXPECT_EQ(to_string(static_cast<ElementType>(99)), std::string_view("invalid"));
}

TEST(unbounded_dimensions_are_refused) {
  const auto refused = [](std::string_view text) {
    try {
      check_program(text, "mlir");
      return false;
    } catch (const Error& e) {
      return e.kind == ErrorKind::kUnsupported;
    }
  };
  EXPECT_TRUE(refused("%0: tensor<?xf32>"));
  EXPECT_TRUE(refused("(tensor<4xf32>) -> tensor<4x?x2xf32>"));
  EXPECT_TRUE(refused("tensor<?x4xf32, #stablehlo.bounds<16, ?>>, tensor<?xf32>"));
  EXPECT_TRUE(!refused("tensor<?x4xf32, #stablehlo.bounds<16, ?>>"));
  EXPECT_TRUE(!refused("tensor<?x4xf32, #bounds>"));
  EXPECT_TRUE(!refused("loc(\"what?\") tensor<4xf32>"));
  EXPECT_TRUE(!refused("tensor<4xf32> loc(\"what?\")"));
  check_program("tensor<?xf32>", "hlo");
  EXPECT_THROW_MSG(check_program("tensor<?x2xf32>", "mlir"), "(tensor<?x2xf32>)");
}

TEST(serialized_programs_carry_their_maker) {
  const Hash128 maker{1, 2}, other{1, 3};
  const std::string bytes = wrap_serialized(maker, std::string("a\0b", 3));
  EXPECT_EQ(unwrap_serialized(maker, bytes), std::string_view("a\0b", 3));
  EXPECT_THROW_MSG(unwrap_serialized(other, bytes),
                   "another plugin build or for another processor");
  EXPECT_THROW_MSG(unwrap_serialized(maker, bytes.substr(0, 30)), "no serialized executable");
  EXPECT_THROW_MSG(unwrap_serialized(maker, ""), "no serialized executable");
}

}  // namespace
}  // namespace tpu::pjrt
