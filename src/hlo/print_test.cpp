#include "hlo/print.h"

#include "base/error.h"
#include "base/test.h"
#include "hlo/builder.h"

namespace tpu::hlo {

using Values = Builder::Values;

TEST(print_module) {
  Function f;
  Builder b(f);
  const Value x = b.parameter({DType::kF32, {2}});
  const Value y = b.parameter({DType::kF32, {2}});
  b.set_location("aten::add, \"train\".py:12\n");
  const Value sum = b.add(x, y);
  b.set_location("");
  b.finish({b.neg(sum), x});
  f.argument_attributes = {"jax.buffer_donor = true", ""};
  EXPECT_EQ(print(f, {.module_name = "m", .num_replicas = 4}),
            R"("builtin.module"() <{sym_name = "m"}> ({
  "func.func"() <{arg_attrs = [{jax.buffer_donor = true}, {}], function_type = (tensor<2xf32>, tensor<2xf32>) -> (tensor<2xf32>, tensor<2xf32>), sym_name = "main", sym_visibility = "public"}> ({
  ^bb0(%0: tensor<2xf32>, %1: tensor<2xf32>):
    %2 = "stablehlo.add"(%0, %1) : (tensor<2xf32>, tensor<2xf32>) -> tensor<2xf32> loc("aten::add, \"train\".py:12\0A")
    %3 = "stablehlo.negate"(%2) : (tensor<2xf32>) -> tensor<2xf32>
    "func.return"(%3, %0) : (tensor<2xf32>, tensor<2xf32>) -> ()
  }) : () -> ()
}) {mhlo.num_partitions = 1 : i32, mhlo.num_replicas = 4 : i32} : () -> ()
)");
  EXPECT_TRUE(print(f, {.locations = false}).find("loc(") == std::string::npos);
  f.argument_attributes = {"jax.buffer_donor = true"};
  EXPECT_THROW_MSG(print(f), "2 arguments and attributes for 1");
}

TEST(print_regions_and_several_results) {
  Function f;
  Builder b(f);
  const Value x = b.parameter({DType::kF32, {2}}), i = b.parameter({DType::kI32, {2}});
  const Values sorted = b.sort(
      {x, i}, 0, true, [&](const Values& a) { return Values{b.compare(Cmp::kLt, a[0], a[1])}; });
  b.finish({sorted[1], sorted[0]});
  const std::string text = print(f);
  const auto has = [&](std::string_view part) {
    if (text.find(part) == std::string::npos)
      test::report(__FILE__, __LINE__, cat(part, " is not in\n", text));
  };
  has(R"(%7:2 = "stablehlo.sort"(%0, %1) <{dimension = 0 : i64, is_stable = true}> ({
    ^bb0(%2: tensor<f32>, %3: tensor<f32>, %4: tensor<i32>, %5: tensor<i32>):
      %6 = "stablehlo.compare"(%2, %3))");
  has(R"(      "stablehlo.return"(%6) : (tensor<i1>) -> ()
    }) : (tensor<2xf32>, tensor<2xi32>) -> (tensor<2xf32>, tensor<2xi32>))");
  has(R"("func.return"(%7#1, %7#0) : (tensor<2xi32>, tensor<2xf32>) -> ())");
}

TEST(print_attributes) {
  Function f;
  Builder b(f);
  const Value x = b.parameter({DType::kF32, {4}});
  b.custom_call("t", {x}, {}, "a\"b\\", true, 2,
                {{"mhlo.note", Raw{"\"n\""}},
                 {"half", 0.5},
                 {"none", DenseInts{}},
                 {"d", DenseInts{{1, 2}}}});
  b.finish({});
  const std::string text = print(f);
  EXPECT_TRUE(
      text.find(
          R"("stablehlo.custom_call"(%0) <{call_target_name = "t", api_version = 2 : i32, )"
          R"(has_side_effect = true, backend_config = "a\"b\\", half = 0x3fe0000000000000 : f64, )"
          R"(none = array<i64>, d = array<i64: 1, 2>}> {mhlo.note = "n"} : (tensor<4xf32>) -> ())") !=
      std::string::npos);
  EXPECT_TRUE(text.find("\"func.return\"() : () -> ()") != std::string::npos);
}

TEST(print_dimension_numbers) {
  Function f;
  Builder b(f);
  const Value x = b.parameter({DType::kF32, {1, 5, 2}}), k = b.parameter({DType::kF32, {3, 4, 2}});
  const ConvDims d{0, 2, {1}, 2, 1, {0}, 0, 2, {1}};
  ConvWindow w{.pad_low = {2}, .pad_high = {1}};
  w.reversal = {true};
  b.finish({b.convolution(x, k, d, w, Precision::kHigh, DType::kF32)});
  const std::string text = print(f);
  const auto has = [&](std::string_view part) {
    if (text.find(part) == std::string::npos)
      test::report(__FILE__, __LINE__, cat(part, " is not in\n", text));
  };
  has("dimension_numbers = #stablehlo.conv<[b, 0, f]x[0, o, i]->[b, 0, f]>");
  has("padding = dense<[[2, 1]]> : tensor<1x2xi64>");
  has("window_reversal = array<i1: true>");
  has("precision_config = [#stablehlo<precision HIGH>, #stablehlo<precision HIGH>]");
  EXPECT_TRUE(text.find("window_strides") == std::string::npos);
}

}  // namespace tpu::hlo
