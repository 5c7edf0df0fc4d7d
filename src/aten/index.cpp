// Reading and writing by index tensors. Every range check is a run-time one
// (Context::checked_index); what is known from shapes is checked here, with the texts of PyTorch's
// CPU kernels.
#include <algorithm>
#include <string>

#include "aten/all.h"
#include "aten/indexing.h"
#include "aten/scan.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Op;
using ops::Scalar;
using ops::scalar_type_name;

namespace {

using OptValues = std::vector<Opt<Value>>;

bool is_mask(Value v) { return v.dtype() == DType::kBool || v.dtype() == DType::kU8; }
bool is_index32_64(Value v) { return v.dtype() == DType::kI32 || v.dtype() == DType::kI64; }

// Scalars stand for vectors of one element wherever there is a dim argument.
Value at_least_1d(Context& x, Value v) { return v.rank() == 0 ? x.b.reshape(v, {1}) : v; }

Dims other_dims(int64_t rank, int64_t dim) {
  Dims out;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != dim) out.push_back(i);
  }
  return out;
}

// ---- Where a scatter writes, and how it combines.

struct Place {
  Value indices;
  hlo::ScatterDims dims;
};

// On bool, addition and maximum are "or", multiplication and minimum "and".
Op combiner(Op op, DType t) {
  if (!hlo::is_bool(t)) return op;
  return op == Op::kAdd || op == Op::kMaximum ? Op::kOr : Op::kAnd;
}

Value write(Context& x, Value base, const Place& at, Value updates) {
  if (updates.numel() == 0 || base.numel() == 0) return base;
  return x.b.scatter(base, at.indices, updates, at.dims, std::nullopt);
}

// base op= updates; narrow floats are combined in float32 and rounded once.
Value combine(Context& x, Value base, const Place& at, Value updates, Op op) {
  if (updates.numel() == 0 || base.numel() == 0) return base;
  const Value r = x.b.scatter(x.to_compute(base), at.indices, x.to_compute(updates), at.dims,
                              combiner(op, base.dtype()));
  return x.convert(r, base.dtype());
}

enum class Reduction : uint8_t { kSum, kProd, kMean, kMax, kMin };

struct ReductionName {
  const char* name;
  Reduction reduction;
};
constexpr ReductionName kReductions[] = {{"sum", Reduction::kSum},
                                         {"prod", Reduction::kProd},
                                         {"mean", Reduction::kMean},
                                         {"amax", Reduction::kMax},
                                         {"amin", Reduction::kMin}};

Opt<Reduction> find_reduction(const std::string& name) {
  for (const auto& r : kReductions) {
    if (name == r.name) return r.reduction;
  }
  return std::nullopt;
}

Value identity(Context& x, Reduction r, DType t) {
  switch (r) {
    case Reduction::kSum:
    case Reduction::kMean: return x.constant(t, 0);
    case Reduction::kProd: return x.constant(t, 1);
    case Reduction::kMax: return x.b.min_value(t);
    case Reduction::kMin: return x.b.max_value(t);
  }
  return {};
}

Op reduction_op(Reduction r) {
  switch (r) {
    case Reduction::kProd: return Op::kMultiply;
    case Reduction::kMax: return Op::kMaximum;
    case Reduction::kMin: return Op::kMinimum;
    default: return Op::kAdd;
  }
}

// PyTorch divides integers towards minus infinity here.
Value mean_quotient(Context& x, Value sum, Value count) {
  const Value q = x.b.div(sum, count);
  if (!hlo::is_integer(sum.dtype())) return q;
  const Value zero = x.like(sum, 0);
  const Value inexact = x.b.compare(Cmp::kNe, x.b.binary(Op::kRemainder, sum, count), zero);
  const Value down = x.b.logical_and(inexact, x.b.compare(Cmp::kLt, sum, zero));
  return x.b.select(down, x.b.sub(q, x.like(q, 1)), q);
}

Value reduce_into(Context& x, Value self, const Place& at, Value updates, Reduction r,
                  bool include_self) {
  if (updates.numel() == 0 || self.numel() == 0) return self;
  const DType t = self.dtype(), wide = hlo::compute_type(t);
  const Value source = x.convert(updates, wide);
  Value base = x.convert(self, wide);
  if (!include_self) {
    const Value touched = write(x, x.zeros({DType::kBool, self.dims()}), at,
                                x.b.splat({DType::kBool, updates.dims()}, 1));
    base = x.select(touched, identity(x, r, wide), base);
  }
  const Value total = combine(x, base, at, source, reduction_op(r));
  if (r != Reduction::kMean) return x.convert(total, t);
  const Value counted =
      combine(x, x.like(base, include_self ? 1 : 0), at, x.like(source, 1), Op::kAdd);
  const Value zero = x.like(counted, 0), one = x.like(counted, 1);
  const Value count = x.b.select(x.b.compare(Cmp::kEq, counted, zero), one, counted);
  return x.convert(mean_quotient(x, total, count), t);
}

// ---- Advanced indexing: x[i, :, j].

struct Indexing {
  Dims indexed;       // the dims of self that have an index
  Dims others;        // the rest
  Dims batch;         // common shape of the index tensors
  Dims result;        // shape of x[...]
  Dims windows;       // where in the result the other dims stand
  Value coordinates;  // [batch..., k], or [batch...] for one index; in range
};

