// empty, empty_strided, resize_, set_ and other makers of tensors that compute nothing.
#include <ATen/EmptyTensor.h>
#include <ATen/native/Resize.h>
#include <ATen/ops/is_set_to_native.h>
#include <ATen/ops/set_native.h>
#include <torch/library.h>

#include "bridge/allocator.h"
#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/tensor.h"

namespace tpu::bridge {
namespace {

c10::DeviceIndex device_index(std::optional<c10::Device> d) {
  const auto* guard = c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1);
  const c10::DeviceIndex i = d && d->has_index() ? d->index() : guard->getDevice().index();
  const int count = Runtime::get().devices();
  TPU_CHECK(i >= 0 && i < count, "there is no device tpu:", int{i}, "; this process has ", count,
            count == 1 ? " device, tpu:0" : cat(" devices, tpu:0 to tpu:", count - 1));
  return i;
}

at::Tensor empty_memory_format(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                               std::optional<c10::Layout> layout, std::optional<c10::Device> device,
                               std::optional<bool> pin_memory,
                               std::optional<c10::MemoryFormat> format) {
  return guarded([&] {
    TPU_CHECK(layout.value_or(c10::kStrided) == c10::kStrided, ErrorKind::kUnsupported,
              "only strided tensors can be made on a tpu device");
    TPU_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
    for (int64_t s : size) {
      TPU_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ",
                std::vector(size.begin(), size.end()));
    }
    const c10::ScalarType t = c10::dtype_or_default(dtype);
    const c10::DeviceIndex i = device_index(device);
    at::Tensor r = make_empty(size, std::nullopt, t, i);
    if (format && *format != c10::MemoryFormat::Contiguous &&
        *format != c10::MemoryFormat::Preserve) {
      r.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    }
    return r;
  });
}

at::Tensor empty_strided(c10::IntArrayRef size, c10::IntArrayRef stride,
                         std::optional<c10::ScalarType> dtype, std::optional<c10::Layout>,
                         std::optional<c10::Device> device, std::optional<bool> pin_memory) {
  return guarded([&] {
    TPU_CHECK(!pin_memory.value_or(false), "Only dense CPU tensors can be pinned");
    TPU_CHECK(size.size() == stride.size(), "dimensionality of sizes (", size.size(),
              ") must match dimensionality of strides (", stride.size(), ")");
    for (int64_t s : size) {
      TPU_CHECK(s >= 0, "Trying to create tensor with negative dimension ", s, ": ",
                std::vector(size.begin(), size.end()));
    }
    for (int64_t s : stride) TPU_CHECK(s >= 0, "negative strides are not supported, got ", s);
    return make_empty(size, stride, c10::dtype_or_default(dtype), device_index(device));
  });
}

const at::Tensor& resize_(const at::Tensor& self, c10::IntArrayRef size,
                          std::optional<c10::MemoryFormat> format) {
  return guarded([&]() -> const at::Tensor& {
    for (int64_t s : size) TPU_CHECK(s >= 0, "Trying to resize to negative dimension ", s);
    RecorderLock lock;
    resize_tensor(self, size);
    if (format && *format != c10::MemoryFormat::Preserve)
      self.unsafeGetTensorImpl()->empty_tensor_restride(*format);
    return self;
  });
}

at::Tensor& set_storage_offset(at::Tensor& self, at::Storage source, int64_t offset,
                               c10::IntArrayRef size, c10::IntArrayRef stride) {
  at::native::checkSetStorage(self, source, offset, size, stride);
  self.unsafeGetTensorImpl()->set_storage_offset(offset);
  c10::OptionalIntArrayRef strides =
      stride.data() ? c10::OptionalIntArrayRef(stride) : std::nullopt;
  at::TensorImpl* impl = self.unsafeGetTensorImpl();
  if (strides) {
    impl->set_sizes_and_strides(size, *strides);
  } else {
    impl->set_sizes_contiguous(size);
  }
  return guarded([&]() -> at::Tensor& {
    // As on the CPU: a resizable storage that is too small grows.
    const int64_t need = static_cast<int64_t>(at::detail::computeStorageNbytes(
        self.sizes(), self.strides(), self.dtype().itemsize(), static_cast<size_t>(offset)));
    c10::StorageImpl& st = *self.storage().unsafeGetStorageImpl();
    if (self.numel() > 0 && need > static_cast<int64_t>(st.nbytes())) {
      TPU_CHECK(st.resizable(), "Trying to resize storage that is not resizable");
      RecorderLock lock;
      resize_storage(st, need);
    }
    return self;
  });
}

at::Tensor& set_storage(at::Tensor& self, at::Storage source) {
  const auto n = static_cast<int64_t>(source.nbytes() / self.dtype().itemsize());
  return set_storage_offset(self, std::move(source), 0, {n}, {});
}

at::Tensor& set_empty(at::Tensor& self) {
  at::Storage fresh(c10::Storage::use_byte_size_t(), 0, new_data_ptr(0, self.device().index(), {}),
                    allocator(), true);
  return set_storage_offset(self, std::move(fresh), 0, {0}, {});
}

void record_stream(at::Tensor&, at::Stream) {
  // Values are immutable and counted: memory is never reused while a launch needs it.
}

at::Tensor efficient_zero_tensor(c10::IntArrayRef size, std::optional<c10::ScalarType> dtype,
                                 std::optional<c10::Layout>, std::optional<c10::Device> device,
                                 std::optional<bool>) {
  return guarded([&] {
    // A tensor of the ZeroTensor key has a size, for its views, and no memory behind it; torch's
    // fallbacks turn it into zeros when needed.
    const c10::ScalarType t = c10::dtype_or_default(dtype);
    const size_t bytes = at::detail::computeStorageNbytesContiguous(size, c10::elementSize(t));
    c10::DataPtr data = new_data_ptr(static_cast<int64_t>(bytes), device_index(device), {});
    c10::Storage storage(c10::Storage::use_byte_size_t(), bytes, std::move(data), allocator(),
                         false);
    at::Tensor zeros = at::detail::make_tensor<c10::TensorImpl>(
        std::move(storage),
        c10::DispatchKeySet({c10::DispatchKey::PrivateUse1, c10::DispatchKey::ZeroTensor}),
        c10::scalarTypeToTypeMeta(t));
    zeros.unsafeGetTensorImpl()->set_sizes_contiguous(size);
    return zeros;
  });
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("empty.memory_format", empty_memory_format);
  m.impl("empty_strided", empty_strided);
  m.impl("resize_", resize_);
  m.impl("set_.source_Storage", set_storage);
  m.impl("set_.source_Storage_storage_offset", set_storage_offset);
  m.impl("set_.source_Tensor", at::native::set_tensor_);
  m.impl("set_", set_empty);
  m.impl("is_set_to", at::native::is_set_to);
  m.impl("record_stream", record_stream);
  m.impl("_efficientzerotensor", efficient_zero_tensor);
}

}  // namespace
}  // namespace tpu::bridge
