// A StableHLO ranked tensor type: element type and static dimensions.
//
// Types are values. Sizes are 64-bit everywhere; numel and size_bytes check for overflow.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

#include "hlo/dtype.h"

namespace tpu::hlo {

using Dims = std::vector<int64_t>;

int64_t product(const Dims& dims);        // 1 for no dims; throws on 64-bit overflow
std::string to_string(const Dims& dims);  // [2, 3]

struct Type {
  DType dtype = DType::kF32;
  Dims dims;

  int64_t rank() const { return static_cast<int64_t>(dims.size()); }
  int64_t numel() const { return product(dims); }
  int64_t size_bytes() const;
  bool operator==(const Type&) const = default;
};

std::string mlir(const Type& t);  // tensor<2x3xf32>
void append_mlir(std::string& out, const Type& t);
std::string to_string(const Type& t);  // float32[2, 3]

}  // namespace tpu::hlo
