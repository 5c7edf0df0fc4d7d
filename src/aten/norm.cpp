// Layer, RMS, group and weight normalisation. Statistics are in the type that the input is computed
// in (float32 for half precision), as PyTorch's own decompositions have them on a device other than
// the CPU; group norm's, there as here, in the input's type.
#include <algorithm>
#include <limits>

#include "aten/all.h"
#include "aten/norm.h"
#include "aten/reduce.h"

namespace tpu::aten {

using namespace ops;

namespace {

// ---- Layer and RMS norm: over the trailing dims.

struct Trailing {
  Dims leading, trailing;  // axes
};

Trailing split_axes(const Context& x, Value input, const Dims& shape, const Opt<Value>& weight,
                    const Opt<Value>& bias) {
  x.check(!shape.empty(),
          "Expected normalized_shape to be at least 1-dimensional, i.e., containing at least one "
          "element, but got normalized_shape = ",
          shape);
  const auto check_param = [&](const char* name, const Opt<Value>& p) {
    x.check(!p || p->dims() == shape, "Expected ", name,
            " to be of same shape as normalized_shape, but got ", name, " of shape ",
            p ? p->dims() : Dims{}, " and normalized_shape = ", shape);
  };
  check_param("weight", weight);
  check_param("bias", bias);
  const Dims& dims = input.dims();
  x.check(
      dims.size() >= shape.size() &&
          std::equal(shape.begin(), shape.end(), dims.end() - static_cast<int64_t>(shape.size())),
      "Given normalized_shape=", shape, ", expected input with shape [*, ", join(shape),
      "], but got input of size", dims);
  Trailing t;
  const int64_t lead = input.rank() - static_cast<int64_t>(shape.size());
  for (int64_t i = 0; i < input.rank(); ++i) (i < lead ? t.leading : t.trailing).push_back(i);
  return t;
}

std::array<Value, 3> layer_norm(Context& x, Value input, const Dims& shape,
                                const Opt<Value>& weight, const Opt<Value>& bias,
                                const Scalar& eps) {
  const Dims axes = split_axes(x, input, shape, weight, bias).trailing;
  check_real(x, input.dtype(), "LayerNormKernelImpl");
  const Value v = x.to_compute(input);
  const auto [mean, squares] = moments(x, v, axes);
  const auto n = static_cast<double>(reduced_count(v, axes));
  const Value rstd = inverse_root(x, x.b.div(squares, x.like(squares, n)), eps);
  const Value normal = x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, mean), rstd);
  return {x.convert(affine(x, normal, weight, bias, shape), input.dtype()), mean, rstd};
}

std::array<Value, 3> layer_norm_backward(Context& x, Value grad_out, Value input, const Dims& shape,
                                         Value mean, Value rstd, const Opt<Value>& weight,
                                         const Opt<Value>& bias, const std::vector<bool>& mask) {
  const auto [leading, trailing] = split_axes(x, input, shape, weight, bias);
  check_real(x, input.dtype(), "LayerNormBackwardKernelImpl");
  const Value v = x.to_compute(input), g = x.to_compute(grad_out);
  const Value m = x.convert(mean, v.dtype()), r = x.convert(rstd, v.dtype());
  const Value normal = x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, m), r);
  std::array<Value, 3> out;
  if (mask[0]) {
    const Value gw = affine(x, g, weight, std::nullopt, shape);
    out[0] = x.convert(normalized_gradient(x, gw, normal, r, trailing, true), input.dtype());
  }
  if (mask[1] && weight) {
    out[1] = x.convert(sum_over(x, x.b.mul(g, normal), leading, false), weight->dtype());
  }
  if (mask[2] && bias) out[2] = x.convert(sum_over(x, g, leading, false), bias->dtype());
  return out;
}

std::array<Value, 2> rms_norm(Context& x, Value input, const Dims& shape, const Opt<Value>& weight,
                              const Opt<Scalar>& eps) {
  const Dims axes = split_axes(x, input, shape, weight, std::nullopt).trailing;
  check_real(x, input.dtype(), "rms_norm");
  const Value v = x.to_compute(input);
  const double smallest = v.dtype() == DType::kF64 ? std::numeric_limits<double>::epsilon()
                                                   : std::numeric_limits<float>::epsilon();
  const Value mean = mean_over(x, x.b.mul(v, v), axes);
  const Value rstd = eps ? inverse_root(x, mean, *eps)
                         : x.b.unary(Op::kRsqrt, x.b.add(mean, x.like(mean, smallest)));
  const Value normal = x.binary(Op::kMultiply, v, rstd);
  return {x.convert(affine(x, normal, weight, std::nullopt, shape), input.dtype()), rstd};
}

