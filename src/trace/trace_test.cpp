#include "trace/trace.h"

#include "base/test.h"
#include "hlo/print.h"
#include "trace/test_ops.h"

namespace tpu::trace {
namespace {

using ops::Number;
using Traced = trace::Value;

ValuePtr call(Trace& t, const char* op, std::vector<ValuePtr> in, std::vector<Number> numbers = {},
              Location where = {}) {
  CallKey k(ops::Registry::instance().find(op)->id, {});
  for (const ValuePtr& v : in) k.tensor(v->type);
  for (const Number& n : numbers) k.scalar(n.kind);
  k.layout(nullptr, 0);
  const Instance& inst = t.instances().get(k.view());
  RandomState random;
  if (inst.random_draws > 0) random = t.take_random(test_generator(), inst.random_draws);
  ValuePtr out;
  t.window().record(inst, in, numbers, random, where, &out);
  return out;
}

struct Fixture {
  Fixture() { register_test_ops(); }
  Trace trace{0, {.cpu_plugin = false}};
};

TEST(placeholders_are_arguments_in_order_used_or_not) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({2})), b = f.trace.placeholder(f32({3})),
                 c = f.trace.placeholder(f32({4}));
  const ValuePtr y = call(f.trace, "test::add", {c, c});
  const Trace::Program p = f.trace.finish({y}, {}, false);
  EXPECT_EQ(p.parameters.size(), 3u);
  const auto& fn = *p.lowered.function;
  EXPECT_TRUE(fn.type(fn.entry().arguments[1]) == *f32({3}));
  EXPECT_TRUE(fn.type(fn.entry().returns[0]) == *f32({4}));
  EXPECT_EQ(p.aliases[0], -1);
}

TEST(an_update_takes_its_arguments_memory) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4})), b = f.trace.placeholder(f32({4}));
  const ValuePtr loss = call(f.trace, "test::add", {a, b});
  const ValuePtr next = call(f.trace, "test::scale", {b}, {Number::of(0.5)});
  const Trace::Program p = f.trace.finish({loss}, {{b, next}}, false);
  EXPECT_EQ(p.output_count, 1u);
  EXPECT_EQ(p.aliases[0], -1);
  EXPECT_EQ(p.aliases[1], 1);
  EXPECT_EQ(p.lowered.function->argument_attributes[1], "tf.aliasing_output = 1 : i32");
}

TEST(an_argument_may_be_an_output) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  const Trace::Program p = f.trace.finish({a, a}, {}, false);
  const auto& entry = p.lowered.function->entry();
  EXPECT_EQ(entry.returns[0], entry.arguments[0]);
  EXPECT_EQ(entry.returns[1], entry.arguments[0]);
}

TEST(numbers_are_constants) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  const ValuePtr y = call(f.trace, "test::scale", {a}, {Number::of(0.5)});
  const Trace::Program p = f.trace.finish({y}, {}, false);
  EXPECT_EQ(p.lowered.function->entry().arguments.size(), 1u);
  const std::string text = hlo::print(*p.lowered.function);
  EXPECT_TRUE(text.find("dense<0x3F000000>") != std::string::npos ||
              text.find("dense<5.000000e-01>") != std::string::npos ||
              text.find("dense<0.5>") != std::string::npos);
}

TEST(embedded_placeholders_are_constants_and_no_arguments) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({2})), b = f.trace.placeholder(f32({2}));
  const ValuePtr y = call(f.trace, "test::add", {a, b});
  const std::string_view bytes("\x00\x00\x80\x3f\x00\x00\x00\xc0", 8);
  const Trace::Program p = f.trace.finish({y}, {}, false, {{a, bytes}});
  EXPECT_EQ(p.parameters.size(), 1u);
  EXPECT_TRUE(p.parameters[0] == b);
  EXPECT_EQ(p.lowered.function->entry().arguments.size(), 1u);
  EXPECT_EQ(p.lowered.function->argument_attributes.size(), 1u);
  const std::string text = hlo::print(*p.lowered.function);
  EXPECT_TRUE(text.find("dense<\"0x0000803F000000C0\"> : tensor<2xf32>") != std::string::npos);
}

TEST(what_is_written_cannot_be_embedded) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({1}));
  const ValuePtr y = call(f.trace, "test::add", {a, a});
  EXPECT_THROW_MSG(f.trace.finish({}, {{a, y}}, false, {{a, "abcd"}}),
                   "cannot be a constant of it");
}

TEST(ready_values_become_arguments_when_met) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  const ValuePtr constant = make_value(f32({4}), 0);
  constant->state = Traced::State::kReady;
  const ValuePtr y = call(f.trace, "test::add", {a, constant});
  const Trace::Program p = f.trace.finish({y}, {}, false);
  EXPECT_EQ(p.parameters.size(), 2u);
  EXPECT_TRUE(p.parameters[1] == constant);
}

