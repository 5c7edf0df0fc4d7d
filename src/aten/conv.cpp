// Convolutions: three forms (forward, gradient of the input, gradient of the weight) on native
// dimension numbers, so that nothing is transposed but the weight of a grouped transposed
// convolution. PyTorch's composite `convolution` has checked channels and paddings before it calls
// the overrideable ops. Also sliding windows as data (im2col, col2im, unfold_backward).
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::cpp_type_name;
using ops::scalar_type_name;

struct Conv {
  int64_t spatial;
  Dims stride, padding, dilation;
  int64_t groups;
};

Dims spatial_dims(Value v) { return Dims(v.dims().begin() + 2, v.dims().end()); }
Dims from_2(int64_t n) {
  Dims d;
  for (int64_t i = 0; i < n; ++i) d.push_back(i + 2);
  return d;
}

Value convolve(Ctx& x, Value lhs, Value rhs, const hlo::ConvDims& d, const hlo::ConvWindow& w) {
  const DType t = lhs.dtype();
  const auto p =
      hlo::is_integral(t) || t == DType::kBF16 ? hlo::Precision::kDefault : x.precision();
  // A TPU leaves bfloat16 as it was summed in float32 and rounded: what is stored between two
  // convolutions is half as large.
  const bool narrow = t == DType::kBF16 && !x.on_cpu_plugin();
  return x.b.convolution(lhs, rhs, d, w, p, narrow ? t : hlo::compute_type(t));
}

// A kernel of one element is a matrix product for each image, which XLA's CPU compiler does several
// times faster than the convolution it is written as (8x64x56x56 to 256 channels: 9 against 64 ms;
// its weight gradient 12 against 168). A TPU does not care.
bool is_pointwise(Ctx& x, const Conv& c, const Dims& k) {
  const auto all = [](const Dims& d, int64_t v) {
    return std::all_of(d.begin(), d.end(), [v](int64_t i) { return i == v; });
  };
  return x.on_cpu_plugin() && c.groups == 1 && all(k, 1) && all(c.padding, 0);
}

// The elements of input that a strided kernel of one element sees.
Value strided(Ctx& x, Value input, const Conv& c, const Dims& out) {
  Dims start(at(input.rank()), 0), limit = input.dims(), step(at(input.rank()), 1);
  for (size_t j = 0; j < out.size(); ++j) {
    step[j + 2] = c.stride[j];
    limit[j + 2] = (out[j] - 1) * c.stride[j] + 1;
  }
  return x.b.slice(input, start, limit, step);
}

// weight [o, i, 1...] for each of n images.
Value weight_for_each(Ctx& x, Value weight, int64_t n) {
  const Dims flat{weight.dim(0), weight.dim(1)};
  return x.b.broadcast_in_dim(x.b.reshape(weight, flat), {n, flat[0], flat[1]}, {1, 2});
}

// weight [o, i/g, k...] by input [n, i, s...]. Results are sums, not yet rounded.
Value conv_forward(Ctx& x, Value input, Value weight, const Conv& c, const Dims& out) {
  const int64_t n = c.spatial;
  const Dims in = spatial_dims(input), k = spatial_dims(weight), sp = from_2(n);
  if (is_pointwise(x, c, k)) {
    return wide_dot(x, weight_for_each(x, weight, input.dim(0)), strided(x, input, c, out),
                    {.lhs_batch = {0}, .rhs_batch = {0}, .lhs_contract = {2}, .rhs_contract = {1}});
  }
  hlo::ConvWindow w{.strides = c.stride,
                    .pad_low = c.padding,
                    .rhs_dilation = c.dilation,
                    .feature_groups = c.groups};
  for (int64_t i = 0; i < n; ++i) {
    const size_t j = at(i);
    w.pad_high.push_back((out[j] - 1) * c.stride[j] + (k[j] - 1) * c.dilation[j] + 1 - in[j] -
                         c.padding[j]);
  }
  return convolve(x, input, weight,
                  {.input_spatial = sp, .kernel_spatial = sp, .output_spatial = sp}, w);
}

