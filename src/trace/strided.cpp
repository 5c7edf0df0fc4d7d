#include "trace/strided.h"

#include <algorithm>
#include <numeric>

namespace tpu::trace {
namespace {

using ops::Context;
using ops::Scalar;
using ops::Value;
using ops::Values;

struct Walk {
  int64_t dim, size, stride;
};

// Splits one stretch of `extent` elements (in units of `unit` base elements) along the walks that
// lie in it. Gives false when a walk does not fit. `offset` is in units.
bool split(int64_t extent, int64_t unit, std::span<const Walk> walks, int64_t offset,
           StridedPlan& p) {
  int64_t length = extent;
  for (const Walk& w : walks) {
    if (w.stride % unit != 0) return false;
    const int64_t stride = w.stride / unit;
    const int64_t block = std::gcd(length, stride);
    const int64_t blocks = length / block, step = stride / block, start = offset / block;
    if (start + (w.size - 1) * step >= blocks) return false;
    p.axis[static_cast<size_t>(w.dim)] = static_cast<int64_t>(p.factor.size());
    p.factor.push_back(blocks);
    p.start.push_back(start);
    p.count.push_back(w.size);
    p.step.push_back(step);
    length = block;
    offset %= block;
  }
  if (length > 1 || walks.empty()) {
    p.factor.push_back(length);
    p.start.push_back(offset);
    p.count.push_back(1);
    p.step.push_back(1);
  }
  return true;
}

// Walks sorted by stride, each inside the base dim that its stride falls in.
bool plan_by_dims(std::span<const int64_t> base, std::span<const Walk> walks, int64_t offset,
                  StridedPlan& p) {
  int64_t stride = 1;
  for (int64_t d : base) stride *= d;
  size_t next = 0;
  for (int64_t d : base) {
    const int64_t outer = stride;
    stride /= d;
    size_t end = next;
    while (end < walks.size() && walks[end].stride < outer && walks[end].stride >= stride) ++end;
    if (!split(d, stride, walks.subspan(next, end - next), offset / stride, p)) return false;
    offset %= stride;
    next = end;
  }
  return next == walks.size();
}

}  // namespace

StridedPlan plan_view(std::span<const int64_t> base, std::span<const int64_t> sizes,
                      std::span<const int64_t> strides, int64_t offset) {
  std::vector<Walk> walks;
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] != 1 && strides[i] != 0)
      walks.push_back({static_cast<int64_t>(i), sizes[i], strides[i]});
  }
  std::stable_sort(walks.begin(), walks.end(),
                   [](const Walk& a, const Walk& b) { return a.stride > b.stride; });

  auto fresh = [&] {
    StridedPlan p;
    p.axis.assign(sizes.size(), -1);
    return p;
  };
  StridedPlan p = fresh();
  if (plan_by_dims(base, walks, offset, p)) return p;
  // The base seen as flat: view dims may run over several base dims.
  int64_t numel = 1;
  for (int64_t d : base) numel *= d;
  p = fresh();
  if (split(numel, 1, walks, offset, p)) return p;
  p = fresh();
  p.gather = true;
  return p;
}

Dims reinterpreted_dims(const Type& base, DType dtype) {
  const auto from = static_cast<int64_t>(hlo::size_bytes(base.dtype)),
             to = static_cast<int64_t>(hlo::size_bytes(dtype));
  if (from == to) return base.dims;
  if (!base.dims.empty() && base.dims.back() * from % to == 0) {
    Dims d = base.dims;
    d.back() = d.back() * from / to;
    return d;
  }
  return {base.numel() * from / to};
}