// x[i, :, j] puts the batch dims first unless all indices stand side by side.
Indexing plan_indexing(Context& x, Value self, const OptValues& indices) {
  const auto n = static_cast<int64_t>(indices.size());
  x.check_index(n <= self.rank(), "too many indices for tensor of dimension ", self.rank(),
                " (got ", n, ")");
  Indexing p;
  std::vector<Dims> shapes;
  for (int64_t d = 0; d < self.rank(); ++d) {
    const Opt<Value> index = d < n ? indices[static_cast<size_t>(d)] : std::nullopt;
    if (!index) {
      p.others.push_back(d);
      continue;
    }
    x.check_supported(!is_mask(*index),
                      "a mask as an index selects a number of elements that only "
                      "the data tells; turn it into positions with nonzero() first");
    x.check_index(hlo::is_integer(index->dtype()) && is_index32_64(*index),
                  "tensors used as indices must be long, int, byte or bool tensors");
    p.indexed.push_back(d);
    shapes.push_back(index->dims());
  }
  x.check_index(!p.indexed.empty(), "at least one index must be provided");
  try {
    p.batch = x.broadcast_dims(shapes);
  } catch (const Error&) {
    std::string list;
    for (const Dims& s : shapes) list += cat(list.empty() ? "" : ", ", s);
    x.check_index(false,
                  "shape mismatch: indexing tensors could not be broadcast together with shapes ",
                  list);
  }

  const bool adjacent =
      p.indexed.back() - p.indexed.front() + 1 == static_cast<int64_t>(p.indexed.size());
  const int64_t batch_rank = static_cast<int64_t>(p.batch.size());
  const int64_t batch_at = adjacent ? p.indexed.front() : 0;
  for (size_t i = 0; i < p.others.size(); ++i) {
    const bool before = static_cast<int64_t>(i) < batch_at;
    p.windows.push_back(static_cast<int64_t>(i) + (before ? 0 : batch_rank));
    p.result.push_back(self.dim(p.others[i]));
  }
  p.result.insert(p.result.begin() + batch_at, p.batch.begin(), p.batch.end());

  Values parts;
  DType t = DType::kI32;
  for (const int64_t d : p.indexed) {
    x.check_index(self.dim(d) != 0 || hlo::product(p.batch) == 0,
                  "index is out of bounds for dimension with size 0");
    parts.push_back(x.checked_index(*indices[static_cast<size_t>(d)], self.dim(d), d));
    if (parts.back().dtype() == DType::kI64) t = DType::kI64;
  }
  for (Value& v : parts) {
    v = x.broadcast(x.b.convert(v, t), p.batch);
    if (parts.size() > 1) v = x.unsqueeze(v, batch_rank);
  }
  p.coordinates = parts.size() > 1 ? x.b.concatenate(parts, batch_rank) : parts[0];
  return p;
}

Value index(Context& x, Value self, const OptValues& indices) {
  const Indexing p = plan_indexing(x, self, indices);
  if (hlo::product(p.result) == 0) return x.zeros({self.dtype(), p.result});
  Dims slice = self.dims();
  for (const int64_t d : p.indexed) slice[static_cast<size_t>(d)] = 1;
  return x.b.gather(self, p.coordinates,
                    {.offset_dims = p.windows,
                     .collapsed_slice_dims = p.indexed,
                     .start_index_map = p.indexed,
                     .index_vector_dim = static_cast<int64_t>(p.batch.size())},
                    slice);
}

// A mask (over dims d, d + 1, ... of self) where all selected elements get one and the same value
// needs no positions: x[mask] = 0. An invalid Value when this is another case.
Value put_by_mask(Context& x, Value self, const OptValues& indices, Value values, bool accumulate) {
  const auto defined =
      std::count_if(indices.begin(), indices.end(), [](const auto& i) { return !!i; });
  if (values.numel() != 1 || defined != 1) return {};
  const auto at = std::find_if(indices.begin(), indices.end(), [](const auto& i) { return !!i; });
  const Value mask = **at;
  if (!is_mask(mask)) return {};
  const int64_t first = at - indices.begin();
  const auto used = static_cast<int64_t>(indices.size()) - 1 + mask.rank();
  x.check_index(used <= self.rank(), "too many indices for tensor of dimension ", self.rank(),
                " (got ", used, ")");
  Dims map;
  for (int64_t i = 0; i < mask.rank(); ++i) {
    x.check_index(mask.dim(i) == self.dim(first + i), "The shape of the mask ", mask.dims(),
                  " at index ", i, " does not match the shape of the indexed tensor ", self.dims(),
                  " at index ", first + i);
    map.push_back(first + i);
  }
  const Value where = x.b.broadcast_in_dim(x.convert(mask, DType::kBool), self.dims(), map);
  const Value one = x.broadcast(x.b.reshape(values, {}), self.dims());
  const Value written = accumulate ? x.b.binary(combiner(Op::kAdd, self.dtype()), self, one) : one;
  return x.b.select(where, written, self);
}

Value index_put(Context& x, Value self, const OptValues& indices, Value values, bool accumulate) {
  x.check(self.dtype() == values.dtype(),
          "Index put requires the source and destination dtypes match, got ",
          scalar_type_name(self.dtype()), " for the destination and ",
          scalar_type_name(values.dtype()), " for the source.");
  if (const Value v = put_by_mask(x, self, indices, values, accumulate)) return v;
  const Indexing p = plan_indexing(x, self, indices);
  const Dims& shape = values.dims();
  bool fits = shape.size() <= p.result.size();
  for (size_t i = 0; fits && i < shape.size(); ++i) {
    fits = shape[i] == 1 || shape[i] == p.result[i + p.result.size() - shape.size()];
  }
  x.check(fits, "shape mismatch: value tensor of shape ", values.dims(),
          " cannot be broadcast to indexing result of shape ", p.result);
  const Value updates = x.broadcast(values, p.result);
  const Place at{p.coordinates,
                 {.update_window_dims = p.windows,
                  .inserted_window_dims = p.indexed,
                  .scatter_dims_to_operand_dims = p.indexed,
                  .index_vector_dim = static_cast<int64_t>(p.batch.size())}};
  return accumulate ? combine(x, self, at, updates, Op::kAdd) : write(x, self, at, updates);
}

