#include "trace/lower.h"

namespace tpu::trace {
namespace {

using hlo::Builder;

// Element types of the packs in argument order.
enum Pack { kF32, kF64, kI32, kI64, kPackCount };

class WindowHost final : public ops::Host {
 public:
  WindowHost(Builder& b, std::array<hlo::Value, kPackCount> packs) : b_(b), packs_(packs) {}

  void enter(const Node& n, size_t number) {
    node_ = &n;
    number_ = static_cast<uint32_t>(number);
    next_ = n.first_scalar;
  }

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
    const hlo::Value pair =
        b.bitcast_convert(b.slice_dim(packs_[kI64], 0, at, at + 2), {DType::kU64, {2}});
    const int64_t before = drawn_;
    drawn_ += (count + 3) / 4 * 4;  // as InferHost counts
    if (before == 0) return pair;
    const int64_t add[] = {0, before / 4};
    return b.add(pair, b.constant_ints(add, {DType::kU64, {2}}));
  }

  void assertion(Builder& b, hlo::Value violated, hlo::Value value, ErrorKind kind,
                 std::string text) override {
    flags_.push_back(b.reshape(b.convert(violated, DType::kI64), {1}));
    flags_.push_back(b.reshape(b.convert(value, DType::kI64), {1}));
    assertions.push_back({kind, std::move(text), number_});
  }

  void leave() { drawn_ = 0; }
  hlo::Value flags() { return flags_.empty() ? hlo::Value() : b_.concatenate(flags_, 0); }

  std::vector<Assertion> assertions;

 private:
  hlo::Value take(Builder& b, Pack p) {
    const int64_t at = next_[p]++;
    return b.reshape(b.slice_dim(packs_[p], 0, at, at + 1), {});
  }

  Builder& b_;
  std::array<hlo::Value, kPackCount> packs_;
  std::array<uint32_t, 4> next_{};
  const Node* node_ = nullptr;
  uint32_t number_ = 0;
  int64_t drawn_ = 0;
  std::vector<hlo::Value> flags_;
};

size_t input_count(const Node& n) { return n.inst->call.tensors.size(); }

// Nodes that a live output needs, or that assert something.
std::vector<bool> needed_nodes(const Window& w, std::span<const int32_t> live) {
  const auto& nodes = w.nodes();
  std::vector<int32_t> producer(w.outputs().size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    for (size_t o = 0; o < nodes[n].inst->outputs.size(); ++o) {
      producer[nodes[n].first_output + o] = static_cast<int32_t>(n);
    }
  }
  std::vector<bool> needed(nodes.size());
  for (int32_t o : live) needed[static_cast<size_t>(producer[static_cast<size_t>(o)])] = true;
  for (size_t n = nodes.size(); n-- > 0;) {
    if (nodes[n].inst->assertions > 0) needed[n] = true;
    if (!needed[n]) continue;
    for (size_t i = 0; i < input_count(nodes[n]); ++i) {
      const int32_t r = w.inputs()[nodes[n].first_input + i], output = ~r;
      if (r < 0) needed[static_cast<size_t>(producer[static_cast<size_t>(output)])] = true;
    }
  }
  return needed;
}

}  // namespace

Lowered lower(const Window& w, std::span<const int32_t> live, const std::vector<bool>& donated,
              bool on_cpu_plugin) {
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
  std::vector<hlo::Value> computed(w.outputs().size());
  const std::vector<bool> needed = needed_nodes(w, live);
  const auto& describe = location_source().describe;
  for (size_t n = 0; n < w.nodes().size(); ++n) {
    if (!needed[n]) continue;
    const Node& node = w.nodes()[n];
    std::vector<hlo::Value> inputs;
    for (size_t i = 0; i < input_count(node); ++i) {
      const int32_t r = w.inputs()[node.first_input + i], output = ~r;
      inputs.push_back(r >= 0 ? parameters[static_cast<size_t>(r)]
                              : computed[static_cast<size_t>(output)]);
    }
    std::string where = node.inst->def->name;
    if (describe && node.location.code) where += " at " + describe(node.location);
    b.set_location(std::move(where));
    host.enter(node, n);
    const auto results = node.inst->lower(b, host, inputs, on_cpu_plugin);
    host.leave();
    for (size_t o = 0; o < results.size(); ++o) computed[node.first_output + o] = results[o];
  }
  b.set_location("");
  std::vector<hlo::Value> outputs;
  for (int32_t o : live) outputs.push_back(computed[static_cast<size_t>(o)]);
  result.assertions = std::move(host.assertions);
  if (const hlo::Value flags = host.flags(); flags.valid()) outputs.push_back(flags);
  b.finish(outputs);
  return result;
}

}  // namespace tpu::trace