std::array<Value, 2> rms_norm_backward(Context& x, Value grad_out, Value input, const Dims& shape,
                                       Value rstd, const Opt<Value>& weight,
                                       const std::vector<bool>& mask) {
  const auto [leading, trailing] = split_axes(x, input, shape, weight, std::nullopt);
  check_real(x, input.dtype(), "rms_norm_backward");
  const Value v = x.to_compute(input), g = x.to_compute(grad_out);
  const Value r = x.convert(rstd, v.dtype());
  const Value normal = x.binary(Op::kMultiply, v, r);
  std::array<Value, 2> out;
  if (mask[0]) {
    const Value gw = affine(x, g, weight, std::nullopt, shape);
    out[0] = x.convert(normalized_gradient(x, gw, normal, r, trailing, false), input.dtype());
  }
  if (mask[1] && weight) {
    out[1] = x.convert(sum_over(x, x.b.mul(g, normal), leading, false), weight->dtype());
  }
  return out;
}

// ---- Group norm. Channels are split into [group, channel]; spatial dims stay as they are.

struct Groups {
  Dims split;     // [N, group, C / group, spatial...]
  Dims axes;      // all but the first two of split
  Dims stats;     // [N, group, 1, 1, ...]
  Dims channels;  // [C, 1, 1, ...], to broadcast a parameter
};

Groups split_groups(const Context& x, Value input, int64_t group, const Opt<Value>& weight,
                    const Opt<Value>& bias) {
  x.check(input.rank() >= 2, "Expected at least 2 dimensions for input tensor but received ",
          input.rank());
  x.check(group > 0, "Expected num groups to be greater than 0, got ", group);
  const int64_t channels = input.dim(1);
  x.check(channels % group == 0,
          "Expected number of channels in input to be divisible by num_groups, but got input of "
          "shape ",
          input.dims(), " and num_groups=", group);
  const auto check_param = [&](const char* name, const Opt<Value>& p) {
    x.check(!p || p->dims() == Dims{channels}, "Expected ", name,
            " to be a vector of size equal to the number of channels in input, but got ", name,
            " of shape ", p ? p->dims() : Dims{}, " and input of shape ", input.dims());
  };
  check_param("weight", weight);
  check_param("bias", bias);
  Groups g;
  g.split = {input.dim(0), group, channels / group};
  g.split.insert(g.split.end(), input.dims().begin() + 2, input.dims().end());
  g.stats = Dims(g.split.size(), 1);
  g.stats[0] = input.dim(0);
  g.stats[1] = group;
  for (size_t i = 2; i < g.split.size(); ++i) g.axes.push_back(static_cast<int64_t>(i));
  g.channels = Dims(input.dims().size() - 1, 1);
  g.channels[0] = channels;
  return g;
}

std::array<Value, 3> group_norm(Context& x, Value input, const Opt<Value>& weight,
                                const Opt<Value>& bias, int64_t, int64_t, int64_t, int64_t group,
                                const Scalar& eps) {
  const Groups g = split_groups(x, input, group, weight, bias);
  check_real(x, input.dtype(), "GroupNormKernelImpl");
  const Value v = x.b.reshape(x.to_compute(input), g.split);
  const auto [mean, squares] = moments(x, v, g.axes);
  const auto n = static_cast<double>(reduced_count(v, g.axes));
  const Value rstd = inverse_root(x, x.b.div(squares, x.like(squares, n)), eps);
  const Value normal = x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, mean), rstd);
  const Value out = affine(x, x.b.reshape(normal, input.dims()), weight, bias, g.channels);
  const auto stat = [&](Value s) {
    return x.b.reshape(x.convert(s, input.dtype()), {g.split[0], group});
  };
  return {x.convert(out, input.dtype()), stat(mean), stat(rstd)};
}

std::array<Value, 3> group_norm_backward(Context& x, Value grad_out, Value input, Value mean,
                                         Value rstd, const Opt<Value>& weight, int64_t, int64_t,
                                         int64_t, int64_t group, const std::vector<bool>& mask) {
  const Groups g = split_groups(x, input, group, weight, std::nullopt);
  check_real(x, input.dtype(), "GroupNormBackwardKernelImpl");
  const auto split = [&](Value t) { return x.b.reshape(x.to_compute(t), g.split); };
  const Value v = split(input), grad = split(grad_out);
  const auto stat = [&](Value s) { return x.b.reshape(x.convert(s, v.dtype()), g.stats); };
  const Value r = stat(rstd);
  const Value offset = x.binary(Op::kSubtract, v, stat(mean));
  // Two sums over the elements of each sample and channel give all three gradients.
  const Dims spatial(g.axes.begin() + 1, g.axes.end());
  const Value sum = sum_over(x, grad, spatial, true);
  const Value product =
      x.binary(Op::kMultiply, sum_over(x, x.b.mul(grad, offset), spatial, true), r);
  std::array<Value, 3> out;
  if (mask[0]) {
    const auto scaled = [&](Value t) {
      if (!weight) return t;
      Dims channels(g.split.size(), 1);
      channels[1] = g.split[1], channels[2] = g.split[2];
      return x.binary(Op::kMultiply, t, x.b.reshape(x.convert(*weight, v.dtype()), channels));
    };
    const auto mean_of = [&](Value t) {  // of a group's elements, from sums of its channels
      const Value total = sum_over(x, scaled(t), {2}, true);
      return x.b.div(total, x.like(total, static_cast<double>(reduced_count(v, g.axes))));
    };
    const Value slope = x.b.mul(r, mean_of(product));
    Value d = x.binary(Op::kSubtract, scaled(grad), mean_of(sum));
    d = x.b.sub(d, x.binary(Op::kMultiply, offset, slope));
    d = x.b.reshape(x.binary(Op::kMultiply, d, r), input.dims());
    out[0] = x.convert(d, input.dtype());
  }
  const DType param = weight ? weight->dtype() : input.dtype();
  const auto parameter = [&](Value t) {
    return x.convert(x.b.reshape(sum_over(x, t, {0}, true), {input.dim(1)}), param);
  };
  if (mask[1]) out[1] = parameter(product);
  if (mask[2]) out[2] = parameter(sum);
  return out;
}

