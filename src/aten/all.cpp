#include "aten/all.h"

namespace tpu::aten {

void register_all(ops::Registry& r) {
  register_elementwise(r);
  register_compare(r);
  register_activation(r);
  register_special(r);
  register_complex(r);
  register_loss(r);
  register_reduce(r);
  register_scan(r);
  register_softmax(r);
  register_norm(r);
  register_shape(r);
  register_create(r);
  register_random(r);
  register_matmul(r);
  register_conv(r);
  register_pool(r);
  register_resample(r);
  register_attention(r);
  register_embedding(r);
  register_rnn(r);
  register_index(r);
  register_sort(r);
  register_linalg(r);
  register_fft(r);
  register_quant(r);
  register_foreach(r);
  register_optim(r);
}

}  // namespace tpu::aten