// ---- index_select, index_add, index_copy, ...: whole slices along one dim.

Value index_select(Context& x, Value self, int64_t dim_arg, Value index) {
  const int64_t dim = x.axis(dim_arg, self);
  x.check_index(index.rank() <= 1, "index_select(): Index is supposed to be a vector");
  x.check(is_index32_64(index), "index_select(): Expected dtype int32 or int64 for index");
  x.check(self.rank() > 0 || index.numel() == 1,
          "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
          " value(s)");
  const Value v = at_least_1d(x, self);
  x.check(v.dim(dim) > 0 || index.numel() == 0,
          "index_select(): self indexing axis dim should be positive");
  const Value at = x.checked_index(at_least_1d(x, index), v.dim(dim), dim, false);
  const Value r = take_rows(x, v, dim, at);
  return self.rank() == 0 ? x.b.reshape(r, {}) : r;
}

Place along_dim(int64_t rank, int64_t dim, Value index) {
  return {index,
          {.update_window_dims = other_dims(rank, dim),
           .inserted_window_dims = {dim},
           .scatter_dims_to_operand_dims = {dim},
           .index_vector_dim = 1}};
}

// What index_add and index_reduce demand; gives {self, index, source} with at least one dim.
std::array<Value, 3> slices_along(Context& x, const char* name, Value self, int64_t dim,
                                  Value index, Value source) {
  x.check(is_index32_64(index), name,
          ": Expected dtype int32/int64 for index but got: ", scalar_type_name(index.dtype()));
  x.check_index(index.rank() <= 1, name,
                ": Index is supposed to be a vector, but got dim: ", index.rank(),
                " with type: ", scalar_type_name(index.dtype()), " and size: ", index.dims());
  x.check(self.dtype() == source.dtype(), name, ": self (", scalar_type_name(self.dtype()),
          ") and source (", scalar_type_name(source.dtype()), ") must have the same scalar type");
  x.check(dim == 0 || dim < source.rank(), name, ": Indexing dim ", dim,
          " is out of bounds of the source tensor with dim ", source.rank());
  const Value s = at_least_1d(x, source);
  bool same = self.rank() == source.rank();
  for (int64_t i = 0; same && i < self.rank(); ++i) {
    same = i == dim || self.dim(i) == source.dim(i);
  }
  x.check(index.numel() == s.dim(dim), name, ": Number of indices (", index.numel(),
          ") should be equal to source.size(dim): (", s.dim(dim), "), for dim: ", dim);
  x.check(same,
          "source tensor shape must match self tensor shape, excluding the specified "
          "dimension. Got self.shape = ",
          self.dims(), " source.shape = ", source.dims());
  const Value v = at_least_1d(x, self);
  return {v, x.checked_index(at_least_1d(x, index), v.dim(dim), dim, false), s};
}

Value index_add(Context& x, Value self, int64_t dim_arg, Value index, Value source, Scalar alpha) {
  const int64_t dim = x.axis(dim_arg, self);
  const auto [v, at, s] = slices_along(x, "index_add_()", self, dim, index, source);
  Value scaled = s;
  if (!x.is(alpha, 1)) {
    scaled = x.b.binary(combiner(Op::kMultiply, s.dtype()), s, x.scalar_like(alpha, s));
  }
  const Value r = combine(x, v, along_dim(v.rank(), dim, at), scaled, Op::kAdd);
  return x.b.reshape(r, self.dims());
}

Value index_copy(Context& x, Value self, int64_t dim_arg, Value index, Value source) {
  const int64_t dim = x.axis(dim_arg, self);
  x.check_index(index.rank() <= 1, "index_copy_(): Index should have dimension 1 or 0 (got ",
                index.rank(), ")");
  x.check_index(source.rank() != 0 || index.numel() == 1,
                "index_copy_(): When source is scalar, index should have one element (got ",
                index.numel(), ")");
  x.check_index(source.rank() == self.rank() || source.rank() == 0 || self.rank() == 0,
                "index_copy_(): When source and destination are not scalars, their dimensionality "
                "must match. Source dimensionality (",
                source.rank(), "), destination dimensionality (", self.rank(), ")");
  x.check(index.dtype() == DType::kI64, "index_copy_(): Expected a long tensor for index, but got ",
          scalar_type_name(index.dtype()));
  x.check(self.dtype() == source.dtype(),
          "index_copy_(): self and source expected to have the same dtype, but got (self) ",
          scalar_type_name(self.dtype()), " and (source) ", scalar_type_name(source.dtype()));
  const Value v = at_least_1d(x, self), s = at_least_1d(x, source);
  Dims to = self.dims(), from = source.dims();
  if (!to.empty()) to.erase(to.begin() + dim);
  if (!from.empty()) from.erase(from.begin() + dim);
  x.check(to == from,
          "index_copy_(): Source/destination tensor must have same slice shapes. "
          "Destination slice shape: ",
          join(to, " "), " at dimension ", dim, " and source slice shape: ", join(from, " "),
          " at dimension 0.");
  x.check_index(source.rank() == 0 || index.numel() == s.dim(dim),
                "index_copy_(): Number of indices (", index.numel(),
                ") should be equal to source.size(dim) (", s.dim(dim), ")");
  const Value at = x.checked_index(at_least_1d(x, index), v.dim(dim), dim, false);
  return x.b.reshape(write(x, v, along_dim(v.rank(), dim, at), s), self.dims());
}