// XLA's conv-operand-swapper takes an unpadded dim with kernel 2 and dilation 2 for the encoding of
// a group and aborts the process when another dim makes it swap. A reversed window keeps it away;
// elsewhere the kernel itself is reversed, which XLA's CPU convolutions are faster with.
bool trips_operand_swap(const hlo::ConvWindow& w, const Dims& kernel) {
  size_t grouplike = 0;
  for (size_t j = 0; j < kernel.size(); ++j) {
    grouplike += kernel[j] == 2 && w.lhs_dilation[j] == 2 && w.rhs_dilation[j] == 1 &&
                 w.pad_low[j] == 0 && w.pad_high[j] == 0;
  }
  return grouplike > 0 && grouplike < kernel.size();
}

// Adjoint of conv_forward in the input: grad [n, o, s...] and weight [o, i/g, k...] give [n, i,
// in...].
Value conv_input_grad(Ctx& x, Value grad, Value weight, const Conv& c, const Dims& in) {
  const int64_t n = c.spatial;
  const Dims out = spatial_dims(grad), k = spatial_dims(weight), sp = from_2(n);
  if (is_pointwise(x, c, k)) {
    const Value r =
        wide_dot(x, weight_for_each(x, weight, grad.dim(0)), grad,
                 {.lhs_batch = {0}, .rhs_batch = {0}, .lhs_contract = {1}, .rhs_contract = {1}});
    Dims low(at(n + 2), 0), high = low, interior = low;
    for (size_t j = 0; j < out.size(); ++j) {
      interior[j + 2] = c.stride[j] - 1;
      high[j + 2] = in[j] - ((out[j] - 1) * c.stride[j] + 1);
    }
    return x.b.pad(r, x.constant(r.dtype(), 0), low, high, interior);
  }
  hlo::ConvWindow w{.strides = Dims(at(n), 1),
                    .lhs_dilation = c.stride,
                    .rhs_dilation = c.dilation,
                    .feature_groups = c.groups};
  for (int64_t i = 0; i < n; ++i) {
    const size_t j = at(i);
    const int64_t reach = (k[j] - 1) * c.dilation[j], low = reach - c.padding[j];
    w.pad_low.push_back(low);
    w.pad_high.push_back(in[j] + reach - ((out[j] - 1) * c.stride[j] + 1) - low);
  }
  if (c.groups >
      1) {  // [g, o/g, i/g, k...] -> [o/g, g, i/g, k...]: every group's inputs side by side
    const int64_t o = weight.dim(0) / c.groups, i = weight.dim(1);
    Dims split{c.groups, o, i}, swap{1, 0, 2}, joined{o, c.groups * i};
    for (int64_t d = 0; d < n; ++d) {
      split.push_back(k[at(d)]);
      swap.push_back(d + 3);
      joined.push_back(k[at(d)]);
    }
    weight = x.b.reshape(x.b.transpose(x.b.reshape(weight, split), swap), joined);
  }
  const hlo::ConvDims d{.input_spatial = sp,
                        .kernel_input_feature = 0,
                        .kernel_output_feature = 1,
                        .kernel_spatial = sp,
                        .output_spatial = sp};
  if (trips_operand_swap(w, k)) {
    w.reversal = std::vector<bool>(at(n), true);
  } else {
    weight = x.b.reverse(weight, sp);
  }
  return convolve(x, grad, weight, d, w);
}

// Adjoint in the weight: input [n, i, s...] and grad [n, o, s...] give [o, i/g, k...]. The batch is
// what is contracted.
Value conv_weight_grad(Ctx& x, Value input, Value grad, const Conv& c, const Dims& k) {
  const int64_t n = c.spatial;
  const Dims in = spatial_dims(input), out = spatial_dims(grad), sp = from_2(n);
  if (is_pointwise(x, c, k)) {
    const Value each =
        wide_dot(x, grad, strided(x, input, c, out),
                 {.lhs_batch = {0}, .rhs_batch = {0}, .lhs_contract = sp, .rhs_contract = sp});
    Dims dims{each.dim(1), each.dim(2)};
    dims.insert(dims.end(), k.begin(), k.end());
    return x.b.reshape(x.sum(each, {0}), dims);
  }
  hlo::ConvWindow w{.strides = c.dilation,
                    .pad_low = c.padding,
                    .rhs_dilation = c.stride,
                    .batch_groups = c.groups};
  for (int64_t i = 0; i < n; ++i) {
    const size_t j = at(i);
    w.pad_high.push_back((k[j] - 1) * c.dilation[j] + (out[j] - 1) * c.stride[j] + 1 - in[j] -
                         c.padding[j]);
  }
  return convolve(x, input, grad,
                  {.input_batch = 1,
                   .input_feature = 0,
                   .input_spatial = sp,
                   .kernel_input_feature = 0,
                   .kernel_output_feature = 1,
                   .kernel_spatial = sp,
                   .output_batch = 1,
                   .output_feature = 0,
                   .output_spatial = sp},
                  w);
}

