#include "bridge/tensor.h"

#include <ATen/Context.h>
#include <ATen/EmptyTensor.h>
#include <ATen/MemoryOverlap.h>
#include <Python.h>
#include <c10/core/DefaultDtype.h>

#include "bridge/allocator.h"
#include "bridge/dtype.h"
#include "bridge/precision.h"
#include "trace/strided.h"

namespace tpu::bridge {
namespace {

using trace::CallKey;
using trace::Dims;
using trace::DType;
using trace::Place;
using trace::Type;

Dims to_dims(c10::IntArrayRef a) { return {a.begin(), a.end()}; }

int64_t numel_of(c10::IntArrayRef sizes) {
  int64_t n = 1;
  for (int64_t s : sizes) n *= s;
  return n;
}

ops::Number integer(int64_t v) { return ops::Number::of(v); }

ValuePtr zeros(Device& d, DType t, const Dims& dims) {
  static const int32_t id = op_id("tpu::zeros");
  CallKey key(id, current_modes());
  key.attr(t);
  key.attr(dims);
  key.layout(nullptr, 0);
  return record(d, key, {});
}

ValuePtr reshaped(Device& d, const ValuePtr& v, c10::IntArrayRef dims) {
  static const int32_t id = op_id("tpu::reshape");
  CallKey key(id, current_modes());
  key.tensor(v->type);
  key.attr(dims.data(), dims.size());
  key.layout(nullptr, 0);
  return record(d, key, std::span(&v, 1));
}

ValuePtr permuted(Device& d, const ValuePtr& v, const Dims& order) {
  static const int32_t id = op_id("tpu::permute");
  CallKey key(id, current_modes());
  key.tensor(v->type);
  key.attr(order);
  key.layout(nullptr, 0);
  return record(d, key, std::span(&v, 1));
}

// The slot's value, made to cover the whole storage as whole elements of `dtype`.
ValuePtr whole_value(Device& d, trace::Slot& s, DType dtype) {
  const auto item = static_cast<int64_t>(hlo::size_bytes(dtype));
  if (!s.value) s.value = zeros(d, dtype, {s.size_bytes / item});
  if (s.value->type->size_bytes() < s.size_bytes / item * item) {
    static const int32_t id = op_id("tpu::resize");
    CallKey key(id, current_modes());
    key.tensor(s.value->type);
    key.attr(dtype);
    key.attr(s.size_bytes / item);
    key.layout(nullptr, 0);
    s.value = record(d, key, std::span(&s.value, 1));
  }
  return s.value;
}

// Dims in order of decreasing stride when the tensor is dense and without overlap; empty when it is
// not.
Dims dense_order(const at::TensorBase& t) {
  Dims order(static_cast<size_t>(t.dim()));
  for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
  std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
    const bool unit_a = t.size(a) == 1, unit_b = t.size(b) == 1;
    if (unit_a || unit_b) return false;
    return t.stride(a) > t.stride(b);
  });
  int64_t expected = 1;
  for (size_t i = order.size(); i-- > 0;) {
    const int64_t d = order[i];
    if (t.size(d) == 1) continue;
    if (t.stride(d) != expected) return {};
    expected *= t.size(d);
  }
  return order;
}

struct ViewKey {
  CallKey key;
  c10::SmallVector<ops::Number, 4> starts;
};

