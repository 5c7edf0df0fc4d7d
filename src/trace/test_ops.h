// Small ops that several tests of this layer record.
#pragma once
#include "trace/trace.h"

namespace tpu::trace {

inline const Type* f32(Dims d) { return intern({DType::kF32, std::move(d)}); }

// test::add, neg, scale (by a number), noise (random) and pick (asserts).
inline void register_test_ops() {
  using ops::Context;
  using ops::Value;
  [[maybe_unused]] static const bool filled = [] {
    ops::Registry& r = ops::Registry::instance();
    r.op("test::add", [](Context& x, Value a, Value b) { return x.b.add(a, b); });
    r.op("test::neg", [](Context& x, Value a) { return x.b.neg(a); });
    r.op("test::scale",
         [](Context& x, Value a, ops::Scalar s) { return x.b.mul(a, x.scalar_like(s, a)); });
    r.op("test::noise", [](Context& x, Value a) {
       return x.b.add(a, x.uniform(DType::kF32, a.dims()));
     }).random();
    r.op("test::pick", [](Context& x, Value a, Value i) {
      x.checked_index(i, a.dim(0), 0);
      return x.b.neg(a);
    });
    return true;
  }();
}

// The generator that they draw from.
inline const std::shared_ptr<RandomState>& test_generator() {
  static const auto state = std::make_shared<RandomState>();
  return state;
}

}  // namespace tpu::trace
