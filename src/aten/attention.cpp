// Scaled dot product attention, forward and backward, and the multi-head layers built on it.
//
// bridge/ answers aten::_fused_sdp_choice with 4 (overrideable) for floating queries of rank 3 or 4
// and forwards aten::_scaled_dot_product_fused_attention_overrideable to
//   tpu::scaled_dot_product_attention(Tensor query, Tensor key, Tensor value, Tensor? attn_bias,
//       float dropout_p, bool is_causal, float? scale)
//     -> (Tensor output, Tensor logsumexp, Tensor philox_seed, Tensor philox_offset)
// since that op also returns two integers: max_q = query.size(-2), max_k = key.size(-2). The
// backward op has its aten name. Scores are never kept: backward makes them again from the
// logsumexp. Above a size, both go through the queries in blocks, so that memory grows with the
// sequence, not with its square.
#include <cmath>
#include <limits>

#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {
namespace {

using ops::cpp_type_name;
using ops::scalar_type_name;

constexpr double kInfinity = std::numeric_limits<double>::infinity();
constexpr int64_t kWholeScores = int64_t{1} << 27;  // up to this many scores (512 MiB) in one piece
constexpr int64_t kBlockScores = int64_t{1} << 25;  // otherwise about this many at a time

Value sum_to(Ctx& x, Value v, const Dims& dims) {
  const int64_t extra = v.rank() - static_cast<int64_t>(dims.size());
  Dims axes;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i < extra || (dims[at(i - extra)] == 1 && v.dim(i) != 1)) axes.push_back(i);
  }
  return x.b.reshape(x.sum(v, axes), dims);
}

// Common view of the operands: query [b, kv, group, l, e], key [b, kv, s, e], value [b, kv, s, ev],
// bias [b or 1, kv or 1, group or 1, l or 1, s or 1]. Queries of one group share a key head.
struct Problem {
  Dims lead;  // leading dims before the head
  int64_t rank, b = 1, heads = 1, kv = 1, group = 1, l, s, e, ev;
  Dims q_dims, k_dims, v_dims;  // as broadcast over lead and heads, before merging
  Value q, k, v, bias;
  double scale;
  bool is_causal;
  double dropout_p;
  Value state;  // ui64[2] when dropout_p is between 0 and 1
  DType wide;
};

Value with_rank(Ctx& x, Value v, int64_t rank) {
  Dims d = v.dims();
  d.insert(d.begin(), at(rank - v.rank()), 1);
  return x.b.reshape(v, d);
}

Dims concat(Dims a, std::initializer_list<int64_t> tail) {
  a.insert(a.end(), tail);
  return a;
}

int64_t from_end(Value v, int64_t i) { return v.rank() >= i ? v.dim(v.rank() - i) : 1; }

Dims lead_of(Value v) { return v.rank() > 3 ? Dims(v.dims().begin(), v.dims().end() - 3) : Dims{}; }

// v with `heads` heads, each repeated for its group.
Value repeat_heads(Ctx& x, Value v, int64_t heads) {
  const int64_t head = v.rank() - 3, have = v.dim(head);
  if (have == heads) return v;
  Dims wide = v.dims(), merged = v.dims();
  wide.insert(wide.begin() + head + 1, heads / have);
  merged[at(head)] = heads;
  Dims map;
  for (int64_t i = 0; i < static_cast<int64_t>(wide.size()); ++i) {
    if (i != head + 1) map.push_back(i);
  }
  return x.b.reshape(x.b.broadcast_in_dim(v, wide, map), merged);
}

