#include "ops/context.h"

#include <algorithm>
#include <cmath>
#include <limits>
#include <numbers>

namespace tpu::ops {
namespace {

constexpr int64_t kInt32Max = std::numeric_limits<int32_t>::max();

bool is_narrow_float(DType t) { return hlo::is_float(t) && hlo::compute_type(t) != t; }

// Where x86's conversion gives the smallest integer (NaN and everything above the range) StableHLO
// gives 0 and the largest; below the range the two agree.
Value truncate(hlo::Builder& b, Value v, DType t) {
  const double limit = std::ldexp(1.0, t == DType::kI64 ? 63 : 31);
  const Value in_range = b.compare(Cmp::kLt, v, b.splat(v.type(), limit));
  return b.select(in_range, b.convert(v, t), b.splat({t, v.dims()}, hlo::integer_min(t)));
}

Value float_to_integer(hlo::Builder& b, Value v, DType t) {
  switch (t) {
    case DType::kI64:
    case DType::kI32: return truncate(b, v, t);
    case DType::kU64:  // negative numbers wrap, the others use the whole range
      return b.select(b.compare(Cmp::kLt, v, b.splat(v.type(), 0.0)),
                      b.convert(b.convert(v, DType::kI64), t), b.convert(v, t));
    case DType::kU32: return b.convert(truncate(b, v, DType::kI64), t);
    default:
      // PyTorch goes through int64 for uint8. For float32 int32 gives the same low bits: from 2^31
      // on they are all zero.
      return b.convert(
          truncate(b, v, v.dtype() == DType::kF64 && t == DType::kU8 ? DType::kI64 : DType::kI32),
          t);
  }
}

// The nearest power of two as PyTorch rounds: the sign is dropped, zero becomes the least power,
// and halfway is up. XLA makes NaN of zero and of negative numbers.
Value float_to_scale(hlo::Builder& b, Value v) {
  const Value wide = b.convert(v, DType::kF32);
  const Value bits = b.bitcast_convert(wide, {DType::kU32, v.dims()});
  const auto splat = [&](int64_t n) { return b.splat(bits.type(), n); };
  const Value magnitude = b.binary(Op::kAnd, bits, splat(0x7fffffff));
  // Half a unit of the exponent carries into it; below it are subnormals, of which halfway is down.
  const Value half =
      b.select(b.compare(Cmp::kLt, magnitude, splat(0x800000)), splat(0x3fffff), splat(0x400000));
  const Value exponent = b.binary(Op::kShiftRightLogical, b.add(magnitude, half), splat(23));
  const Value special = b.compare(Cmp::kGe, magnitude, splat(0x7f800000));  // infinity, NaN
  const Value code = b.convert(b.select(special, splat(255), exponent), DType::kU8);
  return b.bitcast_convert(code, {DType::kF8E8M0FNU, v.dims()});
}

// Integers are exact whatever the type they are summed in, as long as it wraps no earlier.
DType integer_dot_type(DType t) {
  if (hlo::size_bytes(t) >= 4) return t;
  return hlo::is_unsigned(t) ? DType::kU32 : DType::kI32;
}

bool fits_integer(int64_t i, DType t) {
  if (hlo::size_bytes(t) == 8) return true;
  const int64_t high = hlo::integer_max(t);
  return i <= high && i >= (hlo::is_unsigned(t) ? -high : hlo::integer_min(t));
}

bool fits_real(double d, DType t) {
  const bool is_float = hlo::is_float(t);
  if (std::isnan(d)) return is_float;
  const bool has_infinity = is_float && (!hlo::is_float8(t) || t == DType::kF8E5M2);
  if (std::isinf(d)) return has_infinity;
  if (is_float) {
    const double high = hlo::float_max(t);
    return d <= high && d >= (t == DType::kF8E8M0FNU ? std::ldexp(1.0, -127) : -high);
  }
  // The limits of 64 bits round to the next power of two.
  if (t == DType::kU64) return d >= 0 && d <= std::ldexp(1.0, 64);
  return d >= static_cast<double>(hlo::integer_min(t)) &&
         d <= static_cast<double>(hlo::integer_max(t));
}

bool fits(const Number& n, DType t) {
  if (hlo::is_bool(t) || n.kind == NumberKind::kBool) return true;
  if (hlo::is_integer(t) && n.kind == NumberKind::kInt) return fits_integer(n.i, t);
  if (hlo::is_complex(t))
    return fits_real(n.d, hlo::real_type(t)) && fits_real(n.imag, hlo::real_type(t));
  return n.imag == 0 && fits_real(n.d, t);
}

}  // namespace

void check_fits(const Number& n, DType t) {
  TPU_CHECK(fits(n, t), "value cannot be converted to type ", cpp_type_name(t),
            " without overflow");
}

void Context::fail(ErrorKind kind, std::string text) { throw Error(kind, std::move(text)); }

// ---- Conversion and broadcasting.

Value Context::convert(Value v, DType t) {
  const DType from = v.dtype();
  if (from == t) return v;
  if (hlo::is_complex(from)) {
    if (hlo::is_complex(t)) return b.convert(v, t);
    if (hlo::is_bool(t)) return b.logical_or(convert(b.real(v), t), convert(b.imag(v), t));
    return convert(b.real(v), t);
  }
  if (hlo::is_complex(t)) {
    const Value re = convert(v, hlo::real_type(t));
    return b.complex(re, b.splat(re.type(), 0));
  }
  // XLA takes a product with a converted bool for a selection, which makes zeros of inf and NaN.
  if (hlo::is_bool(from) && hlo::is_float(t))
    return b.select(v, b.splat({t, v.dims()}, 1), b.splat({t, v.dims()}, 0));
  if (is_narrow_float(from) && !hlo::is_float(t)) return convert(b.convert(v, DType::kF32), t);
  if (hlo::is_bool(t)) return b.compare(Cmp::kNe, v, b.splat(v.type(), 0));
  if (hlo::is_float(from) && hlo::is_integer(t)) return float_to_integer(b, v, t);
  // PyTorch rounds to float32 first.
  if (is_narrow_float(t) && hlo::compute_type(from) != DType::kF32) v = b.convert(v, DType::kF32);
  if (t == DType::kF8E4M3FN &&
      hlo::float_max(v.dtype()) > hlo::float_max(t)) {  // saturates, inf too
    const double largest = hlo::float_max(t);
    v = b.clamp(b.constant(v.dtype(), -largest), v, b.constant(v.dtype(), largest));
  }
  if (t == DType::kF8E8M0FNU) return float_to_scale(b, v);
  return b.convert(v, t);
}

Value Context::broadcast(Value v, const Dims& dims) {
  if (v.dims() == dims) return v;
  const auto rank = static_cast<int64_t>(dims.size());
  const int64_t shift = rank - v.rank();
  check(shift >= 0, "The expanded size has ", rank, " dimensions, the tensor has ", v.rank());
  Dims map;
  for (int64_t i = 0; i < v.rank(); ++i) {
    const int64_t to = dims[static_cast<size_t>(i + shift)];
    check(v.dim(i) == to || v.dim(i) == 1, "The expanded size of the tensor (", to,
          ") must match the existing size (", v.dim(i), ") at non-singleton dimension ", i + shift,
          ".  Target sizes: ", dims, ".  Tensor sizes: ", v.dims());
    map.push_back(i + shift);
  }
  return b.broadcast_in_dim(v, dims, map);
}

Dims Context::broadcast_dims(std::initializer_list<Dims> shapes) const {
  return broadcast_dims(std::vector<Dims>(shapes));
}

Dims Context::broadcast_dims(const std::vector<Dims>& shapes) const {
  Dims out;
  for (const Dims& s : shapes) {
    if (s.size() > out.size()) out.insert(out.begin(), s.size() - out.size(), 1);
    const size_t shift = out.size() - s.size();
    for (size_t i = 0; i < s.size(); ++i) {
      int64_t& size = out[i + shift];
      check(size == s[i] || size == 1 || s[i] == 1, "The size of tensor a (", size,
            ") must match the size of tensor b (", s[i], ") at non-singleton dimension ",
            i + shift);
      if (size == 1) size = s[i];
    }
  }
  return out;
}

// ---- Numbers.

Value Context::operand(const Scalar& s, DType t) {
  if (s.kind == NumberKind::kComplex) {
    const bool wide = t == DType::kF64 || t == DType::kC128;
    return convert(host_.scalar(b, s.operand, wide ? DType::kC128 : DType::kC64), t);
  }
  DType carrier = DType::kF32;
  if (hlo::is_bool(t)) {
    carrier = DType::kBool;
  } else if (hlo::is_integer(t)) {
    carrier = hlo::size_bytes(t) == 8 || t == DType::kU32 ? DType::kI64 : DType::kI32;
  } else if (hlo::real_type(t) == DType::kF64) {
    carrier = DType::kF64;
  }
  return convert(host_.scalar(b, s.operand, carrier), t);
}

Value Context::scalar(const Scalar& s, DType t) {
  if (s.known) return scalar(*s.known, t);
  check_numbers([t](const Number& n) { check_fits(n, t); }, s);
  return operand(s, t);
}

Value Context::wrapped_scalar(const Scalar& s, DType t) {
  return s.known ? scalar(*s.known, t) : operand(s, t);
}

Value Context::scalar(const Number& n, DType t) {
  check_fits(n, t);
  if (hlo::is_bool(t)) return b.constant(t, static_cast<int64_t>(n.d != 0 || n.imag != 0));
  if (hlo::is_complex(t)) return b.constant(t, std::complex<double>(n.d, n.imag));
  if (hlo::is_integer(t)) return b.constant(t, n.to_int());
  if (hlo::is_float8(t)) return convert(scalar(n, DType::kF32), t);
  return n.is_integral() ? b.constant(t, n.i) : b.constant(t, n.d);
}

// ---- Axes.

int64_t Context::axis(int64_t dim, int64_t rank) const {
  const int64_t n = std::max<int64_t>(rank, 1);
  check_index(dim >= -n && dim < n, "Dimension out of range (expected to be in range of [", -n,
              ", ", n - 1, "], but got ", dim, ")");
  return dim < 0 ? dim + n : dim;
}

Dims Context::axes(const Opt<Dims>& dims, Value v) const {
  if (!dims || dims->empty()) return all_axes(v);
  Dims out;
  for (const int64_t d : *dims) out.push_back(axis(d, v));
  std::sort(out.begin(), out.end());
  const auto twice = std::adjacent_find(out.begin(), out.end());
  if (twice != out.end()) {
    fail(ErrorKind::kInvalid, cat("dim ", *twice, " appears multiple times in the list of dims"));
  }
  return v.rank() == 0 ? Dims{} : out;
}

Dims Context::all_axes(Value v) const {
  Dims out;
  for (int64_t i = 0; i < v.rank(); ++i) out.push_back(i);
  return out;
}

Dims Context::reduced(const Dims& dims, const Dims& axes, bool keepdim) {
  Dims out;
  for (size_t i = 0; i < dims.size(); ++i) {
    if (std::find(axes.begin(), axes.end(), static_cast<int64_t>(i)) == axes.end()) {
      out.push_back(dims[i]);
    } else if (keepdim) {
      out.push_back(1);
    }
  }
  return out;
}

// ---- Building blocks.

Value Context::reduce(Value v, Value init, const Dims& axes, bool keepdim, Op op) {
  if (axes.empty()) return v;
  const Value r = b.reduce(v, init, axes, op);
  return keepdim ? keep_dims(r, v.dims(), axes) : r;
}

Value Context::sum(Value v, const Dims& axes, bool keepdim) {
  const Value wide = to_compute(v);
  return convert(reduce(wide, b.constant(wide.dtype(), 0), axes, keepdim, Op::kAdd), v.dtype());
}

Value Context::max(Value v, const Dims& axes, bool keepdim) {
  return reduce(v, b.min_value(v.dtype()), axes, keepdim, Op::kMaximum);
}

Value Context::min(Value v, const Dims& axes, bool keepdim) {
  return reduce(v, b.max_value(v.dtype()), axes, keepdim, Op::kMinimum);
}

Value Context::any(Value v, const Dims& axes, bool keepdim) {
  return reduce(v, b.constant(DType::kBool, 0), axes, keepdim, Op::kOr);
}

Value Context::all(Value v, const Dims& axes, bool keepdim) {
  return reduce(v, b.constant(DType::kBool, 1), axes, keepdim, Op::kAnd);
}

Value Context::keep_dims(Value reduced_value, const Dims& original, const Dims& axes) {
  return b.reshape(reduced_value, reduced(original, axes, true));
}

Value Context::unsqueeze(Value v, int64_t dim) {
  Dims d = v.dims();
  d.insert(d.begin() + axis(dim, v.rank() + 1), 1);
  return b.reshape(v, d);
}

Value Context::squeeze(Value v, int64_t dim) {
  Dims d = v.dims();
  const int64_t i = axis(dim, v);
  if (d.empty() || d[static_cast<size_t>(i)] != 1) return v;
  d.erase(d.begin() + i);
  return b.reshape(v, d);
}

Value Context::is_nan(Value v) {
  if (hlo::is_complex(v.dtype())) return b.logical_or(is_nan(b.real(v)), is_nan(b.imag(v)));
  if (hlo::is_integral(v.dtype())) return zeros({DType::kBool, v.dims()});
  return b.compare(Cmp::kNe, v, v);
}

Value Context::dot(Value lhs, Value rhs, const hlo::DotDims& d) {
  const DType t = lhs.dtype();
  check(t == rhs.dtype(), "expected both operands to have the same dtype, but got ",
        hlo::torch_name(t), " and ", hlo::torch_name(rhs.dtype()));
  if (hlo::is_bool(t)) {  // a count of products, exact enough to be told from 0 in any float type
    const Value count = b.dot_general(b.convert(lhs, DType::kBF16), b.convert(rhs, DType::kBF16), d,
                                      hlo::Precision::kDefault, DType::kF32);
    return convert(count, t);
  }
  if (hlo::is_integer(t)) {
    return b.convert(b.dot_general(lhs, rhs, d, hlo::Precision::kDefault, integer_dot_type(t)), t);
  }
  // One pass over bfloat16 operands is exact already; float16 needs more bits than one pass has.
  const auto p = t == DType::kBF16 || hlo::is_float8(t) ? hlo::Precision::kDefault : precision();
  return b.convert(b.dot_general(lhs, rhs, d, p, hlo::compute_type(t)), t);
}

Value Context::matmul(Value lhs, Value rhs) {
  const int64_t r = lhs.rank();
  check(r >= 2 && rhs.rank() == r, "matmul needs two tensors of one rank of at least 2, got ",
        lhs.dims(), " and ", rhs.dims());
  hlo::DotDims d;
  for (int64_t i = 0; i < r - 2; ++i) {
    d.lhs_batch.push_back(i);
    d.rhs_batch.push_back(i);
  }
  d.lhs_contract = {r - 1};
  d.rhs_contract = {r - 2};
  return dot(lhs, rhs, d);
}

Value Context::binary(Op op, Value lhs, Value rhs) {
  const Dims d = broadcast_dims({lhs.dims(), rhs.dims()});
  return b.binary(op, broadcast(lhs, d), broadcast(rhs, d));
}

Value Context::compare(Cmp c, Value lhs, Value rhs) {
  const Dims d = broadcast_dims({lhs.dims(), rhs.dims()});
  return b.compare(c, broadcast(lhs, d), broadcast(rhs, d));
}

Value Context::select(Value pred, Value on_true, Value on_false) {
  const Dims d = broadcast_dims({pred.dims(), on_true.dims(), on_false.dims()});
  return b.select(pred.rank() == 0 ? pred : broadcast(pred, d), broadcast(on_true, d),
                  broadcast(on_false, d));
}

// ---- Random numbers.

Value Context::random_bits(DType t, const Dims& dims) {
  check(t == DType::kU32 || t == DType::kU64, "random bits come as uint32 or uint64, not ",
        hlo::torch_name(t));
  const Type type{t, dims};
  const int64_t draws = type.numel() * (t == DType::kU64 ? 2 : 1);
  const Value state = host_.random_state(b, draws);
  return b.rng_bit_generator(hlo::RngAlgorithm::kPhilox, state, type).second;
}

Value Context::uniform(DType t, const Dims& dims) {
  const Type type{t, dims};
  if (type.numel() == 0) return zeros(type);
  // Resolution of PyTorch's CPU generator: the significand's bits, from one draw (float64: two).
  const int bits = t == DType::kF64    ? 53
                   : t == DType::kF32  ? 24
                   : t == DType::kF16  ? 11
                   : t == DType::kBF16 ? 8
                                       : 0;
  check_supported(bits > 0, "uniform numbers of type ", hlo::torch_name(t),
                  " are not supported; draw float32 and convert");
  const bool wide = t == DType::kF64;
  const Value raw = random_bits(wide ? DType::kU64 : DType::kU32, dims);
  const Value top = b.binary(Op::kShiftRightLogical, raw, like(raw, (wide ? 64 : 32) - bits));
  // Below 2^31 (2^63) signed and unsigned agree, and signed conversion is the native one.
  const Value whole = b.convert(b.bitcast_convert(top, {wide ? DType::kI64 : DType::kI32, dims}),
                                hlo::compute_type(t));
  return b.convert(b.mul(whole, like(whole, std::ldexp(1.0, -bits))), t);
}

Value Context::normal(DType t, const Dims& dims) {
  if (hlo::is_complex(t)) {  // the two parts share the variance
    Dims d = dims;
    d.insert(d.begin(), 2);
    const Value n = normal(hlo::real_type(t), d);
    const Value half = b.mul(n, like(n, std::numbers::sqrt2 / 2));
    return b.complex(b.reshape(b.slice_dim(half, 0, 0, 1), dims),
                     b.reshape(b.slice_dim(half, 0, 1, 2), dims));
  }
  const Type type{t, dims};
  const int64_t n = type.numel();
  if (n == 0) return zeros(type);
  check_supported(hlo::is_float(t) && !hlo::is_float8(t), "normal numbers of type ",
                  hlo::torch_name(t), " are not supported; draw float32 and convert");
  // Box-Muller: a pair of uniform numbers gives a pair of normal ones.
  const int64_t pairs = (n + 1) / 2;
  const Value u = uniform(hlo::compute_type(t), {2, pairs});
  const Value u1 = b.slice_dim(u, 0, 0, 1);
  const Value u2 = b.slice_dim(u, 0, 1, 2);
  const Value log_u = b.unary(Op::kLog, b.sub(like(u1, 1), u1));  // 1 - u1 is never 0
  const Value radius = b.unary(Op::kSqrt, b.mul(log_u, like(log_u, -2)));
  const Value angle = b.mul(u2, like(u2, 2 * std::numbers::pi));
  const Value both = b.concatenate(
      {b.mul(radius, b.unary(Op::kCosine, angle)), b.mul(radius, b.unary(Op::kSine, angle))}, 0);
  const Value flat = b.slice_dim(b.reshape(both, {2 * pairs}), 0, 0, n);
  return b.convert(b.reshape(flat, dims), t);
}

// ---- Index ranges.

BadIndex out_of_bounds(int64_t dim, int64_t size, ErrorKind kind) {
  return {kind, cat("index {} is out of bounds for dimension ", dim, " with size ", size)};
}

Value Context::checked_index(Value index, int64_t size, int64_t dim, bool wrap) {
  return checked(index, size, wrap, out_of_bounds(dim, size), false);
}
Value Context::checked_place(Value index, int64_t size, int64_t dim, bool wrap) {
  return checked(index, size, wrap, out_of_bounds(dim, size), true);
}
Value Context::checked_index(Value index, int64_t size, bool wrap, const BadIndex& error) {
  return checked(index, size, wrap, error, false);
}
Value Context::checked_place(Value index, int64_t size, bool wrap, const BadIndex& error) {
  return checked(index, size, wrap, error, true);
}

Value Context::checked(Value index, int64_t size, bool wrap, const BadIndex& error, bool written) {
  check_index(hlo::is_integer(index.dtype()), "tensors used as indices must be integers, got ",
              hlo::torch_name(index.dtype()));
  if (hlo::size_bytes(index.dtype()) < 4) index = b.convert(index, DType::kI32);
  if (hlo::is_unsigned(index.dtype())) index = b.convert(index, DType::kI64);
  const DType t = index.dtype();
  Value bad;
  if (index.numel() > 0) {
    // One reduction tells both whether and which: the largest offender, or the type's smallest
    // value.
    const int64_t limit = hlo::integer_max(t);
    const Value none = b.splat(index.type(), hlo::integer_min(t));
    bad = b.compare(Cmp::kLt, index, b.splat(index.type(), wrap ? -std::min(size, limit) : 0));
    if (size <= limit) {
      bad = b.logical_or(bad, b.compare(Cmp::kGe, index, b.splat(index.type(), size)));
    }
    const Value above_none = b.maximum(index, b.splat(index.type(), hlo::integer_min(t) + 1));
    const Value worst = max(b.select(bad, above_none, none), all_axes(index));
    host_.assertion(b, b.compare(Cmp::kNe, worst, b.constant(t, hlo::integer_min(t))),
                    b.convert(worst, DType::kI64), error.kind, error.text, !written);
  }
  index = b.convert(index, size <= kInt32Max ? DType::kI32 : DType::kI64);  // keeps a good index
  const auto splat = [&](int64_t v) { return b.splat(index.type(), v); };
  if (wrap) {
    index = b.select(b.compare(Cmp::kLt, index, splat(0)), b.add(index, splat(size)), index);
  }
  if (written) return bad ? b.select(bad, splat(size), index) : index;
  const DType it = index.dtype();
  return b.clamp(b.constant(it, 0), index, b.constant(it, std::max<int64_t>(size - 1, 0)));
}

std::string with_number(std::string text, std::string_view number) {
  if (const size_t at = text.find("{}"); at != std::string::npos) text.replace(at, 2, number);
  return text;
}

void Context::assert_none(Value violated, const std::string& text, ErrorKind kind) {
  if (violated.numel() == 0) return;
  host_.assertion(b, any(violated, all_axes(violated)), b.constant(DType::kI64, 0), kind, text,
                  true);
}

const Subgraphs& Context::subgraphs() const {
  TPU_CHECK(options_.subgraphs, ErrorKind::kInternal, "there are no traced subgraphs here");
  return *options_.subgraphs;
}

Values Context::run(int64_t subgraph, const Values& arguments, Value random,
                    std::vector<Assertion>& assertions) {
  return subgraphs().lower(b, subgraph, arguments, random, options_.target, assertions);
}

}  // namespace tpu::ops
