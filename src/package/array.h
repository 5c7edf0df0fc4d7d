// Arrays on the host, and the three ways in which files name their element types.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "pjrt/element_type.h"

namespace tpu::package {

using Dims = std::vector<int64_t>;

// One row a dtype of torch that a package may hold.
struct DType {
  std::string_view torch;        // "float32"
  pjrt::ElementType element;     // kF32
  std::string_view safetensors;  // "F32"
  std::string_view npy;          // "<f4"; "<V2" and the like for those that NumPy lacks
  size_t size_bytes;
};
// Throw kValue for a name that is none; `where` stands at the beginning of the text.
const DType& dtype_by_torch_name(std::string_view name, std::string_view where);
const DType& dtype_by_safetensors_name(std::string_view name, std::string_view where);

struct TensorType {
  const DType* dtype = nullptr;
  Dims dims;
  // Throws kValue where it does not fit 64 bits.
  size_t size_bytes() const;
  bool operator==(const TensorType&) const = default;
};
// "float32[2, 3]"
std::string to_string(const TensorType& t);

// The content of a .npy file (versions 1 to 3), in the file's memory.
struct NpyArray {
  std::string descr;  // as NumPy writes the type, "<f4"
  bool fortran_order = false;
  Dims dims;
  std::string_view data;
};
// Throws kValue for bytes that are no .npy file; `where` names them.
NpyArray parse_npy(std::string_view bytes, std::string_view where);
// The elements as `type`, row-major and little-endian. Throws kValue when the array is another.
std::string elements_of(const NpyArray& array, const TensorType& type, std::string_view where);
// A .npy file.
std::string npy(const TensorType& type, std::string_view data);

}  // namespace tpu::package