Problem make_problem(Ctx& x, Value q, Value k, Value v, Opt<Value> bias, double dropout_p,
                     bool is_causal, Opt<double> scale) {
  x.check(q.dtype() == k.dtype() && k.dtype() == v.dtype(),
          "Expected query, key, and value to have the same dtype, but got query.dtype: ",
          cpp_type_name(q.dtype()), " key.dtype: ", cpp_type_name(k.dtype()),
          " and value.dtype: ", cpp_type_name(v.dtype()), " instead.");
  x.check(hlo::is_float(q.dtype()), "expected scalar type Float but found ",
          scalar_type_name(q.dtype()));
  x.check(q.rank() >= 2 && k.rank() >= 2 && v.rank() >= 2,
          "Expected query, key, and value to all be  at least 2 dimensional, but got query.dim: ",
          q.rank(), " key.dim: ", k.rank(), " and value.dim: ", v.rank(), " instead.");
  x.check(dropout_p >= 0 && dropout_p <= 1,
          "dropout probability has to be between 0 and 1, but got ", dropout_p);
  x.check(
      !is_causal || !bias,
      "_scaled_dot_product_attention: Explicit attn_mask should not be set when is_causal=True");
  Problem p;
  p.rank = std::max({q.rank(), k.rank(), v.rank()});
  p.l = from_end(q, 2), p.e = from_end(q, 1), p.s = from_end(k, 2), p.ev = from_end(v, 1);
  x.check(from_end(k, 1) == p.e && from_end(v, 2) == p.s, "query ", q.dims(), ", key ", k.dims(),
          " and value ", v.dims(),
          " do not fit: query and key need equal last sizes, key and value equal sequence lengths");
  p.wide = hlo::compute_type(q.dtype());
  p.scale = scale.value_or(p.e == 0 ? 1.0 : 1 / std::sqrt(static_cast<double>(p.e)));
  p.is_causal = is_causal;
  p.dropout_p = dropout_p;
  p.lead = x.broadcast_dims({lead_of(q), lead_of(k), lead_of(v)});
  p.b = hlo::product(p.lead);
  const int64_t hq = from_end(q, 3), hk = from_end(k, 3), hv = from_end(v, 3);
  p.heads = hq == 1 ? std::max(hk, hv) : hq;
  x.check(hk > 0 && hv > 0 ? p.heads % hk == 0 && p.heads % hv == 0 : p.heads == 0,
          "Number of heads in key and value must divide the number of heads in query, got ", hk,
          ", ", hv, " and ", hq);
  p.kv = hk == hv ? hk : p.heads;
  p.group = p.kv == 0 ? 1 : p.heads / p.kv;

  const int64_t least = std::max<int64_t>(p.rank, 3);
  const auto merge = [&](Value t, int64_t heads, Dims& full) {
    Value r = with_rank(x, t, least);
    if (r.dim(least - 3) != 1 || heads == 0) r = repeat_heads(x, r, heads);
    full = concat(p.lead, {heads, t.dim(t.rank() - 2), t.dim(t.rank() - 1)});
    r = x.broadcast(r, full);
    return x.b.reshape(r, {p.b, heads, r.dim(least - 2), r.dim(least - 1)});
  };
  p.q = x.b.reshape(merge(q, p.heads, p.q_dims), {p.b, p.kv, p.group, p.l, p.e});
  p.k = merge(k, p.kv, p.k_dims);
  p.v = merge(v, p.kv, p.v_dims);

  if (bias) {
    const Dims scores = concat(p.lead, {p.heads, p.l, p.s});
    const Dims target = p.rank >= 3 ? scores : Dims{p.l, p.s};
    x.check(x.broadcast_dims({target, bias->dims()}) == target, "attn_mask of shape ", bias->dims(),
            " does not broadcast to the scores' shape ", target);
    x.check(
        bias->dtype() == DType::kBool || bias->dtype() == q.dtype() || bias->dtype() == DType::kF32,
        "Expected attn_mask dtype to be bool or float or to match query dtype, but got "
        "attn_mask.dtype: ",
        cpp_type_name(bias->dtype()), " and  query.dtype: ", cpp_type_name(q.dtype()), " instead.");
    Value m = with_rank(x, *bias, least);
    const bool one_lead = hlo::product(lead_of(m)) == 1;
    if (!one_lead)
      m = x.broadcast(m, concat(p.lead, {m.dim(least - 3), m.dim(least - 2), m.dim(least - 1)}));
    const bool one_head = m.dim(least - 3) == 1;
    m = x.b.reshape(m, {one_lead ? 1 : p.b, one_head ? 1 : p.kv, one_head ? 1 : p.group,
                        m.dim(least - 2), m.dim(least - 1)});
    if (hlo::is_bool(m.dtype())) {
      const Value zero = x.zeros({p.wide, m.dims()});
      m = x.b.select(m, zero, x.like(zero, -kInfinity));
    }
    p.bias = m;
  }
  return p;
}

// The rows [start, start + rows) of the scores and what is done to them. All 5-d.
struct Rows {
  Value start;  // rank-0 int32
  int64_t rows;
  Value index;  // rank-0 int32: number of the block
};

Value rows_of(Ctx& x, Value v, int64_t dim, const Rows& r) {
  if (v.dim(dim) == 1 && r.rows != 1) return v;  // broadcast along the rows
  if (v.dim(dim) == r.rows) return v;
  Values starts(at(v.rank()), x.b.constant(DType::kI32, 0));
  Dims sizes = v.dims();
  starts[at(dim)] = r.start;
  sizes[at(dim)] = r.rows;
  return x.b.dynamic_slice(v, starts, sizes);
}

