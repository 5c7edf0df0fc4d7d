// The parts of register_loss that have files of their own.
#pragma once
#include "ops/registry.h"

namespace tpu::aten {

// _ctc_loss and its backward function, lengths as int[] or as tensors (ctc.cpp).
void register_ctc(ops::Registry& r);
// _cdist and _pdist, forward and backward (distance.cpp).
void register_distance(ops::Registry& r);

}  // namespace tpu::aten
