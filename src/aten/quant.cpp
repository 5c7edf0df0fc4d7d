// Quantisation on ordinary tensors: simulated (fake) quantisation with its observer, and products
// with packed or scaled 8- and 4-bit operands. Tensors of quantised dtypes have no device form.
#include <cmath>
#include <limits>
#include <tuple>

#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::scalar_type_name;

// ---- Fake quantisation.

// x / scale + zero_point, rounded; then what the clamped value stands for, and where nothing was
// clamped. scale and zero_point are of x's dims and type.
struct Rounded {
  Value q, clamped, inside;
};

Rounded round_to_grid(Ctx& x, Value v, Value inverse_scale, Value zero_point, int64_t quant_min,
                      int64_t quant_max, bool round_last = false) {
  auto& b = x.b;
  const Value low = x.like(v, static_cast<double>(quant_min)),
              high = x.like(v, static_cast<double>(quant_max));
  const Value scaled = b.mul(v, inverse_scale);
  const Value q = round_last ? b.unary(Op::kRoundNearestEven, b.add(scaled, zero_point))
                             : b.add(b.unary(Op::kRoundNearestEven, scaled), zero_point);
  Rounded r{q, {}, {}};
  // NaN becomes quant_min.
  r.clamped = b.select(b.compare(Cmp::kGe, q, low), b.minimum(q, high), low);
  r.inside = b.logical_and(b.compare(Cmp::kGe, q, low), b.compare(Cmp::kLe, q, high));
  return r;
}

std::array<Value, 2> fake_quantize(Ctx& x, Value self, Value scale, Value zero_point,
                                   int64_t quant_min, int64_t quant_max, bool round_last = false) {
  const Value v = x.to_compute(self);
  const Value s = x.convert(scale, v.dtype()), z = x.convert(zero_point, v.dtype());
  const Rounded r =
      round_to_grid(x, v, x.b.div(x.like(s, 1), s), z, quant_min, quant_max, round_last);
  return {x.convert(x.b.mul(x.b.sub(r.clamped, z), s), self.dtype()), r.inside};
}

void check_fake(Ctx& x, Value self, int64_t quant_min, int64_t quant_max) {
  x.check_supported(hlo::is_float(self.dtype()) && !hlo::is_float8(self.dtype()),
                    "\"fake_quantize_tensor_cachemask_kernel_type_handling\" not implemented for '",
                    scalar_type_name(self.dtype()), "'");
  x.check(quant_min <= quant_max,
          "`quant_min` should be less than or         equal to `quant_max`.");
}

// A one-element tensor over v's dims.
Value spread_one(Ctx& x, Value one, Value v, const char* name) {
  x.check(one.numel() == 1, name, " must have one element, got shape ", one.dims());
  return x.b.broadcast_scalar(x.b.reshape(one, {}), v.dims());
}

void assert_zero_point(Ctx& x, Value zero_point, int64_t quant_min, int64_t quant_max) {
  const auto bound = [&](int64_t v) { return x.b.splat(zero_point.type(), v); };
  x.assert_none(x.b.logical_or(x.b.compare(Cmp::kLt, zero_point, bound(quant_min)),
                               x.b.compare(Cmp::kGt, zero_point, bound(quant_max))),
                "`zero_point` must be between `quant_min` and `quant_max`.");
}

std::array<Value, 2> fake_quantize_per_channel(Ctx& x, Value self, Value scale, Value zero_point,
                                               int64_t axis, int64_t quant_min, int64_t quant_max) {
  check_fake(x, self, quant_min, quant_max);
  const DType zt = zero_point.dtype();
  x.check(scale.dtype() == DType::kF32 || scale.dtype() == DType::kBF16,
          "Scale must be Float or BFloat16, found ", scalar_type_name(scale.dtype()));
  x.check(zt == DType::kI32 || zt == DType::kF32 || zt == DType::kF16,
          "Zero-point must be Int32, Float or Half, found ", scalar_type_name(zt));
  x.check(scale.rank() == 1, "scale should be a 1-D tensor");
  x.check(zero_point.rank() == 1, "zero point should be a 1-D tensor");
  x.check(axis >= 0 && axis < self.rank(),
          "`axis` must be between 0 and number of dimensions of input");
  x.check(scale.dims() == zero_point.dims() && scale.dim(0) == self.dim(axis),
          "dimensions of scale and zero-point are not consistent with input tensor");
  if (zt == DType::kI32) assert_zero_point(x, zero_point, quant_min, quant_max);
  return fake_quantize(x, self, along(x, scale, self.dims(), axis),
                       along(x, zero_point, self.dims(), axis), quant_min, quant_max,
                       /*round_last=*/zt != DType::kI32);
}