Conv make_conv(Ctx& x, Value input, Value weight, const Dims& stride, const Dims& padding,
               const Dims& dilation, int64_t groups) {
  Conv c;
  c.spatial = input.rank() - 2;
  x.check(c.spatial >= 1 && c.spatial <= 3 && weight.rank() == input.rank(), "Expected ",
          weight.rank() - 1, "D (unbatched) or ", weight.rank(),
          "D (batched) input to convolution, but got input of size: ", input.dims());
  x.check(input.dtype() == weight.dtype(), "expected scalar type ", scalar_type_name(input.dtype()),
          " but found ", scalar_type_name(weight.dtype()));
  x.check_supported(!hlo::is_bool(input.dtype()), "\"slow_conv2d_cpu\" not implemented for 'Bool'");
  x.check_supported(
      x.on_cpu_plugin() || hlo::size_bytes(input.dtype()) < 8 || hlo::is_float(input.dtype()),
      "TPU compilers have no convolution of ", hlo::torch_name(input.dtype()),
      "; convert to int32");
  c.stride = per_dim(x, stride, c.spatial, "stride");
  c.padding = per_dim(x, padding, c.spatial, "padding");
  c.dilation = per_dim(x, dilation, c.spatial, "dilation");
  const auto least = [](const Dims& d) { return *std::min_element(d.begin(), d.end()); };
  x.check(least(c.stride) > 0, "non-positive stride is not supported");
  x.check(least(c.padding) >= 0, "negative padding is not supported");
  x.check(least(c.dilation) > 0, "dilation should be greater than zero, but got ", c.dilation);
  x.check(groups > 0, "non-positive groups is not supported");
  c.groups = groups;
  return c;
}

Dims out_size(Ctx& x, Value input, Value weight, const Conv& c, bool transposed,
              const Dims& output_padding) {
  const Dims in = spatial_dims(input), k = spatial_dims(weight);
  Dims out, padded, reached;
  for (size_t j = 0; j < k.size(); ++j) {
    const int64_t reach = c.dilation[j] * (k[j] - 1);
    padded.push_back(in[j] + 2 * c.padding[j]);
    reached.push_back(reach + 1);
    out.push_back(transposed
                      ? (in[j] - 1) * c.stride[j] - 2 * c.padding[j] + reach + output_padding[j] + 1
                      : (padded[j] - reach - 1) / c.stride[j] + 1);
  }
  for (size_t j = 0; j < k.size(); ++j) {
    x.check(transposed || padded[j] >= reached[j], "Calculated padded input size per channel: (",
            join(padded, " x "), "). Kernel size: (", join(reached, " x "),
            "). Kernel size can't be greater than actual input size");
    x.check(out[j] > 0, "Given input size per channel: (", join(in, " x "),
            "). Calculated output size per channel: (", join(out, " x "),
            "). Output size is too small");
  }
  return out;
}

Value add_bias(Ctx& x, Value sums, Opt<Value> bias, DType t) {
  if (!bias) return x.convert(sums, t);
  x.check(bias->dtype() == t, "Input type (", cpp_type_name(t), ") and bias type (",
          cpp_type_name(bias->dtype()), ") should be the same");
  x.check(bias->rank() == 1 && bias->dim(0) == sums.dim(1),
          "expected bias to be 1-dimensional with ", sums.dim(1),
          " elements, but got bias of size ", bias->dims(), " instead");
  sums = x.to_compute(sums);
  return x.convert(x.b.add(sums, along(x, x.convert(*bias, sums.dtype()), sums.dims(), 1)), t);
}

