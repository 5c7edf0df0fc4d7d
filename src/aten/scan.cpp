#include "aten/scan.h"

#include <cmath>
#include <limits>

#include "aten/all.h"
#include "aten/reduce.h"

namespace tpu::aten {

using namespace ops;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

size_t at(int64_t i) { return static_cast<size_t>(i); }

Value identity_of(Context& x, Op op, DType t) {
  switch (op) {
    case Op::kAdd: return x.constant(t, 0);
    case Op::kMultiply: return x.constant(t, 1);
    case Op::kMaximum: return x.b.min_value(t);
    case Op::kMinimum: return x.b.max_value(t);
    default: TPU_THROW(ErrorKind::kInternal, "no cumulative form of ", hlo::mlir_name(op));
  }
}

// Each element and the size - 1 before it.
Value trailing_windows(Context& x, Value v, int64_t dim, Value identity, int64_t size, Op op) {
  const Dims ones(v.dims().size(), 1), zeros(v.dims().size(), 0);
  hlo::ReduceWindow w{.sizes = ones, .strides = ones, .pad_low = zeros, .pad_high = zeros};
  w.sizes[at(dim)] = size;
  w.pad_low[at(dim)] = size - 1;
  return x.b.reduce_window(v, identity, w, op);
}

Value pad_dim(Context& x, Value v, int64_t dim, Value value, int64_t low, int64_t high) {
  Dims lows(v.dims().size(), 0), highs = lows;
  lows[at(dim)] = low;
  highs[at(dim)] = high;
  return x.b.pad(v, value, lows, highs);
}

// Position `dim` becomes [blocks, size], filled up with `value`.
Value split_dim(Context& x, Value v, int64_t dim, Value value, int64_t blocks, int64_t size) {
  Dims dims = v.dims();
  v = pad_dim(x, v, dim, value, 0, blocks * size - dims[at(dim)]);
  dims[at(dim)] = size;
  dims.insert(dims.begin() + dim, blocks);
  return x.b.reshape(v, dims);
}

// The reverse of split_dim.
Value join_dim(Context& x, Value v, int64_t dim, const Dims& dims) {
  Dims joined = dims;
  joined[at(dim)] = v.dim(dim) * v.dim(dim + 1);
  return x.b.slice_dim(x.b.reshape(v, joined), dim, 0, dims[at(dim)]);
}

// Scans of the blocks' totals, each moved on by one block and broadcast over its elements.
Value carries(Context& x, Value totals, int64_t dim, Value identity, const Dims& blocked) {
  const Value before = pad_dim(x, totals, dim, identity, 1, -1);
  Dims map;
  for (int64_t i = 0; i < static_cast<int64_t>(blocked.size()); ++i) {
    if (i != dim + 1) map.push_back(i);
  }
  return x.b.broadcast_in_dim(before, blocked, map);
}

Value cumulative_in_blocks(Context& x, Value v, int64_t dim, Value identity, Op op) {
  constexpr int64_t kBlock = 16;  // measured on CPU: as fast as 64, and less code than log steps
  const int64_t n = v.dim(dim);
  if (n <= kBlock) return trailing_windows(x, v, dim, identity, n, op);
  const Value blocks = split_dim(x, v, dim, identity, (n + kBlock - 1) / kBlock, kBlock);
  const Value inner = trailing_windows(x, blocks, dim + 1, identity, kBlock, op);
  const Value totals = x.squeeze(x.b.slice_dim(inner, dim + 1, kBlock - 1, kBlock), dim + 1);
  const Value scanned = cumulative_in_blocks(x, totals, dim, identity, op);
  const Value before = carries(x, scanned, dim, identity, inner.dims());
  return join_dim(x, x.b.binary(op, before, inner), dim, v.dims());
}

Value scan_in_log_steps(Context& x, Value v, int64_t dim, Value identity, const Combine& combine) {
  for (int64_t step = 1; step < v.dim(dim); step *= 2) {
    v = combine(pad_dim(x, v, dim, identity, step, -step), v);
  }
  return v;
}

// Dim `dim` first, the others in order.
Dims front_order(Value v, int64_t dim) {
  Dims order = {dim};
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != dim) order.push_back(i);
  }
  return order;
}

