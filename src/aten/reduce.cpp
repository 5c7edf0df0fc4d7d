#include "aten/reduce.h"

#include <cmath>
#include <limits>

#include "aten/all.h"

namespace tpu::aten {

using namespace ops;

namespace {

constexpr double kInf = std::numeric_limits<double>::infinity();

void check_dtype(const Context& x, bool ok, const char* kernel, DType t) {
  x.check_supported(ok, '"', kernel, "\" not implemented for '", scalar_type_name(t), "'");
}

bool is_inexact(DType t) { return hlo::is_float(t) || hlo::is_complex(t); }

Value plain_sum(Context& x, Value v, const Dims& axes, bool keepdim) {
  return x.reduce(v, x.constant(v.dtype(), 0), axes, keepdim, Op::kAdd);
}

Value plain_product(Context& x, Value v, const Dims& axes, bool keepdim) {
  check_dtype(x, !hlo::is_float8(v.dtype()), "prod_cpu", v.dtype());
  const Value wide = x.to_compute(v);
  return x.convert(x.reduce(wide, x.constant(wide.dtype(), 1), axes, keepdim, Op::kMultiply),
                   v.dtype());
}

Value sum_over(Context& x, Value self, const Opt<Dims>& dim, bool keepdim, Opt<DType> dtype) {
  const DType t = dtype.value_or(x.sum_type(self.dtype()));
  check_dtype(x, !hlo::is_float8(t), "sum_cpu", t);
  const Dims axes = x.axes(dim, self);
  const DType in = exact_sum_type(self.dtype(), t, reduced_count(self, axes));
  return x.convert(x.sum(x.convert(self, in), axes, keepdim), t);
}

Value nan_sum(Context& x, Value self, const Opt<Dims>& dim, bool keepdim, Opt<DType> dtype) {
  x.check(!hlo::is_complex(self.dtype()), "nansum on TPU does not support complex inputs");
  if (hlo::is_integral(self.dtype())) return sum_over(x, self, dim, keepdim, dtype);
  const Value v = x.convert(self, dtype.value_or(self.dtype()));
  return x.sum(x.b.select(x.is_nan(v), x.zeros(v.type()), v), x.axes(dim, v), keepdim);
}

Value mean_over(Context& x, Value self, const Opt<Dims>& dim, bool keepdim, Opt<DType> dtype) {
  const DType t = dtype.value_or(self.dtype());
  x.check(is_inexact(t), "mean(): could not infer output dtype. ", dtype ? "Optional" : "Input",
          " dtype must be either a floating point or complex dtype. Got: ", scalar_type_name(t));
  const Dims axes = x.axes(dim, self);
  const Value sum = plain_sum(x, x.to_compute(x.convert(self, t)), axes, keepdim);
  const auto n = static_cast<double>(reduced_count(self, axes));
  return x.convert(x.b.div(sum, x.like(sum, n)), t);
}

// ---- Largest and smallest.

struct Extreme {
  const char* name;        // max
  const char* values;      // amax
  const char* arg;         // argmax
  const char* all_kernel;  // names in PyTorch's messages
  const char* values_kernel;
  bool largest;
};
constexpr Extreme kExtremes[] = {
    {"max", "amax", "argmax", "max_all", "max_values_cpu", true},
    {"min", "amin", "argmin", "min_all", "min_values_cpu", false},
};

Value extreme(Context& x, Value v, const Dims& axes, bool keepdim, bool largest) {
  return largest ? x.max(v, axes, keepdim) : x.min(v, axes, keepdim);
}

Value extreme_over(Context& x, const Extreme& e, Value self, const Dims& dim, bool keepdim) {
  check_dtype(x, !hlo::is_complex(self.dtype()), e.values_kernel, self.dtype());
  x.check(self.numel() > 0 || !dim.empty(), e.values,
          "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
          "reduction dim with the 'dim' argument.");
  const Dims axes = x.axes(dim, self);
  for (const int64_t d : axes) check_nonempty(x, cat(e.values, "()"), self, d);
  return extreme(x, self, axes, keepdim, e.largest);
}

Value extreme_of_all(Context& x, const Extreme& e, Value self) {
  check_dtype(x, !hlo::is_complex(self.dtype()), e.all_kernel, self.dtype());
  x.check(self.numel() > 0, e.name,
          "(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
          "reduction dim with the 'dim' argument.");
  return extreme(x, self, x.all_axes(self), false, e.largest);
}

std::array<Value, 2> extreme_with_index(Context& x, const Extreme& e, Value self, int64_t dim,
                                        bool keepdim) {
  const int64_t d = x.axis(dim, self);
  check_nonempty(x, cat(e.name, "()"), self, d);
  x.check(!hlo::is_complex(self.dtype()), e.name, "(): does not support complex input");
  return arg_reduce(x, self, d, e.largest, keepdim);
}

Value arg_extreme(Context& x, const Extreme& e, Value self, Opt<int64_t> dim, bool keepdim) {
  x.check(!hlo::is_complex(self.dtype()), e.arg, "(): does not support complex input");
  x.check(!hlo::is_bool(self.dtype()), e.arg, "(): does not support bool input");
  if (dim) {
    const int64_t d = x.axis(*dim, self);
    check_nonempty(x, cat(e.arg, "()"), self, d);
    return arg_reduce(x, self, d, e.largest, keepdim)[1];
  }
  x.check_index(self.numel() > 0, e.arg,
                "(): Expected reduction dim to be specified for input.numel() == 0.");
  const Value flat = x.b.reshape(self, {self.numel()});
  const Value index = arg_reduce(x, flat, 0, e.largest, false)[1];
  return keepdim ? x.b.reshape(index, Dims(self.dims().size(), 1)) : index;
}

std::array<Value, 2> min_max(Context& x, Value self, Opt<int64_t> dim, bool keepdim) {
  check_dtype(x, !hlo::is_complex(self.dtype()), "aminmax_cpu", self.dtype());
  Dims axes = x.all_axes(self);
  if (dim) {
    const int64_t d = x.axis(*dim, self);
    check_nonempty(x, "aminmax", self, d);
    axes = x.axes(Dims{d}, self);
  } else {
    x.check(self.numel() > 0,
            "aminmax(): cannot compute aminmax over an empty dimension as the "
            "operation has no identity.");
  }
  return {x.min(self, axes, keepdim), x.max(self, axes, keepdim)};
}

// The first position of the best value, without the dim: one pass with a comparison of pairs, ...
std::array<Value, 2> arg_reduce_in_one(Context& x, Value v, int64_t dim, bool largest) {
  hlo::Builder& b = x.b;
  const DType t = v.dtype();
  const Value position = b.iota({DType::kI32, v.dims()}, dim);
  const Value worst = largest ? b.min_value(t) : b.max_value(t);
  const Value beyond = b.constant(DType::kI32, hlo::integer_max(DType::kI32));
  const Values r = b.reduce({v, position}, {worst, beyond}, {dim}, [&](const Values& a) -> Values {
    Value better = b.compare(largest ? Cmp::kGt : Cmp::kLt, a[0], a[2]);
    Value equal = b.compare(Cmp::kEq, a[0], a[2]);
    if (hlo::is_float(t)) {
      const Value nan0 = x.is_nan(a[0]), nan1 = x.is_nan(a[2]);
      better = b.logical_or(better, b.logical_and(nan0, b.logical_not(nan1)));
      equal = b.logical_or(equal, b.logical_and(nan0, nan1));
    }
    const Value first = b.compare(Cmp::kLt, a[1], a[3]);
    const Value take = b.logical_or(better, b.logical_and(equal, first));
    return {b.select(take, a[0], a[2]), b.select(take, a[1], a[3])};
  });
  return {r[0], r[1]};
}

// ... or two plain ones, which CPU plugins vectorise (40 times as fast there).
std::array<Value, 2> arg_reduce_in_two(Context& x, Value v, int64_t dim, bool largest) {
  const Value best = extreme(x, v, {dim}, true, largest);
  const Value hit = x.b.logical_or(x.compare(Cmp::kEq, v, best), x.is_nan(v));
  const Value position = x.b.iota({DType::kI32, v.dims()}, dim);
  const Value none = x.b.splat(position.type(), hlo::integer_max(DType::kI32));
  const Value first = x.min(x.b.select(hit, position, none), {dim});
  return {x.b.reshape(best, first.dims()), first};
}

// ---- Truth.

Value truth(Context& x, Value self, const Dims& axes, bool keepdim, bool all) {
  const Value v = x.convert(self, DType::kBool);
  const Value r = all ? x.all(v, axes, keepdim) : x.any(v, axes, keepdim);
  return self.dtype() == DType::kU8 ? x.convert(r, DType::kU8) : r;  // uint8 stays uint8
}

void register_truth(Registry& r, const std::string& name, bool all) {
  r.op(name,
       [all](Context& x, Value self) { return truth(x, self, x.all_axes(self), false, all); });
  r.op(name + ".dim", [all](Context& x, Value self, int64_t dim, bool keepdim) {
    return truth(x, self, x.axes(Dims{dim}, self), keepdim, all);
  });
  r.op(name + ".dims", [all](Context& x, Value self, const Opt<Dims>& dim, bool keepdim) {
    // Here, other than elsewhere, an empty list names no axis.
    const Dims axes = dim && dim->empty() ? Dims{} : x.axes(dim, self);
    return truth(x, self, axes, keepdim, all);
  });
}

// ---- Norms.

OpBuilder fold_orders(OpBuilder op, const char* arg) {
  for (const double p : {0.0, 1.0, 2.0, kInf, -kInf}) op.fold(arg, p);
  return op;
}

Value square_magnitude(Context& x, Value v) {
  if (!hlo::is_complex(v.dtype())) return x.b.mul(v, v);
  const Value re = x.b.real(v), im = x.b.imag(v);
  return x.b.add(x.b.mul(re, re), x.b.mul(im, im));
}

void check_norm_identity(Context& x, Value v, const Scalar& p, const Opt<Dims>& dim,
                         const Dims& axes) {
  if (reduced_count(v, axes) > 0) return;
  const std::string where = !dim || dim->empty() ? "an empty tensor" : "an empty dimension";
  x.check_numbers(
      [where](const ops::Number& order) {
        TPU_CHECK(order.d >= 0 && order.d < kInf, "linalg.vector_norm cannot compute the ", order.d,
                  " norm on ", where, " because the operation does not have an identity");
      },
      p);
}

Value vector_norm(Context& x, Value self, const Scalar& p, const Opt<Dims>& dim, bool keepdim,
                  Opt<DType> dtype) {
  const DType from = self.dtype();
  x.check(is_inexact(from),
          "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
          scalar_type_name(from));
  x.check(p.kind != NumberKind::kComplex,
          "linalg.vector_norm: Expected a non-complex scalar as the order of norm.");
  const DType t = dtype.value_or(from);
  x.check(is_inexact(t), "linalg.vector_norm: dtype should be floating point or complex, but got ",
          scalar_type_name(t));
  x.check(hlo::is_complex(t) == hlo::is_complex(from), "linalg.vector_norm: dtype should be ",
          hlo::is_complex(from) ? "complex for complex" : "real for real", " inputs, but got ",
          scalar_type_name(t));
  x.check(promote_types(from, t) == t, "linalg.vector_norm: the dtype of the input (",
          scalar_type_name(from),
          ") should be convertible without narrowing to the specified dtype (", scalar_type_name(t),
          ")");
  const Dims axes = x.axes(dim, self);
  check_norm_identity(x, self, p, dim, axes);
  return x.convert(p_norm(x, x.convert(self, t), p, axes, keepdim), hlo::real_type(t));
}

Value old_norm(Context& x, Value self, const Opt<Scalar>& p, const Dims& dim, bool keepdim,
               Opt<DType> dtype) {
  x.check(dtype || is_inexact(self.dtype()),
          "norm(): input dtype should be either floating point or complex. Got ",
          scalar_type_name(self.dtype()), " instead.");
  x.check(!dtype || is_inexact(*dtype),
          "norm(): the desired output dtype should be either floating point or complex. Got ",
          scalar_type_name(dtype.value_or(DType::kF32)), " instead.");
  const Scalar two{NumberKind::kInt, -1, Number::of(int64_t{2})};
  return vector_norm(x, self, p.value_or(two), dim, keepdim, dtype);
}

Value renorm(Context& x, Value self, const Number& p, int64_t dim, const Number& maxnorm) {
  x.check(p.kind != NumberKind::kComplex, "renorm: p must be real-valued");
  x.check(p.d > 0, "renorm: non-positive-norm not supported");
  x.check(maxnorm.kind != NumberKind::kComplex, "renorm: maxnorm must be real-valued");
  x.check(maxnorm.d >= 0, "renorm: expected maxnorm to be >= 0 but got ", maxnorm.d);
  x.check(self.rank() > 1, "renorm: input needs at least 2 dimensions, got ", self.rank(),
          " dimensions");
  const int64_t d = x.axis(dim, self);
  x.check(is_inexact(self.dtype()),
          "linalg.vector_norm: Expected a floating point or complex tensor as input. Got ",
          scalar_type_name(self.dtype()));
  Dims others;
  for (int64_t i = 0; i < self.rank(); ++i) {
    if (i != d) others.push_back(i);
  }
  const Value norm = p_norm(x, self, Scalar{p.kind, -1, p}, others, true);
  const Value shrink = x.b.div(x.like(norm, maxnorm.d), x.b.add(norm, x.like(norm, 1e-7)));
  const Value too_long = x.b.compare(Cmp::kGt, norm, x.like(norm, maxnorm.d));
  const Value factor = x.b.select(too_long, shrink, x.like(norm, 1));
  const Value v = x.to_compute(self);
  return x.convert(x.binary(Op::kMultiply, v, x.convert(factor, v.dtype())), self.dtype());
}

// log(sum(exp(v))), shifted so that the largest term is 1.
Value log_sum_exp(Context& x, Value self, const Opt<Dims>& dim, bool keepdim) {
  const Value v = x.to_compute(x.to_float(self));
  const Dims axes = x.axes(dim, v);
  const bool complex = hlo::is_complex(v.dtype());
  const Value largest = x.max(complex ? x.b.real(v) : v, axes, true);
  const Value infinite = x.b.compare(Cmp::kEq, x.b.unary(Op::kAbs, largest), x.like(largest, kInf));
  const Value shift = x.convert(x.b.select(infinite, x.like(largest, 0), largest), v.dtype());
  const Value terms = x.b.unary(Op::kExponential, x.binary(Op::kSubtract, v, shift));
  const Value sum = x.b.unary(Op::kLog, plain_sum(x, terms, axes, keepdim));
  return x.convert(x.b.add(sum, x.b.reshape(shift, sum.dims())), x.float_type(self.dtype()));
}

// ---- Variance.

std::array<Value, 2> variance(Context& x, const char* name, Value self, const Opt<Dims>& dim,
                              const Opt<Number>& correction, bool keepdim, bool root) {
  x.check(is_inexact(self.dtype()), name, " only support floating point and complex dtypes");
  const Dims axes = x.axes(dim, self);
  const auto [mean, squares] = moments(x, self, axes);
  const auto n = static_cast<double>(reduced_count(self, axes));
  const double divisor = std::max(n - (correction ? correction->d : 1.0), 0.0);
  Value var = x.b.div(squares, x.like(squares, divisor));
  if (root) var = x.b.unary(Op::kSqrt, var);
  const Dims out = Context::reduced(self.dims(), axes, keepdim);
  return {x.convert(x.b.reshape(var, out), hlo::real_type(self.dtype())),
          x.convert(x.b.reshape(mean, out), self.dtype())};
}

void register_variance(Registry& r, const std::string& name, bool root) {
  r.op(name + ".correction", [root](Context& x, Value self, const Opt<Dims>& dim,
                                    const Opt<Number>& correction, bool keepdim) {
     return variance(x, "std and var", self, dim, correction, keepdim, root)[0];
   }).out_casts(true);
  r.op(name + "_mean.correction", [root](Context& x, Value self, const Opt<Dims>& dim,
                                         const Opt<Number>& correction, bool keepdim) {
    return variance(x, root ? "std_mean" : "var_mean", self, dim, correction, keepdim, root);
  });
}

// ---- The rest.

// Exclusive or of the elements' 64-bit patterns; floats count as float64.
Value hash_tensor(Context& x, Value self, const Dims& dim, bool keepdim, int64_t mode) {
  x.check(mode == 0, "Unknown hash_tensor mode: ", mode);
  check_dtype(x, !hlo::is_complex(self.dtype()), "xor_sum_cpu", self.dtype());
  x.check(self.numel() > 0 || !dim.empty(),
          "hash_tensor: Expected reduction dim to be specified for input.numel() == 0. Specify the "
          "reduction dim with the 'dim' argument.");
  const Dims axes = x.axes(dim, self);
  for (const int64_t d : axes) check_nonempty(x, "hash_tensor", self, d);
  const Type bits{DType::kU64, self.dims()};
  const Value v = hlo::is_float(self.dtype())
                      ? x.b.bitcast_convert(x.convert(self, DType::kF64), bits)
                      : x.convert(self, DType::kU64);
  return x.reduce(v, x.constant(DType::kU64, 0), axes, keepdim, Op::kXor);
}

Value trace(Context& x, Value self) {
  x.check(self.rank() == 2, "trace: expected a matrix, but got tensor with dim ", self.rank());
  check_dtype(x, !hlo::is_bool(self.dtype()), "trace", self.dtype());
  const int64_t rows = self.dim(0), columns = self.dim(1), n = std::min(rows, columns);
  const DType t = x.sum_type(self.dtype());
  if (n == 0) return x.zeros({t, {}});
  const Value flat = x.b.reshape(self, {rows * columns});
  const Value diagonal = x.b.slice(flat, {0}, {(n - 1) * (columns + 1) + 1}, {columns + 1});
  return x.sum(x.convert(diagonal, t), {0});
}

}  // namespace

std::array<Value, 2> arg_reduce(Context& x, Value v, int64_t dim, bool largest, bool keepdim) {
  if (v.rank() == 0) return {v, x.zeros({DType::kI64, {}})};
  const auto [value, position] = x.on_cpu_plugin() ? arg_reduce_in_two(x, v, dim, largest)
                                                   : arg_reduce_in_one(x, v, dim, largest);
  const Value index = x.b.convert(position, DType::kI64);
  if (!keepdim) return {value, index};
  return {x.keep_dims(value, v.dims(), {dim}), x.keep_dims(index, v.dims(), {dim})};
}

std::array<Value, 2> moments(Context& x, Value v, const Dims& axes) {
  const Value wide = x.to_compute(v);
  const Value sum = plain_sum(x, wide, axes, true);
  const Value mean = x.b.div(sum, x.like(sum, static_cast<double>(reduced_count(v, axes))));
  const Value distance = x.binary(Op::kSubtract, wide, mean);
  return {mean, plain_sum(x, square_magnitude(x, distance), axes, true)};
}

Value p_norm(Context& x, Value self, const Scalar& p, const Dims& axes, bool keepdim, bool root) {
  const Value v = x.to_compute(self);
  if (x.is(p, 2)) {
    const Value sum = plain_sum(x, square_magnitude(x, v), axes, keepdim);
    return root ? x.b.unary(Op::kSqrt, sum) : sum;
  }
  const Value size = x.b.unary(Op::kAbs, v);
  const DType t = size.dtype();
  if (x.is(p, 0)) {
    return plain_sum(x, x.convert(x.b.compare(Cmp::kNe, size, x.like(size, 0)), t), axes, keepdim);
  }
  if (x.is(p, 1)) return plain_sum(x, size, axes, keepdim);
  if (root && x.is(p, kInf)) return x.max(size, axes, keepdim);
  if (root && x.is(p, -kInf)) return x.min(size, axes, keepdim);
  const Value order = x.scalar(p, t);
  const Value powers = x.b.binary(Op::kPower, size, x.broadcast(order, size.dims()));
  const Value sum = plain_sum(x, powers, axes, keepdim);
  if (!root) return sum;
  return x.b.binary(Op::kPower, sum, x.broadcast(x.b.div(x.constant(t, 1), order), sum.dims()));
}

DType exact_sum_type(DType from, DType to, int64_t n) {
  const bool narrow = hlo::is_integral(from) && hlo::size_bytes(from) <= 2;
  if (!narrow || (to != DType::kI64 && to != DType::kU64)) return to;
  const int64_t largest = hlo::is_bool(from) ? 1 : int64_t{1} << (8 * hlo::size_bytes(from));
  return n <= hlo::integer_max(DType::kI32) / largest ? DType::kI32 : to;
}

int64_t reduced_count(Value v, const Dims& axes) {
  int64_t n = 1;
  for (const int64_t d : axes) n *= v.dim(d);
  return n;
}

void check_nonempty(const Context& x, const std::string& name, Value v, int64_t dim) {
  x.check_index(v.rank() == 0 || v.dim(dim) > 0, name, ": Expected reduction dim ", dim,
                " to have non-zero size.");
}

void register_reduce(Registry& r) {
  r.op("aten::sum.dim_IntList", sum_over).out_casts(true);
  r.op("aten::nansum", nan_sum).out_casts(true);
  r.op("aten::mean.dim", mean_over).out_casts(true);
  r.op("aten::prod", [](Context& x, Value self, Opt<DType> dtype) {
    return plain_product(x, x.convert(self, dtype.value_or(x.sum_type(self.dtype()))),
                         x.all_axes(self), false);
  });
  r.op("aten::prod.dim_int",
       [](Context& x, Value self, int64_t dim, bool keepdim, Opt<DType> dtype) {
         return plain_product(x, x.convert(self, dtype.value_or(x.sum_type(self.dtype()))),
                              x.axes(Dims{dim}, self), keepdim);
       });

  for (const Extreme& e : kExtremes) {
    const std::string name = cat("aten::", e.name);  // aten::max, aten::min
    r.op(name, [&e](Context& x, Value self) { return extreme_of_all(x, e, self); }).out_casts(true);
    r.op(name + ".dim", [&e](Context& x, Value self, int64_t dim, bool keepdim) {
      return extreme_with_index(x, e, self, dim, keepdim);
    });
    r.op(cat("aten::", e.values), [&e](Context& x, Value self, const Dims& dim, bool keepdim) {
      return extreme_over(x, e, self, dim, keepdim);
    });
    r.op(cat("aten::", e.arg), [&e](Context& x, Value self, Opt<int64_t> dim, bool keepdim) {
      return arg_extreme(x, e, self, dim, keepdim);
    });
  }
  r.op("aten::aminmax", min_max);
  r.op("aten::_aminmax",
       [](Context& x, Value self) { return min_max(x, self, std::nullopt, false); });
  r.op("aten::_aminmax.dim", [](Context& x, Value self, int64_t dim, bool keepdim) {
    return min_max(x, self, dim, keepdim);
  });

  register_truth(r, "aten::all", true);
  register_truth(r, "aten::any", false);
  r.op("aten::count_nonzero.dim_IntList", [](Context& x, Value self, const Dims& dim) {
    return sum_over(x, x.convert(self, DType::kBool), dim, false, std::nullopt);
  });

  fold_orders(r.op("aten::linalg_vector_norm", vector_norm), "ord");
  fold_orders(r.op("aten::linalg__powsum",
                   [](Context& x, Value self, const Scalar& p, const Opt<Dims>& dim, bool keepdim,
                      Opt<DType> dtype) {
                     const DType t = dtype.value_or(self.dtype());
                     check_dtype(x, is_inexact(t), "powsum_cpu", t);
                     return x.convert(
                         p_norm(x, x.convert(self, t), p, x.axes(dim, self), keepdim, false),
                         hlo::real_type(t));
                   }),
              "ord");
  fold_orders(r.op("aten::norm.ScalarOpt_dim",
                   [](Context& x, Value self, const Opt<Scalar>& p, const Dims& dim, bool keepdim) {
                     return old_norm(x, self, p, dim, keepdim, std::nullopt);
                   }),
              "p");
  fold_orders(r.op("aten::norm.ScalarOpt_dim_dtype",
                   [](Context& x, Value self, const Opt<Scalar>& p, const Dims& dim, bool keepdim,
                      DType dtype) { return old_norm(x, self, p, dim, keepdim, dtype); }),
              "p");
  r.op("aten::renorm", renorm);
  r.op("aten::logsumexp", [](Context& x, Value self, const Dims& dim, bool keepdim) {
     return log_sum_exp(x, self, dim, keepdim);
   }).out_casts(true);

  register_variance(r, "aten::var", false);
  register_variance(r, "aten::std", true);
  r.op("aten::hash_tensor", hash_tensor);
  r.op("aten::trace", trace);
  register_segment(r);
  register_jagged(r);
}

}  // namespace tpu::aten
