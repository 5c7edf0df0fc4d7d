#include "aten/loss.h"

#include <array>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;
using ops::scalar_type_name;

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The loss per element (in its compute type) as the result of dtype t.
Value reduce_loss(Ctx& x, Value loss, int64_t reduction, DType t) {
  x.check(reduction >= kNone && reduction <= kSum, reduction,
          " is not a valid value for reduction");
  if (reduction == kNone) return x.convert(loss, t);
  Value sum = x.sum(loss, x.all_axes(loss));
  if (reduction == kMean) sum = x.b.div(sum, x.like(sum, static_cast<double>(loss.numel())));
  return x.convert(sum, t);
}

// The factor that the mean over `count` elements puts on a gradient.
double mean_factor(int64_t reduction, int64_t count) {
  return reduction == kMean ? 1.0 / static_cast<double>(count) : 1.0;
}

Value square(Ctx& x, Value v) { return x.b.mul(v, v); }

// ---- Losses of a difference.

struct Difference {
  const char* name;
  const char* kernel;
  bool promotes;  // result dtype: promoted, else self's
  Value (*loss)(Ctx&, Value difference, const Scalar& parameter);
};

Value smooth_l1(Ctx& x, Value d, const Scalar& number) {
  const Value z = abs(x, d);
  if (x.is(number, 0)) return z;
  const Value beta = x.scalar_like(number, z);
  return x.b.select(x.b.compare(Cmp::kLt, z, beta), x.b.div(times(x, square(x, z), 0.5), beta),
                    x.b.sub(z, times(x, beta, 0.5)));
}

Value huber(Ctx& x, Value d, const Scalar& number) {
  const Value z = abs(x, d), delta = x.scalar_like(number, z);
  return x.b.select(x.b.compare(Cmp::kLt, z, delta), times(x, square(x, z), 0.5),
                    x.b.mul(x.b.sub(z, times(x, delta, 0.5)), delta));
}

Value difference_loss(Ctx& x, const Difference& k, Value self, Value target, int64_t reduction,
                      const Scalar& parameter) {
  const DType common = x.promote(self, target);
  check_dtype(x, common, kFloats, k.kernel);
  const auto [v, w] = x.broadcast_all(hlo::compute_type(common), self, target);
  return reduce_loss(x, k.loss(x, x.b.sub(v, w), parameter), reduction,
                     k.promotes ? common : self.dtype());
}

constexpr Difference kMse{"aten::mse_loss", "mse_cpu", true,
                          [](Ctx& x, Value d, const Scalar&) { return square(x, d); }};
constexpr Difference kSmoothL1{"aten::smooth_l1_loss", "smooth_l1_cpu", true, smooth_l1};
constexpr Difference kHuber{"aten::huber_loss", "huber_cpu", false, huber};

// slope(difference) * grad * the mean's factor, with self's dtype.
template <class F>
Value difference_backward(Ctx& x, Value grad, Value self, Value target, int64_t reduction,
                          uint8_t classes, const char* kernel, F slope) {
  check_dtype(x, x.promote(grad, self, target), classes, kernel);
  const DType c = hlo::compute_type(x.promote(self, target));
  const auto [g, v, w] = x.broadcast_all(c, grad, self, target);
  const Value r = x.b.mul(slope(x.b.sub(v, w)), g);
  return x.convert(times(x, r, mean_factor(reduction, self.numel())), self.dtype());
}

// -bound where d is at most -limit, bound where it is at least limit, `inner` between.
Value clipped_slope(Ctx& x, Value d, Value limit, Value bound, Value inner) {
  const Value middle = x.b.select(x.b.compare(Cmp::kGe, d, limit), bound, inner);
  return x.b.select(x.b.compare(Cmp::kLe, d, x.b.neg(limit)), x.b.neg(bound), middle);
}

