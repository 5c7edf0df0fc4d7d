// TPU_LOG(LogLevel::kWarning, parts...) writes one line to the sink (stderr unless replaced) when
// the setting `log_level` admits it; the parts are evaluated only then. Safe from any thread, also
// from plugin callbacks.
#pragma once

#include <atomic>
#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "base/strings.h"

namespace tpu {

enum class LogLevel : uint8_t { kError, kWarning, kInfo, kDebug };
std::string_view to_string(LogLevel level);

// A line that was asked for, whatever the level.
void log_text(const std::string& text);
// Whether a line of this level would be written.
bool log_enabled(LogLevel level);
void log_line(LogLevel level, const std::string& text);

using LogSink = std::function<void(LogLevel, const std::string&)>;
// An empty sink restores stderr.
void set_log_sink(LogSink sink);

// True the first time a key is seen in this process: `if (first_time("...")) TPU_LOG(...)`.
bool first_time(std::string_view key);

}  // namespace tpu

#define TPU_LOG(level, ...)                                                         \
  do {                                                                              \
    if (::tpu::log_enabled(level)) ::tpu::log_line(level, ::tpu::cat(__VA_ARGS__)); \
  } while (false)
