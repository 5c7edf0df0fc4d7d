// Ops that PyTorch's schema describes incompletely: results that are integers, arguments that are
// written without saying so, strides that are part of the meaning. Each calls the op of ours that
// does the work.
#include <ATen/Functions.h>
#include <ATen/native/DispatchStub.h>
#include <ATen/native/transformers/attention.h>
#include <torch/library.h>

#include <cmath>
#include <limits>

#include "bridge/errors.h"
#include "bridge/kernel.h"

namespace tpu::bridge {
namespace {

using at::Tensor;
using c10::IValue;

IValue optional(const std::optional<Tensor>& t) {
  return t && t->defined() ? IValue(*t) : IValue();
}

std::vector<Tensor> run(const char* op, c10::ArrayRef<IValue> args) {
  try {
    return call(op, args);
  } catch (const Error& e) {
    rethrow(e, cat(op, ": "));
  }
}

// ---- Sequences. Of the numbers only the size is part of the program: arange(k, k + 1) in a loop
// compiles once.

// Number of elements of arange (the end is left out) and range (it belongs to it).
int64_t sequence_size(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                      at::ScalarType t, bool with_end) {
  const double first = start.toDouble(), last = end.toDouble(), by = step.toDouble();
  TORCH_CHECK(by != 0, "step must be nonzero");
  TORCH_CHECK(std::isfinite(first) && std::isfinite(last), "unsupported range: ", first, " -> ",
              last);
  TORCH_CHECK((by > 0 && last >= first) || (by < 0 && last <= first),
              "upper bound and lower bound inconsistent with step sign");
  double steps = (last - first) / by;
  // Truncated first, so that large integers stay exact.
  if (t == at::kLong || (with_end && at::isIntegralType(t, /*includeBool=*/false))) {
    TORCH_CHECK_VALUE(step.toLong() != 0, "step must be nonzero");
    steps = static_cast<double>(end.toLong() - start.toLong()) / static_cast<double>(step.toLong());
  }
  const double size = with_end ? std::floor(steps) + 1 : std::ceil(steps);
  TORCH_CHECK(size >= 0 && size <= static_cast<double>(std::numeric_limits<int64_t>::max()),
              "invalid size, possible overflow?");
  return static_cast<int64_t>(size);
}

template <bool with_end>
Tensor& sequence_out(const at::Scalar& start, const at::Scalar& end, const at::Scalar& step,
                     Tensor& out) {
  const int64_t size = sequence_size(start, end, step, out.scalar_type(), with_end);
  if (out.numel() != size) {
    if (out.numel() > 0) {
      TORCH_WARN("The number of elements in the out tensor of shape ", out.sizes(), " is ",
                 out.numel(), " which does not match the computed number of elements ", size,
                 ". The out tensor is resized to (", size, ",).");
    }
    out.resize_({size});
  }
  const c10::DeviceGuard guard(out.device());
  return out.copy_(run("tpu::arange", {size, start, step, out.scalar_type()})[0].view(out.sizes()));
}

// ---- Attention.

constexpr int64_t kMath = 0, kOverrideable = 4;  // at::SDPBackend

int64_t sdp_choice(const Tensor& query, const Tensor& key, const Tensor& value,
                   const std::optional<Tensor>& mask, double, bool, std::optional<double>, bool) {
  // Asked about fake tensors, too: a size may be a symbol.
  const auto not_empty = [](const Tensor& t) {
    return TORCH_GUARD_OR_TRUE(t.sym_numel().sym_gt(0));
  };
  const bool shapes = query.dim() == 4 && key.dim() == 4 && value.dim() == 4 &&
                      !query.is_nested() && !key.is_nested() && !value.is_nested() &&
                      not_empty(query) && not_empty(key);
  const bool types = at::isFloatingType(query.scalar_type()) &&
                     query.scalar_type() == key.scalar_type() &&
                     query.scalar_type() == value.scalar_type();
  // A mask that needs a gradient is the math path's business when it does not have the scores' full
  // shape.
  const bool grad_mask = mask && mask->defined() && mask->requires_grad();
  return shapes && types && !grad_mask ? kOverrideable : kMath;
}

std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
attention(const Tensor& query, const Tensor& key, const Tensor& value,
          const std::optional<Tensor>& bias, double dropout_p, bool is_causal,
          bool /*return_debug_mask*/, std::optional<double> scale) {
  auto r = run("tpu::scaled_dot_product_attention", {query, key, value, optional(bias), dropout_p,
                                                     is_causal, scale ? IValue(*scale) : IValue()});
  return {r[0], r[1], Tensor(), Tensor(), query.size(-2), key.size(-2), r[2], r[3], Tensor()};
}

// The same under the name of another device's kernel, for callers that pick it.
std::tuple<Tensor, Tensor, Tensor, Tensor, c10::SymInt, c10::SymInt, Tensor, Tensor, Tensor>
cudnn_attention(const Tensor& query, const Tensor& key, const Tensor& value,
                const std::optional<Tensor>& bias, bool /*compute_log_sumexp*/, double dropout_p,
                bool is_causal, bool debug_mask, std::optional<double> scale) {
  return attention(query, key, value, bias, dropout_p, is_causal, debug_mask, scale);
}

std::tuple<Tensor, Tensor, Tensor> cudnn_attention_backward(
    const Tensor& grad_out, const Tensor& query, const Tensor& key, const Tensor& value,
    const Tensor& out, const Tensor& logsumexp, const Tensor& seed, const Tensor& offset,
    const Tensor& bias, const Tensor& cum_seq_q, const Tensor& cum_seq_k, c10::SymInt max_q,
    c10::SymInt max_k, double dropout_p, bool is_causal, std::optional<double> scale) {
  const auto [dq, dk, dv, _] = at::_scaled_dot_product_fused_attention_overrideable_backward_symint(
      grad_out, query, key, value, bias, {true, true, true, false}, out, logsumexp, cum_seq_q,
      cum_seq_k, max_q, max_k, dropout_p, is_causal, seed, offset, scale);
  return {dq, dk, dv};
}

// nn.TransformerEncoder asks whether it may pack its batch into a strided nested tensor, which the
// device does not have. Told no, it masks the attention.
bool mask_is_left_aligned(const Tensor& /*input*/, const Tensor& /*mask*/) { return false; }

// ---- Batch norm: running statistics are written.

void write_back(const std::optional<Tensor>& destination, const Tensor& result) {
  if (destination && destination->defined() && result.defined()) destination->copy_(result);
}

std::tuple<Tensor, Tensor, Tensor> native_batch_norm(const Tensor& input,
                                                     const std::optional<Tensor>& weight,
                                                     const std::optional<Tensor>& bias,
                                                     const std::optional<Tensor>& mean,
                                                     const std::optional<Tensor>& var,
                                                     bool training, double momentum, double eps) {
  auto r = run("tpu::native_batch_norm_with_stats",
               {input, optional(weight), optional(bias), optional(mean), optional(var), training,
                momentum, eps});
  if (training) {
    write_back(mean, r[3]);
    write_back(var, r[4]);
  }
  return {r[0], r[1], r[2]};
}

std::tuple<Tensor&, Tensor&, Tensor&> native_batch_norm_out(
    const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    const std::optional<Tensor>& mean, const std::optional<Tensor>& var, bool training,
    double momentum, double eps, Tensor& out, Tensor& save_mean, Tensor& save_invstd) {
  const auto r = bridge::native_batch_norm(input, weight, bias, mean, var, training, momentum, eps);
  const auto give = [](Tensor& to, const Tensor& from) {
    if (to.sizes() != from.sizes()) to.resize_(from.sizes());
    to.copy_(from);
  };
  give(out, std::get<0>(r));
  give(save_mean, std::get<1>(r));
  give(save_invstd, std::get<2>(r));
  return {out, save_mean, save_invstd};
}

std::tuple<Tensor&, Tensor&, Tensor&> batch_norm_legit_out(const Tensor& input,
                                                           const std::optional<Tensor>& weight,
                                                           const std::optional<Tensor>& bias,
                                                           Tensor& mean, Tensor& var, bool training,
                                                           double momentum, double eps, Tensor& out,
                                                           Tensor& save_mean, Tensor& save_invstd) {
  return bridge::native_batch_norm_out(input, weight, bias, mean, var, training, momentum, eps, out,
                                       save_mean, save_invstd);
}

std::tuple<Tensor&, Tensor&, Tensor&, Tensor&> batch_norm_with_update_out(
    const Tensor& input, const std::optional<Tensor>& weight, const std::optional<Tensor>& bias,
    Tensor& mean, Tensor& var, double momentum, double eps, Tensor& out, Tensor& save_mean,
    Tensor& save_invstd, Tensor& reserve) {
  bridge::native_batch_norm_out(input, weight, bias, mean, var, true, momentum, eps, out, save_mean,
                                save_invstd);
  reserve.resize_({0});
  return {out, save_mean, save_invstd, reserve};
}

std::tuple<Tensor, Tensor> batch_norm_update_stats(const Tensor& input,
                                                   const std::optional<Tensor>& mean,
                                                   const std::optional<Tensor>& var,
                                                   double momentum) {
  auto r = run("tpu::batch_norm_update_stats_with_stats",
               {input, optional(mean), optional(var), momentum});
  write_back(mean, r[2]);
  write_back(var, r[3]);
  return {r[0], r[1]};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats(const Tensor& input, const Tensor& mean,
                                                   const Tensor& invstd,
                                                   const std::optional<Tensor>& running_mean,
                                                   const std::optional<Tensor>& running_var,
                                                   double momentum, double eps, int64_t count) {
  auto r = run(
      "tpu::batch_norm_gather_stats_with_stats",
      {input, mean, invstd, optional(running_mean), optional(running_var), momentum, eps, count});
  write_back(running_mean, r[2]);
  write_back(running_var, r[3]);
  return {r[0], r[1]};
}

std::tuple<Tensor, Tensor> batch_norm_gather_stats_with_counts(
    const Tensor& input, const Tensor& mean, const Tensor& invstd,
    const std::optional<Tensor>& running_mean, const std::optional<Tensor>& running_var,
    double momentum, double eps, const Tensor& counts) {
  auto r = run(
      "tpu::batch_norm_gather_stats_with_counts_with_stats",
      {input, mean, invstd, optional(running_mean), optional(running_var), momentum, eps, counts});
  write_back(running_mean, r[2]);
  write_back(running_var, r[3]);
  return {r[0], r[1]};
}

// ---- Linear algebra: whether the factors are those of the transpose depends on A's strides, and
// the gradient formulas look at the strides, too.

bool of_transpose(const Tensor& a) { return a.is_contiguous() && !a.is_complex(); }

std::tuple<Tensor, Tensor, Tensor> det(const Tensor& a) {
  auto r = run("tpu::linalg_det", {a, of_transpose(a)});
  return {r[0], r[1], r[2]};
}
std::tuple<Tensor, Tensor, Tensor, Tensor> slogdet(const Tensor& a) {
  auto r = run("tpu::linalg_slogdet", {a, of_transpose(a)});
  return {r[0], r[1], r[2], r[3]};
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("arange.start_out", sequence_out<false>);
  m.impl("range.out", sequence_out<true>);
  m.impl("_fused_sdp_choice", sdp_choice);
  m.impl("_scaled_dot_product_fused_attention_overrideable", attention);
  m.impl("_scaled_dot_product_cudnn_attention", cudnn_attention);
  m.impl("_scaled_dot_product_cudnn_attention_backward", cudnn_attention_backward);
  m.impl("_nested_tensor_from_mask_left_aligned", mask_is_left_aligned);
  m.impl("native_batch_norm", native_batch_norm);
  m.impl("native_batch_norm.out", native_batch_norm_out);
  m.impl("_native_batch_norm_legit.out", batch_norm_legit_out);
  m.impl("_batch_norm_with_update.out", batch_norm_with_update_out);
  m.impl("batch_norm_update_stats", batch_norm_update_stats);
  m.impl("batch_norm_gather_stats", batch_norm_gather_stats);
  m.impl("batch_norm_gather_stats_with_counts", batch_norm_gather_stats_with_counts);
  m.impl("_linalg_det", det);
  m.impl("_linalg_slogdet", slogdet);
}

}  // namespace
}  // namespace tpu::bridge

// scaled_dot_product_attention asks this stub, not the op.
namespace at::native {
REGISTER_PRIVATEUSE1_DISPATCH(_fused_sdp_choice_stub, &tpu::bridge::sdp_choice)
}  // namespace at::native
