#include "bridge/tracing.h"

#include <algorithm>
#include <optional>
#include <unordered_map>

#include "bridge/dtype.h"
#include "bridge/generator.h"
#include "bridge/inherited.h"
#include "bridge/tensor.h"
#include "hlo/print.h"

namespace tpu::bridge {
namespace {

// Dims in order of decreasing stride where the layout is dense; empty where it has gaps or
// overlaps.
std::optional<trace::Dims> dense_order(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  trace::Dims order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  const auto at = [](c10::IntArrayRef a, int64_t i) { return a[static_cast<size_t>(i)]; };
  std::stable_sort(order.begin(), order.end(),
                   [&](int64_t a, int64_t b) { return at(strides, a) > at(strides, b); });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (at(sizes, order[i]) != 1 && at(strides, order[i]) != expected) return std::nullopt;
    expected *= at(sizes, order[i]);
  }
  return order;
}

int32_t checked(c10::DeviceIndex device) {
  const int count = Runtime::get().devices();
  TPU_CHECK(device >= 0 && device < count, "there is no device tpu:", int{device},
            "; this process has ", count, " tpu device(s)");
  return device;
}

}  // namespace

Tracing::Tracing(c10::DeviceIndex device, bool for_tpu)
    // Without LAPACK: another process may run the program.
    : device_(device),
      trace_(checked(device),
             {.cpu_plugin = !for_tpu && Runtime::get().on_cpu_plugin(),
              .tpu_calls = for_tpu || Runtime::get().instances().target().tpu_calls}) {}

Tracing::Tracing(c10::DeviceIndex device)
    : device_(device), trace_(checked(device), Runtime::get().instances()) {}

Tracing::Tracing(c10::DeviceIndex device, trace::Trace& around)
    : device_(device), trace_(checked(device), around.instances()) {}

std::unique_ptr<Tracing> Tracing::inside(c10::DeviceIndex device) {
  trace::Trace* around = runtime::current_trace(device);
  return std::unique_ptr<Tracing>(around ? new Tracing(device, *around) : nullptr);
}

Tracing::~Tracing() {
  RecorderLock lock;
  trace_.close();
}

void Tracing::enter() {
  TPU_CHECK(!entered_, "this program is being traced already");
  {
    RecorderLock lock;
    Runtime& r = Runtime::get();
    r.flush(r.device(device_), runtime::FlushReason::kBoundary);
  }
  push_trace(&trace_);
  entered_ = true;
}

void Tracing::exit() {
  TPU_CHECK(entered_, "this program is not being traced");
  pop_trace();
  entered_ = false;
  RecorderLock lock;
  trace_.close();
}

at::Tensor Tracing::placeholder(c10::IntArrayRef sizes, c10::IntArrayRef strides,
                                c10::ScalarType dtype) {
  TPU_CHECK(sizes.size() == strides.size(), "a placeholder of ", sizes.size(), " dims has ",
            strides.size(), " strides");
  RecorderLock lock;
  const trace::DType type = to_dtype(dtype);
  CompiledGraph::Argument argument{
      dtype, {sizes.begin(), sizes.end()}, {strides.begin(), strides.end()}, {}};
  trace::OutputSpec spec;
  trace::Dims dims = argument.sizes;
  if (const auto order = dense_order(sizes, strides); order && !std::ranges::is_sorted(*order)) {
    argument.order = *order;
    for (size_t i = 0; i < dims.size(); ++i) dims[i] = sizes[static_cast<size_t>((*order)[i])];
    spec.row_major = false;
    spec.strides = argument.strides;
    spec.logical = trace::intern({type, argument.sizes});
  }
  const trace::ValuePtr v = trace_.placeholder(trace::intern({type, dims}));
  at::Tensor user = make_tensor(v, &spec);
  at::Tensor base = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(user.storage()),
                                                             user.key_set(), user.dtype());
  base.unsafeGetTensorImpl()->set_sizes_contiguous(dims);
  placeholders_.push_back({std::move(base), v, std::move(argument)});
  return user;
}

int64_t Tracing::drawn() const {
  const at::Generator g = default_generator(device_);
  return trace_.drawn(static_cast<TpuGenerator*>(g.unsafeGetGeneratorImpl())->state());
}

