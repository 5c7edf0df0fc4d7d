#include "pjrt/buffer.h"

#include <vector>

namespace tpu::pjrt {
namespace {

// Each question is one call on the handle that fills one struct.
template <auto kFunction, class T>
Args<T> ask(const Owned<PJRT_Buffer>& handle) {
  TPU_CHECK(static_cast<bool>(handle), ErrorKind::kInternal, "an empty buffer was used");
  Args<T> args;
  args.buffer = handle.get();
  handle.api().call<kFunction>(args);
  return args;
}
#define TPU_ASK(Name) ask<&PJRT_Api::PJRT_Buffer_##Name, PJRT_Buffer_##Name##_Args>(handle_)

}  // namespace

ElementType Buffer::element_type() const {
  return static_cast<ElementType>(detail::enum_number(TPU_ASK(ElementType).type));
}

std::span<const int64_t> Buffer::dims() const {
  const auto args = TPU_ASK(Dimensions);
  return {args.dims, args.num_dims};
}

std::span<const int64_t> Buffer::unpadded_dims() const {
  const auto args = TPU_ASK(UnpaddedDimensions);
  return {args.unpadded_dims, args.num_dims};
}

size_t Buffer::size_bytes() const { return TPU_ASK(OnDeviceSizeInBytes).on_device_size_in_bytes; }

size_t Buffer::host_size_bytes() const {
  auto size = static_cast<size_t>(pjrt::host_size_bytes(element_type()));
  for (const int64_t d : unpadded_dims()) size *= static_cast<size_t>(d);
  return size;
}

PJRT_Device* Buffer::device() const { return TPU_ASK(Device).device; }
bool Buffer::is_on_cpu() const { return TPU_ASK(IsOnCpu).is_on_cpu; }
uintptr_t Buffer::unsafe_pointer() const { return TPU_ASK(UnsafePointer).buffer_pointer; }
Event Buffer::ready_event() const { return {handle_.api(), TPU_ASK(ReadyEvent).event}; }
bool Buffer::is_deleted() const { return TPU_ASK(IsDeleted).is_deleted; }
void Buffer::delete_memory() { TPU_ASK(Delete); }

Event Buffer::to_host(void* dst, size_t dst_size_bytes) const {
  const size_t rank = dims().size();
  TPU_CHECK(dst_size_bytes >= host_size_bytes(), ErrorKind::kInternal, "a copy of ",
            host_size_bytes(), " bytes was given room for ", dst_size_bytes);
  if (host_size_bytes() == 0) return {};
  // Without a layout the copy would keep the device's order of dimensions.
  std::vector<int64_t> minor_to_major(rank);
  for (size_t i = 0; i < rank; ++i) minor_to_major[i] = static_cast<int64_t>(rank - 1 - i);
  PJRT_Buffer_MemoryLayout layout{};
  layout.struct_size = PJRT_Buffer_MemoryLayout_STRUCT_SIZE;
  layout.type = PJRT_Buffer_MemoryLayout_Type_Tiled;
  layout.tiled.struct_size = PJRT_Buffer_MemoryLayout_Tiled_STRUCT_SIZE;
  layout.tiled.minor_to_major = minor_to_major.data();
  layout.tiled.minor_to_major_size = rank;

  Args<PJRT_Buffer_ToHostBuffer_Args> args;
  args.src = handle_.get();
  args.host_layout = &layout;
  args.dst = dst;
  args.dst_size = dst_size_bytes;
  handle_.api().call<&PJRT_Api::PJRT_Buffer_ToHostBuffer>(args);
  return {handle_.api(), args.event};
}

Event Buffer::copy_raw_to_host(void* dst, int64_t offset_bytes, int64_t size_bytes) const {
  TPU_CHECK(static_cast<bool>(handle_), ErrorKind::kInternal, "an empty buffer was used");
  if (size_bytes == 0) return {};
  Args<PJRT_Buffer_CopyRawToHost_Args> args;
  args.buffer = handle_.get();
  args.dst = dst;
  args.offset = offset_bytes;
  args.transfer_size = size_bytes;
  handle_.api().call<&PJRT_Api::PJRT_Buffer_CopyRawToHost>(args);
  return {handle_.api(), args.event};
}

Buffer Buffer::copy_to_device(PJRT_Device* device) const {
  TPU_CHECK(static_cast<bool>(handle_), ErrorKind::kInternal, "an empty buffer was used");
  Args<PJRT_Buffer_CopyToDevice_Args> args;
  args.buffer = handle_.get();
  args.dst_device = device;
  handle_.api().call<&PJRT_Api::PJRT_Buffer_CopyToDevice>(args);
  return {handle_.api(), args.dst_buffer};
}

}  // namespace tpu::pjrt
