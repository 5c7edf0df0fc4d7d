// at::Tensor on one side, Slot and Value on the other: making, reading and writing tensors.
//
// A tensor is torch's own TensorImpl over a StorageImpl whose address names a Slot. All functions
// here need the recorder's lock (RecorderLock), except slot_of.
#pragma once
#include <ATen/core/Tensor.h>

#include <mutex>
#include <span>

#include "runtime/runtime.h"
#include "trace/key.h"
#include "trace/slot.h"

namespace tpu::bridge {

using runtime::Device;
using runtime::Runtime;
using trace::ValuePtr;

// The lock of the recorder. The GIL, if held, is given up first and taken back after: a holder of
// the lock may need the GIL (to name a Python line), so nobody may wait for the lock with it.
class RecorderLock {
 public:
  RecorderLock();
  ~RecorderLock();
  RecorderLock(const RecorderLock&) = delete;
  RecorderLock& operator=(const RecorderLock&) = delete;

 private:
  void* python_thread_ = nullptr;
  std::unique_lock<std::mutex> lock_;
};

// Gives up the GIL, if held, for as long as it lives: for waiting without the lock.
class WithoutGil {
 public:
  WithoutGil();
  ~WithoutGil();
  WithoutGil(const WithoutGil&) = delete;
  WithoutGil& operator=(const WithoutGil&) = delete;

 private:
  void* python_thread_ = nullptr;
};

c10::Allocator* allocator();

// A storage's slot and the byte offset of its address in it; throws when the storage is none of
// ours.
trace::Place slot_of(const c10::StorageImpl& s);

// A fresh tensor that holds the value. Strides as given, else row-major over the value's dims.
at::Tensor make_tensor(ValuePtr v, const trace::OutputSpec* spec = nullptr);
// A fresh tensor whose content nobody has written; reading it gives zeros.
at::Tensor make_empty(c10::IntArrayRef sizes, std::optional<c10::IntArrayRef> strides,
                      c10::ScalarType dtype, c10::DeviceIndex device);

// The tensor's value in its logical dims; records a view's read where it is not the storage's whole
// value.
ValuePtr read_value(const at::TensorBase& t);
// The tensor's elements replaced by `v` (the tensor's dtype, its sizes); records the write of a
// view.
void write_value(const at::TensorBase& t, ValuePtr v);
// As TensorIterator: throws when two elements of `dst` are one, or when `source` shares a part of
// its memory.
void check_overlap(const at::TensorBase& dst);
void check_overlap(const at::TensorBase& dst, const at::TensorBase& source);
// Sizes changed to `sizes`, row-major, storage grown if need be (keeps strides when the sizes do
// not change).
void resize_tensor(const at::TensorBase& t, c10::IntArrayRef sizes);
// The storage's size; to zero drops the value.
void resize_storage(c10::StorageImpl& s, int64_t size_bytes);

// Records one call of one of our own ops, whose key is complete, and gives its first output.
ValuePtr record(Device& d, const trace::CallKey& key, std::span<const ValuePtr> inputs,
                std::span<const ops::Number> numbers = {});
// Our own op by name ("tpu::convert"): its id.
int32_t op_id(const char* name);
ValuePtr convert(ValuePtr v, trace::DType t);
// The value as the tensor's lazy conjugate and negative bits mean it; the same way back.
ValuePtr apply_bits(ValuePtr v, const at::TensorBase& t);

// Torch looks its precision up in a hash table, which is spared to ops that do not take one.
trace::Modes current_modes(bool with_precision = true);

}  // namespace tpu::bridge