// ---- Fake quantisation whose scale and zero point are learnt.

// Whole zero point inside of the range.
Value learnt_zero_point(Ctx& x, Value zero_point, int64_t quant_min, int64_t quant_max) {
  const Value z = hlo::is_float(zero_point.dtype()) ? x.to_compute(zero_point)
                                                    : x.b.convert(zero_point, DType::kF32);
  const auto bound = [&](int64_t v) { return x.b.constant(z.dtype(), static_cast<double>(v)); };
  return x.b.unary(Op::kRoundNearestEven, x.b.clamp(bound(quant_min), z, bound(quant_max)));
}

struct Learnt {
  Value scale, zero_point;  // of self's dims
  Dims axes;                // summed over for their gradients
};

Learnt make_learnt(Ctx& x, Value self, Value scale, Value zero_point, Opt<int64_t> axis,
                   int64_t quant_min, int64_t quant_max) {
  check_fake(x, self, quant_min, quant_max);
  x.check(quant_min <= 0 && quant_max >= 0,
          "`quant_min` should be less than or equal to `quant_max`, and the quantization "
          "range should include 0.");
  const Value z = learnt_zero_point(x, zero_point, quant_min, quant_max);
  Learnt l;
  l.axes = x.all_axes(self);
  if (axis) {
    x.check(*axis >= 0 && *axis < self.rank(),
            "`axis` must be between 0 and number of dimensions of input");
    x.check(scale.rank() == 1 && zero_point.rank() == 1 && scale.dims() == zero_point.dims() &&
                scale.dim(0) == self.dim(*axis),
            "dimensions of scale and zero-point are not consistent with input tensor");
    l.scale = along(x, scale, self.dims(), *axis);
    l.zero_point = along(x, z, self.dims(), *axis);
    l.axes.erase(l.axes.begin() + *axis);
  } else {
    l.scale = spread_one(x, scale, self, "scale");
    l.zero_point = spread_one(x, z, self, "zero_point");
  }
  return l;
}

std::array<Value, 3> learnable_backward(Ctx& x, Value grad, Value self, Value scale,
                                        Value zero_point, Opt<int64_t> axis, int64_t quant_min,
                                        int64_t quant_max, double grad_factor) {
  auto& b = x.b;
  const Learnt l = make_learnt(x, self, scale, zero_point, axis, quant_min, quant_max);
  x.check(grad.dims() == self.dims(), "`X` and `dY` are not the same size, got ", self.dims(),
          " and ", grad.dims());
  const Value v = x.to_compute(self), g = x.convert(grad, v.dtype());
  const Value s = x.convert(l.scale, v.dtype()), z = x.convert(l.zero_point, v.dtype());
  const Value inverse = b.div(x.like(s, 1), s);
  const Rounded r = round_to_grid(x, v, inverse, z, quant_min, quant_max);
  const Value zero = x.like(v, 0), factor = x.like(v, grad_factor);
  const Value quantized = b.mul(b.sub(r.clamped, z), s);
  // Outside of the range the result moves with the bound only.
  const Value by_scale =
      b.select(r.inside, b.mul(b.sub(quantized, v), inverse), b.sub(r.clamped, z));
  const Value by_zero = b.select(r.inside, zero, b.neg(s));
  const auto total = [&](Value t, Value like) {
    return x.convert(
        b.reshape(x.sum(b.mul(b.mul(g, t), factor), l.axes), axis ? like.dims() : Dims{1}),
        like.dtype());
  };
  return {x.convert(b.select(r.inside, g, zero), self.dtype()), total(by_scale, scale),
          total(by_zero, zero_point)};
}

// ---- Observer: running minimum and maximum, and the scale and zero point that fit them.

struct Observed {
  Value output, mask, running_min, running_max, scale, zero_point;
};

