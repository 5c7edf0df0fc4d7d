#include "base/test.h"
#include "hlo/print.h"
#include "trace/test_ops.h"
#include "trace/trace.h"

namespace tpu::trace {
namespace {

using ops::Context;
using ops::Number;
using ops::Scalar;
using ops::Value;
using Traced = trace::Value;
using Body = std::function<std::vector<ValuePtr>(Trace&, std::vector<ValuePtr>)>;

const Type* i64(Dims d) { return intern({DType::kI64, std::move(d)}); }
const Type* flag() { return intern({DType::kBool, {}}); }

void fill_registry() {
  register_test_ops();
  [[maybe_unused]] static const bool filled = [] {
    ops::Registry& r = ops::Registry::instance();
    register_control_flow(r);
    r.op("test::below", [](Context& x, Value a, Scalar s) {
      return x.b.compare(hlo::Cmp::kLt, a, x.scalar_like(s, a));
    });
    return true;
  }();
}

std::vector<ValuePtr> record(Trace& t, const CallKey& k, const std::vector<ValuePtr>& in,
                             const std::vector<Number>& numbers = {}, Location where = {}) {
  const Instance& inst = t.instances().get(k.view());
  RandomState random;
  if (inst.random_draws > 0) random = t.take_random(test_generator(), inst.random_draws);
  std::vector<ValuePtr> out(inst.outputs.size());
  t.window().record(inst, in, numbers, random, where, out.data());
  return out;
}

ValuePtr call(Trace& t, const char* op, const std::vector<ValuePtr>& in,
              const std::vector<Number>& numbers = {}, Location where = {}) {
  CallKey k(ops::Registry::instance().find(op)->id, {});
  for (const ValuePtr& v : in) k.tensor(v->type);
  for (const Number& n : numbers) k.scalar(n.kind);
  k.layout(nullptr, 0);
  return record(t, k, in, numbers, where)[0];
}

std::vector<ValuePtr> control(Trace& t, const char* op,
                              const std::vector<std::vector<ValuePtr>>& lists,
                              const std::vector<int64_t>& numbers) {
  CallKey k(ops::Registry::instance().find(op)->id, {});
  std::vector<ValuePtr> in;
  for (const auto& list : lists) {
    k.tensor_list(list.size());
    for (const ValuePtr& v : list) k.tensor(v->type), in.push_back(v);
  }
  for (int64_t n : numbers) k.attr(n);
  k.layout(nullptr, 0);
  return record(t, k, in);
}

struct Fixture {
  Fixture() { fill_registry(); }
  Trace trace{0, {.cpu_plugin = false}};

