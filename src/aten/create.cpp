// Sequences and the identity. Sizes are constants; start, end and step are run-time numbers
// wherever the size does not follow from them.
#include <cmath>

#include "aten/all.h"
#include "aten/indexing.h"

namespace tpu::aten {

using ops::Cmp;
using ops::Op;
using ops::Scalar;
using ops::scalar_type_name;

namespace {

void check_numeric(Context& x, const char* name, DType t, bool complex_too) {
  x.check_supported(!hlo::is_bool(t) && !hlo::is_float8(t) && (complex_too || !hlo::is_complex(t)),
                    "\"", name, "\" not implemented for '", scalar_type_name(t), "'");
}

// start + i * step for i = 0 ... n - 1.
Value sequence(Context& x, int64_t n, Value start, Value step, DType result) {
  const DType t = start.dtype();
  const Dims d{n};
  if (n == 0) return x.zeros({result, d});
  const Value i =
      hlo::is_complex(t) ? x.convert(x.b.iota({hlo::real_type(t), d}, 0), t) : x.b.iota({t, d}, 0);
  return x.convert(x.b.add(x.broadcast(start, d), x.b.mul(i, x.broadcast(step, d))), result);
}

// The type sequences of `t` are computed in: narrower integers would overflow on the way.
DType sequence_type(DType t) {
  if (!hlo::is_integer(t)) return hlo::compute_type(t);
  return hlo::size_bytes(t) == 8 ? DType::kI64 : DType::kI32;
}

Value arange(Context& x, int64_t n, const Scalar& start, const Scalar& step, DType dtype) {
  check_numeric(x, "arange_cpu", dtype, false);
  DType t = sequence_type(dtype);
  // The CPU's float32 sequence is rounded once, from float64; a TPU has no float64 to spend on it.
  if (t == DType::kF32 && x.on_cpu_plugin()) t = DType::kF64;
  return sequence(x, n, x.scalar(start, t), x.scalar(step, t), dtype);
}

// Evenly spaced from both ends, so that the last element is `end` itself. Integers: steps are
// computed in float64 and truncated.
Value linspace(Context& x, Value start, Value end, int64_t n, DType result) {
  const DType t = start.dtype();
  const Type type{t, {n}};
  if (n == 0) return x.zeros({result, type.dims});
  if (n == 1) return x.convert(x.b.reshape(start, {1}), result);
  const Value gap = x.b.sub(end, start);
  const Value step =
      x.broadcast(x.b.div(gap, x.constant(t, static_cast<double>(n - 1))), type.dims);
  const Value place = x.b.iota({position_type(n), type.dims}, 0);
  const auto number = [&](Value v) { return x.convert(v, t); };
  const Value from_start = x.b.add(x.broadcast(start, type.dims), x.b.mul(step, number(place)));
  const Value left = x.b.sub(x.b.splat(place.type(), n - 1), place);
  const Value from_end = x.b.sub(x.broadcast(end, type.dims), x.b.mul(step, number(left)));
  const Value first_half = x.b.compare(Cmp::kLt, place, x.b.splat(place.type(), n / 2));
  return x.convert(x.b.select(first_half, from_start, from_end), result);
}

DType spacing_type(DType t) { return hlo::is_integral(t) ? DType::kF64 : hlo::compute_type(t); }

// The ends of linspace and logspace are numbers or 0-d tensors, truncated for integer results.
Value end_value(Context& x, const Scalar& s, DType t) {
  return hlo::is_integer(t) ? x.convert(x.scalar(s, t), spacing_type(t))
                            : x.scalar(s, spacing_type(t));
}
Value end_value(Context& x, Value v, DType t) {
  if (hlo::is_integer(t)) v = x.convert(v, t);
  return x.convert(v, spacing_type(t));
}
int64_t end_rank(const Scalar&) { return 0; }
int64_t end_rank(Value v) { return v.rank(); }
bool is_complex_end(const Scalar& s) { return s.kind == ops::NumberKind::kComplex; }
bool is_complex_end(Value v) { return hlo::is_complex(v.dtype()); }

template <class S, class E>
Value linspace_op(Context& x, const S& start, const E& end, int64_t steps, DType t) {
  x.check(steps >= 0, "number of steps must be non-negative");
  if (steps > 1) check_numeric(x, "linspace_cpu", t, true);
  return linspace(x, end_value(x, start, t), end_value(x, end, t), steps, t);
}

template <class S, class E>
Value logspace_op(Context& x, const S& start, const E& end, int64_t steps, double base, DType t) {
  x.check(steps >= 0, "number of steps must be non-negative");
  if (steps > 1) check_numeric(x, "logspace_cpu", t, true);
  if (steps == 0) return x.zeros({t, {0}});
  // A single value is base ** start, of a start that is not truncated.
  const DType spacing = spacing_type(t);
  const Value first = end_value(x, start, steps == 1 ? spacing : t);
  const Value exponents = linspace(x, first, end_value(x, end, t), steps, spacing);
  const Value b = x.like(exponents, base);
  return x.convert(x.b.binary(Op::kPower, b, exponents), t);
}

// The result type where it was not named: complex as soon as one end is.
template <class S, class E>
DType checked_type(Context& x, const char* name, const S& start, const E& end, Opt<DType> dtype) {
  x.check(end_rank(start) == 0 && end_rank(end) == 0, name,
          " only supports 0-dimensional start and end tensors, but got start with ",
          end_rank(start), " dimension(s) and end with ", end_rank(end), " dimension(s).");
  if (!is_complex_end(start) && !is_complex_end(end)) return dtype.value_or(x.default_dtype());
  const DType c = hlo::complex_type(x.default_dtype());
  x.check(!dtype || hlo::is_complex(*dtype), "torch.", name, "(): inferred dtype ",
          scalar_type_name(c), " can't be safely cast to passed dtype ",
          scalar_type_name(dtype.value_or(c)));
  return dtype.value_or(c);
}

// With a tensor as an end: the generic form would read its value, which waits for the device.
template <class S, class E>
void register_spacing(ops::Registry& r, const std::string& overload) {
  r.op("aten::linspace." + overload,
       [](Context& x, S start, E end, int64_t steps, Opt<DType> dtype) {
         return linspace_op(x, start, end, steps, checked_type(x, "linspace", start, end, dtype));
       });
  r.op("aten::logspace." + overload, [](Context& x, S start, E end, int64_t steps, double base,
                                        Opt<DType> dtype) {
    return logspace_op(x, start, end, steps, base, checked_type(x, "logspace", start, end, dtype));
  });
}

Value identity_matrix(Context& x, int64_t n, int64_t m, DType t) {
  x.check(n >= 0, "n must be greater or equal to 0, got ", n);
  x.check(m >= 0, "m must be greater or equal to 0, got ", m);
  const Type i{DType::kI32, {n, m}};
  return x.convert(x.b.compare(Cmp::kEq, x.b.iota(i, 0), x.b.iota(i, 1)), t);
}

}  // namespace

void register_create(ops::Registry& r) {
  // (int size, Scalar start, Scalar step, ScalarType dtype) -> Tensor: bridge/ tells the size.
  r.op("tpu::arange", [](Context& x, int64_t size, Scalar start, Scalar step, DType dtype) {
    return arange(x, size, start, step, dtype);
  });
  r.out_op("aten::linspace.out", [](Context& x, Type out, Scalar start, Scalar end, int64_t steps) {
    return linspace_op(x, start, end, steps, out.dtype);
  });
  r.out_op("aten::logspace.out",
           [](Context& x, Type out, Scalar start, Scalar end, int64_t steps, double base) {
             return logspace_op(x, start, end, steps, base, out.dtype);
           });
  register_spacing<Scalar, Value>(r, "Scalar_Tensor");
  register_spacing<Value, Scalar>(r, "Tensor_Scalar");
  register_spacing<Value, Value>(r, "Tensor_Tensor");
  r.out_op("aten::eye.out",
           [](Context& x, Type out, int64_t n) { return identity_matrix(x, n, n, out.dtype); });
  r.out_op("aten::eye.m_out", [](Context& x, Type out, int64_t n, int64_t m) {
    return identity_matrix(x, n, m, out.dtype);
  });
}

}  // namespace tpu::aten
