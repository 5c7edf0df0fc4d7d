#include "bridge/tracing.h"

#include <unordered_map>

#include "bridge/dtype.h"
#include "bridge/inherited.h"
#include "bridge/tensor.h"
#include "hlo/print.h"

namespace tpu::bridge {
namespace {

// Sizes and strides of a dense layout with the dims in order of decreasing stride; empty when the
// layout has gaps or overlaps.
trace::Dims dense_sizes(c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  std::vector<size_t> order(sizes.size());
  for (size_t i = 0; i < order.size(); ++i) order[i] = i;
  std::stable_sort(order.begin(), order.end(),
                   [&](size_t a, size_t b) { return strides[a] > strides[b]; });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    if (sizes[order[i]] != 1 && strides[order[i]] != expected) return {};
    expected *= sizes[order[i]];
  }
  trace::Dims dims;
  for (size_t i : order) dims.push_back(sizes[i]);
  return dims;
}

}  // namespace

Tracing::Tracing(c10::DeviceIndex device, bool for_tpu)
    // Without LAPACK: another process may run the program.
    : device_(device),
      trace_(device, {.cpu_plugin = !for_tpu && Runtime::get().on_cpu_plugin(),
                      .tpu_calls = for_tpu || Runtime::get().instances().target().tpu_calls}) {
  const int count = Runtime::get().devices();
  TPU_CHECK(device >= 0 && device < count, "there is no device tpu:", int{device},
            "; this process has ", count, " tpu device(s)");
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
  trace::OutputSpec spec;
  trace::Dims dims = dense_sizes(sizes, strides);
  if (dims.empty()) {
    dims.assign(sizes.begin(), sizes.end());
  } else if (dims != trace::Dims(sizes.begin(), sizes.end())) {
    spec.row_major = false;
    spec.strides.assign(strides.begin(), strides.end());
    spec.logical = trace::intern({type, {sizes.begin(), sizes.end()}});
  }
  const trace::ValuePtr v = trace_.placeholder(trace::intern({type, dims}));
  at::Tensor user = make_tensor(v, &spec);
  at::Tensor base = at::detail::make_tensor<c10::TensorImpl>(c10::Storage(user.storage()),
                                                             user.key_set(), user.dtype());
  base.unsafeGetTensorImpl()->set_sizes_contiguous(dims);
  placeholders_.push_back({std::move(base), v});
  return user;
}

Tracing::Program Tracing::finish(const std::vector<at::Tensor>& outputs, bool assertions) {
  TPU_CHECK(entered_, "a program can be finished only while it is traced");
  RecorderLock lock;
  std::vector<trace::ValuePtr> results;
  for (const at::Tensor& t : outputs) {
    TPU_CHECK(t.is_privateuseone() && t.device().index() == device_, "result ", results.size(),
              " of the program lies on ", t.device().str(), " and not on tpu:", int{device_});
    results.push_back(read_value(t));
  }
  std::vector<trace::Trace::Update> updates;
  for (const Placeholder& p : placeholders_) {
    trace::ValuePtr now = read_value(p.base);
    if (now != p.value) updates.push_back({p.value, std::move(now)});
  }
  trace::Trace::Program made = trace_.finish(results, updates, assertions);

  Program program;
  program.text = hlo::print(*made.lowered.function);
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

}  // namespace tpu::bridge
