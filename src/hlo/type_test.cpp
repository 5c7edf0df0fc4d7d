#include "hlo/type.h"

#include <bit>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "base/test.h"
#include "hlo/literal.h"
#include "hlo/op.h"

namespace tpu::hlo {
namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();
constexpr double kNan = std::numeric_limits<double>::quiet_NaN();

template <class V>
std::string element(DType t, V v) {
  std::string out;
  append_element(out, t, to_element(t, v));
  return out;
}

}  // namespace

TEST(dtype_table) {
  EXPECT_EQ(mlir_name(DType::kBool), "i1");
  EXPECT_EQ(mlir_name(DType::kU8), "ui8");
  EXPECT_EQ(mlir_name(DType::kI64), "i64");
  EXPECT_EQ(mlir_name(DType::kF8E8M0FNU), "f8E8M0FNU");
  EXPECT_EQ(mlir_name(DType::kC128), "complex<f64>");
  EXPECT_EQ(torch_name(DType::kBF16), "bfloat16");
  EXPECT_EQ(torch_name(DType::kF8E5M2FNUZ), "float8_e5m2fnuz");
  EXPECT_EQ(size_bytes(DType::kBool), size_t{1});
  EXPECT_EQ(size_bytes(DType::kC128), size_t{16});
  EXPECT_EQ(real_type(DType::kC64), DType::kF32);
  EXPECT_EQ(real_type(DType::kI8), DType::kI8);
  EXPECT_EQ(complex_type(DType::kF64), DType::kC128);
  EXPECT_EQ(complex_type(DType::kBF16), DType::kC64);
  EXPECT_EQ(compute_type(DType::kF8E4M3FN), DType::kF32);
  EXPECT_EQ(compute_type(DType::kF64), DType::kF64);
  EXPECT_EQ(compute_type(DType::kI8), DType::kI8);
}

TEST(dtype_limits) {
  EXPECT_EQ(integer_min(DType::kI8), -128);
  EXPECT_EQ(integer_max(DType::kI8), 127);
  EXPECT_EQ(integer_max(DType::kU16), 65535);
  EXPECT_EQ(integer_min(DType::kU16), 0);
  EXPECT_EQ(integer_min(DType::kI64), std::numeric_limits<int64_t>::min());
  EXPECT_EQ(integer_max(DType::kU64), -1);
  EXPECT_EQ(integer_max(DType::kBool), 1);
  EXPECT_THROW_MSG(integer_min(DType::kF32), "not an integer type");
  EXPECT_EQ(float_max(DType::kF8E4M3FN), 448.0);
  EXPECT_EQ(float_max(DType::kF8E4M3FNUZ), 240.0);
  EXPECT_EQ(float_max(DType::kF8E5M2), 57344.0);
  EXPECT_EQ(float_max(DType::kF8E5M2FNUZ), 57344.0);
  EXPECT_EQ(float_max(DType::kF8E8M0FNU), 0x1p127);
  EXPECT_EQ(float_max(DType::kF16), 65504.0);
  EXPECT_EQ(float_max(DType::kF32), static_cast<double>(std::numeric_limits<float>::max()));
  EXPECT_EQ(float_max(DType::kF64), std::numeric_limits<double>::max());
}

// Each pattern of the 8-bit and 16-bit types is its own rounding, and the number halfway to the
// next one rounds to the even neighbour.
TEST(float_patterns_round_trip) {
  for (int i = static_cast<int>(DType::kF8E4M3FN); i <= static_cast<int>(DType::kBF16); ++i) {
    const auto t = static_cast<DType>(i);
    const uint64_t count = uint64_t{1} << (8 * size_bytes(t));
    int wrong = 0, wrong_ties = 0;
    for (uint64_t bits = 0; bits < count; ++bits) {
      const double v = bits_to_double(t, bits);
      if (std::isnan(v)) {
        wrong += std::isnan(bits_to_double(t, float_to_bits(t, v))) ? 0 : 1;
        continue;
      }
      wrong += float_to_bits(t, v) == bits ? 0 : 1;
      const double next = bits + 1 < count ? bits_to_double(t, bits + 1) : kNan;
      if (!std::isfinite(v) || !std::isfinite(next) || t == DType::kF8E8M0FNU) continue;
      const uint64_t even = bits % 2 == 0 ? bits : bits + 1;
      wrong_ties += float_to_bits(t, (v + next) / 2) == even ? 0 : 1;
    }
    EXPECT_EQ(cat(t, " ", wrong, " ", wrong_ties), cat(t, " 0 0"));
  }
}