const hlo::DotDims kQueryKey{
    .lhs_batch = {0, 1}, .rhs_batch = {0, 1}, .lhs_contract = {4}, .rhs_contract = {3}};
const hlo::DotDims kRowsValue{
    .lhs_batch = {0, 1}, .rhs_batch = {0, 1}, .lhs_contract = {4}, .rhs_contract = {2}};
const hlo::DotDims kOverRows{
    .lhs_batch = {0, 1}, .rhs_batch = {0, 1}, .lhs_contract = {2, 3}, .rhs_contract = {2, 3}};

Value score_rows(Ctx& x, const Problem& p, Value q, const Rows& r) {
  auto& b = x.b;
  Value s = wide_dot(x, q, p.k, kQueryKey);
  s = b.mul(s, x.like(s, p.scale));
  if (p.bias) s = b.add(s, x.broadcast(x.convert(rows_of(x, p.bias, 3, r), p.wide), s.dims()));
  if (p.is_causal) {
    const Dims plane{r.rows, p.s};
    const Value row = b.add(b.iota({DType::kI32, plane}, 0), b.broadcast_scalar(r.start, plane));
    const Value seen = b.compare(Cmp::kLe, b.iota({DType::kI32, plane}, 1), row);
    s = b.select(b.broadcast_in_dim(seen, s.dims(), {3, 4}), s, x.like(s, -kInfinity));
  }
  return s;
}

// 1 / (1 - p) where an element is kept, else 0. The same state gives the same mask in backward.
Value dropout_factor(Ctx& x, const Problem& p, const Dims& dims, const Rows& r) {
  auto& b = x.b;
  if (p.dropout_p == 1) return x.zeros({p.wide, dims});
  // Blocks draw from counters 2^40 apart.
  const Value block =
      b.mul(b.convert(r.index, DType::kU64), b.constant(DType::kU64, int64_t{1} << 40));
  const Value step = b.pad(b.reshape(block, {1}), b.constant(DType::kU64, 0), {1}, {0});
  const Value bits =
      b.rng_bit_generator(hlo::RngAlgorithm::kPhilox, b.add(p.state, step), {DType::kU32, dims})
          .second;
  const auto threshold = static_cast<int64_t>(std::ldexp(p.dropout_p, 32));
  const Value kept = b.compare(Cmp::kGe, bits, b.splat(bits.type(), threshold));
  const Value scale = b.splat({p.wide, dims}, 1 / (1 - p.dropout_p));
  return b.select(kept, scale, x.like(scale, 0));
}

Value spread(Ctx& x, Value per_row, const Dims& dims) {
  return x.b.broadcast_in_dim(per_row, dims, {0, 1, 2, 3});
}

// -inf (a row that sees nothing) as 0: its exponentials are then 0, and so are its results.
Value finite_base(Ctx& x, Value v) {
  return x.b.select(x.b.compare(Cmp::kEq, v, x.like(v, -kInfinity)), x.like(v, 0), v);
}

// The score of what a row may not see, for a TPU: finite, so that a row that sees nothing needs no
// care before its softmax is done.
constexpr double kUnseen = -1e38;

std::pair<Value, Value> forward_rows(Ctx& x, const Problem& p, Value q, const Rows& r) {
  auto& b = x.b;
  Value s = score_rows(x, p, q, r);
  // A TPU compiler makes scores, maximum, exponentials and their sum one loop, but only when
  // nothing stands between them. Without a mask every row sees something.
  const bool one_loop = !x.on_cpu_plugin();
  const bool may_be_blind = p.bias.valid();
  if (one_loop && may_be_blind) s = b.maximum(s, x.like(s, kUnseen));
  const Value top = one_loop ? x.max(s, {4}) : finite_base(x, x.max(s, {4}));
  Value e = b.unary(Op::kExponential, b.sub(s, spread(x, top, s.dims())));
  const Value total = x.sum(e, {4});
  Value lse = b.add(top, b.unary(Op::kLog, total));
  // For the same reason a TPU divides before the product, as softmax does.
  if (one_loop) e = b.div(e, spread(x, total, s.dims()));
  if (p.dropout_p > 0) e = b.mul(e, dropout_factor(x, p, s.dims(), r));
  Value out = wide_dot(x, b.convert(e, p.v.dtype()), p.v, kRowsValue);
  if (!one_loop) {
    const Value empty = b.compare(Cmp::kEq, total, x.like(total, 0));
    const Value divisor = b.select(empty, x.like(total, 1), total);
    out = b.div(out, spread(x, divisor, out.dims()));
  } else if (may_be_blind) {
    const Value blind = b.compare(Cmp::kEq, top, x.like(top, kUnseen));
    lse = b.select(blind, x.like(lse, -kInfinity), lse);
    out = b.select(spread(x, blind, out.dims()), x.like(out, 0), out);
  }
  return {b.convert(out, p.q.dtype()), lse};
}

