// Current device, streams and events of a thread.
//
// All work of a device runs in the order in which it was recorded, whatever its stream: the
// strictest order that a CUDA program may rely on. Streams are therefore names, waiting for one is
// true without doing anything, and an event is a mark on the device's order, with the time at which
// all work before it was done.
#pragma once
#include <c10/core/Stream.h>

#include "runtime/runtime.h"

namespace tpu::bridge {

c10::DeviceIndex current_device_index();
// Throws when there is no such device.
void set_device_index(c10::DeviceIndex i);
// Flushes and waits for the device.
void synchronize_device(c10::DeviceIndex i);
void flush_device(c10::DeviceIndex i, runtime::FlushReason why);
void end_step();  // of an optimizer, on all devices

}  // namespace tpu::bridge