std::pair<Value, Value> choose_qparams(Ctx& x, Value low, Value high, int64_t quant_min,
                                       int64_t quant_max, bool symmetric) {
  auto& b = x.b;
  const auto constant = [&](double v) { return x.like(low, v); };
  const double steps = static_cast<double>(quant_max - quant_min);
  const Value both_sides =
      b.logical_and(b.compare(Cmp::kLt, low, constant(0)), b.compare(Cmp::kGt, high, constant(0)));
  if (symmetric) {
    const int64_t half = (quant_max - quant_min) / 2;
    const double below = -static_cast<double>(half + 1), above = static_cast<double>(half);
    const Value widest = b.maximum(b.unary(Op::kAbs, b.div(low, constant(below))),
                                   b.unary(Op::kAbs, b.div(high, constant(above))));
    low = b.select(both_sides, b.mul(widest, constant(below)), low);
    high = b.select(both_sides, b.mul(widest, constant(above)), high);
  }
  low = b.minimum(low, constant(0));
  high = b.maximum(high, constant(0));
  // Scales below this make reciprocals that overflow on some hardware.
  const double smallest = 6.1e-5F;
  Value scale = b.div(b.sub(high, low), constant(steps));
  const Value inverse_overflows = b.logical_not(b.is_finite(b.div(constant(1), scale)));
  scale = b.select(inverse_overflows, constant(0.1), scale);
  const Value too_small = b.compare(Cmp::kLt, scale, constant(smallest));
  const Value amplifier = b.div(constant(smallest), scale);
  const Value low_is_zero = b.compare(Cmp::kEq, low, constant(0)),
              high_is_zero = b.compare(Cmp::kEq, high, constant(0));
  const Value new_high = b.select(low_is_zero, constant(smallest * steps), b.mul(high, amplifier));
  const Value new_low = b.select(b.logical_and(high_is_zero, b.logical_not(low_is_zero)),
                                 constant(-smallest * steps), b.mul(low, amplifier));
  high = b.select(too_small, new_high, high);
  low = b.select(too_small, new_low, low);
  scale = b.select(too_small, constant(smallest), scale);
  // Of the two ends the one whose zero point is exacter.
  const Value low_steps = b.div(low, scale), high_steps = b.div(high, scale);
  const auto min = static_cast<double>(quant_min), max = static_cast<double>(quant_max);
  const Value low_error = b.sub(constant(std::abs(min)), b.unary(Op::kAbs, low_steps));
  const Value high_error = b.sub(constant(std::abs(max)), b.unary(Op::kAbs, high_steps));
  Value zero = b.select(b.compare(Cmp::kLt, low_error, high_error), b.sub(constant(min), low_steps),
                        b.sub(constant(max), high_steps));
  if (symmetric) zero = b.select(both_sides, constant((min + max) / 2), zero);
  const Value whole = b.unary(Op::kRoundNearestEven, b.clamp(x.constant(low.dtype(), min), zero,
                                                             x.constant(low.dtype(), max)));
  return {scale, b.convert(whole, DType::kI32)};
}