int64_t block_rows(const Problem& p, bool on_cpu_plugin) {
  const int64_t per_row = p.b * p.heads * p.s;
  // On v6e the loop costs a fifth more cycles, so there a GiB of scores is worth it.
  if (per_row * p.l <= (on_cpu_plugin ? kWholeScores : 2 * kWholeScores) || p.l <= 128) return p.l;
  const int64_t fit = std::max<int64_t>(kBlockScores / std::max<int64_t>(per_row, 1), 1);
  return std::min<int64_t>(p.l, (fit + 127) / 128 * 128);
}

Value pad_rows(Ctx& x, Value v, int64_t dim, int64_t to) {
  Dims low(at(v.rank()), 0), high(at(v.rank()), 0);
  high[at(dim)] = to - v.dim(dim);
  return to == v.dim(dim) ? v : x.b.pad(v, x.constant(v.dtype(), 0), low, high);
}

Value put_rows(Ctx& x, Value into, Value v, int64_t dim, Value start) {
  Values starts(at(into.rank()), x.b.constant(DType::kI32, 0));
  starts[at(dim)] = start;
  return x.b.dynamic_update_slice(into, v, starts);
}

// Runs `body(rows, carried)` for all blocks of `rows` rows that make up `padded`.
Values for_blocks(Ctx& x, int64_t padded, int64_t rows, Values init,
                  const std::function<Values(const Rows&, const Values&)>& body) {
  init.insert(init.begin(), x.b.constant(DType::kI32, 0));
  const auto cond = [&](const Values& a) {
    return Values{x.b.compare(Cmp::kLt, a[0], x.b.constant(DType::kI32, padded / rows))};
  };
  const auto step = [&](const Values& a) {
    const Rows r{x.b.mul(a[0], x.b.constant(DType::kI32, rows)), rows, a[0]};
    Values next = body(r, Values(a.begin() + 1, a.end()));
    next.insert(next.begin(), x.b.add(a[0], x.b.constant(DType::kI32, 1)));
    return next;
  };
  Values out = x.b.while_loop(init, cond, step);
  out.erase(out.begin());
  return out;
}

int64_t round_up(int64_t n, int64_t to) { return (n + to - 1) / to * to; }

std::array<Value, 4> attention(Ctx& x, Value query, Value key, Value value, Opt<Value> attn_bias,
                               double dropout_p, bool is_causal, Opt<double> scale) {
  auto& b = x.b;
  Problem p = make_problem(x, query, key, value, attn_bias, dropout_p, is_causal, scale);
  Value seed = b.constant(DType::kI64, 0), offset = seed;
  if (dropout_p > 0 && dropout_p < 1) {
    p.state = x.random_bits(DType::kU64, {2});
    const auto half = [&](int64_t i) {
      return b.bitcast_convert(b.reshape(b.slice_dim(p.state, 0, i, i + 1), {}), {DType::kI64, {}});
    };
    seed = half(0), offset = half(1);
  }
  Dims out_dims = concat(p.lead, {p.heads, p.l, p.ev});
  if (p.rank == 2) out_dims = {p.l, p.ev};
  Dims lse_dims = concat(p.lead, {p.heads, p.l});
  if (lse_dims.size() < 3) lse_dims.insert(lse_dims.begin(), 3 - lse_dims.size(), 1);
  const Dims out5{p.b, p.kv, p.group, p.l, p.ev};
  const int64_t rows = block_rows(p, x.on_cpu_plugin());
  Value out, lse;
  if (hlo::product(out5) == 0 || p.s == 0) {
    out = x.zeros({query.dtype(), out5});
    lse = b.splat({p.wide, {p.b, p.kv, p.group, p.l}}, -kInfinity);
  } else if (rows == p.l) {
    const Value zero = b.constant(DType::kI32, 0);
    std::tie(out, lse) = forward_rows(x, p, p.q, {zero, p.l, zero});
  } else {
    const int64_t padded = round_up(p.l, rows);
    const Value q_all = pad_rows(x, p.q, 3, padded);
    if (p.bias && p.bias.dim(3) == p.l) p.bias = pad_rows(x, p.bias, 3, padded);
    const Values done =
        for_blocks(x, padded, rows,
                   {x.zeros({query.dtype(), {p.b, p.kv, p.group, padded, p.ev}}),
                    x.zeros({p.wide, {p.b, p.kv, p.group, padded}})},
                   [&](const Rows& r, const Values& a) -> Values {
                     const auto [o, part] = forward_rows(x, p, rows_of(x, q_all, 3, r), r);
                     return {put_rows(x, a[0], o, 3, r.start), put_rows(x, a[1], part, 3, r.start)};
                   });
    out = b.slice_dim(done[0], 3, 0, p.l);
    lse = b.slice_dim(done[1], 3, 0, p.l);
  }
  return {b.reshape(out, out_dims), b.convert(b.reshape(lse, lse_dims), DType::kF32), seed, offset};
}

