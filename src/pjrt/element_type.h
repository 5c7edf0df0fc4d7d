// Element types by the numbers of PJRT_Buffer_Type. One table (element_type.cpp) holds name and
// width.
#pragma once

#include <cstdint>
#include <string_view>

namespace tpu::pjrt {

enum class ElementType : uint8_t {
  kInvalid = 0,
  kPred = 1,
  kS8 = 2,
  kS16 = 3,
  kS32 = 4,
  kS64 = 5,
  kU8 = 6,
  kU16 = 7,
  kU32 = 8,
  kU64 = 9,
  kF16 = 10,
  kF32 = 11,
  kF64 = 12,
  kBF16 = 13,
  kC64 = 14,
  kC128 = 15,
  kF8E5M2 = 16,
  kF8E4M3FN = 17,
  kF8E4M3B11FNUZ = 18,
  kF8E5M2FNUZ = 19,
  kF8E4M3FNUZ = 20,
  kS4 = 21,
  kU4 = 22,
  kToken = 23,
  kS2 = 24,
  kU2 = 25,
  kF8E4M3 = 26,
  kF8E3M4 = 27,
  kF8E8M0FNU = 28,
  kF4E2M1FN = 29,
};

// As StableHLO spells it: "f32", "i1", "ui8", "complex<f32>", "f8E4M3FN".
std::string_view to_string(ElementType type);
// Bits of one element on the device; 0 for kInvalid and kToken.
int bit_width(ElementType type);
// Bytes of one element in host memory. Types below 8 bits take a whole byte there: its low bits
// hold the value, the others are anything.
int host_size_bytes(ElementType type);

}  // namespace tpu::pjrt