// Key and scalar operands of a view's read (source null) or write.
ViewKey view_key(const at::TensorBase& t, DType dtype, int64_t offset, const ValuePtr& base,
                 const ValuePtr* source) {
  static const int32_t read_id = op_id("tpu::view_read"),
                       gather_id = op_id("tpu::view_read_gather");
  static const int32_t write_id = op_id("tpu::view_write"),
                       scatter_id = op_id("tpu::view_write_scatter");
  const Dims dims = trace::reinterpreted_dims(*base->type, dtype);
  const trace::StridedPlan plan = trace::plan_view(dims, t.sizes(), t.strides(), offset);
  const int32_t id =
      source ? (plan.gather ? scatter_id : write_id) : (plan.gather ? gather_id : read_id);
  ViewKey v{CallKey(id, current_modes()), {}};
  v.key.tensor(base->type);
  if (source) v.key.tensor((*source)->type);
  v.key.attr(dtype);
  if (plan.gather) {
    v.key.attr(t.sizes().data(), t.sizes().size());
    v.key.attr(t.strides().data(), t.strides().size());
    v.key.scalar(ops::NumberKind::kInt);
    v.starts.push_back(integer(offset));
  } else {
    v.key.attr(plan.factor);
    v.key.attr(plan.count);
    v.key.attr(plan.step);
    v.key.attr(plan.axis);
    v.key.attr(t.sizes().data(), t.sizes().size());
    for (size_t i = 0; i < plan.factor.size(); ++i) {
      if ((plan.count[i] - 1) * plan.step[i] + 1 != plan.factor[i])
        v.starts.push_back(integer(plan.start[i]));
    }
    v.key.scalar_list(v.starts.size());
    for (size_t i = 0; i < v.starts.size(); ++i) v.key.scalar(ops::NumberKind::kInt);
  }
  v.key.layout(nullptr, 0);
  return v;
}

// Index of the tensor's first element in its slot, in elements; checks that all elements are
// inside.
int64_t element_offset(const at::TensorBase& t, const Place& p, DType dtype) {
  const auto item = static_cast<int64_t>(hlo::size_bytes(dtype));
  TPU_CHECK(p.offset_bytes % item == 0, "a view of ", hlo::torch_name(dtype), " begins at byte ",
            p.offset_bytes, " of its storage, which is no multiple of its size");
  const int64_t first = p.offset_bytes / item + t.storage_offset();
  int64_t last = first;
  for (int64_t i = 0; i < t.dim(); ++i) last += (t.size(i) - 1) * t.stride(i);
  TPU_CHECK(first >= 0 && (last + 1) * item <= p.slot->size_bytes, "a view reaches byte ",
            (last + 1) * item, " of a storage of ", p.slot->size_bytes,
            " bytes; resize the storage or make the view smaller");
  return first;
}

}  // namespace

RecorderLock::RecorderLock() {
  Runtime& r = Runtime::get();
  lock_ = std::unique_lock(r.mutex(), std::try_to_lock);
  if (lock_.owns_lock()) {
    if (PyGILState_Check()) python_thread_ = PyEval_SaveThread();
    return;
  }
  if (PyGILState_Check()) python_thread_ = PyEval_SaveThread();
  lock_.lock();
}

RecorderLock::~RecorderLock() {
  lock_.unlock();
  if (python_thread_) PyEval_RestoreThread(static_cast<PyThreadState*>(python_thread_));
}

WithoutGil::WithoutGil() {
  if (PyGILState_Check()) python_thread_ = PyEval_SaveThread();
}
WithoutGil::~WithoutGil() {
  if (python_thread_) PyEval_RestoreThread(static_cast<PyThreadState*>(python_thread_));
}

int32_t op_id(const char* name) {
  const ops::OpDef* def = ops::Registry::instance().find(name);
  TPU_CHECK(def, ErrorKind::kInternal, "no op is called ", name);
  return def->id;
}

trace::Modes current_modes(bool with_precision) {
  trace::Modes m;
  if (with_precision) m.precision = current_precision();
  m.default_dtype = to_dtype(c10::get_default_dtype_as_scalartype());
  return m;
}

ValuePtr record(Device& d, const CallKey& key, std::span<const ValuePtr> inputs,
                std::span<const ops::Number> numbers) {
  Runtime& r = Runtime::get();
  const trace::Instance& inst = r.instance_of(d, key.view());
  c10::SmallVector<ValuePtr, 4> outputs(inst.outputs.size());
  r.record(d, inst, inputs, numbers, {}, outputs.data());
  return std::move(outputs[0]);
}

ValuePtr convert(ValuePtr v, DType t) {
  if (v->type->dtype == t) return v;
  static const int32_t id = op_id("tpu::convert");
  CallKey key(id, current_modes());
  key.tensor(v->type);
  key.attr(t);
  key.layout(nullptr, 0);
  return record(Runtime::get().device(v->device), key, std::span(&v, 1));
}

