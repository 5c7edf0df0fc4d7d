// What the pooling files share: images as planes, windows over them, and maxima with their
// positions.
#pragma once
#include "aten/nn.h"

namespace tpu::aten {

// [batch..., channel, spatial...] as [n, c, spatial...].
struct Planes {
  Value v;
  bool unbatched;
  int64_t n, c;
  Dims in;  // spatial sizes
};

Planes planes(Ctx& x, Value self, int64_t spatial);
Dims with_batch(const Planes& p, const Dims& spatial);  // [n, c, spatial...]
Value unbatch(Ctx& x, const Planes& p, Value v);        // as the caller's tensor was

// Refuses v's dtype as CPU's kernel of this name does.
void check_floating(Ctx& x, Value v, std::string_view kernel, bool int64_too = false);
void check_indices(Ctx& x, Value indices);

struct Window {
  Dims kernel, stride, pad, dilation, out;
  int64_t taps() const { return hlo::product(kernel); }
};

constexpr int64_t kUnrolledTaps = 32;  // up to here a gradient is one shifted copy for each tap

hlo::ReduceWindow reduce_window(const Window& w, const Dims& in);
Value window_sums(Ctx& x, Value v, hlo::ReduceWindow r);

// Row-major position in a plane of sizes `in`, as int32 of the plane's dims.
Value plane_positions(Ctx& x, const Dims& in);
// Reduction of (value, position) pairs: initial pair, and the better of two (a0, a1, b0, b1).
Values max_init(Ctx& x, DType t);
Values better_of(Ctx& x, const Values& a);

std::array<Value, 2> max_pool(Ctx& x, Value self, const Dims& kernel, const Dims& stride,
                              const Dims& padding, const Dims& dilation, bool ceil_mode,
                              int64_t spatial);
// Gradients [n, c, out...] at their positions: as shifted copies of the window's taps, or by a
// scatter.
Value max_pool_grad(Ctx& x, Value grad, Value indices, const Window& w, const Dims& in);
Value scatter_planes(Ctx& x, Value grad, Value indices, const Dims& in);

}  // namespace tpu::aten
