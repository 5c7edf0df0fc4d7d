// Linear algebra on CPU plugins: custom calls answered by torch's own CPU kernels, and so by its
// LAPACK. aten/linalg.h says what each takes and gives.
#pragma once

namespace tpu::bridge {

void register_lapack();  // once, at load

}  // namespace tpu::bridge
