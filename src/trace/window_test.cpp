#include "trace/window.h"

#include "base/test.h"

namespace tpu::trace {
namespace {

using ops::Context;
using ops::Number;
using ops::Scalar;
using ops::Value;  // of a lowering
using Pending = trace::Value;

const Type* f32(Dims d) { return intern({DType::kF32, std::move(d)}); }

const Instance& add_instance() {
  static InstanceTable* t = [] {
    ops::Registry& r = ops::Registry::instance();
    r.op("test::add", [](Context& x, Value a, Value b) { return x.b.add(a, b); });
    r.op("test::scale",
         [](Context& x, Value a, Scalar s) { return x.b.mul(a, x.scalar_like(s, a)); });
    return new InstanceTable;
  }();
  CallKey k(ops::Registry::instance().find("test::add")->id, {});
  k.tensor(f32({4})), k.tensor(f32({4}));
  k.layout(nullptr, 0);
  return t->get(k.view());
}

const Instance& scale_instance() {
  add_instance();
  static auto* t = new InstanceTable;
  CallKey k(ops::Registry::instance().find("test::scale")->id, {});
  k.tensor(f32({4}));
  k.scalar(ops::NumberKind::kFloat);
  k.layout(nullptr, 0);
  return t->get(k.view());
}

ValuePtr ready() {
  ValuePtr v = make_value(f32({4}), 0);
  v->state = Pending::State::kReady;
  return v;
}

ValuePtr add(Window& w, const ValuePtr& a, const ValuePtr& b) {
  ValuePtr out;
  const ValuePtr in[] = {a, b};
  w.record(add_instance(), in, {}, {}, {}, &out);
  return out;
}

std::string key_of(const Window& w) { return w.key(w.live_outputs(), w.donatable()); }

TEST(dead_temporaries_are_no_outputs) {
  Window w(0);
  const ValuePtr a = ready(), b = ready();
  ValuePtr last;
  {
    const ValuePtr x = add(w, a, b), y = add(w, x, b);
    last = add(w, y, x);
  }
  EXPECT_EQ(w.nodes().size(), 3u);
  EXPECT_TRUE(w.live_outputs() == (std::vector<int32_t>{2}));
  EXPECT_TRUE(w.inputs() == (std::vector<int32_t>{0, 1, ~0, 1, ~1, ~0}));
  EXPECT_EQ(w.output_bytes(), 48);
  last = ValuePtr();
  EXPECT_TRUE(w.live_outputs().empty());
}

TEST(equal_values_are_one_parameter) {
  Window w(0);
  const ValuePtr a = ready();
  const ValuePtr x = add(w, a, a), y = add(w, x, a);
  EXPECT_EQ(w.parameters().size(), 1u);
}

TEST(a_parameter_nobody_else_holds_is_donated) {
  Window w(0);
  ValuePtr a = ready();
  const ValuePtr b = ready();
  const ValuePtr x = add(w, a, b);
  EXPECT_TRUE(w.donatable() == (std::vector<bool>{false, false}));
  a = ValuePtr();  // as an in-place op does: the slot takes the result
  EXPECT_TRUE(w.donatable() == (std::vector<bool>{true, false}));
}

TEST(keys_are_equal_for_equal_windows_only) {
  auto build = [](auto body) {
    Window w(0);
    ValuePtr a = ready(), b = ready();
    std::vector<ValuePtr> hold;
    body(w, a, b, hold);
    return key_of(w);
  };
  using V = std::vector<ValuePtr>;
  auto plain = [](Window& w, ValuePtr& a, ValuePtr& b, V& hold) { hold.push_back(add(w, a, b)); };
  const std::string keys[] = {
      build(plain),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, b, a)), hold.push_back(add(w, a, b));
      }),
      build([](Window& w, ValuePtr& a, ValuePtr&, V& hold) { hold.push_back(add(w, a, a)); }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V&) { add(w, a, b); }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, a, b)), a = ValuePtr();
      }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, a, b)), b = ValuePtr();
      }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, add(w, a, b), b));
      }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, add(w, a, b), a));
      }),
      build([](Window& w, ValuePtr& a, ValuePtr& b, V& hold) {
        hold.push_back(add(w, a, b)), hold.push_back(add(w, hold[0], b));
      }),
  };
  EXPECT_TRUE(keys[0] == build(plain));
  for (size_t i = 0; i < std::size(keys); ++i) {
    for (size_t j = 0; j < i; ++j) {
      if (keys[i] == keys[j])
        test::report(__FILE__, __LINE__, cat("windows ", i, " and ", j, " share a key"));
    }
  }
}

TEST(scalars_travel_in_packs_outside_the_key) {
  Window w(0);
  const ValuePtr a = ready();
  std::string first;
  for (double s : {2.0, 3.0}) {
    ValuePtr x;
    const Number n = Number::of(s);
    w.record(scale_instance(), std::span(&a, 1), std::span(&n, 1), {}, {}, &x);
    EXPECT_TRUE(w.packs().f32 == std::vector<float>{static_cast<float>(s)});
    EXPECT_EQ(w.nodes()[0].first_scalar[0], 0u);
    if (first.empty()) {
      first = key_of(w);
    } else {
      EXPECT_TRUE(first == key_of(w));
    }
    w.clear();
    EXPECT_TRUE(w.packs().f32.empty());
  }
}

