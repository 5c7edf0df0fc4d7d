// Copies between host and device, between devices, between dtypes; reads of single numbers; clone.
#include <ATen/ExpandUtils.h>
#include <ATen/Functions.h>
#include <ATen/core/Tensor.h>
#include <torch/library.h>

#include <atomic>
#include <cstring>

#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/kernel.h"
#include "bridge/tensor.h"
#include "bridge/waits.h"

namespace tpu::bridge {
namespace {

std::atomic<WaitNotice> notice{WaitNotice::kNone};

using runtime::FlushReason;
using trace::DType;

bool is_lazy(const at::Tensor& t) { return t.is_conj() || t.is_neg(); }

// The host tensor's elements in row-major order, as the device's dtype.
at::Tensor host_source(const at::Tensor& self, const at::Tensor& dst) {
  at::Tensor s = self;
  if (s.is_conj()) s = s.resolve_conj();
  if (s.is_neg()) s = s.resolve_neg();
  if (s.scalar_type() != dst.scalar_type()) s = s.to(dst.scalar_type());
  return s.expand(dst.sizes()).contiguous();
}

void host_to_device(const at::Tensor& self, const at::Tensor& dst) {
  const DType dtype = to_dtype(dst.scalar_type());
  if (dst.numel() == 0) return;
  check_overlap(dst);
  // Laid out like the destination where that is dense, so that the write needs no program.
  at::Tensor source = self;
  at::Tensor target = dst;
  if (!dst.is_contiguous() && dst.is_non_overlapping_and_dense()) {
    std::vector<int64_t> order(static_cast<size_t>(dst.dim()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return dst.stride(a) > dst.stride(b); });
    source = self.expand(dst.sizes()).permute(order);
    target = dst.permute(order);
  }
  const at::Tensor host = host_source(source, target);
  RecorderLock lock;
  Runtime& r = Runtime::get();
  Device& d = r.device(dst.device().index());
  const auto sizes = target.sizes();
  write_value(target, r.upload(d, host.const_data_ptr(),
                               trace::intern({dtype, {sizes.begin(), sizes.end()}})));
  r.after_record(d);
}

void notice_wait() {
  const WaitNotice n = notice.load(std::memory_order_relaxed);
  if (n == WaitNotice::kNone) return;
  TPU_CHECK(n == WaitNotice::kWarn, "called a synchronizing tpu operation");
  TORCH_WARN("called a synchronizing tpu operation");
}

// Reads `self` into `dst`, of the same sizes, from the memory of what it is a view of: no program
// is needed to bring its elements together. False where that memory is not in the order of strides
// (a device's own) unless it has to be read whole anyway, or has another dtype.
bool read_in_place(const at::Tensor& self, const at::Tensor& dst) {
  if (is_lazy(self)) return false;
  const auto item = static_cast<int64_t>(self.dtype().itemsize());
  ValuePtr v;
  int64_t offset = 0;
  {
    RecorderLock lock;
    const trace::Place place = slot_of(*self.storage().unsafeGetStorageImpl());
    v = place.slot->value;
    const int64_t bytes = place.slot->size_bytes;
    if (!v || v->type->dtype != to_dtype(self.scalar_type()) || v->type->size_bytes() < bytes ||
        place.offset_bytes % item != 0 ||
        c10::IntArrayRef(v->type->dims) == self.sizes())  // most likely all of it, in its order
      return false;
    Runtime& r = Runtime::get();
    if (!r.on_cpu_plugin() && v->type->size_bytes() == bytes) return false;
    offset = place.offset_bytes / item + self.storage_offset();
    int64_t last = offset;
    for (int64_t d = 0; d < self.dim(); ++d) last += (self.size(d) - 1) * self.stride(d);
    if (offset < 0 || (last + 1) * item > bytes) return false;
    notice_wait();
    r.make_ready(v, FlushReason::kRead);
  }
  const WithoutGil no_gil;
  Runtime::get().read(v, static_cast<int64_t>(self.numel()) * item, [&](const void* data) {
    const at::AutoDispatchBelowADInplaceOrView plain;
    const at::Tensor all =
        at::from_blob(const_cast<void*>(data), {v->type->numel()}, self.options().device(at::kCPU));
    dst.copy_(all.as_strided(self.sizes(), self.strides(), offset));
  });
  return true;
}

// The flushed value of a tensor in row-major order, and its device buffer ready to be waited for.
ValuePtr ready_value(const at::Tensor& t) {
  notice_wait();
  RecorderLock lock;
  ValuePtr v = apply_bits(read_value(t), t);
  Runtime::get().make_ready(v, FlushReason::kRead);
  return v;
}

void device_to_host(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.numel() == 0) return;
  if (dst.sizes() == self.sizes() && read_in_place(self, dst)) return;
  // Fetched in the order in which the elements lie, when that is dense: no program is needed to
  // reorder them.
  at::Tensor dense = self;
  std::vector<int64_t> order;
  if (!self.is_contiguous() && self.is_non_overlapping_and_dense()) {
    order.resize(static_cast<size_t>(self.dim()));
    for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
    std::stable_sort(order.begin(), order.end(),
                     [&](int64_t a, int64_t b) { return self.stride(a) > self.stride(b); });
    dense = self.permute(order);
  }
  const ValuePtr v = ready_value(dense);
  at::Tensor target = order.empty() ? dst : dst.permute(order);
  const bool direct = target.scalar_type() == self.scalar_type() && target.is_contiguous() &&
                      target.sizes() == dense.sizes();
  at::Tensor host =
      direct ? target
             : at::empty(
                   dense.sizes(),
                   dst.options().dtype(self.scalar_type()).device(at::kCPU).pinned_memory(false));
  {
    const WithoutGil no_gil;
    Runtime::get().download(v, host.mutable_data_ptr(), static_cast<int64_t>(host.nbytes()));
  }
  if (!direct) target.copy_(host);
}

void device_to_device(const at::Tensor& self, const at::Tensor& dst) {
  if (dst.numel() == 0) return;
  const bool same = self.is_alias_of(dst) && self.storage_offset() == dst.storage_offset() &&
                    self.sizes() == dst.sizes() && self.strides() == dst.strides() &&
                    self.scalar_type() == dst.scalar_type();
  if (same) return;
  check_overlap(dst, self);
  RecorderLock lock;
  Runtime& r = Runtime::get();
  Device& to = r.device(dst.device().index());
  ValuePtr v = read_value(self);
  if (self.device().index() != dst.device().index()) {
    r.make_ready(v, FlushReason::kBoundary);
    v = r.copy_to(to, v);
  }
  v = convert(std::move(v), to_dtype(dst.scalar_type()));
  const auto sizes = dst.sizes();
  if (c10::IntArrayRef(v->type->dims) != sizes) {
    static const int32_t id = op_id("tpu::broadcast");
    trace::CallKey key(id, current_modes());
    key.tensor(v->type);
    key.attr(sizes.data(), sizes.size());
    key.layout(nullptr, 0);
    v = record(to, key, std::span(&v, 1));
  }
  write_value(dst, std::move(v));
  r.after_record(to);
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking);

// `_copy_from` of a lazy conjugate or negative: materialised first, or torch's fallback would clone
// without end. Where a TorchDispatchMode calls, the keys of the bits do not lead here.
at::Tensor copy_from_lazy(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  auto plain = [](const at::Tensor& t) {
    const auto bits =
        c10::DispatchKeySet({c10::DispatchKey::Conjugate, c10::DispatchKey::Negative});
    return at::detail::make_tensor<c10::TensorImpl>(c10::Storage(t.storage()), t.key_set() - bits,
                                                    t.dtype());
  };
  auto bare = [&](const at::Tensor& t) {
    at::Tensor p = plain(t);
    p.unsafeGetTensorImpl()->set_storage_offset(t.storage_offset());
    p.unsafeGetTensorImpl()->set_sizes_and_strides(t.sizes(), t.strides());
    return p;
  };
  const at::NoGradGuard no_grad;
  at::Tensor source = bare(self);
  // The destination's bits say how to store what is copied.
  if (self.is_conj() != dst.is_conj()) source = source.conj_physical();
  if (self.is_neg() != dst.is_neg()) source = source.neg();
  const at::Tensor target = bare(dst);
  if (source.is_cpu() && target.is_cpu()) {
    target.copy_(source);
  } else {
    copy_from(source, target, non_blocking);
  }
  return dst;
}

at::Tensor copy_from(const at::Tensor& self, const at::Tensor& dst, bool non_blocking) {
  if (is_lazy(self) || is_lazy(dst)) return copy_from_lazy(self, dst, non_blocking);
  guarded([&] {
    if (self.is_cpu()) {
      host_to_device(self, dst);
    } else if (dst.is_cpu()) {
      device_to_host(self, dst);
    } else {
      TPU_CHECK(self.is_privateuseone() && dst.is_privateuseone(), ErrorKind::kUnsupported,
                "a copy from ", self.device().str(), " to ", dst.device().str(),
                " has to go through the CPU: use .cpu() first");
      device_to_device(self, dst);
    }
  });
  return dst;
}

// For torch's CPU fallback: the destination takes the source's sizes first.
at::Tensor copy_from_and_resize(const at::Tensor& self, const at::Tensor& dst) {
  guarded([&] {
    RecorderLock lock;
    resize_tensor(dst, self.sizes());
  });
  return copy_from(self, dst, false);
}

at::Scalar local_scalar_dense(const at::Tensor& self) {
  return guarded([&]() -> at::Scalar {
    TPU_CHECK(self.numel() == 1, "a Tensor with ", self.numel(),
              " elements cannot be converted to Scalar");
    at::Tensor host = at::empty({}, at::TensorOptions().dtype(self.scalar_type()));
    if (read_in_place(self, host.expand(self.sizes()))) return host.item();
    const ValuePtr v = ready_value(self);
    {
      const WithoutGil no_gil;
      Runtime::get().download(v, host.mutable_data_ptr(), static_cast<int64_t>(host.nbytes()));
    }
    return host.item();
  });
}

// Values are immutable: a clone shares its source's until one of the two is written.
at::Tensor clone(const at::Tensor& self, std::optional<c10::MemoryFormat> format) {
  return guarded([&] {
    const c10::MemoryFormat f = format.value_or(c10::MemoryFormat::Preserve);
    if (is_lazy(self)) {
      // The bit is a part of what the source says, not of the value it shares.
      at::Tensor out = at::empty_like(self, f);
      return out.copy_(self);
    }
    RecorderLock lock;
    at::Tensor source = self;
    trace::OutputSpec spec;
    if (f == c10::MemoryFormat::Preserve) {
      // As empty_like: the strides of a dense source, else dense ones in the same order.
      spec.strides = self.is_non_overlapping_and_dense()
                         ? self.strides().vec()
                         : at::infer_dense_strides(self.sizes(), self.strides());
      if (!self.is_contiguous()) {
        std::vector<int64_t> order(static_cast<size_t>(self.dim()));
        for (size_t i = 0; i < order.size(); ++i) order[i] = static_cast<int64_t>(i);
        std::stable_sort(order.begin(), order.end(), [&](int64_t a, int64_t b) {
          return spec.strides[static_cast<size_t>(a)] > spec.strides[static_cast<size_t>(b)];
        });
        source = self.permute(order);
      }
      spec.row_major = false;
      spec.logical =
          trace::intern({to_dtype(self.scalar_type()), {self.sizes().begin(), self.sizes().end()}});
    }
    if (f == c10::MemoryFormat::ChannelsLast || f == c10::MemoryFormat::ChannelsLast3d) {
      at::Tensor out =
          make_empty(self.sizes(), std::nullopt, self.scalar_type(), self.device().index());
      out.unsafeGetTensorImpl()->empty_tensor_restride(f);
      write_value(out, read_value(self));
      Runtime::get().after_record(Runtime::get().device(self.device().index()));
      return out;
    }
    at::Tensor out = make_tensor(read_value(source), &spec);
    Runtime::get().after_record(Runtime::get().device(self.device().index()));
    return out;
  });
}

bool equal(const at::Tensor& self, const at::Tensor& other) {
  if (!other.is_privateuseone() || self.sizes() != other.sizes()) {
    TORCH_CHECK(self.device() == other.device(),
                "Cannot compare two tensors on different devices. Got: ", self.device(), " and ",
                other.device());
    return false;
  }
  return self.numel() == 0 || at::eq(self, other).all().item<bool>();
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_copy_from", copy_from);
  m.impl("_copy_from_and_resize", copy_from_and_resize);
  m.impl("_local_scalar_dense", local_scalar_dense);
  m.impl("clone", clone);
  m.impl("equal", equal);
}
TORCH_LIBRARY_IMPL(aten, Conjugate, m) { m.impl("_copy_from", copy_from_lazy); }
TORCH_LIBRARY_IMPL(aten, Negative, m) { m.impl("_copy_from", copy_from_lazy); }

}  // namespace

WaitNotice wait_notice() { return notice; }
void set_wait_notice(WaitNotice n) { notice = n; }
}  // namespace tpu::bridge
