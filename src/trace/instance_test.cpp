#include "trace/instance.h"

#include "base/test.h"

namespace tpu::trace {
namespace {

using ops::Context;
using ops::Opt;
using ops::Scalar;
using ops::Value;

int runs = 0;

int32_t op(const char* name) {
  static const bool filled = [] {
    ops::Registry& r = ops::Registry::instance();
    r.op("test::add", [](Context& x, Value a, Value b, Scalar alpha) {
      ++runs;
      const DType t = x.promote(a, b);
      const auto [u, v] = x.broadcast_all(t, a, b);
      return x.b.add(u, x.b.mul(v, x.scalar_like(alpha, v)));
    });
    r.op("test::random", [](Context& x, Value a) {
       const Value bits = x.b.convert(x.random_bits(DType::kU32, a.dims()), a.dtype());
       return x.b.add(a, bits);
     }).random();
    r.op("test::pick", [](Context& x, Value a, Value i) {
      x.checked_index(i, a.dim(0), 0);
      return a;
    });
    r.op("test::dot", [](Context& x, Value a, Value b) {
      return x.dot(a, b, {.lhs_contract = {1}, .rhs_contract = {0}});
    });
    r.op("test::two", [](Context& x, Value a) { return std::tuple{a, Value{}, x.b.neg(a)}; });
    return true;
  }();
  (void)filled;
  return ops::Registry::instance().find(name)->id;
}

const Type* f32(Dims d) { return intern({DType::kF32, std::move(d)}); }

CallKey add_key(const Type* a, const Type* b, const Dims& layout = {}) {
  CallKey k(op("test::add"), {});
  k.tensor(a);
  k.tensor(b);
  k.scalar(ops::NumberKind::kFloat);
  k.layout(layout.data(), layout.size());
  return k;
}

TEST(equal_keys_run_the_lowering_once) {
  InstanceTable t;
  const int before = runs;
  const Instance& a = t.get(add_key(f32({2, 3}), f32({3})).view());
  const Instance& b = t.get(add_key(f32({2, 3}), f32({3})).view());
  EXPECT_TRUE(&a == &b);
  EXPECT_EQ(runs, before + 1);
  EXPECT_EQ(t.size(), 1u);
  const Instance& c = t.get(add_key(f32({2, 3}), f32({2, 1})).view());
  EXPECT_TRUE(&a != &c);
  EXPECT_TRUE(a.id != c.id);
  EXPECT_EQ(t.misses(), 2);
}

TEST(types_follow_from_the_lowering) {
  InstanceTable t;
  const Instance& i = t.get(add_key(f32({2, 1}), intern({DType::kF64, {3}})).view());
  EXPECT_EQ(i.outputs.size(), 1u);
  EXPECT_TRUE(i.outputs[0].logical == intern({DType::kF64, {2, 3}}));
  EXPECT_TRUE(i.outputs[0].base == i.outputs[0].logical);
  EXPECT_TRUE(i.outputs[0].row_major);
  EXPECT_EQ(i.scalars.size(), 1u);
  EXPECT_EQ(i.scalars[0].operand, 0);
  EXPECT_TRUE(i.scalars[0].dtype == DType::kF64);
  EXPECT_EQ(i.signature(), "test::add(float32[2, 1], float64[3])");
}

TEST(layouts_change_the_stored_order_only) {
  InstanceTable t;
  const Instance& i = t.get(add_key(f32({2, 3, 4}), f32({2, 3, 4}), {2, 0, 1}).view());
  const OutputSpec& o = i.outputs[0];
  EXPECT_TRUE(o.logical == f32({2, 3, 4}));
  EXPECT_TRUE(o.base == f32({4, 2, 3}));
  EXPECT_TRUE(!o.row_major);
  EXPECT_TRUE(o.strides == (Dims{3, 1, 6}));
}

TEST(sizes_of_zero_give_the_strides_of_tensor_iterator) {
  InstanceTable t;
  const Instance& i = t.get(add_key(f32({2, 0, 4}), f32({2, 0, 4}), {2, 0, 1}).view());
  EXPECT_TRUE(i.outputs[0].strides == (Dims{0, 1, 0}));
}

TEST(a_failing_lowering_leaves_no_entry) {
  InstanceTable t;
  for (int i = 0; i < 2; ++i) {
    EXPECT_THROW_MSG(t.get(add_key(f32({2}), f32({3})).view()), "");
    EXPECT_EQ(t.size(), 0u);
  }
  t.get(add_key(f32({3}), f32({3})).view());
  EXPECT_EQ(t.size(), 1u);
}

TEST(the_work_of_six_passes_is_noted) {
  const auto work = [](hlo::Precision p, DType t) {
    InstanceTable table;
    CallKey k(op("test::dot"), {.precision = p});
    k.tensor(intern({t, {4, 8}}));
    k.tensor(intern({t, {8, 16}}));
    k.layout(nullptr, 0);
    return table.get(k.view()).six_pass_work;
  };
  EXPECT_EQ(work(hlo::Precision::kHighest, DType::kF32), 4.0 * 8 * 16);
  EXPECT_EQ(work(hlo::Precision::kHigh, DType::kF32), 0.0);
  EXPECT_EQ(work(hlo::Precision::kHighest, DType::kI32), 0.0);
}

TEST(draws_assertions_and_missing_results_are_noted) {
  InstanceTable t;
  CallKey k(op("test::random"), {});
  k.tensor(f32({5}));
  k.layout(nullptr, 0);
  EXPECT_EQ(t.get(k.view()).random_draws, 8);  // whole Philox blocks of four

  CallKey p(op("test::pick"), {});
  p.tensor(f32({5}));
  p.tensor(intern({DType::kI64, {2}}));
  p.layout(nullptr, 0);
  EXPECT_EQ(t.get(p.view()).assertions, 1);
  EXPECT_EQ(t.get(p.view()).random_draws, 0);

  CallKey two(op("test::two"), {});
  two.tensor(f32({5}));
  two.layout(nullptr, 0);
  const Instance& i = t.get(two.view());
  EXPECT_EQ(i.outputs.size(), 3u);
  EXPECT_TRUE(i.outputs[1].base == nullptr);
  EXPECT_TRUE(i.outputs[2].base == f32({5}));
}

TEST(host_scalars_enter_in_the_type_of_the_call) {
  InstanceTable t;
  auto use = [&](const Type* a, DType s, bool wrapped) {
    CallKey k(op("test::add"), {});
    k.tensor(a);
    k.tensor_scalar(s, wrapped);
    k.known_scalar(ops::Number::of(1.0));
    k.layout(nullptr, 0);
    const Instance& i = t.get(k.view());
    return std::pair(i.scalars.at(0).dtype, i.outputs[0].base->dtype);
  };
  // A Python float is a double: no double appears in a float32 program.
  EXPECT_TRUE(use(f32({2}), DType::kF64, true) == std::pair(DType::kF32, DType::kF32));
  // A 0-d double tensor of the host is not a number: it promotes like one, but is read as it is.
  EXPECT_TRUE(use(f32({2}), DType::kF64, false).second == DType::kF32);
  EXPECT_TRUE(use(intern({DType::kF64, {2}}), DType::kF64, true) ==
              std::pair(DType::kF64, DType::kF64));
  EXPECT_TRUE(use(intern({DType::kBF16, {2}}), DType::kBF16, false) ==
              std::pair(DType::kF32, DType::kBF16));
  EXPECT_TRUE(use(intern({DType::kI8, {2}}), DType::kI16, false).first == DType::kI64);
}

}  // namespace
}  // namespace tpu::trace
