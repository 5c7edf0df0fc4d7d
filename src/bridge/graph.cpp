#include "bridge/graph.h"

#include <ATen/core/TensorBody.h>

#include "bridge/allocator.h"
#include "bridge/dtype.h"
#include "bridge/generator.h"

namespace tpu::bridge {
namespace {

at::Tensor over(const c10::Storage& storage, c10::ScalarType dtype, c10::IntArrayRef sizes,
                c10::IntArrayRef strides, int64_t offset) {
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      c10::Storage(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides, offset);
  return t;
}

// The argument with its dims in the placeholder's order.
at::Tensor ordered(const at::Tensor& t, const trace::Dims& order) {
  trace::Dims sizes, strides;
  for (int64_t d : order) {
    sizes.push_back(t.size(d));
    strides.push_back(t.stride(d));
  }
  return over(t.storage(), t.scalar_type(), sizes, strides, t.storage_offset());
}

}  // namespace

CompiledGraph::~CompiledGraph() {
  if (!Runtime::started() || Runtime::in_bad_fork()) return;
  RecorderLock lock;
  graph_ = {};
}

bool CompiledGraph::fits(const std::vector<at::Tensor>& arguments) const {
  if (arguments.size() != arguments_.size() || current_modes() != modes_ ||
      runtime::current_trace(device_))
    return false;
  for (size_t i = 0; i < arguments.size(); ++i) {
    const at::Tensor& t = arguments[i];
    const Argument& a = arguments_[i];
    if (!t.defined() || !t.is_privateuseone() || t.device().index() != device_ ||
        t.scalar_type() != a.dtype || t.is_conj() || t.is_neg() ||
        t.sizes() != c10::IntArrayRef(a.sizes))
      return false;
    if (a.viewed && t.strides() != c10::IntArrayRef(a.strides)) return false;
  }
  return true;
}

std::vector<at::Tensor> CompiledGraph::call(std::vector<at::Tensor> arguments) {
  std::vector<trace::RandomState> random;
  for (const trace::RandomSource& s : graph_.sources)
    random.push_back(take_random(*s.state, device_, s.draws));

  RecorderLock lock;
  Runtime& r = Runtime::get();
  Device& d = r.device(device_);
  r.flush(d, runtime::FlushReason::kBoundary);
  std::vector<ValuePtr> values;
  std::vector<at::Tensor> written(arguments.size());
  for (size_t i = 0; i < arguments.size(); ++i) {
    const Argument& a = arguments_[i];
    const at::Tensor t = a.order.empty() ? arguments[i] : ordered(arguments[i], a.order);
    values.push_back(read_value(t));
    if (a.written >= 0) written[i] = t;
  }
  std::vector<c10::Storage> storages(memories_.size());
  std::vector<int64_t> offsets(memories_.size());
  for (size_t m = 0; m < memories_.size(); ++m) {
    const int argument = memories_[m].argument;
    if (argument < 0 || !arguments_[static_cast<size_t>(argument)].viewed) continue;
    const at::Tensor& t = arguments[static_cast<size_t>(argument)];
    storages[m] = t.storage();
    offsets[m] = t.storage_offset();
  }
  arguments.clear();

  std::vector<ValuePtr> made = d.window.record(graph_, values, random);
  values.clear();
  for (size_t i = 0; i < written.size(); ++i) {
    if (!written[i].defined()) continue;
    write_value(written[i], made[static_cast<size_t>(arguments_[i].written)]);
  }
  written.clear();
  for (size_t m = 0; m < memories_.size(); ++m) {
    const Memory& memory = memories_[m];
    if (memory.argument >= 0) continue;
    storages[m] = c10::Storage(
        c10::Storage::use_byte_size_t(), static_cast<size_t>(memory.size_bytes),
        new_data_ptr(memory.size_bytes, device_,
                     memory.value < 0 ? ValuePtr() : made[static_cast<size_t>(memory.value)]),
        allocator(), true);
  }
  made.clear();
  r.flush(d, runtime::FlushReason::kGraph);

  std::vector<at::Tensor> results;
  for (const Result& x : results_) {
    if (x.memory < 0) {
      results.emplace_back();
      continue;
    }
    const auto m = static_cast<size_t>(x.memory);
    results.push_back(over(storages[m], x.dtype, x.sizes, x.strides, offsets[m] + x.offset));
  }
  return results;
}

}  // namespace tpu::bridge
