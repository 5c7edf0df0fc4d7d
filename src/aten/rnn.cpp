// Recurrent cells in the fused form that PyTorch's RNN layers call for devices other than CPU: the
// two gate products come in ready, one call does the rest of a step. The workspace keeps what
// backward needs; its layout is private to the pair of ops (but its shape is PyTorch's).
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

void check_cell(Ctx& x, Value input_gates, Value hidden_gates, Opt<Value> input_bias,
                Opt<Value> hidden_bias, int64_t factor, Value state) {
  x.check(input_gates.rank() == 2, "Expected input_gates to be 2-D, got ", input_gates.rank(),
          "-D");
  x.check(input_gates.dims() == hidden_gates.dims(),
          "Expected tensor input_gates to have same size as hidden_gates; ", input_gates.dims(),
          " does not equal ", hidden_gates.dims());
  x.check(input_bias.has_value() == hidden_bias.has_value(),
          "input_bias and hidden_bias must be given together");
  if (input_bias) {
    x.check(
        input_bias->dims() == Dims{input_gates.dim(1)} && hidden_bias->dims() == input_bias->dims(),
        "Expected both biases to have the size [", input_gates.dim(1), "], got ",
        input_bias->dims(), " and ", hidden_bias->dims());
  }
  x.check(state.rank() == 2 && state.dim(0) == input_gates.dim(0) &&
              state.dim(1) * factor == input_gates.dim(1),
          "Expected the hidden state of size ", state.dims(), " to fit gates of size ",
          input_gates.dims(), " (", factor, " for each unit)");
  x.check(input_gates.dtype() == hidden_gates.dtype() && state.dtype() == input_gates.dtype(),
          "expected gates and hidden state to have the same dtype, got ",
          hlo::torch_name(input_gates.dtype()), ", ", hlo::torch_name(hidden_gates.dtype()),
          " and ", hlo::torch_name(state.dtype()));
}

// Gates as sums in the compute type, cut into equal parts of the last dim.
struct Gates {
  Ctx& x;
  Value v;
  Value part(int64_t i, int64_t of) const {
    const int64_t n = v.dim(1) / of;
    return x.b.slice_dim(v, 1, i * n, (i + 1) * n);
  }
};

Value with_bias(Ctx& x, Value gates, Opt<Value> bias) {
  const Value wide = x.to_compute(gates);
  return bias ? x.b.add(wide, along(x, x.convert(*bias, wide.dtype()), wide.dims(), 1)) : wide;
}

Value sigmoid(Ctx& x, Value v) { return x.b.unary(Op::kLogistic, v); }
Value tanh(Ctx& x, Value v) { return x.b.unary(Op::kTanh, v); }
Value one_minus(Ctx& x, Value v) { return x.b.sub(x.like(v, 1), v); }
Value slope_of_sigmoid(Ctx& x, Value y) { return x.b.mul(y, one_minus(x, y)); }
Value slope_of_tanh(Ctx& x, Value y) { return one_minus(x, x.b.mul(y, y)); }

std::array<Value, 3> lstm_cell(Ctx& x, Value input_gates, Value hidden_gates, Value cx,
                               Opt<Value> input_bias, Opt<Value> hidden_bias) {
  check_cell(x, input_gates, hidden_gates, input_bias, hidden_bias, 4, cx);
  const DType t = input_gates.dtype();
  const Gates g{
      x, x.b.add(with_bias(x, input_gates, input_bias), with_bias(x, hidden_gates, hidden_bias))};
  const Value i = sigmoid(x, g.part(0, 4)), f = sigmoid(x, g.part(1, 4));
  const Value c = tanh(x, g.part(2, 4)), o = sigmoid(x, g.part(3, 4));
  const Value cy = x.b.add(x.b.mul(f, x.to_compute(cx)), x.b.mul(i, c));
  const Value hy = x.b.mul(o, tanh(x, cy));
  return {x.convert(hy, t), x.convert(cy, t), x.convert(x.b.concatenate({i, f, c, o}, 1), t)};
}

