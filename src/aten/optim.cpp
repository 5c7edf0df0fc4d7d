#include <array>
#include <string>
#include <type_traits>
#include <utility>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;

// The fused optimizers write lists in place: a lowering returns the new values of all written
// lists, one list after the other, in the order of the schema. lr is a number or a 0-d tensor.

Value rate(Ctx& x, const Scalar& lr, DType t) { return x.scalar(lr, t); }
Value rate(Ctx& x, Value lr, DType t) {
  x.check(lr.numel() == 1, "a tensor lr must have one element, got ", lr.dims());
  return x.b.reshape(x.convert(lr, t), {});
}

Value one_element(Ctx& x, Value v, DType t, const char* name) {
  x.check(v.numel() == 1, name, " must be a 1-element tensor.");
  return x.b.reshape(x.convert(v, t), {});
}

// 1 - beta. 0.999 in float32 is off by 1.3e-8, a thousandth of that in the difference: subtract
// first.
Value complement(Ctx& x, const Scalar& beta, DType t) {
  return x.b.convert(x.b.sub(x.constant(DType::kF64, 1), x.scalar(beta, DType::kF64)), t);
}

// 1 - beta^step from 1 - beta, without its cancellation.
Value bias_correction(Ctx& x, Value one_minus_beta, Value step) {
  const Value log_beta = x.b.unary(Op::kLogPlusOne, x.b.neg(one_minus_beta));
  return x.b.neg(x.b.unary(Op::kExponentialMinusOne, x.b.mul(step, log_beta)));
}

Value scaled(Ctx& x, Value v, Value factor) { return x.b.mul(v, x.broadcast(factor, v.dims())); }

// A number in each compute type of the list, made at its first use.
template <class F>
class Once {
 public:
  explicit Once(F make) : make_(std::move(make)) {}
  Value operator()(DType t) {
    Value& v = made_[static_cast<size_t>(t)];
    if (!v) v = make_(t);
    return v;
  }

 private:
  F make_;
  std::array<Value, hlo::kDTypeCount> made_{};
};

// What the optimizers of one call share.
class Step {
 public:
  Step(Ctx& x, const Values& params, const Opt<Value>& grad_scale, const Opt<Value>& found_inf,
       bool maximize)
      : x_(x), params_(params), grad_scale_(grad_scale), maximize_(maximize) {
    if (found_inf)
      skip_ = is_zero(x, plus(x, one_element(x, *found_inf, DType::kF32, "found_inf"), -1));
  }

  void check_list(const Values& list, const char* name) const {
    x_.check(list.size() == params_.size(), "expected ", params_.size(), " tensors in ", name,
             ", got ", list.size());
  }
  DType compute_type(size_t i) const { return hlo::compute_type(params_[i].dtype()); }
  Value param(size_t i) const { return x_.to_compute(params_[i]); }

  // The gradient without the loss scale; stored back when there was one.
  Value gradient(Value& grad, size_t i) {
    Value g = x_.convert(grad, compute_type(i));
    if (grad_scale_) {
      g = x_.b.div(g,
                   x_.broadcast(one_element(x_, *grad_scale_, g.dtype(), "grad_scale"), g.dims()));
      write(grad, g);
    }
    return maximize_ ? x_.b.neg(g) : g;
  }
  // The new value in the old one's dtype; unchanged when the gradients overflowed.
  void write(Value& slot, Value v) const {
    const Value next = x_.convert(v, slot.dtype());
    slot = skip_ ? x_.b.select(*skip_, slot, next) : next;
  }

 private:
  Ctx& x_;
  const Values& params_;
  const Opt<Value>& grad_scale_;
  bool maximize_;
  Opt<Value> skip_;
};

Values concatenated(const std::vector<Values>& lists) {
  Values out;
  for (const Values& l : lists) out.insert(out.end(), l.begin(), l.end());
  return out;
}

// ---- SGD (with Nesterov momentum as in Sutskever et al. 2013).

template <class Lr>
Values sgd(Ctx& x, const Values& self, Values grads, Values buffers, const Scalar& weight_decay,
           const Scalar& momentum, const Lr& lr, const Scalar& dampening, bool nesterov,
           bool maximize, bool is_first_step, const Opt<Value>& grad_scale,
           const Opt<Value>& found_inf) {
  Step step(x, self, grad_scale, found_inf, maximize);
  step.check_list(grads, "grads");
  const bool has_momentum = !x.is(momentum, 0);
  Once rate_of([&](DType t) { return rate(x, lr, t); });
  Once gain([&](DType t) { return complement(x, dampening, t); });
  if (has_momentum) step.check_list(buffers, "momentum_buffer_list");
  Values params = self;
  for (size_t i = 0; i < params.size(); ++i) {
    const DType c = step.compute_type(i);
    check_dtype(x, self[i].dtype(), kFloats, "fused_sgd_kernel");
    const Value p = step.param(i);
    Value g = step.gradient(grads[i], i);
    if (!x.is(weight_decay, 0)) g = x.b.add(g, scaled(x, p, x.scalar(weight_decay, c)));
    if (has_momentum) {
      Value buffer = g;
      if (!is_first_step) {
        const Value kept = scaled(x, x.convert(buffers[i], c), x.scalar(momentum, c));
        buffer = x.b.add(kept, scaled(x, g, gain(c)));
      }
      step.write(buffers[i], buffer);
      g = nesterov ? x.b.add(g, scaled(x, buffer, x.scalar(momentum, c))) : buffer;
    }
    step.write(params[i], x.b.sub(p, scaled(x, g, rate_of(c))));
  }
  return concatenated({params, grads, buffers});
}

