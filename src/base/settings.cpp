#include "base/settings.h"

#include <algorithm>
#include <cstdlib>

#include "base/error.h"
#include "base/strings.h"

extern char** environ;

namespace tpu {
namespace {

constexpr std::string_view kPrefix = "TORCH_TPU_", kTestPrefix = "TORCH_TPU_TEST_";

using enum SettingType;
constexpr Setting kTable[] = {
    // Which device.
    {"platform", "TORCH_TPU_PLATFORM", kEnum, "auto", "auto|tpu|cpu",
     "device to use: a TPU if one is attached, else the CPU plugin (auto), or only that one"},
    {"plugin", "TORCH_TPU_PJRT_PLUGIN", kString, "", "",
     "path of a PJRT plugin library to use instead of the one that would be found"},
    {"cpu_device_count", "TORCH_TPU_CPU_DEVICE_COUNT", kInt, "1", "",
     "devices that the CPU plugin offers"},
    {"memory_limit", "TORCH_TPU_MEMORY_LIMIT", kBytes, "0", "",
     "device memory in bytes that may be used; 0 is all of it (on the CPU plugin: the host "
     "memory)"},
    {"xla_options", "TORCH_TPU_XLA_OPTIONS", kString, "", "",
     "compile options for every program, key=value separated by blanks"},
    // How eager code runs.
    {"defer_and_fuse", "TORCH_TPU_DEFER_AND_FUSE", kBool, "0", "",
     "fused eager: ops are recorded and run together when a value is needed"},
    {"launch_blocking", "TORCH_TPU_LAUNCH_BLOCKING", kBool, "0", "",
     "debug eager: every op runs and is waited for before the next; wins over defer_and_fuse"},
    {"debug_checks", "TORCH_TPU_ENABLE_DEBUG_CHECKS", kBool, "0", "",
     "strict eager: wait for the checks of data, such as index bounds, after each op that has "
     "some; "
     "debug eager always does"},
    {"donation", "TORCH_TPU_DONATION", kBool, "1", "",
     "let programs reuse the memory of inputs that nothing else holds"},
    {"cpu_fallback", "TORCH_TPU_FALLBACK", kEnum, "warn", "warn|error|quiet",
     "ops without a lowering: run on the CPU and say so once, raise, or run silently"},
    {"flush_ops", "TORCH_TPU_FLUSH_OPS", kInt, "0", "",
     "fused eager: recorded ops that force a run; 0 takes the built-in threshold"},
    {"lapack", "TORCH_TPU_LAPACK", kBool, "1", "",
     "CPU plugin: linear algebra by the host's LAPACK; 0 makes it loops of the program, as for a "
     "plugin that cannot call the host"},
    // Compiling and caching.
    {"compile_tier", "TORCH_TPU_COMPILE_TIER", kEnum, "full", "fast|full",
     "CPU plugin: compile quickly to slower programs (fast), or fully"},
    {"memory_cache", "TORCH_TPU_MEMORY_CACHE", kInt, "0", "",
     "executables kept in memory; 0 takes the built-in bound"},
    {"disk_cache", "TORCH_TPU_DISK_CACHE", kBool, "1", "",
     "keep compiled programs on disk for other processes and later runs"},
    {"cache_dir", "TORCH_TPU_CACHE_DIR", kString, "", "",
     "folder of the disk cache; empty is torch_tpu in the user's cache folder"},
    {"disk_cache_readonly", "TORCH_TPU_DISK_CACHE_READONLY", kBool, "0", "",
     "load programs from the disk cache and store none, as for a folder that others fill"},
    {"disk_cache_bytes", "TORCH_TPU_DISK_CACHE_BYTES", kBytes, "4G", "",
     "size at which the disk cache drops its oldest programs"},
    // Seeing what happens.
    {"log_level", "TORCH_TPU_LOG_LEVEL", kEnum, "warning", "error|warning|info|debug",
     "least severe messages that are written"},
    {"log", "TORCH_TPU_LOG", kEnum, "none", "none|compile",
     "a line on stderr for every program that is compiled, with the user's line (compile)"},
    {"lower_for", "TORCH_TPU_LOWER_FOR", kEnum, "plugin", "plugin|tpu",
     "whose programs are made where they differ: the plugin's, or a TPU's on the CPU plugin too"},
    {"dump_dir", "TORCH_TPU_DUMP_DIR", kString, "", "",
     "folder that receives the text of every compiled program"},
};

struct Parsed {
  int64_t number = 0;
  bool ok = false;
};

Parsed parse_bool(std::string_view text) {
  const std::string t = to_lower(text);
  for (const char* yes : {"1", "true", "on", "yes"}) {
    if (t == yes) return {1, true};
  }
  for (const char* no : {"0", "false", "off", "no"}) {
    if (t == no) return {0, true};
  }
  return {};
}

Parsed parse_bytes(std::string_view text) {
  int shift = 0;
  if (!text.empty()) {
    constexpr std::string_view kUnits = "kmgt";
    const size_t unit = kUnits.find(to_lower(text.substr(text.size() - 1)));
    if (unit != std::string_view::npos) {
      shift = 10 * (static_cast<int>(unit) + 1);
      text.remove_suffix(1);
    }
  }
  const auto n = parse_int(text);
  if (!n || *n < 0 || *n > (INT64_MAX >> shift)) return {};
  return {*n << shift, true};
}

Parsed parse(const Setting& row, std::string_view text) {
  switch (row.type) {
    case kBool: return parse_bool(text);
    case kInt: {
      const auto n = parse_int(text);
      return {n.value_or(0), n.value_or(-1) >= 0};
    }
    case kBytes: return parse_bytes(text);
    case kString: return {0, true};
    case kEnum: return {0, std::ranges::count(split(row.choices, '|'), text) == 1};
  }
  return {};
}

std::string admits(const Setting& row) {
  switch (row.type) {
    case kBool: return "1, 0, true, false, on, off, yes or no";
    case kInt: return "a whole number, not negative";
    case kBytes: return "a number of bytes such as 4096, 512M or 4G";
    case kString: return "any text";
    case kEnum: return cat("one of ", join(split(row.choices, '|')));
  }
  return {};
}

}  // namespace

std::string_view to_string(SettingType type) {
  switch (type) {
    case kBool: return "bool";
    case kInt: return "int";
    case kBytes: return "bytes";
    case kString: return "string";
    case kEnum: return "choice";
  }
  return "unknown";
}

Settings::Settings(std::span<const Setting> table) : table_(table), values_(table.size()) {}

size_t Settings::find(std::string_view name) const {
  const auto at = std::ranges::find(table_, name, &Setting::name);
  TPU_CHECK(at != table_.end(), "no setting is called ", name, "; the names are ", [&] {
    std::vector<std::string_view> names;
    for (const Setting& row : table_) names.push_back(row.name);
    return join(names);
  }());
  return static_cast<size_t>(at - table_.begin());
}

const Settings::Value& Settings::value(size_t i) {
  Value& v = values_[i];
  if (v.text) return v;
  const Setting& row = table_[i];
  const char* variable = std::getenv(std::string(row.variable).c_str());
  // A variable that is set but empty counts as not set, as shells cannot always unset.
  const bool given = variable != nullptr && *variable != '\0';
  const std::string_view text = given ? std::string_view(variable) : row.fallback;
  const Parsed parsed = parse(row, text);
  TPU_CHECK(parsed.ok, row.variable, "=", text, " is not understood; it takes ", admits(row));
  v.number = parsed.number;
  v.text = std::string(text);
  return v;
}

bool Settings::get_bool(std::string_view name) {
  const size_t i = find(name);
  TPU_CHECK(table_[i].type == kBool, ErrorKind::kInternal, "setting ", name, " is no bool");
  const std::lock_guard lock(mutex_);
  return value(i).number != 0;
}

int64_t Settings::get_int(std::string_view name) {
  const size_t i = find(name);
  TPU_CHECK(table_[i].type == kInt || table_[i].type == kBytes, ErrorKind::kInternal, "setting ",
            name, " is no integer");
  const std::lock_guard lock(mutex_);
  return value(i).number;
}

std::string Settings::get_string(std::string_view name) {
  const size_t i = find(name);
  TPU_CHECK(table_[i].type == kString || table_[i].type == kEnum, ErrorKind::kInternal, "setting ",
            name, " is no text");
  const std::lock_guard lock(mutex_);
  return *value(i).text;
}

void Settings::set(std::string_view name, std::string_view text) {
  const size_t i = find(name);
  const Parsed parsed = parse(table_[i], text);
  TPU_CHECK(parsed.ok, "setting ", name, " cannot be ", text, "; it takes ", admits(table_[i]));
  const std::lock_guard lock(mutex_);
  values_[i] = {std::string(text), parsed.number};
  generation_.fetch_add(1, std::memory_order_relaxed);
}

void Settings::reset(std::string_view name) {
  const size_t i = find(name);
  const std::lock_guard lock(mutex_);
  values_[i] = {};
  generation_.fetch_add(1, std::memory_order_relaxed);
}

void Settings::check() {
  const std::lock_guard lock(mutex_);
  for (size_t i = 0; i < table_.size(); ++i) value(i);
}

std::string Settings::text(std::string_view name) {
  const size_t i = find(name);
  const std::lock_guard lock(mutex_);
  return *value(i).text;
}

const Setting* Settings::nearest(std::string_view variable) const {
  const Setting* best = nullptr;
  size_t least = (variable.size() - kPrefix.size()) / 3;  // more edits make another word
  for (const Setting& row : table_) {
    const size_t edits = edit_distance(variable, row.variable);
    if (edits > least || (best && edits == least)) continue;
    best = &row;
    least = edits;
  }
  return best;
}

std::vector<std::string> Settings::unknown_variables() const {
  std::vector<std::string> unknown;
  for (char** entry = environ; entry != nullptr && *entry != nullptr; ++entry) {
    const std::string_view text = *entry;
    const size_t end = text.find('=');
    if (end == std::string_view::npos || end + 1 == text.size()) continue;  // empty: not set
    const std::string_view variable = text.substr(0, end);
    if (!variable.starts_with(kPrefix) || variable.starts_with(kTestPrefix)) continue;
    if (std::ranges::count(table_, variable, &Setting::variable) > 0) continue;
    const Setting* near = nearest(variable);
    unknown.push_back(near ? cat(variable, " is no setting; did you mean ", near->variable, "?")
                           : cat(variable, " is no setting; python -m torch_tpu.info lists them"));
  }
  std::ranges::sort(unknown);
  return unknown;
}

Settings& settings() {
  static Settings all(kTable);
  return all;
}

}  // namespace tpu
