#include "bridge/prefix.h"

#include <ATen/Functions.h>

#include <vector>

#include "bridge/allocator.h"
#include "bridge/dtype.h"
#include "bridge/tensor.h"

namespace tpu::bridge {
namespace {

at::Tensor over(ValuePtr v, c10::ScalarType dtype, int64_t size_bytes, c10::IntArrayRef sizes,
                c10::IntArrayRef strides) {
  const auto device = static_cast<c10::DeviceIndex>(v->device);
  c10::Storage storage(c10::Storage::use_byte_size_t(), static_cast<size_t>(size_bytes),
                       new_data_ptr(size_bytes, device, std::move(v)), allocator(), true);
  at::Tensor t = at::detail::make_tensor<c10::TensorImpl>(
      std::move(storage), c10::DispatchKeySet(c10::DispatchKey::PrivateUse1),
      c10::scalarTypeToTypeMeta(dtype));
  t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

// The buffer of `t`, if it is a whole [numel] that begins with it; null otherwise.
ValuePtr shared(const at::Tensor& t, const trace::Type* flat) {
  const trace::Place place = slot_of(*t.storage().unsafeGetStorageImpl());
  const ValuePtr& v = place.slot->value;
  const bool begins = t.is_contiguous() && t.storage_offset() == 0 && place.offset_bytes == 0;
  return v && v->type == flat && begins ? v : ValuePtr();
}

}  // namespace

at::Tensor padded(const at::Tensor& t, int64_t numel) {
  TPU_CHECK(t.numel() <= numel, ErrorKind::kInternal, t.numel(), " elements do not fit into ",
            numel);
  const trace::Type* flat = trace::intern({to_dtype(t.scalar_type()), {numel}});
  const int64_t size_bytes = flat->size_bytes();
  const int64_t one[] = {1};
  Runtime& r = Runtime::get();
  Device& d = r.device(t.device().index());
  const int64_t item = static_cast<int64_t>(t.dtype().itemsize());
  ValuePtr v;
  int64_t offset = 0;  // of t in v, in elements
  at::Tensor view = t;
  {
    RecorderLock lock;
    if (v = shared(t, flat); v) return over(v, t.scalar_type(), size_bytes, {numel}, one);
    const trace::Place place = slot_of(*t.storage().unsafeGetStorageImpl());
    v = place.slot->value;
    offset = place.offset_bytes / item + t.storage_offset();
    if (!v || v->type->dtype != flat->dtype || t.is_conj() || t.is_neg() ||
        place.offset_bytes % item != 0 || v->type->size_bytes() < place.slot->size_bytes) {
      v = apply_bits(read_value(t), t);
      offset = 0;
      view = at::Tensor();
    }
    r.make_ready(v, runtime::FlushReason::kBoundary);
  }
  std::vector<std::byte> host(static_cast<size_t>(size_bytes));
  {
    const WithoutGil no_gil;
    r.read(v, t.numel() * item, [&](const void* data) {
      const at::AutoDispatchBelowADInplaceOrView plain;
      const auto options = at::TensorOptions().dtype(t.scalar_type());
      at::Tensor source = at::from_blob(const_cast<void*>(data), {v->type->numel()}, options);
      source = view.defined() ? source.as_strided(t.sizes(), t.strides(), offset)
                              : source.view(t.sizes());
      at::from_blob(host.data(), t.sizes(), options).copy_(source);
    });
  }
  RecorderLock lock;
  return over(r.upload(d, host.data(), flat), t.scalar_type(), size_bytes, {numel}, one);
}

at::Tensor prefix(const at::Tensor& flat, c10::IntArrayRef sizes, c10::IntArrayRef strides) {
  int64_t numel = 1;
  for (int64_t s : sizes) numel *= s;
  TPU_CHECK(numel <= flat.numel(), ErrorKind::kInternal, numel, " elements do not fit into ",
            flat.numel());
  RecorderLock lock;
  return over(read_value(flat), flat.scalar_type(),
              numel * static_cast<int64_t>(flat.dtype().itemsize()), sizes, strides);
}

}  // namespace tpu::bridge