void register_differences(Registry& r) {
  r.op(kMse.name, [](Ctx& x, Value self, Value target, int64_t reduction) {
     return difference_loss(x, kMse, self, target, reduction, {});
   }).elementwise();
  r.op(kSmoothL1.name,
       [](Ctx& x, Value self, Value target, int64_t reduction, Scalar beta) {
         x.check_number(
             beta, [](double v) { return v >= 0; },
             "smooth_l1_loss does not support negative values for beta.");
         return difference_loss(x, kSmoothL1, self, target, reduction, beta);
       })
      .fold("beta", 0)
      .elementwise();
  r.op(kHuber.name, [](Ctx& x, Value self, Value target, int64_t reduction, Scalar delta) {
     x.check_number(
         delta, [](double v) { return v > 0; },
         "huber_loss does not support non-positive values for delta.");
     return difference_loss(x, kHuber, self, target, reduction, delta);
   }).elementwise();
  r.op("aten::mse_loss_backward", [](Ctx& x, Value grad, Value self, Value target,
                                     int64_t reduction) {
     return difference_backward(x, grad, self, target, reduction, kOrdered, "mse_backward_cpu_out",
                                [&](Value d) { return times(x, d, 2); });
   }).elementwise();
  r.op("aten::smooth_l1_loss_backward", [](Ctx& x, Value grad, Value self, Value target,
                                           int64_t reduction, Scalar number) {
     // Between -beta and beta, where d is divided, beta is not 0.
     return difference_backward(x, grad, self, target, reduction, kOrdered,
                                "smooth_l1_backward_cpu_out", [&](Value d) {
                                  const Value beta = x.scalar_like(number, d);
                                  return clipped_slope(x, d, beta, x.like(d, 1), x.b.div(d, beta));
                                });
   }).elementwise();
  r.op("aten::huber_loss_backward", [](Ctx& x, Value grad, Value self, Value target,
                                       int64_t reduction, Scalar number) {
     return difference_backward(x, grad, self, target, reduction, kFloats, "huber_backward_cpu_out",
                                [&](Value d) {
                                  const Value delta = x.scalar_like(number, d);
                                  return clipped_slope(x, d, delta, delta, d);
                                });
   }).elementwise();
  r.op("aten::soft_margin_loss", [](Ctx& x, Value self, Value target, int64_t reduction) {
     const DType t = x.promote(self, target);
     check_dtype(x, t, kFloats, "soft_margin_loss");
     const auto [v, w] = x.broadcast_all(hlo::compute_type(t), self, target);
     return reduce_loss(x, x.b.unary(Op::kLogPlusOne, exp(x, x.b.neg(x.b.mul(v, w)))), reduction,
                        t);
   }).elementwise();
  r.op("aten::soft_margin_loss_backward", [](Ctx& x, Value grad, Value self, Value target,
                                             int64_t reduction) {
     const DType t = x.promote(self, target);
     const auto [g, v, w] = x.broadcast_all(hlo::compute_type(t), grad, self, target);
     const Value s = x.b.unary(Op::kLogistic, x.b.neg(x.b.mul(v, w)));
     const Value slope = x.b.mul(x.b.neg(w), s);
     return x.convert(times(x, x.b.mul(slope, g), mean_factor(reduction, self.numel())), t);
   }).elementwise();
}

// ---- Binary cross entropy.

void check_probability(Ctx& x, Value v, const char* what) {
  const Value inside = x.b.logical_and(ge(x, v, 0), le(x, v, 1));
  x.assert_none(x.b.logical_not(inside),
                cat("all elements of ", what, " should be between 0 and 1"));
}

void check_same_dtype(Ctx& x, Value v, DType t) {
  x.check(v.dtype() == t, "Found dtype ", scalar_type_name(v.dtype()), " but expected ",
          scalar_type_name(t));
}

Value weighted(Ctx& x, Value v, const Opt<Value>& weight) {
  return weight ? x.binary(Op::kMultiply, v, x.convert(*weight, v.dtype())) : v;
}

