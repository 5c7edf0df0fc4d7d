// The argument values of an op call that are not tensors, and the kinds an argument may have.
//
// An attribute is a plain value that selects code: it is part of the op's cache key. A Scalar is a
// Python number that does not: it reaches the program as a run-time operand, so that a new learning
// rate compiles nothing. Which of the two a number is, the lowering says by its parameter type.
#pragma once
#include <complex>
#include <cstdint>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "hlo/builder.h"

namespace tpu::ops {

using hlo::Cmp;
using hlo::Dims;
using hlo::DType;
using hlo::Op;
using hlo::Type;
using hlo::Value;
using Values = std::vector<Value>;
template <class T>
using Opt = std::optional<T>;

enum class NumberKind : uint8_t { kBool, kInt, kFloat, kComplex };

// A Python number whose value is known when the program is made (and so is part of the key).
struct Number {
  NumberKind kind = NumberKind::kInt;
  int64_t i = 0;           // kBool, kInt
  double d = 0, imag = 0;  // kFloat, kComplex; d also holds the value of kBool and kInt

  static Number of(int64_t v) { return {NumberKind::kInt, v, static_cast<double>(v), 0}; }
  static Number of(double v) { return {NumberKind::kFloat, 0, v, 0}; }
  static Number of(bool v) { return {NumberKind::kBool, v, v ? 1.0 : 0.0, 0}; }
  bool is_integral() const { return kind <= NumberKind::kInt; }
  double to_double() const { return d; }
  int64_t to_int() const { return is_integral() ? i : static_cast<int64_t>(d); }
  bool operator==(const Number&) const = default;
};

// A Python number that is an operand at run time. `known` is set when the recorder folded it
// (OpBuilder::fold), so its value is in the key and the lowering may use it.
struct Scalar {
  NumberKind kind = NumberKind::kFloat;
  int32_t operand = -1;  // position among the node's scalar operands
  Opt<Number> known;
};

using Attr =
    std::variant<std::monostate, bool, int64_t, double, std::string, Dims, std::vector<double>,
                 std::vector<bool>, DType, Number, std::vector<Number>>;

enum class ArgKind : uint8_t {
  kTensor,
  kOptTensor,
  kTensorList,
  kOptTensorList,
  kScalar,  // run-time number: schema Scalar, float or int
  kOptScalar,
  kScalarList,
  kNumber,  // constant number: schema Scalar
  kOptNumber,
  kNumberList,
  kInt,
  kOptInt,
  kInts,
  kOptInts,
  kFloat,
  kOptFloat,
  kFloats,
  kOptFloats,
  kBool,
  kOptBool,
  kBools,
  kDType,
  kOptDType,
  kString,
  kOptString,
};
const char* to_string(ArgKind k);  // schema spelling, e.g. "Tensor?", "int[]"

// One argument as a lowering receives it.
using Arg = std::variant<Value, Values, Scalar, std::vector<Scalar>, Attr>;

}  // namespace tpu::ops