Tracing::Program Tracing::finish(const std::vector<at::Tensor>& outputs,
                                 const FinishOptions& options) {
  TPU_CHECK(entered_, "a program can be finished only while it is traced");
  RecorderLock lock;
  std::vector<trace::ValuePtr> results;
  for (const at::Tensor& t : outputs) {
    TPU_CHECK(t.is_privateuseone() && t.device().index() == device_, "result ", results.size(),
              " of the program lies on ", t.device().str(), " and not on tpu:", int{device_});
    results.push_back(apply_bits(read_value(t), t));
  }
  std::vector<trace::Trace::Update> updates;
  for (const Placeholder& p : placeholders_) {
    trace::ValuePtr now = read_value(p.base);
    if (now != p.value) updates.push_back({p.value, std::move(now)});
  }
  std::vector<trace::Trace::Embedded> embedded;
  for (const auto& [index, bytes] : options.embedded)
    embedded.push_back({placeholders_.at(static_cast<size_t>(index)).value, bytes});
  trace::Trace::Program made = trace_.finish(results, updates, options.assertions, embedded);

  Program program;
  hlo::PrintOptions print;
  print.locations = options.locations;
  program.text = hlo::print(*made.lowered.function, print);
  program.output_count = made.output_count;
  program.assertions = std::move(made.lowered.assertions);
  std::unordered_map<const trace::Value*, int> numbers;
  for (const Placeholder& p : placeholders_)
    numbers.emplace(p.value.get(), static_cast<int>(numbers.size()));
  int last_output = static_cast<int>(made.output_count + updates.size());
  for (size_t i = 0; i < made.parameters.size(); ++i) {
    const auto it = numbers.find(made.parameters[i].get());
    if (it != numbers.end()) {
      program.arguments.push_back({Argument::Kind::kPlaceholder, it->second, made.aliases[i]});
      continue;
    }
    program.arguments.push_back(
        {Argument::Kind::kConstant, static_cast<int>(program.constants.size()), -1});
    program.constants.push_back(make_tensor(made.parameters[i]));
  }
  if (made.random) program.arguments.push_back({Argument::Kind::kGenerator, -1, last_output});
  return program;
}

std::unique_ptr<CompiledGraph> Tracing::graph(const std::vector<at::Tensor>& outputs) {
  TPU_CHECK(entered_, "a program can be finished only while it is traced");
  RecorderLock lock;
  std::vector<trace::ValuePtr> results;
  const auto result = [&](trace::ValuePtr v) {
    results.push_back(std::move(v));
    return static_cast<int>(results.size()) - 1;
  };
  std::vector<CompiledGraph::Argument> arguments;
  std::unordered_map<const trace::Slot*, int> memory_of;
  std::vector<CompiledGraph::Memory> memories;
  for (const Placeholder& p : placeholders_) {
    arguments.push_back(p.argument);
    trace::ValuePtr now = read_value(p.base);
    if (now != p.value) arguments.back().written = result(std::move(now));
    const trace::Slot* slot = slot_of(*p.base.storage().unsafeGetStorageImpl()).slot;
    memory_of.emplace(slot, static_cast<int>(memories.size()));
    memories.push_back({.argument = static_cast<int>(memories.size())});
  }
  std::vector<CompiledGraph::Result> made;
  for (const at::Tensor& t : outputs) {
    if (!t.defined()) {
      made.emplace_back();
      continue;
    }
    TPU_CHECK(t.is_privateuseone() && t.device().index() == device_ && !t.is_conj() && !t.is_neg(),
              ErrorKind::kUnsupported, "result ", made.size(), " of the program on ",
              t.device().str(), " is no plain tensor of tpu:", int{device_});
    const trace::Place place = slot_of(*t.storage().unsafeGetStorageImpl());
    TPU_CHECK(place.offset_bytes == 0, ErrorKind::kUnsupported, "result ", made.size(),
              " of the program lies within another storage");
    const auto [it, fresh] = memory_of.emplace(place.slot, static_cast<int>(memories.size()));
    if (fresh) {
      trace::ValuePtr v = place.slot->value;
      // Of the result's own form where it is the whole memory: reading it then needs no program.
      if (v && t.is_contiguous() && static_cast<int64_t>(t.nbytes()) == place.slot->size_bytes)
        v = read_value(t);
      memories.push_back(
          {.value = v ? result(std::move(v)) : -1, .size_bytes = place.slot->size_bytes});
    } else if (it->second < static_cast<int>(arguments.size())) {
      CompiledGraph::Argument& a = arguments[static_cast<size_t>(it->second)];
      TPU_CHECK(dense_order(a.sizes, a.strides), ErrorKind::kUnsupported,
                "a result of the program is a view of an argument with gaps");
      a.viewed = true;
    }
    made.push_back({it->second,
                    t.scalar_type(),
                    {t.sizes().begin(), t.sizes().end()},
                    {t.strides().begin(), t.strides().end()},
                    t.storage_offset()});
  }
  return std::make_unique<CompiledGraph>(device_, trace_.graph(results), std::move(arguments),
                                         std::move(memories), std::move(made));
}

Tracing::Inner Tracing::subgraph(const std::vector<at::Tensor>& outputs) {
  TPU_CHECK(entered_, "a program can be finished only while it is traced");
  const at::Generator g = default_generator(device_);
  RecorderLock lock;
  for (const Placeholder& p : placeholders_) {
    TPU_CHECK(read_value(p.base) == p.value, ErrorKind::kUnsupported,
              "it writes into a tensor that it was given");
  }
  std::vector<trace::ValuePtr> results;
  for (const at::Tensor& t : outputs) {
    TPU_CHECK(t.is_privateuseone() && t.device().index() == device_, ErrorKind::kUnsupported,
              "result ", results.size(), " lies on ", t.device().str(),
              " and not on tpu:", int{device_});
    results.push_back(apply_bits(read_value(t), t));
  }
  trace::Trace::Inner made =
      trace_.subgraph(results, static_cast<TpuGenerator*>(g.unsafeGetGeneratorImpl())->state());
  Inner inner{made.number, {}};
  for (trace::ValuePtr& v : made.captured) inner.captured.push_back(make_tensor(std::move(v)));
  return inner;
}

}  // namespace tpu::bridge
