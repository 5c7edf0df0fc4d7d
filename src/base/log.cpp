#include "base/log.h"

#include <cstdio>
#include <mutex>
#include <set>
#include <utility>

#include "base/settings.h"

namespace tpu {
namespace {

std::mutex g_mutex;
LogSink g_sink;

}  // namespace

std::string_view to_string(LogLevel level) {
  switch (level) {
    case LogLevel::kError: return "error";
    case LogLevel::kWarning: return "warning";
    case LogLevel::kInfo: return "info";
    case LogLevel::kDebug: return "debug";
  }
  return "unknown";
}

bool log_enabled(LogLevel level) {
  static const int max_level = [] {
    const std::string name = settings().get_string("log_level");
    int i = 0;
    while (to_string(static_cast<LogLevel>(i)) != name) ++i;  // the table admits only these names
    return i;
  }();
  return static_cast<int>(level) <= max_level;
}

void log_text(const std::string& text) {
  const std::string line = cat("torch_tpu: ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void log_line(LogLevel level, const std::string& text) {
  LogSink sink;
  {
    const std::lock_guard lock(g_mutex);
    sink = g_sink;
  }
  if (sink) {
    sink(level, text);  // outside the lock: a sink may log or take other locks
    return;
  }
  const std::string line = cat("torch_tpu ", level, ": ", text, "\n");
  std::fwrite(line.data(), 1, line.size(), stderr);
}

void set_log_sink(LogSink sink) {
  const std::lock_guard lock(g_mutex);
  g_sink = std::move(sink);
}

bool first_time(std::string_view key) {
  static std::set<std::string, std::less<>> seen;
  const std::lock_guard lock(g_mutex);
  return seen.emplace(key).second;
}

}  // namespace tpu
