// What the runtime does, one by one, for `torch.tpu.explain`. Off until somebody asks: then each
// event costs the text of the user's line. Safe from any thread.
#pragma once
#include <cstdint>
#include <string>
#include <vector>

namespace tpu::runtime {

struct Event {
  enum class Kind : uint8_t { kFlush, kCompile, kUpload, kDownload, kFallback };
  Kind kind;
  std::string where{};   // the user's line: "train.py:12 in step"; empty outside of Python
  std::string what{};    // kFlush: the reason; kCompile: the program; kFallback: the op
  double seconds = 0;    // of the host: kCompile; kDownload: until the value was there
  int64_t bytes = 0;     // kUpload, kDownload
  int64_t ops = 0;       // kFlush, kCompile: recorded nodes
  int64_t launches = 0;  // kFlush
  std::vector<std::string> signatures{};  // kCompile: op and types of each node
};
const char* to_string(Event::Kind k);

// Nested: on until every `keep_events(true)` had its false.
void keep_events(bool on);
bool events_kept();
void add_event(Event e);
// Those since the last call. The oldest are dropped beyond 100,000.
std::vector<Event> take_events();

}  // namespace tpu::runtime
