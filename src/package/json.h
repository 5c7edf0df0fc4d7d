// JSON texts (RFC 8259) as values: the signature of a package, the header of its weights.
//
// Numbers that are written as whole ones and fit are int64_t, others double. A key that stands
// twice, anything after the value, and nesting beyond 256 are errors; each tells the byte.
#pragma once
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <variant>
#include <vector>

#include "base/error.h"

namespace tpu::package {

class Json {
 public:
  using Array = std::vector<Json>;
  using Object = std::vector<std::pair<std::string, Json>>;  // in the order of the text

  Json() = default;
  // Throws kValue; `what` names the text.
  static Json parse(std::string_view text, std::string_view what);

  bool is_null() const { return std::holds_alternative<std::monostate>(value_); }
  // Each throws kValue when the value is of another type.
  bool boolean() const { return as<bool>("a boolean"); }
  int64_t integer() const { return as<int64_t>("a whole number"); }
  const std::string& string() const { return as<std::string>("a text"); }
  const Array& array() const { return as<Array>("a list"); }
  const Object& object() const { return as<Object>("an object"); }
  // A member; throws kValue where there is none.
  const Json& operator[](std::string_view key) const;
  // Null where there is none.
  const Json* find(std::string_view key) const;

 private:
  friend class JsonParser;
  using Variant = std::variant<std::monostate, bool, int64_t, double, std::string, Array, Object>;
  explicit Json(Variant value) : value_(std::move(value)) {}

  template <class T>
  const T& as(std::string_view wanted) const {
    const T* v = std::get_if<T>(&value_);
    TPU_CHECK(v, ErrorKind::kValue, "the JSON has another value where ", wanted, " is expected");
    return *v;
  }
  Variant value_;
};

}  // namespace tpu::package
