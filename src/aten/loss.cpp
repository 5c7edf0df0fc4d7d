#include <algorithm>
#include <array>
#include <cmath>
#include <limits>
#include <numeric>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Registry;
using ops::scalar_type_name;

enum Reduction : int64_t { kNone = 0, kMean = 1, kSum = 2 };

// The loss per element (in its compute type) as the result of dtype t.
Value reduce_loss(Ctx& x, Value loss, int64_t reduction, DType t) {
  x.check(reduction >= kNone && reduction <= kSum, reduction, " is not a valid value for reduction");
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
  Value (*loss)(Ctx&, Value difference, double parameter);
};

Value smooth_l1(Ctx& x, Value d, double beta) {
  const Value z = abs(x, d);
  if (beta == 0) return z;
  return x.b.select(lt(x, z, beta), x.b.div(times(x, square(x, z), 0.5), x.like(z, beta)), plus(x, z, -0.5 * beta));
}

Value huber(Ctx& x, Value d, double delta) {
  const Value z = abs(x, d);
  return x.b.select(lt(x, z, delta), times(x, square(x, z), 0.5), times(x, plus(x, z, -0.5 * delta), delta));
}

Value difference_loss(Ctx& x, const Difference& k, Value self, Value target, int64_t reduction, double parameter) {
  const DType common = x.promote(self, target);
  check_dtype(x, common, kFloats, k.kernel);
  const auto [v, w] = x.broadcast_all(hlo::compute_type(common), self, target);
  return reduce_loss(x, k.loss(x, x.b.sub(v, w), parameter), reduction, k.promotes ? common : self.dtype());
}

constexpr Difference kMse{"aten::mse_loss", "mse_cpu", true, [](Ctx& x, Value d, double) { return square(x, d); }};
constexpr Difference kSmoothL1{"aten::smooth_l1_loss", "smooth_l1_cpu", true, smooth_l1};
constexpr Difference kHuber{"aten::huber_loss", "huber_cpu", false, huber};

// slope(difference) * grad * the mean's factor, with self's dtype.
template <class F>
Value difference_backward(Ctx& x, Value grad, Value self, Value target, int64_t reduction, uint8_t classes,
                          const char* kernel, F slope) {
  check_dtype(x, x.promote(grad, self, target), classes, kernel);
  const DType c = hlo::compute_type(x.promote(self, target));
  const auto [g, v, w] = x.broadcast_all(c, grad, self, target);
  const Value r = x.b.mul(slope(x.b.sub(v, w)), g);
  return x.convert(times(x, r, mean_factor(reduction, self.numel())), self.dtype());
}

// -bound below, +bound above, d * inner between.
Value clipped_slope(Ctx& x, Value d, double limit, double bound, double inner) {
  const Value middle = x.b.select(ge(x, d, limit), x.like(d, bound), times(x, d, inner));
  return x.b.select(le(x, d, -limit), x.like(d, -bound), middle);
}

void check_beta(Ctx& x, double beta) {
  x.check(beta >= 0, "smooth_l1_loss does not support negative values for beta.");
}
void check_delta(Ctx& x, double delta) {
  x.check(delta > 0, "huber_loss does not support non-positive values for delta.");
}

