#include "trace/window.h"

#include <algorithm>
#include <atomic>
#include <cstring>

#include "base/hash.h"
#include "trace/graph.h"

namespace tpu::trace {
namespace {

std::atomic<uint64_t> next_epoch{1};

void pack(Packs& p, const ops::Number& n, DType t) {
  switch (t) {
    case DType::kF32: p.f32.push_back(static_cast<float>(n.d)); break;
    case DType::kF64: p.f64.push_back(n.d); break;
    case DType::kC64:
      p.f32.push_back(static_cast<float>(n.d));
      p.f32.push_back(static_cast<float>(n.imag));
      break;
    case DType::kC128:
      p.f64.push_back(n.d);
      p.f64.push_back(n.imag);
      break;
    case DType::kBool: p.i32.push_back(n.is_integral() ? n.i != 0 : n.d != 0 || n.imag != 0); break;
    case DType::kI32: p.i32.push_back(static_cast<int32_t>(n.to_int())); break;
    case DType::kI64: p.i64.push_back(n.to_int()); break;
    default: TPU_THROW(ErrorKind::kInternal, "scalar operands cannot be ", hlo::torch_name(t));
  }
}

}  // namespace

bool Packs::same_bits(const Packs& o) const {
  const auto same = [](const auto& a, const auto& b) {
    return a.size() == b.size() &&
           (a.empty() || std::memcmp(a.data(), b.data(), a.size() * sizeof a[0]) == 0);
  };
  return same(f32, o.f32) && same(f64, o.f64) && same(i32, o.i32) && same(i64, o.i64);
}

LocationSource& location_source() {
  static LocationSource s;
  return s;
}

void Window::start() { epoch_ = next_epoch.fetch_add(1, std::memory_order_relaxed); }

int32_t Window::reference(const ValuePtr& v) {
  if (v->epoch == epoch_) return v->state == Value::State::kPending ? ~v->index : v->index;
  v->epoch = epoch_;
  v->index = static_cast<int32_t>(r_.parameters.size());
  r_.parameters.push_back(v);
  return v->index;
}

void Window::check_input(const ValuePtr& v) const {
  if (v->epoch == epoch_ || v->state == Value::State::kReady) return;
  TPU_CHECK(v->state != Value::State::kPlaceholder, "a tensor of a program that is being traced",
            " has no value outside of it");
  TPU_THROW(ErrorKind::kInternal, "a window was given a value of another window");
}

ValuePtr Window::add_output(const Type* type) {
  if (!type) return r_.outputs.emplace_back();
  ValuePtr v = make_value(type, device_);
  v->epoch = epoch_;
  v->index = static_cast<int32_t>(r_.outputs.size());
  output_bytes_ += type->size_bytes();
  return r_.outputs.emplace_back(std::move(v));
}

void Window::record(const Instance& inst, std::span<const ValuePtr> inputs,
                    std::span<const ops::Number> numbers, RandomState random, Location location,
                    ValuePtr* outputs) {
  for (const ValuePtr& v : inputs) check_input(v);
  for (const ops::NumberCheck& check : inst.number_checks) check(numbers);
  Node n;
  n.inst = &inst;
  n.first_input = static_cast<uint32_t>(r_.inputs.size());
  n.first_output = static_cast<uint32_t>(r_.outputs.size());
  n.first_scalar = {
      static_cast<uint32_t>(r_.packs.f32.size()), static_cast<uint32_t>(r_.packs.f64.size()),
      static_cast<uint32_t>(r_.packs.i32.size()), static_cast<uint32_t>(r_.packs.i64.size())};
  n.location = location;
  stream_.push_back(inst.id);
  for (const ValuePtr& v : inputs) {
    const int32_t r = reference(v);
    r_.inputs.push_back(r);
    stream_.push_back(static_cast<uint32_t>(r));
  }
  for (const ScalarUse& use : inst.scalars)
    pack(r_.packs, numbers[static_cast<size_t>(use.operand)], use.dtype);
  if (inst.random_draws > 0) {
    r_.packs.i64.push_back(static_cast<int64_t>(random.seed));
    r_.packs.i64.push_back(static_cast<int64_t>(random.offset));
  }
  for (size_t i = 0; i < inst.outputs.size(); ++i) outputs[i] = add_output(inst.outputs[i].base);
  r_.nodes.push_back(n);
}

std::vector<ValuePtr> Window::record(const Graph& g, std::span<const ValuePtr> arguments,
                                     std::span<const RandomState> random) {
  std::vector<int32_t> parameters;  // as inputs of this window
  for (size_t p = 0; p < g.parameters.size(); ++p) {
    const ValuePtr& v = g.parameter(static_cast<int32_t>(p), arguments);
    check_input(v);
    parameters.push_back(reference(v));
  }
  const auto first_output = static_cast<int32_t>(r_.outputs.size());
  const auto first_input = static_cast<uint32_t>(r_.inputs.size());
  const std::array<size_t, 4> first_scalar = {r_.packs.f32.size(), r_.packs.f64.size(),
                                              r_.packs.i32.size(), r_.packs.i64.size()};
  const auto add = [](auto& mine, const auto& theirs) {
    mine.insert(mine.end(), theirs.begin(), theirs.end());
  };
  add(r_.packs.f32, g.packs.f32), add(r_.packs.f64, g.packs.f64);
  add(r_.packs.i32, g.packs.i32), add(r_.packs.i64, g.packs.i64);
  for (size_t at : g.random_at) {
    int64_t* state = &r_.packs.i64[first_scalar[3] + at];
    const RandomState& before = random[static_cast<size_t>(state[0])];
    state[0] = static_cast<int64_t>(before.seed);
    state[1] += static_cast<int64_t>(before.offset);
  }
  size_t input = 0;
  for (Node n : g.nodes) {
    const size_t inputs = n.inst->call.tensors.size();
    stream_.push_back(n.inst->id);
    for (size_t i = 0; i < inputs; ++i) {
      const int32_t r = g.inputs[input++];
      const int32_t mine = r >= 0 ? parameters[static_cast<size_t>(r)] : r - first_output;
      r_.inputs.push_back(mine);
      stream_.push_back(static_cast<uint32_t>(mine));
    }
    n.first_input += first_input;
    n.first_output += static_cast<uint32_t>(first_output);
    for (size_t i = 0; i < 4; ++i) n.first_scalar[i] += static_cast<uint32_t>(first_scalar[i]);
    for (const OutputSpec& o : n.inst->outputs) add_output(o.base);
    r_.nodes.push_back(n);
  }
  std::vector<ValuePtr> results;
  for (int32_t r : g.results) {
    const int32_t output = first_output + ~r;
    results.push_back(r >= 0 ? g.parameter(r, arguments) : r_.outputs[static_cast<size_t>(output)]);
  }
  return results;
}

std::vector<int32_t> Window::live_outputs() const {
  std::vector<int32_t> live;
  for (size_t i = 0; i < r_.outputs.size(); ++i) {
    if (r_.outputs[i] && !r_.outputs[i].sole_owner()) live.push_back(static_cast<int32_t>(i));
  }
  return live;
}

std::vector<bool> Window::donatable(int64_t from_bytes) const {
  std::vector<bool> d(r_.parameters.size());
  std::vector<int32_t> own(d.size(), 1);
  for (const Recording::Overwritten& o : r_.overwritten) {
    if (o.value->epoch == epoch_) ++own[static_cast<size_t>(o.value->index)];
  }
  for (size_t i = 0; i < d.size(); ++i) {
    const ValuePtr& v = r_.parameters[i];
    d[i] = v.refs() == own[i] && v->type->size_bytes() >= from_bytes;
  }
  return d;
}

std::string Window::key(std::span<const int32_t> live, const std::vector<bool>& donated) const {
  std::string k;
  k.reserve(4 * (stream_.size() + live.size() + 2) + donated.size());
  auto words = [&](const auto* p, size_t n) {
    k.append(reinterpret_cast<const char*>(p), n * sizeof *p);
  };
  const auto count = static_cast<uint32_t>(stream_.size());
  words(&count, 1);
  words(stream_.data(), stream_.size());
  const auto live_count = static_cast<uint32_t>(live.size());
  words(&live_count, 1);
  words(live.data(), live.size());
  for (bool d : donated) k += d ? '\1' : '\0';
  return k;
}

uint64_t Window::content_hash() const {
  return hash64(
      {reinterpret_cast<const char*>(stream_.data()), stream_.size() * sizeof stream_[0]});
}

void Window::overwrite(Slot& s, ValuePtr v) {
  const bool mine = v->epoch == epoch_ && v->state == Value::State::kPending;
  if (mine && s.value && s.value->state == Value::State::kReady)
    r_.overwritten.push_back({s.number, s.serial, std::move(s.value)});
  s.value = std::move(v);
}

void Window::adopt_overwritten(Recording& r) {
  std::erase_if(r.overwritten, [&](Recording::Overwritten& o) {
    const Slot* s = find_slot(o.slot, o.serial);
    const bool mine =
        s && s->value && s->value->state == Value::State::kPending && s->value->epoch == epoch_;
    if (mine) r_.overwritten.push_back(std::move(o));
    return mine || !s;
  });
}

int64_t Window::overwritten_bytes() const {
  int64_t n = 0;
  for (const Recording::Overwritten& o : r_.overwritten) {
    if (only_kept(o)) n += o.value->type->size_bytes();
  }
  return n;
}

void Window::release_overwritten() {
  std::erase_if(r_.overwritten, [&](const Recording::Overwritten& o) { return only_kept(o); });
}

// The vectors keep their memory: a window is cleared after each flush.
void Window::clear() {
  r_.overwritten.clear();
  r_.nodes.clear();
  r_.inputs.clear();
  r_.outputs.clear();
  r_.parameters.clear();
  r_.packs.clear();
  stream_.clear();
  output_bytes_ = 0;
  start();
}

Recording Window::take() {
  Recording r = std::exchange(r_, {});
  clear();
  return r;
}

void Window::append(const Recording& r, size_t node) {
  Node n = r.nodes[node];
  const auto [in, in_end] = r.inputs_of(node);
  const auto [out, out_end] = r.outputs_of(node);
  n.first_input = static_cast<uint32_t>(r_.inputs.size());
  n.first_output = static_cast<uint32_t>(r_.outputs.size());
  stream_.push_back(n.inst->id);
  for (size_t i = in; i < in_end; ++i) {
    r_.inputs.push_back(reference(r.value(r.inputs[i])));
    stream_.push_back(static_cast<uint32_t>(r_.inputs.back()));
  }
  size_t place = 0;
  const auto scalars = [&](auto& mine, const auto& theirs) {
    const size_t begin = n.first_scalar[place];
    const size_t end =
        node + 1 < r.nodes.size() ? r.nodes[node + 1].first_scalar[place] : theirs.size();
    n.first_scalar[place++] = static_cast<uint32_t>(mine.size());
    mine.insert(mine.end(), theirs.begin() + static_cast<std::ptrdiff_t>(begin),
                theirs.begin() + static_cast<std::ptrdiff_t>(end));
  };
  scalars(r_.packs.f32, r.packs.f32), scalars(r_.packs.f64, r.packs.f64);
  scalars(r_.packs.i32, r.packs.i32), scalars(r_.packs.i64, r.packs.i64);
  for (size_t o = out; o < out_end; ++o) {
    const ValuePtr& v = r.outputs[o];
    if (v) {
      v->epoch = epoch_;
      v->index = static_cast<int32_t>(r_.outputs.size());
      output_bytes_ += v->type->size_bytes();
    }
    r_.outputs.push_back(v);
  }
  r_.nodes.push_back(n);
}

std::pair<size_t, size_t> Recording::inputs_of(size_t node) const {
  return {nodes[node].first_input,
          node + 1 < nodes.size() ? nodes[node + 1].first_input : inputs.size()};
}

std::pair<size_t, size_t> Recording::outputs_of(size_t node) const {
  return {nodes[node].first_output,
          node + 1 < nodes.size() ? nodes[node + 1].first_output : outputs.size()};
}

void Recording::order_by_last_use() {
  std::vector<size_t> last(parameters.size() + outputs.size());
  for (size_t n = 0; n < nodes.size(); ++n) {
    const auto [out, out_end] = outputs_of(n);
    for (size_t o = out; o < out_end; ++o) last[parameters.size() + o] = n;
    const auto [in, in_end] = inputs_of(n);
    for (size_t i = in; i < in_end; ++i) {
      const int32_t r = inputs[i], output = ~r;
      last[r >= 0 ? static_cast<size_t>(r) : parameters.size() + static_cast<size_t>(output)] = n;
    }
  }
  for (size_t i = 0; i < last.size(); ++i) by_last_use_.emplace_back(last[i], i);
  std::ranges::sort(by_last_use_);
}

void Recording::release_after(size_t node) {
  if (by_last_use_.empty()) order_by_last_use();
  for (; released_ < by_last_use_.size() && by_last_use_[released_].first <= node; ++released_) {
    const size_t i = by_last_use_[released_].second;
    (i < parameters.size() ? parameters[i] : outputs[i - parameters.size()]) = ValuePtr();
  }
}

void Recording::restore(const std::vector<const Value*>& consumed) {
  for (Overwritten& o : overwritten) {
    Slot* s = find_slot(o.slot, o.serial);
    if (!s || !s->value || s->value->state != Value::State::kFailed) continue;
    if (std::ranges::find(consumed, o.value.get()) == consumed.end()) s->value = std::move(o.value);
  }
}

}  // namespace tpu::trace