TEST(float_special_values) {
  EXPECT_EQ(float_to_bits(DType::kF16, kInf), uint64_t{0x7c00});
  EXPECT_EQ(float_to_bits(DType::kF16, 65520.0), uint64_t{0x7c00});
  EXPECT_EQ(float_to_bits(DType::kF16, 65519.0), uint64_t{0x7bff});
  EXPECT_EQ(float_to_bits(DType::kBF16, -0.0), uint64_t{0x8000});
  EXPECT_EQ(float_to_bits(DType::kF32, kNan), uint64_t{0x7fc00000});
  EXPECT_EQ(float_to_bits(DType::kF8E4M3FN, kInf), uint64_t{0x7f});
  EXPECT_EQ(float_to_bits(DType::kF8E4M3FN, 464.0), uint64_t{0x7e});
  EXPECT_EQ(float_to_bits(DType::kF8E4M3FN, 465.0), uint64_t{0x7f});
  EXPECT_EQ(float_to_bits(DType::kF8E5M2, -kInf), uint64_t{0xfc});
  EXPECT_EQ(float_to_bits(DType::kF8E4M3FNUZ, -0.0), uint64_t{0});
  EXPECT_EQ(float_to_bits(DType::kF8E4M3FNUZ, kInf), uint64_t{0x80});
  EXPECT_EQ(float_to_bits(DType::kF8E8M0FNU, 1.5), uint64_t{0x80});
  EXPECT_EQ(float_to_bits(DType::kF8E8M0FNU, 0.0), uint64_t{0});
  EXPECT_EQ(float_to_bits(DType::kF8E8M0FNU, -1.0), uint64_t{0xff});
  EXPECT_EQ(float_to_bits(DType::kF32, 1e-46), uint64_t{0});
  EXPECT_EQ(float_to_bits(DType::kF32, 1e-45), uint64_t{1});
  EXPECT_THROW_MSG(float_to_bits(DType::kI32, 1.0), "not a real floating type");
  for (const double v : {0.1, 1.0 / 3, 1e38, 3e-39, 16777217.0, -2.5e-45, 3.5e38}) {
    EXPECT_EQ(float_to_bits(DType::kF32, v),
              uint64_t{std::bit_cast<uint32_t>(static_cast<float>(v))});
  }
}

TEST(type_text_and_sizes) {
  const Type t{DType::kF32, {2, 3}};
  EXPECT_EQ(mlir(t), "tensor<2x3xf32>");
  EXPECT_EQ(mlir(Type{DType::kC64, {}}), "tensor<complex<f32>>");
  EXPECT_EQ(to_string(t), "float32[2, 3]");
  EXPECT_EQ(to_string(t.dims), "[2, 3]");
  EXPECT_EQ(t.numel(), 6);
  EXPECT_EQ(t.size_bytes(), 24);
  EXPECT_EQ(product({}), 1);
  EXPECT_EQ(product({int64_t{1} << 40, int64_t{1} << 40, 0}), 0);
  EXPECT_THROW_MSG(product({int64_t{1} << 40, int64_t{1} << 40}), "64-bit");
  EXPECT_THROW_MSG((Type{DType::kF64, {int64_t{1} << 61}}.size_bytes()), "bytes");
}

