#include "trace/lower.h"

#include "trace/subgraph.h"
#include "trace/trace.h"

namespace tpu::trace {
namespace {

using hlo::Builder;

// Element types of the packs in argument order.
enum Pack { kF32, kF64, kI32, kI64, kPackCount };

// Gives the nodes of a window their scalars and random states: from the arguments that hold the
// packs, or, in a traced program, as constants and from the one argument with the generator's
// state.
class WindowHost final : public ops::Host {
 public:
  WindowHost(Builder& b, std::array<hlo::Value, kPackCount> packs) : b_(b), packs_(packs) {}
  WindowHost(Builder& b, const Packs& constants, hlo::Value generator)
      : b_(b), constants_(&constants), generator_(generator) {}

  void enter(const Node& n, size_t number) {
    node_ = &n;
    number_ = static_cast<uint32_t>(number);
    next_ = n.first_scalar;
  }

  void check_numbers(ops::NumberCheck) override {}  // has run when the call was recorded

  hlo::Value scalar(Builder& b, int32_t, DType dtype) override {
    switch (dtype) {
      case DType::kF32: return take(b, kF32);
      case DType::kF64: return take(b, kF64);
      case DType::kI32: return take(b, kI32);
      case DType::kI64: return take(b, kI64);
      case DType::kBool: return b.convert(take(b, kI32), DType::kBool);
      case DType::kC64:
      case DType::kC128: {
        const Pack p = dtype == DType::kC64 ? kF32 : kF64;
        const hlo::Value real = take(b, p);
        return b.complex(real, take(b, p));
      }
      default:
        TPU_THROW(ErrorKind::kInternal, "scalar operands cannot be ", hlo::torch_name(dtype));
    }
  }

  // The pair stands at the end of the node's int64 scalars, which are all taken or not yet: its
  // place follows from the instance.
  hlo::Value random_state(Builder& b, int64_t count) override {
    int64_t at = node_->first_scalar[kI64];
    for (const ScalarUse& u : node_->inst->scalars) at += u.dtype == DType::kI64;
    int64_t ahead = drawn_ / 4;  // in offsets
    hlo::Value pair = generator_;
    if (constants_) {
      ahead += constants_->i64[static_cast<size_t>(at) + 1];
    } else {
      pair = b.bitcast_convert(b.slice_dim(packs_[kI64], 0, at, at + 2), {DType::kU64, {2}});
    }
    drawn_ += (count + 3) / 4 * 4;  // as InferHost counts
    return advanced(b, pair, ahead);
  }
  static hlo::Value advanced(Builder& b, hlo::Value pair, int64_t offsets) {
    if (offsets == 0) return pair;
    const int64_t add[] = {0, offsets};
    return b.add(pair, b.constant_ints(add, {DType::kU64, {2}}));
  }

  void assertion(Builder& b, hlo::Value violated, hlo::Value value, ErrorKind kind,
                 std::string text, bool spoils) override {
    if (!keep_assertions) return;
    if (of_region) {
      if (const std::string& line = (*lines)[number_]; !line.empty()) text += "\n  at " + line;
      of_region->push_back({violated, value, kind, std::move(text), spoils});
      return;
    }
    flags_.push_back(b.reshape(b.convert(violated, DType::kI64), {1}));
    flags_.push_back(b.reshape(b.convert(value, DType::kI64), {1}));
    assertions.push_back({kind, std::move(text), number_, spoils});
  }

  void leave() { drawn_ = 0; }
  hlo::Value flags() { return flags_.empty() ? hlo::Value() : b_.concatenate(flags_, 0); }

  bool keep_assertions = true;
  std::vector<Assertion> assertions;
  // Of a subgraph: where its assertions go instead, and the lines of its nodes.
  std::vector<ops::Assertion>* of_region = nullptr;
  const std::vector<std::string>* lines = nullptr;

