// Every setting of the project is one row of the table in settings.cpp: name, environment variable,
// type, default, meaning. A value comes from `set` (Python), else from the environment, else from
// the default. The environment is read once, at the first use of the row; a text that the row's
// type does not admit is an error that names the variable and what it takes. Safe from any thread.
// A read takes a lock and a search of the table: code that runs once an op keeps the value and
// reads it again when `generation()` has changed.
#pragma once

#include <atomic>
#include <cstdint>
#include <mutex>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace tpu {

enum class SettingType : uint8_t {
  kBool,    // 1/0, true/false, on/off, yes/no
  kInt,     // decimal, not negative
  kBytes,   // decimal, with K, M, G or T for powers of 1024
  kString,  // anything
  kEnum,    // one of `choices`
};
std::string_view to_string(SettingType type);

struct Setting {
  std::string_view name;
  std::string_view variable;
  SettingType type;
  std::string_view fallback;
  std::string_view choices;  // kEnum only, separated by |
  std::string_view doc;
};

class Settings {
 public:
  explicit Settings(std::span<const Setting> table);

  bool get_bool(std::string_view name);
  int64_t get_int(std::string_view name);         // kInt and kBytes
  std::string get_string(std::string_view name);  // kString and kEnum
  // Beats the environment until `reset`. Throws when the row does not admit the text.
  void set(std::string_view name, std::string_view text);
  void reset(std::string_view name);
  // Throws for the first variable of the environment that its row does not admit.
  void check();
  // The text in force, whatever the type.
  std::string text(std::string_view name);

  uint64_t generation() const { return generation_.load(std::memory_order_relaxed); }
  std::span<const Setting> table() const { return table_; }
  // A sentence for each variable that is set, begins like ours and stands in no row, with the row
  // that it resembles. TORCH_TPU_TEST_* belongs to the tests.
  std::vector<std::string> unknown_variables() const;

 private:
  struct Value {
    std::optional<std::string> text;
    int64_t number = 0;
  };
  size_t find(std::string_view name) const;
  const Setting* nearest(std::string_view variable) const;
  const Value& value(size_t row);

  std::span<const Setting> table_;
  std::mutex mutex_;
  std::vector<Value> values_;
  std::atomic<uint64_t> generation_{1};
};

// The project's table.
Settings& settings();

}  // namespace tpu