TEST(op_names) {
  EXPECT_EQ(mlir_name(Op::kAbs), "stablehlo.abs");
  EXPECT_EQ(mlir_name(Op::kPopulationCount), "stablehlo.popcnt");
  EXPECT_EQ(mlir_name(Op::kErfInv), "chlo.erf_inv");
  EXPECT_EQ(mlir_name(Op::kBitcastConvert), "stablehlo.bitcast_convert");
  EXPECT_EQ(mlir_name(Op::kTopK), "chlo.top_k");
  EXPECT_EQ(mlir_name(Op::kReplicaId), "stablehlo.replica_id");
}

TEST(literal_numbers) {
  EXPECT_EQ(element(DType::kF32, 1.0), "1.0");
  EXPECT_EQ(element(DType::kF32, 0.1), "0.1");
  EXPECT_EQ(element(DType::kF64, 0.1), "0.1");
  EXPECT_EQ(element(DType::kF32, 1e10), "1.0e+10");
  EXPECT_EQ(element(DType::kF32, -1.5e-7), "-1.5e-07");
  EXPECT_EQ(element(DType::kF32, -0.0), "-0.0");
  EXPECT_EQ(element(DType::kF32, kNan), "0x7FC00000");
  EXPECT_EQ(element(DType::kF64, -kInf), "0xFFF0000000000000");
  EXPECT_EQ(element(DType::kBF16, kInf), "0x7F80");
  EXPECT_EQ(element(DType::kF8E4M3FN, kNan), "0x7F");
  EXPECT_EQ(element(DType::kF8E4M3FN, 0.3), "0.3125");
  EXPECT_EQ(element(DType::kBool, 0.5), "true");
  EXPECT_EQ(element(DType::kBool, int64_t{0}), "false");
  EXPECT_EQ(element(DType::kI32, -2.9), "-2");
  EXPECT_EQ(element(DType::kU8, int64_t{300}), "44");
  EXPECT_EQ(element(DType::kU8, -1.0), "255");
  EXPECT_EQ(element(DType::kI8, int64_t{200}), "-56");
  EXPECT_EQ(element(DType::kU64, int64_t{-1}), "18446744073709551615");
  EXPECT_EQ(element(DType::kU64, 0x1p63), "9223372036854775808");
  EXPECT_EQ(element(DType::kI64, std::numeric_limits<int64_t>::min()), "-9223372036854775808");
  EXPECT_EQ(element(DType::kC64, std::complex<double>(0.5, kNan)), "(0.5, 0x7FC00000)");
  EXPECT_EQ(element(DType::kF32, std::complex<double>(2, 0)), "2.0");
  EXPECT_THROW_MSG(element(DType::kF32, std::complex<double>(2, 1)), "imaginary part 1");
  EXPECT_THROW_MSG(element(DType::kI32, kNan), "does not fit into int32");
  EXPECT_THROW_MSG(element(DType::kI64, 0x1p63), "does not fit");
}

// One rounding from 64 bits: through a double, 2^60 + 2^36 + 1 would fall to the even float below.
TEST(literal_integers_round_once) {
  for (const int64_t v :
       {(int64_t{1} << 60) + (int64_t{1} << 36) + 1, int64_t{16777217},
        -((int64_t{1} << 60) + (int64_t{1} << 36) + 1), std::numeric_limits<int64_t>::min(),
        std::numeric_limits<int64_t>::max()}) {
    EXPECT_EQ(to_element(DType::kF32, v).real,
              uint64_t{std::bit_cast<uint32_t>(static_cast<float>(v))});
  }
}

TEST(literal_lists) {
  const Element one{1}, two{2};
  const std::vector<Element> row{one, two, one, two}, same{two, two};
  EXPECT_EQ(dense({DType::kI32, {2, 2}}, row), "dense<[[1, 2], [1, 2]]> : tensor<2x2xi32>");
  EXPECT_EQ(dense({DType::kI32, {2}}, same), "dense<2> : tensor<2xi32>");
  EXPECT_EQ(dense({DType::kBool, {}}, {{one}}), "dense<true> : tensor<i1>");
  EXPECT_EQ(dense({DType::kI64, {0, 2}}, {}), "dense<> : tensor<0x2xi64>");
}

}  // namespace tpu::hlo