TEST(a_cleared_window_forgets) {
  Window w(0);
  const ValuePtr a = ready(), b = ready();
  const ValuePtr x = add(w, a, b);
  w.clear();
  EXPECT_TRUE(w.empty());
  EXPECT_TRUE(w.parameters().empty());
  // What was pending and never ran cannot be an input of the next window.
  EXPECT_THROW_MSG(add(w, x, b), "another window");
  x->state = Pending::State::kReady;
  w.clear();
  const ValuePtr y = add(w, x, b);
  EXPECT_TRUE(w.inputs() == (std::vector<int32_t>{0, 1}));
}

TEST(a_refused_call_leaves_the_window_as_it_was) {
  Window w(0), other(0);
  const ValuePtr a = ready();
  const ValuePtr foreign = add(other, a, a);
  const ValuePtr x = add(w, a, a);
  const std::string before = key_of(w);
  EXPECT_THROW_MSG(add(w, a, foreign), "another window");
  EXPECT_TRUE(key_of(w) == before);
  EXPECT_EQ(w.inputs().size(), 2u);
}

TEST(an_overwritten_value_comes_back_after_a_failure) {
  Window w(0);
  Slot *one = new_slot(16, 0), *two = new_slot(16, 0), *gone = new_slot(16, 0);
  const ValuePtr kept = ready();
  Pending* first = nullptr;
  {
    const ValuePtr a = ready(), b = ready();
    one->value = a, two->value = b, gone->value = ready();
    first = a.get();
    w.overwrite(*one, add(w, a, kept));           // reads what it replaces
    w.overwrite(*one, add(w, one->value, kept));  // of this window: nothing to keep
    w.overwrite(*two, add(w, kept, kept));        // reads something else
    w.overwrite(*gone, add(w, gone->value, one->value));
  }
  EXPECT_TRUE(w.donatable() == (std::vector<bool>{true, false, true}));
  EXPECT_EQ(w.overwritten_bytes(), 16);
  delete_slot(gone);
  Slot* another = new_slot(16, 0);
  for (Slot* s : {one, two}) s->value->state = Pending::State::kFailed;
  w.take().restore({});
  EXPECT_TRUE(one->value.get() == first);
  EXPECT_TRUE(two->value->state == Pending::State::kReady);
  EXPECT_TRUE(!another->value);
  for (Slot* s : {one, two, another}) delete_slot(s);
}

TEST(what_a_launch_consumed_does_not_come_back) {
  Window w(0);
  Slot *one = new_slot(16, 0), *two = new_slot(16, 0);
  const ValuePtr kept = ready();
  one->value = ready(), two->value = ready();
  w.overwrite(*one, add(w, one->value, kept));
  w.overwrite(*two, add(w, kept, kept));
  w.release_overwritten();
  EXPECT_EQ(w.overwritten_bytes(), 0);
  for (Slot* s : {one, two}) s->value->state = Pending::State::kFailed;
  Recording r = w.take();
  r.restore({r.parameters[0].get()});
  for (Slot* s : {one, two}) {
    EXPECT_TRUE(s->value->state == Pending::State::kFailed);
    delete_slot(s);
  }
}

TEST(a_recording_is_recorded_again_node_by_node) {
  Window w(0), alone(0), again(0);
  const ValuePtr a = ready(), b = ready();
  ValuePtr kept;
  const auto scaled = [](Window& to, const ValuePtr& v, double s) {
    ValuePtr out;
    const Number numbers[] = {Number::of(s)};
    to.record(scale_instance(), std::span(&v, 1), numbers, {}, {}, &out);
    return out;
  };
  kept = scaled(w, add(w, a, scaled(w, b, 2)), 3);
  Recording r = w.take();
  EXPECT_TRUE(w.empty());
  EXPECT_EQ(r.nodes.size(), 3u);
  again.append(r, 0);
  again.append(r, 1);
  const ValuePtr dead = r.outputs[0];
  r.release_after(1);
  EXPECT_TRUE(!r.outputs[0] && !r.parameters[0] && !r.parameters[1] && r.outputs[1]);
  r.outputs[1]->state = Pending::State::kReady;  // as a launch does
  again.clear();
  again.append(r, 2);
  EXPECT_TRUE(again.inputs() == (std::vector<int32_t>{0}));
  EXPECT_TRUE(again.packs().f32 == (std::vector<float>{3}));
  r.release_after(2);
  EXPECT_TRUE(again.live_outputs() == (std::vector<int32_t>{0}));
  scaled(alone, ready(), 3);
  const std::vector<bool> donated{true};
  EXPECT_TRUE(again.donatable() == donated);
  EXPECT_TRUE(again.key({}, donated) == alone.key({}, donated));
}

}  // namespace
}  // namespace tpu::trace
