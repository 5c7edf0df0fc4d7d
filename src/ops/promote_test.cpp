#include "ops/context.h"

#include <array>

#include "base/test.h"

namespace tpu::ops {
namespace {

using enum hlo::DType;

// The types that promote freely, and torch.promote_types over them (as PyTorch 2.13 gives it).
constexpr std::array kTypes = {kBool, kU8,   kI8,  kI16, kI32, kI64,
                               kF16,  kBF16, kF32, kF64, kC64, kC128};
constexpr DType kTable[kTypes.size()][kTypes.size()] = {
    {kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kU8, kU8, kI16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kI8, kI16, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kI16, kI16, kI16, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kI32, kI32, kI32, kI32, kI32, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kI64, kI64, kI64, kI64, kI64, kI64, kF16, kBF16, kF32, kF64, kC64, kC128},
    {kF16, kF16, kF16, kF16, kF16, kF16, kF16, kF32, kF32, kF64, kC64, kC128},
    {kBF16, kBF16, kBF16, kBF16, kBF16, kBF16, kF32, kBF16, kF32, kF64, kC64, kC128},
    {kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF32, kF64, kC64, kC128},
    {kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kF64, kC128, kC128},
    {kC64, kC64, kC64, kC64, kC64, kC64, kC64, kC64, kC64, kC128, kC64, kC128},
    {kC128, kC128, kC128, kC128, kC128, kC128, kC128, kC128, kC128, kC128, kC128, kC128},
};

TEST(promote_types_matches_pytorchs_table) {
  for (size_t i = 0; i < kTypes.size(); ++i) {
    for (size_t j = 0; j < kTypes.size(); ++j) {
      EXPECT_EQ(promote_types(kTypes[i], kTypes[j]), kTable[i][j]);
    }
  }
}

TEST(late_unsigned_types_promote_with_real_floats_only) {
  for (const DType late : {kU16, kU32, kU64}) {
    EXPECT_EQ(promote_types(late, late), late);
    for (const DType f : {kF16, kBF16, kF32, kF64}) {
      EXPECT_EQ(promote_types(late, f), f);
      EXPECT_EQ(promote_types(f, late), f);
    }
    for (const DType other : {kBool, kU8, kI8, kI64, kC64}) {
      EXPECT_THROW_MSG(promote_types(late, other),
                       "Promotion for uint16, uint32, uint64 types is not supported");
    }
  }
  EXPECT_THROW_MSG(promote_types(kU16, kI8), "attempted to promote UInt16 and Char");
}

TEST(float8_promotes_with_itself_only) {
  for (const DType f8 : {kF8E4M3FN, kF8E5M2, kF8E4M3FNUZ, kF8E5M2FNUZ, kF8E8M0FNU}) {
    EXPECT_EQ(promote_types(f8, f8), f8);
    EXPECT_THROW_MSG(promote_types(kF32, f8), "Promotion for Float8 Types is not supported");
    EXPECT_THROW_MSG(promote_types(f8, kU16), "Promotion for Float8 Types is not supported");
  }
}

struct NoHost : Host {
  Value scalar(hlo::Builder& b, int32_t, DType t) override { return b.constant(t, 1); }
  void check_numbers(NumberCheck) override {}
  Value random_state(hlo::Builder& b, int64_t) override { return b.splat({kU64, {2}}, 0); }
  void assertion(hlo::Builder&, Value, Value, ErrorKind, std::string, bool) override {}
};

TEST(result_type_has_three_categories) {
  hlo::Function f;
  hlo::Builder b(f);
  NoHost host;
  Context x(b, host, {});
  const auto dim = [&](DType t) { return b.parameter({t, {2}}); };
  const auto zero = [&](DType t) { return b.parameter({t, {}}); };
  EXPECT_EQ(x.promote(dim(kI8), zero(kI64)), kI8);   // same kind: dimensions decide
  EXPECT_EQ(x.promote(dim(kI8), zero(kF64)), kF64);  // a higher kind counts
  EXPECT_EQ(x.promote(dim(kBF16), zero(kF64)), kBF16);
  EXPECT_EQ(x.promote(dim(kBF16), zero(kC128)), kC64);  // the higher category's precision
  EXPECT_EQ(x.promote(dim(kF64), zero(kC64)), kC128);
  EXPECT_EQ(x.promote(dim(kBool), zero(kU8)), kU8);
  EXPECT_EQ(x.promote(dim(kI8), Number::of(2.5)), kF32);
  EXPECT_EQ(x.promote(dim(kU8), Number::of(int64_t{300})), kU8);
  EXPECT_EQ(x.promote(dim(kBool), Number::of(true)), kBool);
  EXPECT_EQ(x.promote(zero(kI32), Number::of(int64_t{3})), kI32);
  EXPECT_EQ(x.promote(Number::of(int64_t{3})), kI64);
  EXPECT_EQ(x.promote(dim(kI32), dim(kU8), zero(kF16)), kF16);
  EXPECT_EQ(x.promote(dim(kF32), Scalar{NumberKind::kComplex, 0, {}}), kC64);
  EXPECT_THROW_MSG(x.promote(dim(kF16), Scalar{NumberKind::kComplex, 0, {}}), "complex32");
  const Value wrapped = zero(kF64);
  x.mark_wrapped(wrapped);
  EXPECT_EQ(x.promote(dim(kI64), wrapped), kF32);
  EXPECT_EQ(x.promote(zero(kF16), wrapped), kF16);
  EXPECT_EQ(x.promote(Opt<Value>{}, Values{dim(kI16), dim(kU8)}), kI16);
}

TEST(default_dtype_is_the_float_of_numbers) {
  hlo::Function f;
  hlo::Builder b(f);
  NoHost host;
  Context x(
      b, host,
      {.precision = hlo::Precision::kHighest, .default_dtype = kF64, .out_type = {}, .target = {}});
  EXPECT_EQ(x.promote(b.parameter({kI64, {2}}), Number::of(0.5)), kF64);
  EXPECT_EQ(x.promote(b.parameter({kI64, {}}), Scalar{NumberKind::kComplex, 0, {}}), kC128);
  EXPECT_EQ(x.float_type(kBool), kF64);
}

}  // namespace
}  // namespace tpu::ops
