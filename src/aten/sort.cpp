#include "aten/sort.h"

#include <limits>

#include "aten/all.h"
#include "aten/reduce.h"
#include "aten/scan.h"

namespace tpu::aten {

using namespace ops;

namespace {

Value to_int64(Context& x, Value v) { return x.b.convert(v, DType::kI64); }

void check_ordered(const Context& x, const char* kernel, DType t) {
  x.check_supported(!hlo::is_bool(t) && !hlo::is_complex(t), '"', kernel,
                    "\" not implemented for '", scalar_type_name(t), "'");
}

std::array<Value, 2> sort(Context& x, Value self, Opt<bool>, int64_t dim, bool descending) {
  const int64_t d = x.axis(dim, self);
  x.check(!hlo::is_complex(self.dtype()), " Sort does not support complex dtypes on TPU");
  const auto [values, positions] = sort_along(x, self, d, descending);
  return {values, to_int64(x, positions)};
}

// ---- The k largest or smallest.

Value move_dim(Context& x, Value v, int64_t from, int64_t to) {
  Dims order;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != from) order.push_back(i);
  }
  order.insert(order.begin() + to, from);
  return x.b.transpose(v, order);
}

std::array<Value, 2> top_k(Context& x, Value self, int64_t k, int64_t dim, bool largest, bool) {
  const int64_t d = x.axis(dim, self);
  const DType t = self.dtype();
  x.check(k >= 0 && k <= (self.rank() > 0 ? self.dim(d) : 1), "selected index k out of range");
  x.check(!hlo::is_complex(t), " topk does not support complex dtypes on TPU");
  x.check(!hlo::is_bool(t), "topk does not support bool dtypes on TPU");
  if (self.rank() == 0) return {self, x.zeros({DType::kI64, {}})};
  if (k == 0 || self.numel() == 0) {
    Dims dims = self.dims();
    dims[static_cast<size_t>(d)] = k;
    return {x.zeros({t, dims}), x.zeros({DType::kI64, dims})};
  }
  if (!largest) {
    const auto [values, positions] = sort_along(x, self, d);
    return {x.b.slice_dim(values, d, 0, k), to_int64(x, x.b.slice_dim(positions, d, 0, k))};
  }
  // top_k orders by bits, where a NaN with its sign set is the smallest number: clear the sign.
  const double nan = std::numeric_limits<double>::quiet_NaN();
  const Value v = hlo::is_float(t) ? x.b.select(x.is_nan(self), x.like(self, nan), self) : self;
  const int64_t last = self.rank() - 1;
  const Values r = x.b.top_k(move_dim(x, v, d, last), k);
  return {move_dim(x, r[0], last, d), to_int64(x, move_dim(x, r[1], last, d))};
}

// ---- Order statistics.

std::array<Value, 2> without_dim(Context& x, Value values, Value positions, int64_t d,
                                 bool keepdim) {
  const Value indices = to_int64(x, positions);
  if (keepdim || values.rank() == 0) return {values, indices};
  return {x.squeeze(values, d), x.squeeze(indices, d)};
}

std::array<Value, 2> kth_value(Context& x, Value self, int64_t k, int64_t dim, bool keepdim) {
  const int64_t d = x.axis(dim, self);
  check_nonempty(x, "kthvalue()", self, d);
  x.check(k >= 1 && k <= (self.rank() > 0 ? self.dim(d) : 1),
          "kthvalue(): selected number k out of range for dimension ", d);
  check_ordered(x, "kthvalue_cpu", self.dtype());
  const auto [values, positions] = sort_along(x, self, d);
  if (self.rank() == 0) return {values, to_int64(x, positions)};
  return without_dim(x, x.b.slice_dim(values, d, k - 1, k), x.b.slice_dim(positions, d, k - 1, k),
                     d, keepdim);
}

// The lower median. A row with a NaN has the median NaN, at the first one; or NaN is `skipped`.
std::array<Value, 2> median_along(Context& x, Value v, int64_t d, bool skipped, bool keepdim) {
  const auto [values, positions] = sort_along(x, v, d);
  if (v.rank() == 0) return {values, to_int64(x, positions)};
  const int64_t middle = (v.dim(d) - 1) / 2;
  if (!hlo::is_float(v.dtype())) {
    return without_dim(x, x.b.slice_dim(values, d, middle, middle + 1),
                       x.b.slice_dim(positions, d, middle, middle + 1), d, keepdim);
  }
  const Value numbers = x.sum(x.b.convert(x.b.logical_not(x.is_nan(v)), DType::kI32), {d}, true);
  const Value all = x.like(numbers, static_cast<double>(v.dim(d)));
  Value at;
  if (skipped) {
    const Value last = x.b.maximum(x.b.sub(numbers, x.like(numbers, 1)), x.like(numbers, 0));
    at = x.b.binary(Op::kShiftRightLogical, last, x.like(last, 1));
  } else {  // NaN is sorted behind the numbers, in the order of appearance
    const Value complete = x.b.compare(Cmp::kEq, numbers, all);
    at = x.b.select(complete, x.like(numbers, static_cast<double>(middle)), numbers);
  }
  return without_dim(x, take_along(x, values, at, d), take_along(x, positions, at, d), d, keepdim);
}