// ---- Weight norm: w = v * g / |v|, with a norm for each index of `dim`.

Dims weight_norm_axes(const Context& x, Value v, int64_t dim) {
  x.check(dim == 0 || dim == v.rank() - 1,
          "fused kernels can only be applied for first or last dim, got dim ", dim);
  Dims axes;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != dim) axes.push_back(i);
  }
  return axes;
}

std::array<Value, 2> weight_norm(Context& x, Value v, Value g, int64_t dim) {
  check_real(x, v.dtype(), "weight_norm_kernel");
  const Dims axes = weight_norm_axes(x, v, dim);
  const Value wide = x.to_compute(v);
  const Value norm = x.b.unary(Op::kSqrt, sum_over(x, x.b.mul(wide, wide), axes, true));
  const Value gain = x.b.div(x.b.reshape(x.convert(g, wide.dtype()), norm.dims()), norm);
  return {x.convert(x.binary(Op::kMultiply, wide, gain), v.dtype()), x.b.reshape(norm, g.dims())};
}

std::array<Value, 2> weight_norm_backward(Context& x, Value grad_w, Value v, Value g, Value norms,
                                          int64_t dim) {
  check_real(x, v.dtype(), "weight_norm_backward_kernel");
  const Dims axes = weight_norm_axes(x, v, dim);
  const Value wide = x.to_compute(v), gw = x.to_compute(grad_w);
  const Value product = sum_over(x, x.b.mul(gw, wide), axes, true);
  const auto kept = [&](Value s) {
    return x.b.reshape(x.convert(s, wide.dtype()), product.dims());
  };
  const Value norm = kept(norms);
  const Value along = x.b.div(product, x.b.mul(norm, norm));
  const Value d = x.b.sub(gw, x.binary(Op::kMultiply, wide, along));
  const Value grad_v = x.binary(Op::kMultiply, d, x.b.div(kept(g), norm));
  return {x.convert(grad_v, v.dtype()),
          x.convert(x.b.reshape(x.b.div(product, norm), g.dims()), g.dtype())};
}

}  // namespace

Value sum_over(Context& x, Value v, const Dims& axes, bool keepdim) {
  return x.reduce(v, x.constant(v.dtype(), 0), axes, keepdim, Op::kAdd);
}

Value mean_over(Context& x, Value v, const Dims& axes) {
  const Value sum = sum_over(x, v, axes, true);
  return x.b.div(sum, x.like(sum, static_cast<double>(reduced_count(v, axes))));
}

Value inverse_root(Context& x, Value var, const Scalar& eps) {
  return x.b.unary(Op::kRsqrt, x.b.add(var, x.scalar_like(eps, var)));
}

void check_real(const Context& x, DType t, const char* kernel) {
  x.check_supported(hlo::is_float(t) && !hlo::is_float8(t), '"', kernel, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

Value affine(Context& x, Value v, const Opt<Value>& weight, const Opt<Value>& bias,
             const Dims& shape) {
  const auto param = [&](Value p) { return x.b.reshape(x.convert(p, v.dtype()), shape); };
  if (weight) v = x.binary(Op::kMultiply, v, param(*weight));
  if (bias) v = x.binary(Op::kAdd, v, param(*bias));
  return v;
}

Value normalized_gradient(Context& x, Value grad, Value normal, Value rstd, const Dims& axes,
                          bool centred) {
  const Value slope = mean_over(x, x.b.mul(grad, normal), axes);
  if (centred) grad = x.binary(Op::kSubtract, grad, mean_over(x, grad, axes));
  grad = x.b.sub(grad, x.binary(Op::kMultiply, normal, slope));
  return x.binary(Op::kMultiply, grad, rstd);
}

void register_norm(Registry& r) {
  r.op("aten::native_layer_norm", layer_norm);
  r.op("aten::native_layer_norm_backward", layer_norm_backward);
  r.op("aten::_fused_rms_norm", rms_norm);
  r.op("aten::_fused_rms_norm_backward", rms_norm_backward).elementwise();
  r.op("aten::native_group_norm", group_norm).layout(LayoutRule::kChannelsLast);
  r.op("aten::native_group_norm_backward", group_norm_backward).layout(LayoutRule::kChannelsLast);
  register_batch_norm(r);
  r.op("aten::_weight_norm_interface", weight_norm);
  r.op("aten::_weight_norm_interface_backward", weight_norm_backward);
}

}  // namespace tpu::aten