// ---- Adam (Kingma and Ba 2015), AdamW (Loshchilov and Hutter 2019), AMSGrad (Reddi et al. 2018).

template <bool decoupled, class Lr>
Values adam(Ctx& x, const Values& self, Values grads, Values exp_avgs, Values exp_avg_sqs,
            Values max_exp_avg_sqs, const Values& state_steps, const Lr& lr, const Scalar& beta1,
            const Scalar& beta2, const Scalar& weight_decay, const Scalar& eps, bool amsgrad,
            bool maximize, const Opt<Value>& grad_scale, const Opt<Value>& found_inf) {
  Step step(x, self, grad_scale, found_inf, maximize);
  step.check_list(grads, "grads");
  step.check_list(exp_avgs, "exp_avgs");
  step.check_list(exp_avg_sqs, "exp_avg_sqs");
  step.check_list(state_steps, "state_steps");
  if (amsgrad) step.check_list(max_exp_avg_sqs, "max_exp_avg_sqs");
  Once rate_of([&](DType t) { return rate(x, lr, t); });
  Once rest1_of([&](DType t) { return complement(x, beta1, t); });
  Once rest2_of([&](DType t) { return complement(x, beta2, t); });
  Once shrink_of([&](DType t) {  // 1 - lr * weight_decay
    return x.b.sub(x.constant(t, 1), x.b.mul(rate_of(t), x.scalar(weight_decay, t)));
  });
  Values params = self;
  for (size_t i = 0; i < params.size(); ++i) {
    const DType c = step.compute_type(i);
    check_dtype(x, self[i].dtype(), kFloats, "fused_adam_kernel");
    Value p = step.param(i);
    Value g = step.gradient(grads[i], i);
    if (!x.is(weight_decay, 0)) {
      if (decoupled) {
        p = scaled(x, p, shrink_of(c));
      } else {
        g = x.b.add(g, scaled(x, p, x.scalar(weight_decay, c)));
      }
    }
    const Value rest1 = rest1_of(c), rest2 = rest2_of(c);
    const Value m = x.convert(exp_avgs[i], c);
    const Value mean = x.b.add(m, scaled(x, x.b.sub(g, m), rest1));
    const Value kept = scaled(x, x.convert(exp_avg_sqs[i], c), x.scalar(beta2, c));
    const Value variance = x.b.add(kept, scaled(x, x.b.mul(g, g), rest2));
    Value denominator = variance;
    if (amsgrad) {
      denominator = x.b.maximum(x.convert(max_exp_avg_sqs[i], c), variance);
      step.write(max_exp_avg_sqs[i], denominator);
    }
    const Value t = one_element(x, state_steps[i], c, "each of state_steps");
    const Value size = x.b.div(rate_of(c), bias_correction(x, rest1, t));
    const Value spread = recip(x, sqrt(x, bias_correction(x, rest2, t)));
    const Value d =
        x.b.add(scaled(x, sqrt(x, denominator), spread), x.broadcast(x.scalar(eps, c), p.dims()));
    step.write(exp_avgs[i], mean);
    step.write(exp_avg_sqs[i], variance);
    step.write(params[i], x.b.sub(p, x.b.div(scaled(x, mean, size), d)));
  }
  return concatenated({params, grads, exp_avgs, exp_avg_sqs, max_exp_avg_sqs});
}

// ---- Adagrad (Duchi et al. 2011). The steps were counted by the caller.

template <class Lr>
Values adagrad(Ctx& x, const Values& self, Values grads, Values state_sums,
               const Values& state_steps, const Lr& lr, const Scalar& lr_decay,
               const Scalar& weight_decay, const Scalar& eps, bool maximize,
               const Opt<Value>& grad_scale, const Opt<Value>& found_inf) {
  Step step(x, self, grad_scale, found_inf, maximize);
  step.check_list(grads, "grads");
  step.check_list(state_sums, "state_sums");
  step.check_list(state_steps, "state_steps");
  Once rate_of([&](DType t) { return rate(x, lr, t); });
  Values params = self;
  for (size_t i = 0; i < params.size(); ++i) {
    const DType c = step.compute_type(i);
    check_dtype(x, self[i].dtype(), kFloats, "fused_adagrad_kernel");
    const Value p = step.param(i);
    Value g = step.gradient(grads[i], i);
    if (!x.is(weight_decay, 0)) g = x.b.add(g, scaled(x, p, x.scalar(weight_decay, c)));
    const Value sum = x.b.add(x.convert(state_sums[i], c), x.b.mul(g, g));
    const Value t = one_element(x, state_steps[i], c, "each of state_steps");
    const Value slowdown = plus(x, x.b.mul(plus(x, t, -1), x.scalar(lr_decay, c)), 1);
    const Value size = x.b.div(rate_of(c), slowdown);
    const Value d = x.b.add(sqrt(x, sum), x.broadcast(x.scalar(eps, c), p.dims()));
    step.write(state_sums[i], sum);
    step.write(params[i], x.b.sub(p, x.b.div(scaled(x, g, size), d)));
  }
  return concatenated({params, grads, state_sums});
}

