#include "trace/lower.h"

#include "base/test.h"
#include "hlo/print.h"
#include "trace/test_ops.h"

namespace tpu::trace {
namespace {

using ops::Number;
using Pending = trace::Value;

struct Recorder {
  Recorder() { register_test_ops(); }

  ValuePtr ready(const Type* t) {
    ValuePtr v = make_value(t, 0);
    v->state = Pending::State::kReady;
    return v;
  }
  ValuePtr call(const char* op, std::vector<ValuePtr> in, std::vector<Number> numbers = {}) {
    CallKey k(ops::Registry::instance().find(op)->id, {});
    for (const ValuePtr& v : in) k.tensor(v->type);
    for (const Number& n : numbers) k.scalar(n.kind);
    k.layout(nullptr, 0);
    ValuePtr out;
    window.record(table.get(k.view()), in, numbers, {7, 8}, {}, &out);
    return out;
  }
  std::string text() {
    const auto live = window.live_outputs();
    lowered = lower(window, live, window.donatable(), {});
    return hlo::print(*lowered.function);
  }

  InstanceTable table;
  Window window{0};
  Lowered lowered;
};

size_t count(const std::string& s, std::string_view part) {
  size_t n = 0;
  for (size_t at = s.find(part); at != std::string::npos; at = s.find(part, at + 1)) ++n;
  return n;
}

TEST(live_outputs_are_the_results) {
  Recorder r;
  const ValuePtr a = r.ready(f32({4})), b = r.ready(f32({4}));
  ValuePtr x, z;
  {
    x = r.call("test::add", {a, b});
    const ValuePtr y = r.call("test::neg", {x});
    z = r.call("test::add", {y, b});
  }
  const std::string s = r.text();
  EXPECT_EQ(count(s, "stablehlo.add"), 2u);
  EXPECT_EQ(count(s, "stablehlo.negate"), 1u);
  EXPECT_EQ(r.lowered.function->entry().arguments.size(), 2u);
  EXPECT_EQ(r.lowered.function->entry().returns.size(), 2u);
}

TEST(nodes_nobody_needs_are_left_out) {
  Recorder r;
  const ValuePtr a = r.ready(f32({4}));
  r.call("test::neg", {a});
  const ValuePtr x = r.call("test::add", {a, a});
  EXPECT_EQ(count(r.text(), "stablehlo.negate"), 0u);
}

TEST(donated_parameters_are_marked) {
  Recorder r;
  ValuePtr a = r.ready(f32({4}));
  const ValuePtr b = r.ready(f32({4}));
  const ValuePtr x = r.call("test::add", {b, a});
  a = ValuePtr();
  r.text();
  EXPECT_EQ(r.lowered.function->argument_attributes[0], "");
  EXPECT_EQ(r.lowered.function->argument_attributes[1], "jax.buffer_donor = true");
}

TEST(numbers_come_from_one_pack_a_type) {
  Recorder r;
  const ValuePtr a = r.ready(f32({4})), d = r.ready(intern({DType::kF64, {4}}));
  const ValuePtr x = r.call("test::scale", {a}, {Number::of(2.0)});
  const ValuePtr y = r.call("test::scale", {x}, {Number::of(3.0)});
  const ValuePtr z = r.call("test::scale", {d}, {Number::of(4.0)});
  r.text();
  const auto& f = *r.lowered.function;
  EXPECT_EQ(f.entry().arguments.size(), 4u);
  EXPECT_TRUE(f.type(f.entry().arguments[2]) == (Type{DType::kF32, {2}}));
  EXPECT_TRUE(f.type(f.entry().arguments[3]) == (Type{DType::kF64, {1}}));
  EXPECT_TRUE(r.window.packs().f32 == (std::vector<float>{2, 3}));
}

TEST(random_state_is_an_operand) {
  Recorder r;
  const ValuePtr a = r.ready(f32({4}));
  const ValuePtr x = r.call("test::noise", {a});
  const ValuePtr y = r.call("test::noise", {x});
  r.text();
  const auto& f = *r.lowered.function;
  EXPECT_TRUE(f.type(f.entry().arguments.back()) == (Type{DType::kI64, {4}}));
  EXPECT_TRUE(r.window.packs().i64 == (std::vector<int64_t>{7, 8, 7, 8}));
}

TEST(assertions_come_last_and_keep_their_node) {
  Recorder r;
  const ValuePtr a = r.ready(f32({5})), i = r.ready(intern({DType::kI64, {2}}));
  r.call("test::pick", {a, i});
  const ValuePtr x = r.call("test::add", {a, a});
  r.text();
  EXPECT_EQ(r.lowered.assertions.size(), 1u);
  const auto& f = *r.lowered.function;
  EXPECT_EQ(f.entry().returns.size(), 2u);
  EXPECT_TRUE(f.type(f.entry().returns[1]) == (Type{DType::kI64, {2}}));
  EXPECT_TRUE(r.lowered.assertions[0].text.find("{}") != std::string::npos);
}

TEST(equal_windows_give_equal_text) {
  auto build = [](double s) {
    Recorder r;
    const ValuePtr a = r.ready(f32({4}));
    const ValuePtr x = r.call("test::scale", {a}, {Number::of(s)});
    return r.text();
  };
  EXPECT_EQ(build(2.0), build(3.0));
}

}  // namespace
}  // namespace tpu::trace
