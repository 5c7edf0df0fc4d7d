// Unique values. How many there are depends on the data: our own ops give results of the largest
// possible size and the number (rank-0 int64) of leading entries that count; bridge/ cuts them.
// What is not asked for is empty, as PyTorch has it.
//   tpu::unique_padded(Tensor self, bool return_inverse, bool return_counts)
//       -> (values[numel], inverse, counts[numel], number)       also without sorting:
//       unique_consecutive_padded
//   tpu::unique_dim_padded(Tensor self, int dim) -> (values, inverse[size], counts[size], number),
//   whose
//       values have self's dims; also unique_dim_consecutive_padded
#include "aten/scan.h"
#include "aten/sort.h"

namespace tpu::aten {

using namespace ops;

namespace {

// 1-D scatter that overwrites; positions out of range are skipped.
Value put(Context& x, Value into, Value positions, Value updates) {
  hlo::ScatterDims d{.update_window_dims = {},
                     .inserted_window_dims = {0},
                     .scatter_dims_to_operand_dims = {0},
                     .index_vector_dim = 1};
  for (int64_t i = 1; i < into.rank(); ++i) d.update_window_dims.push_back(i);
  return x.b.scatter(into, positions, updates, d, std::nullopt, false, true);
}

// Elements are already in order; those of one group are neighbours.
struct Runs {
  Value rank;    // [n] int32: number of the element's group
  Value target;  // [n] int32: the same for a group's first element, n for the others
  Value number;  // rank-0 int64
};

// starts: [n] bool, true where an element differs from the one before it; the first is true.
Runs runs_of(Context& x, Value starts) {
  const int64_t n = starts.dim(0);
  const Value ones = x.b.convert(starts, DType::kI32);
  const Value rank = x.b.sub(cumulative(x, ones, 0, Op::kAdd), x.like(ones, 1));
  const Value target = x.b.select(starts, rank, x.like(rank, static_cast<double>(n)));
  const Value last = x.b.reshape(x.b.slice_dim(rank, 0, n - 1, n), {});
  return {rank, target, x.b.convert(x.b.add(last, x.like(last, 1)), DType::kI64)};
}

// Sizes of the groups: the next group's start less its own.
Value counts_of(Context& x, const Runs& runs) {
  const int64_t n = runs.rank.dim(0);
  const Value end = x.like(runs.rank, static_cast<double>(n));
  const Value starts = put(x, end, runs.target, x.b.iota({DType::kI32, {n}}, 0));
  const Value next =
      x.b.concatenate({x.b.slice_dim(starts, 0, 1, n), x.b.slice_dim(end, 0, 0, 1)}, 0);
  return x.b.convert(x.b.sub(next, starts), DType::kI64);
}

Value inverse_of(Context& x, const Runs& runs, const Opt<Value>& positions) {
  const Value rank = positions ? put(x, runs.rank, *positions, runs.rank) : runs.rank;
  return x.b.convert(rank, DType::kI64);
}

Value not_asked(Context& x) { return x.zeros({DType::kI64, {0}}); }

Value first_is_true(Context& x, Value differs) {
  return x.b.concatenate({x.b.splat({DType::kBool, {1}}, 1), differs}, 0);
}

std::array<Value, 4> unique_flat(Context& x, Value self, bool sorted, bool return_inverse,
                                 bool return_counts) {
  x.check_supported(!hlo::is_complex(self.dtype()), "\"unique\" not implemented for '",
                    scalar_type_name(self.dtype()), "'");
  const int64_t n = self.numel();
  Value values = x.b.reshape(self, {n});
  if (n == 0) {
    return {values, return_inverse ? x.zeros({DType::kI64, self.dims()}) : not_asked(x),
            not_asked(x), x.zeros({DType::kI64, {}})};
  }
  Opt<Value> positions;
  if (sorted) {
    const auto [ordered, from] = sort_along(x, values, 0);
    values = ordered;
    positions = from;
  }
  const Value differs =
      x.b.compare(Cmp::kNe, x.b.slice_dim(values, 0, 1, n), x.b.slice_dim(values, 0, 0, n - 1));
  const Runs runs = runs_of(x, first_is_true(x, differs));
  return {put(x, values, runs.target, values),
          return_inverse ? x.b.reshape(inverse_of(x, runs, positions), self.dims()) : not_asked(x),
          return_counts ? counts_of(x, runs) : not_asked(x), runs.number};
}

// Order of the rows of a [rows, columns] matrix, compared from the first column on: a stable sort
// by each column, the last one first.
Value row_order(Context& x, Value rows) {
  hlo::Builder& b = x.b;
  const int64_t n = rows.dim(0), columns = rows.dim(1);
  const Value by_column = b.transpose(rows, {1, 0});
  const auto int32 = [&](int64_t i) { return b.constant(DType::kI32, i); };
  const Values r = b.while_loop(
      {int32(columns - 1), b.iota({DType::kI32, {n}}, 0), by_column},
      [&](const Values& a) -> Values { return {b.compare(Cmp::kGe, a[0], int32(0))}; },
      [&](const Values& a) -> Values {
        const Value column = b.reshape(b.dynamic_slice(a[2], {a[0], int32(0)}, {1, n}), {n});
        const Value order = sort_along(x, take_along(x, column, a[1], 0), 0)[1];
        return {b.sub(a[0], int32(1)), take_along(x, a[1], order, 0), a[2]};
      });
  return r[1];
}

std::array<Value, 4> unique_rows(Context& x, Value self, int64_t dim, bool sorted) {
  x.check_supported(!hlo::is_complex(self.dtype()), "\"unique_dim\" not implemented for '",
                    scalar_type_name(self.dtype()), "'");
  const int64_t d = x.axis(dim, self);
  x.check(self.rank() > 0, "unique_dim: expected a tensor with at least one dimension");
  const int64_t n = self.dim(d);
  int64_t empty = 0;
  for (const int64_t size : self.dims()) empty += size == 0;
  if (n == 0) {
    x.check(empty == 1,
            "Number of zero sized dimensions is more than one, so unique cannot be "
            "applied ");
    return {self, not_asked(x), not_asked(x), x.zeros({DType::kI64, {}})};
  }
  x.check(empty == 0,
          "There are 0 sized dimensions, and they aren't selected, so unique cannot be applied");
  Dims to_front = {d}, back;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != d) to_front.push_back(i);
    back.push_back(i == d ? 0 : i < d ? i + 1 : i);
  }
  const Value front = x.b.transpose(self, to_front);
  Value rows = x.b.reshape(front, {n, self.numel() / n});
  if (hlo::is_bool(rows.dtype())) rows = x.b.convert(rows, DType::kU8);
  Opt<Value> order;
  if (sorted) {
    order = row_order(x, rows);
    rows = x.b.gather(rows, *order,
                      {.offset_dims = {1},
                       .collapsed_slice_dims = {0},
                       .start_index_map = {0},
                       .index_vector_dim = 1},
                      {1, rows.dim(1)});
  }
  const Value differs =
      x.b.compare(Cmp::kNe, x.b.slice_dim(rows, 0, 1, n), x.b.slice_dim(rows, 0, 0, n - 1));
  const Runs runs = runs_of(x, first_is_true(x, x.any(differs, {1})));
  const Value packed = x.convert(put(x, rows, runs.target, rows), self.dtype());
  const Value values = x.b.transpose(x.b.reshape(packed, front.dims()), back);
  return {values, inverse_of(x, runs, order), counts_of(x, runs), runs.number};
}

}  // namespace

void register_unique(Registry& r) {
  r.op("tpu::unique_padded", [](Context& x, Value self, bool return_inverse, bool return_counts) {
    return unique_flat(x, self, true, return_inverse, return_counts);
  });
  r.op("tpu::unique_consecutive_padded",
       [](Context& x, Value self, bool return_inverse, bool return_counts) {
         return unique_flat(x, self, false, return_inverse, return_counts);
       });
  r.op("tpu::unique_dim_padded",
       [](Context& x, Value self, int64_t dim) { return unique_rows(x, self, dim, true); });
  r.op("tpu::unique_dim_consecutive_padded",
       [](Context& x, Value self, int64_t dim) { return unique_rows(x, self, dim, false); });
}

}  // namespace tpu::aten
