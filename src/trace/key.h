// One op call as bytes: the op, the modes that shape its code, and every argument that is not a
// run-time value. Equal bytes mean equal code, so the bytes themselves are the key of the instance
// table; decoding them gives the arguments back, which is how an instance is made on a miss.
#pragma once
#include <cstring>
#include <string>
#include <string_view>
#include <vector>

#include "ops/registry.h"
#include "trace/value.h"

namespace tpu::trace {

enum class Tag : uint8_t {
  kNone,          // no tensor, or an optional that is not given
  kTensor,        // const Type*
  kTensorScalar,  // dtype, wrapped: a 0-d host tensor, passed as a scalar operand
  kTensorList,    // count, then that many of the above
  kScalar,        // kind: a run-time number
  kKnownScalar,   // Number: folded
  kScalarList,    // count, then kScalar...
  kAttr,          // index of the variant, payload
};

// Modes that every key holds.
struct Modes {
  hlo::Precision precision = hlo::Precision::kHighest;
  DType default_dtype = DType::kF32;
  bool operator==(const Modes&) const = default;
};

class CallKey {
 public:
  CallKey(int32_t op_id, Modes modes) {
    put(op_id);
    put(modes.precision);
    put(modes.default_dtype);
  }

  void none() { put(Tag::kNone); }
  void tensor(const Type* t) { put(Tag::kTensor), put(t); }
  void tensor_scalar(DType t, bool wrapped) { put(Tag::kTensorScalar), put(t), put(wrapped); }
  void tensor_list(size_t n) { put(Tag::kTensorList), put(static_cast<uint32_t>(n)); }
  void scalar(ops::NumberKind k) { put(Tag::kScalar), put(k); }
  void known_scalar(const ops::Number& n) { put(Tag::kKnownScalar), number(n); }
  void scalar_list(size_t n) { put(Tag::kScalarList), put(static_cast<uint32_t>(n)); }
  void attr(bool v) { head(v), put(v); }
  void attr(int64_t v) { head(v), put(v); }
  void attr(double v) { head(v), put(v); }
  void attr(DType v) { head(v), put(v); }
  void attr(const ops::Number& v) { head(v), number(v); }
  void attr(std::string_view v) {
    head(std::string()), put(static_cast<uint32_t>(v.size())), bytes(v.data(), v.size());
  }
  void attr(const int64_t* v, size_t n) {
    head(Dims());
    put(static_cast<uint32_t>(n));
    bytes(v, n * sizeof *v);
  }
  void attr(const Dims& v) { attr(v.data(), v.size()); }
  void attr(const std::vector<double>& v) {
    head(v);
    put(static_cast<uint32_t>(v.size()));
    bytes(v.data(), v.size() * sizeof(double));
  }
  void attr(const std::vector<bool>& v) {
    head(v);
    put(static_cast<uint32_t>(v.size()));
    for (bool b : v) put(b);
  }
  void attr(const std::vector<ops::Number>& v) {
    head(v);
    put(static_cast<uint32_t>(v.size()));
    for (const auto& n : v) number(n);
  }
  // Type of an out= destination (OpDef::Form::kOut).
  void out_type(const Type* t) { put(t); }
  // How all results lie in memory: logical dims in order of decreasing stride; empty: row-major.
  void layout(const int64_t* order, size_t n) {
    put(uint8_t{1});
    order_of(order, n);
  }
  // The same for each result, where they differ.
  void layouts(const std::vector<Dims>& orders) {
    put(static_cast<uint8_t>(orders.size()));
    for (const Dims& o : orders) order_of(o.data(), o.size());
  }
  // As the op's LayoutRule says without looking at inputs.
  void layout_by_rule() { put(uint8_t{0}); }

  std::string_view view() const { return {data_, size_}; }

 private:
  template <class T>
  void head(const T&) {
    put(Tag::kAttr);
    put(static_cast<uint8_t>(ops::Attr(T()).index()));
  }
  void order_of(const int64_t* order, size_t n) {
    put(static_cast<uint8_t>(n));
    for (size_t i = 0; i < n; ++i) put(static_cast<uint8_t>(order[i]));
  }
  void number(const ops::Number& n) { put(n.kind), put(n.i), put(n.d), put(n.imag); }
  template <class T>
  void put(const T& v) {
    bytes(&v, sizeof v);
  }
  void bytes(const void* p, size_t n) {
    if (size_ + n > capacity_) [[unlikely]]
      grow(n);
    if (n > 0) std::memcpy(data_ + size_, p, n);  // an empty vector's data may be null
    size_ += n;
  }
  void grow(size_t n) {
    capacity_ = 2 * (size_ + n);
    std::vector<char> larger(capacity_);
    std::memcpy(larger.data(), data_, size_);
    heap_ = std::move(larger);
    data_ = heap_.data();
  }

  char inline_[512];
  std::vector<char> heap_;
  char* data_ = inline_;
  size_t size_ = 0, capacity_ = sizeof inline_;
};

// An argument of a decoded call. Tensors and scalars are numbered in order of appearance.
struct ArgSpec {
  Tag tag = Tag::kNone;
  const Type* type = nullptr;                      // kTensor
  DType dtype = DType::kF32;                       // kTensorScalar
  bool wrapped = false;                            // kTensorScalar
  ops::NumberKind kind = ops::NumberKind::kFloat;  // kScalar
  int32_t operand = -1;       // kTensor: tensor number; kTensorScalar, kScalar: scalar number
  ops::Number known;          // kKnownScalar
  ops::Attr attr;             // kAttr
  std::vector<ArgSpec> list;  // kTensorList, kScalarList
};

struct Call {
  int32_t op_id = -1;
  Modes modes;
  std::vector<ArgSpec> args;
  const Type* out_type = nullptr;
  std::vector<Dims> layouts;  // one for all results, or one each; none: by the op's rule
  std::vector<const Type*> tensors;
  int32_t scalar_count = 0;
};
Call decode(std::string_view key, const ops::Registry& registry);
int32_t op_of(std::string_view key);

}  // namespace tpu::trace