void register_differences(Registry& r) {
  r.op(kMse.name, [](Ctx& x, Value self, Value target, int64_t reduction) {
     return difference_loss(x, kMse, self, target, reduction, 0);
   }).elementwise();
  r.op(kSmoothL1.name, [](Ctx& x, Value self, Value target, int64_t reduction, double beta) {
     check_beta(x, beta);
     return difference_loss(x, kSmoothL1, self, target, reduction, beta);
   }).elementwise();
  r.op(kHuber.name, [](Ctx& x, Value self, Value target, int64_t reduction, double delta) {
     check_delta(x, delta);
     return difference_loss(x, kHuber, self, target, reduction, delta);
   }).elementwise();
  r.op("aten::mse_loss_backward", [](Ctx& x, Value grad, Value self, Value target, int64_t reduction) {
     return difference_backward(x, grad, self, target, reduction, kOrdered, "mse_backward_cpu_out",
                                [&](Value d) { return times(x, d, 2); });
   }).elementwise();
  r.op("aten::smooth_l1_loss_backward",
       [](Ctx& x, Value grad, Value self, Value target, int64_t reduction, double beta) {
         return difference_backward(x, grad, self, target, reduction, kOrdered, "smooth_l1_backward_cpu_out",
                                    [&](Value d) { return clipped_slope(x, d, beta, 1, beta == 0 ? 0 : 1 / beta); });
       }).elementwise();
  r.op("aten::huber_loss_backward",
       [](Ctx& x, Value grad, Value self, Value target, int64_t reduction, double delta) {
         return difference_backward(x, grad, self, target, reduction, kFloats, "huber_backward_cpu_out",
                                    [&](Value d) { return clipped_slope(x, d, delta, delta, 1); });
       }).elementwise();
  r.op("aten::soft_margin_loss", [](Ctx& x, Value self, Value target, int64_t reduction) {
     const DType t = x.promote(self, target);
     check_dtype(x, t, kFloats, "soft_margin_loss");
     const auto [v, w] = x.broadcast_all(hlo::compute_type(t), self, target);
     return reduce_loss(x, x.b.unary(Op::kLogPlusOne, exp(x, x.b.neg(x.b.mul(v, w)))), reduction, t);
   }).elementwise();
  r.op("aten::soft_margin_loss_backward", [](Ctx& x, Value grad, Value self, Value target, int64_t reduction) {
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
  x.assert_none(x.b.logical_not(inside), cat("all elements of ", what, " should be between 0 and 1"));
}

void check_same_dtype(Ctx& x, Value v, DType t) {
  x.check(v.dtype() == t, "Found dtype ", scalar_type_name(v.dtype()), " but expected ", scalar_type_name(t));
}

Value weighted(Ctx& x, Value v, const Opt<Value>& weight) {
  return weight ? x.binary(Op::kMultiply, v, x.convert(*weight, v.dtype())) : v;
}

void register_bce(Registry& r) {
  r.op("aten::binary_cross_entropy", [](Ctx& x, Value self, Value target, Opt<Value> weight, int64_t reduction) {
     check_dtype(x, self.dtype(), kFloats, "binary_cross_entropy");
     check_same_dtype(x, target, self.dtype());
     const auto [p, t] = x.broadcast_all(hlo::compute_type(self.dtype()), self, target);
     check_probability(x, p, "input");
     check_probability(x, t, "target");
     // A logarithm is never below -100, so that a wrong certain prediction costs a finite amount.
     const auto bounded = [&](Value v) { return x.b.maximum(v, x.like(v, -100)); };
     const Value log_p = bounded(log(x, p)), log_q = bounded(x.b.unary(Op::kLogPlusOne, x.b.neg(p)));
     const Value loss = x.b.sub(x.b.mul(plus(x, t, -1), log_q), x.b.mul(t, log_p));
     return reduce_loss(x, weighted(x, loss, weight), reduction, self.dtype());
   }).elementwise();
  r.op("aten::binary_cross_entropy_backward",
       [](Ctx& x, Value grad, Value self, Value target, Opt<Value> weight, int64_t reduction) {
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

Nll nll_of(Ctx& x, Value self, Value target, const Opt<Value>& weight, int64_t dim, int64_t ignore_index) {
  const int64_t classes = self.dim(dim);
  const DType c = hlo::compute_type(self.dtype());
  // Out of the target's range: nothing can be ignored.
  const bool can_ignore = target.dtype() != DType::kU8 || (ignore_index >= 0 && ignore_index < 256);
  const Value ignored = can_ignore ? x.b.compare(Cmp::kEq, target, x.b.splat(target.type(), ignore_index))
                                   : x.zeros({DType::kBool, target.dims()});
  const Value index = x.checked_index(x.b.select(ignored, zero_like(x, target), target), classes, dim, false);
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
  if (self.rank() == 1) return x.b.reshape(take(x, self, x.b.reshape(index, {1}), 0), {});
  if (self.rank() > 2) {  // few classes, many pixels: a sum with one term that is not 0 fuses
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
std::array<Value, 2> nll_forward(Ctx& x, Value self, Value target, const Opt<Value>& weight, int64_t dim,
                                 int64_t reduction, int64_t ignore_index) {
  const DType t = self.dtype();
  const Nll n = nll_of(x, self, target, weight, dim, ignore_index);
  const Value likelihood = x.to_compute(pick(x, self, n.index, dim));
  const Value loss = x.b.select(n.ignored, zero_like(x, likelihood), x.b.neg(x.b.mul(likelihood, n.weight)));
  if (reduction == kNone && self.rank() > 1) return {x.convert(loss, t), x.constant(t, 0)};
  const Value total = x.sum(n.weight, x.all_axes(n.weight));
  Value sum = x.sum(loss, x.all_axes(loss));
  if (reduction == kMean) sum = x.b.div(sum, total);
  return {x.convert(sum, t), x.convert(total, t)};
}

Value nll_backward(Ctx& x, Value grad, Value self, Value target, const Opt<Value>& weight, int64_t dim,
                   int64_t reduction, int64_t ignore_index, Value total_weight) {
  x.check(total_weight.numel() == 1, "expected total_weight to be a  single element tensor, got: ",
          total_weight.dims(), " (", total_weight.numel(), " elements)");
  const Nll n = nll_of(x, self, target, weight, dim, ignore_index);
  const DType c = n.weight.dtype();
  Value g = x.convert(grad, c);
  if (reduction != kNone || self.rank() == 1) {
    x.check(grad.numel() == 1, "Expected a single element grad_output tensor, but got: ", grad.dims());
    g = x.b.reshape(g, {});
  } else {
    x.check(grad.dims() == target.dims(), "Expected a tensor of dimension ", target.rank(),
            " and tensor.size[0] == ", target.dim(0), " but got: dimension ", grad.rank(),
            " and tensor.size[0] = ", grad.rank() > 0 ? grad.dim(0) : 0);
  }
  if (reduction == kMean) g = x.b.div(g, x.b.reshape(x.convert(total_weight, c), {}));
  const Value of_sample = x.b.select(n.ignored, zero_like(x, n.weight), x.b.neg(x.binary(Op::kMultiply, n.weight, g)));
  Dims map;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != dim) map.push_back(i);
  }
  const Value spread = x.b.broadcast_in_dim(of_sample, self.dims(), map);
  return x.convert(x.select(at_class(x, self, n.index, dim), spread, zero_like(x, spread)), self.dtype());
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
  x.check(single ? target.numel() == 1 : target.dims() == Dims{self.dim(0)}, "size mismatch (got input: ",
          self.dims(), ", target: ", target.dims(), ")");
  const int64_t classes = self.dim(self.rank() - 1);
  x.check(!weight || (weight->rank() == 1 && weight->dim(0) == classes),
          "weight tensor should be defined either for all ", classes,
          " classes or no classes but got weight tensor of shape: ", weight ? weight->dims() : Dims{});
  check_target_dtype(x, target);
  return single ? x.b.reshape(target, {}) : target;
}

void check_nll2d(Ctx& x, Value self, Value target, const Opt<Value>& weight) {
  x.check(target.rank() == 3, "only batches of spatial targets supported (3D tensors) but got targets of dimension: ",
          target.rank());
  x.check(self.rank() == 4, "only batches of spatial inputs supported (4D tensors), but got input of dimension: ",
          self.rank());
  x.check(target.dims() == Dims{self.dim(0), self.dim(2), self.dim(3)}, "size mismatch (got input: ", self.dims(),
          " , target: ", target.dims());
  x.check(!weight || weight->numel() == self.dim(1), "weight tensor should be defined either for all or no classes");
  check_target_dtype(x, target);
}

void check_weight_dtype(Ctx& x, Value self, const Opt<Value>& weight) {
  x.check(!weight || weight->dtype() == self.dtype(), "expected scalar type ", scalar_type_name(self.dtype()),
          " but found ", scalar_type_name(weight ? weight->dtype() : self.dtype()));
}

void register_nll(Registry& r) {
  r.op("aten::nll_loss_forward",
       [](Ctx& x, Value self, Value target, Opt<Value> weight, int64_t reduction, int64_t ignore_index) {
         const Value classes = check_nll(x, self, target, weight);
         check_dtype(x, self.dtype(), kFloats, "nll_loss_out_frame");
         check_weight_dtype(x, self, weight);
         return nll_forward(x, self, classes, weight, self.rank() - 1, reduction, ignore_index);
       });
  r.op("aten::nll_loss_backward", [](Ctx& x, Value grad, Value self, Value target, Opt<Value> weight,
                                     int64_t reduction, int64_t ignore_index, Value total_weight) {
    const Value classes = check_nll(x, self, target, weight);
    check_dtype(x, self.dtype(), kFloats, "nll_loss_backward_out_frame");
    return nll_backward(x, grad, self, classes, weight, self.rank() - 1, reduction, ignore_index, total_weight);
  });
  r.op("aten::nll_loss2d_forward",
       [](Ctx& x, Value self, Value target, Opt<Value> weight, int64_t reduction, int64_t ignore_index) {
         check_nll2d(x, self, target, weight);
         check_dtype(x, self.dtype(), kFloats, "nll_loss2d_forward_out_frame");
         check_weight_dtype(x, self, weight);
         return nll_forward(x, self, target, weight, 1, reduction, ignore_index);
       });
  r.op("aten::nll_loss2d_backward", [](Ctx& x, Value grad, Value self, Value target, Opt<Value> weight,
                                       int64_t reduction, int64_t ignore_index, Value total_weight) {
    check_nll2d(x, self, target, weight);
    check_dtype(x, self.dtype(), kFloats, "nll_loss2d_backward_out_frame");
    return nll_backward(x, grad, self, target, weight, 1, reduction, ignore_index, total_weight);
  });
}

// ---- Margin losses. A single sample is a batch of one until the end.

Value as_batch(Ctx& x, Value v) { return v.rank() < 2 ? x.b.reshape(v, {1, v.numel()}) : v; }

struct Margin {
  Value input;    // [N, C], compute type
  Value index;    // [N]
  Value hinge;    // margin - input[y] + input, 0 at the class itself
  Value correct;  // bool, at the class
  Value weight;   // of the sample's class, [N, C]
};

Margin margin_of(Ctx& x, Value self, Value target, const Number& p, const Scalar& margin, const Opt<Value>& weight) {
  x.check(p.d == 1 || p.d == 2, "only p == 1 and p == 2 supported");
  x.check(self.rank() <= 2 && (self.rank() < 2 || self.dim(1) > 0),
          "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.dims());
  const Value v = x.to_compute(as_batch(x, self));
  const int64_t batch = v.dim(0), classes = v.dim(1);
  x.check(target.rank() <= 1 && target.numel() == batch,
          "multi_margin_loss: target tensor should be 1-D with size equal to the number of input samples (batch "
          "size). Expected target size [", batch, "], but got ", target.dims(), ". Input has shape ", self.dims(), ".");
  x.check(!weight || weight->numel() == classes, "inconsistent weight size, expected ", classes, " but got ",
          weight ? weight->dims() : Dims{});
  const Value flat = x.b.reshape(target, {batch});
  x.assert_none(x.b.logical_or(lt(x, flat, 0), ge(x, flat, static_cast<double>(classes))), "target out of range");
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

// Pairs of a target class j and another class c, [N, J, C]: 1 - input[t_j] + input[c] where it counts.
struct MultiLabel {
  Value input;      // [N, C]
  Value is_target;  // [N, C], bool
  Value hinge;      // [N, J, C], 0 where it does not count
  Value at_target;  // [N, J, C]: c is the j-th target
};

MultiLabel multilabel_of(Ctx& x, Value self, Value target) {
  x.check(self.rank() <= 2 && (self.rank() < 2 || self.dim(1) > 0),
          "Expected non-empty vector or matrix with optional 0-dim batch size, but got: ", self.dims());
  x.check(target.dims() == self.dims(), "inconsistent target size: ", target.dims(), " for input of size: ",
          self.dims());
  const Value v = x.to_compute(as_batch(x, self));
  const Value t = as_batch(x, target);
  const int64_t batch = v.dim(0), classes = v.dim(1);
  x.assert_none(x.b.logical_or(lt(x, t, -1), ge(x, t, static_cast<double>(classes))),
                "argument #2 'target' is out of range");
  // Targets end at the first -1.
  const Value order = x.b.iota({DType::kI32, t.dims()}, 1);
  const Value end = x.min(x.b.select(lt(x, t, 0), order, x.like(order, static_cast<double>(classes))), {1});
  const Value counts = x.b.compare(Cmp::kLt, order, x.b.broadcast_in_dim(end, t.dims(), {0}));
  const Dims pairs{batch, classes, classes};
  const Value label = x.b.broadcast_in_dim(x.b.convert(t, DType::kI32), pairs, {0, 1});
  const Value at_target = x.b.logical_and(x.b.compare(Cmp::kEq, label, x.b.iota({DType::kI32, pairs}, 2)),
                                          x.b.broadcast_in_dim(counts, pairs, {0, 1}));
  const Value is_target = x.any(at_target, {1});
  const Value across = x.b.broadcast_in_dim(v, pairs, {0, 2});
  const Value own = x.sum(x.b.select(at_target, across, zero_like(x, across)), {2});
  const Value z = plus(x, x.b.sub(across, x.b.broadcast_in_dim(own, pairs, {0, 1})), 1);
  const Value active = x.b.logical_and(
      x.b.logical_and(gt(x, z, 0), x.b.broadcast_in_dim(counts, pairs, {0, 1})),
      x.b.logical_not(x.b.broadcast_in_dim(is_target, pairs, {0, 2})));
  return {v, is_target, x.b.select(active, z, zero_like(x, z)), at_target};
}

Value sample_gradient(Ctx& x, Value grad, Value v, int64_t reduction) {
  const Value g = x.convert(grad, v.dtype());
  const int64_t batch = v.dim(0);
  const double factor = mean_factor(reduction, batch) / static_cast<double>(v.dim(1));
  const Value flat = g.numel() == 1 ? x.b.reshape(g, {}) : x.b.reshape(g, {batch});
  const Value spread = flat.rank() == 0 ? x.broadcast(flat, v.dims()) : x.b.broadcast_in_dim(flat, v.dims(), {0});
  return times(x, spread, factor);
}

void register_margins(Registry& r) {
  r.op("aten::multi_margin_loss", [](Ctx& x, Value self, Value target, Number p, Scalar margin, Opt<Value> weight,
                                     int64_t reduction) {
     const Margin m = margin_of(x, self, target, p, margin, weight);
     check_dtype(x, self.dtype(), kReal, "multi_margin_loss_cpu_kernel");
     const Value per_class = x.b.mul(p.d == 1 ? m.hinge : square(x, m.hinge), m.weight);
     const Value sum = x.sum(per_class, {1});
     const Value loss = x.b.div(sum, x.like(sum, static_cast<double>(m.input.dim(1))));
     const bool rank0 = self.rank() < 2 && target.rank() == 0;
     return reduce_loss(x, rank0 ? x.b.reshape(loss, {}) : loss, reduction, self.dtype());
   });
  r.op("aten::multi_margin_loss_backward", [](Ctx& x, Value grad, Value self, Value target, Number p, Scalar margin,
                                              Opt<Value> weight, int64_t reduction) {
    const Margin m = margin_of(x, self, target, p, margin, weight);
    check_dtype(x, self.dtype(), kReal, "multi_margin_loss_backward_cpu_kernel");
    const Value slope = p.d == 1 ? x.b.convert(gt(x, m.hinge, 0), m.hinge.dtype()) : times(x, m.hinge, 2);
    const Value others = x.b.mul(slope, m.weight);
    const Value own = x.b.neg(x.b.broadcast_in_dim(x.sum(others, {1}), others.dims(), {0}));
    const Value g = x.b.mul(x.b.select(m.correct, own, others), sample_gradient(x, grad, m.input, reduction));
    return x.b.reshape(x.convert(g, self.dtype()), self.dims());
  });
  r.op("aten::multilabel_margin_loss_forward", [](Ctx& x, Value self, Value target, int64_t reduction) {
    const MultiLabel m = multilabel_of(x, self, target);
    check_dtype(x, self.dtype(), kReal, "multilabel_margin_loss_forward_out_frame");
    const Value sum = x.sum(m.hinge, {1, 2});
    const Value loss = x.b.div(sum, x.like(sum, static_cast<double>(m.input.dim(1))));
    const Value out = reduce_loss(x, self.rank() < 2 ? x.b.reshape(loss, {}) : loss, reduction, self.dtype());
    return std::array{out, x.b.reshape(x.convert(m.is_target, self.dtype()), self.dims())};
  });
  r.op("aten::multilabel_margin_loss_backward",
       [](Ctx& x, Value grad, Value self, Value target, int64_t reduction, Value) {
         const MultiLabel m = multilabel_of(x, self, target);
         check_dtype(x, self.dtype(), kReal, "multilabel_margin_loss_backward_out_frame");
         const Value hit = x.b.convert(gt(x, m.hinge, 0), m.hinge.dtype());
         const Value of_target = x.b.broadcast_in_dim(x.sum(hit, {2}), hit.dims(), {0, 1});
         const Value down = x.sum(x.b.select(m.at_target, of_target, zero_like(x, hit)), {1});
         const Value g = x.b.mul(x.b.sub(x.sum(hit, {1}), down), sample_gradient(x, grad, m.input, reduction));
         return x.b.reshape(x.convert(g, self.dtype()), self.dims());
       });
}

// ---- Connectionist temporal classification (Graves et al. 2006), in the log domain. The extended
// target alternates blanks and labels: L = 2 S + 1 states.

struct Ctc {
  int64_t steps, batch, classes, states;
  Value input_lengths, target_lengths;  // [N], int32
  Value labels;                         // [N, L], int32
  Value may_skip;                       // [N, L]: state s is reached from s - 2
  Value log_probs;                      // [T, N, L], at the labels
};

Value minus_infinity(Ctx& x, Type t) { return x.b.splat(std::move(t), -std::numeric_limits<double>::infinity()); }

Value log_sum_exp(Ctx& x, const Values& terms) {
  Value high = terms[0];
  for (const Value& v : terms) high = x.b.maximum(high, v);
  const Value base = x.b.select(x.b.compare(Cmp::kEq, high, infinity_like(x, high, true)), zero_like(x, high), high);
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
  const Value index = x.b.add(x.b.broadcast_in_dim(offset, dims, {0}), x.b.iota({DType::kI32, dims}, 1));
  const Value safe = x.b.clamp(x.b.constant(DType::kI32, 0), index,
                               x.b.constant(DType::kI32, std::max<int64_t>(targets.dim(0) - 1, 0)));
  if (targets.dim(0) == 0) return x.zeros({targets.dtype(), dims});
  return x.b.reshape(take(x, targets, x.b.reshape(safe, {n * width}), 0), dims);
}

Ctc ctc_of(Ctx& x, Value log_probs, Value targets, Value input_lengths, Value target_lengths, int64_t width,
           int64_t blank) {
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
    const Value used = x.b.compare(Cmp::kLt, order, x.b.broadcast_in_dim(c.target_lengths, t.dims(), {0}));
    const Value index = x.checked_index(x.b.select(used, t, zero_like(x, t)), c.classes, 2, false);
    c.labels = x.b.pad(x.b.convert(index, DType::kI32), x.b.constant(DType::kI32, blank), {0, 1}, {0, 1}, {0, 1});
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
  return x.b.reshape(x.b.dynamic_slice(v, {t, zero, zero}, {1, v.dim(1), v.dim(2)}), {v.dim(1), v.dim(2)});
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
  return x.b.logical_or(x.b.compare(Cmp::kEq, state, last), x.b.compare(Cmp::kEq, state, plus(x, last, -1)));
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
        loop, [&](const Values& v) { return Values{x.b.compare(Cmp::kLt, v[0], x.b.constant(DType::kI32, c.steps))}; },
        [&](const Values& v) {
          const Value step = v[0], alpha = v[1];
          const Value now = row(x, c.log_probs, step);
          const Value skip = x.b.select(c.may_skip, shift_states(x, alpha, 2), none);
          const Value moved = x.b.add(log_sum_exp(x, {alpha, shift_states(x, alpha, 1), skip}), now);
          const Value starts = x.b.logical_or(is_zero(x, state), x.b.logical_and(x.b.compare(Cmp::kEq, state, x.like(state, 1)),
                                                                                 gt(x, lengths, 0)));
          const Value first = x.b.select(starts, now, none);
          const Value next = x.b.select(is_zero(x, step), first, moved);
          const Value at_end = x.b.compare(Cmp::kEq, last_step, x.broadcast(step, dims));
          return Values{plus(x, step, 1), next, x.b.select(at_end, next, v[2]), with_row(x, v[3], next, step)};
        });
  }
  const Value ends = x.b.select(final_states(x, c), loop[2], none);
  const Value high = x.max(ends, {1});
  const Value base = x.b.select(x.b.compare(Cmp::kEq, high, infinity_like(x, high, true)), zero_like(x, high), high);
  const Value sum = x.sum(exp(x, x.b.sub(ends, per_sample(x, base, dims))), {1});
  const Value loss = x.b.neg(x.b.add(log(x, sum), base));
  const Value empty = x.b.select(is_zero(x, c.target_lengths), zero_like(x, loss), infinity_like(x, loss));
  return {x.b.select(is_zero(x, c.input_lengths), empty, loss), x.b.transpose(loop[3], {1, 0, 2})};
}

Value ctc_backward(Ctx& x, const Ctc& c, Value grad, Value probs, Value loss, Value log_alpha, bool zero_infinity) {
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
        return Values{plus(x, step, -1), next, with_row(x, v[2], x.b.select(possible, share, zero_like(x, share)), step)};
      });
  hlo::ScatterDims s;
  s.update_window_dims = {2};
  s.inserted_window_dims = {1};
  s.scatter_dims_to_operand_dims = {1};
  s.input_batching_dims = {0};
  s.scatter_indices_batching_dims = {0};
  s.index_vector_dim = 2;
  const Value by_class = x.b.scatter(x.zeros({t, {c.batch, c.classes, c.steps}}), x.unsqueeze(c.labels, 2),
                                     x.b.transpose(loop[2], {1, 2, 0}), s, Op::kAdd);
  const Dims all = probs.dims();
  const auto spread = [&](Value v) { return x.b.broadcast_in_dim(v, all, {1}); };
  const Value g = x.b.mul(x.b.sub(exp(x, probs), x.b.transpose(by_class, {2, 0, 1})), spread(x.convert(grad, t)));
  const Value impossible = x.b.compare(Cmp::kEq, loss, infinity_like(x, loss));
  const Value without = zero_infinity ? zero_like(x, g) : x.like(g, std::nan(""));
  const Value inside = x.b.compare(Cmp::kLt, x.b.iota({DType::kI32, all}, 0), spread(c.input_lengths));
  return x.b.select(inside, x.b.select(spread(impossible), without, g), zero_like(x, g));
}

void check_ctc(Ctx& x, Value log_probs, Value targets, int64_t input_count, int64_t target_count) {
  x.check(log_probs.rank() == 3, "ctc_loss needs log_probs of 3 dimensions (time, batch, classes), got ",
          log_probs.dims());
  x.check(targets.dtype() == DType::kI64 || targets.dtype() == DType::kI32,
          "Expected tensor for argument #2 'targets' to have scalar type Int; but got ",
          scalar_type_name(targets.dtype()), " instead");
  x.check(targets.rank() == 1 || targets.rank() == 2, "ctc_loss needs targets of 1 or 2 dimensions, got ",
          targets.dims());
  x.check(input_count == log_probs.dim(1), "input_lengths must be of size batch_size");
  x.check(target_count == log_probs.dim(1), "target_lengths must be of size batch_size");
}

Value length_constant(Ctx& x, const Dims& v) {
  return x.b.constant_ints(v, {DType::kI32, {static_cast<int64_t>(v.size())}});
}

// Lengths known when the program is made.
Ctc ctc_of(Ctx& x, Value log_probs, Value targets, const Dims& input_lengths, const Dims& target_lengths,
           int64_t blank) {
  check_ctc(x, log_probs, targets, static_cast<int64_t>(input_lengths.size()),
            static_cast<int64_t>(target_lengths.size()));
  int64_t width = 0;
  for (const int64_t n : target_lengths) {
    x.check(n >= 0, "Expected target_lengths to have value at least 0, but got value ", n);
    width = std::max(width, n);
  }
  for (const int64_t n : input_lengths) {
    x.check(n >= 0, "Expected input_lengths to have value at least 0, but got value ", n);
    x.check(n <= log_probs.dim(0), "Expected input_lengths to have value at most ", log_probs.dim(0),
            ", but got value ", n);
  }
  if (targets.rank() == 2) {
    x.check(targets.dim(1) >= width, "Expected tensor to have size at least ", width, " at dimension 1, but got size ",
            targets.dim(1), " for argument #2 'targets'");
  } else {
    const int64_t total = std::accumulate(target_lengths.begin(), target_lengths.end(), int64_t{0});
    x.check(targets.dim(0) == total, "Expected tensor to have size ", total, " at dimension 0, but got size ",
            targets.dim(0), " for argument #2 'targets'");
  }
  return ctc_of(x, log_probs, targets, length_constant(x, input_lengths), length_constant(x, target_lengths), width,
                blank);
}

// Lengths known at run time: the widest target possible.
Ctc ctc_of(Ctx& x, Value log_probs, Value targets, Value input_lengths, Value target_lengths, int64_t blank) {
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
void register_ctc(Registry& r, const char* forward, const char* backward) {
  r.op(forward, [](Ctx& x, Value log_probs, Value targets, Lengths input_lengths, Lengths target_lengths,
                   int64_t blank, bool) {
    return ctc_forward(x, ctc_of(x, log_probs, targets, input_lengths, target_lengths, blank));
  });
  r.op(backward, [](Ctx& x, Value grad, Value log_probs, Value targets, Lengths input_lengths, Lengths target_lengths,
                    Value loss, Value log_alpha, int64_t blank, bool zero_infinity) {
    const Ctc c = ctc_of(x, log_probs, targets, input_lengths, target_lengths, blank);
    return ctc_backward(x, c, grad, log_probs, loss, log_alpha, zero_infinity);
  });
}

// ---- Distances between rows: x1 [..., P, M], x2 [..., R, M] -> [..., P, R].

const double kInf = std::numeric_limits<double>::infinity();

// |d| summed (p = 1), counted (0), its largest (inf), ... along the last axis.
Value norm_of(Ctx& x, Value d, double p) {
  const Dims last{d.rank() - 1};
  const Value a = abs(x, d);
  if (p == 0) return x.sum(x.b.convert(x.b.compare(Cmp::kNe, d, zero_like(x, d)), d.dtype()), last);
  if (p == 1) return x.sum(a, last);
  if (p == 2) return sqrt(x, x.sum(square(x, d), last));
  if (p == kInf) return x.reduce(a, x.constant(a.dtype(), 0), last, false, Op::kMaximum);
  const auto power = [&](Value v, double e) { return x.b.binary(Op::kPower, v, x.like(v, e)); };
  return power(x.sum(power(a, p), last), 1 / p);
}

// Slope of the distance `dist` in each element of the difference d (dims of d).
Value norm_slope(Ctx& x, Value d, Value dist, double p) {
  if (p == 0) return zero_like(x, d);
  const Value s = sign(x, d);
  if (p == 1) return s;
  const Value zero = zero_like(x, d);
  if (p == kInf) return x.b.select(x.b.compare(Cmp::kEq, abs(x, d), dist), s, zero);
  const Value same = is_zero(x, dist);
  const Value safe = x.b.select(same, x.like(dist, 1), dist);
  if (p == 2) return x.b.select(same, zero, x.b.div(d, safe));
  const auto power = [&](Value v, double e) { return x.b.binary(Op::kPower, v, x.like(v, e)); };
  const Value r = x.b.mul(s, x.b.div(power(abs(x, d), p - 1), power(safe, p - 1)));
  // Below 1 the slope at 0 is infinite; CPU drops it.
  return x.b.select(x.b.logical_or(same, is_zero(x, d)), zero, r);
}

struct Pairs {
  Value left, right;  // [..., P, R, M]
};
Pairs pair_rows(Ctx& x, Value x1, Value x2) {
  Dims batch1(x1.dims().begin(), x1.dims().end() - 2), batch2(x2.dims().begin(), x2.dims().end() - 2);
  Dims dims = x.broadcast_dims({batch1, batch2});
  dims.insert(dims.end(), {x1.dim(x1.rank() - 2), x2.dim(x2.rank() - 2), x1.dim(x1.rank() - 1)});
  return {x.broadcast(x.unsqueeze(x1, -2), dims), x.broadcast(x.unsqueeze(x2, -3), dims)};
}

void check_cdist(Ctx& x, Value x1, Value x2, double p) {
  for (const auto& [v, name] : {std::pair{x1, "X1"}, std::pair{x2, "X2"}}) {
    x.check(v.rank() >= 2, "cdist only supports at least 2D tensors, ", name, " got: ", v.rank(), "D");
    x.check(hlo::is_float(v.dtype()), "cdist only supports floating-point dtypes, ", name, " got: ",
            scalar_type_name(v.dtype()));
  }
  x.check(x1.dim(x1.rank() - 1) == x2.dim(x2.rank() - 1), "X1 and X2 must have the same number of columns. X1: ",
          x1.dim(x1.rank() - 1), " X2: ", x2.dim(x2.rank() - 1));
  x.check(p >= 0, "cdist only supports non-negative p values");
  x.check(x1.dtype() == x2.dtype(), "expected scalar type ", scalar_type_name(x1.dtype()), " but found ",
          scalar_type_name(x2.dtype()));
  check_dtype(x, x1.dtype(), kReal, "cdist");
}

// |a|^2 + |b|^2 - 2 a b: a matrix product instead of P R M differences.
Value euclidean_by_product(Ctx& x, Value x1, Value x2) {
  const Dims batch = x.broadcast_dims(
      {Dims(x1.dims().begin(), x1.dims().end() - 2), Dims(x2.dims().begin(), x2.dims().end() - 2)});
  const auto expand = [&](Value v) {
    Dims d = batch;
    d.insert(d.end(), {v.dim(v.rank() - 2), v.dim(v.rank() - 1)});
    return x.broadcast(v, d);
  };
  const Value a = expand(x1), b = expand(x2);
  const Value product = wide_matmul(x, a, b, true);
  const int64_t last = a.rank() - 1;
  const Value aa = x.unsqueeze(x.sum(square(x, a), {last}), -1), bb = x.unsqueeze(x.sum(square(x, b), {last}), -2);
  const Value sum = x.b.add(x.broadcast(aa, product.dims()), x.broadcast(bb, product.dims()));
  const Value squared = x.b.sub(sum, times(x, product, 2));
  return sqrt(x, x.b.maximum(squared, zero_like(x, squared)));
}

Value cdist(Ctx& x, Value x1, Value x2, double p, const Opt<int64_t>& compute_mode) {
  check_cdist(x, x1, x2, p);
  const int64_t mode = compute_mode.value_or(0);
  x.check(mode >= 0 && mode <= 2, "possible modes: 0, 1, 2, but was: ", mode);
  const bool large = x1.dim(x1.rank() - 2) > 25 || x2.dim(x2.rank() - 2) > 25;
  if (p == 2 && (mode == 1 || (mode == 0 && large))) return euclidean_by_product(x, x1, x2);
  const Pairs pairs = pair_rows(x, x1, x2);
  return norm_of(x, x.b.sub(pairs.left, pairs.right), p);
}

Value cdist_backward(Ctx& x, Value grad, Value x1, Value x2, double p, Value dist) {
  if (grad.numel() == 0 || x1.numel() == 0 || x2.numel() == 0) return x.zeros(x1.type());
  const Pairs pairs = pair_rows(x, x1, x2);
  const Value d = x.b.sub(pairs.left, pairs.right);
  const auto spread = [&](Value v) { return x.broadcast(x.unsqueeze(v, -1), d.dims()); };
  return x.sum(x.b.mul(norm_slope(x, d, spread(dist), p), spread(grad)), {d.rank() - 2});
}

// Position of the pair (i, j), i < j, among the n (n - 1) / 2 distances, for all i and j ([n, n]):
// symmetric; 0 on the diagonal, which `off_diagonal` masks.
struct PairIndex {
  Value position, off_diagonal;
};
PairIndex pair_index(Ctx& x, int64_t n) {
  const Type t{DType::kI32, {n, n}};
  const Value i = x.b.iota(t, 0), j = x.b.iota(t, 1);
  const Value low = x.b.minimum(i, j), high = x.b.maximum(i, j);
  // low n - low (low + 1) / 2 + high - low - 1
  const Value triangle = x.b.div(x.b.mul(low, plus(x, low, 1)), x.like(low, 2));
  const Value start = x.b.sub(times(x, low, static_cast<double>(n)), triangle);
  const Value off = x.b.compare(Cmp::kNe, i, j);
  const Value position = plus(x, x.b.add(start, x.b.sub(high, low)), -1);
  return {x.b.select(off, position, x.like(position, 0)), off};
}

void register_distances(Registry& r) {
  r.op("aten::_cdist_forward", cdist);
  r.op("aten::_cdist_backward", cdist_backward);
  r.op("aten::_pdist_forward", [](Ctx& x, Value self, double p) {
    x.check(self.rank() == 2, "pdist only supports 2D tensors, got: ", self.rank(), "D");
    check_dtype(x, self.dtype(), kReal, "pdist");
    x.check(p >= 0, "pdist only supports non-negative p values");
    const int64_t n = self.dim(0), count = n * (n - 1) / 2;
    if (count <= 0) return x.zeros({self.dtype(), {0}});
    // All pairs, of which the upper triangle is read.
    const Pairs pairs = pair_rows(x, self, self);
    const Value all = norm_of(x, x.b.sub(pairs.left, pairs.right), p);
    std::vector<int64_t> index;
    index.reserve(at(count));
    for (int64_t i = 0; i < n; ++i) {
      for (int64_t j = i + 1; j < n; ++j) index.push_back(i * n + j);
    }
    return take(x, x.b.reshape(all, {n * n}), x.b.constant_ints(index, {DType::kI32, {count}}), 0, true);
  });
  r.op("aten::_pdist_backward", [](Ctx& x, Value grad, Value self, double p, Value dist) {
    const int64_t n = self.dim(0);
    if (n < 2 || self.numel() == 0) return x.zeros(self.type());
    const PairIndex k = pair_index(x, n);
    const Value flat = x.b.reshape(k.position, {n * n});
    const auto matrix = [&](Value v) {
      const Value m = x.b.reshape(take(x, v, flat, 0), {n, n});
      return x.b.select(k.off_diagonal, m, zero_like(x, m));
    };
    return cdist_backward(x, matrix(grad), self, self, p, matrix(dist));
  });
}

}  // namespace

void register_loss(Registry& r) {
  register_differences(r);
  register_bce(r);
  register_nll(r);
  register_margins(r);
  register_ctc<Dims>(r, "aten::_ctc_loss", "aten::_ctc_loss_backward");
  register_ctc<Value>(r, "aten::_ctc_loss.Tensor", "aten::_ctc_loss_backward.Tensor");
  register_distances(r);
}

}  // namespace tpu::aten
