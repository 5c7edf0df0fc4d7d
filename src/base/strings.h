// Text from values. `cat(a, b, ...)` writes its parts one after the other: numbers in decimal,
// bools as true/false, ranges as [1, 2], pairs as (1, 2), an empty optional as none. A type of ours
// prints by a `to_string(x)` or an `operator<<` found beside it; an enumerator without one prints
// as its number.
#pragma once

#include <charconv>
#include <cstdint>
#include <optional>
#include <ranges>
#include <sstream>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace tpu {
namespace detail {

template <class T>
concept HasToString = requires(const T& x) {
  { to_string(x) } -> std::convertible_to<std::string_view>;
};
template <class T>
concept HasStream = requires(std::ostream& s, const T& x) { s << x; };
template <class T>
concept IsOptional = std::same_as<T, std::optional<typename T::value_type>>;
template <class T>
concept IsPair = std::same_as<T, std::pair<typename T::first_type, typename T::second_type>>;

// The shortest text that reads back as the same number.
void append_double(std::string& out, double x);
void append_float(std::string& out, float x);

template <class T>
void append(std::string& out, const T& x) {
  if constexpr (std::convertible_to<const T&, std::string_view>) {
    out += std::string_view(x);
  } else if constexpr (std::same_as<T, bool>) {
    out += x ? "true" : "false";
  } else if constexpr (std::same_as<T, char>) {
    out += x;
  } else if constexpr (std::integral<T>) {
    char digits[24];
    out.append(digits, std::to_chars(digits, digits + sizeof digits, x).ptr);
  } else if constexpr (std::same_as<T, float>) {
    append_float(out, x);
  } else if constexpr (std::floating_point<T>) {
    append_double(out, static_cast<double>(x));
  } else if constexpr (HasToString<T>) {
    out += to_string(x);
  } else if constexpr (std::is_enum_v<T>) {
    append(out, static_cast<std::underlying_type_t<T>>(x));
  } else if constexpr (IsOptional<T>) {
    if (x) {
      append(out, *x);
    } else {
      out += "none";
    }
  } else if constexpr (IsPair<T>) {
    out += '(';
    append(out, x.first);
    out += ", ";
    append(out, x.second);
    out += ')';
  } else if constexpr (std::ranges::input_range<const T>) {
    out += '[';
    bool first = true;
    for (const auto& e : x) {
      if (!first) out += ", ";
      first = false;
      // vector<bool> hands out proxies; read them as the value they stand for.
      append(out, static_cast<const std::ranges::range_value_t<const T>&>(e));
    }
    out += ']';
  } else if constexpr (HasStream<T>) {
    std::ostringstream s;
    s << x;
    out += s.str();
  } else {
    static_assert(HasStream<T>, "give this type a to_string(x) or an operator<<");
  }
}

}  // namespace detail

template <class... Parts>
std::string cat(const Parts&... parts) {
  std::string out;
  (detail::append(out, parts), ...);
  return out;
}

// Elements with `separator` between them and no brackets.
template <std::ranges::input_range R>
std::string join(const R& range, std::string_view separator = ", ") {
  std::string out;
  bool first = true;
  for (const auto& e : range) {
    if (!first) out += separator;
    first = false;
    detail::append(out, e);
  }
  return out;
}

// Pieces between separators; empty pieces are kept, an empty text has none.
std::vector<std::string_view> split(std::string_view text, char separator);
// Without the blanks at both ends.
std::string_view trim(std::string_view text);
std::string to_lower(std::string_view text);
// The whole text as a decimal integer, or nothing.
std::optional<int64_t> parse_int(std::string_view text);
// Two hexadecimal digits for each byte.
std::string to_hex(std::string_view bytes);
// How many characters must be inserted, removed or replaced to make one text of the other.
size_t edit_distance(std::string_view a, std::string_view b);
// 1536 -> "1.5 KiB".
std::string format_bytes(uint64_t size_bytes);

}  // namespace tpu