struct Gradients {
  Value q, k, v, bias;  // q and bias of the rows; bias summed to the bias's own dims
};

Gradients backward_rows(Ctx& x, const Problem& p, Value q, Value grad, Value out, Value lse,
                        bool want_bias, const Rows& r) {
  auto& b = x.b;
  const Value s = score_rows(x, p, q, r);
  Value prob;
  if (p.wide == DType::kF64) {  // the saved logsumexp is float32
    const Value top = finite_base(x, x.max(s, {4}));
    const Value e = b.unary(Op::kExponential, b.sub(s, spread(x, top, s.dims())));
    const Value total = x.sum(e, {4});
    const Value empty = b.compare(Cmp::kEq, total, x.like(total, 0));
    prob = b.div(e, spread(x, b.select(empty, x.like(total, 1), total), s.dims()));
  } else {
    prob = b.unary(Op::kExponential, b.sub(s, spread(x, finite_base(x, lse), s.dims())));
  }
  const Value wide_grad = b.convert(grad, p.wide);
  const Value delta = x.sum(b.mul(wide_grad, b.convert(out, p.wide)), {4});
  Value prob_grad = wide_dot(x, grad, p.v, kQueryKey);
  Value used = prob;
  if (p.dropout_p > 0) {
    const Value factor = dropout_factor(x, p, s.dims(), r);
    used = b.mul(prob, factor);
    prob_grad = b.mul(prob_grad, factor);
  }
  const Value score_grad = b.mul(prob, b.sub(prob_grad, spread(x, delta, s.dims())));
  const Value narrow = b.convert(b.mul(score_grad, x.like(score_grad, p.scale)), q.dtype());
  Gradients g;
  g.v = wide_dot(x, b.convert(used, q.dtype()), grad, kOverRows);
  g.k = wide_dot(x, narrow, q, kOverRows);
  g.q = b.convert(wide_dot(x, narrow, p.k, kRowsValue), q.dtype());
  if (want_bias) {
    Dims d = p.bias.dims();
    if (d[3] != 1 || p.l == 1) d[3] = r.rows;
    g.bias = sum_to(x, score_grad, d);
  }
  return g;
}

