#include <algorithm>

#include "ops/context.h"

namespace tpu::ops {

std::string_view scalar_type_name(DType t) {
  static constexpr std::string_view kNames[hlo::kDTypeCount] = {"Bool",
                                                                "Byte",
                                                                "UInt16",
                                                                "UInt32",
                                                                "UInt64",
                                                                "Char",
                                                                "Short",
                                                                "Int",
                                                                "Long",
                                                                "Float8_e4m3fn",
                                                                "Float8_e5m2",
                                                                "Float8_e4m3fnuz",
                                                                "Float8_e5m2fnuz",
                                                                "Float8_e8m0fnu",
                                                                "Half",
                                                                "BFloat16",
                                                                "Float",
                                                                "Double",
                                                                "ComplexFloat",
                                                                "ComplexDouble"};
  return kNames[static_cast<size_t>(t)];
}

std::string_view cpp_type_name(DType t) {
  switch (t) {
    case DType::kBool: return "bool";
    case DType::kU8: return "unsigned char";
    case DType::kI8: return "signed char";
    case DType::kI16: return "short int";
    case DType::kI32: return "int";
    case DType::kI64: return "long int";
    case DType::kF16: return "c10::Half";
    case DType::kBF16: return "c10::BFloat16";
    case DType::kF32: return "float";
    case DType::kF64: return "double";
    case DType::kC64: return "c10::complex<float>";
    case DType::kC128: return "c10::complex<double>";
    default: return hlo::torch_name(t);
  }
}

DType promote_types(DType a, DType b) {
  if (a == b) return a;
  TPU_CHECK(!hlo::is_float8(a) && !hlo::is_float8(b),
            "Promotion for Float8 Types is not supported, attempted to promote ",
            scalar_type_name(a), " and ", scalar_type_name(b));
  // uint16, uint32 and uint64 came late to PyTorch: they only promote with real floats.
  const auto is_late = [](DType t) { return hlo::is_unsigned(t) && t != DType::kU8; };
  if (is_late(a) || is_late(b)) {
    const DType other = is_late(a) ? b : a;
    TPU_CHECK(hlo::is_float(other),
              "Promotion for uint16, uint32, uint64 types is not supported, attempted to promote ",
              scalar_type_name(a), " and ", scalar_type_name(b));
    return other;
  }
  const auto [low, high] =
      std::minmax(a, b);  // enumerators ascend: bool, integers, floats, complex
  if (hlo::is_complex(high)) return low == DType::kF64 ? DType::kC128 : high;
  if (hlo::is_float(high)) {
    return low == DType::kF16 && high == DType::kBF16 ? DType::kF32 : high;
  }
  return low == DType::kU8 && high == DType::kI8 ? DType::kI16 : high;
}

void Context::Promotion::add(Opt<DType>& slot, DType t) {
  slot = slot ? promote_types(*slot, t) : t;
}

void Context::Promotion::see(const Context& x, Value v) {
  if (x.is_wrapped(v)) {
    const DType t = v.dtype();
    add(wrapped, hlo::is_complex(t) ? hlo::complex_type(x.default_dtype())
                 : hlo::is_float(t) ? x.default_dtype()
                                    : t);
  } else {
    add(v.rank() > 0 ? dim : zero, v.dtype());
  }
}

void Context::Promotion::see_kind(const Context& x, NumberKind k) {
  switch (k) {
    case NumberKind::kBool: return add(wrapped, DType::kBool);
    case NumberKind::kInt: return add(wrapped, DType::kI64);
    case NumberKind::kFloat: return add(wrapped, x.default_dtype());
    case NumberKind::kComplex: return add(wrapped, hlo::complex_type(x.default_dtype()));
  }
}

// A lower category only counts where its kind (integer, float, complex) is above that of the
// higher.
DType Context::Promotion::result(DType default_dtype) const {
  const auto combine = [](Opt<DType> higher, Opt<DType> lower) -> Opt<DType> {
    if (!higher || !lower) return higher ? higher : lower;
    if (hlo::is_complex(*higher)) return higher;
    if (hlo::is_float(*higher)) {
      if (!hlo::is_complex(*lower)) return higher;
      TPU_CHECK(*higher != DType::kF16, ErrorKind::kUnsupported,
                "float16 with a complex number gives complex32, which has no TPU type; "
                "convert to float32 or complex64 first");
      return hlo::complex_type(*higher);
    }
    if (hlo::is_complex(*lower)) return lower;
    if (hlo::is_bool(*higher) || !hlo::is_integral(*lower)) return promote_types(*higher, *lower);
    return higher;
  };
  return combine(dim, combine(zero, wrapped)).value_or(default_dtype);
}

}  // namespace tpu::ops