ValuePtr apply_bits(ValuePtr v, const at::TensorBase& t) {
  static const int32_t conj = op_id("aten::_conj_physical"), neg = op_id("aten::neg");
  for (const auto& [bit, id] : {std::pair(t.is_conj(), conj), std::pair(t.is_neg(), neg)}) {
    if (!bit) continue;
    CallKey key(id, current_modes());
    key.tensor(v->type);
    key.layout(nullptr, 0);
    v = record(Runtime::get().device(v->device), key, std::span(&v, 1));
  }
  return v;
}

trace::Place slot_of(const c10::StorageImpl& s) {
  const c10::DataPtr& p = s.data_ptr();
  if (is_slot_pointer(p)) [[likely]]
    return {static_cast<trace::Slot*>(p.get_context()), 0};
  const Place place = trace::find_slot(p.get());
  TPU_CHECK(
      place.slot,
      "a tensor's storage has no memory on the device; it was freed or made by something else");
  return place;
}

at::Tensor make_tensor(ValuePtr v, const trace::OutputSpec* spec) {
  const Type& type = *v->type;
  const bool permuted_dense = spec && !spec->row_major;
  const Dims& sizes = permuted_dense ? spec->logical->dims : type.dims;
  const auto size_bytes = static_cast<size_t>(type.size_bytes());
  const auto device = static_cast<c10::DeviceIndex>(v->device);
  const DType dtype = type.dtype;
  c10::DataPtr data = new_data_ptr(static_cast<int64_t>(size_bytes), device, std::move(v));
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_bytes, std::move(data), allocator(),
                       true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(to_scalar_type(dtype)));
  if (permuted_dense) {
    t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, spec->strides);
  } else if (sizes.size() != 1 || sizes[0] != 0) {
    t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  return t;
}

at::Tensor make_empty(c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides,
                      c10::ScalarType dtype, c10::DeviceIndex device) {
  const auto item = hlo::size_bytes(to_dtype(dtype));
  // Both throw when the size overflows.
  const size_t size_bytes = strides ? at::detail::computeStorageNbytes(sizes, *strides, item)
                                    : at::detail::computeStorageNbytesContiguous(sizes, item);
  c10::DataPtr data = new_data_ptr(static_cast<int64_t>(size_bytes), device, {});
  c10::Storage storage(c10::Storage::use_byte_size_t(), size_bytes, std::move(data), allocator(),
                       true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  if (strides) {
    t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, *strides);
  } else if (sizes.size() != 1 || sizes[0] != 0) {
    t.unsafeGetTensorImpl()->set_sizes_contiguous(sizes);
  }
  return t;
}

ValuePtr read_value(const at::TensorBase& t) {
  const DType dtype = to_dtype(t.scalar_type());
  const Place p = slot_of(*t.storage().unsafeGetStorageImpl());
  trace::Slot& s = *p.slot;
  const ValuePtr& v = s.value;
  const c10::IntArrayRef sizes = t.sizes();
  if (v && v->type->dtype == dtype && t.storage_offset() == 0 && p.offset_bytes == 0 &&
      t.is_contiguous() && sizes == c10::IntArrayRef(v->type->dims)) [[likely]] {
    if (v->state == trace::Value::State::kFailed) throw Error(*v->failure);
    return v;
  }
  Device& d = Runtime::get().device(s.device);
  const int64_t n = numel_of(sizes);
  if (n == 0) return zeros(d, dtype, to_dims(sizes));
  const int64_t offset = element_offset(t, p, dtype);
  const ValuePtr base = whole_value(d, s, dtype);
  if (base->state == trace::Value::State::kFailed) throw Error(*base->failure);
  if (base->type->dtype == dtype && offset == 0 && base->type->numel() == n && t.is_contiguous()) {
    return reshaped(d, base, sizes);
  }
  const ViewKey k = view_key(t, dtype, offset, base, nullptr);
  return record(d, k.key, std::span(&base, 1), {k.starts.data(), k.starts.size()});
}