namespace {

// ---- Bytes of one type read as another.

// Types that bitcast_convert does not take are brought to integers of the same width first.
Value to_bits(Context& x, Value v) {
  if (hlo::is_bool(v.dtype())) return x.b.convert(v, DType::kU8);
  if (hlo::is_complex(v.dtype())) {  // [..., n] complex -> [..., 2n] real
    const Value parts[] = {x.b.real(v), x.b.imag(v)};
    Dims d = v.dims();
    d.push_back(1);
    const Value both =
        x.b.concatenate({x.b.reshape(parts[0], d), x.b.reshape(parts[1], d)}, v.rank());
    if (v.rank() == 0) return both;
    d = v.dims();
    d.back() *= 2;
    return x.b.reshape(both, d);
  }
  return v;
}

Value reinterpret(Context& x, Value v, DType to) {
  if (v.dtype() == to) return v;
  const Type from_type = v.type();
  const Dims dims = reinterpreted_dims(from_type, to);
  const bool flat = dims.size() == 1 && v.rank() != 1;
  if (flat) v = x.b.reshape(v, {v.numel()});
  v = to_bits(x, v);
  if (v.rank() == 0) v = x.b.reshape(v, {1});
  const DType target = hlo::is_bool(to) ? DType::kU8 : hlo::real_type(to);
  const auto from_size = static_cast<int64_t>(hlo::size_bytes(v.dtype()));
  const auto to_size = static_cast<int64_t>(hlo::size_bytes(target));
  Dims d = v.dims();
  if (from_size > to_size) {
    Dims wide = d;
    wide.push_back(from_size / to_size);
    d.back() *= from_size / to_size;
    v = x.b.reshape(x.b.bitcast_convert(v, {target, wide}), d);
  } else if (from_size < to_size) {
    const int64_t ratio = to_size / from_size;
    const int64_t whole = d.back() / ratio;
    if (whole * ratio != d.back())
      v = x.b.slice_dim(v, static_cast<int64_t>(d.size()) - 1, 0, whole * ratio);
    d.back() = whole;
    Dims split_dims = d;
    split_dims.push_back(ratio);
    v = x.b.bitcast_convert(x.b.reshape(v, split_dims), {target, d});
  } else {
    v = x.b.bitcast_convert(v, {target, d});
  }
  if (hlo::is_bool(to)) {
    v = x.b.convert(v, DType::kBool);
  } else if (hlo::is_complex(to)) {
    Dims pairs = v.dims();
    pairs.back() /= 2;
    pairs.push_back(2);
    v = x.b.reshape(v, pairs);
    const auto last = static_cast<int64_t>(pairs.size()) - 1;
    pairs.pop_back();
    v = x.b.complex(x.b.reshape(x.b.slice_dim(v, last, 0, 1), pairs),
                    x.b.reshape(x.b.slice_dim(v, last, 1, 2), pairs));
  }
  return x.b.reshape(v, dims);
}

// ---- Slices of factors.

struct Cut {
  Dims factor, count, step, axis, sizes;
  // Elements that a factor's slice spans, and which factors are cut at all.
  Dims extent;
  std::vector<bool> is_cut;

