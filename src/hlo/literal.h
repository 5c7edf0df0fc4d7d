// The text of constants: elements as bit patterns of their type, printed so that MLIR's parser gets
// exactly the same bits back (decimal where that round-trips, else the pattern in hexadecimal).
#pragma once
#include <complex>
#include <cstdint>
#include <span>
#include <string>

#include "hlo/type.h"

namespace tpu::hlo {

// An element's bit pattern; `imag` belongs to complex types only.
struct Element {
  uint64_t real = 0, imag = 0;
  bool operator==(const Element&) const = default;
};

// As a C++ cast converts, but a value that an integer type cannot hold (NaN, inf, beyond 64 bits)
// is refused; smaller integers wrap, bool is `v != 0`.
Element to_element(DType t, double v);
Element to_element(DType t, int64_t v);
Element to_element(DType t, std::complex<double> v);  // a real type takes no imaginary part

void append_element(std::string& out, DType t, Element e);
// dense<[[1, 2], [3, 4]]> : tensor<2x2xi32>; row-major, one element stands for all.
std::string dense(const Type& t, std::span<const Element> elements);

}  // namespace tpu::hlo
