// A test file is a list of TEST(name) { ... } bodies; all test files of a layer make one program.
// EXPECT_* report and go on, an exception fails the test, SKIP("reason") ends it as skipped.
// Options: --filter=PART runs the tests whose name contains PART; the other words are
// `test::args()`.
#pragma once

#include <cstdio>
#include <exception>
#include <string>
#include <string_view>
#include <vector>

#include "base/strings.h"

namespace tpu::test {

struct Case {
  const char* name;
  void (*body)();
};
struct Skipped {
  std::string reason;
};
inline std::vector<Case>& cases() {
  static std::vector<Case> all;
  return all;
}
inline std::vector<std::string>& args() {
  static std::vector<std::string> words;
  return words;
}
inline int& failures() {
  static int count = 0;
  return count;
}
inline bool add(const char* name, void (*body)()) {
  cases().push_back({name, body});
  return true;
}
inline void report(const char* file, int line, const std::string& text) {
  ++failures();
  std::fprintf(stderr, "%s:%d: %s\n", file, line, text.c_str());
}
template <class A, class B>
void expect_equal(const A& a, const B& b, const char* a_text, const char* b_text, const char* file,
                  int line) {
  if (a == b) return;
  report(file, line, cat(a_text, " is ", a, ", expected ", b_text, " = ", b));
}
inline int run(int argc, char** argv) {
  std::string filter;
  for (int i = 1; i < argc; ++i) {
    const std::string_view word = argv[i];
    if (word.starts_with("--filter=")) {
      filter = word.substr(9);
    } else {
      args().emplace_back(word);
    }
  }
  int passed = 0, failed = 0, skipped = 0;
  for (const auto& c : cases()) {
    if (std::string_view(c.name).find(filter) == std::string_view::npos) continue;
    const int before = failures();
    try {
      c.body();
    } catch (const Skipped& s) {
      std::printf("skip %s: %s\n", c.name, s.reason.c_str());
      ++skipped;
      continue;
    } catch (const std::exception& e) {
      report(c.name, 0, cat("threw ", e.what()));
    }
    const bool ok = failures() == before;
    if (!ok) std::printf("FAIL %s\n", c.name);
    (ok ? passed : failed) += 1;
  }
  std::printf("%d passed, %d failed, %d skipped\n", passed, failed, skipped);
  return failed == 0 ? 0 : 1;
}

}  // namespace tpu::test

// Weak, so that every test file of a program may bring it along.
// NOLINTNEXTLINE(misc-definitions-in-headers)
__attribute__((weak)) int main(int argc, char** argv) { return tpu::test::run(argc, argv); }

#define TEST(name)                                                                             \
  static void test_##name();                                                                   \
  [[maybe_unused]] static const bool registered_##name = ::tpu::test::add(#name, test_##name); \
  static void test_##name()

#define SKIP(...) \
  throw ::tpu::test::Skipped { ::tpu::cat(__VA_ARGS__) }

#define EXPECT_TRUE(condition) \
  ((condition) ? void() : ::tpu::test::report(__FILE__, __LINE__, "expected " #condition))

#define EXPECT_EQ(a, b) ::tpu::test::expect_equal((a), (b), #a, #b, __FILE__, __LINE__)

// The expression must throw, and the message must contain `part`.
#define EXPECT_THROW_MSG(expression, part)                                               \
  do {                                                                                   \
    std::string message_;                                                                \
    bool threw_ = false;                                                                 \
    try {                                                                                \
      (void)(expression);                                                                \
    } catch (const std::exception& e_) {                                                 \
      threw_ = true;                                                                     \
      message_ = e_.what();                                                              \
    }                                                                                    \
    if (!threw_) {                                                                       \
      ::tpu::test::report(__FILE__, __LINE__, #expression " did not throw");             \
    } else if (message_.find(part) == std::string::npos) {                               \
      ::tpu::test::report(                                                               \
          __FILE__, __LINE__,                                                            \
          ::tpu::cat(#expression " threw \"", message_, "\", expected \"", part, "\"")); \
    }                                                                                    \
  } while (false)