std::array<Value, 4> attention_backward(Ctx& x, Value grad_out, Value query, Value key, Value value,
                                        Value attn_bias, const std::vector<bool>& mask, Value out,
                                        Value logsumexp, double dropout_p, bool is_causal,
                                        Value seed, Value offset, Opt<double> scale) {
  auto& b = x.b;
  const Opt<Value> bias = attn_bias.valid() ? Opt<Value>(attn_bias) : std::nullopt;
  Problem p = make_problem(x, query, key, value, bias, dropout_p, is_causal, scale);
  const bool want_bias = bias && mask[3];
  if (dropout_p > 0 && dropout_p < 1) {
    const auto half = [&](Value v) {
      return b.reshape(b.bitcast_convert(v, {DType::kU64, v.dims()}), {1});
    };
    p.state = b.concatenate({half(seed), half(offset)}, 0);
  }
  const int64_t rows = block_rows(p, x.on_cpu_plugin());
  Gradients g;
  if (p.b * p.heads * p.l * p.s == 0) {
    g.q = x.zeros(p.q.type()), g.k = x.zeros(p.k.type()), g.v = x.zeros(p.v.type());
    if (want_bias) g.bias = x.zeros(p.bias.type());
  } else {
    const Value grad5 = b.reshape(grad_out, {p.b, p.kv, p.group, p.l, p.ev});
    const Value out5 = b.reshape(out, grad5.dims());
    const Value lse4 = b.convert(b.reshape(logsumexp, {p.b, p.kv, p.group, p.l}), p.wide);
    if (rows == p.l) {
      const Value zero = b.constant(DType::kI32, 0);
      g = backward_rows(x, p, p.q, grad5, out5, lse4, want_bias, {zero, p.l, zero});
    } else {
      const int64_t padded = round_up(p.l, rows);
      const Value q_all = pad_rows(x, p.q, 3, padded), grad_all = pad_rows(x, grad5, 3, padded);
      const Value out_all = pad_rows(x, out5, 3, padded), lse_all = pad_rows(x, lse4, 3, padded);
      const bool bias_rows = p.bias && p.bias.dim(3) == p.l;
      if (bias_rows) p.bias = pad_rows(x, p.bias, 3, padded);
      Values init{x.zeros(q_all.type()), x.zeros({p.wide, p.k.dims()}),
                  x.zeros({p.wide, p.v.dims()})};
      if (want_bias) init.push_back(x.zeros({p.wide, p.bias.dims()}));
      const Values done = for_blocks(x, padded, rows, init, [&](const Rows& r, const Values& a) {
        const Gradients part =
            backward_rows(x, p, rows_of(x, q_all, 3, r), rows_of(x, grad_all, 3, r),
                          rows_of(x, out_all, 3, r), rows_of(x, lse_all, 3, r), want_bias, r);
        Values next{put_rows(x, a[0], part.q, 3, r.start), b.add(a[1], part.k),
                    b.add(a[2], part.v)};
        if (want_bias)
          next.push_back(bias_rows ? put_rows(x, a[3], part.bias, 3, r.start)
                                   : b.add(a[3], part.bias));
        return next;
      });
      g.q = b.slice_dim(done[0], 3, 0, p.l);
      g.k = done[1], g.v = done[2];
      if (want_bias) g.bias = bias_rows ? b.slice_dim(done[3], 3, 0, p.l) : done[3];
    }
  }
  // Undo merging, repeated heads and broadcasting.
  const auto back = [&](Value v, const Dims& full, Value like) {
    Value r = b.reshape(v, full);
    const int64_t have = from_end(like, 3), heads = full[full.size() - 3];
    if (have != heads && have > 1) {
      Dims split = full, merged = full;
      const auto head = static_cast<int64_t>(full.size()) - 3;
      split[at(head)] = have;
      split.insert(split.begin() + head + 1, heads / have);
      merged[at(head)] = have;
      r = x.sum(b.reshape(r, split), {head + 1});
    }
    return x.convert(sum_to(x, r, like.dims()), like.dtype());
  };
  Value bias_grad;
  if (want_bias) {
    Dims full = lead_of(with_rank(x, attn_bias, std::max<int64_t>(p.rank, 3)));
    if (hlo::product(full) != 1) full = p.lead;
    full = concat(full, {g.bias.dim(1) * g.bias.dim(2), g.bias.dim(3), g.bias.dim(4)});
    bias_grad = x.convert(sum_to(x, b.reshape(g.bias, full), attn_bias.dims()), attn_bias.dtype());
  }
  return {back(g.q, p.q_dims, query), back(g.k, p.k_dims, key), back(g.v, p.v_dims, value),
          bias_grad};
}

// ---- Inference forms of nn.MultiheadAttention and nn.TransformerEncoderLayer.

std::array<Value, 3> transform_bias_rescale_qkv(Ctx& x, Value qkv, Value qkv_bias, int64_t heads) {
  x.check(qkv.rank() == 3, "expected 3-D `qkv`, got ", qkv.rank(), "-D tensor");
  const int64_t n = qkv.dim(0), t = qkv.dim(1), d = qkv.dim(2) / 3;
  x.check(qkv.dim(2) % 3 == 0 && heads > 0 && d % heads == 0,
          "Expected D % num_head == 0 to be true, but got D = ", d, " and num_head = ", heads);
  const int64_t size = d / heads;
  const Value wide = x.to_compute(qkv);
  const Value biased = x.b.add(wide, along(x, x.convert(qkv_bias, wide.dtype()), wide.dims(), 2));
  const auto part = [&](int64_t i) {
    Value v = x.b.slice_dim(biased, 2, i * d, (i + 1) * d);
    if (i == 0) v = x.b.mul(v, x.like(v, 1 / std::sqrt(static_cast<double>(size))));
    return x.b.transpose(x.b.reshape(x.convert(v, qkv.dtype()), {n, t, heads, size}), {0, 2, 1, 3});
  };
  return {part(0), part(1), part(2)};
}

