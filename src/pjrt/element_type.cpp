#include "pjrt/element_type.h"

#include <iterator>

#include "pjrt_c_api.h"

namespace tpu::pjrt {
namespace {

struct Row {
  PJRT_Buffer_Type number;
  std::string_view name;
  int bits;
};
// In the order of the numbers.
constexpr Row kRows[] = {
    {PJRT_Buffer_Type_INVALID, "invalid", 0},
    {PJRT_Buffer_Type_PRED, "i1", 8},
    {PJRT_Buffer_Type_S8, "i8", 8},
    {PJRT_Buffer_Type_S16, "i16", 16},
    {PJRT_Buffer_Type_S32, "i32", 32},
    {PJRT_Buffer_Type_S64, "i64", 64},
    {PJRT_Buffer_Type_U8, "ui8", 8},
    {PJRT_Buffer_Type_U16, "ui16", 16},
    {PJRT_Buffer_Type_U32, "ui32", 32},
    {PJRT_Buffer_Type_U64, "ui64", 64},
    {PJRT_Buffer_Type_F16, "f16", 16},
    {PJRT_Buffer_Type_F32, "f32", 32},
    {PJRT_Buffer_Type_F64, "f64", 64},
    {PJRT_Buffer_Type_BF16, "bf16", 16},
    {PJRT_Buffer_Type_C64, "complex<f32>", 64},
    {PJRT_Buffer_Type_C128, "complex<f64>", 128},
    {PJRT_Buffer_Type_F8E5M2, "f8E5M2", 8},
    {PJRT_Buffer_Type_F8E4M3FN, "f8E4M3FN", 8},
    {PJRT_Buffer_Type_F8E4M3B11FNUZ, "f8E4M3B11FNUZ", 8},
    {PJRT_Buffer_Type_F8E5M2FNUZ, "f8E5M2FNUZ", 8},
    {PJRT_Buffer_Type_F8E4M3FNUZ, "f8E4M3FNUZ", 8},
    {PJRT_Buffer_Type_S4, "i4", 4},
    {PJRT_Buffer_Type_U4, "ui4", 4},
    {PJRT_Buffer_Type_TOKEN, "token", 0},
    {PJRT_Buffer_Type_S2, "i2", 2},
    {PJRT_Buffer_Type_U2, "ui2", 2},
    {PJRT_Buffer_Type_F8E4M3, "f8E4M3", 8},
    {PJRT_Buffer_Type_F8E3M4, "f8E3M4", 8},
    {PJRT_Buffer_Type_F8E8M0FNU, "f8E8M0FNU", 8},
    {PJRT_Buffer_Type_F4E2M1FN, "f4E2M1FN", 4},
};
constexpr bool in_order() {
  for (size_t i = 0; i < std::size(kRows); ++i) {
    if (static_cast<size_t>(kRows[i].number) != i) return false;
  }
  return true;
}
static_assert(in_order());
static_assert(static_cast<size_t>(ElementType::kF4E2M1FN) + 1 == std::size(kRows));

const Row& row(ElementType type) {
  const auto i = static_cast<size_t>(type);
  return kRows[i < std::size(kRows) ? i : 0];
}

}  // namespace

std::string_view to_string(ElementType type) { return row(type).name; }
int bit_width(ElementType type) { return row(type).bits; }
int host_size_bytes(ElementType type) { return (row(type).bits + 7) / 8; }

}  // namespace tpu::pjrt
