#include "trace/trace.h"

#include <deque>
#include <map>
#include <mutex>

namespace tpu::trace {
namespace {

struct Paths {
  std::mutex mutex;
  std::deque<std::string> texts{""};
  std::map<std::string_view, int32_t> numbers{{texts[0], 0}};
};
Paths& paths() {
  static auto* p = new Paths;
  return *p;
}

}  // namespace

int32_t intern_path(std::string_view path) {
  Paths& p = paths();
  const std::lock_guard lock(p.mutex);
  if (const auto it = p.numbers.find(path); it != p.numbers.end()) return it->second;
  const auto number = static_cast<int32_t>(p.texts.size());
  p.numbers.emplace(p.texts.emplace_back(path), number);
  return number;
}

std::string path_text(int32_t number) {
  Paths& p = paths();
  const std::lock_guard lock(p.mutex);
  return p.texts[static_cast<size_t>(number)];
}

ValuePtr Trace::placeholder(const Type* type) {
  ValuePtr v = make_value(type, window_.device());
  v->state = Value::State::kPlaceholder;
  window_.reference(v);
  return v;
}

RandomState Trace::take_random(int64_t draws) {
  const RandomState s{0, draws_};
  draws_ += (static_cast<uint64_t>(draws) + 3) / 4 * 4;  // as the generator of the device counts
  return s;
}

Trace::Program Trace::finish(const std::vector<ValuePtr>& outputs,
                             const std::vector<Update>& updates, bool assertions) {
  TraceResults results;
  for (const ValuePtr& v : outputs) results.outputs.push_back(window_.reference(v));
  std::vector<std::pair<int32_t, int32_t>> moves;  // parameter, output
  for (const Update& u : updates) {
    TPU_CHECK(*u.placeholder->type == *u.value->type, ErrorKind::kInternal, "an input of type ",
              hlo::to_string(*u.placeholder->type), " was updated to ",
              hlo::to_string(*u.value->type));
    moves.emplace_back(window_.reference(u.placeholder),
                       static_cast<int32_t>(results.outputs.size()));
    results.outputs.push_back(window_.reference(u.value));
  }
  results.aliases.assign(window_.parameters().size(), -1);
  for (const auto& [parameter, output] : moves)
    results.aliases[static_cast<size_t>(parameter)] = output;
  results.random_draws = draws_;
  results.assertions = assertions;

  Program p;
  p.lowered = lower_trace(window_, results, instances_.target());
  p.parameters = window_.parameters();
  p.aliases = results.aliases;
  p.output_count = outputs.size();
  p.random = draws_ > 0;
  return p;
}

void Trace::close() {
  static const auto failure = std::make_shared<const Error>(
      ErrorKind::kInvalid, "this tensor was made while a program was traced, and has no value");
  auto fail = [](const ValuePtr& v) {
    if (!v || v->state == Value::State::kReady) return;
    v->state = Value::State::kFailed;
    v->failure = failure;
  };
  Recording r = window_.take();
  for (const ValuePtr& v : r.outputs) fail(v);
  for (const ValuePtr& v : r.parameters) fail(v);
  r.restore({});
}

}  // namespace tpu::trace