std::array<Value, 3> lstm_cell_backward(Ctx& x, Opt<Value> grad_hy, Opt<Value> grad_cy, Value cx,
                                        Value cy, Value workspace, bool has_bias) {
  if (!grad_hy && !grad_cy) return {};
  x.check(workspace.rank() == 2 && cx.dims() == cy.dims() &&
              workspace.dims() == Dims{cx.dim(0), 4 * cx.dim(1)},
          "LSTM cell backward: cx ", cx.dims(), ", cy ", cy.dims(), " and workspace ",
          workspace.dims(), " do not fit each other");
  const DType t = workspace.dtype();
  const Gates g{x, x.to_compute(workspace)};
  const Value i = g.part(0, 4), f = g.part(1, 4), c = g.part(2, 4), o = g.part(3, 4);
  const Value zero = x.like(i, 0);
  const Value gh = grad_hy ? x.to_compute(*grad_hy) : zero;
  const Value gc = grad_cy ? x.to_compute(*grad_cy) : zero;
  const Value out = tanh(x, x.to_compute(cy));
  const Value go = x.b.mul(gh, out);
  const Value through = x.b.add(x.b.mul(x.b.mul(gh, o), slope_of_tanh(x, out)), gc);
  const Value grad = x.b.concatenate(
      {x.b.mul(x.b.mul(through, c), slope_of_sigmoid(x, i)),
       x.b.mul(x.b.mul(through, x.to_compute(cx)), slope_of_sigmoid(x, f)),
       x.b.mul(x.b.mul(through, i), slope_of_tanh(x, c)), x.b.mul(go, slope_of_sigmoid(x, o))},
      1);
  const Value bias = has_bias ? x.convert(x.sum(grad, {0}), t) : Value{};
  return {x.convert(grad, t), x.convert(x.b.mul(through, f), t), bias};
}

// Workspace: r, z, n, hx and the hidden part of n's gate.
std::array<Value, 2> gru_cell(Ctx& x, Value input_gates, Value hidden_gates, Value hx,
                              Opt<Value> input_bias, Opt<Value> hidden_bias) {
  check_cell(x, input_gates, hidden_gates, input_bias, hidden_bias, 3, hx);
  const DType t = input_gates.dtype();
  const Gates in{x, with_bias(x, input_gates, input_bias)},
      hidden{x, with_bias(x, hidden_gates, hidden_bias)};
  const Value r = sigmoid(x, x.b.add(in.part(0, 3), hidden.part(0, 3)));
  const Value z = sigmoid(x, x.b.add(in.part(1, 3), hidden.part(1, 3)));
  const Value hn = hidden.part(2, 3);
  const Value n = tanh(x, x.b.add(in.part(2, 3), x.b.mul(r, hn)));
  const Value h = x.to_compute(hx);
  const Value hy = x.b.add(n, x.b.mul(z, x.b.sub(h, n)));
  return {x.convert(hy, t), x.convert(x.b.concatenate({r, z, n, h, hn}, 1), t)};
}

std::array<Value, 5> gru_cell_backward(Ctx& x, Value grad_hy, Value workspace, bool has_bias) {
  x.check(workspace.rank() == 2 && grad_hy.rank() == 2 &&
              workspace.dims() == Dims{grad_hy.dim(0), 5 * grad_hy.dim(1)},
          "GRU cell backward: grad_hy ", grad_hy.dims(), " and workspace ", workspace.dims(),
          " do not fit each other");
  const DType t = workspace.dtype();
  const Gates w{x, x.to_compute(workspace)};
  const Value r = w.part(0, 5), z = w.part(1, 5), n = w.part(2, 5), h = w.part(3, 5),
              hn = w.part(4, 5);
  const Value g = x.to_compute(grad_hy);
  const Value gz = x.b.mul(x.b.mul(g, x.b.sub(h, n)), slope_of_sigmoid(x, z));
  const Value gn = x.b.mul(x.b.mul(g, one_minus(x, z)), slope_of_tanh(x, n));
  const Value gr = x.b.mul(x.b.mul(gn, hn), slope_of_sigmoid(x, r));
  const Value input = x.b.concatenate({gr, gz, gn}, 1),
              hidden = x.b.concatenate({gr, gz, x.b.mul(gn, r)}, 1);
  const auto bias = [&](Value v) { return has_bias ? x.convert(x.sum(v, {0}), t) : Value{}; };
  return {x.convert(input, t), x.convert(hidden, t), x.convert(x.b.mul(g, z), t), bias(input),
          bias(hidden)};
}

}  // namespace

void register_rnn(ops::Registry& r) {
  r.op("aten::_thnn_fused_lstm_cell", lstm_cell);
  r.op("aten::_thnn_fused_lstm_cell_backward_impl", lstm_cell_backward);
  r.op("aten::_thnn_fused_gru_cell", gru_cell);
  r.op("aten::_thnn_fused_gru_cell_backward", gru_cell_backward);
}

}  // namespace tpu::aten
