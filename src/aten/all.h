// Fills the registry. One function per family file; the order does not matter.
#pragma once
#include "ops/registry.h"

namespace tpu::aten {

void register_all(ops::Registry& r);

void register_elementwise(ops::Registry& r);
void register_compare(ops::Registry& r);
void register_activation(ops::Registry& r);
void register_special(ops::Registry& r);
void register_complex(ops::Registry& r);
void register_loss(ops::Registry& r);
void register_reduce(ops::Registry& r);
void register_scan(ops::Registry& r);
void register_softmax(ops::Registry& r);
void register_norm(ops::Registry& r);
void register_shape(ops::Registry& r);
void register_create(ops::Registry& r);
void register_random(ops::Registry& r);
void register_matmul(ops::Registry& r);
void register_conv(ops::Registry& r);
void register_pool(ops::Registry& r);
void register_resample(ops::Registry& r);
void register_attention(ops::Registry& r);
void register_embedding(ops::Registry& r);
void register_rnn(ops::Registry& r);
void register_index(ops::Registry& r);
void register_sort(ops::Registry& r);
void register_linalg(ops::Registry& r);
void register_fft(ops::Registry& r);
void register_quant(ops::Registry& r);
void register_foreach(ops::Registry& r);
void register_optim(ops::Registry& r);

}  // namespace tpu::aten
