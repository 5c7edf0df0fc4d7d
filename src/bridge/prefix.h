// Tensors whose size varies in buffers whose size does not: programs for many sizes (torch_tpu's
// _padding.py) take and give arrays of which the first elements count.
#pragma once
#include <ATen/core/Tensor.h>

namespace tpu::bridge {

// A tensor [numel] that begins with the elements of `t` in row-major order; what follows has no
// meaning. Shares t's buffer if that has just this form, as prefix() gives it; otherwise a copy
// that passes through the host, which waits for `t` and compiles nothing.
at::Tensor padded(const at::Tensor& t, int64_t numel);

// A tensor over the first elements of `flat` [n]: sizes and strides must be dense. Its storage is
// as long as the tensor; the buffer stays as long as flat's.
at::Tensor prefix(const at::Tensor& flat, c10::IntArrayRef sizes, c10::IntArrayRef strides);

}  // namespace tpu::bridge
