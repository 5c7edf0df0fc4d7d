// Rows of many lengths, one after the other: jagged tensors, values [total, ...] with offsets
// [batch + 1], against dense [batch, length, ...]; and the offsets of sparse rows (CSR) against the
// row of each element (COO).
#include <algorithm>

#include "aten/reduce.h"
#include "aten/scatter.h"

namespace tpu::aten {

using namespace ops;

namespace {

Value offsets_of(Context& x, const char* name, const Values& offsets, int64_t batch_of_dense) {
  x.check(offsets.size() == 1, name, ": only a single jagged dim is supported, got ",
          offsets.size(), " offsets");
  const Value o = offsets[0];
  x.check(o.rank() == 1 && o.dim(0) > 0 && is_index_type(o), name,
          ": offsets must be a vector of int32 or int64 with at least one element, got ",
          hlo::torch_name(o.dtype()), " ", o.dims());
  x.check(batch_of_dense < 0 || o.dim(0) == batch_of_dense + 1, name, ": ", o.dim(0),
          " offsets do not fit a dense tensor of ", batch_of_dense, " rows");
  return x.convert(o, DType::kI64);
}

// How many rows end at or before each of `total` elements: [total].
Value row_of_each(Context& x, Value offsets, int64_t total) {
  auto& b = x.b;
  const int64_t count = offsets.dim(0) - 1;
  const Dims grid{total, count};
  const Value ends = b.broadcast_in_dim(b.slice_dim(offsets, 0, 1, count + 1), grid, {1});
  const Value past = b.compare(Cmp::kLe, ends, b.iota({offsets.dtype(), grid}, 0));
  return x.sum(b.convert(past, DType::kI64), {1});
}

Value csr_to_coo(Context& x, Value crow_indices, Value col_indices, bool out_int32,
                 bool transpose) {
  x.check(crow_indices.rank() == 1 && col_indices.rank() == 1 && crow_indices.dim(0) > 0,
          "_convert_indices_from_csr_to_coo: needs indices of one matrix, not of a batch, got ",
          crow_indices.dims(), " and ", col_indices.dims());
  const int64_t total = col_indices.dim(0);
  const DType t = out_int32 ? DType::kI32 : DType::kI64;
  const Value rows = x.convert(row_of_each(x, x.convert(crow_indices, DType::kI64), total), t);
  const auto line = [&](Value v) { return x.b.reshape(x.convert(v, t), {1, total}); };
  return x.b.concatenate(
      transpose ? Values{line(col_indices), line(rows)} : Values{line(rows), line(col_indices)}, 0);
}

Value coo_to_csr(Context& x, Value rows, int64_t size, bool out_int32) {
  auto& b = x.b;
  x.check(rows.rank() == 1 && size >= 0,
          "_convert_indices_from_coo_to_csr: needs a vector of rows and their number, got ",
          rows.dims(), " and ", size);
  const Dims grid{size + 1, rows.dim(0)};
  const Value row = b.broadcast_in_dim(x.convert(rows, DType::kI64), grid, {1});
  const Value before = b.compare(Cmp::kLt, row, b.iota({DType::kI64, grid}, 0));
  return x.convert(x.sum(b.convert(before, DType::kI64), {1}),
                   out_int32 ? DType::kI32 : DType::kI64);
}

Value to_padded(Context& x, Value values, const Values& offsets, const Dims& max_lengths,
                double padding) {
  constexpr const char* kName = "_jagged_to_padded_dense_forward";
  auto& b = x.b;
  const Value o = offsets_of(x, kName, offsets, -1);
  x.check(values.rank() >= 1 && max_lengths.size() == 1 && max_lengths[0] >= 0, kName,
          ": needs values of one dim or more and one length, got ", values.dims(), " and ",
          max_lengths);
  const int64_t batch = o.dim(0) - 1, length = max_lengths[0], total = values.dim(0);
  Dims result{batch, length};
  result.insert(result.end(), values.dims().begin() + 1, values.dims().end());
  const Value pad = b.splat({values.dtype(), result}, padding);
  if (hlo::product(result) == 0 || total == 0) return pad;
  const Dims grid{batch, length};
  const Value first = b.broadcast_in_dim(b.slice_dim(o, 0, 0, batch), grid, {0});
  const Value end = b.broadcast_in_dim(b.slice_dim(o, 0, 1, batch + 1), grid, {0});
  const Value row = b.add(first, b.iota({DType::kI64, grid}, 1));
  const Value inside = b.compare(Cmp::kLt, row, end);
  const Value at = x.checked_index(b.select(inside, row, x.like(row, 0)), total, 0, false);
  const Value rows = take_rows(x, values, 0, b.reshape(at, {batch * length}));
  return b.select(b.broadcast_in_dim(inside, result, {0, 1}), b.reshape(rows, result), pad);
}

Value to_jagged(Context& x, Value dense, const Values& offsets, Opt<int64_t> total_length) {
  constexpr const char* kName = "_padded_dense_to_jagged_forward";
  auto& b = x.b;
  x.check(dense.rank() >= 2, kName, ": needs a dense tensor of two dims or more, got ",
          dense.dims());
  const int64_t batch = dense.dim(0), length = dense.dim(1);
  const Value o = offsets_of(x, kName, offsets, batch);
  x.check(total_length.has_value(), kName, ": needs total_L");  // bridge/ reads it
  const int64_t total = *total_length;
  Dims result{total};
  result.insert(result.end(), dense.dims().begin() + 2, dense.dims().end());
  const Value zero = x.zeros({dense.dtype(), result});
  if (hlo::product(result) == 0 || batch * length == 0) return zero;
  const Value row = row_of_each(x, o, total);
  const Value in_row = x.convert(x.checked_index(row, batch, 0, false), DType::kI64);
  const Value number = b.iota({DType::kI64, {total}}, 0);
  const Value column = b.sub(number, take_rows(x, o, 0, in_row));
  // Longer rows than the dense tensor has columns are cut off: zeros follow.
  const Value inside = b.compare(Cmp::kLt, column, b.splat(column.type(), length));
  const Value kept = b.select(inside, column, x.like(column, 0));
  const Value flat = b.add(b.mul(in_row, b.splat(in_row.type(), length)), kept);
  Dims rows = dense.dims();
  rows.erase(rows.begin());
  rows[0] = batch * length;
  const Value taken = take_rows(x, b.reshape(dense, rows), 0, flat);
  return b.select(b.broadcast_in_dim(inside, result, {0}), taken, zero);
}

}  // namespace

void register_jagged(Registry& r) {
  r.op("aten::_jagged_to_padded_dense_forward", to_padded);
  r.op("aten::_padded_dense_to_jagged_forward", to_jagged);
  r.op("aten::_convert_indices_from_csr_to_coo", csr_to_coo);
  r.op("aten::_convert_indices_from_coo_to_csr", coo_to_csr);
}

}  // namespace tpu::aten
