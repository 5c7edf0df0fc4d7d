// Reading and writing by index tensors: x[i, :, j], and whole slices along one dim. Every range
// check is a run-time one (Context::checked_index); what is known from shapes is checked here, with
// the texts of PyTorch's CPU kernels.
#include <algorithm>
#include <string>

#include "aten/all.h"
#include "aten/scatter.h"

namespace tpu::aten {

using ops::Op;
using ops::Scalar;
using ops::scalar_type_name;

namespace {

using OptValues = std::vector<Opt<Value>>;

bool is_mask(Value v) { return v.dtype() == DType::kBool || v.dtype() == DType::kU8; }

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
Indexing plan_indexing(Context& x, Value self, const OptValues& indices, bool written) {
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
    x.check_index(hlo::is_integer(index->dtype()) && is_index_type(*index),
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
    const Value i = *indices[static_cast<size_t>(d)];
    parts.push_back(written ? x.checked_place(i, self.dim(d), d)
                            : x.checked_index(i, self.dim(d), d));
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
  const Indexing p = plan_indexing(x, self, indices, false);
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
  const Indexing p = plan_indexing(x, self, indices, true);
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

ops::BadIndex bad_slice(int64_t size) {
  return {ErrorKind::kIndex, cat("index out of range in self: {} is not in [0, ", size, ")")};
}

Value index_select(Context& x, Value self, int64_t dim_arg, Value index) {
  const int64_t dim = x.axis(dim_arg, self);
  x.check_index(index.rank() <= 1, "index_select(): Index is supposed to be a vector");
  x.check(is_index_type(index), "index_select(): Expected dtype int32 or int64 for index");
  x.check(self.rank() > 0 || index.numel() == 1,
          "index_select(): Index to scalar can have only 1 value, got ", index.numel(),
          " value(s)");
  const Value v = at_least_1d(x, self);
  x.check(v.dim(dim) > 0 || index.numel() == 0,
          "index_select(): self indexing axis dim should be positive");
  const int64_t size = v.dim(dim);
  const Value at = x.checked_index(at_least_1d(x, index), size, /*wrap=*/false, bad_slice(size));
  const Value r = take_rows(x, v, dim, at);
  return self.rank() == 0 ? x.b.reshape(r, {}) : r;
}

// What index_add and index_reduce demand; gives {self, index, source} with at least one dim.
std::array<Value, 3> slices_along(Context& x, const char* name, Value self, int64_t dim,
                                  Value index, Value source) {
  x.check(is_index_type(index), name,
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
  return {v, at_least_1d(x, index), s};
}

Value index_add(Context& x, Value self, int64_t dim_arg, Value index, Value source, Scalar alpha) {
  const int64_t dim = x.axis(dim_arg, self);
  const auto [v, i, s] = slices_along(x, "index_add_()", self, dim, index, source);
  // Here the CPU scatters, and raises scatter's error.
  const bool scatters = x.is(alpha, 1) && self.rank() > 1 && (dim == 0 || dim == self.rank() - 1);
  const int64_t size = v.dim(dim);
  const Value at = x.checked_place(
      i, size, /*wrap=*/false,
      scatters ? ops::out_of_bounds(dim, size, ErrorKind::kInvalid) : bad_slice(size));
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
  const Value at =
      x.checked_place(at_least_1d(x, index), v.dim(dim), /*wrap=*/false,
                      {ErrorKind::kIndex, cat("index_copy_(): index {} is out of bounds for "
                                              "dimension ",
                                              dim, " with size ", v.dim(dim))});
  return x.b.reshape(write(x, v, along_dim(v.rank(), dim, at), s), self.dims());
}

// One value for all: marks the positions, then selects, which is cheaper than scattering slices.
Value index_fill(Context& x, Value self, int64_t dim_arg, Value index, Value value) {
  const int64_t dim = x.axis(dim_arg, self);
  x.check_index(index.dtype() == DType::kI64, "index_fill_(): Expected dtype int64 for index.");
  x.check(index.rank() <= 1, "Index has to be a vector/scalar");
  const Value v = at_least_1d(x, self);
  const int64_t size = v.dim(dim);
  const Value at = x.checked_place(at_least_1d(x, index), size, dim);
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
  const auto [v, i, s] = slices_along(x, "index_reduce_()", self, dim, index, source);
  const int64_t size = v.dim(dim);
  const Value at = x.checked_place(i, size, /*wrap=*/false, bad_slice(size));
  const bool ordered = *r == Reduction::kMax || *r == Reduction::kMin;
  const DType t = self.dtype();
  x.check_supported(!(hlo::is_complex(t) && ordered) &&
                        (include_self || !(hlo::is_bool(t) || hlo::is_complex(t))),
                    "\"index_reduce\" not implemented for '", scalar_type_name(t), "'");
  return x.b.reshape(reduce_into(x, v, along_dim(v.rank(), dim, at), s, *r, include_self),
                     self.dims());
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
  register_masked(r);
  register_view_gradients(r);
}

}  // namespace tpu::aten