// One value for all: marks the positions, then selects, which is cheaper than scattering slices.
Value index_fill(Context& x, Value self, int64_t dim_arg, Value index, Value value) {
  const int64_t dim = x.axis(dim_arg, self);
  x.check_index(index.dtype() == DType::kI64, "index_fill_(): Expected dtype int64 for index.");
  x.check(index.rank() <= 1, "Index has to be a vector/scalar");
  const Value v = at_least_1d(x, self);
  const int64_t size = v.dim(dim);
  const Value at = x.checked_index(at_least_1d(x, index), size, dim);
  const Value marked = write(x, x.zeros({DType::kBool, {size}}), along_dim(1, 0, at),
                             x.b.splat({DType::kBool, at.dims()}, 1));
  const Value r =
      x.b.select(x.b.broadcast_in_dim(marked, v.dims(), {dim}), x.broadcast(value, v.dims()), v);
  return x.b.reshape(r, self.dims());
}

Value index_reduce(Context& x, Value self, int64_t dim_arg, Value index, Value source,
                   const std::string& reduce, bool include_self) {
  const int64_t dim = x.axis(dim_arg, self);
  const Opt<Reduction> r = reduce == "sum" ? std::nullopt : find_reduction(reduce);
  x.check(r.has_value(),
          "index_reduce(): Expected reduce to be one of prod, mean, amax or amin but got ", reduce,
          ".");
  const auto [v, at, s] = slices_along(x, "index_reduce_()", self, dim, index, source);
  const bool ordered = *r == Reduction::kMax || *r == Reduction::kMin;
  const DType t = self.dtype();
  x.check_supported(!(hlo::is_complex(t) && ordered) &&
                        (include_self || !(hlo::is_bool(t) || hlo::is_complex(t))),
                    "\"index_reduce\" not implemented for '", scalar_type_name(t), "'");
  return x.b.reshape(reduce_into(x, v, along_dim(v.rank(), dim, at), s, *r, include_self),
                     self.dims());
}

// ---- gather and scatter: one index for each element, along one dim. The other dims are batch dims
// of the instruction. Where the index is smaller there, it addresses the leading block of self.

Dims leading_block(Value self, Value index, int64_t dim) {
  Dims d = index.dims();
  d[static_cast<size_t>(dim)] = self.dim(dim);
  return d;
}

Value leading(Context& x, Value v, const Dims& limits) {
  return x.b.slice(v, Dims(limits.size(), 0), limits);
}

Value gather(Context& x, Value self_arg, int64_t dim_arg, Value index_arg) {
  const int64_t dim = x.axis(dim_arg, self_arg);
  const Dims result = index_arg.dims();
  x.check(is_index32_64(index_arg), "gather(): Expected dtype int32/int64 for index");
  if (index_arg.numel() == 0) return x.zeros({self_arg.dtype(), result});
  const Value self = at_least_1d(x, self_arg), index = at_least_1d(x, index_arg);
  x.check(self.rank() == index.rank(),
          "Index tensor must have the same number of dimensions as input tensor");
  for (int64_t i = 0; i < self.rank(); ++i) {
    x.check(i == dim || index.dim(i) <= self.dim(i), "Size does not match at dimension ", i,
            " expected index ", index_arg.dims(), " to be no larger than self ", self_arg.dims(),
            " apart from dimension ", dim);
  }
  x.check_index(self.dim(dim) > 0, "index 0 is out of bounds for dimension ", dim, " with size 0");
  const Dims batch = other_dims(self.rank(), dim);
  const Value at = x.checked_index(index, self.dim(dim), dim, false);
  const Value r = x.b.gather(leading(x, self, leading_block(self, index, dim)), at,
                             {.offset_dims = {},
                              .collapsed_slice_dims = {dim},
                              .start_index_map = {dim},
                              .operand_batching_dims = batch,
                              .start_indices_batching_dims = batch,
                              .index_vector_dim = self.rank()},
                             Dims(static_cast<size_t>(self.rank()), 1));
  return x.b.reshape(r, result);
}