TEST(the_generators_state_goes_in_and_comes_out) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({6}));
  const ValuePtr x = call(f.trace, "test::noise", {a});
  const ValuePtr y = call(f.trace, "test::noise", {x});
  const Trace::Program p = f.trace.finish({y}, {}, false);
  EXPECT_TRUE(p.random);
  const auto& fn = *p.lowered.function;
  EXPECT_TRUE(fn.type(fn.entry().arguments.back()) == (Type{DType::kU64, {2}}));
  EXPECT_TRUE(fn.type(fn.entry().returns.back()) == (Type{DType::kU64, {2}}));
  EXPECT_EQ(fn.argument_attributes.back(), "tf.aliasing_output = 1 : i32");
  const std::string text = hlo::print(fn);
  // The second draw starts 8 further on, the state after the program 16.
  EXPECT_TRUE(text.find("[0, 8]") != std::string::npos);
  EXPECT_TRUE(text.find("[0, 16]") != std::string::npos);
}

TEST(assertions_are_kept_on_demand) {
  for (const bool keep : {false, true}) {
    Fixture f;
    const ValuePtr a = f.trace.placeholder(f32({5})),
                   i = f.trace.placeholder(intern({DType::kI64, {2}}));
    const ValuePtr y = call(f.trace, "test::pick", {a, i});
    const Trace::Program p = f.trace.finish({y}, {}, keep);
    EXPECT_EQ(p.lowered.assertions.size(), keep ? 1u : 0u);
    EXPECT_EQ(p.lowered.function->entry().returns.size(), keep ? 2u : 1u);
  }
}

TEST(instructions_are_named_after_module_and_op) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  Location where;
  where.path = intern_path("layers.0.mlp");
  const ValuePtr y = call(f.trace, "test::add", {a, a}, {}, where);
  const std::string text = hlo::print(*f.trace.finish({y}, {}, false).lowered.function);
  EXPECT_TRUE(text.find("loc(\"layers.0.mlp|test::add|\")") != std::string::npos);
  EXPECT_EQ(path_text(where.path), "layers.0.mlp");
  EXPECT_EQ(intern_path("layers.0.mlp"), where.path);
}

TEST(a_graph_is_recorded_again_with_other_arguments) {
  Fixture f;
  const auto ready = [](Dims d) {
    ValuePtr v = make_value(f32(std::move(d)), 0);
    v->state = Traced::State::kReady;
    return v;
  };
  const ValuePtr unused = f.trace.placeholder(f32({7})), a = f.trace.placeholder(f32({4}));
  const ValuePtr constant = ready({4});
  const ValuePtr x = call(f.trace, "test::scale", {a}, {Number::of(3.0)});
  const ValuePtr y = call(f.trace, "test::noise", {call(f.trace, "test::noise", {x})});
  const ValuePtr z = call(f.trace, "test::add", {y, constant});
  const Graph g = f.trace.graph({z, a, constant});
  EXPECT_EQ(g.nodes.size(), 4u);
  EXPECT_EQ(g.parameters.size(), 2u);  // the unused one is none
  EXPECT_EQ(g.sources.size(), 1u);
  EXPECT_EQ(g.sources[0].draws, 8);

  Window w(0);
  const RandomState random[] = {{5, 100}};
  const ValuePtr first = ready({4});
  const auto once = w.record(g, std::vector{unused, first}, random);
  EXPECT_TRUE(once[1] == first && once[2] == constant);
  const auto twice = w.record(g, std::vector{unused, once[0]}, random);
  EXPECT_EQ(w.nodes().size(), 8u);
  EXPECT_EQ(w.parameters().size(), 2u);
  EXPECT_EQ(w.inputs()[5], ~3);  // the second round reads what the first one gave
  EXPECT_EQ(w.inputs().back(), 1);
  EXPECT_EQ(w.packs().f32.size(), 2u);
  const std::vector<int64_t> states = {5, 100, 5, 104, 5, 100, 5, 104};
  EXPECT_TRUE(w.packs().i64 == states);
  EXPECT_TRUE(w.live_outputs() == (std::vector<int32_t>{3, 7}));
  EXPECT_THROW_MSG(w.record(g, std::vector{a, a}, random), "outside of it");
}

TEST(what_is_left_after_the_end_has_failed) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  const ValuePtr y = call(f.trace, "test::add", {a, a});
  f.trace.close();
  EXPECT_TRUE(y->state == Traced::State::kFailed && a->state == Traced::State::kFailed);
  EXPECT_TRUE(y->failure->text.find("traced") != std::string::npos);
}

TEST(another_window_refuses_a_placeholder) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({4}));
  Trace other(0, ops::Target{.cpu_plugin = false});
  EXPECT_THROW_MSG(call(other, "test::add", {a, a}), "outside of it");
}

}  // namespace
}  // namespace tpu::trace