void register_bce(Registry& r) {
  r.op("aten::binary_cross_entropy", [](Ctx& x, Value self, Value target, Opt<Value> weight,
                                        int64_t reduction) {
     check_dtype(x, self.dtype(), kFloats, "binary_cross_entropy");
     check_same_dtype(x, target, self.dtype());
     const auto [p, t] = x.broadcast_all(hlo::compute_type(self.dtype()), self, target);
     check_probability(x, p, "input");
     check_probability(x, t, "target");
     // A logarithm is never below -100, so that a wrong certain prediction costs a finite amount.
     const auto bounded = [&](Value v) { return x.b.maximum(v, x.like(v, -100)); };
     const Value log_p = bounded(log(x, p)),
                 log_q = bounded(x.b.unary(Op::kLogPlusOne, x.b.neg(p)));
     const Value loss = x.b.sub(x.b.mul(plus(x, t, -1), log_q), x.b.mul(t, log_p));
     return reduce_loss(x, weighted(x, loss, weight), reduction, self.dtype());
   }).elementwise();
  r.op("aten::binary_cross_entropy_backward", [](Ctx& x, Value grad, Value self, Value target,
                                                 Opt<Value> weight, int64_t reduction) {
     check_dtype(x, self.dtype(), kFloats, "binary_cross_entropy_backward");
     const auto [g, p, t] = x.broadcast_all(hlo::compute_type(self.dtype()), grad, self, target);
     const Value variance = x.b.mul(x.b.sub(x.like(p, 1), p), p);
     const Value slope = x.b.div(x.b.sub(p, t), x.b.maximum(variance, x.like(p, 1e-12)));
     const Value v = weighted(x, x.b.mul(g, slope), weight);
     return x.convert(times(x, v, mean_factor(reduction, self.numel())), self.dtype());
   }).elementwise();
}

// ---- Negative log likelihood. Classes are dim 1 (dim 0 of a single sample).

struct Nll {
  Value index;    // class of each sample, in range
  Value ignored;  // bool
  Value weight;   // its class weight, 0 where ignored; in the compute type
};

Nll nll_of(Ctx& x, Value self, Value target, const Opt<Value>& weight, int64_t dim,
           int64_t ignore_index) {
  const int64_t classes = self.dim(dim);
  const DType c = hlo::compute_type(self.dtype());
  // Out of the target's range: nothing can be ignored.
  const bool can_ignore = target.dtype() != DType::kU8 || (ignore_index >= 0 && ignore_index < 256);
  const Value ignored = can_ignore
                            ? x.b.compare(Cmp::kEq, target, x.b.splat(target.type(), ignore_index))
                            : x.zeros({DType::kBool, target.dims()});
  const Value index = x.checked_index(
      x.b.select(ignored, zero_like(x, target), target), classes, /*wrap=*/false,
      {ErrorKind::kIndex, cat("Target {} is out of bounds. There are ", classes, " classes")});
  Value w = x.b.splat({c, target.dims()}, 1);
  if (weight) {
    const Value flat = x.b.reshape(index, {index.numel()});
    w = x.b.reshape(take(x, x.convert(*weight, c), flat, 0), index.dims());
  }
  return {index, ignored, x.b.select(ignored, zero_like(x, w), w)};
}

// True at each sample's class; dims of `self`.
Value at_class(Ctx& x, Value self, Value index, int64_t dim) {
  Dims map;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != dim) map.push_back(i);
  }
  const Value position = x.b.iota({index.dtype(), self.dims()}, dim);
  return x.b.compare(Cmp::kEq, position, x.b.broadcast_in_dim(index, self.dims(), map));
}

// self at each sample's class.
Value pick(Ctx& x, Value self, Value index, int64_t dim) {
  if (index.numel() == 0) return x.zeros({self.dtype(), index.dims()});
  if (self.rank() == 1) return x.b.reshape(take(x, self, x.b.reshape(index, {1}), 0), {});
  // A sum with one term that is not 0 fuses with what made `self`, which is then never stored: for
  // few classes and many pixels, and on a TPU, where a gather stands between and is slow.
  if (self.rank() > 2 || !x.on_cpu_plugin()) {
    return x.sum(x.select(at_class(x, self, index, dim), self, zero_like(x, self)), {dim});
  }
  hlo::GatherDims g;
  g.collapsed_slice_dims = {1};
  g.start_index_map = {1};
  g.operand_batching_dims = {0};
  g.start_indices_batching_dims = {0};
  g.index_vector_dim = 1;
  return x.b.gather(self, x.unsqueeze(index, 1), g, {1, 1});
}