void write_value(const at::TensorBase& t, ValuePtr v) {
  const DType dtype = to_dtype(t.scalar_type());
  const int64_t n = t.numel();
  if (n == 0) return;
  const Place p = slot_of(*t.storage().unsafeGetStorageImpl());
  trace::Slot& s = *p.slot;
  Device& d = Runtime::get().device(s.device);
  const int64_t offset = element_offset(t, p, dtype);
  if (offset == 0 && n * static_cast<int64_t>(hlo::size_bytes(dtype)) == s.size_bytes) {
    if (t.is_contiguous()) {
      Runtime::get().window_of(d).overwrite(s, std::move(v));
      return;
    }
    if (const Dims order = dense_order(t); !order.empty()) {
      Runtime::get().window_of(d).overwrite(s, permuted(d, v, order));
      return;
    }
  }
  const ValuePtr base = whole_value(d, s, dtype);
  if (base->state == trace::Value::State::kFailed) throw Error(*base->failure);
  const ViewKey k = view_key(t, dtype, offset, base, &v);
  const ValuePtr inputs[] = {base, std::move(v)};
  Runtime::get().window_of(d).overwrite(
      s, record(d, k.key, inputs, {k.starts.data(), k.starts.size()}));
}

void check_overlap(const at::TensorBase& dst) {
  TPU_CHECK(at::has_internal_overlap(dst.unsafeGetTensorImpl()) != at::MemOverlap::Yes,
            "unsupported operation: more than one element of the written-to tensor refers to a "
            "single memory location. "
            "Please clone() the tensor before performing the operation.");
}

void check_overlap(const at::TensorBase& dst, const at::TensorBase& source) {
  check_overlap(dst);
  TPU_CHECK(at::get_overlap_status(dst.unsafeGetTensorImpl(), source.unsafeGetTensorImpl()) !=
                at::MemOverlapStatus::Partial,
            "unsupported operation: some elements of the input tensor and the written-to tensor "
            "refer to a single memory "
            "location. Please clone() the tensor before performing the operation.");
}

void resize_storage(c10::StorageImpl& st, int64_t size_bytes) {
  const Place p = slot_of(st);
  trace::Slot& s = *p.slot;
  TPU_CHECK(size_bytes <= trace::kMaxSlotBytes, ErrorKind::kMemory, "a storage of ", size_bytes,
            " bytes is larger than the 256 GiB that one storage can address");
  if (size_bytes < s.size_bytes && s.value) {
    const DType t = s.value->type->dtype;
    const auto item = static_cast<int64_t>(hlo::size_bytes(t));
    if (size_bytes < item) {
      s.value = ValuePtr();
    } else if (s.value->type->size_bytes() > size_bytes) {
      static const int32_t id = op_id("tpu::resize");
      CallKey key(id, current_modes());
      key.tensor(s.value->type);
      key.attr(t);
      key.attr(size_bytes / item);
      key.layout(nullptr, 0);
      s.value = record(Runtime::get().device(s.device), key, std::span(&s.value, 1));
    }
  }
  s.size_bytes = size_bytes;
  st.set_nbytes(static_cast<size_t>(size_bytes));
}

void resize_tensor(const at::TensorBase& t, c10::IntArrayRef sizes) {
  at::TensorImpl* impl = t.unsafeGetTensorImpl();
  if (t.sizes() == sizes) return;
  const int64_t bytes = (hlo::product(to_dims(sizes)) + t.storage_offset()) *
                        static_cast<int64_t>(t.dtype().itemsize());
  c10::StorageImpl& st = *t.storage().unsafeGetStorageImpl();
  if (numel_of(sizes) > 0 && bytes > static_cast<int64_t>(st.nbytes())) {
    TPU_CHECK(st.resizable(), "Trying to resize storage that is not resizable");
    resize_storage(st, bytes);
  }
  impl->set_sizes_contiguous(sizes);
}

}  // namespace tpu::bridge
