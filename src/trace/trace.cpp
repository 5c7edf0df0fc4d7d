#include "trace/trace.h"

#include <deque>
#include <map>
#include <mutex>
#include <unordered_map>

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

std::string line_of(const Location& l) {
  if (l.path) return path_text(l.path);
  const auto& describe = location_source().describe;
  return l.code && describe ? describe(l) : "";
}

ValuePtr Trace::placeholder(const Type* type) {
  ValuePtr v = make_value(type, window_.device());
  v->state = Value::State::kPlaceholder;
  window_.reference(v);
  placeholders_.push_back(v);
  return v;
}

RandomState Trace::take_random(const std::shared_ptr<RandomState>& source, int64_t draws) {
  size_t n = 0;
  while (n < sources_.size() && sources_[n].state != source) ++n;
  if (n == sources_.size()) sources_.push_back({source, 0});
  const RandomState s{n, static_cast<uint64_t>(sources_[n].draws)};
  sources_[n].draws += (draws + 3) / 4 * 4;  // as the generator of the device counts
  return s;
}

int64_t Trace::drawn(const std::shared_ptr<RandomState>& source) const {
  for (const RandomSource& s : sources_) {
    if (s.state == source) return s.draws;
  }
  return 0;
}

Trace::Program Trace::finish(const std::vector<ValuePtr>& outputs,
                             const std::vector<Update>& updates, bool assertions,
                             const std::vector<Embedded>& embedded) {
  const int64_t draws = sources_.empty() ? 0 : sources_[0].draws;
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
  results.random_draws = static_cast<uint64_t>(draws);
  results.assertions = assertions;
  results.embedded.resize(window_.parameters().size());
  for (const Embedded& e : embedded) {
    const auto i = static_cast<size_t>(window_.reference(e.placeholder));
    TPU_CHECK(results.aliases[i] < 0,
              "an input that the program writes cannot be a constant of it");
    results.embedded[i] = e.bytes;
  }

  Program p;
  p.lowered = lower_trace(window_, results, instances_.target());
  for (size_t i = 0; i < results.aliases.size(); ++i) {
    if (results.embedded[i]) continue;
    p.parameters.push_back(window_.parameters()[i]);
    p.aliases.push_back(results.aliases[i]);
  }
  p.output_count = outputs.size();
  p.random = draws > 0;
  return p;
}

Graph Trace::graph(const std::vector<ValuePtr>& results) {
  Graph g;
  g.nodes = window_.nodes();
  g.packs = window_.packs();
  g.sources = sources_;
  std::unordered_map<const Value*, int32_t> arguments;
  for (const ValuePtr& v : placeholders_)
    arguments.emplace(v.get(), static_cast<int32_t>(arguments.size()));
  // Placeholders that nothing reads are no parameters of the graph.
  std::vector<int32_t> numbers(window_.parameters().size(), -1);
  const auto used = [&](int32_t r) {
    if (r < 0) return r;
    const ValuePtr& v = window_.parameters()[static_cast<size_t>(r)];
    int32_t& n = numbers[static_cast<size_t>(r)];
    if (n < 0) {
      n = static_cast<int32_t>(g.parameters.size());
      const auto it = arguments.find(v.get());
      g.parameters.push_back(it != arguments.end() ? Graph::Parameter{it->second, {}}
                                                   : Graph::Parameter{-1, v});
    }
    return n;
  };
  for (int32_t r : window_.inputs()) g.inputs.push_back(used(r));
  for (const ValuePtr& v : results) {
    const int32_t r = window_.reference(v);
    numbers.resize(window_.parameters().size(), -1);
    g.results.push_back(used(r));
  }
  for (const Node& n : g.nodes) {
    if (n.inst->random_draws == 0) continue;
    size_t at = n.first_scalar[3];
    for (const ScalarUse& u : n.inst->scalars) at += u.dtype == DType::kI64;
    g.random_at.push_back(at);
  }
  return g;
}

Trace::Inner Trace::subgraph(const std::vector<ValuePtr>& results,
                             const std::shared_ptr<RandomState>& source) {
  for (const RandomSource& s : sources_) {
    TPU_CHECK(s.state == source, ErrorKind::kUnsupported,
              "it draws from a generator besides the device's default one");
  }
  Subgraph g;
  Inner made;
  g.graph = graph(results);
  for (const ValuePtr& v : placeholders_) g.arguments.push_back(v->type);
  for (Graph::Parameter& p : g.graph.parameters) {
    if (p.argument >= 0) continue;
    p.argument = static_cast<int32_t>(g.arguments.size());
    g.arguments.push_back(p.constant->type);
    made.captured.push_back(std::exchange(p.constant, {}));
  }
  for (const Node& n : g.graph.nodes) {
    g.assertions += n.inst->assertions;
    g.lines.push_back(n.inst->assertions > 0 ? line_of(n.location) : "");
  }
  if (!sources_.empty()) g.draws = sources_[0].draws;
  g.graph.sources.clear();
  made.number = instances_.add(std::move(g));
  return made;
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
