// Control flow as StableHLO control flow: a subgraph becomes a region.
//
// What a region asserts leaves it as two more results an assertion, whether it was violated and the
// value that goes with it. Of a loop the first violation is told. Random draws of the k-th run
// start k times the draws of one run behind those of the first, where running op by op would.
#include <algorithm>

#include "trace/subgraph.h"

namespace tpu::trace {
namespace {

using hlo::Builder;
using hlo::Value;
using ops::Assertion;
using ops::Context;
using ops::Values;

// How many draws are set aside for a loop of which nobody knows how often it runs.
constexpr int64_t kLoopDraws = int64_t{1} << 36;

void append(Values& to, const Values& from) { to.insert(to.end(), from.begin(), from.end()); }

Values part(const Values& v, size_t begin, size_t count) {
  const auto at = v.begin() + static_cast<std::ptrdiff_t>(begin);
  return {at, at + static_cast<std::ptrdiff_t>(count)};
}

// ---- Assertions as values: flag and number, flag and number, ...

Values no_violations(Builder& b, int64_t count) {
  Values v;
  for (int64_t i = 0; i < count; ++i) {
    v.push_back(b.constant(DType::kBool, 0));
    v.push_back(b.constant(DType::kI64, 0));
  }
  return v;
}

Values violations(const std::vector<Assertion>& assertions) {
  Values v;
  for (const Assertion& a : assertions) {
    v.push_back(a.violated);
    v.push_back(a.value);
  }
  return v;
}

// What was violated first stays.
Values first_violations(Builder& b, const Values& before, const Values& now) {
  Values v;
  for (size_t i = 0; i < before.size(); i += 2) {
    v.push_back(b.logical_or(before[i], now[i]));
    v.push_back(b.select(before[i], before[i + 1], now[i + 1]));
  }
  return v;
}

void report(Context& x, std::vector<Assertion> assertions, const Values& flags) {
  for (size_t i = 0; i < assertions.size(); ++i) {
    assertions[i].violated = flags[2 * i];
    assertions[i].value = flags[2 * i + 1];
    x.report(assertions[i]);
  }
}

// ---- Random states.

Value advanced(Builder& b, Value state, int64_t draws) {
  if (!state.valid() || draws == 0) return state;
  const int64_t add[] = {0, draws};
  return b.add(state, b.constant_ints(add, {DType::kU64, {2}}));
}

// The state before run `k` (rank 0) of something that draws that much each time.
Value of_run(Builder& b, Value state, int64_t draws, Value k) {
  if (!state.valid()) return state;
  const int64_t step[] = {0, draws};
  const Value times = b.broadcast_scalar(b.convert(k, DType::kU64), {2});
  return b.add(state, b.mul(times, b.constant_ints(step, {DType::kU64, {2}})));
}

// ---- The ops.

Value predicate(Context& x, Value v) {
  x.check(v.numel() == 1, "a condition is one bool, got a tensor of dims ", v.dims());
  return x.b.reshape(x.convert(v, DType::kBool), {});
}

Values cond(Context& x, const Values& pred, const Values& when_true, const Values& when_false,
            int64_t on_true, int64_t on_false) {
  Builder& b = x.b;
  const ops::Subgraphs& all = x.subgraphs();
  const Value random = x.random_state(std::max(all.draws(on_true), all.draws(on_false)));
  x.check(pred.size() == 1, "a branch is chosen by one tensor, got ", pred.size());
  std::vector<Assertion> assertions;
  size_t results = 0;
  const auto branch = [&](int64_t subgraph, const Values& arguments, int64_t before,
                          int64_t after) -> Builder::Region {
    return [&, subgraph, before, after](const Values&) {
      std::vector<Assertion> mine;
      Values out = x.run(subgraph, arguments, all.draws(subgraph) > 0 ? random : Value(), mine);
      results = out.size();
      append(out, no_violations(b, before));
      append(out, violations(mine));
      append(out, no_violations(b, after));
      assertions.insert(assertions.end(), mine.begin(), mine.end());
      return out;
    };
  };
  const int64_t n = all.assertions(on_true), m = all.assertions(on_false);
  const Values out = b.if_else(predicate(x, pred[0]), branch(on_true, when_true, 0, m),
                               branch(on_false, when_false, n, 0));
  report(x, assertions, part(out, results, out.size() - results));
  return part(out, 0, results);
}

// The condition is computed at the end of the body where it asserts something or draws numbers:
// from the region of its own nothing but its result gets out. A violation ends the loop: what was
// computed with a bad index might never let it end.
Values while_loop(Context& x, const Values& init, const Values& cond_inputs,
                  const Values& body_inputs, int64_t cond, int64_t body) {
  Builder& b = x.b;
  const ops::Subgraphs& all = x.subgraphs();
  const size_t n = init.size();
  const int64_t of_cond = all.draws(cond), of_body = all.draws(body), draws = of_cond + of_body;
  const Value random = x.random_state(draws > 0 ? kLoopDraws : 0);
  const bool at_end = of_cond > 0 || all.assertions(cond) > 0;
  const auto holds = [&](const Values& state, Value run, std::vector<Assertion>& assertions) {
    Values arguments = part(state, 0, n);
    append(arguments, cond_inputs);
    const Value from = of_cond > 0 ? of_run(b, random, draws, run) : Value();
    return predicate(x, x.run(cond, arguments, from, assertions)[0]);
  };

  // Carried: the user's, which run it is, whether it takes place, violations of condition and body.
  std::vector<Assertion> of_first, assertions;
  Values state = init;
  const Value first = draws > 0 ? b.constant(DType::kI64, 0) : Value();
  if (draws > 0) state.push_back(first);
  const size_t at_condition = state.size();
  if (at_end) state.push_back(holds(init, first, of_first));
  const size_t at_flags = state.size();
  append(state, violations(of_first));
  append(state, no_violations(b, all.assertions(body)));

  const auto condition = [&](const Values& s) {
    std::vector<Assertion> none;
    Value go_on = at_end ? s[at_condition] : holds(s, Value(), none);
    for (size_t i = at_flags; i < s.size(); i += 2)
      go_on = b.logical_and(go_on, b.logical_not(s[i]));
    return Values{go_on};
  };
  const auto step = [&](const Values& s) {
    Values arguments = part(s, 0, n);
    append(arguments, body_inputs);
    const Value run = draws > 0 ? s[n] : Value();
    const Value from = of_body > 0 ? advanced(b, of_run(b, random, draws, run), of_cond) : Value();
    std::vector<Assertion> of_this;
    Values next = x.run(body, arguments, from, of_this);
    x.check(next.size() == n, "the body of a loop gives ", next.size(), " values for ", n);
    assertions.clear();
    Value following;
    if (draws > 0) next.push_back(following = b.add(run, b.constant(DType::kI64, 1)));
    if (at_end) next.push_back(holds(next, following, assertions));
    assertions.insert(assertions.end(), of_this.begin(), of_this.end());
    append(next,
           first_violations(b, part(s, at_flags, s.size() - at_flags), violations(assertions)));
    return next;
  };
  const Values end = b.while_loop(state, condition, step);
  report(x, assertions, part(end, at_flags, end.size() - at_flags));
  return part(end, 0, n);
}

// One slice of each of `xs` along dim 0 a run; results behind those carried are stacked there.
Values scan(Context& x, const Values& init, const Values& xs, const Values& inputs, int64_t body,
            int64_t length) {
  Builder& b = x.b;
  const ops::Subgraphs& all = x.subgraphs();
  const size_t n = init.size();
  const int64_t draws = all.draws(body);
  const Value random = x.random_state(draws * std::max<int64_t>(length, 1));
  for (const Value& v : xs) {
    x.check(v.rank() > 0 && v.dim(0) == length, "a tensor of dims ", v.dims(), " does not have ",
            length, " slices");
  }

  std::vector<Assertion> assertions;
  const auto run = [&](const Values& carried, Value k) {
    Values arguments = carried;
    for (const Value& v : xs) {
      Values starts(static_cast<size_t>(v.rank()), b.constant(DType::kI32, 0));
      starts[0] = k;
      Dims sizes = v.dims(), slice(v.dims().begin() + 1, v.dims().end());
      sizes[0] = 1;
      arguments.push_back(b.reshape(b.dynamic_slice(v, starts, sizes), slice));
    }
    append(arguments, inputs);
    assertions.clear();
    return x.run(body, arguments, of_run(b, random, draws, k), assertions);
  };

  // Carried: which run it is, the user's, the stacks, violations.
  const std::vector<Type> types = all.result_types(body);
  x.check(types.size() >= n, "the body of a scan gives ", types.size(), " values for ", n);
  Values state{b.constant(DType::kI32, 0)};
  append(state, init);
  for (size_t i = n; i < types.size(); ++i) {
    Type stack = types[i];
    stack.dims.insert(stack.dims.begin(), length);
    state.push_back(b.splat(stack, 0));
  }
  const size_t at_flags = state.size();
  append(state, no_violations(b, all.assertions(body)));

  const auto more = [&](const Values& s) {
    return Values{b.compare(hlo::Cmp::kLt, s[0], b.constant(DType::kI32, length))};
  };
  const auto step = [&](const Values& s) {
    const Values out = run(part(s, 1, n), s[0]);
    Values next{b.add(s[0], b.constant(DType::kI32, 1))};
    append(next, part(out, 0, n));
    for (size_t i = n; i < out.size(); ++i) {
      Dims slice = out[i].dims();
      slice.insert(slice.begin(), 1);
      Values starts(slice.size(), b.constant(DType::kI32, 0));
      starts[0] = s[0];
      next.push_back(b.dynamic_update_slice(s[1 + i], b.reshape(out[i], slice), starts));
    }
    append(next,
           first_violations(b, part(s, at_flags, s.size() - at_flags), violations(assertions)));
    return next;
  };
  const Values end = b.while_loop(state, more, step);
  report(x, assertions, part(end, at_flags, end.size() - at_flags));
  return part(end, 1, types.size());
}

}  // namespace

void register_control_flow(ops::Registry& r) {
  r.op("tpu::cond", cond).random();
  r.op("tpu::while_loop", while_loop).random();
  r.op("tpu::scan", scan).random();
}

}  // namespace tpu::trace