Value convolution(Ctx& x, Value input, Value weight, Opt<Value> bias, Dims stride, Dims padding,
                  Dims dilation, bool transposed, Dims output_padding, int64_t groups) {
  const Conv c = make_conv(x, input, weight, stride, padding, dilation, groups);
  const int64_t in_channels = transposed ? weight.dim(0) : weight.dim(1) * groups;
  x.check(weight.dim(0) % groups == 0, "Given groups=", groups,
          ", expected weight to be divisible by ", groups,
          " at dimension 0, but got weight of size [", weight.dims(), "] instead");
  x.check(input.dim(1) == in_channels, "Given ",
          transposed ? "transposed=" : "groups=", transposed ? 1 : groups, ", weight of size ",
          weight.dims(), ", expected input", input.dims(), " to have ", in_channels,
          " channels, but got ", input.dim(1), " channels instead");
  const Dims extra =
      transposed ? per_dim(x, output_padding, c.spatial, "output_padding") : Dims(at(c.spatial), 0);
  for (size_t j = 0; j < extra.size(); ++j) {
    x.check(
        extra[j] >= 0 && (extra[j] == 0 || extra[j] < std::max(c.stride[j], c.dilation[j])),
        "output padding must be smaller than either stride or dilation, but got output_padding: ",
        extra, " stride: ", c.stride, " dilation: ", c.dilation);
  }
  const Dims out = out_size(x, input, weight, c, transposed, extra);
  Dims result{input.dim(0), transposed ? weight.dim(1) * groups : weight.dim(0)};
  result.insert(result.end(), out.begin(), out.end());
  const DType wide = hlo::compute_type(input.dtype());
  Value sums;
  if (input.numel() == 0 || weight.numel() == 0) {
    sums = x.zeros({wide, result});
  } else {
    sums = transposed ? conv_input_grad(x, input, weight, c, out)
                      : conv_forward(x, input, weight, c, out);
  }
  return add_bias(x, sums, bias, input.dtype());
}

std::array<Value, 3> convolution_backward(Ctx& x, Value grad, Value input, Value weight,
                                          const Dims& stride, const Dims& padding,
                                          const Dims& dilation, bool transposed,
                                          [[maybe_unused]] const Dims& output_padding,
                                          int64_t groups, const std::vector<bool>& mask) {
  const Conv c = make_conv(x, input, weight, stride, padding, dilation, groups);
  x.check(grad.rank() == input.rank() && grad.dim(0) == input.dim(0), "grad_output ", grad.dims(),
          " does not fit the input ", input.dims());
  const DType t = input.dtype();
  const bool empty = grad.numel() == 0 || input.numel() == 0 || weight.numel() == 0;
  std::array<Value, 3> r;
  if (mask[0]) {
    r[0] = empty        ? x.zeros(input.type())
           : transposed ? conv_forward(x, grad, weight, c, spatial_dims(input))
                        : conv_input_grad(x, grad, weight, c, spatial_dims(input));
    r[0] = x.convert(r[0], t);
  }
  if (mask[1]) {
    r[1] = empty        ? x.zeros(weight.type())
           : transposed ? conv_weight_grad(x, grad, input, c, spatial_dims(weight))
                        : conv_weight_grad(x, input, grad, c, spatial_dims(weight));
    r[1] = x.convert(r[1], t);
  }
  if (mask[2]) {
    Dims axes = from_2(c.spatial);
    axes.insert(axes.begin(), 0);
    r[2] = x.sum(grad, axes);
  }
  return r;
}

// The "slow" kernels by name, one spatial rank each; an unbatched input gets a batch.
Value direct(Ctx& x, Value self, Value weight, const Dims& kernel, Opt<Value> bias,
             const Dims& stride, const Dims& padding, const Dims& dilation, bool transposed,
             const Dims& output_padding, int64_t groups) {
  x.check(spatial_dims(weight) == per_dim(x, kernel, weight.rank() - 2, "kernel_size"),
          "kernel_size ", kernel, " differs from that of the weight ", weight.dims());
  const bool unbatched = self.rank() == weight.rank() - 1;
  const Value r = convolution(x, unbatched ? x.unsqueeze(self, 0) : self, weight, bias, stride,
                              padding, dilation, transposed, output_padding, groups);
  return unbatched ? x.squeeze(r, 0) : r;
}