// `update(block, place, source)` gives the new leading block. Without `src`, source is `value`
// everywhere.
template <class Update>
Value scatter(Context& x, Value self_arg, int64_t dim_arg, Value index_arg, const Opt<Value>& src,
              const Opt<Scalar>& value, Update update) {
  const int64_t dim = x.axis(dim_arg, self_arg);
  if (index_arg.numel() != 0) {
    x.check(is_index32_64(index_arg), "scatter(): Expected dtype int32/int64 for index");
  }
  if (src) {
    x.check(self_arg.dtype() == src->dtype(),
            "scatter(): Expected self.dtype to be equal to src.dtype");
  }
  if (index_arg.numel() == 0) return self_arg;
  const Value self = at_least_1d(x, self_arg), index = at_least_1d(x, index_arg);
  x.check(self.rank() == index.rank(),
          "Index tensor must have the same number of dimensions as self tensor");
  bool fits = true;
  for (int64_t i = 0; i < self.rank(); ++i) fits &= i == dim || index.dim(i) <= self.dim(i);
  Value source;
  if (src) {
    source = at_least_1d(x, *src);
    x.check(source.rank() == index.rank(),
            "Index tensor must have the same number of dimensions as src tensor");
    for (int64_t i = 0; i < self.rank(); ++i) fits &= index.dim(i) <= source.dim(i);
    x.check(fits, "Expected index ", index_arg.dims(), " to be no larger than self ",
            self_arg.dims(), " apart from dimension ", dim, " and to be no larger size than src ",
            src->dims());
    source = leading(x, source, index.dims());
  } else {
    x.check(fits, "Expected index ", index_arg.dims(), " to be no larger than self ",
            self_arg.dims(), " apart from dimension ", dim);
    source = x.broadcast(x.scalar(*value, self.dtype()), index.dims());
  }
  x.check_index(self.dim(dim) > 0, "index 0 is out of bounds for dimension ", dim, " with size 0");
  const Dims batch = other_dims(self.rank(), dim);
  const Place at{x.checked_index(index, self.dim(dim), dim, false),
                 {.update_window_dims = {},
                  .inserted_window_dims = {dim},
                  .scatter_dims_to_operand_dims = {dim},
                  .input_batching_dims = batch,
                  .scatter_indices_batching_dims = batch,
                  .index_vector_dim = self.rank()}};
  const Value block = update(leading(x, self, leading_block(self, index, dim)), at, source);
  return x.b.reshape(put_block(x, self, block, Dims(static_cast<size_t>(self.rank()), 0)),
                     self_arg.dims());
}

Op scatter_op(Context& x, const std::string& reduce) {
  x.check(reduce == "add" || reduce == "multiply",
          "reduce argument must be either add or multiply.");
  return reduce == "add" ? Op::kAdd : Op::kMultiply;
}

void register_scatter(ops::Registry& r) {
  r.op("aten::gather", [](Context& x, Value self, int64_t dim, Value index, bool) {
    return gather(x, self, dim, index);
  });
  r.op("aten::scatter.src", [](Context& x, Value self, int64_t dim, Value index, Value src) {
    return scatter(x, self, dim, index, src, std::nullopt,
                   [&](Value block, const Place& at, Value s) { return write(x, block, at, s); });
  });
  r.op("aten::scatter.value", [](Context& x, Value self, int64_t dim, Value index, Scalar value) {
    return scatter(x, self, dim, index, std::nullopt, value,
                   [&](Value block, const Place& at, Value s) { return write(x, block, at, s); });
  });
  r.op("aten::scatter.reduce",
       [](Context& x, Value self, int64_t dim, Value index, Value src, std::string reduce) {
         const Op op = scatter_op(x, reduce);
         return scatter(
             x, self, dim, index, src, std::nullopt,
             [&](Value block, const Place& at, Value s) { return combine(x, block, at, s, op); });
       });
  r.op("aten::scatter.value_reduce",
       [](Context& x, Value self, int64_t dim, Value index, Scalar value, std::string reduce) {
         const Op op = scatter_op(x, reduce);
         return scatter(
             x, self, dim, index, std::nullopt, value,
             [&](Value block, const Place& at, Value s) { return combine(x, block, at, s, op); });
       });
  r.op("aten::scatter_add", [](Context& x, Value self, int64_t dim, Value index, Value src) {
    return scatter(
        x, self, dim, index, src, std::nullopt,
        [&](Value block, const Place& at, Value s) { return combine(x, block, at, s, Op::kAdd); });
  });
  r.op("aten::scatter_reduce.two", [](Context& x, Value self, int64_t dim, Value index, Value src,
                                      std::string reduce, bool include_self) {
    const Opt<Reduction> how = find_reduction(reduce);
    x.check(how.has_value(), "reduce argument must be either sum, prod, mean, amax or amin, got ",
            reduce);
    const DType t = self.dtype();
    const bool ordered = *how == Reduction::kMax || *how == Reduction::kMin;
    x.check_supported(
        !(hlo::is_bool(t) && *how == Reduction::kMean) && !(hlo::is_complex(t) && ordered),
        "\"scatter_gather_tensor_cpu_reduce_", reduce, "\" not implemented for '",
        scalar_type_name(t), "'");
    return scatter(x, self, dim, index, src, std::nullopt,
                   [&](Value block, const Place& at, Value s) {
                     return reduce_into(x, block, at, s, *how, include_self);
                   });
  });
}

// ---- take, put and masks: row-major positions.

Value flatten(Context& x, Value v) { return x.b.reshape(v, {v.numel()}); }

Value take(Context& x, Value self, Value index) {
  x.check(index.dtype() == DType::kI64, "take(): Expected a long tensor for index, but got ",
          scalar_type_name(index.dtype()));
  x.check_index(self.numel() != 0 || index.numel() == 0,
                "take(): tried to take from an empty tensor");
  const Value at = x.checked_index(flatten(x, index), self.numel(), 0);
  return x.b.reshape(take_rows(x, flatten(x, self), 0, at), index.dims());
}

Value put(Context& x, Value self, Value index, Value source, bool accumulate) {
  x.check(index.dtype() == DType::kI64, "put_(): Expected a long tensor for index, but got ",
          scalar_type_name(index.dtype()));
  x.check(self.dtype() == source.dtype(),
          "put_(): self and source expected to have the same dtype, but got self.dtype = ",
          scalar_type_name(self.dtype()), " and source.dtype = ", scalar_type_name(source.dtype()));
  x.check_index(source.numel() == index.numel(),
                "put_(): Expected source and index to have the same number of elements, but got "
                "source.numel() = ",
                source.numel(), ", index.numel() = ", index.numel());
  x.check_index(self.numel() != 0 || index.numel() == 0,
                "put_(): Tried to put elements into an empty tensor");
  const Place at = along_dim(1, 0, x.checked_index(flatten(x, index), self.numel(), 0));
  const Value v = flatten(x, self), s = flatten(x, source);
  return x.b.reshape(accumulate ? combine(x, v, at, s, Op::kAdd) : write(x, v, at, s), self.dims());
}

