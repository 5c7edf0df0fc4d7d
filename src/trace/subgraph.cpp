#include "trace/subgraph.h"

namespace tpu::trace {
namespace {

class Words {
 public:
  template <class T>
  void put(const T& v) {
    static_assert(std::is_trivially_copyable_v<T>);
    text_.append(reinterpret_cast<const char*>(&v), sizeof v);
  }
  template <class T>
  void list(const std::vector<T>& v) {
    put(v.size());
    for (const T& e : v) put(e);
  }
  std::string take() { return std::move(text_); }

 private:
  std::string text_;
};

}  // namespace

std::string Subgraph::content() const {
  Words w;
  w.list(arguments);
  w.put(graph.nodes.size());
  for (const Node& n : graph.nodes) w.put(n.inst->id);
  w.list(graph.inputs);
  w.put(graph.parameters.size());
  for (const Graph::Parameter& p : graph.parameters) w.put(p.argument);
  w.list(graph.results);
  w.list(graph.packs.f32), w.list(graph.packs.f64);
  w.list(graph.packs.i32), w.list(graph.packs.i64);
  for (const std::string& l : lines) w.list(std::vector<char>(l.begin(), l.end()));
  return w.take();
}

int64_t InstanceTable::add(Subgraph g) {
  const auto next = static_cast<int64_t>(subgraphs_.size());
  const auto [it, fresh] = subgraph_numbers_.try_emplace(g.content(), next);
  if (fresh) subgraphs_.push_back(std::make_shared<const Subgraph>(std::move(g)));
  return it->second;
}

const Subgraph& InstanceTable::subgraph(int64_t number) const {
  TPU_CHECK(number >= 0 && number < static_cast<int64_t>(subgraphs_.size()), ErrorKind::kInternal,
            "there is no subgraph ", number);
  return *subgraphs_[static_cast<size_t>(number)];
}

int64_t InstanceTable::draws(int64_t number) const { return subgraph(number).draws; }
int64_t InstanceTable::assertions(int64_t number) const { return subgraph(number).assertions; }

std::vector<Type> InstanceTable::result_types(int64_t number) const {
  const Subgraph& g = subgraph(number);
  std::vector<const Type*> computed;
  for (const Node& n : g.graph.nodes) {
    for (const OutputSpec& o : n.inst->outputs) computed.push_back(o.base);
  }
  std::vector<Type> types;
  for (int32_t r : g.graph.results) {
    const int32_t output = ~r;
    types.push_back(r >= 0 ? *g.argument_type(r) : *computed[static_cast<size_t>(output)]);
  }
  return types;
}

}  // namespace tpu::trace