Value conv_tbc(Ctx& x, Value self, Value weight, Value bias, int64_t pad) {
  x.check(self.rank() == 3, "Input must have 3 dims: time, batch, in_channel");
  x.check(weight.rank() == 3,
          "Weight tensor must have 3 dims: kernel_width, in_channels, out_channels.");
  x.check(bias.rank() == 1, "Bias must be 1-D");
  x.check(self.dim(2) == weight.dim(1),
          "Input dim 2 (input channels) is not == dim 1 in the weight tensor. Got ", self.dim(2),
          " and ", weight.dim(1));
  x.check(bias.dim(0) == weight.dim(2),
          "Bias size must equal dim 2 in the weight tensor (output channels).");
  const int64_t out = self.dim(0) - weight.dim(0) + 1 + 2 * pad;
  x.check(out >= 0, "Kernel size can't be greater than actual input size: ", weight.dim(0), " and ",
          self.dim(0));
  const Type result{hlo::compute_type(self.dtype()), {out, self.dim(1), weight.dim(2)}};
  Value sums = x.zeros(result);
  if (self.numel() > 0 && weight.numel() > 0 && result.numel() > 0) {
    sums = convolve(x, self, weight,
                    {.input_batch = 1,
                     .input_feature = 2,
                     .input_spatial = {0},
                     .kernel_input_feature = 1,
                     .kernel_output_feature = 2,
                     .kernel_spatial = {0},
                     .output_batch = 1,
                     .output_feature = 2,
                     .output_spatial = {0}},
                    {.strides = {1},
                     .pad_low = {pad},
                     .pad_high = {pad},
                     .lhs_dilation = {1},
                     .rhs_dilation = {1}});
  }
  sums = x.to_compute(sums);
  return x.convert(x.b.add(sums, along(x, x.convert(bias, sums.dtype()), sums.dims(), 2)),
                   self.dtype());
}

Dims ones(const Dims& like) { return Dims(like.size(), 1); }
Dims none(const Dims& like) { return Dims(like.size(), 0); }

}  // namespace

void register_conv(ops::Registry& r) {
  const auto channels_last = ops::LayoutRule::kChannelsLast;
  r.op("aten::convolution_overrideable", convolution).layout(channels_last);
  r.op("aten::convolution_backward_overrideable", [](Ctx& x, Value grad_output, Value input,
                                                     Value weight, Dims stride, Dims padding,
                                                     Dims dilation, bool transposed,
                                                     Dims output_padding, int64_t groups,
                                                     std::vector<bool> output_mask) {
     return convolution_backward(x, grad_output, input, weight, stride, padding, dilation,
                                 transposed, output_padding, groups, output_mask);
   }).layout(channels_last);
  for (const char* name : {"aten::_slow_conv2d_forward", "aten::slow_conv3d_forward"}) {
    r.op(name, [](Ctx& x, Value self, Value weight, Dims kernel_size, Opt<Value> bias, Dims stride,
                  Dims padding) {
       return direct(x, self, weight, kernel_size, bias, stride, padding, ones(stride), false, {},
                     1);
     }).layout(channels_last);
  }
  r.op("aten::_slow_conv2d_backward.output_mask", [](Ctx& x, Value grad_output, Value self,
                                                     Value weight,
                                                     [[maybe_unused]] Dims kernel_size, Dims stride,
                                                     Dims padding, std::vector<bool> output_mask) {
     return convolution_backward(x, grad_output, self, weight, stride, padding, ones(stride), false,
                                 none(stride), 1, output_mask);
   }).layout(channels_last);
  for (const char* name : {"aten::slow_conv_dilated2d", "aten::slow_conv_dilated3d"}) {
    r.op(name, [](Ctx& x, Value self, Value weight, Dims kernel_size, Opt<Value> bias, Dims stride,
                  Dims padding, Dims dilation) {
       return direct(x, self, weight, kernel_size, bias, stride, padding, dilation, false, {}, 1);
     }).layout(channels_last);
  }
  for (const char* name : {"aten::slow_conv_transpose2d", "aten::slow_conv_transpose3d"}) {
    r.op(name, [](Ctx& x, Value self, Value weight, Dims kernel_size, Opt<Value> bias, Dims stride,
                  Dims padding, Dims output_padding, Dims dilation) {
       return direct(x, self, weight, kernel_size, bias, stride, padding, dilation, true,
                     output_padding, 1);
     }).layout(channels_last);
  }
  for (const char* name : {"aten::_conv_depthwise2d", "aten::conv_depthwise3d"}) {
    r.op(name, [](Ctx& x, Value self, Value weight, Dims kernel_size, Opt<Value> bias, Dims stride,
                  Dims padding, Dims dilation) {
       return direct(x, self, weight, kernel_size, bias, stride, padding, dilation, false, {},
                     self.dim(1));
     }).layout(channels_last);
  }
  r.op("aten::conv_tbc", conv_tbc);
  register_sliding(r);
}

}  // namespace tpu::aten