Observed moving_average_fake_quantize(Ctx& x, Value self, Value observer_on, Value fake_quant_on,
                                      Value running_min, Value running_max, Value scale,
                                      Value zero_point, Scalar averaging_const, int64_t quant_min,
                                      int64_t quant_max, int64_t ch_axis, bool per_row,
                                      bool symmetric) {
  auto& b = x.b;
  x.check(
      !per_row || ch_axis == 0,
      "Per-channel FakeQuant in fused_moving_avg_obs_fake_quant is only supported on axis == 0");
  x.check(self.dtype() == DType::kF32, "expected scalar type Float but found ",
          scalar_type_name(self.dtype()));
  x.check(self.numel() > 0,
          "fused_moving_avg_obs_fake_quant needs a tensor with elements, got shape ", self.dims());
  const int64_t n = per_row ? self.dim(0) : 1;
  const auto flag = [&](Value v) {
    x.check(v.numel() == 1, "observer_on and fake_quant_on must have one element, got shape ",
            v.dims());
    return x.convert(b.reshape(v, {}), DType::kBool);
  };
  const Value observing = flag(observer_on), quantizing = flag(fake_quant_on);
  Dims axes = x.all_axes(self);
  if (per_row) axes.erase(axes.begin());
  const auto state = [&](Value v,
                         double initial) {  // empty before the first call of a per-channel observer
    return v.numel() == 0 ? b.splat({v.dtype(), {n}}, initial) : v;
  };
  running_min = state(running_min, std::numeric_limits<double>::infinity());
  running_max = state(running_max, -std::numeric_limits<double>::infinity());
  scale = state(scale, 1);
  zero_point = state(zero_point, 0);
  for (const Value v : {running_min, running_max, scale, zero_point}) {
    x.check(v.numel() == n, "running_min, running_max, scale and zero_point must have ", n,
            " element(s), got shape ", v.dims());
  }
  const Value c = x.scalar(averaging_const, DType::kF32);
  const auto average = [&](Value old, Value seen) {
    const Value now = b.reshape(seen, old.dims());
    const Value infinite = b.unary(Op::kIsInf, old);
    const Value moved = b.add(old, b.mul(b.broadcast_scalar(c, old.dims()), b.sub(now, old)));
    return x.select(observing, b.select(infinite, now, moved), old);
  };
  Observed o;
  o.running_min = average(running_min, x.min(self, axes));
  o.running_max = average(running_max, x.max(self, axes));
  const auto [new_scale, new_zero] =
      choose_qparams(x, o.running_min, o.running_max, quant_min, quant_max, symmetric);
  o.scale =
      x.select(quantizing, b.reshape(x.convert(new_scale, scale.dtype()), scale.dims()), scale);
  o.zero_point =
      x.select(quantizing, b.reshape(x.convert(new_zero, zero_point.dtype()), zero_point.dims()),
               zero_point);
  const auto spread = [&](Value v) {
    return per_row ? along(x, b.reshape(v, {n}), self.dims(), 0) : spread_one(x, v, self, "scale");
  };
  const auto [out, mask] =
      fake_quantize(x, self, spread(o.scale), spread(o.zero_point), quant_min, quant_max);
  o.output = x.select(quantizing, out, self);
  o.mask = x.select(quantizing, mask, b.splat(mask.type(), 1));
  return o;
}

// ---- Products with packed weights.

// self [m, k] by int8 rows [n, k], each with its scale. int8 is exact in bfloat16 and float16.
Value int8_weight_mm(Ctx& x, Value self, Value mat2, Value scales) {
  const DType t = self.dtype();
  x.check(t == DType::kF32 || t == DType::kBF16 || t == DType::kF16,
          "_weight_int8pack_mm_cpu : expect A to be either 32-bit or 16-bit float tensor.");
  x.check(self.rank() == 2, "_weight_int8pack_mm_cpu : expect A to be 2D tensor.");
  x.check(mat2.dtype() == DType::kI8, "_weight_int8pack_mm_cpu : expect B to be int8 tensor.");
  x.check(mat2.rank() == 2 && mat2.dim(1) == self.dim(1),
          "_weight_int8pack_mm_cpu : expect B.size(1) == ", self.dim(1));
  x.check(scales.rank() == 1 && scales.dim(0) == mat2.dim(0),
          "_weight_int8pack_mm_cpu : expect scales to be 1d tensor with size ", mat2.dim(0));
  x.check(scales.dtype() == t, "expected scalar type ", scalar_type_name(t), " but found ",
          scalar_type_name(scales.dtype()));
  const Value sums = wide_matmul(x, self, x.b.convert(mat2, t), /*transposed=*/true);
  return x.convert(x.b.mul(sums, along(x, x.convert(scales, sums.dtype()), sums.dims(), 1)), t);
}

