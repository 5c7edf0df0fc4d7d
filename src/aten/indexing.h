// Building blocks that the index, shape and random lowerings share: positions of true elements,
// blocks at fixed places, diagonals. All sizes are static; index values are int32 wherever
// they fit, since 64-bit integers are emulated on a TPU.
#pragma once
#include "ops/context.h"

namespace tpu::aten {

using ops::Context;
using ops::Dims;
using ops::DType;
using ops::Opt;
using ops::Type;
using ops::Value;
using ops::Values;

// int32, or int64 where positions below `size` (and `size` itself) need it.
DType position_type(int64_t size);

// 0, 1, 2, ... along `dim`, as positions.
Value positions(Context& x, const Dims& dims, int64_t dim);

// Row-major positions of the true elements of `mask` in order: [size], filled up with mask.numel().
// More than `size` true elements: the first ones.
Value true_positions(Context& x, Value mask, int64_t size);

// Number of true elements, rank-0 int64.
Value count_true(Context& x, Value mask);

// Row-major positions -> one coordinate per dim (positions must be in range).
Values unravel(Context& x, Value flat, const Dims& dims);

// v[..., index, ...] along `dim`; `index` is rank 1 and in range.
Value take_rows(Context& x, Value v, int64_t dim, Value index);

// `block` written over v at a fixed place.
Value put_block(Context& x, Value v, Value block, const Dims& starts);

// A diagonal (its positions are the last dim of `diagonal`) spread over `dims`: {values, mask of
// the elements on the diagonal}. 0 <= dim1, dim2 < rank, different.
std::pair<Value, Value> spread_diagonal(Context& x, Value diagonal, const Dims& dims,
                                        int64_t offset, int64_t dim1, int64_t dim2);

// True on and below (`lower`) or on and above the diagonal of the last two dims: [rows, columns].
Value triangle(Context& x, int64_t rows, int64_t columns, int64_t offset, bool lower);

}  // namespace tpu::aten