Value masked_scatter(Context& x, Value self, Value mask, Value source) {
  x.check(self.dtype() == source.dtype(),
          "masked_scatter: expected self and source to have same dtypes but got",
          scalar_type_name(self.dtype()), " and ", scalar_type_name(source.dtype()));
  x.check(hlo::is_bool(mask.dtype()),
          "masked_scatter_ only supports boolean masks, but got mask with dtype ",
          scalar_type_name(mask.dtype()));
  const Dims dims = x.broadcast_dims({self.dims(), mask.dims()});
  const int64_t n = hlo::product(dims);
  if (n == 0) return x.broadcast(self, dims);
  const DType t = position_type(n);
  const Value where = flatten(x, x.broadcast(mask, dims));
  const Value ranks = cumulative(x, x.b.convert(where, t), 0, Op::kAdd);
  if (source.numel() < n) {
    x.assert_none(x.b.compare(Cmp::kGt, x.b.slice_dim(ranks, 0, n - 1, n),
                              x.b.splat({t, {1}}, source.numel())),
                  "Number of elements of source < number of ones in mask");
  }
  const Value base = flatten(x, x.broadcast(self, dims));
  if (source.numel() == 0) return x.b.reshape(base, dims);
  const Value at = x.b.clamp(x.constant(t, 0), x.b.sub(ranks, x.like(ranks, 1)),
                             x.constant(t, static_cast<double>(source.numel() - 1)));
  const Value picked = take_rows(x, flatten(x, source), 0, at);
  return x.b.reshape(x.b.select(where, picked, base), dims);
}

// Elements of `v` where `mask` is true, in order, filled up with zeros to `size`.
Value selected(Context& x, Value v, Value mask, int64_t size) {
  const int64_t n = v.numel();
  if (n == 0 || size == 0) return x.zeros({v.dtype(), {size}});
  const Value at = true_positions(x, mask, size);
  const Value real = x.b.compare(Cmp::kLt, at, x.b.splat(at.type(), n));
  const Value in_range = x.b.minimum(at, x.b.splat(at.type(), n - 1));
  const Value picked = take_rows(x, flatten(x, v), 0, in_range);
  return x.b.select(real, picked, x.like(picked, 0));
}

// Coordinates of the true elements, one row a dim, filled up with `fill` to `size` columns.
Value coordinates(Context& x, Value mask, int64_t size, int64_t fill) {
  const int64_t rank = mask.rank(), n = mask.numel();
  const Type result{DType::kI64, {rank, size}};
  if (rank == 0 || n == 0 || size == 0) return x.b.splat(result, fill);
  const Value at = true_positions(x, mask, size);
  Values rows;
  for (const Value& c : unravel(x, at, mask.dims())) rows.push_back(x.unsqueeze(c, 0));
  const Value all = x.b.convert(x.b.concatenate(rows, 0), DType::kI64);
  const Value real = x.b.compare(Cmp::kLt, at, x.b.splat(at.type(), n));
  return x.b.select(x.broadcast(x.unsqueeze(real, 0), result.dims), all, x.b.splat(result, fill));
}

void register_masks(ops::Registry& r) {
  r.op("aten::take", take);
  r.op("aten::put", put).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::masked_scatter", masked_scatter);
  // The source's gradient: the selected elements, then zeros.
  r.op("aten::masked_scatter_backward", [](Context& x, Value grad_output, Value mask, Dims sizes) {
    const Value m = x.broadcast(x.convert(mask, DType::kBool), grad_output.dims());
    return x.b.reshape(selected(x, grad_output, m, hlo::product(sizes)), sizes);
  });
  // (Tensor self, Tensor mask) -> (Tensor elements [n], Tensor count int64 []), n = elements of
  // both broadcast together: the first `count` are the result of aten::masked_select.
  r.op("tpu::masked_select_padded", [](Context& x, Value self, Value mask) {
    x.check(hlo::is_bool(mask.dtype()), "masked_select: expected BoolTensor for mask");
    const Dims dims = x.broadcast_dims({self.dims(), mask.dims()});
    const Value m = x.broadcast(mask, dims);
    return std::array{selected(x, x.broadcast(self, dims), m, m.numel()), count_true(x, m)};
  });
  // (Tensor self) -> (Tensor coordinates int64 [rank, numel], Tensor count int64 []): row d holds
  // the coordinates along dim d; the first `count` columns, transposed, are the result of
  // aten::nonzero (whose strides on CPU are those of a transposed tensor, too).
  r.op("tpu::nonzero_padded", [](Context& x, Value self) {
    const Value mask = x.convert(self, DType::kBool);
    return std::array{coordinates(x, mask, mask.numel(), 0), count_true(x, mask)};
  });
  r.op("aten::nonzero_static", [](Context& x, Value self, int64_t size, int64_t fill_value) {
    x.check(size >= 0, "nonzero_static: 'size' must be an non-negative integer");
    const Value c = coordinates(x, x.convert(self, DType::kBool), size, fill_value);
    return x.b.transpose(c, {1, 0});
  });
  // Needs output_size: without it the size depends on data, and bridge/ reads the sum of `repeats`.
  r.op("aten::repeat_interleave.Tensor", [](Context& x, Value repeats, Opt<int64_t> output_size) {
    x.check(repeats.rank() == 1, "repeat_interleave only accept 1D vector as repeat");
    x.check_supported(is_index32_64(repeats), "\"repeat_interleave_cpu\" not implemented for '",
                      scalar_type_name(repeats.dtype()), "'");
    x.check_supported(output_size.has_value(),
                      "the size of the result depends on data; pass output_size");
    const int64_t n = repeats.dim(0), size = *output_size;
    const DType t = repeats.dtype();
    if (n == 0) {
      x.check(size == 0, "allocated size does not match required size");
      return x.zeros({t, {0}});
    }
    const Value ends = cumulative(x, repeats, 0, Op::kAdd);
    x.assert_none(x.b.compare(Cmp::kLt, repeats, x.like(repeats, 0)),
                  "repeats can not be negative");
    x.assert_none(
        x.b.compare(Cmp::kNe, x.b.slice_dim(ends, 0, n - 1, n), x.b.splat({t, {1}}, size)),
        "allocated size does not match required size");
    if (size == 0) return x.zeros({t, {0}});
    // One step up where each element's run ends; steps at or beyond the end fall out of range.
    const DType p = position_type(std::max(n, size));
    const Value steps =
        combine(x, x.zeros({p, {size}}), along_dim(1, 0, ends), x.b.splat({p, {n}}, 1), Op::kAdd);
    return x.b.convert(cumulative(x, steps, 0, Op::kAdd), t);
  });
}