// int4 weights. aten::_convert_weight_to_int4pack takes uint8 [n, k / 2] (even k in the high half
// of a byte) and gives int32 of PyTorch's shape [n / 8, k / (16 t), 32, t / 2]. Its content is
// opaque to PyTorch; here it is the row-major [n, k / 8] matrix of words whose nibble j (from the
// low end) is column 8 i + j, an unsigned number q that stands for (q - 8) * scale + zero. Weights
// packed on another device do not fit.
Value pack_int4(Ctx& x, Value self, int64_t inner_k_tiles) {
  auto& b = x.b;
  x.check(self.dtype() == DType::kU8 && self.rank() == 2,
          "_convert_weight_to_int4pack: expect a 2D uint8 weight");
  x.check(inner_k_tiles == 2 || inner_k_tiles == 4 || inner_k_tiles == 8,
          "innerKTiles need to be 2, 4, or 8, got ", inner_k_tiles);
  const int64_t n = self.dim(0), k = self.dim(1) * 2;
  x.check(n % 8 == 0 && k % (inner_k_tiles * 16) == 0,
          "_convert_weight_to_int4pack: needs n divisible by 8 and k by ", inner_k_tiles * 16,
          ", got ", n, " and ", k);
  const Value bytes = b.reshape(b.convert(self, DType::kU32), {n, k / 8, 4});
  const Value high = b.binary(Op::kShiftRightLogical, bytes, b.splat(bytes.type(), 4));
  const Value low = b.binary(Op::kAnd, bytes, b.splat(bytes.type(), 15));
  const Value pair = b.binary(Op::kOr, high, b.binary(Op::kShiftLeft, low, b.splat(low.type(), 4)));
  const Value shift = b.mul(b.iota(pair.type(), 2), b.splat(pair.type(), 8));
  const Value word =
      b.reduce(b.binary(Op::kShiftLeft, pair, shift), b.constant(DType::kU32, 0), {2}, Op::kOr);
  return b.reshape(b.bitcast_convert(word, {DType::kI32, word.dims()}),
                   {n / 8, k / (inner_k_tiles * 16), 32, inner_k_tiles / 2});
}

Value int4_weight_mm(Ctx& x, Value self, Value mat2, int64_t group, Value scale_and_zero) {
  auto& b = x.b;
  x.check(self.rank() == 2 && mat2.rank() == 4 && mat2.dtype() == DType::kI32 &&
              scale_and_zero.rank() == 3,
          "_weight_int4pack_mm: needs A [m, k], a packed int32 B of rank 4 and qScaleAndZeros [k / "
          "group, n, 2], got ",
          self.dims(), ", ", mat2.dims(), " and ", scale_and_zero.dims());
  const int64_t k = self.dim(1), n = mat2.dim(0) * 8;
  x.check(group > 0 && k % group == 0 && mat2.numel() * 8 == n * k &&
              scale_and_zero.dims() == Dims{k / group, n, 2},
          "_weight_int4pack_mm: A ", self.dims(), ", B ", mat2.dims(), ", qGroupSize ", group,
          " and qScaleAndZeros ", scale_and_zero.dims(), " do not fit");
  const DType t = self.dtype();
  const Value words = b.bitcast_convert(b.reshape(mat2, {n, k / 8}), {DType::kU32, {n, k / 8}});
  const Dims split{n, k / 8, 8};
  const Value all = b.broadcast_in_dim(words, split, {0, 1});
  const Value shift = b.mul(b.iota(all.type(), 2), b.splat(all.type(), 4));
  const Value nibble =
      b.binary(Op::kAnd, b.binary(Op::kShiftRightLogical, all, shift), b.splat(all.type(), 15));
  const Value q = b.reshape(b.convert(b.bitcast_convert(nibble, {DType::kI32, split}), DType::kF32),
                            {n, k / group, group});
  const auto part = [&](int64_t i) {  // [k / group, n] over [n, k / group, group]
    const Value v = b.reshape(b.slice_dim(scale_and_zero, 2, i, i + 1), {k / group, n});
    return b.broadcast_in_dim(x.convert(v, DType::kF32), q.dims(), {1, 0});
  };
  const Value weight = b.add(b.mul(b.sub(q, x.like(q, 8)), part(0)), part(1));
  const Value rows = b.reshape(x.convert(weight, t), {n, k});
  return x.convert(wide_matmul(x, self, rows, /*transposed=*/true), t);
}

// ---- float8 products with scales for the whole operand or for each row.

bool scales_rows(Ctx& x, Value scale, Dims per_row) {
  x.check(scale.dtype() == DType::kF32 && (scale.numel() == 1 || scale.dims() == per_row),
          "Invalid scaling configuration. Scales must be float32 with one element or of shape ",
          per_row, ", got ", hlo::torch_name(scale.dtype()), " ", scale.dims());
  return scale.numel() != 1;
}

