#include "base/settings.h"

#include <algorithm>
#include <cstdlib>
#include <set>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/log.h"
#include "base/test.h"

namespace tpu {
namespace {

constexpr Setting kRows[] = {
    {"flag", "TORCH_TPU_TEST_FLAG", SettingType::kBool, "1", "", ""},
    {"count", "TORCH_TPU_TEST_COUNT", SettingType::kInt, "3", "", ""},
    {"size", "TORCH_TPU_TEST_SIZE", SettingType::kBytes, "4G", "", ""},
    {"mode", "TORCH_TPU_TEST_MODE", SettingType::kEnum, "fast", "fast|slow", ""},
    {"path", "TORCH_TPU_TEST_PATH", SettingType::kString, "", "", ""},
};

struct Variable {
  Variable(const char* name, const char* value) : name_(name) { setenv(name, value, 1); }
  ~Variable() { unsetenv(name_); }
  const char* name_;
};

TEST(settings_defaults) {
  Settings s(kRows);
  EXPECT_EQ(s.get_bool("flag"), true);
  EXPECT_EQ(s.get_int("count"), int64_t{3});
  EXPECT_EQ(s.get_int("size"), int64_t{4} << 30);
  EXPECT_EQ(s.get_string("mode"), std::string("fast"));
  EXPECT_EQ(s.text("size"), std::string("4G"));
}

TEST(settings_read_the_environment_once) {
  Settings s(kRows);
  {
    const Variable flag("TORCH_TPU_TEST_FLAG", "Off"), size("TORCH_TPU_TEST_SIZE", "512m"),
        path("TORCH_TPU_TEST_PATH", "");
    EXPECT_EQ(s.get_bool("flag"), false);
    EXPECT_EQ(s.get_int("size"), int64_t{512} << 20);
    EXPECT_EQ(s.get_string("path"), std::string());
  }
  EXPECT_EQ(s.get_bool("flag"), false);
}

TEST(settings_refuse_what_a_row_does_not_admit) {
  const Variable flag("TORCH_TPU_TEST_FLAG", "2"), count("TORCH_TPU_TEST_COUNT", "1.5"),
      size("TORCH_TPU_TEST_SIZE", "9999999999T"), mode("TORCH_TPU_TEST_MODE", "fastest");
  Settings s(kRows);
  EXPECT_THROW_MSG(s.get_bool("flag"), "TORCH_TPU_TEST_FLAG=2 is not understood");
  EXPECT_THROW_MSG(s.get_int("count"), "it takes a whole number, not negative");
  EXPECT_THROW_MSG(s.get_int("size"), "it takes a number of bytes");
  EXPECT_THROW_MSG(s.get_string("mode"),
                   "TORCH_TPU_TEST_MODE=fastest is not understood; it takes one of fast, slow");
  EXPECT_THROW_MSG(s.get_bool("flags"), "no setting is called flags");
  EXPECT_THROW_MSG(s.get_bool("count"), "is no bool");
}

TEST(settings_set_beats_the_environment_until_reset) {
  const Variable mode("TORCH_TPU_TEST_MODE", "slow");
  Settings s(kRows);
  const uint64_t before = s.generation();
  s.set("mode", "fast");
  EXPECT_TRUE(s.generation() != before);
  EXPECT_EQ(s.get_string("mode"), std::string("fast"));
  EXPECT_THROW_MSG(s.set("mode", "x"), "setting mode cannot be x; it takes one of fast, slow");
  s.reset("mode");
  EXPECT_EQ(s.get_string("mode"), std::string("slow"));
}

TEST(settings_name_misspelt_variables) {
  const Variable ours("TORCH_TPU_TEST_FLAG", "1"), tests("TORCH_TPU_TEST_ANYTHING", "1"),
      misspelt("TORCH_TPU_TETS_FLAG", "1"), other("TORCH_TPU_ZEBRA", "1"),
      empty("TORCH_TPU_ZEBRAS", "");
  const auto told = Settings(kRows).unknown_variables();  // and what else the environment holds
  const auto count = [&](std::string_view part) {
    return std::ranges::count_if(
        told, [&](const std::string& text) { return text.find(part) != std::string::npos; });
  };
  const auto has = [&](const char* text) { return std::ranges::count(told, text) == 1; };
  EXPECT_TRUE(has("TORCH_TPU_TETS_FLAG is no setting; did you mean TORCH_TPU_TEST_FLAG?"));
  EXPECT_TRUE(has("TORCH_TPU_ZEBRA is no setting; python -m torch_tpu.info lists them"));
  EXPECT_EQ(count("ZEBRAS"), 0);
  EXPECT_EQ(count("ANYTHING"), 0);
  EXPECT_EQ(count("TORCH_TPU_TEST_FLAG is"), 0);
}

TEST(settings_table_is_sound) {
  std::set<std::string_view> names, variables;
  for (const Setting& row : settings().table()) {
    EXPECT_TRUE(names.insert(row.name).second);
    EXPECT_TRUE(variables.insert(row.variable).second);
    EXPECT_TRUE(row.variable.starts_with("TORCH_TPU_"));
    EXPECT_TRUE(!row.doc.empty());
    EXPECT_EQ(row.type == SettingType::kEnum, !row.choices.empty());
    settings().set(row.name, row.fallback);  // throws for a default that its own type refuses
    settings().reset(row.name);
  }
}

TEST(log_goes_to_the_sink_by_level) {
  std::vector<std::string> lines;
  set_log_sink(
      [&](LogLevel level, const std::string& text) { lines.push_back(cat(level, " ", text)); });
  int evaluated = 0;
  TPU_LOG(LogLevel::kWarning, "a ", 1);
  TPU_LOG(LogLevel::kDebug, ++evaluated);  // below the default level
  set_log_sink({});
  EXPECT_EQ(lines, std::vector<std::string>{"warning a 1"});
  EXPECT_EQ(evaluated, 0);
  EXPECT_TRUE(first_time("settings_test"));
  EXPECT_TRUE(!first_time("settings_test"));
}

}  // namespace
}  // namespace tpu
