#include "hlo/type.h"

#include <algorithm>

#include "base/error.h"

namespace tpu::hlo {

int64_t product(const Dims& dims) {
  int64_t n = 1;
  bool overflow = false;
  for (const int64_t d : dims) overflow |= __builtin_mul_overflow(n, d, &n);
  if (overflow) [[unlikely]] {
    if (std::ranges::find(dims, 0) != dims.end()) return 0;
    TPU_THROW(ErrorKind::kInvalid, "a tensor of sizes ", dims,
              " has more elements than a 64-bit number can count; use smaller sizes");
  }
  return n;
}

std::string to_string(const Dims& dims) { return cat(dims); }

int64_t Type::size_bytes() const {
  int64_t size = 0;
  TPU_CHECK(!__builtin_mul_overflow(numel(), static_cast<int64_t>(hlo::size_bytes(dtype)), &size),
            "a ", *this, " has more bytes than a 64-bit number can count; use smaller sizes");
  return size;
}

void append_mlir(std::string& out, const Type& t) {
  out += "tensor<";
  for (const int64_t d : t.dims) {
    detail::append(out, d);
    out += 'x';
  }
  out += mlir_name(t.dtype);
  out += '>';
}

std::string mlir(const Type& t) {
  std::string out;
  append_mlir(out, t);
  return out;
}

std::string to_string(const Type& t) { return cat(torch_name(t.dtype), t.dims); }

}  // namespace tpu::hlo