// {output, total weight}.
std::array<Value, 2> nll_forward(Ctx& x, Value self, Value target, const Opt<Value>& weight,
                                 int64_t dim, int64_t reduction, int64_t ignore_index) {
  const DType t = self.dtype();
  const Nll n = nll_of(x, self, target, weight, dim, ignore_index);
  const Value likelihood = x.to_compute(pick(x, self, n.index, dim));
  const Value loss =
      x.b.select(n.ignored, zero_like(x, likelihood), x.b.neg(x.b.mul(likelihood, n.weight)));
  if (reduction == kNone && self.rank() > 1) return {x.convert(loss, t), x.constant(t, 0)};
  const Value total = x.sum(n.weight, x.all_axes(n.weight));
  Value sum = x.sum(loss, x.all_axes(loss));
  if (reduction == kMean) sum = x.b.div(sum, total);
  return {x.convert(sum, t), x.convert(total, t)};
}

// `value` where `hit` is true, once for each sample, whose element it is: 0 elsewhere.
Value one_of_each(Ctx& x, Value hit, Value value, int64_t dim, DType t, Value of_sample) {
  const Value r = x.b.select(hit, value, zero_like(x, value));
  if (r.dtype() == t) x.b.know_sum(r, dim, of_sample);
  return x.convert(r, t);
}

Value nll_backward(Ctx& x, Value grad, Value self, Value target, const Opt<Value>& weight,
                   int64_t dim, int64_t reduction, int64_t ignore_index, Value total_weight) {
  x.check(total_weight.numel() == 1,
          "expected total_weight to be a  single element tensor, got: ", total_weight.dims(), " (",
          total_weight.numel(), " elements)");
  const Nll n = nll_of(x, self, target, weight, dim, ignore_index);
  const DType c = n.weight.dtype();
  Value g = x.convert(grad, c);
  if (reduction != kNone || self.rank() == 1) {
    x.check(grad.numel() == 1,
            "Expected a single element grad_output tensor, but got: ", grad.dims());
    g = x.b.reshape(g, {});
  } else {
    x.check(grad.dims() == target.dims(), "Expected a tensor of dimension ", target.rank(),
            " and tensor.size[0] == ", target.dim(0), " but got: dimension ", grad.rank(),
            " and tensor.size[0] = ", grad.rank() > 0 ? grad.dim(0) : 0);
  }
  if (reduction == kMean) g = x.b.div(g, x.b.reshape(x.convert(total_weight, c), {}));
  if (!weight && g.rank() == 0) {
    // One number for all samples; those that are ignored are of no class. Fewer operands: a
    // compiler then makes this gradient inside the products that read it.
    const Value none = x.b.splat(n.index.type(), int64_t{-1});
    const Value hit = at_class(x, self, x.b.select(n.ignored, none, n.index), dim);
    const Value value = x.b.broadcast_scalar(x.b.neg(g), self.dims());
    const Value of_sample = x.b.broadcast_scalar(x.b.neg(g), n.index.dims());
    return one_of_each(x, hit, value, dim, self.dtype(),
                       x.b.select(n.ignored, zero_like(x, of_sample), of_sample));
  }
  const Value of_sample =
      x.b.select(n.ignored, zero_like(x, n.weight), x.b.neg(x.binary(Op::kMultiply, n.weight, g)));
  Dims map;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != dim) map.push_back(i);
  }
  const Value spread = x.b.broadcast_in_dim(of_sample, self.dims(), map);
  return one_of_each(x, at_class(x, self, n.index, dim), spread, dim, self.dtype(), of_sample);
}

void check_target_dtype(Ctx& x, Value target) {
  x.check(target.dtype() == DType::kI64 || target.dtype() == DType::kU8,
          "expected target dtype to be Long or Byte, but got ", scalar_type_name(target.dtype()));
}

// The target as one class per sample: rank 0 for a single sample.
Value check_nll(Ctx& x, Value self, Value target, const Opt<Value>& weight) {
  x.check(self.rank() > 0 && self.rank() <= 2, "input tensor should be 1D or 2D");
  x.check(target.rank() <= 1, "0D or 1D target tensor expected, multi-target not supported");
  const bool single = self.rank() == 1;
  x.check(single ? target.numel() == 1 : target.dims() == Dims{self.dim(0)},
          "size mismatch (got input: ", self.dims(), ", target: ", target.dims(), ")");
  const int64_t classes = self.dim(self.rank() - 1);
  x.check(
      !weight || (weight->rank() == 1 && weight->dim(0) == classes),
      "weight tensor should be defined either for all ", classes,
      " classes or no classes but got weight tensor of shape: ", weight ? weight->dims() : Dims{});
  check_target_dtype(x, target);
  return single ? x.b.reshape(target, {}) : target;
}

