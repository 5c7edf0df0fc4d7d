#include "trace/window.h"

#include <atomic>

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

LocationSource& location_source() {
  static LocationSource s;
  return s;
}

void Window::start() { epoch_ = next_epoch.fetch_add(1, std::memory_order_relaxed); }

int32_t Window::reference(const ValuePtr& v) {
  if (v->epoch == epoch_) return v->state == Value::State::kPending ? ~v->index : v->index;
  v->epoch = epoch_;
  v->index = static_cast<int32_t>(parameters_.size());
  parameters_.push_back(v);
  return v->index;
}

void Window::record(const Instance& inst, std::span<const ValuePtr> inputs,
                    std::span<const ops::Number> numbers, RandomState random, Location location,
                    ValuePtr* outputs) {
  for (const ValuePtr& v : inputs) {
    TPU_CHECK(v->epoch == epoch_ || v->state == Value::State::kReady, ErrorKind::kInternal,
              "a window was given a value of another window");
  }
  Node n;
  n.inst = &inst;
  n.first_input = static_cast<uint32_t>(inputs_.size());
  n.first_output = static_cast<uint32_t>(outputs_.size());
  n.first_scalar = {
      static_cast<uint32_t>(packs_.f32.size()), static_cast<uint32_t>(packs_.f64.size()),
      static_cast<uint32_t>(packs_.i32.size()), static_cast<uint32_t>(packs_.i64.size())};
  n.location = location;
  stream_.push_back(inst.id);
  for (const ValuePtr& v : inputs) {
    const int32_t r = reference(v);
    inputs_.push_back(r);
    stream_.push_back(static_cast<uint32_t>(r));
  }
  for (const ScalarUse& use : inst.scalars)
    pack(packs_, numbers[static_cast<size_t>(use.operand)], use.dtype);
  if (inst.random_draws > 0) {
    packs_.i64.push_back(static_cast<int64_t>(random.seed));
    packs_.i64.push_back(static_cast<int64_t>(random.offset));
  }
  for (size_t i = 0; i < inst.outputs.size(); ++i) {
    const OutputSpec& spec = inst.outputs[i];
    if (!spec.base) {
      outputs_.emplace_back();
      outputs[i] = ValuePtr();
      continue;
    }
    ValuePtr v = make_value(spec.base, device_);
    v->epoch = epoch_;
    v->index = static_cast<int32_t>(outputs_.size());
    output_bytes_ += spec.base->size_bytes();
    outputs_.push_back(v);
    outputs[i] = std::move(v);
  }
  nodes_.push_back(n);
}

std::vector<int32_t> Window::live_outputs() const {
  std::vector<int32_t> live;
  for (size_t i = 0; i < outputs_.size(); ++i) {
    if (outputs_[i] && !outputs_[i].sole_owner()) live.push_back(static_cast<int32_t>(i));
  }
  return live;
}

std::vector<bool> Window::donatable() const {
  std::vector<bool> d(parameters_.size());
  std::vector<int32_t> own(d.size(), 1);
  for (const Overwritten& o : overwritten_) {
    if (o.value->epoch == epoch_) ++own[static_cast<size_t>(o.value->index)];
  }
  for (size_t i = 0; i < d.size(); ++i) d[i] = parameters_[i].refs() == own[i];
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

void Window::overwrite(Slot& s, ValuePtr v) {
  const bool mine = v->epoch == epoch_ && v->state == Value::State::kPending;
  if (mine && s.value && s.value->state == Value::State::kReady)
    overwritten_.push_back({s.number, s.serial, std::move(s.value)});
  s.value = std::move(v);
}

void Window::restore(const std::vector<bool>& consumed) {
  for (Overwritten& o : overwritten_) {
    Slot* s = find_slot(o.slot, o.serial);
    if (!s || !s->value || s->value->state != Value::State::kFailed) continue;
    if (o.value->epoch == epoch_ && consumed[static_cast<size_t>(o.value->index)]) continue;
    s->value = std::move(o.value);
  }
}

int64_t Window::overwritten_bytes() const {
  int64_t n = 0;
  for (const Overwritten& o : overwritten_) {
    if (only_kept(o)) n += o.value->type->size_bytes();
  }
  return n;
}

void Window::release_overwritten() {
  std::erase_if(overwritten_, [&](const Overwritten& o) { return only_kept(o); });
}

void Window::clear() {
  overwritten_.clear();
  nodes_.clear();
  inputs_.clear();
  outputs_.clear();
  parameters_.clear();
  packs_.clear();
  stream_.clear();
  output_bytes_ = 0;
  start();
}

}  // namespace tpu::trace