Dims inverse(const Dims& order) {
  Dims r(order.size());
  for (size_t i = 0; i < order.size(); ++i) r[at(order[i])] = static_cast<int64_t>(i);
  return r;
}

Value front(Context& x, Value v, int64_t dim) { return x.b.transpose(v, front_order(v, dim)); }

// v: [steps, ...]; result[i] = combine(result[i - 1], v[i]).
Value scan_in_loop(Context& x, Value v, const Combine& combine) {
  hlo::Builder& b = x.b;
  const int64_t steps = v.dim(0);
  Dims row = v.dims();
  row[0] = 1;
  const auto int32 = [&](int64_t i) { return b.constant(DType::kI32, i); };
  const auto starts = [&](Value i) {
    Values s(v.dims().size(), int32(0));
    s[0] = i;
    return s;
  };
  const Values r = b.while_loop(
      {int32(1), v, b.slice_dim(v, 0, 0, 1)},
      [&](const Values& a) -> Values { return {b.compare(Cmp::kLt, a[0], int32(steps))}; },
      [&](const Values& a) -> Values {
        const Value next = combine(a[2], b.dynamic_slice(a[1], starts(a[0]), row));
        return {b.add(a[0], int32(1)), b.dynamic_update_slice(a[1], next, starts(a[0])), next};
      });
  return r[1];
}

void check_number(const Context& x, const char* kernel, DType t) {
  x.check_supported(!hlo::is_bool(t) && !hlo::is_float8(t), '"', kernel, "\" not implemented for '",
                    scalar_type_name(t), "'");
}

Value cumulative_of(Context& x, const char* kernel, Value self, int64_t dim, Opt<DType> dtype,
                    Op op) {
  const DType t = dtype.value_or(x.sum_type(self.dtype()));
  const int64_t d = x.axis(dim, self);
  check_number(x, kernel, t);
  const int64_t n = self.rank() == 0 ? 1 : self.dim(d);
  const DType in = op == Op::kAdd ? exact_sum_type(self.dtype(), t, n) : t;
  const Value v = x.to_compute(x.convert(self, in));
  return x.convert(cumulative(x, v, d, op), t);
}

std::array<Value, 2> extreme_so_far(Context& x, const char* kernel, Value self, int64_t dim,
                                    Op op) {
  const int64_t d = x.axis(dim, self);
  x.check_supported(!hlo::is_complex(self.dtype()), '"', kernel, "\" not implemented for '",
                    scalar_type_name(self.dtype()), "'");
  if (self.rank() == 0 || self.numel() == 0) return {self, x.zeros({DType::kI64, self.dims()})};
  const Value v = hlo::is_bool(self.dtype()) ? x.convert(self, DType::kU8) : self;
  const Value best = cumulative(x, v, d, op);
  // The position is that of the last element that equals the best so far (or is NaN).
  const Value hit = x.b.logical_or(x.b.compare(Cmp::kEq, v, best), x.is_nan(v));
  const Value position = x.b.iota({DType::kI32, v.dims()}, d);
  const Value last = cumulative(x, x.b.select(hit, position, x.like(position, 0)), d, Op::kMaximum);
  return {x.convert(best, self.dtype()), x.convert(last, DType::kI64)};
}

// log(exp(p) + exp(q)); equal infinities give themselves.
Value log_add_exp(Context& x, Value p, Value q) {
  hlo::Builder& b = x.b;
  if (!hlo::is_complex(p.dtype())) {
    const Value low = b.minimum(p, q), high = b.maximum(p, q);
    const Value tail = b.unary(Op::kLogPlusOne, b.unary(Op::kExponential, b.sub(low, high)));
    const Value same =
        b.logical_and(b.compare(Cmp::kEq, low, high),
                      b.compare(Cmp::kEq, b.unary(Op::kAbs, low), x.like(low, kInf)));
    return b.select(same, p, b.add(tail, high));
  }
  const Value first = b.compare(Cmp::kGe, b.real(p), b.real(q));
  const Value high = b.select(first, p, q), low = b.select(first, q, p);
  const Value tail = b.unary(Op::kLogPlusOne, b.unary(Op::kExponential, b.sub(low, high)));
  const Value size = b.unary(Op::kAbs, b.real(high));
  const Value same = b.logical_and(b.compare(Cmp::kEq, b.real(low), b.real(high)),
                                   b.compare(Cmp::kEq, size, x.like(size, kInf)));
  const Value gone = b.compare(Cmp::kEq, b.real(low), x.like(size, -kInf));
  return b.select(b.logical_or(same, gone), high, b.add(tail, high));
}

