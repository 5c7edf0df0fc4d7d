#include "ops/context.h"

#include <cmath>
#include <limits>

#include "base/test.h"
#include "hlo/print.h"

namespace tpu::ops {
namespace {

using enum hlo::DType;

struct RecordingHost : Host {
  std::vector<DType> scalars;
  std::vector<int64_t> draws;
  std::vector<ErrorKind> kinds;
  std::vector<std::string> texts;
  std::vector<NumberCheck> checks;
  void check_numbers(NumberCheck check) override { checks.push_back(std::move(check)); }
  Value scalar(hlo::Builder& b, int32_t, DType t) override {
    scalars.push_back(t);
    return b.parameter({t, {}});
  }
  Value random_state(hlo::Builder& b, int64_t count) override {
    draws.push_back(count);
    return b.splat({kU64, {2}}, 0);
  }
  void assertion(hlo::Builder&, Value violated, Value value, ErrorKind kind, std::string text,
                 bool) override {
    EXPECT_TRUE(violated.type() == (Type{kBool, {}}));
    EXPECT_TRUE(value.type() == (Type{kI64, {}}));
    kinds.push_back(kind);
    texts.push_back(std::move(text));
  }
};

struct Fixture {
  hlo::Function f;
  hlo::Builder b{f};
  RecordingHost host;
  Context x{b, host, {}};
  Value p(DType t, Dims d) { return b.parameter({t, std::move(d)}); }
};

TEST(axes_are_checked_as_pytorch_does) {
  Fixture t;
  const Value m = t.p(kF32, {2, 3});
  EXPECT_EQ(t.x.axis(-1, m), 1);
  EXPECT_THROW_MSG(t.x.axis(3, m),
                   "Dimension out of range (expected to be in range of [-2, 1], but got 3)");
  EXPECT_THROW_MSG(t.x.axis(1, t.p(kF32, {})),
                   "Dimension out of range (expected to be in range of [-1, 0], but got 1)");
  EXPECT_EQ(t.x.axes(Dims{-1, 0}, m), (Dims{0, 1}));
  EXPECT_EQ(t.x.axes(std::nullopt, m), (Dims{0, 1}));
  EXPECT_EQ(t.x.axes(Dims{}, m), (Dims{0, 1}));
  EXPECT_EQ(t.x.axes(Dims{0}, t.p(kF32, {})), Dims{});
  EXPECT_THROW_MSG(t.x.axes(Dims{0, -2}, m), "dim 0 appears multiple times in the list of dims");
  EXPECT_EQ(Context::reduced({2, 3, 4}, {1}, true), (Dims{2, 1, 4}));
  EXPECT_EQ(Context::reduced({2, 3, 4}, {0, 2}, false), Dims{3});
}

TEST(broadcasting) {
  Fixture t;
  EXPECT_EQ(t.x.broadcast_dims({{3, 1}, {4}}), (Dims{3, 4}));
  EXPECT_EQ(t.x.broadcast_dims({{}, {0, 1}, {1, 5}}), (Dims{0, 5}));
  EXPECT_THROW_MSG(t.x.broadcast_dims({{2, 3}, {2, 4}}),
                   "The size of tensor a (3) must match the size of tensor b (4) at "
                   "non-singleton dimension 1");
  EXPECT_EQ(t.x.broadcast(t.p(kF32, {3, 1}), {2, 3, 4}).dims(), (Dims{2, 3, 4}));
  EXPECT_THROW_MSG(t.x.broadcast(t.p(kF32, {3}), {2, 4}),
                   "The expanded size of the tensor (4) must match the existing size (3)");
  const auto [a, b] = t.x.broadcast_all(kF64, t.p(kI8, {3, 1}), t.p(kF32, {4}));
  EXPECT_TRUE(a.type() == (Type{kF64, {3, 4}}) && b.type() == a.type());
}

TEST(conversion_reaches_every_type) {
  for (int from = 0; from < hlo::kDTypeCount; ++from) {
    for (int to = 0; to < hlo::kDTypeCount; ++to) {
      Fixture t;
      const Value v = t.p(static_cast<DType>(from), {2});
      const Value r = t.x.convert(v, static_cast<DType>(to));
      EXPECT_TRUE(r.type() == (Type{static_cast<DType>(to), {2}}));
      EXPECT_EQ(r.id == v.id, from == to);
    }
  }
}

TEST(run_time_numbers_come_in_few_types) {
  Fixture t;
  const Scalar f{NumberKind::kFloat, 0, {}}, c{NumberKind::kComplex, 0, {}};
  for (const DType type : {kBool, kI8, kI64, kBF16, kF32, kF64, kC64, kC128}) {
    EXPECT_TRUE(t.x.scalar(f, type).type() == (Type{type, {}}));
  }
  EXPECT_TRUE(t.host.scalars ==
              (std::vector<DType>{kBool, kI32, kI64, kF32, kF32, kF64, kF32, kF64}));
  t.host.scalars.clear();
  EXPECT_TRUE(t.x.scalar(c, kC64).dtype() == kC64 && t.x.scalar(c, kF64).dtype() == kF64);
  EXPECT_TRUE(t.host.scalars == (std::vector<DType>{kC64, kC128}));
  t.host.scalars.clear();
  const Scalar known{NumberKind::kInt, 0, Number::of(int64_t{2})};
  EXPECT_TRUE(t.x.is(known, 2) && !t.x.is(known, 1) && !t.x.is(f, 1));
  EXPECT_TRUE(t.x.scalar_like(known, t.p(kF16, {3})).type() == (Type{kF16, {3}}));
  EXPECT_TRUE(t.host.scalars.empty());
}

TEST(run_time_numbers_are_checked_at_every_call) {
  Fixture t;
  const Scalar first{NumberKind::kInt, 0, {}}, second{NumberKind::kFloat, 1, {}};
  const Scalar known{NumberKind::kInt, -1, Number::of(int64_t{2})};
  const auto ordered = [](const Number& low, const Number& high) {
    TPU_CHECK(low.d <= high.d, low.d, " > ", high.d);
  };
  t.x.check_numbers(ordered, first, second);
  t.x.check_numbers(ordered, known, second);
  EXPECT_EQ(t.host.checks.size(), 2u);
  const std::array good{Number::of(int64_t{1}), Number::of(2.5)};
  const std::array bad{Number::of(int64_t{1}), Number::of(0.5)};
  for (const NumberCheck& check : t.host.checks) check(good);
  EXPECT_THROW_MSG(t.host.checks[0](bad), "1 > 0.5");
  EXPECT_THROW_MSG(t.host.checks[1](bad), "2 > 0.5");
  // All known: there is nothing to wait for.
  EXPECT_THROW_MSG(
      t.x.check_numbers([](const Number& n) { TPU_CHECK(n.d < 2, n.d, " >= 2"); }, known),
      "2 >= 2");
  EXPECT_EQ(t.host.checks.size(), 2u);
}

TEST(numbers_fit_as_c10_says) {
  const auto fits = [](const Number& n, DType t) {
    try {
      check_fits(n, t);
      return true;
    } catch (const Error&) {
      return false;
    }
  };
  const auto whole = [](int64_t v) { return Number::of(v); };
  EXPECT_TRUE(fits(whole(-255), kU8) && !fits(whole(-256), kU8) && !fits(whole(256), kU8));
  EXPECT_TRUE(fits(whole(-128), kI8) && !fits(whole(-129), kI8) && !fits(whole(128), kI8));
  EXPECT_TRUE(fits(whole(INT64_MIN), kU64) && fits(whole(INT64_MAX), kI64));
  EXPECT_TRUE(fits(whole(65504), kF16) && !fits(whole(70000), kF16));
  EXPECT_TRUE(!fits(Number::of(-1.0), kU8) && fits(Number::of(255.0), kU8) &&
              !fits(Number::of(255.9), kU8));
  EXPECT_TRUE(!fits(Number::of(1e39), kF32) && fits(Number::of(1e39), kF64));
  const double inf = std::numeric_limits<double>::infinity(), nan = std::nan("");
  EXPECT_TRUE(fits(Number::of(inf), kF32) && fits(Number::of(inf), kF8E5M2) &&
              !fits(Number::of(inf), kF8E4M3FN) && !fits(Number::of(-inf), kI32));
  EXPECT_TRUE(fits(Number::of(nan), kBF16) && !fits(Number::of(nan), kI64));
  const Number imaginary{NumberKind::kComplex, 0, 1, 2}, real{NumberKind::kComplex, 0, 3, 0};
  EXPECT_TRUE(fits(imaginary, kC64) && !fits(imaginary, kF32) && fits(real, kF32) &&
              fits(imaginary, kBool));
  EXPECT_THROW_MSG(check_fits(whole(300), kI8),
                   "value cannot be converted to type signed char without overflow");
}

TEST(dot_gives_the_operands_type) {
  for (const DType type : {kBool, kU8, kI8, kI16, kI32, kI64, kF16, kBF16, kF32, kF64, kC64}) {
    Fixture t;
    EXPECT_TRUE(t.x.matmul(t.p(type, {5, 2, 3}), t.p(type, {5, 3, 4})).type() ==
                (Type{type, {5, 2, 4}}));
  }
  Fixture t;
  EXPECT_THROW_MSG(t.x.matmul(t.p(kF32, {2, 3}), t.p(kF64, {3, 4})), "same dtype");
}

TEST(reductions) {
  Fixture t;
  const Value m = t.p(kBF16, {2, 3, 4});
  EXPECT_TRUE(t.x.sum(m, {0, 2}).type() == (Type{kBF16, {3}}));
  EXPECT_TRUE(t.x.max(m, {1}, true).type() == (Type{kBF16, {2, 1, 4}}));
  EXPECT_TRUE(t.x.any(t.x.is_nan(m), {0, 1, 2}).type() == (Type{kBool, {}}));
  EXPECT_EQ(t.x.unsqueeze(m, -1).dims(), (Dims{2, 3, 4, 1}));
  EXPECT_EQ(t.x.squeeze(t.x.unsqueeze(m, 1), 1).dims(), m.dims());
  EXPECT_EQ(t.x.squeeze(m, 1).dims(), m.dims());
}

TEST(random_numbers_say_how_many_bits_they_use) {
  Fixture t;
  for (const DType type : {kF16, kBF16, kF32, kF64}) {
    EXPECT_TRUE(t.x.uniform(type, {3, 5}).type() == (Type{type, {3, 5}}));
    EXPECT_TRUE(t.x.normal(type, {3, 5}).type() == (Type{type, {3, 5}}));
  }
  EXPECT_TRUE(t.x.normal(kC64, {3}).type() == (Type{kC64, {3}}));
  EXPECT_TRUE(t.host.draws == (std::vector<int64_t>{15, 16, 15, 16, 15, 16, 30, 32, 6}));
  EXPECT_TRUE(t.x.uniform(kF32, {0, 3}).dims() == (Dims{0, 3}));
  EXPECT_THROW_MSG(t.x.uniform(kI32, {3}), "not supported");
}

TEST(an_op_says_how_a_bad_index_is_told) {
  Fixture t;
  t.x.checked_index(t.p(kI32, {2}), 5, false, {ErrorKind::kInvalid, "Target {} is out of bounds"});
  EXPECT_TRUE(t.host.kinds.back() == ErrorKind::kInvalid);
  EXPECT_EQ(t.host.texts.back(), "Target {} is out of bounds");
}

TEST(indices_are_checked_in_one_reduction) {
  Fixture t;
  const Value r = t.x.checked_index(t.p(kI64, {3}), 5, 1);
  EXPECT_TRUE(r.type() == (Type{kI32, {3}}));
  EXPECT_EQ(t.host.texts.at(0), "index {} is out of bounds for dimension 1 with size 5");
  EXPECT_EQ(t.x.checked_index(t.p(kI64, {3}), int64_t{1} << 40, 0).dtype(), kI64);
  EXPECT_EQ(t.x.checked_index(t.p(kU8, {}), 5, 0, false).dtype(), kI32);
  EXPECT_EQ(t.x.checked_index(t.p(kI32, {0}), 0, 0).dims(), Dims{0});
  EXPECT_EQ(t.host.texts.size(), 3u);
  EXPECT_THROW_MSG(t.x.checked_index(t.p(kF32, {3}), 5, 0), "must be integers");
  t.x.assert_none(t.p(kBool, {2, 2}), "all elements must be positive");
  EXPECT_EQ(t.host.texts.size(), 4u);
  t.b.finish({r});
  const std::string text = hlo::print(t.f);
  size_t count = 0;
  for (size_t at = text.find("stablehlo.reduce\""); at != std::string::npos;
       at = text.find("stablehlo.reduce\"", at + 1)) {
    ++count;
  }
  EXPECT_EQ(count, 3u);  // none for the empty index and the rank-0 one
}

}  // namespace
}  // namespace tpu::ops