  Cut(Dims f, Dims c, Dims s, Dims a, Dims z)
      : factor(std::move(f)),
        count(std::move(c)),
        step(std::move(s)),
        axis(std::move(a)),
        sizes(std::move(z)) {
    for (size_t i = 0; i < factor.size(); ++i) {
      extent.push_back((count[i] - 1) * step[i] + 1);
      is_cut.push_back(extent[i] != factor[i]);
    }
  }
  bool any_cut() const { return std::find(is_cut.begin(), is_cut.end(), true) != is_cut.end(); }
  bool stepped() const {
    for (size_t i = 0; i < step.size(); ++i) {
      if (step[i] != 1 && count[i] != 1) return true;
    }
    return false;
  }
  // View dims that walk along a factor, in view order.
  Dims walking() const {
    Dims w;
    for (size_t i = 0; i < axis.size(); ++i) {
      if (axis[i] >= 0) w.push_back(static_cast<int64_t>(i));
    }
    return w;
  }
};

// One index operand per factor: the given start of a cut factor, else 0.
Values start_values(Context& x, const Cut& c, const std::vector<Scalar>& starts) {
  Values v;
  size_t next = 0;
  for (bool cut : c.is_cut)
    v.push_back(cut ? x.scalar(starts[next++], DType::kI32) : x.b.constant(DType::kI32, 0));
  return v;
}

Value view_read(Context& x, Value base, DType dtype, Dims factor, Dims count, Dims step, Dims axis,
                Dims sizes, std::vector<Scalar> starts) {
  const Cut c(std::move(factor), std::move(count), std::move(step), std::move(axis),
              std::move(sizes));
  Value v = x.b.reshape(reinterpret(x, base, dtype), c.factor);
  if (c.any_cut()) v = x.b.dynamic_slice(v, start_values(x, c, starts), c.extent);
  if (c.stepped()) v = x.b.slice(v, Dims(c.factor.size(), 0), c.extent, c.step);
  // Drop the factors that nothing walks along, bring the rest into view order, broadcast.
  std::vector<int64_t> position(c.factor.size(), -1);
  Dims kept;
  for (size_t f = 0; f < c.factor.size(); ++f) {
    if (std::find(c.axis.begin(), c.axis.end(), static_cast<int64_t>(f)) == c.axis.end()) continue;
    position[f] = static_cast<int64_t>(kept.size());
    kept.push_back(c.count[f]);
  }
  v = x.b.reshape(v, kept);
  const Dims walking = c.walking();
  Dims permutation;
  for (int64_t d : walking)
    permutation.push_back(position[static_cast<size_t>(c.axis[static_cast<size_t>(d)])]);
  v = x.b.transpose(v, permutation);
  if (v.numel() == hlo::product(c.sizes)) return x.b.reshape(v, c.sizes);
  return x.b.broadcast_in_dim(v, c.sizes, walking);
}

// The base after a write in the view's dtype. The last bytes of a base that is no whole number of
// such elements are not part of any view: they are put back behind, and the base keeps its own
// dtype.
Value whole_base(Context& x, Value base, Value written) {
  if (written.type().size_bytes() == base.type().size_bytes()) return written;
  const Value flat = x.b.reshape(base, {base.numel()});
  const Value head = reinterpret(x, x.b.reshape(written, {written.numel()}), base.dtype());
  return x.b.concatenate({head, x.b.slice_dim(flat, 0, head.numel(), flat.numel())}, 0);
}

Value view_write(Context& x, Value base, Value source, DType dtype, Dims factor, Dims count,
                 Dims step, Dims axis, Dims sizes, std::vector<Scalar> starts) {
  const Cut c(std::move(factor), std::move(count), std::move(step), std::move(axis),
              std::move(sizes));
  const Value old = x.b.reshape(reinterpret(x, base, dtype), c.factor);
  // The source in factor order: the walking dims transposed, the others of size 1. Where positions
  // share one element, which a fill may do, the first is taken.
  const Dims walking = c.walking();
  Dims compact, order(walking.size());
  for (int64_t d : walking) compact.push_back(c.sizes[static_cast<size_t>(d)]);
  Dims first = c.sizes;
  for (size_t i = 0; i < first.size(); ++i) {
    if (c.axis[i] < 0) first[i] = 1;
  }
  if (first != c.sizes)
    source = x.b.slice(source, Dims(first.size(), 0), first, Dims(first.size(), 1));
  Value v = x.b.reshape(source, compact);
  std::iota(order.begin(), order.end(), 0);
  std::sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    return c.axis[static_cast<size_t>(walking[static_cast<size_t>(a)])] <
           c.axis[static_cast<size_t>(walking[static_cast<size_t>(b)])];
  });
  v = x.b.reshape(x.b.transpose(v, order), c.count);
  Values starts_v = c.any_cut() ? start_values(x, c, starts) : Values();
  if (c.stepped()) {
    // Spread the source over the stretch it spans and keep the old elements between.
    const size_t n = c.factor.size();
    Dims interior(n);
    for (size_t i = 0; i < n; ++i) interior[i] = c.count[i] > 1 ? c.step[i] - 1 : 0;
    const Value spread = x.b.pad(v, x.b.constant(dtype, 0), Dims(n, 0), Dims(n, 0), interior);
    const Value mask = x.b.pad(x.b.splat({DType::kBool, c.count}, 1), x.b.constant(DType::kBool, 0),
                               Dims(n, 0), Dims(n, 0), interior);
    const Value stretch = c.any_cut() ? x.b.dynamic_slice(old, starts_v, c.extent) : old;
    v = x.b.select(mask, spread, stretch);
  }
  if (c.any_cut()) v = x.b.dynamic_update_slice(old, v, starts_v);
  return whole_base(x, base, x.b.reshape(v, reinterpreted_dims(base.type(), dtype)));
}