Value log_cumulative_sum_exp(Context& x, Value self, int64_t dim) {
  const DType t = self.dtype();
  const int64_t d = x.axis(dim, self);
  x.check_supported(!hlo::is_integral(t) && !hlo::is_float8(t),
                    "\"logcumsumexp_out_cpu\" not implemented for '", scalar_type_name(t), "'");
  const Value v = x.to_compute(self);
  const Value nothing = x.convert(x.constant(hlo::real_type(v.dtype()), -kInf), v.dtype());
  const Combine combine = [&x](Value p, Value q) { return log_add_exp(x, p, q); };
  if (hlo::is_complex(t) && v.rank() > 0 && v.numel() > 0) {
    // Which branch of the logarithm a result is on depends on the order: one after the other, as on
    // the CPU.
    const Value rows = scan_in_loop(x, front(x, v, d), combine);
    return x.b.transpose(rows, inverse(front_order(v, d)));
  }
  return x.convert(scan(x, v, d, nothing, combine), t);
}

}  // namespace

Value cumulative(Context& x, Value v, int64_t dim, Op op) {
  if (v.rank() == 0 || v.numel() == 0 || v.dim(dim) == 1) return v;
  const Value identity = identity_of(x, op, v.dtype());
  // A TPU's compiler splits a window over everything by itself, but takes minutes where an element
  // is two words.
  if (!x.on_cpu_plugin() && hlo::size_bytes(v.dtype()) <= 4) {
    return trailing_windows(x, v, dim, identity, v.dim(dim), op);
  }
  return cumulative_in_blocks(x, v, dim, identity, op);
}

Value scan(Context& x, Value v, int64_t dim, Value identity, const Combine& combine) {
  if (v.rank() == 0 || v.numel() == 0) return v;
  const int64_t n = v.dim(dim);
  if (n <= 32) return scan_in_log_steps(x, v, dim, identity, combine);
  const auto size = static_cast<int64_t>(std::ceil(std::sqrt(static_cast<double>(n))));
  const Value blocks = split_dim(x, v, dim, identity, (n + size - 1) / size, size);
  // Steps run over the position in the block: the first dimension, so that a step is one piece.
  const Value inner = scan_in_loop(x, front(x, blocks, dim + 1), combine);
  const Value totals = x.squeeze(x.b.slice_dim(inner, 0, size - 1, size), 0);
  const Value scanned = scan(x, totals, dim, identity, combine);
  const Value before = carries(x, scanned, dim, identity, blocks.dims());
  return join_dim(x, combine(before, x.b.transpose(inner, inverse(front_order(blocks, dim + 1)))),
                  dim, v.dims());
}

void register_scan(Registry& r) {
  r.op("aten::cumsum", [](Context& x, Value self, int64_t dim, Opt<DType> dtype) {
     return cumulative_of(x, "cumsum_out_cpu", self, dim, dtype, Op::kAdd);
   }).out_casts(true);
  r.op("aten::cumprod", [](Context& x, Value self, int64_t dim, Opt<DType> dtype) {
     return cumulative_of(x, "cumprod_out_cpu", self, dim, dtype, Op::kMultiply);
   }).out_casts(true);
  struct Running {
    const char *name, *helper, *kernel;
    Op op;
  };
  static constexpr Running kRunning[] = {
      {"aten::cummax", "aten::_cummax_helper", "cummax_cpu", Op::kMaximum},
      {"aten::cummin", "aten::_cummin_helper", "cummin_cpu", Op::kMinimum},
  };
  for (const Running& k : kRunning) {
    r.op(k.name, [&k](Context& x, Value self, int64_t dim) {
      return extreme_so_far(x, k.kernel, self, dim, k.op);
    });
    // Writes both tensors; what they held does not matter.
    r.op(k.helper, [&k](Context& x, Value self, Value, Value, int64_t dim) {
      return extreme_so_far(x, k.kernel, self, dim, k.op);
    });
  }
  r.op("aten::logcumsumexp", log_cumulative_sum_exp);
  r.op("aten::_logcumsumexp", log_cumulative_sum_exp);
}

}  // namespace tpu::aten