Value scaled_mm(Ctx& x, Value self, Value mat2, Value scale_a, Value scale_b, Opt<Value> bias,
                Opt<Value> scale_result, Opt<DType> out_dtype) {
  auto& b = x.b;
  x.check(self.rank() == 2, "mat1 must be a matrix");
  x.check(mat2.rank() == 2, "mat2 must be a matrix");
  x.check(self.dim(1) == mat2.dim(0), "mat_a and mat_b shapes cannot be multiplied (",
          by(self.dims()), " and ", by(mat2.dims()), ")");
  x.check(hlo::is_float8(self.dtype()) && hlo::is_float8(mat2.dtype()),
          "Invalid scaling configuration. Expected both operands to be Float8 matrices, got ",
          scalar_type_name(self.dtype()), " and ", scalar_type_name(mat2.dtype()));
  const DType out = out_dtype.value_or(self.dtype());
  x.check(hlo::is_float(out), "out_dtype must be a floating type, got ", scalar_type_name(out));
  const int64_t m = self.dim(0), n = mat2.dim(1);
  const bool rows_a = scales_rows(x, scale_a, {m, 1}), rows_b = scales_rows(x, scale_b, {1, n});
  // Products of two float8 numbers are exact in bfloat16 operands with float32 sums.
  Value sums = b.dot_general(b.convert(self, DType::kBF16), b.convert(mat2, DType::kBF16),
                             {.lhs_contract = {1}, .rhs_contract = {0}}, hlo::Precision::kDefault,
                             DType::kF32);
  const auto scaled = [&](Value s, bool per_row) {
    const Value all =
        per_row ? x.broadcast(s, sums.dims()) : b.broadcast_scalar(b.reshape(s, {}), sums.dims());
    sums = b.mul(sums, all);
  };
  scaled(scale_a, rows_a);
  scaled(scale_b, rows_b);
  if (bias) {
    x.check(bias->rank() == 1 && bias->dim(0) == n, "Bias must be size ", n, " but got ",
            bias->dims());
    sums = b.add(sums, along(x, x.convert(*bias, DType::kF32), sums.dims(), 1));
  }
  if (!hlo::is_float8(out)) return x.convert(sums, out);
  if (scale_result && out_dtype)  // as on CPU, only for a float8 type that was asked for
    sums = b.div(sums, b.broadcast_scalar(x.convert(b.reshape(*scale_result, {}), DType::kF32),
                                          sums.dims()));
  const double most = hlo::float_max(out);  // saturates
  return b.convert(b.clamp(b.constant(DType::kF32, -most), sums, b.constant(DType::kF32, most)),
                   out);
}

}  // namespace

