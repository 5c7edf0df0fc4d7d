#include "package/array.h"

#include <algorithm>
#include <charconv>

#include "base/error.h"

namespace tpu::package {
namespace {

using enum pjrt::ElementType;

constexpr DType kTable[] = {
    {"bool", kPred, "BOOL", "|b1", 1},
    {"int8", kS8, "I8", "|i1", 1},
    {"int16", kS16, "I16", "<i2", 2},
    {"int32", kS32, "I32", "<i4", 4},
    {"int64", kS64, "I64", "<i8", 8},
    {"uint8", kU8, "U8", "|u1", 1},
    {"uint16", kU16, "U16", "<u2", 2},
    {"uint32", kU32, "U32", "<u4", 4},
    {"uint64", kU64, "U64", "<u8", 8},
    {"float16", kF16, "F16", "<f2", 2},
    {"bfloat16", kBF16, "BF16", "<V2", 2},
    {"float32", kF32, "F32", "<f4", 4},
    {"float64", kF64, "F64", "<f8", 8},
    {"complex64", kC64, "C64", "<c8", 8},
    {"complex128", kC128, "C128", "<c16", 16},
    {"float8_e4m3fn", kF8E4M3FN, "F8_E4M3", "|V1", 1},
    {"float8_e5m2", kF8E5M2, "F8_E5M2", "|V1", 1},
};

const DType& find(std::string_view DType::* column, std::string_view name, std::string_view where) {
  const auto* row = std::ranges::find(kTable, name, column);
  TPU_CHECK(row != std::end(kTable), ErrorKind::kValue, where, ": ", name,
            " is no element type that a package may hold");
  return *row;
}

constexpr std::string_view kMagic = "\x93NUMPY";

// What follows 'key': in the header, which is a Python dict.
std::string_view member(std::string_view header, std::string_view key, std::string_view where) {
  const size_t at = header.find(cat("'", key, "':"));
  TPU_CHECK(at != std::string_view::npos, ErrorKind::kValue, where, ": the .npy header has no ",
            key);
  return trim(header.substr(at + key.size() + 3));
}

Dims parse_shape(std::string_view text, std::string_view where) {
  const size_t end = text.find(')');
  TPU_CHECK(text.starts_with('(') && end != std::string_view::npos, ErrorKind::kValue, where,
            ": the .npy header has no shape");
  Dims dims;
  text = text.substr(1, end - 1);
  while (!(text = trim(text)).empty()) {
    int64_t n = 0;
    const auto r = std::from_chars(text.data(), text.data() + text.size(), n);
    TPU_CHECK(r.ec == std::errc() && n >= 0, ErrorKind::kValue, where, ": the shape (", text,
              ") of the .npy header cannot be read");
    dims.push_back(n);
    text = trim(text.substr(static_cast<size_t>(r.ptr - text.data())));
    if (text.starts_with(',')) text.remove_prefix(1);
  }
  return dims;
}

// Row-major from column-major.
std::string transposed(std::string_view data, const Dims& dims, size_t item) {
  std::string out(data.size(), '\0');
  Dims index(dims.size());
  for (size_t to = 0; to < data.size(); to += item) {
    size_t from = 0;
    for (size_t d = dims.size(); d-- > 0;)
      from = from * static_cast<size_t>(dims[d]) + static_cast<size_t>(index[d]);
    data.copy(out.data() + to, item, from * item);
    for (size_t d = dims.size(); d-- > 0 && ++index[d] == dims[d];) index[d] = 0;
  }
  return out;
}

// Whether NumPy's name of a type, in any byte order, is that of `want`. A type that NumPy lacks is
// saved as bytes of its size.
bool same_type(std::string_view descr, const DType& want) {
  const std::string_view name = want.npy;
  if (descr.empty() || descr.substr(1) != name.substr(1)) return false;
  return descr[0] == name[0] || descr[0] == '=' || descr[0] == '|' || want.size_bytes == 1;
}

}  // namespace

const DType& dtype_by_torch_name(std::string_view name, std::string_view where) {
  return find(&DType::torch, name, where);
}
const DType& dtype_by_safetensors_name(std::string_view name, std::string_view where) {
  return find(&DType::safetensors, name, where);
}

size_t TensorType::size_bytes() const {
  size_t n = dtype->size_bytes;
  for (const int64_t d : dims) {
    TPU_CHECK(d >= 0 && !__builtin_mul_overflow(n, static_cast<size_t>(d), &n), ErrorKind::kValue,
              "a tensor of sizes ", dims, " is too large");
  }
  return n;
}

std::string to_string(const TensorType& t) { return cat(t.dtype->torch, t.dims); }

NpyArray parse_npy(std::string_view bytes, std::string_view where) {
  const auto byte = [&](size_t i) {
    return static_cast<size_t>(static_cast<unsigned char>(bytes[i]));
  };
  TPU_CHECK(bytes.starts_with(kMagic) && bytes.size() >= 12, ErrorKind::kValue, where,
            " is no .npy file");
  const size_t version = byte(6);
  TPU_CHECK(version >= 1 && version <= 3, ErrorKind::kValue, where, " is a .npy file of version ",
            version, "; 1 to 3 are known");
  const size_t begin = version == 1 ? 10 : 12;
  size_t size = byte(8) | byte(9) << 8;
  if (version > 1) size |= byte(10) << 16 | byte(11) << 24;
  TPU_CHECK(size <= bytes.size() - begin, ErrorKind::kValue, where, " is cut short");
  const std::string_view header = bytes.substr(begin, size);

  NpyArray a;
  std::string_view descr = member(header, "descr", where);
  const size_t end = descr.find('\'', 1);
  TPU_CHECK(descr.starts_with('\'') && end != std::string_view::npos, ErrorKind::kValue, where,
            " is an array of records; give one of numbers");
  a.descr = descr.substr(1, end - 1);
  a.fortran_order = member(header, "fortran_order", where).starts_with("True");
  a.dims = parse_shape(member(header, "shape", where), where);
  a.data = bytes.substr(begin + size);
  return a;
}

std::string elements_of(const NpyArray& array, const TensorType& type, std::string_view where) {
  const bool same = same_type(array.descr, *type.dtype);
  TPU_CHECK(same && array.dims == type.dims, ErrorKind::kValue, where, " is ", array.descr,
            array.dims, ", the package takes ", to_string(type),
            same ? "" : cat(" (NumPy's ", type.dtype->npy, ")"));
  TPU_CHECK(array.data.size() == type.size_bytes(), ErrorKind::kValue, where, " holds ",
            array.data.size(), " bytes, an array of ", to_string(type), " has ", type.size_bytes());
  if (array.fortran_order) return transposed(array.data, array.dims, type.dtype->size_bytes);
  return std::string(array.data);
}

std::string npy(const TensorType& type, std::string_view data) {
  constexpr size_t kAlignment = 64, kPrefix = 10;
  const std::string comma = type.dims.size() == 1 ? "," : "";
  std::string header = cat("{'descr': '", type.dtype->npy, "', 'fortran_order': False, 'shape': (",
                           join(type.dims), comma, "), }");
  header.append(kAlignment - 1 - (kPrefix + header.size()) % kAlignment, ' ');
  header += '\n';
  std::string out(kMagic);
  out +=
      {'\1', '\0', static_cast<char>(header.size() & 255), static_cast<char>(header.size() >> 8)};
  return out + header + std::string(data);
}

}  // namespace tpu::package
