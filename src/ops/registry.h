// Op definitions: an op is declared once, and the declaration is its lowering.
//
//   r.op("aten::mm", [](Context& x, Value self, Value mat2) { ...; return x.dot(...); });
//
// The lambda's parameters mirror the schema's arguments in order; arguments that only say where a
// tensor lives (Layout?, Device?, pin_memory, MemoryFormat?, Generator?) are left out. bridge/
// compares the two at load and stops the import on a mismatch. In-place and out= forms, result
// types, cache keys and error prefixes are derived. Names outside aten ("tpu::...") are our own
// ops, called by bridge/. A lambda returns Value, std::array/tuple of Value, or Values (schema
// Tensor[]); an invalid Value is an undefined tensor. It must depend on nothing but its arguments
// and the Context.
#pragma once
#include <array>
#include <deque>
#include <functional>
#include <string>
#include <string_view>
#include <tuple>
#include <unordered_map>
#include <utility>
#include <vector>

#include "ops/attr.h"
#include "ops/context.h"

namespace tpu::ops {

// How an output's strides follow from the inputs' (results are what PyTorch's CPU kernels give).
enum class LayoutRule : uint8_t {
  kContiguous,    // always row-major
  kElementwise,   // TensorIterator: the common permutation of the inputs
  kLikeSelf,      // the first tensor's strides when dense, else row-major (clone, *_like)
  kChannelsLast,  // channels_last when the first tensor (or the second, a weight) is
  kColumnMajor,   // results of the highest rank are column-major matrices, as LAPACK leaves them
  kLikeEach,      // result i as kLikeSelf says of tensor i + 1: gradients, after the one given
  kFft,           // other dims by decreasing stride of the input, then the transformed ones
};

struct OpDef {
  int32_t id = -1;
  std::string name;  // "aten::add.Tensor"
  std::vector<ArgKind> args;
  bool returns_list = false;
  int num_results = 1;
  std::function<Values(Context&, const std::vector<Arg>&)> lower;

  enum class Form : uint8_t { kFunctional, kOut } form = Form::kFunctional;
  LayoutRule layout = LayoutRule::kContiguous;
  std::vector<LayoutRule> layouts;  // of the first results, where they differ
  LayoutRule rule(size_t result) const {
    return result < layouts.size() ? layouts[result] : layout;
  }
  struct Fold {
    std::string arg;
    double value;
  };
  std::vector<Fold> folds;
  // Whether an out= of another dtype is converted to, where PyTorch can cast; else it is refused.
  Opt<bool> out_casts;
  bool casts_out() const { return out_casts.value_or(layout == LayoutRule::kElementwise); }
  // Whether its code may hang on the precision of products. InstanceTable checks it.
  bool takes_precision() const { return layout != LayoutRule::kElementwise; }
  bool number_is_operand = false;
  bool random = false;
  bool boundary = false;
  std::string file;  // source file of the declaration, for the docs
};

class OpBuilder {
 public:
  explicit OpBuilder(OpDef& d) : d_(d) {}
  // This value of a Scalar argument selects code: the key says so and Context::is() sees it.
  OpBuilder& fold(const char* arg, double value) { return d_.folds.push_back({arg, value}), *this; }
  // Draws random numbers: gets a (seed, offset) operand pair; Context::random_bits works.
  OpBuilder& random() { return d_.random = true, *this; }
  // The window is flushed before and after.
  OpBuilder& boundary() { return d_.boundary = true, *this; }
  OpBuilder& layout(LayoutRule r) { return d_.layout = r, *this; }
  OpBuilder& column_major() { return layout(LayoutRule::kColumnMajor); }
  // Of the first results; kColumnMajor here whatever the ranks of the others.
  OpBuilder& first_layouts(std::vector<LayoutRule> rules) {
    return d_.layouts = std::move(rules), *this;
  }
  OpBuilder& elementwise() { return layout(LayoutRule::kElementwise); }
  // Unlike most of its layout's ops, as casts_out says.
  OpBuilder& out_casts(bool v) { return d_.out_casts = v, *this; }
  // TensorIterator sees the Scalar as a second operand, of no dims.
  OpBuilder& number_is_operand() { return d_.number_is_operand = true, *this; }

