// PyTorch's hooks of a private backend: availability, generators, pinned memory, storage resizing.
#pragma once

namespace tpu::bridge {

void register_hooks();  // once, at load

}  // namespace tpu::bridge