// ---- Gradients and functional forms of views: pad, update or select instead of writing through a
// view.

struct Slice {
  int64_t dim, start, length, step;
};

Slice resolve_slice(Context& x, const Dims& dims, int64_t dim_arg, Opt<int64_t> start,
                    Opt<int64_t> end, int64_t step) {
  x.check(!dims.empty(), "slice() cannot be applied to a 0-dim tensor.");
  x.check(step > 0, "slice step must be positive");
  const int64_t dim = x.axis(dim_arg, static_cast<int64_t>(dims.size()));
  const int64_t n = dims[static_cast<size_t>(dim)];
  const auto place = [n](int64_t v) { return std::clamp<int64_t>(v < 0 ? v + n : v, 0, n); };
  const int64_t from = place(start.value_or(0)), to = std::max(from, place(end.value_or(n)));
  return {dim, from, (to - from + step - 1) / step, step};
}

int64_t resolve_select(Context& x, const Dims& dims, int64_t dim, int64_t index) {
  const int64_t n = dims[static_cast<size_t>(dim)];
  x.check_index(index >= -n && index < n, "select(): index ", index,
                " out of range for tensor of size ", dims, " at dimension ", dim);
  return index < 0 ? index + n : index;
}

Value check_source(Context& x, Value self, Value src, const Dims& slice) {
  x.check(src.dims() == slice,
          "expected src to have a size equal to the slice of self. src size = ", src.dims(),
          ", slice size = ", slice);
  return x.convert(src, self.dtype());
}

// v's elements at start, start + step, ... along a dim of the given size, zeros elsewhere.
Value spread(Context& x, Value v, const Slice& s, int64_t size) {
  if (v.dim(s.dim) == 0) {
    Dims d = v.dims();
    d[static_cast<size_t>(s.dim)] = size;
    return x.zeros({v.dtype(), d});
  }
  Dims low(static_cast<size_t>(v.rank()), 0), high = low, interior = low;
  low[static_cast<size_t>(s.dim)] = s.start;
  interior[static_cast<size_t>(s.dim)] = s.step - 1;
  high[static_cast<size_t>(s.dim)] = size - s.start - (s.length - 1) * s.step - 1;
  return x.b.pad(v, x.constant(v.dtype(), 0), low, high, interior);
}

struct Diagonal {
  int64_t dim1, dim2;
  Dims shape;  // of the diagonal: the other dims, then its length
};

