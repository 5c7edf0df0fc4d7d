// The device allocator: storages that own a slot. No device memory is taken until something is
// computed.
#pragma once
#include <c10/core/Allocator.h>

#include "trace/slot.h"

namespace tpu::bridge {

// A data pointer that owns a fresh slot, which holds `v` (may be null).
c10::DataPtr new_data_ptr(int64_t size_bytes, c10::DeviceIndex device, trace::ValuePtr v);
// Made by new_data_ptr: its context is the slot.
bool is_slot_pointer(const c10::DataPtr& p);
// Host memory allocator whose blocks count as pinned.
c10::Allocator* pinned_allocator();
bool is_pinned(const void* p);

}  // namespace tpu::bridge