 private:
  hlo::Value take(Builder& b, Pack p) {
    const int64_t at = next_[p]++;
    if (constants_) return constant(b, p, static_cast<size_t>(at));
    return b.reshape(b.slice_dim(packs_[p], 0, at, at + 1), {});
  }
  hlo::Value constant(Builder& b, Pack p, size_t at) const {
    switch (p) {
      case kF32: return b.constant(DType::kF32, static_cast<double>(constants_->f32[at]));
      case kF64: return b.constant(DType::kF64, constants_->f64[at]);
      case kI32: return b.constant(DType::kI32, constants_->i32[at]);
      default: return b.constant(DType::kI64, constants_->i64[at]);
    }
  }

  Builder& b_;
  std::array<hlo::Value, kPackCount> packs_;
  const Packs* constants_ = nullptr;
  hlo::Value generator_;
  std::array<uint32_t, 4> next_{};
  const Node* node_ = nullptr;
  uint32_t number_ = 0;
  int64_t drawn_ = 0;
  std::vector<hlo::Value> flags_;
};

size_t input_count(const Node& n) { return n.inst->call.tensors.size(); }

// The nodes of a window or of a subgraph.
struct Nodes {
  std::span<const Node> nodes;
  std::span<const int32_t> inputs;

  explicit Nodes(const Window& w) : nodes(w.nodes()), inputs(w.inputs()) {}
  explicit Nodes(const Graph& g) : nodes(g.nodes), inputs(g.inputs) {}
  size_t outputs() const {
    return nodes.empty() ? 0 : nodes.back().first_output + nodes.back().inst->outputs.size();
  }
};

// The node of each output.
std::vector<size_t> producers(const Nodes& w) {
  std::vector<size_t> all(w.outputs());
  for (size_t n = 0; n < w.nodes.size(); ++n) {
    const Node& node = w.nodes[n];
    for (size_t o = 0; o < node.inst->outputs.size(); ++o) all[node.first_output + o] = n;
  }
  return all;
}

// Nodes that a live output needs, or that assert something.
std::vector<bool> needed_nodes(const Nodes& w, std::span<const int32_t> live, bool assertions) {
  const auto& nodes = w.nodes;
  const std::vector<size_t> producer = producers(w);
  std::vector<bool> needed(nodes.size());
  for (int32_t o : live) needed[producer[static_cast<size_t>(o)]] = true;
  for (size_t n = nodes.size(); n-- > 0;) {
    if (assertions && nodes[n].inst->assertions > 0) needed[n] = true;
    if (!needed[n]) continue;
    for (size_t i = 0; i < input_count(nodes[n]); ++i) {
      const int32_t r = w.inputs[nodes[n].first_input + i], output = ~r;
      if (r < 0) needed[producer[static_cast<size_t>(output)]] = true;
    }
  }
  return needed;
}

// Lowers the nodes that `live` outputs need, in order; `name` gives each its location.
template <class Name>
std::vector<hlo::Value> run_nodes(const Nodes& w, std::span<const int32_t> live, Builder& b,
                                  WindowHost& host, const std::vector<hlo::Value>& parameters,
                                  ops::Target target, const Name& name) {
  std::vector<hlo::Value> computed(w.outputs());
  const std::vector<bool> needed = needed_nodes(w, live, host.keep_assertions);
  for (size_t n = 0; n < w.nodes.size(); ++n) {
    if (!needed[n]) continue;
    const Node& node = w.nodes[n];
    std::vector<hlo::Value> inputs;
    for (size_t i = 0; i < input_count(node); ++i) {
      const int32_t r = w.inputs[node.first_input + i], output = ~r;
      inputs.push_back(r >= 0 ? parameters[static_cast<size_t>(r)]
                              : computed[static_cast<size_t>(output)]);
    }
    name(node);
    host.enter(node, n);
    const auto results = node.inst->lower(b, host, inputs, target);
    host.leave();
    for (size_t o = 0; o < results.size(); ++o) computed[node.first_output + o] = results[o];
  }
  return computed;
}

std::vector<int32_t> outputs_among(std::span<const int32_t> results) {
  std::vector<int32_t> live;
  for (int32_t r : results) {
    if (r < 0) live.push_back(~r);
  }
  return live;
}

std::vector<hlo::Value> picked(std::span<const int32_t> results,
                               const std::vector<hlo::Value>& parameters,
                               const std::vector<hlo::Value>& computed) {
  std::vector<hlo::Value> values;
  for (int32_t r : results) {
    const int32_t output = ~r;
    values.push_back(r >= 0 ? parameters[static_cast<size_t>(r)]
                            : computed[static_cast<size_t>(output)]);
  }
  return values;
}

// "layers.0.mlp|aten::mm|model.py:12 in forward": the compiler carries it to its own instructions.
std::string traced_name(const Node& n) {
  const auto& describe = location_source().describe;
  return cat(path_text(n.location.path), "|", n.inst->def->name, "|",
             describe && n.location.code ? describe(n.location) : std::string());
}

hlo::Value embedded_constant(Builder& b, std::string_view bytes, const Type& t) {
  if (!hlo::is_bool(t.dtype)) return b.constant_bytes(bytes, t);
  const std::vector<int64_t> values(bytes.begin(), bytes.end());
  return b.constant_ints(values, t);
}

std::string alias_attribute(int64_t output) {
  return output < 0 ? "" : cat("tf.aliasing_output = ", output, " : i32");
}

}  // namespace

Lowered lower(const Window& w, std::span<const int32_t> live, const std::vector<bool>& donated,
              ops::Target target) {
  Lowered result;
  result.function = std::make_unique<hlo::Function>();
  hlo::Function& f = *result.function;
  Builder b(f);

  std::vector<hlo::Value> parameters;
  for (size_t i = 0; i < w.parameters().size(); ++i) {
    parameters.push_back(b.parameter(*w.parameters()[i]->type));
    f.argument_attributes.push_back(donated[i] ? "jax.buffer_donor = true" : "");
  }
  std::array<hlo::Value, kPackCount> packs;
  auto add_pack = [&](Pack p, DType t, size_t n) {
    if (n == 0) return;
    packs[p] = b.parameter({t, {static_cast<int64_t>(n)}});
    f.argument_attributes.emplace_back();
  };
  add_pack(kF32, DType::kF32, w.packs().f32.size());
  add_pack(kF64, DType::kF64, w.packs().f64.size());
  add_pack(kI32, DType::kI32, w.packs().i32.size());
  add_pack(kI64, DType::kI64, w.packs().i64.size());

  WindowHost host(b, packs);
  const std::vector<hlo::Value> computed =
      run_nodes(Nodes(w), live, b, host, parameters, target, [&](const Node& node) {
        const std::string line = line_of(node.location);
        b.set_location(node.inst->def->name + (line.empty() ? "" : " at " + line));
      });
  b.set_location("");
  std::vector<hlo::Value> outputs;
  for (int32_t o : live) outputs.push_back(computed[static_cast<size_t>(o)]);
  result.assertions = std::move(host.assertions);
  if (const hlo::Value flags = host.flags(); flags.valid()) outputs.push_back(flags);
  b.finish(outputs);
  return result;
}

std::vector<std::vector<bool>> dependencies(const Window& w, std::span<const int32_t> live,
                                            std::span<const Assertion> assertions) {
  const size_t parameters = w.parameters().size();
  const std::vector<size_t> producer = producers(Nodes(w));
  std::vector<std::vector<bool>> of_node;
  size_t next = 0;  // assertions are in the order of their nodes
  for (const Node& n : w.nodes()) {
    const size_t number = of_node.size();
    std::vector<bool>& mine = of_node.emplace_back(parameters + assertions.size());
    for (size_t i = 0; i < input_count(n); ++i) {
      const int32_t r = w.inputs()[n.first_input + i], output = ~r;
      if (r >= 0) {
        mine[static_cast<size_t>(r)] = true;
        continue;
      }
      const std::vector<bool>& theirs = of_node[producer[static_cast<size_t>(output)]];
      for (size_t k = 0; k < mine.size(); ++k) mine[k] = mine[k] || theirs[k];
    }
    for (; next < assertions.size() && assertions[next].node == number; ++next)
      mine[parameters + next] = assertions[next].spoils;
  }
  std::vector<std::vector<bool>> all;
  for (const Assertion& a : assertions) all.push_back(of_node[a.node]);
  for (int32_t o : live) all.push_back(of_node[producer[static_cast<size_t>(o)]]);
  return all;
}

Lowered lower_trace(const Window& w, const TraceResults& results, ops::Target target) {
  Lowered lowered;
  lowered.function = std::make_unique<hlo::Function>();
  hlo::Function& f = *lowered.function;
  Builder b(f);

  const auto embedded = [&](size_t i) {
    return i < results.embedded.size() ? results.embedded[i] : std::nullopt;
  };
  std::vector<hlo::Value> parameters(w.parameters().size());
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (embedded(i)) continue;
    parameters[i] = b.parameter(*w.parameters()[i]->type);
    f.argument_attributes.push_back(alias_attribute(results.aliases[i]));
  }
  hlo::Value generator;
  if (results.random_draws > 0) {
    generator = b.parameter({DType::kU64, {2}});
    f.argument_attributes.push_back(alias_attribute(static_cast<int64_t>(results.outputs.size())));
  }
  for (size_t i = 0; i < parameters.size(); ++i) {
    if (const auto bytes = embedded(i))
      parameters[i] = embedded_constant(b, *bytes, *w.parameters()[i]->type);
  }
  WindowHost host(b, w.packs(), generator);
  host.keep_assertions = results.assertions;
  const std::vector<hlo::Value> computed =
      run_nodes(Nodes(w), outputs_among(results.outputs), b, host, parameters, target,
                [&](const Node& node) { b.set_location(traced_name(node)); });
  b.set_location("");
  std::vector<hlo::Value> outputs = picked(results.outputs, parameters, computed);
  if (generator.valid()) {
    outputs.push_back(
        WindowHost::advanced(b, generator, static_cast<int64_t>(results.random_draws)));
  }
  lowered.assertions = std::move(host.assertions);
  if (const hlo::Value flags = host.flags(); flags.valid()) outputs.push_back(flags);
  b.finish(outputs);
  return lowered;
}

// Its instructions carry the location of the op whose region they are in.
ops::Values InstanceTable::lower(Builder& b, int64_t number, const ops::Values& arguments,
                                 hlo::Value random, ops::Target target,
                                 std::vector<ops::Assertion>& assertions) const {
  const Subgraph& g = subgraph(number);
  TPU_CHECK(arguments.size() == g.arguments.size(), "a subgraph of ", g.arguments.size(),
            " arguments is given ", arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    TPU_CHECK(arguments[i].type() == *g.arguments[i], "argument ", i, " of a subgraph is ",
              hlo::to_string(*g.arguments[i]), ", and it is given ",
              hlo::to_string(arguments[i].type()));
  }
  std::vector<hlo::Value> parameters;
  for (const Graph::Parameter& p : g.graph.parameters)
    parameters.push_back(arguments[static_cast<size_t>(p.argument)]);
  WindowHost host(b, g.graph.packs, random);
  host.of_region = &assertions;
  host.lines = &g.lines;
  const std::vector<hlo::Value> computed =
      run_nodes(Nodes(g.graph), outputs_among(g.graph.results), b, host, parameters, target,
                [](const Node&) {});
  return picked(g.graph.results, parameters, computed);
}

}  // namespace tpu::trace