void check_nll2d(Ctx& x, Value self, Value target, const Opt<Value>& weight) {
  x.check(target.rank() == 3,
          "only batches of spatial targets supported (3D tensors) but got targets of dimension: ",
          target.rank());
  x.check(self.rank() == 4,
          "only batches of spatial inputs supported (4D tensors), but got input of dimension: ",
          self.rank());
  x.check(target.dims() == Dims{self.dim(0), self.dim(2), self.dim(3)},
          "size mismatch (got input: ", self.dims(), " , target: ", target.dims());
  x.check(!weight || weight->numel() == self.dim(1),
          "weight tensor should be defined either for all or no classes");
  check_target_dtype(x, target);
}

void check_weight_dtype(Ctx& x, Value self, const Opt<Value>& weight) {
  x.check(!weight || weight->dtype() == self.dtype(), "expected scalar type ",
          scalar_type_name(self.dtype()), " but found ",
          scalar_type_name(weight ? weight->dtype() : self.dtype()));
}

void register_nll(Registry& r) {
  r.op("aten::nll_loss_forward", [](Ctx& x, Value self, Value target, Opt<Value> weight,
                                    int64_t reduction, int64_t ignore_index) {
    const Value classes = check_nll(x, self, target, weight);
    check_dtype(x, self.dtype(), kFloats, "nll_loss_out_frame");
    check_weight_dtype(x, self, weight);
    return nll_forward(x, self, classes, weight, self.rank() - 1, reduction, ignore_index);
  });
  r.op("aten::nll_loss_backward",
       [](Ctx& x, Value grad, Value self, Value target, Opt<Value> weight, int64_t reduction,
          int64_t ignore_index, Value total_weight) {
         const Value classes = check_nll(x, self, target, weight);
         check_dtype(x, self.dtype(), kFloats, "nll_loss_backward_out_frame");
         return nll_backward(x, grad, self, classes, weight, self.rank() - 1, reduction,
                             ignore_index, total_weight);
       });
  r.op("aten::nll_loss2d_forward", [](Ctx& x, Value self, Value target, Opt<Value> weight,
                                      int64_t reduction, int64_t ignore_index) {
    check_nll2d(x, self, target, weight);
    check_dtype(x, self.dtype(), kFloats, "nll_loss2d_forward_out_frame");
    check_weight_dtype(x, self, weight);
    return nll_forward(x, self, target, weight, 1, reduction, ignore_index);
  });
  r.op("aten::nll_loss2d_backward", [](Ctx& x, Value grad, Value self, Value target,
                                       Opt<Value> weight, int64_t reduction, int64_t ignore_index,
                                       Value total_weight) {
    check_nll2d(x, self, target, weight);
    check_dtype(x, self.dtype(), kFloats, "nll_loss2d_backward_out_frame");
    return nll_backward(x, grad, self, target, weight, 1, reduction, ignore_index, total_weight);
  });
}

// ---- Margin losses. A single sample is a batch of one until the end.

Value as_batch(Ctx& x, Value v) { return v.rank() < 2 ? x.b.reshape(v, {1, v.numel()}) : v; }