Diagonal resolve_diagonal(Context& x, const Dims& dims, int64_t offset, int64_t dim1,
                          int64_t dim2) {
  const auto rank = static_cast<int64_t>(dims.size());
  Diagonal d{x.axis(dim1, rank), x.axis(dim2, rank), {}};
  x.check(d.dim1 != d.dim2, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
  for (int64_t i = 0; i < rank; ++i) {
    if (i != d.dim1 && i != d.dim2) d.shape.push_back(dims[static_cast<size_t>(i)]);
  }
  const int64_t rows = dims[static_cast<size_t>(d.dim1)],
                columns = dims[static_cast<size_t>(d.dim2)];
  d.shape.push_back(std::max<int64_t>(
      0, offset >= 0 ? std::min(rows, columns - offset) : std::min(rows + offset, columns)));
  return d;
}

void register_view_gradients(ops::Registry& r) {
  r.op("aten::select_backward",
       [](Context& x, Value grad_output, Dims input_sizes, int64_t dim_arg, int64_t index) {
         const int64_t dim = x.axis(dim_arg, static_cast<int64_t>(input_sizes.size()));
         const int64_t at = resolve_select(x, input_sizes, dim, index);
         return spread(x, x.unsqueeze(grad_output, dim), {dim, at, 1, 1},
                       input_sizes[static_cast<size_t>(dim)]);
       });
  r.op("aten::slice_backward", [](Context& x, Value grad_output, Dims input_sizes, int64_t dim,
                                  int64_t start, int64_t end, int64_t step) {
    const Slice s = resolve_slice(x, input_sizes, dim, start, end, step);
    Dims shape = input_sizes;
    shape[static_cast<size_t>(s.dim)] = s.length;
    return spread(x, x.broadcast(grad_output, shape), s, input_sizes[static_cast<size_t>(s.dim)]);
  });
  r.op("aten::diagonal_backward", [](Context& x, Value grad_output, Dims input_sizes,
                                     int64_t offset, int64_t dim1, int64_t dim2) {
    const Diagonal d = resolve_diagonal(x, input_sizes, offset, dim1, dim2);
    if (d.shape.back() == 0) return x.zeros({grad_output.dtype(), input_sizes});
    const auto [values, on] =
        spread_diagonal(x, x.broadcast(grad_output, d.shape), input_sizes, offset, d.dim1, d.dim2);
    return x.b.select(on, values, x.like(values, 0));
  });
  r.op("aten::select_scatter", [](Context& x, Value self, Value src, int64_t dim_arg,
                                  int64_t index) {
     x.check_index(self.rank() > 0, "select() cannot be applied to a 0-dim tensor.");
     const int64_t dim = x.axis(dim_arg, self);
     Dims at(static_cast<size_t>(self.rank()), 0), slice = self.dims();
     at[static_cast<size_t>(dim)] = resolve_select(x, self.dims(), dim, index);
     slice.erase(slice.begin() + dim);
     return put_block(x, self, x.unsqueeze(check_source(x, self, src, slice), dim), at);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::slice_scatter", [](Context& x, Value self, Value src, int64_t dim, Opt<int64_t> start,
                                 Opt<int64_t> end, int64_t step) {
     const Slice s = resolve_slice(x, self.dims(), dim, start, end, step);
     Dims at(static_cast<size_t>(self.rank()), 0), slice = self.dims();
     at[static_cast<size_t>(s.dim)] = s.start;
     slice[static_cast<size_t>(s.dim)] = s.length;
     const Value from = check_source(x, self, src, slice);
     if (s.step == 1 || s.length <= 1) return put_block(x, self, from, at);
     const Value marks = spread(x, x.b.splat({DType::kBool, {s.length}}, 1),
                                {0, s.start, s.length, s.step}, self.dim(s.dim));
     return x.b.select(x.b.broadcast_in_dim(marks, self.dims(), {s.dim}),
                       spread(x, from, s, self.dim(s.dim)), self);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::diagonal_scatter", [](Context& x, Value self, Value src, int64_t offset, int64_t dim1,
                                    int64_t dim2) {
     const Diagonal d = resolve_diagonal(x, self.dims(), offset, dim1, dim2);
     const Value from = check_source(x, self, src, d.shape);
     if (d.shape.back() == 0) return self;
     const auto [values, on] = spread_diagonal(x, from, self.dims(), offset, d.dim1, d.dim2);
     return x.b.select(on, values, self);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::diag_embed", [](Context& x, Value self, int64_t offset, int64_t dim1, int64_t dim2) {
    Dims dims = self.dims();
    x.check(!dims.empty(), "diag_embed needs at least one dimension");
    const int64_t n = dims.back() + std::abs(offset);
    const int64_t rank = self.rank() + 1;
    const int64_t d1 = x.axis(dim1, rank), d2 = x.axis(dim2, rank);
    x.check(d1 != d2, "diagonal dimensions cannot be identical ", dim1, ", ", dim2);
    dims.pop_back();
    dims.insert(dims.begin() + std::min(d1, d2), n);
    dims.insert(dims.begin() + std::max(d1, d2), n);
    if (self.numel() == 0) return x.zeros({self.dtype(), dims});
    const auto [values, on] = spread_diagonal(x, self, dims, offset, d1, d2);
    return x.b.select(on, values, x.like(values, 0));
  });
}

}  // namespace

void register_index(ops::Registry& r) {
  r.op("aten::index.Tensor",
       [](Context& x, Value self, OptValues indices) { return index(x, self, indices); });
  r.op("aten::index_put", [](Context& x, Value self, OptValues indices, Value values,
                             bool accumulate) {
     return index_put(x, self, indices, values, accumulate);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::_index_put_impl", [](Context& x, Value self, OptValues indices, Value values,
                                   bool accumulate, bool) {
     return index_put(x, self, indices, values, accumulate);
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::index_select", index_select);
  r.op("aten::index_add", index_add).fold("alpha", 1);
  r.op("aten::index_copy", index_copy);
  r.op("aten::index_fill.int_Scalar", [](Context& x, Value self, int64_t dim, Value index,
                                         Scalar value) {
     x.check(value.kind != ops::NumberKind::kComplex || hlo::is_complex(self.dtype()),
             "index_fill_(): Converting complex Scalar to non-complex type is not supported");
     return index_fill(x, self, dim, index, x.scalar(value, self.dtype()));
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::index_fill.int_Tensor", [](Context& x, Value self, int64_t dim, Value index,
                                         Value value) {
     x.check(value.rank() == 0,
             "index_fill_ only supports a 0-dimensional value tensor, but got tensor with ",
             value.rank(), " dimension(s).");
     return index_fill(x, self, dim, index, x.convert(value, self.dtype()));
   }).layout(ops::LayoutRule::kLikeSelf);
  r.op("aten::index_reduce", [](Context& x, Value self, int64_t dim, Value index, Value source,
                                std::string reduce, bool include_self) {
    return index_reduce(x, self, dim, index, source, reduce, include_self);
  });
  register_scatter(r);
  register_masks(r);
  register_view_gradients(r);
}

}  // namespace tpu::aten