// ---- Odd views.

// Flat element index of every position of the view.
Value flat_index(Context& x, const Dims& sizes, const Dims& strides, const Scalar& offset,
                 int64_t base_numel) {
  const DType t = base_numel > INT32_MAX ? DType::kI64 : DType::kI32;
  Value index = x.broadcast(x.scalar(offset, t), sizes);
  for (size_t i = 0; i < sizes.size(); ++i) {
    if (sizes[i] == 1 || strides[i] == 0) continue;
    const Type along{t, sizes};
    index = x.b.add(
        index, x.b.mul(x.b.iota(along, static_cast<int64_t>(i)), x.b.splat(along, strides[i])));
  }
  return index;
}

Value view_read_gather(Context& x, Value base, DType dtype, Dims sizes, Dims strides,
                       Scalar offset) {
  Value flat = reinterpret(x, base, dtype);
  flat = x.b.reshape(flat, {flat.numel()});
  const Value index = flat_index(x, sizes, strides, offset, flat.numel());
  hlo::GatherDims d;
  d.collapsed_slice_dims = {0};
  d.start_index_map = {0};
  d.index_vector_dim = index.rank();
  return x.b.gather(flat, index, d, {1});
}

Value view_write_scatter(Context& x, Value base, Value source, DType dtype, Dims sizes,
                         Dims strides, Scalar offset) {
  const Value old = reinterpret(x, base, dtype);
  const Value flat = x.b.reshape(old, {old.numel()});
  Value index = flat_index(x, sizes, strides, offset, flat.numel());
  const int64_t n = index.numel();
  hlo::ScatterDims d;
  d.inserted_window_dims = {0};
  d.scatter_dims_to_operand_dims = {0};
  d.index_vector_dim = 1;
  const Value updated =
      x.b.scatter(flat, x.b.reshape(index, {n}), x.b.reshape(source, {n}), d, std::nullopt);
  return whole_base(x, base, x.b.reshape(updated, old.dims()));
}

Value resize(Context& x, Value base, DType dtype, int64_t numel) {
  Value v = reinterpret(x, base, dtype);
  v = x.b.reshape(v, {v.numel()});
  if (v.numel() >= numel) return x.b.slice_dim(v, 0, 0, numel);
  return x.b.pad(v, x.b.constant(dtype, 0), {0}, {numel - v.numel()});
}

}  // namespace

void register_views(ops::Registry& r) {
  r.op("tpu::view_read", view_read);
  r.op("tpu::view_read_gather", view_read_gather);
  r.op("tpu::view_write", view_write);
  r.op("tpu::view_write_scatter", view_write_scatter);
  r.op("tpu::permute",
       [](ops::Context& x, hlo::Value v, Dims order) { return x.b.transpose(v, order); });
  r.op("tpu::reshape",
       [](ops::Context& x, hlo::Value v, Dims dims) { return x.b.reshape(v, std::move(dims)); });
  r.op("tpu::convert", [](ops::Context& x, hlo::Value v, DType t) { return x.convert(v, t); });
  r.op("tpu::broadcast",
       [](ops::Context& x, hlo::Value v, Dims dims) { return x.broadcast(v, dims); });
  r.op("tpu::zeros",
       [](ops::Context& x, DType t, Dims dims) { return x.b.splat({t, std::move(dims)}, 0); });
  r.op("tpu::resize", resize);
}

}  // namespace tpu::trace
