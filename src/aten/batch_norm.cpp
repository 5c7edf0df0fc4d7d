#include "aten/norm.h"
#include "aten/reduce.h"

namespace tpu::aten {

using namespace ops;

namespace {

// ---- Batch norm: statistics of each channel (dim 1) over all other dims.

struct Channels {
  Dims others;  // axes but 1
  Dims kept;    // [1, C, 1, ...]
  double count;
};

Channels channels_of(const Context& x, Value input) {
  x.axis(1, input);
  x.check(input.numel() > 0,
          "input tensor must have at least one element, but got input_sizes = ", input.dims());
  check_real(x, input.dtype(), "batch_norm");
  const int64_t count = input.numel() / input.dim(1);
  Channels c{{}, Dims(input.dims().size(), 1), static_cast<double>(count)};
  c.kept[1] = input.dim(1);
  for (int64_t i = 0; i < input.rank(); ++i) {
    if (i != 1) c.others.push_back(i);
  }
  return c;
}

void check_channels(const Context& x, const char* name, const Opt<Value>& p, int64_t channels) {
  x.check(!p || p->dims() == Dims{channels}, name, " should contain ", channels, " elements not ",
          p ? p->numel() : 0);
}

// (1 - momentum) * running + momentum * now, in running's own type.
Opt<Value> moved(Context& x, const Opt<Value>& running, Value now, const Scalar& momentum) {
  if (!running) return std::nullopt;
  const Value r = x.to_compute(*running), n = x.convert(now, r.dtype());
  const Value m = x.scalar_like(momentum, r);
  return x.convert(x.b.add(x.b.mul(r, x.b.sub(x.like(r, 1), m)), x.b.mul(n, m)), running->dtype());
}

struct BatchStats {
  Value mean, squares;  // [C]
  Opt<Value> new_mean, new_var;
};

// Mean and sum of squared differences of `input`, which is v in its compute type. A half input on a
// TPU is read once, inside of the convolution that makes it: n * (E[v^2] - E[v]^2) in float32 loses
// 2^-24 of the squared mean, where the input's own rounding has lost 2^-22 or more of it.
std::array<Value, 2> channel_moments(Context& x, Value input, Value v, const Channels& c) {
  if (x.on_cpu_plugin() || v.dtype() == input.dtype()) return moments(x, v, c.others);
  const Value mean = mean_over(x, v, c.others), sum = sum_over(x, x.b.mul(v, v), c.others, true);
  const Value squares = x.b.sub(sum, x.b.mul(x.like(mean, c.count), x.b.mul(mean, mean)));
  return {mean, x.b.maximum(squares, x.like(squares, 0))};
}

BatchStats batch_stats(Context& x, Value input, Value v, const Channels& c,
                       const Opt<Value>& running_mean, const Opt<Value>& running_var,
                       const Scalar& momentum) {
  const auto [mean, squares] = channel_moments(x, input, v, c);
  BatchStats s{x.b.reshape(mean, {v.dim(1)}), x.b.reshape(squares, {v.dim(1)}), {}, {}};
  s.new_mean = moved(x, running_mean, s.mean, momentum);
  s.new_var = moved(x, running_var, x.b.div(s.squares, x.like(s.squares, c.count - 1)), momentum);
  return s;
}

struct BatchNorm {
  Value out, save_mean, save_invstd;
  Opt<Value> new_mean, new_var;  // as given where nothing is updated
  Value running(const Opt<Value>& v) const { return v.value_or(Value{}); }
};

BatchNorm batch_norm(Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
                     const Opt<Value>& running_mean, const Opt<Value>& running_var, bool training,
                     const Scalar& momentum, const Scalar& eps) {
  const Channels c = channels_of(x, input);
  const int64_t channels = input.dim(1);
  check_channels(x, "weight", weight, channels);
  check_channels(x, "bias", bias, channels);
  check_channels(x, "running_mean", running_mean, channels);
  check_channels(x, "running_var", running_var, channels);
  x.check(training || (running_mean && running_var),
          "Expected running_mean and running_var to be defined when training=False");
  const Value v = x.to_compute(input);
  BatchNorm r{{}, {}, {}, running_mean, running_var};
  if (training) {
    const BatchStats s = batch_stats(x, input, v, c, running_mean, running_var, momentum);
    r.save_mean = s.mean;
    r.save_invstd = inverse_root(x, x.b.div(s.squares, x.like(s.squares, c.count)), eps);
    r.new_mean = s.new_mean;
    r.new_var = s.new_var;
  } else {
    r.save_mean = x.convert(*running_mean, v.dtype());
    r.save_invstd = inverse_root(x, x.convert(*running_var, v.dtype()), eps);
  }
  Value factor = r.save_invstd;
  if (weight) factor = x.b.mul(factor, x.convert(*weight, v.dtype()));
  // Two numbers a channel, as PyTorch's CPU kernel has them: less to read and to compute than with
  // mean, factor and bias apart, which compilers carry into every convolution that reads it.
  Value shift = x.b.neg(x.b.mul(r.save_mean, factor));
  if (bias) shift = x.b.add(x.convert(*bias, v.dtype()), shift);
  const Value scaled = x.binary(Op::kMultiply, v, x.b.reshape(factor, c.kept));
  r.out = x.convert(x.binary(Op::kAdd, scaled, x.b.reshape(shift, c.kept)), input.dtype());
  return r;
}

std::array<Value, 3> batch_norm_backward(Context& x, Value grad_out, Value input,
                                         const Opt<Value>& weight, const Opt<Value>& running_mean,
                                         const Opt<Value>& running_var, const Opt<Value>& save_mean,
                                         const Opt<Value>& save_invstd, bool train,
                                         const Scalar& eps, const std::vector<bool>& mask) {
  const Channels c = channels_of(x, input);
  const Value v = x.to_compute(input), g = x.to_compute(grad_out);
  x.check(train ? save_mean && save_invstd : running_mean && running_var,
          train ? "batch norm's backward needs the saved mean and inverse deviation"
                : "batch norm's backward in evaluation needs running_mean and running_var");
  const auto kept = [&](Value s) { return x.b.reshape(x.convert(s, v.dtype()), c.kept); };
  const Value mean = kept(train ? *save_mean : *running_mean);
  const Value invstd = train ? kept(*save_invstd) : inverse_root(x, kept(*running_var), eps);
  const Value offset = x.binary(Op::kSubtract, v, mean);
  // Two sums over the elements give all three gradients; the rest is arithmetic of channels.
  const Value sum = sum_over(x, g, c.others, true);
  const Value product = sum_over(x, x.b.mul(g, offset), c.others, true);
  const DType param = weight ? weight->dtype() : input.dtype();
  const auto parameter = [&](Value s) { return x.convert(x.b.reshape(s, {v.dim(1)}), param); };
  std::array<Value, 3> out;
  if (mask[0]) {
    Value d = g;
    if (train) {
      const Value count = x.like(sum, c.count);
      const Value slope = x.b.mul(x.b.mul(invstd, invstd), x.b.div(product, count));
      d = x.binary(Op::kSubtract, d, x.b.div(sum, count));
      d = x.b.sub(d, x.binary(Op::kMultiply, offset, slope));
    }
    const Value factor = weight ? x.b.mul(invstd, kept(*weight)) : invstd;
    out[0] = x.convert(x.binary(Op::kMultiply, d, factor), input.dtype());
  }
  if (mask[1]) out[1] = parameter(x.b.mul(product, invstd));
  if (mask[2]) out[2] = parameter(sum);
  return out;
}

std::array<Value, 4> update_stats(Context& x, Value input, const Opt<Value>& running_mean,
                                  const Opt<Value>& running_var, const Scalar& momentum) {
  const Channels c = channels_of(x, input);
  const BatchStats s =
      batch_stats(x, input, x.to_compute(input), c, running_mean, running_var, momentum);
  return {s.mean, x.b.div(s.squares, x.like(s.squares, c.count)), s.new_mean.value_or(Value{}),
          s.new_var.value_or(Value{})};
}

void register_plain(Registry& r) {
  // Both write running_mean and running_var, which their schemas do not say: bridge/ calls these
  // forms and writes the last two results (undefined where the argument is absent) back.
  //   tpu::native_batch_norm_with_stats(the arguments of native_batch_norm)
  //       -> (out, save_mean, save_invstd, running_mean, running_var)
  //   tpu::batch_norm_update_stats_with_stats(the arguments of batch_norm_update_stats)
  //       -> (mean, var, running_mean, running_var)
  r.op("tpu::native_batch_norm_with_stats",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
          const Opt<Value>& running_mean, const Opt<Value>& running_var, bool training,
          const Scalar& momentum, const Scalar& eps) {
         const BatchNorm n =
             batch_norm(x, input, weight, bias, running_mean, running_var, training, momentum, eps);
         return std::array{n.out, n.save_mean, n.save_invstd, n.running(n.new_mean),
                           n.running(n.new_var)};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);
  r.op("tpu::batch_norm_update_stats_with_stats", update_stats).fold("momentum", 0.1);

  // In-place forms: the written running_mean and running_var first.
  r.op("aten::_native_batch_norm_legit",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
          Value running_mean, Value running_var, bool training, const Scalar& momentum,
          const Scalar& eps) {
         const BatchNorm n =
             batch_norm(x, input, weight, bias, running_mean, running_var, training, momentum, eps);
         return std::array{*n.new_mean, *n.new_var, n.out, n.save_mean, n.save_invstd};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);
  r.op("aten::_batch_norm_with_update",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
          Value running_mean, Value running_var, const Scalar& momentum, const Scalar& eps) {
         const BatchNorm n =
             batch_norm(x, input, weight, bias, running_mean, running_var, true, momentum, eps);
         return std::array{*n.new_mean, *n.new_var,    n.out,
                           n.save_mean, n.save_invstd, x.zeros({DType::kU8, {0}})};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);

  r.op("aten::_native_batch_norm_legit.no_stats",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias, bool training,
          const Scalar& momentum, const Scalar& eps) {
         const BatchNorm n = batch_norm(x, input, weight, bias, std::nullopt, std::nullopt,
                                        training, momentum, eps);
         return std::array{n.out, n.save_mean, n.save_invstd};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);
  r.op("aten::_native_batch_norm_legit_functional",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
          Value running_mean, Value running_var, bool training, const Scalar& momentum,
          const Scalar& eps) {
         const BatchNorm n =
             batch_norm(x, input, weight, bias, running_mean, running_var, training, momentum, eps);
         return std::array{n.out, n.save_mean, n.save_invstd, *n.new_mean, *n.new_var};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);
  r.op("aten::_batch_norm_with_update_functional",
       [](Context& x, Value input, const Opt<Value>& weight, const Opt<Value>& bias,
          Value running_mean, Value running_var, const Scalar& momentum, const Scalar& eps) {
         const BatchNorm n =
             batch_norm(x, input, weight, bias, running_mean, running_var, true, momentum, eps);
         return std::array{n.out,       n.save_mean, n.save_invstd, x.zeros({DType::kU8, {0}}),
                           *n.new_mean, *n.new_var};
       })
      .fold("momentum", 0.1)
      .layout(LayoutRule::kChannelsLast);

  r.op("aten::native_batch_norm_backward", batch_norm_backward).layout(LayoutRule::kChannelsLast);
  r.op("aten::batch_norm_backward", [](Context& x, Value grad_out, Value input, Value weight,
                                       const Opt<Value>& running_mean,
                                       const Opt<Value>& running_var, const Opt<Value>& save_mean,
                                       const Opt<Value>& save_var, bool update, const Scalar& eps,
                                       const std::vector<bool>& mask, Value) {
     return batch_norm_backward(x, grad_out, input, weight, running_mean, running_var, save_mean,
                                save_var, update, eps, mask);
   }).layout(LayoutRule::kChannelsLast);
}

// ---- The pieces of batch norm over several devices (torch.nn.SyncBatchNorm).

// Of [device, C] statistics of `counts` elements each: those of all elements.
std::array<Value, 4> gather_stats(Context& x, Value input, Value mean, Value invstd,
                                  const Opt<Value>& running_mean, const Opt<Value>& running_var,
                                  const Scalar& momentum, const Scalar& eps, Value counts) {
  hlo::Builder& b = x.b;
  const DType t = hlo::compute_type(input.dtype());
  const Value m = x.convert(mean, t), r = x.convert(invstd, t);
  const Value n = x.broadcast(b.reshape(x.convert(counts, t), {counts.numel(), 1}), m.dims());
  const Value total = sum_over(x, n, {0}, true);
  const Value all_mean = b.div(sum_over(x, b.mul(m, n), {0}, true), total);
  const Value var = b.sub(b.div(x.like(r, 1), b.mul(r, r)), x.scalar_like(eps, r));
  const Value offset = x.binary(Op::kSubtract, m, all_mean);
  const Value squares = sum_over(x, b.mul(n, b.add(var, b.mul(offset, offset))), {0}, true);
  const Dims channels = {mean.dim(1)};
  const Value flat_mean = b.reshape(all_mean, channels);
  const Value all_var = b.reshape(b.div(squares, total), channels);
  const Value unbiased = b.reshape(b.div(squares, b.sub(total, x.like(total, 1))), channels);
  return {flat_mean, inverse_root(x, all_var, eps),
          moved(x, running_mean, flat_mean, momentum).value_or(Value{}),
          moved(x, running_var, unbiased, momentum).value_or(Value{})};
}

void register_synchronized(Registry& r) {
  r.op("aten::batch_norm_stats", [](Context& x, Value input, Scalar eps) {
    const Channels c = channels_of(x, input);
    const auto [mean, squares] = moments(x, input, c.others);
    const Value var = x.b.div(squares, x.like(squares, c.count));
    const Dims channels = {input.dim(1)};
    return std::array{x.b.reshape(mean, channels),
                      x.b.reshape(inverse_root(x, var, eps), channels)};
  });
  // Write running_mean and running_var like the two above: tpu::...(the arguments of
  // batch_norm_gather_stats, batch_norm_gather_stats_with_counts) -> (mean, invstd, running_mean,
  // running_var).
  r.op("tpu::batch_norm_gather_stats_with_counts_with_stats", gather_stats).fold("momentum", 0.1);
  r.op("tpu::batch_norm_gather_stats_with_stats", [](Context& x, Value input, Value mean,
                                                     Value invstd, const Opt<Value>& running_mean,
                                                     const Opt<Value>& running_var,
                                                     const Scalar& momentum, const Scalar& eps,
                                                     int64_t count) {
     const Value counts = x.b.splat({DType::kF32, {mean.dim(0)}}, count);
     return gather_stats(x, input, mean, invstd, running_mean, running_var, momentum, eps, counts);
   }).fold("momentum", 0.1);
  r.op("aten::batch_norm_elemt", [](Context& x, Value input, const Opt<Value>& weight,
                                    const Opt<Value>& bias, Value mean, Value invstd, double) {
     const Channels c = channels_of(x, input);
     const Value v = x.to_compute(input);
     const auto kept = [&](Value s) { return x.b.reshape(x.convert(s, v.dtype()), c.kept); };
     const Value normal =
         x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, kept(mean)), kept(invstd));
     return x.convert(affine(x, normal, weight, bias, c.kept), input.dtype());
   }).layout(LayoutRule::kChannelsLast);
  r.op("aten::batch_norm_backward_reduce", [](Context& x, Value grad_out, Value input, Value mean,
                                              Value invstd, const Opt<Value>& weight, bool input_g,
                                              bool weight_g, bool bias_g) {
    const Channels c = channels_of(x, input);
    const Value v = x.to_compute(input), g = x.to_compute(grad_out);
    const Value m = x.b.reshape(x.convert(mean, v.dtype()), c.kept);
    const Value sum = sum_over(x, g, c.others, false);
    const Value product = sum_over(x, x.b.mul(g, x.binary(Op::kSubtract, v, m)), c.others, false);
    const DType param = weight ? weight->dtype() : v.dtype();
    std::array<Value, 4> out;
    if (input_g) out[0] = sum, out[1] = product;
    if (weight_g) {
      out[2] = x.convert(x.b.mul(product, x.convert(invstd, v.dtype())), param);
    }
    if (bias_g) out[3] = x.convert(sum, param);
    return out;
  });
  r.op("aten::batch_norm_backward_elemt", [](Context& x, Value grad_out, Value input, Value mean,
                                             Value invstd, const Opt<Value>& weight, Value sum_dy,
                                             Value sum_dy_xmu, Value count) {
     const Channels c = channels_of(x, input);
     const Value v = x.to_compute(input), g = x.to_compute(grad_out);
     const auto kept = [&](Value s) { return x.b.reshape(x.convert(s, v.dtype()), c.kept); };
     const Value counts = x.convert(count, v.dtype());
     const Value total = sum_over(x, counts, x.all_axes(counts), false);
     const auto per_element = [&](Value s) {
       return kept(x.binary(Op::kDivide, x.convert(s, v.dtype()), total));
     };
     const Value inverse = kept(invstd);
     const Value slope = x.b.mul(x.b.mul(inverse, inverse), per_element(sum_dy_xmu));
     const Value along = x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, kept(mean)), slope);
     const Value d = x.b.sub(x.binary(Op::kSubtract, g, per_element(sum_dy)), along);
     const Value scaled = x.binary(Op::kMultiply, d, inverse);
     return x.convert(affine(x, scaled, weight, std::nullopt, c.kept), input.dtype());
   }).layout(LayoutRule::kChannelsLast);
}

}  // namespace

void register_batch_norm(Registry& r) {
  register_plain(r);
  register_synchronized(r);
}

}  // namespace tpu::aten
