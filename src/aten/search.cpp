// Positions in sorted sequences, membership, histograms.
#include <algorithm>
#include <cmath>

#include "aten/sort.h"

namespace tpu::aten {

using namespace ops;

namespace {

// Sequences up to this long are compared with every value instead of searched: one fused reduction.
constexpr int64_t kShort = 64;

void check_kernel(const Context& x, bool ok, const char* kernel, DType t) {
  x.check_supported(ok, '"', kernel, "\" not implemented for '", scalar_type_name(t), "'");
}

// ---- searchsorted, bucketize.

bool is_right(const Context& x, bool right, const Opt<std::string>& side) {
  if (!side) return right;
  x.check(*side == "left" || *side == "right",
          "torch.searchsorted(): side can only be 'left' or 'right' but got ", *side);
  x.check(!right || *side == "right",
          "torch.searchsorted(): side and right can't be set to opposites, got side of ", *side,
          " while right was True");
  return *side == "right";
}

Value in_order(Context& x, Value boundaries, Value sorter) {
  const char* name = "torch.searchsorted(): ";
  x.check(sorter.dims() == boundaries.dims(), name,
          "boundary and sorter must have the same size, but got boundary tensor ",
          boundaries.dims(), "and got sorter tensor ", sorter.dims());
  x.check(sorter.dtype() == DType::kI64, name,
          "sorter must be a tensor of long dtype but got dtype ", scalar_type_name(sorter.dtype()));
  const int64_t last = boundaries.rank() - 1, n = boundaries.dim(last);
  const Value low = x.b.compare(Cmp::kLt, sorter, x.like(sorter, 0));
  const Value high = x.b.compare(Cmp::kGe, sorter, x.like(sorter, static_cast<double>(n)));
  x.assert_none(x.b.logical_or(low, high), cat(name, "sorter index out of range"));
  return take_along(x, boundaries, x.b.convert(sorter, DType::kI32), last);
}

Value search_checked(Context& x, Value boundaries, Value v, bool out_int32, bool right,
                     const Opt<std::string>& side, const Opt<Value>& sorter) {
  const char* name = "torch.searchsorted(): ";
  const bool after = is_right(x, right, side);
  x.check(boundaries.rank() > 0, name,
          "boundaries tensor should have positive dimension, but got 0 dimension");
  x.check(v.rank() > 0 || boundaries.rank() == 1, name,
          "input value can be a scalar only when boundaries tensor dimension is 1, but we got "
          "boundaries tensor dim(",
          boundaries.rank(), ") and input value's dim(0) numel(1)");
  const bool same_leading =
      boundaries.rank() == v.rank() &&
      std::equal(v.dims().begin(), v.dims().end() - (v.rank() > 0), boundaries.dims().begin());
  x.check(
      boundaries.rank() == 1 || same_leading, name,
      "boundaries tensor should be 1 dimension or the first N-1 dimensions of boundaries tensor "
      "and input value tensor must match, but we got boundaries tensor ",
      boundaries.dims(), " and input value tensor ", v.dims());
  if (sorter) boundaries = in_order(x, boundaries, *sorter);
  const DType t = boundaries.dtype() == v.dtype() ? v.dtype() : x.promote(boundaries, v);
  check_kernel(x, !hlo::is_bool(t) && !hlo::is_complex(t), "searchsorted_out_cpu", t);
  const Value r = search_sorted(x, x.convert(boundaries, t), x.convert(v, t), after);
  return out_int32 ? r : x.b.convert(r, DType::kI64);
}

Value bucketize(Context& x, Value v, Value boundaries, bool out_int32, bool right) {
  x.check(boundaries.rank() == 1, "boundaries tensor must be 1 dimension, but got dim(",
          boundaries.rank(), ")");
  return search_checked(x, boundaries, v, out_int32, right, std::nullopt, std::nullopt);
}

// ---- isin.

Value is_in(Context& x, Value elements, Value tests, bool invert) {
  hlo::Builder& b = x.b;
  const auto finish = [&](Value found) { return invert ? b.logical_not(found) : found; };
  if (elements.numel() == 0 || tests.numel() == 0) {
    return finish(x.zeros({DType::kBool, elements.dims()}));
  }
  const int64_t n = tests.numel();
  const Value list = b.reshape(tests, {n});
  if (n <= kShort) {
    const Value column = x.unsqueeze(elements, -1);
    return finish(x.any(x.compare(Cmp::kEq, column, list), {elements.rank()}));
  }
  const Value ordered = sort_along(x, list, 0)[0];
  const Value flat = b.reshape(elements, {elements.numel()});
  const Value place = search_sorted(x, ordered, flat, false);
  const Value at = b.minimum(place, x.like(place, static_cast<double>(n - 1)));
  const Value found = b.compare(Cmp::kEq, take_along(x, ordered, at, 0), flat);
  return finish(b.reshape(found, elements.dims()));
}

DType membership_type(Context& x, DType elements, DType tests, DType common) {
  for (const DType t : {elements, tests}) {
    x.check(!hlo::is_bool(t) && !hlo::is_complex(t),
            "Unsupported input type encountered for isin(): ", scalar_type_name(t));
  }
  return common;
}

// ---- Histograms.

// For each bin the sum of `amounts` (rank 0 or like positions) over the elements there; positions
// outside [0, bins) belong to none.
Value tally(Context& x, Value positions, Value amounts, int64_t bins) {
  hlo::Builder& b = x.b;
  const DType t = amounts.dtype();
  const int64_t n = positions.numel();
  const Value updates = x.broadcast(amounts, {n});
  if (n == 0 || bins == 0) return x.zeros({t, {bins}});
  if (!x.on_cpu_plugin() && bins <= 1024) {  // a TPU compares faster than it scatters
    const Dims grid = {n, bins};
    const Value mine = b.compare(Cmp::kEq, b.broadcast_in_dim(positions, grid, {0}),
                                 b.iota({positions.dtype(), grid}, 1));
    const Value spread = b.broadcast_in_dim(updates, grid, {0});
    return x.sum(b.select(mine, spread, x.like(spread, 0)), {0});
  }
  return b.scatter(x.zeros({t, {bins}}), positions, updates,
                   {.update_window_dims = {},
                    .inserted_window_dims = {0},
                    .scatter_dims_to_operand_dims = {0},
                    .index_vector_dim = 1},
                   Op::kAdd);
}

Value in_range(Context& x, Value v, Value low, Value high) {
  return x.b.logical_and(x.compare(Cmp::kGe, v, low), x.compare(Cmp::kLe, v, high));
}

// Where `inside` is false: no bin. A value on the last edge belongs to the last bin.
Value bin_or_none(Context& x, Value inside, Value position, int64_t bins) {
  const Value last = x.like(position, static_cast<double>(bins - 1));
  return x.b.select(inside, x.b.minimum(position, last),
                    x.like(position, static_cast<double>(bins)));
}

Value histc(Context& x, Value self, int64_t bins, const Number& min, const Number& max) {
  const DType t = self.dtype();
  check_kernel(x, !hlo::is_bool(t) && !hlo::is_complex(t), "histogram_cpu", t);
  x.check(bins > 0, "torch.histogram(): bins must be > 0, but got ", bins, " for dimension 0");
  x.check(min.d <= max.d, "torch.histc: max must be larger than min");
  if (self.numel() == 0) return x.zeros({t, {bins}});
  hlo::Builder& b = x.b;
  const bool integral = hlo::is_integral(t);
  // Rounded step by step in the input's type, as on the CPU: it decides which bin an edge case is
  // in.
  const Value v = b.reshape(integral ? x.convert(self, DType::kI64) : self, {self.numel()});
  Value low = x.scalar(min, v.dtype()), high = x.scalar(max, v.dtype());
  if (min.d == max.d) {
    low = x.min(v, {0});
    high = x.max(v, {0});
    const Value flat = b.compare(Cmp::kEq, low, high);
    if (!integral) {
      const Value finite = b.logical_and(b.is_finite(low), b.is_finite(high));
      x.assert_none(b.logical_not(finite), "torch.histc: range is not finite");
    }
    low = b.select(flat, b.sub(low, x.like(low, 1)), low);
    high = b.select(flat, b.add(high, x.like(high, 1)), high);
  }
  const Value scaled = x.binary(Op::kMultiply, x.binary(Op::kSubtract, v, low),
                                x.constant(v.dtype(), static_cast<double>(bins)));
  const Value position = b.convert(x.binary(Op::kDivide, scaled, b.sub(high, low)), DType::kI32);
  const Value bin = bin_or_none(x, in_range(x, v, low, high), position, bins);
  const bool countable = integral || t == DType::kF64;
  const Value one = x.constant(countable ? v.dtype() : DType::kF32, 1);
  return x.convert(tally(x, bin, one, bins), t);
}

// bins + 1 evenly spaced edges, as linspace makes them: from both ends to the middle.
Value even_edges(Context& x, Value low, Value high, int64_t bins) {
  hlo::Builder& b = x.b;
  const Type t{low.dtype(), {bins + 1}};
  const auto full = [&](Value s) { return x.broadcast(s, t.dims); };
  const Value step = full(b.div(b.sub(high, low), x.like(low, static_cast<double>(bins))));
  const Value i = b.convert(b.iota({DType::kI32, t.dims}, 0), t.dtype);
  const Value from_end = b.sub(b.splat(t, static_cast<double>(bins)), i);
  const int64_t half = (bins + 1) / 2;
  return b.select(b.compare(Cmp::kLt, i, b.splat(t, half)), b.add(full(low), b.mul(step, i)),
                  b.sub(full(high), b.mul(step, from_end)));
}

// What a multi-dimensional histogram is made of: points [n, dims], one list of edges a dim.
struct Histogram {
  Value points;
  Opt<Value> weight;  // [n]
  Values edges;
};

Histogram histogram_input(Context& x, Value self, const Opt<Value>& weight, size_t dims) {
  const char* name = "torch.histogramdd: ";
  x.check(self.rank() >= 2, name, "input tensor should have at least 2 dimensions, but got ",
          self.rank());
  const DType t = self.dtype();
  const int64_t last = self.dim(self.rank() - 1);
  x.check(static_cast<int64_t>(dims) == last,
          "histogramdd: The size of bins must be equal to the innermost dimension of the input.");
  check_kernel(x, hlo::is_float(t) && !hlo::is_float8(t), "histogramdd", t);
  Histogram h;
  h.points = x.b.reshape(self, {last == 0 ? 0 : self.numel() / last, last});
  if (weight) {
    x.check(weight->dtype() == t, name,
            "if weight tensor is provided, input tensor and weight tensor should have the same "
            "dtype, but got input(",
            hlo::torch_name(t), "), and weight(", hlo::torch_name(weight->dtype()), ")");
    x.check(weight->dims() == Dims(self.dims().begin(), self.dims().end() - 1), name,
            "if weight tensor is provided it should have the same shape as the input tensor "
            "excluding its innermost dimension, but got input with shape ",
            self.dims(), " and weight with shape ", weight->dims());
    h.weight = x.b.reshape(*weight, {weight->numel()});
  }
  return h;
}

Value coordinate(Context& x, const Histogram& h, size_t dim) {
  const auto d = static_cast<int64_t>(dim);
  return x.b.reshape(x.b.slice_dim(h.points, 1, d, d + 1), {h.points.dim(0)});
}

// Evenly spaced edges over the given ranges, or over what the points span.
void make_edges(Context& x, Histogram& h, const Dims& bins, const Opt<std::vector<double>>& range) {
  const char* name = "torch.histogramdd: ";
  hlo::Builder& b = x.b;
  const DType wide = hlo::compute_type(h.points.dtype());
  x.check(!range || range->size() == 2 * bins.size(), name, "for a ", bins.size(),
          "-dimensional histogram range should have ", 2 * bins.size(), " elements, but got ",
          range ? range->size() : 0);
  for (size_t d = 0; d < bins.size(); ++d) {
    x.check(bins[d] > 0, "torch.histogram(): bins must be > 0, but got ", bins[d],
            " for dimension ", d);
    Value low = x.constant(wide, 0), high = x.constant(wide, 1);
    if (range) {
      const double from = (*range)[2 * d], to = (*range)[2 * d + 1];
      x.check(std::isfinite(from) && std::isfinite(to), name, "dimension ", d, "'s range [", from,
              ", ", to, "] is not finite");
      x.check(from <= to, name, "min should not exceed max, but got min ", from, " max ", to,
              " for dimension ", d);
      low = x.constant(wide, from);
      high = x.constant(wide, to);
    } else if (h.points.dim(0) > 0) {
      const Value v = x.to_compute(coordinate(x, h, d));
      low = x.min(v, {0});
      high = x.max(v, {0});
      const Value finite = b.logical_and(b.is_finite(low), b.is_finite(high));
      x.assert_none(b.logical_not(finite), cat(name, "dimension ", d, "'s range is not finite"));
    }
    const Value flat = b.compare(Cmp::kEq, low, high);
    const Value half = x.constant(wide, 0.5);
    low = b.select(flat, b.sub(low, half), low);
    high = b.select(flat, b.add(high, half), high);
    h.edges.push_back(x.convert(even_edges(x, low, high, bins[d]), h.points.dtype()));
  }
}

void take_edges(Context& x, Histogram& h, const Values& edges) {
  const char* name = "torch.histogramdd: ";
  for (size_t d = 0; d < edges.size(); ++d) {
    const Value e = edges[d];
    x.check(e.dtype() == h.points.dtype(), name,
            "input tensor and bins tensors should have the same dtype, but got input with dtype ",
            hlo::torch_name(h.points.dtype()), " and bins for dimension ", d, " with dtype ",
            hlo::torch_name(e.dtype()));
    x.check(e.rank() == 1, name, "bins tensor should have one dimension, but got ", e.rank(),
            " dimensions in the bins tensor for dimension ", d);
    x.check(e.numel() > 0, name,
            "bins tensor should have at least 1 element, but got 0 elements in "
            "the bins tensor for dimension ",
            d);
    x.check(e.numel() > 1, "torch.histogram(): bins must be > 0, but got 0 for dimension ", d);
    h.edges.push_back(e);
  }
}

Value count_points(Context& x, const Histogram& h, bool density) {
  hlo::Builder& b = x.b;
  const DType t = h.points.dtype();
  const int64_t n = h.points.dim(0);
  Dims bins;
  Value inside = b.splat({DType::kBool, {n}}, 1), flat = x.zeros({DType::kI32, {n}});
  for (size_t d = 0; d < h.edges.size(); ++d) {
    const Value edges = h.edges[d], v = coordinate(x, h, d);
    const int64_t count = edges.numel() - 1;
    const auto edge = [&](int64_t i) { return b.reshape(b.slice_dim(edges, 0, i, i + 1), {}); };
    const Value position = search_sorted(x, edges, v, true);
    const Value before = b.sub(position, x.like(position, 1));
    const Value bin = b.minimum(before, x.like(before, static_cast<double>(count - 1)));
    inside = b.logical_and(inside, in_range(x, v, edge(0), edge(count)));
    flat = b.add(b.mul(flat, x.like(flat, static_cast<double>(count))), bin);
    bins.push_back(count);
  }
  const int64_t total = hlo::product(bins);
  const Value bin = b.select(inside, flat, x.like(flat, static_cast<double>(total)));
  const Value amounts = x.to_compute(h.weight.value_or(x.constant(t, 1)));
  Value hist = b.reshape(tally(x, bin, amounts, total), bins);
  if (!density) return x.convert(hist, t);
  hist = x.binary(Op::kDivide, hist, x.sum(hist, x.all_axes(hist)));
  for (size_t d = 0; d < h.edges.size(); ++d) {
    const Value e = x.to_compute(h.edges[d]);
    const Value widths = b.sub(b.slice_dim(e, 0, 1, bins[d] + 1), b.slice_dim(e, 0, 0, bins[d]));
    Dims shape(bins.size(), 1);
    shape[d] = bins[d];
    hist = x.binary(Op::kDivide, hist, b.reshape(widths, shape));
  }
  return x.convert(hist, t);
}

// The one-dimensional forms: each element is a point.
Histogram flat_input(Context& x, Value self, const Opt<Value>& weight) {
  const Value points = x.b.reshape(self, {self.numel(), 1});
  x.check(!weight || weight->numel() == self.numel(),
          "torch.histogramdd: if weight tensor is provided it should have the same shape as the "
          "input tensor excluding its innermost dimension, but got input with shape ",
          points.dims(), " and weight with shape ", weight ? weight->dims() : Dims{});
  Opt<Value> flat;
  if (weight) flat = x.b.reshape(*weight, {self.numel()});
  return histogram_input(x, points, flat, 1);
}

void register_histograms(Registry& r) {
  r.op("aten::histc", histc);
  r.op("aten::histogram.bin_ct",
       [](Context& x, Value self, int64_t bins, const Opt<std::vector<double>>& range,
          const Opt<Value>& weight, bool density) {
         Histogram h = flat_input(x, self, weight);
         make_edges(x, h, {bins}, range);
         return std::array{count_points(x, h, density), h.edges[0]};
       });
  r.op("aten::histogram.bins_tensor",
       [](Context& x, Value self, Value bins, const Opt<Value>& weight, bool density) {
         Histogram h = flat_input(x, self, weight);
         take_edges(x, h, {bins});
         return std::array{count_points(x, h, density), bins};
       });
  r.op("aten::_histogramdd_bin_edges",
       [](Context& x, Value self, const Dims& bins, const Opt<std::vector<double>>& range,
          const Opt<Value>& weight, bool) {
         Histogram h = histogram_input(x, self, weight, bins.size());
         make_edges(x, h, bins, range);
         return h.edges;
       });
  r.op("aten::_histogramdd_from_bin_cts",
       [](Context& x, Value self, const Dims& bins, const Opt<std::vector<double>>& range,
          const Opt<Value>& weight, bool density) {
         Histogram h = histogram_input(x, self, weight, bins.size());
         make_edges(x, h, bins, range);
         return count_points(x, h, density);
       });
  r.op("aten::_histogramdd_from_bin_tensors",
       [](Context& x, Value self, const Values& bins, const Opt<Value>& weight, bool density) {
         Histogram h = histogram_input(x, self, weight, bins.size());
         take_edges(x, h, bins);
         return count_points(x, h, density);
       });

  // The size of bincount's result depends on the data: bridge/ reads the first result, which is -1
  // where a value is negative, and passes it to the second.
  //   tpu::bincount_size(Tensor self, Tensor? weights, int minlength) -> rank-0 int64
  //   tpu::bincount_sized(Tensor self, Tensor? weights, int size) -> [size]
  r.op("tpu::bincount_size",
       [](Context& x, Value self, const Opt<Value>& weights, int64_t minlength) {
         check_kernel(x, hlo::is_integer(self.dtype()), "bincount_cpu", self.dtype());
         x.check(minlength >= 0, "minlength should be >= 0");
         const Value least = x.constant(DType::kI64, static_cast<double>(minlength));
         if (self.rank() == 1 && self.numel() == 0) return least;
         x.check(self.rank() == 1, "bincount only supports 1-d non-negative integral inputs.");
         x.check(!weights || weights->dims() == self.dims(),
                 "weights should be 1-d and have the same length as input");
         const Value v = x.convert(self, DType::kI64);
         const Value top = x.max(v, {0}), bottom = x.min(v, {0});
         const Value size = x.b.maximum(x.b.add(top, x.like(top, 1)), least);
         const Value negative = x.b.compare(Cmp::kLt, bottom, x.like(bottom, 0));
         return x.b.select(negative, x.like(size, -1), size);
       });
  r.op("tpu::bincount_sized", [](Context& x, Value self, const Opt<Value>& weights, int64_t size) {
    if (self.numel() == 0) return x.zeros({DType::kI64, {size}});
    const Value bin =
        x.convert(self, hlo::size_bytes(self.dtype()) < 4 ? DType::kI32 : self.dtype());
    if (!weights) return tally(x, bin, x.constant(DType::kI64, 1), size);
    const DType t = weights->dtype() == DType::kF32 ? DType::kF32 : DType::kF64;
    return tally(x, bin, x.convert(*weights, t), size);
  });
}

}  // namespace

Value search_sorted(Context& x, Value boundaries, Value v, bool right) {
  hlo::Builder& b = x.b;
  const int64_t last = boundaries.rank() - 1, n = boundaries.dim(last);
  if (n == 0 || v.numel() == 0) return x.zeros({DType::kI32, v.dims()});
  // A boundary is passed unless it is at (beyond) the value; so NaN is behind all numbers.
  const auto passed = [&](Value boundary, Value value) {
    return b.logical_not(b.compare(right ? Cmp::kGt : Cmp::kGe, boundary, value));
  };
  if (n <= kShort) {
    Dims grid = v.dims(), of_value, of_boundary;
    grid.push_back(n);
    for (int64_t i = 0; i < v.rank(); ++i) of_value.push_back(i);
    for (int64_t i = 0; i < last; ++i) of_boundary.push_back(i);
    of_boundary.push_back(v.rank());
    const Value below = passed(b.broadcast_in_dim(boundaries, grid, of_boundary),
                               b.broadcast_in_dim(v, grid, of_value));
    return x.sum(b.convert(below, DType::kI32), {v.rank()});
  }
  const Dims result = v.dims();
  if (last == 0) v = b.reshape(v, {v.numel()});
  int64_t steps = 1;
  while ((int64_t{1} << steps) <= n) ++steps;
  const auto int32 = [&](int64_t i) { return b.constant(DType::kI32, i); };
  const Type t{DType::kI32, v.dims()};
  // low and high close in on the position; both are carried, as are the two tensors that are read.
  const Values r = b.while_loop(
      {int32(0), b.splat(t, 0), b.splat(t, n), boundaries, v},
      [&](const Values& a) -> Values { return {b.compare(Cmp::kLt, a[0], int32(steps))}; },
      [&](const Values& a) -> Values {
        const Value open = b.compare(Cmp::kLt, a[1], a[2]);
        const Value middle = b.binary(Op::kShiftRightArithmetic, b.add(a[1], a[2]), b.splat(t, 1));
        const Value at = b.minimum(middle, b.splat(t, n - 1));
        const Value go = passed(take_along(x, a[3], at, last), a[4]);
        const Value up = b.logical_and(open, go), down = b.logical_and(open, b.logical_not(go));
        return {b.add(a[0], int32(1)), b.select(up, b.add(middle, b.splat(t, 1)), a[1]),
                b.select(down, middle, a[2]), a[3], a[4]};
      });
  return b.reshape(r[1], result);
}

void register_search(Registry& r) {
  r.op("aten::searchsorted.Tensor",
       [](Context& x, Value sorted_sequence, Value self, bool out_int32, bool right,
          const Opt<std::string>& side, const Opt<Value>& sorter) {
         return search_checked(x, sorted_sequence, self, out_int32, right, side, sorter);
       });
  r.op("aten::searchsorted.Scalar",
       [](Context& x, Value sorted_sequence, const Scalar& self, bool out_int32, bool right,
          const Opt<std::string>& side, const Opt<Value>& sorter) {
         const Value v = x.wrapped_scalar(self, x.promote(sorted_sequence, self));
         return search_checked(x, sorted_sequence, v, out_int32, right, side, sorter);
       });
  r.op("aten::bucketize.Tensor", bucketize);
  r.op("aten::bucketize.Scalar",
       [](Context& x, const Scalar& self, Value boundaries, bool out_int32, bool right) {
         return bucketize(x, x.wrapped_scalar(self, x.promote(boundaries, self)), boundaries,
                          out_int32, right);
       });

  r.op("aten::isin.Tensor_Tensor",
       [](Context& x, Value elements, Value test_elements, bool, bool invert) {
         const DType t = membership_type(x, elements.dtype(), test_elements.dtype(),
                                         x.promote(elements, test_elements));
         return is_in(x, x.convert(elements, t), x.convert(test_elements, t), invert);
       });
  r.op("aten::isin.Tensor_Scalar",
       [](Context& x, Value elements, const Scalar& test_element, bool, bool invert) {
         const DType t = membership_type(x, elements.dtype(), x.promote(test_element),
                                         x.promote(elements, test_element));
         return is_in(x, x.convert(elements, t), x.wrapped_scalar(test_element, t), invert);
       });
  r.op("aten::isin.Scalar_Tensor",
       [](Context& x, const Scalar& element, Value test_elements, bool, bool invert) {
         const DType t = membership_type(x, x.promote(element), test_elements.dtype(),
                                         x.promote(element, test_elements));
         return is_in(x, x.wrapped_scalar(element, t), x.convert(test_elements, t), invert);
       });
  register_histograms(r);
}

}  // namespace tpu::aten