 private:
  OpDef& d_;
};

namespace detail {
template <class T>
struct Unpack;
#define TPU_UNPACK(TYPE, KIND, EXPR)                                \
  template <>                                                       \
  struct Unpack<TYPE> {                                             \
    static constexpr ArgKind kind = ArgKind::KIND;                  \
    static TYPE get([[maybe_unused]] const Arg& a) { return EXPR; } \
  };
template <class T>
Opt<T> attr_opt(const Arg& a) {
  const Attr& v = std::get<Attr>(a);
  if (const T* p = std::get_if<T>(&v)) return *p;
  return std::nullopt;
}
template <class T>
const T& attr(const Arg& a) {
  return std::get<T>(std::get<Attr>(a));
}
inline Opt<Value> opt_value(const Arg& a) {
  const Value v = std::get<Value>(a);
  return v.valid() ? Opt<Value>(v) : std::nullopt;
}
inline std::vector<Opt<Value>> opt_values(const Arg& a) {
  std::vector<Opt<Value>> r;
  for (const Value& v : std::get<Values>(a)) r.push_back(v.valid() ? Opt<Value>(v) : std::nullopt);
  return r;
}
inline Opt<Scalar> opt_scalar(const Arg& a) {
  const Scalar* s = std::get_if<Scalar>(&a);
  return s ? Opt<Scalar>(*s) : std::nullopt;
}
TPU_UNPACK(Value, kTensor, std::get<Value>(a))
TPU_UNPACK(Opt<Value>, kOptTensor, opt_value(a))
TPU_UNPACK(Values, kTensorList, std::get<Values>(a))
TPU_UNPACK(std::vector<Opt<Value>>, kOptTensorList, opt_values(a))
TPU_UNPACK(Scalar, kScalar, std::get<Scalar>(a))
TPU_UNPACK(Opt<Scalar>, kOptScalar, opt_scalar(a))
TPU_UNPACK(std::vector<Scalar>, kScalarList, std::get<std::vector<Scalar>>(a))
TPU_UNPACK(Number, kNumber, attr<Number>(a))
TPU_UNPACK(Opt<Number>, kOptNumber, attr_opt<Number>(a))
TPU_UNPACK(std::vector<Number>, kNumberList, attr<std::vector<Number>>(a))
TPU_UNPACK(int64_t, kInt, attr<int64_t>(a))
TPU_UNPACK(Opt<int64_t>, kOptInt, attr_opt<int64_t>(a))
TPU_UNPACK(Dims, kInts, attr<Dims>(a))
TPU_UNPACK(Opt<Dims>, kOptInts, attr_opt<Dims>(a))
TPU_UNPACK(double, kFloat, attr<double>(a))
TPU_UNPACK(Opt<double>, kOptFloat, attr_opt<double>(a))
TPU_UNPACK(std::vector<double>, kFloats, attr<std::vector<double>>(a))
TPU_UNPACK(Opt<std::vector<double>>, kOptFloats, attr_opt<std::vector<double>>(a))
TPU_UNPACK(bool, kBool, attr<bool>(a))
TPU_UNPACK(Opt<bool>, kOptBool, attr_opt<bool>(a))
TPU_UNPACK(std::vector<bool>, kBools, attr<std::vector<bool>>(a))
TPU_UNPACK(DType, kDType, attr<DType>(a))
TPU_UNPACK(Opt<DType>, kOptDType, attr_opt<DType>(a))
TPU_UNPACK(std::string, kString, attr<std::string>(a))
TPU_UNPACK(Opt<std::string>, kOptString, attr_opt<std::string>(a))
#undef TPU_UNPACK

inline Values results(Value v) { return {v}; }
inline Values results(Values v) { return v; }
template <size_t N>
Values results(const std::array<Value, N>& v) {
  return Values(v.begin(), v.end());
}
template <class... T>
Values results(const std::tuple<T...>& v) {
  return std::apply([](auto... e) { return Values{e...}; }, v);
}
template <class R>
inline constexpr int kResultCount = 1;
template <size_t N>
inline constexpr int kResultCount<std::array<Value, N>> = static_cast<int>(N);
template <class... T>
inline constexpr int kResultCount<std::tuple<T...>> = static_cast<int>(sizeof...(T));
}  // namespace detail

class Registry {
 public:
  // The process's registry; bridge/ fills it once, at load, with aten::register_all.
  static Registry& instance();
  Registry() = default;
  Registry(const Registry&) = delete;
  Registry& operator=(const Registry&) = delete;

  // A functional op. The whole schema family follows (same base name, same inputs: add_, add.out).
  template <class F>
  OpBuilder op(std::string name, F f, const char* file = __builtin_FILE()) {
    return add(std::move(name), OpDef::Form::kFunctional, file, std::function(std::move(f)));
  }
  // An op that has only an out= form (arange.start_out). The lambda's second parameter is the Type
  // of the destination (dtype is what to make; dims may be stale: the result is resized).
  template <class F>
  OpBuilder out_op(std::string name, F f, const char* file = __builtin_FILE()) {
    return add_out(std::move(name), file, std::function(std::move(f)));
  }

  const OpDef* find(std::string_view name) const;  // null when there is none
  const std::deque<OpDef>& all() const { return defs_; }

 private:
  OpDef& insert(std::string name, OpDef::Form form, const char* file);

  template <class R, class... A>
  OpBuilder add(std::string name, OpDef::Form form, const char* file,
                std::function<R(Context&, A...)> f) {
    OpDef& d = insert(std::move(name), form, file);
    d.args = {detail::Unpack<std::remove_cvref_t<A>>::kind...};
    d.returns_list = std::is_same_v<R, Values>;
    d.num_results = detail::kResultCount<R>;
    d.lower = [f = std::move(f)](Context& x, const std::vector<Arg>& a) {
      return [&]<size_t... I>(std::index_sequence<I...>) {
        return detail::results(f(x, detail::Unpack<std::remove_cvref_t<A>>::get(a[I])...));
      }(std::index_sequence_for<A...>{});
    };
    return OpBuilder(d);
  }
  template <class R, class... A>
  OpBuilder add_out(std::string name, const char* file, std::function<R(Context&, Type, A...)> f) {
    OpDef& d = insert(std::move(name), OpDef::Form::kOut, file);
    d.args = {detail::Unpack<std::remove_cvref_t<A>>::kind...};
    d.returns_list = false;
    d.num_results = detail::kResultCount<R>;
    d.lower = [f = std::move(f)](Context& x, const std::vector<Arg>& a) {
      return [&]<size_t... I>(std::index_sequence<I...>) {
        return detail::results(
            f(x, x.out_type(), detail::Unpack<std::remove_cvref_t<A>>::get(a[I])...));
      }(std::index_sequence_for<A...>{});
    };
    return OpBuilder(d);
  }

  std::deque<OpDef> defs_;
  std::unordered_map<std::string_view, OpDef*> by_name_;
};

}  // namespace tpu::ops