// v[..., k] by the rows of weight[n, k].
Value project(Ctx& x, Value v, Value weight, Opt<Value> bias = {}) {
  Value r = wide_dot(x, v, weight, {.lhs_contract = {v.rank() - 1}, .rhs_contract = {1}});
  if (bias) r = x.b.add(r, along(x, x.convert(*bias, r.dtype()), r.dims(), r.rank() - 1));
  return x.convert(r, v.dtype());
}

std::array<Value, 2> multi_head_attention(Ctx& x, Value query, Value key, Value value,
                                          int64_t embed_dim, int64_t heads, Value qkv_weight,
                                          Value qkv_bias, Value proj_weight, Value proj_bias,
                                          Opt<Value> mask, bool need_weights,
                                          bool average_attn_weights, Opt<int64_t> mask_type) {
  auto& b = x.b;
  const auto check_rank = [&](Value v, int64_t rank, const char* name) {
    x.check(v.rank() == rank, "expected ", rank, "-D `", name, "`, got ", v.rank(), "-D tensor");
  };
  check_rank(query, 3, "query");
  x.check(query.dim(2) == embed_dim, "passed-in embed_dim ", embed_dim,
          " didn't match last dim of query ", query.dim(2));
  check_rank(key, 3, "key");
  check_rank(value, 3, "value");
  x.check(query.dims() == key.dims() && key.dims() == value.dims(),
          "expected `query`/`key`/`value` shapes to match");
  check_rank(qkv_weight, 2, "qkv_weight");
  x.check(qkv_weight.dim(0) == 3 * embed_dim, "expected `qkv_weight` first dim to be 3x embed_dim");
  x.check(qkv_weight.dim(1) == embed_dim, "expected `qkv_weight` second dim to be embed_Dim");
  check_rank(qkv_bias, 1, "qkv_bias");
  x.check(qkv_bias.dim(0) == 3 * embed_dim,
          "expected `qkv_bias` first dim and first dim of query to be equal");
  x.check(heads > 0 && embed_dim % heads == 0, "`embed_dim` must divide evenly by `num_heads`");
  if (query.numel() == 0) return {x.zeros(query.type()), Value{}};

  const int64_t n = query.dim(0), t = query.dim(1);
  Value qkv;
  if (query.id == key.id && key.id == value.id) {
    qkv = project(x, query, qkv_weight);
  } else {
    const auto part = [&](Value v, int64_t i) {
      return project(x, v, b.slice_dim(qkv_weight, 0, i * embed_dim, (i + 1) * embed_dim));
    };
    qkv = b.concatenate({part(query, 0), part(key, 1), part(value, 2)}, 2);
  }
  const auto [q, k, v] = transform_bias_rescale_qkv(x, qkv, qkv_bias, heads);
  Value scores = wide_matmul(x, q, k, /*transposed=*/true);
  if (mask) {
    x.check(mask_type.has_value(), "Mask Type should be defined");
    Value m = x.convert(*mask, DType::kBool);  // true: left out
    if (*mask_type == 0) {
      x.check(m.dims() == Dims{t, t}, "For mask_type == 0 mask shape should be (L, L)");
      m = b.broadcast_in_dim(m, scores.dims(), {2, 3});
    } else if (*mask_type == 1) {
      x.check(m.dims() == Dims{n, t}, "For mask_type == 1 mask shape should be (B, L)");
      m = b.broadcast_in_dim(m, scores.dims(), {0, 3});
    } else {
      x.check(m.dims() == scores.dims(),
              "For mask_type == 2 mask shape should be (B, num_heads, L, L)");
    }
    scores = b.select(m, x.like(scores, -kInfinity), scores);
  }
  const Value top = b.broadcast_in_dim(x.max(scores, {3}), scores.dims(), {0, 1, 2});
  const Value e = b.unary(Op::kExponential, b.sub(scores, top));
  const Value total = b.broadcast_in_dim(x.sum(e, {3}), e.dims(), {0, 1, 2});
  const Value weights = x.convert(b.div(e, total), query.dtype());
  const Value mixed = x.convert(wide_matmul(x, weights, v), query.dtype());
  const Value merged = b.reshape(b.transpose(mixed, {0, 2, 1, 3}), {n, t, embed_dim});
  Value shown;
  if (need_weights) {
    shown = weights;
    if (average_attn_weights) {
      const Value s = x.sum(x.to_compute(weights), {1});
      shown = x.convert(b.div(s, x.like(s, static_cast<double>(heads))), query.dtype());
    }
  }
  return {project(x, merged, proj_weight, proj_bias), shown};
}

