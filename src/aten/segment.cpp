// Reductions of consecutive segments of one dim, whose lengths (or offsets) are a tensor.
#include <algorithm>
#include <limits>

#include "aten/reduce.h"
#include "aten/scan.h"
#include "aten/sort.h"

namespace tpu::aten {

using namespace ops;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

enum class Kind { kSum, kMean, kMax, kMin, kProd };

Kind kind_of(const Context& x, const std::string& reduce) {
  if (reduce == "sum") return Kind::kSum;
  if (reduce == "mean") return Kind::kMean;
  if (reduce == "max" || reduce == "amax") return Kind::kMax;
  if (reduce == "min" || reduce == "amin") return Kind::kMin;
  x.check(reduce == "prod", "reduce argument must be either sum, prod, mean, amax or amin, got ",
          reduce);
  return Kind::kProd;
}

Op op_of(Kind k) {
  switch (k) {
    case Kind::kMax: return Op::kMaximum;
    case Kind::kMin: return Op::kMinimum;
    case Kind::kProd: return Op::kMultiply;
    default: return Op::kAdd;
  }
}

double identity_of(Kind k) {
  return k == Kind::kMax ? -kInf : k == Kind::kMin ? kInf : k == Kind::kProd ? 1 : 0;
}

// data seen as [rows, n, rest] with the segments along n, flattened to [rows * n, rest].
struct Segments {
  int64_t rows, n, count;  // count: segments in a row
  Dims flat, result;       // [rows * n, rest]; the reduced dims
  Value id;       // [rows * n] int32: row * count + segment; rows * count where there is none
  Value lengths;  // [rows * count, 1] int32
};

Segments segments_of(Context& x, Value data, const Opt<Value>& lengths, const Opt<Value>& offsets,
                     int64_t axis, bool unsafe) {
  const char* name = "segment_reduce(): ";
  hlo::Builder& b = x.b;
  const int64_t d = x.axis(axis, data);
  x.check(data.rank() > 0, name, "data must have at least one dimension");
  x.check(lengths || offsets, name, "Either lengths or offsets must be defined.");
  const char* what = offsets ? "offsets" : "lengths";
  const Value given = offsets ? *offsets : *lengths;
  x.check(given.rank() == d + 1, name, "Expected axis to be the last dimension of ", what,
          " but got ", d, ".");
  x.check(std::equal(given.dims().begin(), given.dims().end() - 1, data.dims().begin()), name,
          "Expected the leading dims of ", what, " to be those of data, got ", given.dims(),
          " and ", data.dims());
  x.check_supported(given.dtype() == DType::kI32 || given.dtype() == DType::kI64,
                    "\"_segment_reduce_", what, "_cpu_kernel1\" not implemented for '",
                    scalar_type_name(given.dtype()), "'");
  Segments s{};
  s.rows = hlo::product(Dims(data.dims().begin(), data.dims().begin() + d));
  s.n = data.dim(d);
  s.count = given.dim(d) - (offsets ? 1 : 0);
  x.check(s.count >= 0, name, "offsets must have at least one element");
  const int64_t rest = hlo::product(Dims(data.dims().begin() + d + 1, data.dims().end()));
  s.flat = {s.rows * s.n, rest};
  s.result = data.dims();
  s.result[static_cast<size_t>(d)] = s.count;
  const Value bounds = b.reshape(given, {s.rows, given.dim(d)});
  Value ends, first;
  if (offsets) {
    first = b.convert(b.slice_dim(bounds, 1, 0, 1), DType::kI32);
    ends = b.convert(b.slice_dim(bounds, 1, 1, s.count + 1), DType::kI32);
  } else {
    first = b.splat({DType::kI32, {s.rows, 1}}, 0);
    ends = b.convert(cumulative(x, bounds, 1, Op::kAdd), DType::kI32);
    if (!unsafe) {
      x.assert_none(b.compare(Cmp::kLt, bounds, x.like(bounds, 0)),
                    "lengths contains negative value!");
      const Value sum = x.sum(bounds, {1});
      x.assert_none(b.compare(Cmp::kNe, sum, x.like(sum, static_cast<double>(s.n))),
                    cat(name,
                        "Expected all rows of lengths along axis to sum to "
                        "data.size(lengths.dim()-1) when !unsafe."));
    }
  }
  const Value starts =
      b.concatenate({first, b.slice_dim(ends, 1, 0, std::max<int64_t>(s.count - 1, 0))}, 1);
  s.lengths = b.reshape(s.count == 0 ? ends : b.sub(ends, starts), {s.rows * s.count, 1});
  const Type grid{DType::kI32, {s.rows, s.n}};
  const Value place = b.iota(grid, 1);
  const Value segment = search_sorted(x, ends, place, true);
  const Value inside = b.logical_and(b.compare(Cmp::kLt, segment, b.splat(grid, s.count)),
                                     b.compare(Cmp::kGe, place, x.broadcast(first, grid.dims)));
  const Value id = b.add(b.mul(b.iota(grid, 0), b.splat(grid, s.count)), segment);
  s.id = b.reshape(b.select(inside, id, b.splat(grid, s.rows * s.count)), {s.rows * s.n});
  return s;
}

Value scatter_rows(Context& x, const Segments& s, Value into, Value rows, Op op) {
  return x.b.scatter(into, s.id, rows,
                     {.update_window_dims = {1},
                      .inserted_window_dims = {0},
                      .scatter_dims_to_operand_dims = {0},
                      .index_vector_dim = 1},
                     op, false, false);
}

// Row `id` of v for each element; a zero row where there is no segment.
Value spread(Context& x, const Segments& s, Value v) {
  if (s.count == 0 || s.rows == 0) return x.zeros({v.dtype(), s.flat});
  const Value last = x.like(s.id, static_cast<double>(s.rows * s.count - 1));
  const Value rows = x.b.gather(v, x.b.minimum(s.id, last),
                                {.offset_dims = {1},
                                 .collapsed_slice_dims = {0},
                                 .start_index_map = {0},
                                 .index_vector_dim = 1},
                                {1, v.dim(1)});
  const Value none = x.unsqueeze(x.b.compare(Cmp::kGt, s.id, last), 1);
  return x.select(none, x.like(rows, 0), rows);
}

void check_data(const Context& x, DType t) {
  x.check_supported(hlo::is_float(t) && !hlo::is_float8(t),
                    "\"_segment_reduce_cpu\" not implemented for '", scalar_type_name(t), "'");
}

Value segment_reduce(Context& x, Value data, const std::string& reduce, const Opt<Value>& lengths,
                     const Opt<Value>& indices, const Opt<Value>& offsets, int64_t axis,
                     bool unsafe, const Opt<Number>& initial) {
  hlo::Builder& b = x.b;
  x.check(!indices, "segment_reduce(): indices based reduction is not supported yet.");
  const Kind kind = kind_of(x, reduce);
  const Segments s = segments_of(x, data, lengths, offsets, axis, unsafe);
  check_data(x, data.dtype());
  const Value v = b.reshape(x.to_compute(data), s.flat);
  const Type out{v.dtype(), {s.rows * s.count, s.flat[1]}};
  const double start = initial ? initial->d : identity_of(kind);
  Value r = scatter_rows(x, s, b.splat(out, start), v, op_of(kind));
  if (kind == Kind::kMean) {
    const Value size = x.broadcast(x.convert(s.lengths, v.dtype()), out.dims);
    const Value empty = b.compare(Cmp::kEq, size, x.like(size, 0));
    const double none = initial ? start : std::numeric_limits<double>::quiet_NaN();
    r = b.select(empty, b.splat(out, none), b.div(r, size));
  }
  return x.convert(b.reshape(r, s.result), data.dtype());
}

Value segment_reduce_backward(Context& x, Value grad, Value output, Value data,
                              const std::string& reduce, const Opt<Value>& lengths,
                              const Opt<Value>& offsets, int64_t axis, const Opt<Number>& initial) {
  hlo::Builder& b = x.b;
  const Kind kind = kind_of(x, reduce);
  const Segments s = segments_of(x, data, lengths, offsets, axis, true);
  check_data(x, data.dtype());
  const Value v = b.reshape(x.to_compute(data), s.flat);
  const Type out{v.dtype(), {s.rows * s.count, s.flat[1]}};
  const Value g = b.reshape(x.to_compute(grad), out.dims);
  const Value y = b.reshape(x.to_compute(output), out.dims);
  const Value zero = x.like(v, 0), one = x.like(v, 1);
  Value r;
  switch (kind) {
    case Kind::kSum: r = spread(x, s, g); break;
    case Kind::kMean:
      r = spread(x, s, b.div(g, x.broadcast(x.convert(s.lengths, v.dtype()), out.dims)));
      break;
    case Kind::kMax:
    case Kind::kMin: {  // shared by all that equal the result
      const Value hit = b.logical_or(b.compare(Cmp::kEq, v, spread(x, s, y)), x.is_nan(v));
      const Value hits = scatter_rows(x, s, b.splat(out, 0), b.select(hit, one, zero), Op::kAdd);
      r = b.select(hit, spread(x, s, b.div(g, hits)), zero);
      break;
    }
    case Kind::kProd: {  // the product of the others, which is not y / v where v is 0
      const Value is_zero = b.compare(Cmp::kEq, v, zero);
      const Value zeros =
          scatter_rows(x, s, b.splat(out, 0), b.select(is_zero, one, zero), Op::kAdd);
      const Value nonzero = scatter_rows(x, s, b.splat(out, initial ? initial->d : 1.0),
                                         b.select(is_zero, one, v), Op::kMultiply);
      const Value others = b.sub(spread(x, s, zeros), b.select(is_zero, one, zero));
      const Value product = b.div(spread(x, s, nonzero), b.select(is_zero, one, v));
      const Value slope = b.select(b.compare(Cmp::kEq, others, zero), product, zero);
      r = b.mul(spread(x, s, g), slope);
      break;
    }
  }
  return x.convert(b.reshape(r, data.dims()), data.dtype());
}

}  // namespace

void register_segment(Registry& r) {
  r.op("aten::segment_reduce", segment_reduce);
  r.op("aten::_segment_reduce_backward", segment_reduce_backward);
}

}  // namespace tpu::aten
