#include <limits>

#include "aten/all.h"

namespace tpu::aten {

using namespace ops;

namespace {

struct Kind {
  const char *forward, *backward, *kernel, *argument;
  bool log;
};
constexpr Kind kKinds[] = {
    {"aten::_softmax", "aten::_softmax_backward_data", "softmax_kernel_impl", "softmax_backward",
     false},
    {"aten::_log_softmax", "aten::_log_softmax_backward_data", "log_softmax_kernel_impl",
     "log_softmax_backward", true},
};

void check_real(const Context& x, DType t, const char* kernel) {
  x.check_supported(hlo::is_float(t) && !hlo::is_float8(t), '"', kernel, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

Value sum_kept(Context& x, Value v, const Dims& axes) {
  if (const Value known = axes.size() == 1 ? x.b.known_sum(v, axes[0]) : Value()) {
    Dims kept = v.dims();
    kept[static_cast<size_t>(axes[0])] = 1;
    return x.b.reshape(known, kept);
  }
  return x.reduce(v, x.constant(v.dtype(), 0), axes, true, Op::kAdd);
}

Value softmax(Context& x, Value v, const Dims& axes, bool log) {
  const Value shifted = x.binary(Op::kSubtract, v, x.max(v, axes, true));
  const Value powers = x.b.unary(Op::kExponential, shifted);
  const Value sum = sum_kept(x, powers, axes);
  return log ? x.binary(Op::kSubtract, shifted, x.b.unary(Op::kLog, sum))
             : x.binary(Op::kDivide, powers, sum);
}

Value forward(Context& x, const Kind& k, Value self, int64_t dim, bool half_to_float) {
  const Dims axes = x.axes(Dims{dim}, self);
  check_real(x, self.dtype(), k.kernel);
  x.check(!half_to_float || self.dtype() == DType::kF16 || self.dtype() == DType::kBF16,
          "conversion is supported for Half type only");
  const Value r = softmax(x, x.to_compute(self), axes, k.log);
  return half_to_float ? r : x.convert(r, self.dtype());
}

Value backward(Context& x, const Kind& k, Value grad, Value output, int64_t dim,
               DType input_dtype) {
  x.check(grad.dims() == output.dims(),
          "Expected tensor for argument #1 'grad' to have same size as tensor for argument #2 "
          "'output'; but ",
          grad.dims(), " does not equal ", output.dims(), " (while checking arguments for ",
          k.argument, ")");
  check_real(x, grad.dtype(), k.kernel);
  const bool from_half =  // the forward pass was asked to give float32 for half precision
      grad.dtype() == DType::kF32 && (input_dtype == DType::kF16 || input_dtype == DType::kBF16);
  x.check(grad.dtype() == input_dtype || from_half, "expected scalar type ",
          scalar_type_name(grad.dtype()), " but found ", scalar_type_name(input_dtype));
  const Dims axes = x.axes(Dims{dim}, grad);
  const Value g = x.to_compute(grad), y = x.to_compute(output);
  const Value r = k.log ? x.b.sub(g, x.binary(Op::kMultiply, x.b.unary(Op::kExponential, y),
                                              sum_kept(x, g, axes)))
                        : x.b.mul(x.binary(Op::kSubtract, g, sum_kept(x, x.b.mul(g, y), axes)), y);
  return x.convert(r, input_dtype);
}

// The mask at the input's dims: mask_type 0 is [L, L], 1 is [B, L], 2 is the input's shape.
Value full_mask(Context& x, Value self, Value mask, Opt<int64_t> type) {
  x.check(hlo::is_bool(mask.dtype()), "Mask should be a boolean tensor");
  if (mask.rank() != 2 || self.rank() != 4) type = 2;  // the small forms are for attention scores
  x.check(type.has_value(), "Mask Type should be defined");
  x.check(*type >= 0 && *type <= 2,
          "Mask Type should be 0 (src_mask) or 1 (src_key_padding_mask), or 2 (default_mask)");
  if (*type == 2) {
    x.check(self.dims() == mask.dims(), "For mask_type == 2 mask shape should match input shape");
    return mask;
  }
  const int64_t length = self.dim(2);
  if (*type == 1) {
    x.check(mask.dim(0) == self.dim(0) && mask.dim(1) == length,
            "For mask_type == 1 mask shape should be (B, L)");
    return x.broadcast(x.b.reshape(mask, {self.dim(0), 1, 1, length}), self.dims());
  }
  x.check(mask.dim(0) == length && mask.dim(1) == length,
          "For mask_type == 0 mask shape should be (L, L)");
  return x.broadcast(x.b.reshape(mask, {1, 1, length, length}), self.dims());
}

// Softmax over the elements whose mask is false; the others become 0, rows without any NaN.
Value masked_softmax(Context& x, Value self, Value mask, Opt<int64_t> dim, Opt<int64_t> mask_type) {
  check_real(x, self.dtype(), "masked_softmax");
  const Value hidden = full_mask(x, self, mask, mask_type);
  const Dims axes = x.axes(Dims{dim.value_or(-1)}, self);
  const Value v = x.to_compute(self);
  const Value visible = x.b.select(hidden, x.like(v, -std::numeric_limits<double>::infinity()), v);
  return x.convert(softmax(x, visible, axes, false), self.dtype());
}

Value masked_softmax_backward(Context& x, Value grad, Value output, Value mask, Opt<int64_t> dim) {
  x.check(hlo::is_bool(mask.dtype()), "Mask should be a boolean tensor");
  x.check(grad.dims() == mask.dims(), "Mask shape should match grad shape");
  const Dims axes = x.axes(Dims{dim.value_or(-1)}, grad);
  const Value y = x.to_compute(output), none = x.like(y, 0);
  const Value g = x.b.select(mask, none, x.to_compute(grad));
  const Value sum = sum_kept(x, x.b.select(mask, none, x.b.mul(g, y)), axes);
  const Value r = x.b.select(mask, none, x.b.mul(x.binary(Op::kSubtract, g, sum), y));
  return x.convert(r, grad.dtype());
}

}  // namespace

void register_softmax(Registry& r) {
  for (const Kind& k : kKinds) {
    r.op(k.forward, [&k](Context& x, Value self, int64_t dim, bool half_to_float) {
      return forward(x, k, self, dim, half_to_float);
    });
    r.op(k.backward, [&k](Context& x, Value grad, Value output, int64_t dim, DType input_dtype) {
      return backward(x, k, grad, output, dim, input_dtype);
    });
  }
  r.op("aten::_masked_softmax", masked_softmax);
  r.op("aten::_masked_softmax_backward", masked_softmax_backward);
}

}  // namespace tpu::aten
