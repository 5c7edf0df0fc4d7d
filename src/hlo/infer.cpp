#include "hlo/infer.h"

#include <algorithm>

#include "hlo/infer_checks.h"

namespace tpu::hlo::infer {
namespace {

// Classes of element types, as bits.
enum Class : uint8_t {
  kBoolean = 1,
  kUnsigned = 2,
  kSigned = 4,
  kFloating = 8,
  kComplexNumber = 16,
  kAnyInteger = kUnsigned | kSigned,
  kBits = kBoolean | kAnyInteger,
  kInexact = kFloating | kComplexNumber,
  kNumber = kAnyInteger | kInexact,
  kAny = kBoolean | kNumber,
};

Class class_of(DType t) {
  if (is_bool(t)) return kBoolean;
  if (is_unsigned(t)) return kUnsigned;
  if (is_signed_integer(t)) return kSigned;
  return is_float(t) ? kFloating : kComplexNumber;
}

// What an elementwise op takes: the tables of inputs in the specification, for CHLO its ODS. Some
// take complex numbers there that XLA refuses (bessel_i1e, cbrt; on TPU maximum, minimum) or
// crashes on (remainder).
uint8_t accepted_classes(Op op) {
  switch (op) {
    case Op::kAbs:
    case Op::kSign: return kSigned | kInexact;
    case Op::kNegate: return kNumber;
    case Op::kNot: return kBits;
    case Op::kCountLeadingZeros:
    case Op::kPopulationCount: return kAnyInteger;
    case Op::kBesselI1e:
    case Op::kCbrt:
    case Op::kCeil:
    case Op::kFloor:
    case Op::kRoundNearestAfz:
    case Op::kRoundNearestEven:
    case Op::kDigamma:
    case Op::kErf:
    case Op::kErfInv:
    case Op::kErfc:
    case Op::kIsInf:
    case Op::kIsNegInf:
    case Op::kIsPosInf:
    case Op::kLgamma:
    case Op::kNextAfter:
    case Op::kPolygamma:
    case Op::kZeta:
    case Op::kIsFinite:
    case Op::kReducePrecision: return kFloating;
    case Op::kAdd:
    case Op::kMultiply: return kAny;
    case Op::kMaximum:
    case Op::kMinimum: return kBits | kFloating;
    case Op::kAnd:
    case Op::kOr:
    case Op::kXor: return kBits;
    case Op::kRemainder: return kAnyInteger | kFloating;
    case Op::kDivide:
    case Op::kPower:
    case Op::kSubtract: return kNumber;
    case Op::kShiftLeft:
    case Op::kShiftRightArithmetic:
    case Op::kShiftRightLogical: return kAnyInteger;
    default: return kInexact;
  }
}

void check_class(Op op, const Type& x, uint8_t accepted) {
  if ((class_of(x.dtype) & accepted) != 0) [[likely]]
    return;
  std::vector<std::string_view> names;
  if ((accepted & kBoolean) != 0) names.emplace_back("bool");
  if ((accepted & kAnyInteger) == kAnyInteger) {
    names.emplace_back("integer");
  } else if ((accepted & kSigned) != 0) {
    names.emplace_back("signed integer");
  }
  if ((accepted & kFloating) != 0) names.emplace_back("floating");
  if ((accepted & kComplexNumber) != 0) names.emplace_back("complex");
  TPU_THROW(ErrorKind::kInvalid, op, " takes ", join(names, " or "), " elements, got ", x,
            "; convert the operand");
}

void check_is_bool(Op op, std::string_view what, const Type& t) {
  TPU_CHECK(is_bool(t.dtype), op, " needs a bool ", what, ", got ", t, "; compare it with zero");
}

}  // namespace

// ---- Elementwise ----

// abs (C1-C2), others (C1) type(operand) = type(result).
Type unary(Op op, const Type& x) {
  TPU_CHECK(op <= Op::kSinh, ErrorKind::kInternal, op, " is no op of one operand");
  check_class(op, x, accepted_classes(op));
  switch (op) {
    case Op::kAbs: return {real_type(x.dtype), x.dims};
    case Op::kIsInf:
    case Op::kIsNegInf:
    case Op::kIsPosInf: return {DType::kBool, x.dims};
    default: return x;
  }
}

// add (C1), subtract (C1), ...: type(lhs) = type(rhs) = type(result).
Type binary(Op op, const Type& a, const Type& b) {
  TPU_CHECK(op >= Op::kAdd && op <= Op::kZeta, ErrorKind::kInternal, op,
            " is no op of two operands");
  check_same(op, "operands", a, b);
  check_class(op, a, accepted_classes(op));
  return a;
}

// compare (C1-C3). Only equality is defined for complex numbers.
Type compare(Cmp c, const Type& a, const Type& b, bool total_order) {
  check_same(Op::kCompare, "operands", a, b);
  TPU_CHECK(!is_complex(a.dtype) || c == Cmp::kEq || c == Cmp::kNe, Op::kCompare, " cannot order ",
            a, ": complex numbers have no order; compare abs() or real parts");
  TPU_CHECK(!total_order || is_float(a.dtype), Op::kCompare, " has a total order for floating ",
            "elements only, got ", a, "; compare without it");
  return {DType::kBool, a.dims};
}

// select (C1-C2).
Type select(const Type& pred, const Type& on_true, const Type& on_false) {
  check_is_bool(Op::kSelect, "predicate", pred);
  check_same(Op::kSelect, "branches", on_true, on_false);
  TPU_CHECK(pred.rank() == 0 || pred.dims == on_true.dims, Op::kSelect,
            " has a predicate of sizes ", pred.dims, " for values of sizes ", on_true.dims,
            "; broadcast the predicate");
  return on_true;
}

// clamp (C1-C4). XLA has none for bool on TPU.
Type clamp(const Type& low, const Type& x, const Type& high) {
  check_class(Op::kClamp, x, kAnyInteger | kFloating);
  for (const Type* bound : {&low, &high}) {
    check_same_dtype(Op::kClamp, "bounds and operand", bound->dtype, x.dtype);
    TPU_CHECK(bound->rank() == 0 || bound->dims == x.dims, Op::kClamp, " has a bound of sizes ",
              bound->dims, " for an operand of sizes ", x.dims, "; broadcast the bound");
  }
  return x;
}

// convert (C1). XLA has no conversion that drops an imaginary part.
Type convert(const Type& x, DType to) {
  TPU_CHECK(!is_complex(x.dtype) || is_complex(to), Op::kConvert, " cannot make ", to, " from ", x,
            "; take its real part first");
  return {to, x.dims};
}

// bitcast_convert (C1-C2).
Type bitcast_convert(const Type& x, Type to) {
  constexpr Op kOp = Op::kBitcastConvert;
  TPU_CHECK(!is_bool(x.dtype) && !is_bool(to.dtype), kOp, " cannot reinterpret ", x, " as ", to,
            ": a bool has no bits of its own; convert it");
  TPU_CHECK(is_complex(x.dtype) == is_complex(to.dtype), kOp, " cannot reinterpret ", x, " as ", to,
            ": only one is complex; use real(), imag() or complex()");
  const auto from_size = static_cast<int64_t>(size_bytes(x.dtype));
  const auto to_size = static_cast<int64_t>(size_bytes(to.dtype));
  Dims expected = x.dims;
  if (to_size < from_size) {
    expected.push_back(from_size / to_size);
  } else if (to_size > from_size) {
    TPU_CHECK(x.rank() > 0 && x.dims.back() == to_size / from_size, kOp, " needs a last dimension ",
              "of ", to_size / from_size, " to make ", to.dtype, " from ", x, "; reshape it");
    expected.pop_back();
  }
  TPU_CHECK(to.dims == expected, kOp, " of ", x, " to ", to.dtype, " has sizes ", expected,
            ", not ", to.dims, "; reshape the result");
  return to;
}

// complex (C1-C3).
Type complex(const Type& real, const Type& imag) {
  check_same(Op::kComplex, "parts", real, imag);
  TPU_CHECK(real.dtype == DType::kF32 || real.dtype == DType::kF64, Op::kComplex,
            " takes float32 or float64 parts, got ", real, "; convert them");
  return {complex_type(real.dtype), real.dims};
}

// real, imag (C1-C2).
Type real_or_imag(const Type& x) {
  check_class(Op::kReal, x, kInexact);
  return {real_type(x.dtype), x.dims};
}

// is_finite (C1).
Type is_finite(const Type& x) {
  check_class(Op::kIsFinite, x, kFloating);
  return {DType::kBool, x.dims};
}

// reduce_precision (C1-C3).
Type reduce_precision(const Type& x, int64_t exponent_bits, int64_t mantissa_bits) {
  check_class(Op::kReducePrecision, x, kFloating);
  TPU_CHECK(exponent_bits >= 1 && mantissa_bits >= 0, Op::kReducePrecision,
            " needs 1 exponent bit or more and 0 mantissa bits or more, got ", exponent_bits,
            " and ", mantissa_bits, "; use a real format");
  return x;
}

// ---- Shape ----

// iota (C1).
Type iota(Type t, int64_t dim) {
  check_sizes(Op::kIota, t.dims);
  check_axes(Op::kIota, "dimension", {dim}, t.rank());
  check_class(Op::kIota, t, kNumber);
  return t;
}

// broadcast_in_dim (C1-C5).
Type broadcast_in_dim(const Type& x, Dims dims, const Dims& broadcast_dims) {
  constexpr Op kOp = Op::kBroadcastInDim;
  check_sizes(kOp, dims);
  check_length(kOp, "broadcast dimensions", broadcast_dims, x.dims.size());
  check_axes(kOp, "broadcast dimensions", broadcast_dims, static_cast<int64_t>(dims.size()));
  check_unique(kOp, "broadcast dimensions", broadcast_dims);
  for (size_t i = 0; i < broadcast_dims.size(); ++i) {
    const int64_t to = dims[static_cast<size_t>(broadcast_dims[i])];
    TPU_CHECK(x.dims[i] == 1 || x.dims[i] == to, "sizes ", x.dims, " do not broadcast to ", dims,
              ": dimension ", i, " has ", x.dims[i], " where ", to,
              " is needed; only a dimension of size 1 stretches");
  }
  return {x.dtype, std::move(dims)};
}

// reshape (C1-C2).
Type reshape(const Type& x, Dims dims) {
  check_sizes(Op::kReshape, dims);
  TPU_CHECK(product(dims) == x.numel(), "sizes ", dims, " hold ", product(dims), " elements, ", x,
            " has ", x.numel(), "; choose sizes with the same product");
  return {x.dtype, std::move(dims)};
}

// transpose (C1-C3).
Type transpose(const Type& x, const Dims& permutation) {
  check_length(Op::kTranspose, "permutation entries", permutation, x.dims.size());
  check_axes(Op::kTranspose, "permutation", permutation, x.rank());
  check_unique(Op::kTranspose, "permutation", permutation);
  Type result{x.dtype, {}};
  result.dims.reserve(permutation.size());
  for (const int64_t p : permutation) result.dims.push_back(x.dims[static_cast<size_t>(p)]);
  return result;
}

// reverse (C1-C3).
Type reverse(const Type& x, const Dims& dims) {
  check_axes(Op::kReverse, "dimensions", dims, x.rank());
  check_unique(Op::kReverse, "dimensions", dims);
  return x;
}

// slice (C1-C5).
Type slice(const Type& x, const Dims& starts, const Dims& limits, const Dims& strides) {
  constexpr Op kOp = Op::kSlice;
  check_length(kOp, "starts", starts, x.dims.size());
  check_length(kOp, "limits", limits, x.dims.size());
  if (!strides.empty()) check_length(kOp, "strides", strides, x.dims.size());
  check_positive(kOp, "strides", strides);
  Type result = x;
  for (size_t i = 0; i < starts.size(); ++i) {
    TPU_CHECK(0 <= starts[i] && starts[i] <= limits[i] && limits[i] <= x.dims[i], kOp, " from ",
              starts[i], " to ", limits[i], " leaves dimension ", i, " of size ", x.dims[i],
              "; use 0 <= start <= limit <= size");
    const int64_t stride = at_or(strides, i, 1), length = limits[i] - starts[i];
    result.dims[i] = length / stride + (length % stride != 0 ? 1 : 0);
  }
  return result;
}

namespace {

void check_starts(Op op, const Type& x, const TypeRefs& starts) {
  TPU_CHECK(starts.size() == x.dims.size(), op, " needs ", x.dims.size(), " start indices for ", x,
            ", got ", starts.size(), "; give one for each dimension");
  for (const Type* s : starts) {
    TPU_CHECK(s->rank() == 0 && is_integer(s->dtype), op, " needs rank-0 integer starts, got ", *s,
              "; reshape and convert them");
    check_same_dtype(op, "starts", starts[0]->dtype, s->dtype);
  }
}

}  // namespace

// dynamic_slice (C1-C5).
Type dynamic_slice(const Type& x, const TypeRefs& starts, const Dims& sizes) {
  constexpr Op kOp = Op::kDynamicSlice;
  check_starts(kOp, x, starts);
  check_length(kOp, "sizes", sizes, x.dims.size());
  for (size_t i = 0; i < sizes.size(); ++i) {
    TPU_CHECK(0 <= sizes[i] && sizes[i] <= x.dims[i], kOp, " takes ", sizes[i],
              " elements of dimension ", i, " of size ", x.dims[i], "; use 0 to ", x.dims[i]);
  }
  return {x.dtype, sizes};
}

// dynamic_update_slice (C1-C6).
Type dynamic_update_slice(const Type& x, const Type& update, const TypeRefs& starts) {
  constexpr Op kOp = Op::kDynamicUpdateSlice;
  check_starts(kOp, x, starts);
  check_same_dtype(kOp, "operand and update", x.dtype, update.dtype);
  TPU_CHECK(update.rank() == x.rank(), kOp, " needs an update of rank ", x.rank(), ", got ", update,
            "; reshape it");
  for (size_t i = 0; i < x.dims.size(); ++i) {
    TPU_CHECK(update.dims[i] <= x.dims[i], kOp, " has an update of ", update.dims[i],
              " elements for dimension ", i, " of size ", x.dims[i], "; use a smaller update");
  }
  return x;
}

// pad (C1-C4).
Type pad(const Type& x, const Type& value, const Dims& low, const Dims& high,
         const Dims& interior) {
  constexpr Op kOp = Op::kPad;
  TPU_CHECK(value.rank() == 0, kOp, " needs a rank-0 padding value, got ", value, "; reshape it");
  check_same_dtype(kOp, "operand and padding value", x.dtype, value.dtype);
  check_length(kOp, "low paddings", low, x.dims.size());
  check_length(kOp, "high paddings", high, x.dims.size());
  if (!interior.empty()) check_length(kOp, "interior paddings", interior, x.dims.size());
  Type result = x;
  for (size_t i = 0; i < low.size(); ++i) {
    const int64_t between = at_or(interior, i, 0);
    TPU_CHECK(between >= 0, kOp, " needs interior paddings of 0 or more, got ", interior,
              "; use slice to drop elements");
    const __int128 size = static_cast<__int128>(x.dims[i]) + low[i] + high[i] +
                          static_cast<__int128>(std::max<int64_t>(x.dims[i] - 1, 0)) * between;
    TPU_CHECK(size >= 0, kOp, " by ", low[i], " and ", high[i], " takes more than dimension ", i,
              " of size ", x.dims[i], " has; use smaller negative paddings");
    result.dims[i] = to_size(kOp, size);
  }
  return result;
}

// concatenate (C1-C6).
Type concatenate(const TypeRefs& types, int64_t dim) {
  constexpr Op kOp = Op::kConcatenate;
  TPU_CHECK(!types.empty(), kOp, " needs at least one operand; give it one");
  Type result = *types[0];
  check_axes(kOp, "dimension", {dim}, result.rank());
  const auto axis = static_cast<size_t>(dim);
  __int128 total = 0;
  for (const Type* t : types) {
    check_same_dtype(kOp, "operands", result.dtype, t->dtype);
    TPU_CHECK(t->rank() == result.rank(), kOp, " needs operands of one rank, got ", *types[0],
              " and ", *t, "; reshape one of them");
    for (size_t i = 0; i < t->dims.size(); ++i) {
      TPU_CHECK(i == axis || t->dims[i] == types[0]->dims[i], kOp, " along dimension ", dim,
                " needs equal other sizes, got ", types[0]->dims, " and ", t->dims,
                "; slice or pad one of them");
    }
    total += t->dims[axis];
  }
  result.dims[axis] = to_size(kOp, total);
  return result;
}

// ---- Linear algebra, FFT, random ----

namespace {

void check_matrix(Op op, const Type& a) {
  TPU_CHECK(a.rank() >= 2, op, " needs a matrix or a batch of them, got ", a, "; reshape it");
  check_class(op, a, kInexact);
  const int64_t rows = a.dims[a.dims.size() - 2], columns = a.dims.back();
  TPU_CHECK(rows == columns, op, " needs square matrices, got ", rows, " rows and ", columns,
            " columns; check the shape");
}

}  // namespace

// cholesky (C1-C3).
Type cholesky(const Type& a) {
  check_matrix(Op::kCholesky, a);
  return a;
}

// triangular_solve (C1-C4).
Type triangular_solve(const Type& a, const Type& b, bool left, char transpose) {
  constexpr Op kOp = Op::kTriangularSolve;
  check_matrix(kOp, a);
  check_same_dtype(kOp, "matrix and right side", a.dtype, b.dtype);
  TPU_CHECK(transpose == 'N' || transpose == 'T' || transpose == 'C', ErrorKind::kInternal, kOp,
            " has a transpose of '", transpose, "'; use N, T or C");
  const bool same_batch =
      a.rank() == b.rank() && std::equal(a.dims.begin(), a.dims.end() - 2, b.dims.begin());
  TPU_CHECK(same_batch, kOp, " needs one batch for both operands, got ", a, " and ", b,
            "; broadcast one of them");
  const int64_t size = b.dims[b.dims.size() - (left ? 2 : 1)];
  TPU_CHECK(size == a.dims.back(), kOp, " has a matrix of size ", a.dims.back(),
            " for a right side with ", size, left ? " rows" : " columns", "; check the shapes");
  return b;
}

// fft (C1-C5); XLA wants the lengths equal to the sizes for complex transforms too.
Type fft(const Type& x, FftKind kind, const Dims& lengths) {
  constexpr Op kOp = Op::kFft;
  TPU_CHECK(!lengths.empty() && lengths.size() <= 3 && lengths.size() <= x.dims.size(), kOp,
            " takes 1 to 3 dimensions of the operand's ", x.rank(), ", got lengths ", lengths,
            "; transform in several steps");
  const bool from_real = kind == FftKind::kRfft;
  const bool fits =
      from_real ? x.dtype == DType::kF32 || x.dtype == DType::kF64 : is_complex(x.dtype);
  TPU_CHECK(fits, kOp, " of this kind takes ", from_real ? "float32 or float64" : "complex",
            " elements, got ", x, "; convert the operand");
  Type result = x;
  const size_t first = x.dims.size() - lengths.size();
  for (size_t i = 0; i < lengths.size(); ++i) {
    const bool last = i + 1 == lengths.size();
    const int64_t half = lengths[i] == 0 ? 0 : lengths[i] / 2 + 1;
    const int64_t need = kind == FftKind::kIrfft && last ? half : lengths[i];
    TPU_CHECK(lengths[i] >= 0 && x.dims[first + i] == need, kOp, " of lengths ", lengths, " needs ",
              need, " elements in dimension ", first + i, ", got ", x.dims[first + i],
              "; slice or pad the operand");
    if (from_real && last) result.dims[first + i] = half;
    if (kind == FftKind::kIrfft && last) result.dims[first + i] = lengths[i];
  }
  if (from_real) result.dtype = complex_type(x.dtype);
  if (kind == FftKind::kIrfft) result.dtype = real_type(x.dtype);
  return result;
}

// rng_bit_generator (C1-C2).
Type rng_bit_generator(RngAlgorithm algorithm, const Type& state, Type bits) {
  constexpr Op kOp = Op::kRngBitGenerator;
  const bool two = state.dims == Dims{2}, three = state.dims == Dims{3};
  TPU_CHECK(state.dtype == DType::kU64 && (two || (three && algorithm != RngAlgorithm::kThreeFry)),
            kOp, " needs a uint64 state of ", algorithm == RngAlgorithm::kThreeFry ? "2" : "2 or 3",
            " elements, got ", state, "; convert the generator's state");
  TPU_CHECK(is_unsigned(bits.dtype), kOp, " makes unsigned integers, not ", bits,
            "; convert the bits");
  check_sizes(kOp, bits.dims);
  return bits;
}

}  // namespace tpu::hlo::infer
