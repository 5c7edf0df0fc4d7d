#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "aten/elementwise.h"
#include "aten/loss.h"

namespace tpu::aten {
namespace {

using ops::Registry;
using ops::scalar_type_name;

// Connectionist temporal classification (Graves et al. 2006), in the log domain. The extended
// target alternates blanks and labels: L = 2 S + 1 states.

struct Ctc {
  int64_t steps, batch, classes, states;
  Value input_lengths, target_lengths;  // [N], int32
  Value labels;                         // [N, L], int32
  Value may_skip;                       // [N, L]: state s is reached from s - 2
  Value log_probs;                      // [T, N, L], at the labels
};

Value minus_infinity(Ctx& x, Type t) {
  return x.b.splat(std::move(t), -std::numeric_limits<double>::infinity());
}

Value log_sum_exp(Ctx& x, const Values& terms) {
  Value high = terms[0];
  for (const Value& v : terms) high = x.b.maximum(high, v);
  const Value base = x.b.select(x.b.compare(Cmp::kEq, high, infinity_like(x, high, true)),
                                zero_like(x, high), high);
  Value sum = zero_like(x, base);
  for (const Value& v : terms) sum = x.b.add(sum, exp(x, x.b.sub(v, base)));
  return x.b.add(log(x, sum), base);
}

// v [N, L] moved by `by` states, -inf shifted in.
Value shift_states(Ctx& x, Value v, int64_t by) {
  const Value fill = x.b.constant(v.dtype(), -std::numeric_limits<double>::infinity());
  return x.b.pad(v, fill, {0, by}, {0, -by});
}

// [N, S] from targets laid one after the other.
Value padded_targets(Ctx& x, Value targets, Value lengths, int64_t width) {
  if (targets.rank() == 2) return x.b.slice_dim(targets, 1, 0, width);
  const int64_t n = lengths.dim(0);
  const Dims square_dims{n, n};
  const Value before = x.b.compare(Cmp::kLt, x.b.iota({DType::kI32, square_dims}, 1),
                                   x.b.iota({DType::kI32, square_dims}, 0));
  const Value spread = x.b.broadcast_in_dim(lengths, square_dims, {1});
  const Value offset = x.sum(x.b.select(before, spread, zero_like(x, spread)), {1});
  const Dims dims{n, width};
  const Value index =
      x.b.add(x.b.broadcast_in_dim(offset, dims, {0}), x.b.iota({DType::kI32, dims}, 1));
  const Value safe = x.b.clamp(x.b.constant(DType::kI32, 0), index,
                               x.b.constant(DType::kI32, std::max<int64_t>(targets.dim(0) - 1, 0)));
  if (targets.dim(0) == 0) return x.zeros({targets.dtype(), dims});
  return x.b.reshape(take(x, targets, x.b.reshape(safe, {n * width}), 0), dims);
}

Ctc ctc_of(Ctx& x, Value log_probs, Value targets, Value input_lengths, Value target_lengths,
           int64_t width, int64_t blank) {
  Ctc c{};
  c.steps = log_probs.dim(0);
  c.batch = log_probs.dim(1);
  c.classes = log_probs.dim(2);
  c.states = 2 * width + 1;
  x.check(blank >= 0 && blank < c.classes, "blank must be in label range");
  check_dtype(x, log_probs.dtype(), kReal, "ctc_loss_cpu");
  c.input_lengths = x.b.convert(input_lengths, DType::kI32);
  c.target_lengths = x.b.convert(target_lengths, DType::kI32);
  const Dims dims{c.batch, c.states};
  c.labels = x.b.splat({DType::kI32, dims}, blank);
  if (width > 0) {
    const Value t = padded_targets(x, targets, c.target_lengths, width);
    const Value order = x.b.iota({DType::kI32, t.dims()}, 1);
    const Value used =
        x.b.compare(Cmp::kLt, order, x.b.broadcast_in_dim(c.target_lengths, t.dims(), {0}));
    const Value index = x.checked_index(x.b.select(used, t, zero_like(x, t)), c.classes, 2, false);
    c.labels = x.b.pad(x.b.convert(index, DType::kI32), x.b.constant(DType::kI32, blank), {0, 1},
                       {0, 1}, {0, 1});
  }
  const Value state = x.b.iota({DType::kI32, dims}, 1);
  const Value two_before = x.b.pad(c.labels, x.b.constant(DType::kI32, -1), {0, 2}, {0, -2});
  c.may_skip = x.b.logical_and(gt(x, state, 1), x.b.compare(Cmp::kNe, c.labels, two_before));
  hlo::GatherDims g;
  g.offset_dims = {0};
  g.collapsed_slice_dims = {2};
  g.start_index_map = {2};
  g.operand_batching_dims = {1};
  g.start_indices_batching_dims = {0};
  g.index_vector_dim = 2;
  c.log_probs = x.b.gather(log_probs, x.unsqueeze(c.labels, 2), g, {c.steps, 1, 1});
  return c;
}

Value row(Ctx& x, Value v, Value t) {  // v[t] of [T, N, L]
  const Value zero = x.b.constant(DType::kI32, 0);
  return x.b.reshape(x.b.dynamic_slice(v, {t, zero, zero}, {1, v.dim(1), v.dim(2)}),
                     {v.dim(1), v.dim(2)});
}
Value with_row(Ctx& x, Value v, Value value, Value t) {
  const Value zero = x.b.constant(DType::kI32, 0);
  return x.b.dynamic_update_slice(v, x.b.reshape(value, {1, v.dim(1), v.dim(2)}), {t, zero, zero});
}

Value per_sample(Ctx& x, Value v, const Dims& dims) { return x.b.broadcast_in_dim(v, dims, {0}); }

// True at the last two states, 2 S_n and 2 S_n - 1.
Value final_states(Ctx& x, const Ctc& c) {
  const Dims dims{c.batch, c.states};
  const Value state = x.b.iota({DType::kI32, dims}, 1);
  const Value last = per_sample(x, times(x, c.target_lengths, 2), dims);
  return x.b.logical_or(x.b.compare(Cmp::kEq, state, last),
                        x.b.compare(Cmp::kEq, state, plus(x, last, -1)));
}

// {negative log likelihood [N], log alpha [N, T, L]}.
std::array<Value, 2> ctc_forward(Ctx& x, const Ctc& c) {
  const DType t = c.log_probs.dtype();
  const Dims dims{c.batch, c.states};
  const Value none = minus_infinity(x, {t, dims});
  const Value state = x.b.iota({DType::kI32, dims}, 1);
  const Value lengths = per_sample(x, c.target_lengths, dims);
  const Value last_step = per_sample(x, plus(x, c.input_lengths, -1), dims);
  Values loop{x.b.constant(DType::kI32, 0), none, none, minus_infinity(x, c.log_probs.type())};
  if (c.steps > 0) {
    loop = x.b.while_loop(
        loop,
        [&](const Values& v) {
          return Values{x.b.compare(Cmp::kLt, v[0], x.b.constant(DType::kI32, c.steps))};
        },
        [&](const Values& v) {
          const Value step = v[0], alpha = v[1];
          const Value now = row(x, c.log_probs, step);
          const Value skip = x.b.select(c.may_skip, shift_states(x, alpha, 2), none);
          const Value moved =
              x.b.add(log_sum_exp(x, {alpha, shift_states(x, alpha, 1), skip}), now);
          const Value starts = x.b.logical_or(
              is_zero(x, state),
              x.b.logical_and(x.b.compare(Cmp::kEq, state, x.like(state, 1)), gt(x, lengths, 0)));
          const Value first = x.b.select(starts, now, none);
          const Value next = x.b.select(is_zero(x, step), first, moved);
          const Value at_end = x.b.compare(Cmp::kEq, last_step, x.broadcast(step, dims));
          return Values{plus(x, step, 1), next, x.b.select(at_end, next, v[2]),
                        with_row(x, v[3], next, step)};
        });
  }
  const Value ends = x.b.select(final_states(x, c), loop[2], none);
  const Value high = x.max(ends, {1});
  const Value base = x.b.select(x.b.compare(Cmp::kEq, high, infinity_like(x, high, true)),
                                zero_like(x, high), high);
  const Value sum = x.sum(exp(x, x.b.sub(ends, per_sample(x, base, dims))), {1});
  const Value loss = x.b.neg(x.b.add(log(x, sum), base));
  const Value empty =
      x.b.select(is_zero(x, c.target_lengths), zero_like(x, loss), infinity_like(x, loss));
  return {x.b.select(is_zero(x, c.input_lengths), empty, loss), x.b.transpose(loop[3], {1, 0, 2})};
}

Value ctc_backward(Ctx& x, const Ctc& c, Value grad, Value probs, Value loss, Value log_alpha,
                   bool zero_infinity) {
  const DType t = c.log_probs.dtype();
  const Dims dims{c.batch, c.states};
  if (c.steps == 0) return x.zeros(probs.type());
  const Value none = minus_infinity(x, {t, dims});
  const Value last_step = per_sample(x, plus(x, c.input_lengths, -1), dims);
  const Value is_final = final_states(x, c);
  const Value alpha = x.b.transpose(log_alpha, {1, 0, 2});
  const Value likelihood = per_sample(x, loss, dims);
  // Whether a state reaches s + 2 is what s + 2 says of its predecessor.
  const Value may_skip = x.b.pad(c.may_skip, x.b.constant(DType::kBool, 0), {0, -2}, {0, 2});
  // Backwards in time: beta, and each state's share of the probability at its step.
  const Values loop = x.b.while_loop(
      {x.b.constant(DType::kI32, c.steps - 1), none, x.zeros(c.log_probs.type())},
      [&](const Values& v) { return Values{ge(x, v[0], 0)}; },
      [&](const Values& v) {
        const Value step = v[0], beta = v[1];
        const Value now = row(x, c.log_probs, step);
        const Value skip = x.b.select(may_skip, shift_states(x, beta, -2), none);
        const Value moved = x.b.add(log_sum_exp(x, {beta, shift_states(x, beta, -1), skip}), now);
        const Value here = x.broadcast(step, dims);
        const Value start = x.b.select(is_final, now, none);
        const Value before_end = x.b.select(x.b.compare(Cmp::kLt, here, last_step), moved, none);
        const Value next = x.b.select(x.b.compare(Cmp::kEq, here, last_step), start, before_end);
        const Value joint = x.b.add(row(x, alpha, step), next);
        const Value share = exp(x, x.b.sub(x.b.add(joint, likelihood), now));
        const Value possible = x.b.compare(Cmp::kGt, joint, none);
        return Values{plus(x, step, -1), next,
                      with_row(x, v[2], x.b.select(possible, share, zero_like(x, share)), step)};
      });
  hlo::ScatterDims s;
  s.update_window_dims = {2};
  s.inserted_window_dims = {1};
  s.scatter_dims_to_operand_dims = {1};
  s.input_batching_dims = {0};
  s.scatter_indices_batching_dims = {0};
  s.index_vector_dim = 2;
  const Value by_class =
      x.b.scatter(x.zeros({t, {c.batch, c.classes, c.steps}}), x.unsqueeze(c.labels, 2),
                  x.b.transpose(loop[2], {1, 2, 0}), s, Op::kAdd);
  const Dims& all = probs.dims();
  const auto spread = [&](Value v) { return x.b.broadcast_in_dim(v, all, {1}); };
  const Value g = x.b.mul(x.b.sub(exp(x, probs), x.b.transpose(by_class, {2, 0, 1})),
                          spread(x.convert(grad, t)));
  const Value impossible = x.b.compare(Cmp::kEq, loss, infinity_like(x, loss));
  const Value without = zero_infinity ? zero_like(x, g) : x.like(g, std::nan(""));
  const Value inside =
      x.b.compare(Cmp::kLt, x.b.iota({DType::kI32, all}, 0), spread(c.input_lengths));
  return x.b.select(inside, x.b.select(spread(impossible), without, g), zero_like(x, g));
}

void check_ctc(Ctx& x, Value log_probs, Value targets, int64_t input_count, int64_t target_count) {
  x.check(log_probs.rank() == 3,
          "ctc_loss needs log_probs of 3 dimensions (time, batch, classes), got ",
          log_probs.dims());
  x.check(targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32,
          "Expected tensor for argument #2 'targets' to have scalar type Int; but got ",
          scalar_type_name(targets.dtype()), " instead");
  x.check(targets.rank() == 1 || targets.rank() == 2,
          "ctc_loss needs targets of 1 or 2 dimensions, got ", targets.dims());
  x.check(input_count == log_probs.dim(1), "input_lengths must be of size batch_size");
  x.check(target_count == log_probs.dim(1), "target_lengths must be of size batch_size");
}

Value length_constant(Ctx& x, const Dims& v) {
  return x.b.constant_ints(v, {DType::kI32, {static_cast<int64_t>(v.size())}});
}

// Lengths known when the program is made.
Ctc ctc_of(Ctx& x, Value log_probs, Value targets, const Dims& input_lengths,
           const Dims& target_lengths, int64_t blank) {
  check_ctc(x, log_probs, targets, static_cast<int64_t>(input_lengths.size()),
            static_cast<int64_t>(target_lengths.size()));
  int64_t width = 0;
  for (const int64_t n : target_lengths) {
    x.check(n >= 0, "Expected target_lengths to have value at least 0, but got value ", n);
    width = std::max(width, n);
  }
  for (const int64_t n : input_lengths) {
    x.check(n >= 0, "Expected input_lengths to have value at least 0, but got value ", n);
    x.check(n <= log_probs.dim(0), "Expected input_lengths to have value at most ",
            log_probs.dim(0), ", but got value ", n);
  }
  if (targets.rank() == 2) {
    x.check(targets.dim(1) >= width, "Expected tensor to have size at least ", width,
            " at dimension 1, but got size ", targets.dim(1), " for argument #2 'targets'");
  } else {
    const int64_t total = std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0});
    x.check(targets.dim(0) == total, "Expected tensor to have size ", total,
            " at dimension 0, but got size ", targets.dim(0), " for argument #2 'targets'");
  }
  return ctc_of(x, log_probs, targets, length_constant(x, input_lengths),
                length_constant(x, target_lengths), width, blank);
}