Value layer_norm_last(Ctx& x, Value v, Value weight, Value bias, double eps) {
  auto& b = x.b;
  const Value wide = x.to_compute(v);
  const int64_t last = v.rank() - 1;
  const Dims map{0, 1};
  const auto mean = [&](Value t) {
    const Value s = x.sum(t, {last});
    return b.broadcast_in_dim(b.mul(s, x.like(s, 1.0 / static_cast<double>(v.dim(last)))), v.dims(),
                              map);
  };
  const Value centred = b.sub(wide, mean(wide));
  const Value variance = mean(b.mul(centred, centred));
  const Value inverse = b.unary(Op::kRsqrt, b.add(variance, x.like(variance, eps)));
  const auto channel = [&](Value t) {
    return along(x, x.convert(t, wide.dtype()), v.dims(), last);
  };
  return x.convert(b.add(b.mul(b.mul(centred, inverse), channel(weight)), channel(bias)),
                   v.dtype());
}

Value add(Ctx& x, Value v, Value other) {
  return x.convert(x.b.add(x.to_compute(v), x.to_compute(other)), v.dtype());
}

Value activate(Ctx& x, Value v, bool use_gelu) {
  const Value y = x.to_compute(v);
  if (!use_gelu) return x.convert(x.b.maximum(y, x.like(y, 0)), v.dtype());
  const Value erf = x.b.unary(Op::kErf, x.b.mul(y, x.like(y, 0.70710678118654752440)));
  return x.convert(x.b.mul(x.b.mul(y, x.like(y, 0.5)), x.b.add(erf, x.like(y, 1))), v.dtype());
}

}  // namespace

void register_attention(ops::Registry& r) {
  r.op("tpu::scaled_dot_product_attention", attention).random().layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::_scaled_dot_product_fused_attention_overrideable_backward",
       [](Ctx& x, Value grad_out, Value query, Value key, Value value, Value attn_bias,
          std::vector<bool> grad_input_mask, Value out, Value logsumexp, Value, Value, int64_t,
          int64_t, double dropout_p, bool is_causal, Value philox_seed, Value philox_offset,
          Opt<double> scale) {
         return attention_backward(x, grad_out, query, key, value, attn_bias, grad_input_mask, out,
                                   logsumexp, dropout_p, is_causal, philox_seed, philox_offset,
                                   scale);
       })
      .layout(ops::LayoutRule::kLikeEach);
  r.op("aten::_transform_bias_rescale_qkv", transform_bias_rescale_qkv);
  r.op("aten::_native_multi_head_attention", multi_head_attention);
  r.op("aten::_transformer_encoder_layer_fwd",
       [](Ctx& x, Value src, int64_t embed_dim, int64_t num_heads, Value qkv_weight, Value qkv_bias,
          Value proj_weight, Value proj_bias, bool use_gelu, bool norm_first, double eps,
          Value norm_weight_1, Value norm_bias_1, Value norm_weight_2, Value norm_bias_2,
          Value ffn_weight_1, Value ffn_bias_1, Value ffn_weight_2, Value ffn_bias_2,
          Opt<Value> mask, Opt<int64_t> mask_type) {
         if (src.numel() == 0) return src;
         const auto norm_1 = [&](Value v) {
           return layer_norm_last(x, v, norm_weight_1, norm_bias_1, eps);
         };
         const auto norm_2 = [&](Value v) {
           return layer_norm_last(x, v, norm_weight_2, norm_bias_2, eps);
         };
         Value h = norm_first ? norm_1(src) : src;
         h = multi_head_attention(x, h, h, h, embed_dim, num_heads, qkv_weight, qkv_bias,
                                  proj_weight, proj_bias, mask, false, true, mask_type)[0];
         h = add(x, h, src);
         if (!norm_first) h = norm_1(h);
         const Value before = h;
         if (norm_first) h = norm_2(h);
         h = project(x, activate(x, project(x, h, ffn_weight_1, ffn_bias_1), use_gelu),
                     ffn_weight_2, ffn_bias_2);
         h = add(x, h, before);
         return norm_first ? h : norm_2(h);
       });
}

}  // namespace tpu::aten