template <class Lr>
void register_for_rate(Registry& r, const std::string& overload) {
  r.op("aten::_fused_sgd_" + overload,
       [](Ctx& x, Values self, Values grads, Values buffers, Scalar weight_decay, Scalar momentum,
          Lr lr, Scalar dampening, bool nesterov, bool maximize, bool is_first_step,
          Opt<Value> grad_scale, Opt<Value> found_inf) {
         return sgd(x, self, grads, buffers, weight_decay, momentum, lr, dampening, nesterov,
                    maximize, is_first_step, grad_scale, found_inf);
       })
      .fold("momentum", 0)
      .fold("weight_decay", 0);
  r.op("aten::_fused_adam_" + overload, adam<false, Lr>).fold("weight_decay", 0);
  r.op("aten::_fused_adamw_" + overload, adam<true, Lr>).fold("weight_decay", 0);
  constexpr bool writes_steps = std::is_same_v<Lr, Scalar>;  // by the schemas' annotations
  r.op("aten::_fused_adagrad_" + overload, [](Ctx& x, Values self, Values grads, Values state_sums,
                                              Values state_steps, Lr lr, Scalar lr_decay,
                                              Scalar weight_decay, Scalar eps, bool maximize,
                                              Opt<Value> grad_scale, Opt<Value> found_inf) {
     Values out = adagrad(x, self, grads, state_sums, state_steps, lr, lr_decay, weight_decay, eps,
                          maximize, grad_scale, found_inf);
     if (writes_steps) out.insert(out.end(), state_steps.begin(), state_steps.end());
     return out;
   }).fold("weight_decay", 0);
}

// ---- Loss scaling.

void register_amp(Registry& r) {
  // New gradients, then found_inf.
  r.op("aten::_amp_foreach_non_finite_check_and_unscale_",
       [](Ctx& x, Values self, Value found_inf, Value inv_scale) {
         x.check(found_inf.dtype() == DType::kF32, "found_inf must be a float tensor.");
         x.check(inv_scale.dtype() == DType::kF32, "inv_scale must be a float tensor.");
         Value bad = x.b.compare(Cmp::kNe, one_element(x, found_inf, DType::kF32, "found_inf"),
                                 x.constant(DType::kF32, 0));
         const Value inverse = one_element(x, inv_scale, DType::kF32, "inv_scale");
         Values out;
         for (const Value& v : self) {
           check_dtype(x, v.dtype(), kFloats, "_amp_foreach_non_finite_check_and_unscale_cpu");
           bad = x.b.logical_or(bad, x.any(x.b.logical_not(x.b.is_finite(v)), x.all_axes(v)));
           out.push_back(in_compute(
               x, v, [&](Value c) { return scaled(x, c, x.convert(inverse, c.dtype())); }));
         }
         out.push_back(x.b.reshape(x.convert(bad, DType::kF32), found_inf.dims()));
         return out;
       });
  r.op("aten::_amp_update_scale_", [](Ctx& x, Value self, Value growth_tracker, Value found_inf,
                                      Scalar growth, Scalar backoff, int64_t interval) {
    x.check(growth_tracker.dtype() == DType::kI32, "growth_tracker must be an int tensor.");
    x.check(self.dtype() == DType::kF32, "current_scale must be a float tensor.");
    const Value scale_now = one_element(x, self, DType::kF32, "current_scale");
    const Value tracker = one_element(x, growth_tracker, DType::kI32, "growth_tracker");
    const Value bad = x.b.compare(Cmp::kNe, one_element(x, found_inf, DType::kF32, "found_inf"),
                                  x.constant(DType::kF32, 0));
    const Value streak = plus(x, tracker, 1);
    const Value grows = x.b.compare(Cmp::kEq, streak, x.b.constant(DType::kI32, interval));
    const Value larger = x.b.mul(scale_now, x.scalar(growth, DType::kF32));
    const Value grown =
        x.b.select(x.b.logical_and(grows, x.b.is_finite(larger)), larger, scale_now);
    const Value smaller = x.b.mul(scale_now, x.scalar(backoff, DType::kF32));
    const Value zero = zero_like(x, tracker);
    return std::array{
        x.b.reshape(x.b.select(bad, smaller, grown), self.dims()),
        x.b.reshape(x.b.select(x.b.logical_or(bad, grows), zero, streak), growth_tracker.dims())};
  });
}

}  // namespace

void register_optim(Registry& r) {
  register_for_rate<Scalar>(r, "");
  register_for_rate<Value>(r, ".tensor_lr");
  register_amp(r);
}

}  // namespace tpu::aten