// Lengths known at run time: the widest target possible.
Ctc ctc_of(Ctx& x, Value log_probs, Value targets, Value input_lengths, Value target_lengths,
           int64_t blank) {
  check_ctc(x, log_probs, targets, input_lengths.numel(), target_lengths.numel());
  x.check(hlo::is_integer(input_lengths.dtype()), "input_lengths must be integral");
  x.check(hlo::is_integer(target_lengths.dtype()), "target_lengths must be integral");
  const int64_t width = targets.dim(targets.rank() - 1);
  const auto flat = [&](Value v) { return x.b.convert(x.b.reshape(v, {v.numel()}), DType::kI32); };
  const Value il = flat(input_lengths), tl = flat(target_lengths);
  const auto outside = [&](Value v, int64_t high) {
    return x.b.logical_or(lt(x, v, 0), gt(x, v, static_cast<double>(high)));
  };
  x.assert_none(outside(il, log_probs.dim(0)),
                cat("Expected input_lengths to have value at most ", log_probs.dim(0)));
  x.assert_none(outside(tl, width), cat("Expected target_lengths to have value at most ", width));
  return ctc_of(x, log_probs, targets, il, tl, width, blank);
}

template <class Lengths>
void register_pair(Registry& r, const char* forward, const char* backward) {
  r.op(forward, [](Ctx& x, Value log_probs, Value targets, Lengths input_lengths,
                   Lengths target_lengths, int64_t blank, bool) {
    return ctc_forward(x, ctc_of(x, log_probs, targets, input_lengths, target_lengths, blank));
  });
  r.op(backward,
       [](Ctx& x, Value grad, Value log_probs, Value targets, Lengths input_lengths,
          Lengths target_lengths, Value loss, Value log_alpha, int64_t blank, bool zero_infinity) {
         const Ctc c = ctc_of(x, log_probs, targets, input_lengths, target_lengths, blank);
         return ctc_backward(x, c, grad, log_probs, loss, log_alpha, zero_infinity);
       });
}

}  // namespace

void register_ctc(Registry& r) {
  register_pair<Dims>(r, "aten::_ctc_loss", "aten::_ctc_loss_backward");
  register_pair<Value>(r, "aten::_ctc_loss.Tensor", "aten::_ctc_loss_backward.Tensor");
}

}  // namespace tpu::aten
