// gather, scatter and their reductions: one index for each element, along one dim.
#include "aten/scatter.h"

#include <string>

namespace tpu::aten {

using ops::Cmp;
using ops::Op;
using ops::Scalar;
using ops::scalar_type_name;

bool is_index_type(Value v) { return v.dtype() == DType::kI32 || v.dtype() == DType::kI64; }

Value at_least_1d(Context& x, Value v) { return v.rank() == 0 ? x.b.reshape(v, {1}) : v; }

Dims other_dims(int64_t rank, int64_t dim) {
  Dims out;
  for (int64_t i = 0; i < rank; ++i) {
    if (i != dim) out.push_back(i);
  }
  return out;
}

Place along_dim(int64_t rank, int64_t dim, Value index) {
  return {index,
          {.update_window_dims = other_dims(rank, dim),
           .inserted_window_dims = {dim},
           .scatter_dims_to_operand_dims = {dim},
           .index_vector_dim = 1}};
}

Op combiner(Op op, DType t) {
  if (!hlo::is_bool(t)) return op;
  return op == Op::kAdd || op == Op::kMaximum ? Op::kOr : Op::kAnd;
}

Value write(Context& x, Value base, const Place& at, Value updates) {
  if (updates.numel() == 0 || base.numel() == 0) return base;
  return x.b.scatter(base, at.indices, updates, at.dims, std::nullopt);
}

Value combine(Context& x, Value base, const Place& at, Value updates, Op op) {
  if (updates.numel() == 0 || base.numel() == 0) return base;
  const Value r = x.b.scatter(x.to_compute(base), at.indices, x.to_compute(updates), at.dims,
                              combiner(op, base.dtype()));
  return x.convert(r, base.dtype());
}

namespace {

struct ReductionName {
  const char* name;
  Reduction reduction;
};
constexpr ReductionName kReductions[] = {{"sum", Reduction::kSum},
                                         {"prod", Reduction::kProd},
                                         {"mean", Reduction::kMean},
                                         {"amax", Reduction::kMax},
                                         {"amin", Reduction::kMin}};

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

}  // namespace

Opt<Reduction> find_reduction(const std::string& name) {
  for (const auto& r : kReductions) {
    if (name == r.name) return r.reduction;
  }
  return std::nullopt;
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

namespace {

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

// The CPU raises no IndexError for gather and scatter.
ops::BadIndex bad_position(Context& x, int64_t dim, int64_t size) {
  x.check(size > 0, "index 0 is out of bounds for dimension ", dim, " with size 0");
  return ops::out_of_bounds(dim, size, ErrorKind::kInvalid);
}

Value gather(Context& x, Value self_arg, int64_t dim_arg, Value index_arg) {
  const int64_t dim = x.axis(dim_arg, self_arg);
  const Dims& result = index_arg.dims();
  if (index_arg.numel() == 0) return x.zeros({self_arg.dtype(), result});
  x.check(is_index_type(index_arg), "gather(): Expected dtype int32/int64 for index");
  const Value self = at_least_1d(x, self_arg), index = at_least_1d(x, index_arg);
  x.check(self.rank() == index.rank(),
          "Index tensor must have the same number of dimensions as input tensor");
  for (int64_t i = 0; i < self.rank(); ++i) {
    x.check(i == dim || index.dim(i) <= self.dim(i), "Size does not match at dimension ", i,
            " expected index ", index_arg.dims(), " to be no larger than self ", self_arg.dims(),
            " apart from dimension ", dim);
  }
  const int64_t size = self.dim(dim);
  const Value at = x.checked_index(index, size, /*wrap=*/false, bad_position(x, dim, size));
  const Dims batch = other_dims(self.rank(), dim);
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

// `update(block, place, source)` gives the new leading block. Without `src` the source is `value`.
template <class Update>
Value scatter(Context& x, Value self_arg, int64_t dim_arg, Value index_arg, const Opt<Value>& src,
              const Opt<Scalar>& value, Update update) {
  const int64_t dim = x.axis(dim_arg, self_arg);
  if (index_arg.numel() != 0) {
    x.check(is_index_type(index_arg), "scatter(): Expected dtype int32/int64 for index");
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
  const Dims batch = other_dims(self.rank(), dim);
  const int64_t size = self.dim(dim);
  const Place at{x.checked_place(index, size, /*wrap=*/false, bad_position(x, dim, size)),
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

}  // namespace

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

}  // namespace tpu::aten