void register_quant(ops::Registry& r) {
  r.op("aten::fake_quantize_per_tensor_affine_cachemask", [](Ctx& x, Value self, Scalar scale,
                                                             Scalar zero_point, int64_t quant_min,
                                                             int64_t quant_max) {
     check_fake(x, self, quant_min, quant_max);
     const Value z = x.scalar(zero_point, DType::kI32);
     assert_zero_point(x, z, quant_min, quant_max);
     return fake_quantize(x, self, x.b.broadcast_scalar(x.scalar(scale, DType::kF32), self.dims()),
                          x.b.broadcast_scalar(z, self.dims()), quant_min, quant_max);
   }).elementwise();
  r.op("aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
       [](Ctx& x, Value self, Value scale, Value zero_point, Value fake_quant_enabled,
          int64_t quant_min, int64_t quant_max) {
         check_fake(x, self, quant_min, quant_max);
         const Value z = x.convert(spread_one(x, zero_point, self, "zero_point"), DType::kI32);
         const auto [out, mask] =
             fake_quantize(x, self, spread_one(x, scale, self, "scale"), z, quant_min, quant_max);
         const Value on =
             x.convert(spread_one(x, fake_quant_enabled, self, "fake_quant_enabled"), DType::kBool);
         return std::array{x.b.select(on, out, self), x.b.logical_or(mask, x.b.logical_not(on))};
       })
      .elementwise();
  r.op("aten::fake_quantize_per_channel_affine_cachemask", fake_quantize_per_channel).elementwise();
  r.op("aten::_fake_quantize_learnable_per_tensor_affine", [](Ctx& x, Value self, Value scale,
                                                              Value zero_point, int64_t quant_min,
                                                              int64_t quant_max, double) {
    const Learnt l = make_learnt(x, self, scale, zero_point, std::nullopt, quant_min, quant_max);
    return fake_quantize(x, self, l.scale, l.zero_point, quant_min, quant_max)[0];
  });
  r.op("aten::_fake_quantize_learnable_per_tensor_affine_backward",
       [](Ctx& x, Value grad, Value self, Value scale, Value zero_point, int64_t quant_min,
          int64_t quant_max, double grad_factor) {
         return learnable_backward(x, grad, self, scale, zero_point, std::nullopt, quant_min,
                                   quant_max, grad_factor);
       });
  r.op("aten::_fake_quantize_learnable_per_channel_affine",
       [](Ctx& x, Value self, Value scale, Value zero_point, int64_t axis, int64_t quant_min,
          int64_t quant_max, double) {
         const Learnt l = make_learnt(x, self, scale, zero_point, axis, quant_min, quant_max);
         return fake_quantize(x, self, l.scale, l.zero_point, quant_min, quant_max)[0];
       });
  r.op("aten::_fake_quantize_learnable_per_channel_affine_backward",
       [](Ctx& x, Value grad, Value self, Value scale, Value zero_point, int64_t axis,
          int64_t quant_min, int64_t quant_max, double grad_factor) {
         return learnable_backward(x, grad, self, scale, zero_point, axis, quant_min, quant_max,
                                   grad_factor);
       });
  // Written arguments first (running_min, running_max, scale, zero_point), then output and mask.
  r.op("aten::_fused_moving_avg_obs_fq_helper",
       [](Ctx& x, Value self, Value observer_on, Value fake_quant_on, Value running_min,
          Value running_max, Value scale, Value zero_point, Scalar averaging_const,
          int64_t quant_min, int64_t quant_max, int64_t ch_axis, bool per_row_fake_quant,
          bool symmetric_quant) {
         const Observed o = moving_average_fake_quantize(
             x, self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point,
             averaging_const, quant_min, quant_max, ch_axis, per_row_fake_quant, symmetric_quant);
         return std::array{o.running_min, o.running_max, o.scale, o.zero_point, o.output, o.mask};
       });
  r.op("aten::_fused_moving_avg_obs_fq_helper_functional",
       [](Ctx& x, Value self, Value observer_on, Value fake_quant_on, Value running_min,
          Value running_max, Value scale, Value zero_point, Scalar averaging_const,
          int64_t quant_min, int64_t quant_max, int64_t ch_axis, bool per_row_fake_quant,
          bool symmetric_quant) {
         const Observed o = moving_average_fake_quantize(
             x, self, observer_on, fake_quant_on, running_min, running_max, scale, zero_point,
             averaging_const, quant_min, quant_max, ch_axis, per_row_fake_quant, symmetric_quant);
         return std::array{o.output, o.mask, o.running_min, o.running_max, o.scale, o.zero_point};
       });
  r.op("aten::_weight_int8pack_mm", int8_weight_mm);
  r.op("aten::_convert_weight_to_int4pack", pack_int4);
  r.op("aten::_weight_int4pack_mm", int4_weight_mm);
  r.op("aten::_scaled_mm",
       [](Ctx& x, Value self, Value mat2, Value scale_a, Value scale_b, Opt<Value> bias,
          Opt<Value> scale_result, Opt<DType> out_dtype, [[maybe_unused]] bool use_fast_accum) {
         return scaled_mm(x, self, mat2, scale_a, scale_b, bias, scale_result, out_dtype);
       });
  r.op("aten::_scaled_mm_v2",
       [](Ctx& x, Value self, Value mat2, Values scale_a, Dims recipe_a,
          [[maybe_unused]] Dims swizzle_a, Values scale_b, Dims recipe_b,
          [[maybe_unused]] Dims swizzle_b, Opt<Value> bias, Opt<DType> out_dtype,
          [[maybe_unused]] Dims contraction_dim, [[maybe_unused]] bool use_fast_accum) {
         // Recipes 0 and 1 scale the whole operand and its rows; the blockwise ones need other
         // hardware types.
         const auto plain = [](const Values& s, const Dims& recipe) {
           return s.size() == 1 && recipe.size() == 1 && (recipe[0] == 0 || recipe[0] == 1);
         };
         x.check(plain(scale_a, recipe_a) && plain(scale_b, recipe_b),
                 "Invalid scaling configuration. Only tensorwise (0) "
                 "and rowwise (1) scales are supported, got recipes ",
                 recipe_a, " and ", recipe_b);
         return scaled_mm(x, self, mat2, scale_a[0], scale_b[0], bias, std::nullopt, out_dtype);
       });
}

}  // namespace tpu::aten
