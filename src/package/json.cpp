#include "package/json.h"

#include <algorithm>
#include <charconv>

namespace tpu::package {

class JsonParser {
 public:
  JsonParser(std::string_view text, std::string_view what) : text_(text), what_(what) {}

  Json document() {
    Json v = value(0);
    blanks();
    check(at_ == text_.size(), "something follows the value");
    return v;
  }

 private:
  static constexpr int kMaxDepth = 256;

  void check(bool condition, std::string_view reason) const {
    TPU_CHECK(condition, ErrorKind::kValue, what_, " is no JSON: ", reason, " at byte ", at_);
  }
  char peek() const { return at_ < text_.size() ? text_[at_] : '\0'; }
  void blanks() { at_ = std::min(text_.find_first_not_of(" \t\r\n", at_), text_.size()); }
  bool take(char c) {
    blanks();
    if (peek() != c) return false;
    ++at_;
    return true;
  }
  bool take(std::string_view word) {
    if (!text_.substr(at_).starts_with(word)) return false;
    at_ += word.size();
    return true;
  }

  Json value(int depth) {
    check(depth < kMaxDepth, "too many nested values");
    blanks();
    const char c = peek();
    if (c == '{') return object(depth);
    if (c == '[') return array(depth);
    if (c == '"') return Json(string());
    if (take("true")) return Json(true);
    if (take("false")) return Json(false);
    if (take("null")) return {};
    return number();
  }

  Json object(int depth) {
    Json::Object members;
    ++at_;
    if (take('}')) return Json(std::move(members));
    do {
      blanks();
      check(peek() == '"', "a key is expected");
      std::string key = string();
      check(std::ranges::find(members, key, &Json::Object::value_type::first) == members.end(),
            "a key stands twice");
      check(take(':'), "':' is expected");
      members.emplace_back(std::move(key), value(depth + 1));
    } while (take(','));
    check(take('}'), "',' or '}' is expected");
    return Json(std::move(members));
  }

  Json array(int depth) {
    Json::Array elements;
    ++at_;
    if (take(']')) return Json(std::move(elements));
    do elements.push_back(value(depth + 1));
    while (take(','));
    check(take(']'), "',' or ']' is expected");
    return Json(std::move(elements));
  }

  Json number() {
    const std::string_view rest = text_.substr(at_);
    const std::string_view digits =
        rest.substr(0, std::min(rest.find_first_not_of("+-.0123456789eE"), rest.size()));
    check(!digits.empty(), "a value is expected");
    const char *begin = digits.data(), *end = begin + digits.size();
    int64_t whole = 0;
    if (const auto r = std::from_chars(begin, end, whole); r.ec == std::errc() && r.ptr == end) {
      at_ += digits.size();
      return Json(whole);
    }
    double v = 0;
    const auto r = std::from_chars(begin, end, v);
    check(r.ec == std::errc() && r.ptr == end, "a number is expected");
    at_ += digits.size();
    return Json(v);
  }

  std::string string() {
    std::string out;
    ++at_;
    while (true) {
      check(at_ < text_.size(), "a text does not end");
      const char c = text_[at_++];
      if (c == '"') return out;
      check(static_cast<unsigned char>(c) >= 0x20, "a control character stands in a text");
      if (c != '\\') {
        out += c;
        continue;
      }
      const char e = peek();
      ++at_;
      constexpr std::string_view kEscapes = "\"\\/bfnrt", kMeanings = "\"\\/\b\f\n\r\t";
      if (const size_t i = kEscapes.find(e); i != std::string_view::npos && e != '\0') {
        out += kMeanings[i];
      } else {
        check(e == 'u', "an unknown escape");
        append_utf8(out, code_point());
      }
    }
  }

  uint32_t code_unit() {
    uint32_t v = 0;
    const std::string_view digits = text_.substr(at_, 4);
    const auto r = std::from_chars(digits.data(), digits.data() + digits.size(), v, 16);
    check(digits.size() == 4 && r.ptr == digits.data() + 4, "four hexadecimal digits are expected");
    at_ += 4;
    return v;
  }
  uint32_t code_point() {
    const uint32_t high = code_unit();
    if (high < 0xd800 || high > 0xdfff) return high;
    check(high < 0xdc00 && take("\\u"), "half a surrogate pair");
    const uint32_t low = code_unit();
    check(low >= 0xdc00 && low <= 0xdfff, "half a surrogate pair");
    return 0x10000 + ((high - 0xd800) << 10) + (low - 0xdc00);
  }
  static void append_utf8(std::string& out, uint32_t c) {
    const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
    if (c < 0x80) return put(c);
    if (c < 0x800) {
      put(0xc0 | c >> 6);
    } else if (c < 0x10000) {
      put(0xe0 | c >> 12);
      put(0x80 | (c >> 6 & 63));
    } else {
      put(0xf0 | c >> 18);
      put(0x80 | (c >> 12 & 63));
      put(0x80 | (c >> 6 & 63));
    }
    put(0x80 | (c & 63));
  }

  std::string_view text_, what_;
  size_t at_ = 0;
};

Json Json::parse(std::string_view text, std::string_view what) {
  return JsonParser(text, what).document();
}

const Json* Json::find(std::string_view key) const {
  for (const auto& [name, v] : object()) {
    if (name == key) return &v;
  }
  return nullptr;
}

const Json& Json::operator[](std::string_view key) const {
  const Json* v = find(key);
  TPU_CHECK(v, ErrorKind::kValue, "the JSON has no member \"", key, '"');
  return *v;
}

}  // namespace tpu::package
