#include "hlo/literal.h"

#include <algorithm>
#include <charconv>
#include <cmath>

#include "base/error.h"

namespace tpu::hlo {
namespace {

uint64_t wrap(DType t, uint64_t v) {
  const size_t bits = 8 * size_bytes(t);
  return bits == 64 ? v : v & ((uint64_t{1} << bits) - 1);
}

uint64_t float_bits(DType t, int64_t v) {
  if (t == DType::kF64) return float_to_bits(t, static_cast<double>(v));
  // Through double a number would be rounded twice; a sticky last bit makes the second one right.
  uint64_t magnitude = v < 0 ? ~static_cast<uint64_t>(v) + 1 : static_cast<uint64_t>(v);
  constexpr uint64_t kBelowDouble = 0x7ff;
  if (magnitude >> 53 != 0 && (magnitude & kBelowDouble) != 0) {
    magnitude = (magnitude & ~kBelowDouble) | (kBelowDouble + 1);
  }
  const auto rounded = static_cast<double>(magnitude);
  return float_to_bits(t, v < 0 ? -rounded : rounded);
}

void append_hex(std::string& out, uint64_t bits, size_t bytes) {
  constexpr char kDigits[] = "0123456789ABCDEF";
  out += "0x";
  for (size_t i = 2 * bytes; i-- > 0;) out += kDigits[bits >> (4 * i) & 15];
}

void append_float_bits(std::string& out, DType t, uint64_t bits) {
  const double v = bits_to_double(t, bits);
  if (std::isfinite(v)) {
    char text[32];
    const auto end = t == DType::kF64
                         ? std::to_chars(text, text + sizeof text, v).ptr
                         : std::to_chars(text, text + sizeof text, static_cast<float>(v)).ptr;
    double back = 0;
    std::from_chars(text, end, back);
    if (float_to_bits(t, back) == bits) {
      // MLIR wants digits, a point, and only then an exponent.
      const std::string_view digits(text, static_cast<size_t>(end - text));
      const size_t exponent = std::min(digits.find('e'), digits.size());
      out += digits.substr(0, exponent);
      if (digits.find('.') == std::string_view::npos) out += ".0";
      out += digits.substr(exponent);
      return;
    }
  }
  append_hex(out, bits, size_bytes(t));
}

void append_nested(std::string& out, const Type& t, size_t axis,
                   std::span<const Element> elements) {
  if (axis == t.dims.size()) return append_element(out, t.dtype, elements[0]);
  out += '[';
  const size_t count = static_cast<size_t>(t.dims[axis]), stride = elements.size() / count;
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) out += ", ";
    append_nested(out, t, axis + 1, elements.subspan(i * stride, stride));
  }
  out += ']';
}

}  // namespace

Element to_element(DType t, double v) {
  if (is_float(t)) return {float_to_bits(t, v)};
  if (is_complex(t)) return {float_to_bits(real_type(t), v), 0};
  if (is_bool(t)) return {v != 0 ? uint64_t{1} : uint64_t{0}};
  const double limit = is_unsigned(t) ? 0x1p64 : 0x1p63;
  TPU_CHECK(v >= -0x1p63 && v < limit, "the number ", v, " does not fit into ", t,
            "; use a floating type or a smaller number");
  return {wrap(
      t, v < 0x1p63 ? static_cast<uint64_t>(static_cast<int64_t>(v)) : static_cast<uint64_t>(v))};
}

Element to_element(DType t, int64_t v) {
  if (is_float(t)) return {float_bits(t, v)};
  if (is_complex(t)) return {float_bits(real_type(t), v), 0};
  if (is_bool(t)) return {v != 0 ? uint64_t{1} : uint64_t{0}};
  return {wrap(t, static_cast<uint64_t>(v))};
}

Element to_element(DType t, std::complex<double> v) {
  if (is_complex(t)) {
    return {float_to_bits(real_type(t), v.real()), float_to_bits(real_type(t), v.imag())};
  }
  TPU_CHECK(v.imag() == 0, "a ", t, " has no place for the imaginary part ", v.imag(),
            "; use a complex type or the real part");
  return to_element(t, v.real());
}

void append_element(std::string& out, DType t, Element e) {
  if (is_bool(t)) {
    out += e.real != 0 ? "true" : "false";
  } else if (is_unsigned(t)) {
    detail::append(out, e.real);
  } else if (is_signed_integer(t)) {
    const int unused = 64 - 8 * static_cast<int>(size_bytes(t));
    detail::append(out, static_cast<int64_t>(e.real << unused) >> unused);
  } else if (is_float(t)) {
    append_float_bits(out, t, e.real);
  } else {
    out += '(';
    append_float_bits(out, real_type(t), e.real);
    out += ", ";
    append_float_bits(out, real_type(t), e.imag);
    out += ')';
  }
}

std::string dense(const Type& t, std::span<const Element> elements) {
  std::string out = "dense<";
  const bool uniform = !elements.empty() && std::ranges::all_of(elements, [&](const Element& e) {
    return e == elements[0];
  });
  if (uniform) {
    append_element(out, t.dtype, elements[0]);
  } else if (!elements.empty()) {
    append_nested(out, t, 0, elements);
  }
  out += "> : ";
  append_mlir(out, t);
  return out;
}

}  // namespace tpu::hlo
