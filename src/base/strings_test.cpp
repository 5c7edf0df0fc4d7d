#include "base/strings.h"

#include <map>
#include <ostream>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/test.h"

namespace tpu {
namespace {

struct Named {};
std::string to_string(const Named&) { return "named"; }
struct Streamed {};
std::ostream& operator<<(std::ostream& s, const Streamed&) { return s << "streamed"; }
enum class Plain : uint8_t { kSeven = 7 };

TEST(cat_writes_each_kind_of_value) {
  EXPECT_EQ(cat(), std::string());
  EXPECT_EQ(cat("a", 'b', std::string("c"), std::string_view("d")), std::string("abcd"));
  EXPECT_EQ(cat(true, " ", false), std::string("true false"));
  EXPECT_EQ(cat(int8_t{-5}, " ", uint8_t{200}, " ", INT64_MIN, " ", UINT64_MAX),
            std::string("-5 200 -9223372036854775808 18446744073709551615"));
  EXPECT_EQ(cat(0.1, " ", 0.1F, " ", 1e300, " ", 2.0), std::string("0.1 0.1 1e+300 2"));
  EXPECT_EQ(cat(std::vector<int64_t>{1, 2}), std::string("[1, 2]"));
  EXPECT_EQ(cat(std::vector<std::vector<int>>{{1}, {}}), std::string("[[1], []]"));
  EXPECT_EQ(cat(std::vector<bool>{true, false}), std::string("[true, false]"));
  EXPECT_EQ(cat(std::set<std::string>{"x", "y"}), std::string("[x, y]"));
  EXPECT_EQ(cat(std::map<int, std::string>{{1, "a"}}), std::string("[(1, a)]"));
  EXPECT_EQ(cat(std::optional<int>{3}, std::optional<int>{}), std::string("3none"));
  EXPECT_EQ(cat(Named{}, " ", Streamed{}, " ", Plain::kSeven), std::string("named streamed 7"));
}

TEST(join_puts_separators_between) {
  EXPECT_EQ(join(std::vector<int>{}), std::string());
  EXPECT_EQ(join(std::vector<int>{1, 2, 3}, "x"), std::string("1x2x3"));
}

TEST(split_keeps_empty_pieces) {
  EXPECT_EQ(split("", ',').size(), size_t{0});
  EXPECT_EQ(join(split("a,,b,", ','), "|"), std::string("a||b|"));
  EXPECT_EQ(split("abc", ',').size(), size_t{1});
}

TEST(trim_and_to_lower) {
  EXPECT_EQ(trim(" \t a b\n"), std::string_view("a b"));
  EXPECT_EQ(trim("  "), std::string_view());
  EXPECT_EQ(to_lower("ABz-Ä"), std::string("abz-Ä"));
}

TEST(parse_int_takes_whole_texts_only) {
  EXPECT_EQ(parse_int("-42"), std::optional<int64_t>(-42));
  for (const char* bad : {"", " 1", "1 ", "1.5", "0x10", "9223372036854775808"}) {
    EXPECT_EQ(parse_int(bad), std::optional<int64_t>());
  }
}

TEST(to_hex_and_format_bytes) {
  EXPECT_EQ(to_hex(std::string_view("\x00\xff\x1a", 3)), std::string("00ff1a"));
  EXPECT_EQ(format_bytes(0), std::string("0 B"));
  EXPECT_EQ(format_bytes(1023), std::string("1023 B"));
  EXPECT_EQ(format_bytes(1536), std::string("1.5 KiB"));
  EXPECT_EQ(format_bytes((1ULL << 20) - 1), std::string("1.0 MiB"));
  EXPECT_EQ(format_bytes(UINT64_MAX), std::string("16.0 EiB"));
}

TEST(edit_distances) {
  EXPECT_EQ(edit_distance("", ""), size_t{0});
  EXPECT_EQ(edit_distance("abc", ""), size_t{3});
  EXPECT_EQ(edit_distance("", "abc"), size_t{3});
  EXPECT_EQ(edit_distance("FUZE", "FUSE"), size_t{1});
  EXPECT_EQ(edit_distance("kitten", "sitting"), size_t{3});
  EXPECT_EQ(edit_distance("FLAGS", "FLAG"), size_t{1});
  EXPECT_EQ(edit_distance("ab", "ba"), size_t{2});
}

TEST(check_throws_kind_and_text) {
  const auto caught = [](auto body) {
    try {
      body();
    } catch (const Error& e) {
      return std::pair(e.kind, e.text);
    }
    return std::pair(ErrorKind::kInternal, std::string("nothing thrown"));
  };
  EXPECT_EQ(caught([] { TPU_CHECK(1 > 2, "one is ", 1); }),
            std::pair(ErrorKind::kInvalid, std::string("one is 1")));
  EXPECT_EQ(caught([] { TPU_CHECK(1 > 2, ErrorKind::kIndex, "dim ", 7); }),
            std::pair(ErrorKind::kIndex, std::string("dim 7")));
  EXPECT_EQ(caught([] { TPU_THROW(ErrorKind::kType, "no"); }),
            std::pair(ErrorKind::kType, std::string("no")));
  int evaluated = 0;
  TPU_CHECK(true, ++evaluated);
  EXPECT_EQ(evaluated, 0);
  EXPECT_EQ(std::string(Error(ErrorKind::kMemory, "full").what()), std::string("full"));
  EXPECT_EQ(cat(ErrorKind::kMissingOp), std::string("missing op"));
}

}  // namespace
}  // namespace tpu
