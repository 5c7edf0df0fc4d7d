#include "bridge/dtype.h"

#include "base/error.h"

namespace tpu::bridge {
namespace {

using c10::ScalarType;
using hlo::DType;

struct Row {
  ScalarType torch;
  DType tpu;
};
constexpr Row kRows[] = {
    {ScalarType::Bool, DType::kBool},
    {ScalarType::Byte, DType::kU8},
    {ScalarType::UInt16, DType::kU16},
    {ScalarType::UInt32, DType::kU32},
    {ScalarType::UInt64, DType::kU64},
    {ScalarType::Char, DType::kI8},
    {ScalarType::Short, DType::kI16},
    {ScalarType::Int, DType::kI32},
    {ScalarType::Long, DType::kI64},
    {ScalarType::Float8_e4m3fn, DType::kF8E4M3FN},
    {ScalarType::Float8_e5m2, DType::kF8E5M2},
    {ScalarType::Float8_e4m3fnuz, DType::kF8E4M3FNUZ},
    {ScalarType::Float8_e5m2fnuz, DType::kF8E5M2FNUZ},
    {ScalarType::Float8_e8m0fnu, DType::kF8E8M0FNU},
    {ScalarType::Half, DType::kF16},
    {ScalarType::BFloat16, DType::kBF16},
    {ScalarType::Float, DType::kF32},
    {ScalarType::Double, DType::kF64},
    {ScalarType::ComplexFloat, DType::kC64},
    {ScalarType::ComplexDouble, DType::kC128},
};
static_assert(std::size(kRows) == hlo::kDTypeCount);

constexpr auto kFromTorch = [] {
  std::array<int8_t, static_cast<size_t>(ScalarType::NumOptions)> table{};
  table.fill(-1);
  for (const Row& r : kRows) table[static_cast<size_t>(r.torch)] = static_cast<int8_t>(r.tpu);
  return table;
}();
constexpr auto kToTorch = [] {
  std::array<ScalarType, hlo::kDTypeCount> table{};
  for (const Row& r : kRows) table[static_cast<size_t>(r.tpu)] = r.torch;
  return table;
}();

const char* remedy(ScalarType t) {
  switch (t) {
    case ScalarType::ComplexHalf: return "use complex64";
    case ScalarType::QInt8:
    case ScalarType::QUInt8:
    case ScalarType::QInt32:
    case ScalarType::QUInt4x2:
    case ScalarType::QUInt2x4:
      return "keep quantized tensors on the CPU, or use integer tensors with scales";
    default: return "convert it to a type that the device has";
  }
}

}  // namespace

bool has_dtype(c10::ScalarType t) {
  return static_cast<size_t>(t) < kFromTorch.size() && kFromTorch[static_cast<size_t>(t)] >= 0;
}

hlo::DType to_dtype(c10::ScalarType t) {
  if (has_dtype(t)) [[likely]]
    return static_cast<DType>(kFromTorch[static_cast<size_t>(t)]);
  TPU_THROW(ErrorKind::kUnsupported, c10::toString(t), " tensors cannot be on a tpu device; ",
            remedy(t));
}

c10::ScalarType to_scalar_type(hlo::DType t) { return kToTorch[static_cast<size_t>(t)]; }

}  // namespace tpu::bridge
