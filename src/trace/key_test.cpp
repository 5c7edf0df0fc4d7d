#include "trace/key.h"

#include "base/test.h"

namespace tpu::trace {
namespace {

using ops::Context;
using ops::Number;
using ops::NumberKind;
using ops::Opt;
using ops::Scalar;
using ops::Value;
using ops::Values;

const Type* f32(Dims d) { return intern({DType::kF32, std::move(d)}); }

TEST(types_are_interned) {
  EXPECT_TRUE(f32({2, 3}) == f32({2, 3}));
  EXPECT_TRUE(f32({2, 3}) != f32({3, 2}));
  EXPECT_TRUE(f32({2, 3}) != intern({DType::kI32, {2, 3}}));
}

TEST(every_kind_of_argument_comes_back) {
  ops::Registry r;
  r.op("aten::all", [](Context&, Value a, Opt<Value>, Opt<Value>, Values, std::vector<Opt<Value>>,
                       Scalar, Scalar, std::vector<Scalar>, bool, int64_t, double, DType,
                       std::string, Dims, std::vector<double>, std::vector<bool>, Number,
                       std::vector<Number>, Opt<int64_t>) { return a; });
  const Number two = Number::of(2.5), flag = Number::of(true);
  const Number z{NumberKind::kComplex, 0, 1.0, -2.0};
  CallKey k(0, {hlo::Precision::kDefault, DType::kF64});
  k.tensor(f32({2}));
  k.tensor_scalar(DType::kI64, true);
  k.none();
  k.tensor_list(2), k.tensor(f32({3})), k.tensor(f32({}));
  k.tensor_list(2), k.none(), k.tensor(f32({5}));
  k.scalar(NumberKind::kInt);
  k.known_scalar(two);
  k.scalar_list(2), k.scalar(NumberKind::kFloat), k.scalar(NumberKind::kComplex);
  k.attr(true);
  k.attr(int64_t{-7});
  k.attr(0.125);
  k.attr(DType::kBF16);
  k.attr(std::string_view("mean\0x", 6));
  k.attr(Dims{4, -1, int64_t{1} << 40});
  k.attr(std::vector<double>{1.5, -0.0});
  k.attr(std::vector<bool>{true, false, true});
  k.attr(z);
  k.attr(std::vector<Number>{flag, two});
  k.none();
  const int64_t order[] = {0, 2, 1};
  k.layout(order, 3);

  const Call c = decode(k.view(), r);
  EXPECT_EQ(c.op_id, 0);
  EXPECT_TRUE(c.modes == (Modes{hlo::Precision::kDefault, DType::kF64}));
  EXPECT_EQ(c.args.size(), 19u);
  EXPECT_TRUE(c.args[0].tag == Tag::kTensor && c.args[0].type == f32({2}) &&
              c.args[0].operand == 0);
  EXPECT_TRUE(c.args[1].tag == Tag::kTensorScalar && c.args[1].wrapped &&
              c.args[1].dtype == DType::kI64);
  EXPECT_EQ(c.args[1].operand, 0);
  EXPECT_TRUE(c.args[2].tag == Tag::kNone);
  EXPECT_EQ(c.args[3].list.size(), 2u);
  EXPECT_TRUE(c.args[4].list[0].tag == Tag::kNone && c.args[4].list[1].operand == 3);
  EXPECT_TRUE(c.args[5].tag == Tag::kScalar && c.args[5].kind == NumberKind::kInt &&
              c.args[5].operand == 1);
  EXPECT_TRUE(c.args[6].tag == Tag::kKnownScalar && c.args[6].known == two);
  EXPECT_EQ(c.args[7].list[1].operand, 3);
  EXPECT_TRUE(std::get<bool>(c.args[8].attr));
  EXPECT_EQ(std::get<int64_t>(c.args[9].attr), -7);
  EXPECT_EQ(std::get<double>(c.args[10].attr), 0.125);
  EXPECT_TRUE(std::get<DType>(c.args[11].attr) == DType::kBF16);
  EXPECT_EQ(std::get<std::string>(c.args[12].attr), std::string("mean\0x", 6));
  EXPECT_TRUE(std::get<Dims>(c.args[13].attr) == (Dims{4, -1, int64_t{1} << 40}));
  EXPECT_TRUE(std::signbit(std::get<std::vector<double>>(c.args[14].attr)[1]));
  EXPECT_TRUE(std::get<std::vector<bool>>(c.args[15].attr) ==
              (std::vector<bool>{true, false, true}));
  EXPECT_TRUE(std::get<Number>(c.args[16].attr) == z);
  EXPECT_TRUE(std::get<std::vector<Number>>(c.args[17].attr) == (std::vector<Number>{flag, two}));
  EXPECT_TRUE(c.args[18].tag == Tag::kNone);
  EXPECT_TRUE(c.layouts == (std::vector<Dims>{{0, 2, 1}}));
  EXPECT_EQ(c.tensors.size(), 4u);
  EXPECT_EQ(c.scalar_count, 4);
}

TEST(long_keys_leave_the_inline_space) {
  ops::Registry r;
  r.op("aten::cat", [](Context&, Values v) { return v[0]; });
  CallKey k(0, {});
  k.tensor_list(300);
  for (int i = 0; i < 300; ++i) k.tensor(f32({i + 1}));
  k.layout(nullptr, 0);
  EXPECT_TRUE(k.view().size() > 2000);
  const Call c = decode(k.view(), r);
  EXPECT_EQ(c.tensors.size(), 300u);
  for (int i = 0; i < 300; ++i) EXPECT_TRUE(c.tensors[static_cast<size_t>(i)] == f32({i + 1}));
}

TEST(out_forms_carry_the_destination) {
  ops::Registry r;
  r.out_op("aten::start_out", [](Context& x, Type out, Scalar) { return x.zeros(std::move(out)); });
  CallKey k(0, {});
  k.scalar(NumberKind::kInt);
  k.out_type(f32({9}));
  k.layout(nullptr, 0);
  EXPECT_TRUE(decode(k.view(), r).out_type == f32({9}));
}

TEST(different_calls_have_different_bytes) {
  auto key = [](auto fill) {
    CallKey k(4, {});
    fill(k);
    k.layout(nullptr, 0);
    return std::string(k.view());
  };
  const std::string keys[] = {
      key([](CallKey& k) { k.attr(int64_t{1}); }),
      key([](CallKey& k) { k.attr(true); }),
      key([](CallKey& k) { k.attr(1.0); }),
      key([](CallKey& k) { k.attr(Dims{1}); }),
      key([](CallKey& k) { k.attr(Dims{1, 1}); }),
      key([](CallKey& k) { k.scalar(NumberKind::kInt); }),
      key([](CallKey& k) { k.known_scalar(Number::of(int64_t{1})); }),
      key([](CallKey& k) { k.known_scalar(Number::of(1.0)); }),
      key([](CallKey& k) { k.attr(0.0); }),
      key([](CallKey& k) { k.attr(-0.0); }),
      key([](CallKey& k) { k.none(); }),
      key([](CallKey& k) { k.tensor(f32({2, 3})); }),
      key([](CallKey& k) { k.tensor(f32({6})); }),
      key([](CallKey& k) { k.tensor_scalar(DType::kF32, true); }),
      key([](CallKey& k) { k.tensor_scalar(DType::kF32, false); }),
      key([](CallKey& k) { k.tensor_list(1), k.tensor(f32({2, 3})); }),
      std::string(CallKey(4, {hlo::Precision::kDefault, DType::kF32}).view()),
      std::string(CallKey(4, {hlo::Precision::kHighest, DType::kF64}).view()),
  };
  for (size_t i = 0; i < std::size(keys); ++i) {
    for (size_t j = 0; j < i; ++j) EXPECT_TRUE(keys[i] != keys[j]);
  }
}

TEST(cut_off_keys_are_refused) {
  ops::Registry r;
  r.op("aten::sum", [](Context&, Value v, Dims) { return v; });
  CallKey k(0, {});
  k.tensor(f32({2}));
  k.attr(Dims{0, 1});
  k.layout(nullptr, 0);
  const std::string all(k.view());
  for (size_t n = 0; n < all.size(); ++n) {
    EXPECT_THROW_MSG(decode(std::string_view(all).substr(0, n), r), "too early");
  }
}

}  // namespace
}  // namespace tpu::trace