void check_matrix(Ctx& x, Value self) {
  x.check(
      self.rank() <= 2 && (self.rank() == 0 || self.dim(self.rank() - 1) > 0),
      "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.dims());
}
void check_long(Ctx& x, Value target) {
  x.check(target.dtype() == DType::kI64, "expected scalar type Long but found ",
          scalar_type_name(target.dtype()));
}

struct Margin {
  Value input;    // [N, C], compute type
  Value index;    // [N]
  Value hinge;    // margin - input[y] + input, 0 at the class itself
  Value correct;  // bool, at the class
  Value weight;   // of the sample's class, [N, C]
};

Margin margin_of(Ctx& x, Value self, Value target, const Number& p, const Scalar& margin,
                 const Opt<Value>& weight) {
  x.check(p.d == 1 || p.d == 2, "only p == 1 and p == 2 supported");
  check_matrix(x, self);
  const Value v = x.to_compute(as_batch(x, self));
  const int64_t batch = v.dim(0), classes = v.dim(1);
  x.check(target.rank() <= 1 && target.numel() == batch,
          "multi_margin_loss: target tensor should be 1-D with size equal to the number of input "
          "samples (batch "
          "size). Expected target size [",
          batch, "], but got ", target.dims(), ". Input has shape ", self.dims(), ".");
  x.check(!weight || weight->numel() == classes, "inconsistent weight size, expected ", classes,
          " but got ", weight ? weight->dims() : Dims{});
  check_long(x, target);
  const Value flat = x.b.reshape(target, {batch});
  x.assert_none(x.b.logical_or(lt(x, flat, 0), ge(x, flat, static_cast<double>(classes))),
                "target out of range");
  const Value index = x.b.clamp(x.b.constant(DType::kI32, 0), x.b.convert(flat, DType::kI32),
                                x.b.constant(DType::kI32, classes - 1));
  const Value correct = at_class(x, v, index, 1);
  const Value own = x.b.broadcast_in_dim(pick(x, v, index, 1), v.dims(), {0});
  const Value z = x.b.add(x.b.sub(x.scalar_like(margin, v), own), v);
  const Value active = x.b.logical_and(gt(x, z, 0), x.b.logical_not(correct));
  Value w = x.like(v, 1);
  if (weight) {
    const Value of_class = x.b.reshape(x.convert(*weight, v.dtype()), {classes});
    w = x.b.broadcast_in_dim(take(x, of_class, index, 0), v.dims(), {0});
  }
  return {v, index, x.b.select(active, z, zero_like(x, z)), correct, w};
}

// Pairs of a target class j and another class c, [N, J, C]: 1 - input[t_j] + input[c] where it
// counts.
struct MultiLabel {
  Value input;      // [N, C]
  Value is_target;  // [N, C], bool
  Value hinge;      // [N, J, C], 0 where it does not count
  Value at_target;  // [N, J, C]: c is the j-th target
};

MultiLabel multilabel_of(Ctx& x, Value self, Value target) {
  check_matrix(x, self);
  x.check(target.dims() == self.dims(), "inconsistent target size: ", target.dims(),
          " for input of size: ", self.dims());
  check_long(x, target);
  const Value v = x.to_compute(as_batch(x, self));
  const Value t = as_batch(x, target);
  const int64_t batch = v.dim(0), classes = v.dim(1);
  x.assert_none(x.b.logical_or(lt(x, t, -1), ge(x, t, static_cast<double>(classes))),
                "argument #2 'target' is out of range");
  // Targets end at the first -1.
  const Value order = x.b.iota({DType::kI32, t.dims()}, 1);
  const Value end =
      x.min(x.b.select(lt(x, t, 0), order, x.like(order, static_cast<double>(classes))), {1});
  const Value counts = x.b.compare(Cmp::kLt, order, x.b.broadcast_in_dim(end, t.dims(), {0}));
  const Dims pairs{batch, classes, classes};
  const Value label = x.b.broadcast_in_dim(x.b.convert(t, DType::kI32), pairs, {0, 1});
  const Value at_target =
      x.b.logical_and(x.b.compare(Cmp::kEq, label, x.b.iota({DType::kI32, pairs}, 2)),
                      x.b.broadcast_in_dim(counts, pairs, {0, 1}));
  const Value is_target = x.any(at_target, {1});
  const Value across = x.b.broadcast_in_dim(v, pairs, {0, 2});
  const Value own = x.sum(x.b.select(at_target, across, zero_like(x, across)), {2});
  const Value z = plus(x, x.b.sub(across, x.b.broadcast_in_dim(own, pairs, {0, 1})), 1);
  const Value active =
      x.b.logical_and(x.b.logical_and(gt(x, z, 0), x.b.broadcast_in_dim(counts, pairs, {0, 1})),
                      x.b.logical_not(x.b.broadcast_in_dim(is_target, pairs, {0, 2})));
  return {v, is_target, x.b.select(active, z, zero_like(x, z)), at_target};
}

Value sample_gradient(Ctx& x, Value grad, Value v, int64_t reduction) {
  const Value g = x.convert(grad, v.dtype());
  const int64_t batch = v.dim(0);
  const double factor = mean_factor(reduction, batch) / static_cast<double>(v.dim(1));
  const Value flat = g.numel() == 1 ? x.b.reshape(g, {}) : x.b.reshape(g, {batch});
  const Value spread =
      flat.rank() == 0 ? x.broadcast(flat, v.dims()) : x.b.broadcast_in_dim(flat, v.dims(), {0});
  return times(x, spread, factor);
}

void register_margins(Registry& r) {
  r.op("aten::multi_margin_loss", [](Ctx& x, Value self, Value target, Number p, Scalar margin,
                                     Opt<Value> weight, int64_t reduction) {
    const Margin m = margin_of(x, self, target, p, margin, weight);
    check_dtype(x, self.dtype(), kReal, "multi_margin_loss_cpu_kernel");
    const Value per_class = x.b.mul(p.d == 1 ? m.hinge : square(x, m.hinge), m.weight);
    const Value sum = x.sum(per_class, {1});
    const Value loss = x.b.div(sum, x.like(sum, static_cast<double>(m.input.dim(1))));
    const bool rank0 = self.rank() < 2 && target.rank() == 0;
    return reduce_loss(x, rank0 ? x.b.reshape(loss, {}) : loss, reduction, self.dtype());
  });
  r.op("aten::multi_margin_loss_backward", [](Ctx& x, Value grad, Value self, Value target,
                                              Number p, Scalar margin, Opt<Value> weight,
                                              int64_t reduction) {
    const Margin m = margin_of(x, self, target, p, margin, weight);
    check_dtype(x, self.dtype(), kReal, "multi_margin_loss_backward_cpu_kernel");
    const Value slope =
        p.d == 1 ? x.convert(gt(x, m.hinge, 0), m.hinge.dtype()) : times(x, m.hinge, 2);
    const Value others = x.b.mul(slope, m.weight);
    const Value own = x.b.neg(x.b.broadcast_in_dim(x.sum(others, {1}), others.dims(), {0}));
    const Value g =
        x.b.mul(x.b.select(m.correct, own, others), sample_gradient(x, grad, m.input, reduction));
    return x.b.reshape(x.convert(g, self.dtype()), self.dims());
  });
  r.op("aten::multilabel_margin_loss_forward",
       [](Ctx& x, Value self, Value target, int64_t reduction) {
         const MultiLabel m = multilabel_of(x, self, target);
         check_dtype(x, self.dtype(), kReal, "multilabel_margin_loss_forward_out_frame");
         const Value sum = x.sum(m.hinge, {1, 2});
         const Value loss = x.b.div(sum, x.like(sum, static_cast<double>(m.input.dim(1))));
         const Value out = reduce_loss(x, self.rank() < 2 ? x.b.reshape(loss, {}) : loss, reduction,
                                       self.dtype());
         return std::array{out, x.b.reshape(x.convert(m.is_target, self.dtype()), self.dims())};
       });
  r.op("aten::multilabel_margin_loss_backward",
       [](Ctx& x, Value grad, Value self, Value target, int64_t reduction, Value) {
         const MultiLabel m = multilabel_of(x, self, target);
         check_dtype(x, self.dtype(), kReal, "multilabel_margin_loss_backward_out_frame");
         const Value hit = x.convert(gt(x, m.hinge, 0), m.hinge.dtype());
         const Value of_target = x.b.broadcast_in_dim(x.sum(hit, {2}), hit.dims(), {0, 1});
         const Value down = x.sum(x.b.select(m.at_target, of_target, zero_like(x, hit)), {1});
         const Value g =
             x.b.mul(x.b.sub(x.sum(hit, {1}), down), sample_gradient(x, grad, m.input, reduction));
         return x.b.reshape(x.convert(g, self.dtype()), self.dims());
       });
}

}  // namespace

void register_loss(Registry& r) {
  register_differences(r);
  register_bce(r);
  register_nll(r);
  register_margins(r);
  register_ctc(r);
  register_distance(r);
}

}  // namespace tpu::aten