  Trace::Inner body(const std::vector<const Type*>& types, const Body& run) {
    Trace inner(0, trace.instances());
    std::vector<ValuePtr> in;
    for (const Type* t : types) in.push_back(inner.placeholder(t));
    const Trace::Inner made = inner.subgraph(run(inner, in), test_generator());
    inner.close();
    return made;
  }
  std::string text(const std::vector<ValuePtr>& outputs, bool assertions = false) {
    program = trace.finish(outputs, {}, assertions);
    return hlo::print(*program.lowered.function);
  }
  Trace::Program program;
};

size_t count(const std::string& s, std::string_view part) {
  size_t n = 0;
  for (size_t at = s.find(part); at != std::string::npos; at = s.find(part, at + 1)) ++n;
  return n;
}

Body scaled(double by) {
  return [by](Trace& t, std::vector<ValuePtr> in) {
    return std::vector{call(t, "test::scale", {in[0]}, {Number::of(by)})};
  };
}

TEST(equal_subgraphs_have_one_number) {
  Fixture f;
  const int64_t two = f.body({f32({4})}, scaled(2)).number;
  EXPECT_EQ(f.body({f32({4})}, scaled(2)).number, two);
  EXPECT_TRUE(f.body({f32({4})}, scaled(3)).number != two);
  EXPECT_TRUE(f.body({f32({5})}, scaled(2)).number != two);
  // A second argument that nothing reads.
  EXPECT_TRUE(f.body({f32({4}), f32({4})}, scaled(2)).number != two);
}

TEST(branches_are_regions) {
  Fixture f;
  const ValuePtr p = f.trace.placeholder(flag()), a = f.trace.placeholder(f32({4}));
  const auto yes = f.body({f32({4})}, scaled(2)), no = f.body({f32({4})}, scaled(3));
  const auto y = control(f.trace, "tpu::cond", {{p}, {a}, {a}}, {yes.number, no.number});
  const std::string s = f.text(y);
  EXPECT_EQ(count(s, "stablehlo.if"), 1u);
  EXPECT_EQ(count(s, "stablehlo.multiply"), 2u);
  EXPECT_TRUE(*y[0]->type == *f32({4}));
}

TEST(branches_of_different_types_are_refused) {
  Fixture f;
  const ValuePtr p = f.trace.placeholder(flag()), a = f.trace.placeholder(f32({4}));
  const auto yes = f.body({f32({4})}, scaled(2));
  const auto no = f.body({f32({4})}, [](Trace& t, std::vector<ValuePtr> in) {
    return std::vector{call(t, "test::below", {in[0]}, {Number::of(1.0)})};
  });
  EXPECT_THROW_MSG(control(f.trace, "tpu::cond", {{p}, {a}, {a}}, {yes.number, no.number}),
                   "else branch");
}

// while x < 10: x = x + by
struct Loop {
  std::vector<ValuePtr> results;
  explicit Loop(Fixture& f, const Body& cond, const Body& step,
                const std::vector<const Type*>& extra = {}) {
    std::vector<ValuePtr> carried{f.trace.placeholder(f32({}))}, more;
    std::vector<const Type*> types{f32({})};
    for (const Type* t : extra) types.push_back(t), more.push_back(f.trace.placeholder(t));
    const auto c = f.body(types, cond), b = f.body(types, step);
    results = control(f.trace, "tpu::while_loop", {carried, more, more}, {c.number, b.number});
  }
};

std::vector<ValuePtr> below_ten(Trace& t, const std::vector<ValuePtr>& in) {
  return {call(t, "test::below", {in[0]}, {Number::of(10.0)})};
}

TEST(a_loop_computes_its_condition_in_a_region) {
  Fixture f;
  Loop loop(f, below_ten,
            [](Trace& t, std::vector<ValuePtr> in) {
              return std::vector{call(t, "test::add", {in[0], in[1]})};
            },
            {f32({})});
  const std::string s = f.text(loop.results, true);
  EXPECT_EQ(count(s, "stablehlo.while"), 1u);
  EXPECT_EQ(count(s, "stablehlo.compare"), 1u);
  // Only what is carried goes around.
  EXPECT_EQ(f.program.lowered.assertions.size(), 0u);
  EXPECT_TRUE(s.find("tensor<i64>") == std::string::npos);
}

TEST(a_violation_in_a_body_is_carried_out) {
  Fixture f;
  Location where;
  where.path = intern_path("model.py:7 in step");
  Loop loop(f, below_ten,
            [&](Trace& t, std::vector<ValuePtr> in) {
              call(t, "test::pick", {in[1], in[2]}, {}, where);
              return std::vector{call(t, "test::add", {in[0], in[0]})};
            },
            {f32({5}), i64({})});
  const std::string s = f.text(loop.results, true);
  EXPECT_EQ(f.program.lowered.assertions.size(), 1u);
  const Assertion& a = f.program.lowered.assertions[0];
  EXPECT_TRUE(a.kind == ErrorKind::kIndex);
  EXPECT_TRUE(a.text.find("\n  at model.py:7 in step") != std::string::npos);
  EXPECT_TRUE(s.find("stablehlo.or") != std::string::npos);
  EXPECT_EQ(f.program.lowered.function->entry().returns.size(), 2u);
}

TEST(a_condition_that_asserts_moves_to_the_end_of_the_body) {
  Fixture f;
  Loop loop(
      f,
      [](Trace& t, std::vector<ValuePtr> in) {
        call(t, "test::pick", {in[1], in[2]});
        return below_ten(t, in);
      },
      [](Trace& t, std::vector<ValuePtr> in) {
        call(t, "test::pick", {in[1], in[2]});
        return std::vector{call(t, "test::add", {in[0], in[0]})};
      },
      {f32({5}), i64({})});
  const std::string s = f.text(loop.results, true);
  EXPECT_EQ(f.program.lowered.assertions.size(), 2u);
  // In front of the loop and in its body: 10 as the bound.
  EXPECT_EQ(count(s, "stablehlo.while"), 1u);
}

TEST(each_run_draws_behind_the_one_before) {
  Fixture f;
  const ValuePtr a = f.trace.placeholder(f32({6}));
  const auto b = f.body({f32({6})}, [](Trace& t, std::vector<ValuePtr> in) {
    const ValuePtr once = call(t, "test::noise", {in[0]});
    return std::vector{call(t, "test::noise", {once})};
  });
  EXPECT_EQ(f.trace.instances().draws(b.number), 16);
  const auto y = control(f.trace, "tpu::scan", {{a}, {}, {}}, {b.number, 5});
  const ValuePtr after = call(f.trace, "test::noise", {a});
  const std::string s = f.text({y[0], after});
  EXPECT_TRUE(s.find("[0, 16]") != std::string::npos);  // from run to run
  EXPECT_TRUE(s.find("[0, 8]") != std::string::npos);   // the second of a run
  EXPECT_TRUE(s.find("[0, 80]") != std::string::npos);  // behind all five
}

TEST(a_scan_takes_slices_and_stacks_results) {
  Fixture f;
  const ValuePtr c = f.trace.placeholder(f32({3})), xs = f.trace.placeholder(f32({7, 3}));
  const auto b = f.body({f32({3}), f32({3})}, [](Trace& t, std::vector<ValuePtr> in) {
    const ValuePtr sum = call(t, "test::add", {in[0], in[1]});
    return std::vector{sum, call(t, "test::scale", {sum}, {Number::of(2.0)})};
  });
  const auto y = control(f.trace, "tpu::scan", {{c}, {xs}, {}}, {b.number, 7});
  EXPECT_TRUE(*y[0]->type == *f32({3}) && *y[1]->type == *f32({7, 3}));
  const std::string s = f.text(y);
  EXPECT_EQ(count(s, "stablehlo.dynamic_slice"), 1u);
  EXPECT_EQ(count(s, "stablehlo.dynamic_update_slice"), 1u);
  const ValuePtr short_xs = f.trace.placeholder(f32({6, 3}));
  EXPECT_THROW_MSG(control(f.trace, "tpu::scan", {{c}, {short_xs}, {}}, {b.number, 7}),
                   "does not have 7 slices");
}

TEST(what_the_code_brings_along_is_an_argument) {
  Fixture f;
  const ValuePtr constant = make_value(f32({4}), 0);
  constant->state = Traced::State::kReady;
  const Body add = [&](Trace& t, std::vector<ValuePtr> in) {
    return std::vector{call(t, "test::add", {in[0], constant})};
  };
  const auto b = f.body({f32({4})}, add);
  EXPECT_EQ(b.captured.size(), 1u);
  EXPECT_TRUE(b.captured[0] == constant);
  EXPECT_EQ(f.trace.instances().subgraph(b.number).arguments.size(), 2u);
}

TEST(a_loop_in_a_scan) {
  Fixture f;
  const auto cond = f.body({f32({})}, below_ten);
  const auto step = f.body({f32({})}, [](Trace& t, std::vector<ValuePtr> in) {
    return std::vector{call(t, "test::add", {in[0], in[0]})};
  });
  const auto b = f.body({f32({})}, [&](Trace& t, std::vector<ValuePtr> in) {
    return control(t, "tpu::while_loop", {{in[0]}, {}, {}}, {cond.number, step.number});
  });
  const ValuePtr xs = f.trace.placeholder(f32({3}));
  const auto y = control(f.trace, "tpu::scan", {{}, {xs}, {}}, {b.number, 3});
  EXPECT_EQ(count(f.text(y), "stablehlo.while"), 2u);
  EXPECT_TRUE(*y[0]->type == *f32({3}));
}

TEST(draws_from_another_generator_are_refused) {
  Fixture f;
  Trace inner(0, f.trace.instances());
  const ValuePtr a = inner.placeholder(f32({4}));
  const ValuePtr y = call(inner, "test::noise", {a});
  EXPECT_THROW_MSG(inner.subgraph({y}, std::make_shared<RandomState>()), "default");
  inner.close();
}

}  // namespace
}  // namespace tpu::trace