std::array<Value, 2> median_dim(Context& x, Value self, int64_t dim, bool keepdim, bool skipped) {
  const int64_t d = x.axis(dim, self);
  check_nonempty(x, "median()", self, d);
  check_ordered(x, "median_out", self.dtype());
  return median_along(x, self, d, skipped, keepdim);
}

Value median_all(Context& x, Value self, bool skipped) {
  const DType t = self.dtype();
  check_ordered(x, "median_cpu", t);
  if (self.numel() == 0) {
    return x.convert(x.constant(DType::kF32, std::numeric_limits<double>::quiet_NaN()), t);
  }
  return median_along(x, x.b.reshape(self, {self.numel()}), 0, skipped, false)[0];
}

// The most frequent value, the smallest of several, and where it appears last.
std::array<Value, 2> mode(Context& x, Value self, int64_t dim, bool keepdim) {
  const int64_t d = x.axis(dim, self);
  check_nonempty(x, "mode()", self, d);
  x.check_supported(!hlo::is_complex(self.dtype()), "\"mode\" not implemented for '",
                    scalar_type_name(self.dtype()), "'");
  const auto [values, positions] = sort_along(x, self, d);
  if (self.rank() == 0) return {values, to_int64(x, positions)};
  if (self.numel() == 0) {
    const Type empty{DType::kI64, Context::reduced(self.dims(), {d}, keepdim)};
    return {x.zeros({self.dtype(), empty.dims}), x.zeros(empty)};
  }
  // How long each element's run of equal values is up to there; the first longest one ends it.
  const int64_t n = self.dim(d);
  const Value place = x.b.iota({DType::kI32, self.dims()}, d);
  Value start = x.like(place, 0);
  if (n > 1) {
    const Value differs =
        x.b.compare(Cmp::kNe, x.b.slice_dim(values, d, 1, n), x.b.slice_dim(values, d, 0, n - 1));
    const Value here = x.b.slice_dim(place, d, 1, n);
    const Value begins = x.b.select(differs, here, x.like(here, 0));
    start =
        cumulative(x, x.b.concatenate({x.b.slice_dim(start, d, 0, 1), begins}, d), d, Op::kMaximum);
  }
  const Value at = x.b.convert(arg_reduce(x, x.b.sub(place, start), d, true, true)[1], DType::kI32);
  return without_dim(x, take_along(x, values, at, d), take_along(x, positions, at, d), d, keepdim);
}

}  // namespace

std::array<Value, 2> sort_along(Context& x, Value v, int64_t dim, bool descending) {
  if (v.rank() == 0) return {v, x.zeros({DType::kI32, {}})};
  hlo::Builder& b = x.b;
  const Value positions = b.iota({DType::kI32, v.dims()}, dim);
  if (v.numel() == 0 || v.dim(dim) == 1) return {v, positions};
  const DType t = v.dtype();
  const Value keys = hlo::is_bool(t) ? b.convert(v, DType::kU8) : v;
  const Values r = b.sort({keys, positions}, dim, true, [&](const Values& a) -> Values {
    const Value ordered = b.compare(descending ? Cmp::kGt : Cmp::kLt, a[0], a[1]);
    if (!hlo::is_float(t)) return {ordered};
    const Value first = x.is_nan(a[0]), second = x.is_nan(a[1]);
    const Value nan_ordered = descending ? b.logical_and(first, b.logical_not(second))
                                         : b.logical_and(second, b.logical_not(first));
    return {b.logical_or(ordered, nan_ordered)};
  });
  return {x.convert(r[0], t), r[1]};
}

Value take_along(Context& x, Value v, Value index, int64_t dim) {
  if (index.numel() == 0) return x.zeros({v.dtype(), index.dims()});
  hlo::GatherDims g;
  for (int64_t i = 0; i < v.rank(); ++i) {
    if (i != dim) g.operand_batching_dims.push_back(i);
  }
  g.start_indices_batching_dims = g.operand_batching_dims;
  g.collapsed_slice_dims = {dim};
  g.start_index_map = {dim};
  g.index_vector_dim = v.rank();
  return x.b.gather(v, index, g, Dims(v.dims().size(), 1));
}

void register_sort(Registry& r) {
  r.op("aten::sort.stable", sort).layout(LayoutRule::kLikeSelf);
  r.op("aten::topk", top_k);
  r.op("aten::kthvalue", kth_value);
  for (const bool skipped : {false, true}) {
    const std::string name = skipped ? "aten::nanmedian" : "aten::median";
    r.op(name, [skipped](Context& x, Value self) { return median_all(x, self, skipped); });
    r.op(name + ".dim", [skipped](Context& x, Value self, int64_t dim, bool keepdim) {
      return median_dim(x, self, dim, keepdim, skipped);
    });
  }
  r.op("aten::mode", mode);
  register_search(r);
  register_unique(r);
}

}  // namespace tpu::aten
