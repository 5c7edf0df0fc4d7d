#include "bridge/kernel.h"

#include <ATen/core/List.h>
#include <ATen/core/ivalue.h>
#include <c10/core/WrapDimMinimal.h>
#include <c10/util/strides.h>

#include "bridge/dtype.h"
#include "bridge/errors.h"
#include "bridge/generator.h"
#include "bridge/precision.h"
#include "trace/key.h"

namespace tpu::bridge {
namespace {

using ops::ArgKind;
using ops::Number;
using ops::NumberKind;
using trace::CallKey;
using trace::Dims;

Number to_number(const c10::Scalar& s) {
  if (s.isBoolean()) return Number::of(s.to<bool>());
  if (s.isComplex()) {
    const auto c = s.to<c10::complex<double>>();
    return {NumberKind::kComplex, 0, c.real(), c.imag()};
  }
  if (s.isFloatingPoint()) return Number::of(s.to<double>());
  if (s.type() == c10::ScalarType::UInt64)
    return Number::of(static_cast<int64_t>(s.to<uint64_t>()));
  return Number::of(s.to<int64_t>());
}

Number to_number(const c10::IValue& v) {
  if (v.isDouble()) return Number::of(v.toDouble());
  if (v.isInt()) return Number::of(v.toInt());
  if (v.isBool()) return Number::of(v.toBool());
  return to_number(v.toScalar());
}

// The device of a call: that of its first device tensor.
struct DeviceFinder {
  int found = -1;
  void see(const at::Tensor& t) {
    if (found < 0 && t.defined() && t.is_privateuseone()) found = t.device().index();
  }
  void see(const c10::IValue& v) {
    if (found >= 0) return;
    if (v.isTensor()) {
      see(v.toTensor());
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorList()) see(t);
    } else if (v.isList()) {
      for (const c10::IValue& e : v.toListRef()) see(e);
    } else if (v.isDevice() && v.toDevice().is_privateuseone()) {
      found = v.toDevice().index();
    }
  }
};

// A generator of this device brings a call here whose tensors are all elsewhere.
void check_no_tensors(c10::ArrayRef<c10::IValue> args) {
  for (const c10::IValue& v : args) {
    if (!v.isTensor() || !v.toTensor().defined()) continue;
    const std::string type = c10::DeviceTypeName(v.toTensor().device().type(), true);
    TPU_THROW(ErrorKind::kInvalid, "Expected a '", type,
              "' device type for generator but found 'tpu'");
  }
}

c10::DeviceIndex current_device() {
  return c10::impl::getDeviceGuardImpl(c10::DeviceType::PrivateUse1)->getDevice().index();
}

bool is_row_major(const at::TensorBase& t) {
  const c10::IntArrayRef sizes = t.sizes(), strides = t.strides();
  int64_t expected = 1;
  for (size_t i = sizes.size(); i-- > 0;) {
    if (strides[i] != expected) return false;
    expected *= std::max<int64_t>(sizes[i], 1);
  }
  return true;
}

// Encodes the arguments of one call and collects its run-time operands.
class Encoder {
 public:
  Encoder(const ops::OpDef& def, Device& d)
      : key(def.id, current_modes(def.takes_precision())), def_(def), device_(d) {}

  CallKey key;
  c10::SmallVector<ValuePtr, 8> values;
  c10::SmallVector<Number, 4> numbers;

  void argument(const c10::IValue& v, ArgKind kind, const std::vector<Number>& folds) {
    switch (kind) {
      case ArgKind::kTensor:
      case ArgKind::kOptTensor:
        if (v.isTensor()) {
          tensor(v.toTensor());
        } else {
          key.none();
        }
        break;
      case ArgKind::kTensorList:
        if (v.isTensorList()) {
          const auto list = v.toTensorList();
          key.tensor_list(list.size());
          for (const at::Tensor& t : list) tensor(t);
          break;
        }
        [[fallthrough]];
      case ArgKind::kOptTensorList: {
        const auto list = v.toListRef();
        key.tensor_list(list.size());
        for (const c10::IValue& e : list) {
          if (e.isTensor()) {
            tensor(e.toTensor());
          } else {
            key.none();
          }
        }
        break;
      }
      case ArgKind::kScalar:
      case ArgKind::kOptScalar:
        if (v.isNone()) {
          key.none();
        } else {
          scalar(to_number(v), folds);
        }
        break;
      case ArgKind::kScalarList: {
        const auto list = v.toListRef();
        key.scalar_list(list.size());
        for (const c10::IValue& e : list) scalar(to_number(e), {});
        break;
      }
      default:
        if (v.isNone()) {
          key.none();
        } else {
          attribute(v, kind);
        }
    }
  }

  // The first two tensors as they came, for the layout rules.
  const at::TensorBase* first = nullptr;
  const at::TensorBase* second = nullptr;
  c10::SmallVector<const at::TensorBase*, 8> all;
  bool all_contiguous = true;
  bool all_row_major = true;  // contiguous, and with the plain strides even where a size is 1
  bool has_host_number = false;
  Dims first_ints;  // the dims of a transform

 private:
  void tensor(const at::Tensor& t) {
    if (!t.defined()) {
      key.none();
      return;
    }
    if (t.is_privateuseone()) [[likely]] {
      TPU_CHECK(
          t.device().index() == device_.index,
          "Expected all tensors to be on the same device, but found at least two devices, tpu:",
          device_.index, " and tpu:", int{t.device().index()}, "!");
      TPU_CHECK(t.layout() == c10::kStrided, ErrorKind::kUnsupported,
                "sparse tensors have no TPU kernels; use .to_dense()");
      all_contiguous &= t.is_contiguous();
      all_row_major &= is_row_major(t);
      all.push_back(&t);
      if (!first) {
        first = &t;
      } else if (!second) {
        second = &t;
      }
      // Torch leaves the bits to the kernels of matrix products and some of linear algebra.
      ValuePtr v = read_value(t);
      if (t.is_conj() || t.is_neg()) [[unlikely]]
        v = apply_bits(std::move(v), t);
      key.tensor(v->type);
      values.push_back(std::move(v));
      return;
    }
    TPU_CHECK(t.is_cpu() && t.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, tpu:",
              device_.index, " and ", t.device().str(), "!");
    const c10::Scalar s = t.item();
    has_host_number = true;
    key.tensor_scalar(to_dtype(t.scalar_type()), t.unsafeGetTensorImpl()->is_wrapped_number());
    numbers.push_back(to_number(s));
  }

  void scalar(const Number& n, const std::vector<Number>& folds) {
    for (const Number& f : folds) {
      if (n.kind != NumberKind::kComplex && n.d == f.d && std::signbit(n.d) == std::signbit(f.d)) {
        key.known_scalar(n);
        return;
      }
    }
    key.scalar(n.kind);
    numbers.push_back(n);
  }

  void attribute(const c10::IValue& v, ArgKind kind) {
    switch (kind) {
      case ArgKind::kNumber:
      case ArgKind::kOptNumber: key.attr(to_number(v)); break;
      case ArgKind::kNumberList: {
        std::vector<Number> list;
        for (const c10::IValue& e : v.toListRef()) list.push_back(to_number(e));
        key.attr(list);
        break;
      }
      case ArgKind::kInt:
      case ArgKind::kOptInt: key.attr(v.toInt()); break;
      case ArgKind::kInts:
      case ArgKind::kOptInts: {
        if (v.isInt()) {
          const int64_t one = v.toInt();
          key.attr(&one, 1);
          break;
        }
        const auto list = v.toDimVector();
        key.attr(list.data(), list.size());
        if (def_.layout == ops::LayoutRule::kFft && first_ints.empty())
          first_ints.assign(list.begin(), list.end());
        break;
      }
      case ArgKind::kFloat:
      case ArgKind::kOptFloat:
        key.attr(v.isInt() ? static_cast<double>(v.toInt()) : v.toDouble());
        break;
      case ArgKind::kFloats:
      case ArgKind::kOptFloats: key.attr(v.toDoubleVector()); break;
      case ArgKind::kBool:
      case ArgKind::kOptBool: key.attr(v.toBool()); break;
      case ArgKind::kBools: {
        std::vector<bool> bits;
        for (bool b : v.toBoolList()) bits.push_back(b);
        key.attr(bits);
        break;
      }
      case ArgKind::kDType:
      case ArgKind::kOptDType: key.attr(to_dtype(v.toScalarType())); break;
      case ArgKind::kString:
      case ArgKind::kOptString: key.attr(v.toStringView()); break;
      default:
        TPU_THROW(ErrorKind::kInternal, def_.name, ": an argument of kind ", ops::to_string(kind),
                  " is no attribute");
    }
  }

  const ops::OpDef& def_;
  Device& device_;
};

// ---- Strides of results.

// TensorIterator's short cut for operands of one shape: contiguous or channels-last ones give a
// result in that format's own strides, other dense ones of one layout hand their strides on, as
// they are even where a size is 1. Empty: no short cut.
Dims common_strides(const ops::OpDef& def, const Encoder& e) {
  if (def.layout != ops::LayoutRule::kElementwise || e.all_row_major || e.has_host_number ||
      def.number_is_operand)
    return {};
  const at::TensorBase* t = e.all[0];
  bool same_strides = t->is_non_overlapping_and_dense(), channels_last = true;
  for (const at::TensorBase* o : e.all) {
    if (o->sizes() != t->sizes()) return {};
    same_strides &= o->strides() == t->strides();
    channels_last &= o->is_contiguous(c10::MemoryFormat::ChannelsLast);
  }
  if (e.all_contiguous) {
    const auto row_major = c10::contiguous_strides(t->sizes());
    return Dims(row_major.begin(), row_major.end());
  }
  if (channels_last) return c10::get_channels_last_strides_2d(t->sizes());
  return same_strides ? Dims(t->strides().begin(), t->strides().end()) : Dims();
}

// Dims in order of decreasing stride that TensorIterator gives the result of these operands (its
// rule: an insertion sort of dims, innermost last, by the first operand that tells two dims apart;
// equal strides are told apart by size; broadcast dims say nothing). Empty: row-major.
Dims elementwise_order(c10::ArrayRef<const at::TensorBase*> operands) {
  size_t rank = 0;
  for (const auto* t : operands) rank = std::max(rank, static_cast<size_t>(t->dim()));
  if (rank < 2) return {};
  // Sizes and strides aligned to the right; 0 where the operand broadcasts.
  std::vector<Dims> sizes, strides;
  Dims shape(rank, 1);
  for (const auto* t : operands) {
    for (size_t i = 0; i < static_cast<size_t>(t->dim()); ++i) {
      const size_t at = rank - static_cast<size_t>(t->dim()) + i;
      if (t->sizes()[i] != 1) shape[at] = t->sizes()[i];
    }
  }
  for (const auto* t : operands) {
    Dims st(rank, 0);
    for (size_t i = 0; i < static_cast<size_t>(t->dim()); ++i) {
      const size_t at = rank - static_cast<size_t>(t->dim()) + i;
      if (t->sizes()[i] == 1 && shape[at] != 1) continue;
      st[at] = t->strides()[i];
    }
    strides.push_back(std::move(st));
  }
  // > 0: a belongs outside b; < 0: inside; 0: no operand tells.
  auto compare = [&](size_t a, size_t b) {
    for (const Dims& st : strides) {
      if (st[a] == 0 || st[b] == 0) continue;
      if (st[a] != st[b]) return st[a] < st[b] ? -1 : 1;
      if (shape[a] > shape[b]) return 1;
    }
    return 0;
  };
  Dims inner(rank);  // innermost first
  for (size_t i = 0; i < rank; ++i) inner[i] = static_cast<int64_t>(rank - 1 - i);
  for (size_t i = 1; i < rank; ++i) {
    size_t at = i;
    for (size_t j = i; j-- > 0;) {
      const int c = compare(static_cast<size_t>(inner[j]), static_cast<size_t>(inner[at]));
      if (c > 0) {
        std::swap(inner[j], inner[at]);
        at = j;
      } else if (c < 0) {
        break;
      }
    }
  }
  Dims order(inner.rbegin(), inner.rend());
  for (size_t i = 0; i < rank; ++i) {
    if (order[i] != static_cast<int64_t>(i)) return order;
  }
  return {};
}

Dims channels_last_order(const at::TensorBase* t) {
  if (!t) return {};
  switch (t->suggest_memory_format()) {
    case c10::MemoryFormat::ChannelsLast: return {0, 2, 3, 1};
    case c10::MemoryFormat::ChannelsLast3d: return {0, 2, 3, 4, 1};
    default: return {};
  }
}

// PyTorch's FFT on the CPU: the other dims by decreasing stride of the input, then the transformed
// ones, by stride, too, but for the last of a transform between real and complex numbers.
Dims fft_order(const at::TensorBase& t, Dims transformed, bool last_stays) {
  const auto rank = static_cast<size_t>(t.dim());
  for (int64_t& d : transformed) d = c10::maybe_wrap_dim(d, t.dim());
  const auto outer = [&](int64_t a, int64_t b) { return t.stride(a) > t.stride(b); };
  Dims order;
  for (int64_t d = 0; d < t.dim(); ++d) {
    if (std::find(transformed.begin(), transformed.end(), d) == transformed.end())
      order.push_back(d);
  }
  std::stable_sort(order.begin(), order.end(), outer);
  std::stable_sort(transformed.begin(), transformed.end() - (last_stays ? 1 : 0), outer);
  order.insert(order.end(), transformed.begin(), transformed.end());
  return order.size() == rank ? order : Dims();
}

Dims result_order(const ops::OpDef& def, const Encoder& e) {
  if (def.layout == ops::LayoutRule::kFft)
    return fft_order(*e.first, e.first_ints, def.name != "aten::_fft_c2c");
  if (e.all_row_major) return {};
  if (def.layout == ops::LayoutRule::kElementwise) return elementwise_order(e.all);
  if (e.all_contiguous) return {};
  if (def.layout == ops::LayoutRule::kLikeSelf)
    return e.first ? elementwise_order({e.first}) : Dims();
  if (def.layout == ops::LayoutRule::kChannelsLast) {
    Dims order = channels_last_order(e.first);
    if (order.empty() && e.second && e.first && e.second->dim() == e.first->dim())
      order = channels_last_order(e.second);
    return order;
  }
  return {};
}

// Puts into the key how results lie in memory. Row-major are the first `written`, which go into
// arguments.
void encode_layout(const ops::OpDef& def, Encoder& e, size_t written = 0) {
  const auto all = static_cast<size_t>(def.num_results);
  if (written >= all) {
    e.key.layout(nullptr, 0);
  } else if (written > 0) {
    std::vector<Dims> orders(written);
    orders.resize(all, result_order(def, e));
    e.key.layouts(orders);
  } else if (def.layout == ops::LayoutRule::kColumnMajor) {
    e.key.layout_by_rule();
  } else if (def.layout == ops::LayoutRule::kLikeEach && !e.all_contiguous) {
    std::vector<Dims> orders;
    for (size_t i = 1; i < e.all.size() && i <= static_cast<size_t>(def.num_results); ++i)
      orders.push_back(elementwise_order({e.all[i]}));
    e.key.layouts(orders);
  } else {
    const Dims order = result_order(def, e);
    e.key.layout(order.data(), order.size());
  }
}

// ---- Recording.

runtime::Runtime& runtime_() { return Runtime::get(); }

struct Recorded {
  const trace::Instance* inst = nullptr;
  c10::SmallVector<ValuePtr, 4> outputs;
};

Recorded record_call(const ops::OpDef& def, Device& d, Encoder& e,
                     const std::optional<at::Generator>& generator) {
  Recorded r;
  Runtime& rt = runtime_();
  if (def.boundary) rt.flush(d, runtime::FlushReason::kBoundary);
  r.inst = &rt.instance_of(d, e.key.view());
  // Below 512 x 512 x 512 nobody waits for a product.
  if (r.inst->six_pass_work >= 0x1p27 && !rt.instances().target().cpu_plugin &&
      !runtime::current_trace(d.index)) [[unlikely]] {
    hint_at_precision(*r.inst);
  }
  trace::RandomState random;
  if (r.inst->random_draws > 0) random = take_random(generator, d.index, r.inst->random_draws);
  r.outputs.resize(r.inst->outputs.size());
  rt.record(d, *r.inst, {e.values.data(), e.values.size()}, {e.numbers.data(), e.numbers.size()},
            random, r.outputs.data());
  return r;
}

at::Tensor fresh(Recorded& r, size_t i, const Dims& strides, c10::IntArrayRef sizes) {
  if (!r.outputs[i]) return at::Tensor();
  at::Tensor t = make_tensor(std::move(r.outputs[i]), &r.inst->outputs[i]);
  if (!strides.empty() && t.sizes() == sizes)
    t.unsafeGetTensorImpl()->set_sizes_and_strides(sizes, strides);
  return t;
}

// The kind of a schema argument, as the lowering's parameter may spell it.
bool matches(const c10::Argument& a, ArgKind kind) {
  std::string t = a.type()->str();
  const std::string real = a.real_type()->str();
  auto is = [&](std::initializer_list<const char*> names) {
    return std::any_of(names.begin(), names.end(),
                       [&](const char* n) { return t == n || real == n; });
  };
  switch (kind) {
    case ArgKind::kTensor: return is({"Tensor"});
    case ArgKind::kOptTensor: return is({"Tensor?"});
    case ArgKind::kTensorList: return is({"Tensor[]"});
    case ArgKind::kOptTensorList: return is({"Tensor?[]"});
    case ArgKind::kScalar: return is({"Scalar", "number", "float", "int", "SymInt"});
    case ArgKind::kOptScalar: return is({"Scalar?", "number?", "float?", "int?", "SymInt?"});
    case ArgKind::kScalarList: return is({"Scalar[]", "number[]"});
    case ArgKind::kNumber: return is({"Scalar", "number", "float", "int", "SymInt"});
    case ArgKind::kOptNumber: return is({"Scalar?", "number?", "float?"});
    case ArgKind::kNumberList: return is({"Scalar[]", "number[]"});
    case ArgKind::kInt: return is({"int", "SymInt"});
    case ArgKind::kOptInt: return is({"int?", "SymInt?"});
    case ArgKind::kInts: return is({"int[]", "SymInt[]"});
    case ArgKind::kOptInts: return is({"int[]?", "SymInt[]?"});
    case ArgKind::kFloat: return is({"float"});
    case ArgKind::kOptFloat: return is({"float?"});
    case ArgKind::kFloats: return is({"float[]"});
    case ArgKind::kOptFloats: return is({"float[]?"});
    case ArgKind::kBool: return is({"bool"});
    case ArgKind::kOptBool: return is({"bool?"});
    case ArgKind::kBools: return is({"bool[]"});
    case ArgKind::kDType: return is({"ScalarType", "int"});
    case ArgKind::kOptDType: return is({"ScalarType?", "int?"});
    case ArgKind::kString: return is({"str"});
    case ArgKind::kOptString: return is({"str?"});
  }
  return false;
}

std::string describe(const at::Tensor& t) {
  if (!t.defined()) return "undefined";
  std::string s = cat(c10::toString(t.scalar_type()), Dims(t.sizes().begin(), t.sizes().end()));
  if (!t.is_privateuseone()) s += " on " + t.device().str();
  return s;
}

}  // namespace

bool is_input(const c10::Argument& a) {
  if (a.is_out()) return false;
  static const std::array kPlaces = {"layout", "device", "pin_memory", "memory_format",
                                     "generator"};
  const std::string t = a.real_type()->str();
  if (t == "Generator?" || t == "Generator") return false;
  return std::find(kPlaces.begin(), kPlaces.end(), a.name()) == kPlaces.end();
}

Kernel::Kernel(const ops::OpDef& def, const c10::FunctionSchema& schema)
    : def_(def),
      fills_(schema.name() == "aten::zero_" ||
             (schema.name() == "aten::fill_" && schema.overload_name() == "Scalar")),
      argument_count_(schema.arguments().size()) {
  const auto& args = schema.arguments();
  for (size_t i = 0; i < args.size(); ++i) {
    const c10::Argument& a = args[i];
    if (a.real_type()->str() == "Generator?" || a.real_type()->str() == "Generator")
      generator_ = static_cast<int>(i);
    if (a.alias_info() && a.alias_info()->isWrite()) written_.push_back(i);
    is_out_ |= a.is_out();
    if (!is_input(a)) continue;
    Input in{i, ArgKind::kTensor, {}};
    const size_t n = inputs_.size();
    if (n < def.args.size()) in.kind = def.args[n];
    for (const auto& f : def.folds) {
      if (f.arg == a.name()) in.folds.push_back(Number::of(f.value));
    }
    inputs_.push_back(std::move(in));
  }
  bool ok = inputs_.size() == def.args.size();
  for (size_t i = 0; ok && i < inputs_.size(); ++i)
    ok = matches(args[inputs_[i].position], def.args[i]);
  if (!ok) {
    std::string mine;
    for (ArgKind k : def.args) mine += cat(mine.empty() ? "" : ", ", ops::to_string(k));
    TPU_THROW(ErrorKind::kInternal, "the lowering of ", def.name, " takes (", mine,
              "), the schema is ", c10::str(schema));
  }
  for (const auto& f : def.folds) {
    const bool found = std::any_of(args.begin(), args.end(),
                                   [&](const c10::Argument& a) { return a.name() == f.arg; });
    TPU_CHECK(found, ErrorKind::kInternal, def.name, " folds ", f.arg, ", which is no argument of ",
              c10::str(schema));
  }
  for (const c10::Argument& r : schema.returns()) {
    Return ret;
    if (r.alias_info()) {
      for (size_t i = 0; i < args.size(); ++i) {
        if (args[i].alias_info() &&
            args[i].alias_info()->beforeSets() == r.alias_info()->beforeSets()) {
          ret.argument = static_cast<int>(i);
        }
      }
    }
    returns_.push_back(ret);
  }
}

std::string Kernel::prefix(const c10::OperatorHandle& op, c10::ArrayRef<c10::IValue> args) const {
  std::string s = op.schema().name();
  s += "(";
  bool first = true;
  for (const Input& in : inputs_) {
    const c10::IValue& v = args[in.position];
    std::string text;
    if (v.isTensor()) {
      text = describe(v.toTensor());
    } else if (v.isTensorList()) {
      for (const at::Tensor& t : v.toTensorList()) {
        if (text.size() > 120) {
          text += ", ...";
          break;
        }
        text += (text.empty() ? "[" : ", ") + describe(t);
      }
      text += "]";
    } else {
      continue;
    }
    s += cat(first ? "" : ", ", op.schema().arguments()[in.position].name(), ": ", text);
    first = false;
  }
  return s + "): ";
}

void Kernel::operator()(const c10::OperatorHandle& op, c10::DispatchKeySet,
                        torch::jit::Stack* stack) {
  const auto args = torch::jit::last(*stack, argument_count_);
  c10::SmallVector<at::Tensor, 2> results;  // fresh ones
  try {
    DeviceFinder finder;
    for (const c10::IValue& v : args) {
      if (finder.found >= 0) break;
      finder.see(v);
    }
    const std::optional<at::Generator> generator =
        generator_ >= 0 && !args[static_cast<size_t>(generator_)].isNone()
            ? std::optional(args[static_cast<size_t>(generator_)].toGenerator())
            : std::nullopt;
    if (generator && finder.found < 0) check_no_tensors(args);
    RecorderLock lock;
    Device& d = runtime_().device(finder.found >= 0 ? finder.found : current_device());
    {
      Encoder e(def_, d);
      for (const Input& in : inputs_) e.argument(args[in.position], in.kind, in.folds);
      if (def_.form == ops::OpDef::Form::kOut) {
        const at::Tensor& out = args[written_[0]].toTensor();
        e.key.out_type(trace::intern(
            {to_dtype(out.scalar_type()), Dims(out.sizes().begin(), out.sizes().end())}));
      }
      encode_layout(def_, e, written_.size());
      Recorded r = record_call(def_, d, e, generator);

      // Written arguments take the first results, in order.
      size_t next = 0;
      auto assign = [&](const at::Tensor& dst) {
        TPU_CHECK(next < r.outputs.size(), ErrorKind::kInternal, def_.name,
                  " gives too few results");
        ValuePtr v = std::move(r.outputs[next++]);
        if (!v || !dst.defined()) return;
        TPU_CHECK(
            dst.is_privateuseone() && dst.device().index() == d.index,
            "Expected all tensors to be on the same device, but found at least two devices, tpu:",
            d.index, " and ", dst.device().str(), "!");
        const c10::ScalarType from = to_scalar_type(v->type->dtype), to = dst.scalar_type();
        TPU_CHECK(!is_out_ || from == to || def_.casts_out(), "Expected out tensor to have dtype ",
                  ops::cpp_type_name(v->type->dtype), ", but got ",
                  ops::cpp_type_name(to_dtype(to)), " instead");
        TPU_CHECK(c10::canCast(from, to), "result type ", c10::toString(from),
                  " can't be cast to the desired output type ", c10::toString(to));
        const c10::IntArrayRef sizes(v->type->dims);
        const bool elementwise = def_.layout == ops::LayoutRule::kElementwise;
        if (elementwise && !fills_) check_overlap(dst);  // before a resize makes it whole
        if (dst.sizes() != sizes) {
          TPU_CHECK(is_out_, "output with shape ", Dims(dst.sizes().begin(), dst.sizes().end()),
                    " doesn't match the broadcast shape ", v->type->dims);
          if (dst.numel() != 0) {
            TORCH_WARN("An output with one or more elements was resized since it had shape ",
                       dst.sizes(), ", which does not match the required output shape ", sizes,
                       ". This behavior is deprecated, and in a future PyTorch release outputs "
                       "will not be resized "
                       "unless they have zero elements. You can explicitly reuse an out tensor t "
                       "by resizing it, "
                       "inplace, to zero elements with t.resize_(0).");
          }
          resize_tensor(dst, sizes);
        }
        if (!elementwise && !fills_) check_overlap(dst);
        if (elementwise) {
          for (const at::TensorBase* t : e.all) {
            if (t->unsafeGetTensorImpl() != dst.unsafeGetTensorImpl()) check_overlap(dst, *t);
          }
        }
        write_value(dst, apply_bits(convert(std::move(v), to_dtype(to)), dst));
      };
      for (size_t w : written_) {
        if (args[w].isTensor()) {
          assign(args[w].toTensor());
        } else if (args[w].isTensorList()) {
          for (const at::Tensor& t : args[w].toTensorList()) assign(t);
        } else if (!args[w].isNone()) {
          for (const c10::IValue& t : args[w].toListRef()) assign(t.toTensor());
        }
      }
      const Dims strides = written_.empty() ? common_strides(def_, e) : Dims();
      for (; next < r.outputs.size(); ++next)
        results.push_back(
            fresh(r, next, strides, strides.empty() ? c10::IntArrayRef() : e.all[0]->sizes()));
    }
    runtime_().after_record(d);
  } catch (const Error& e) {
    const std::string where =
        e.kind == ErrorKind::kMemory || e.kind == ErrorKind::kDevice ? "" : prefix(op, args);
    torch::jit::drop(*stack, argument_count_);
    rethrow(e, where);
  }

  // Results in the schema's order: aliases of arguments, else the fresh ones.
  c10::SmallVector<c10::IValue, 4> out;
  size_t next = 0;
  const auto& schema_returns = op.schema().returns();
  for (size_t i = 0; i < returns_.size(); ++i) {
    if (returns_[i].argument >= 0) {
      out.emplace_back(args[static_cast<size_t>(returns_[i].argument)]);
    } else if (schema_returns[i].type()->kind() == c10::TypeKind::ListType) {
      c10::List<at::Tensor> list;
      while (next < results.size()) list.push_back(std::move(results[next++]));
      out.emplace_back(std::move(list));
    } else {
      out.emplace_back(next < results.size() ? std::move(results[next]) : at::Tensor());
      ++next;
    }
  }
  torch::jit::drop(*stack, argument_count_);
  for (c10::IValue& v : out) stack->push_back(std::move(v));
}

std::vector<at::Tensor> call(const char* op, c10::ArrayRef<c10::IValue> args,
                             const std::optional<at::Generator>& generator) {
  const ops::OpDef* def = ops::Registry::instance().find(op);
  TPU_CHECK(def && def->args.size() == args.size(), ErrorKind::kInternal, op, " does not take ",
            args.size(), " arguments");
  DeviceFinder finder;
  for (const c10::IValue& v : args) finder.see(v);
  std::vector<at::Tensor> results;
  RecorderLock lock;
  Device& d = runtime_().device(finder.found >= 0 ? finder.found : current_device());
  {
    Encoder e(*def, d);
    for (size_t i = 0; i < args.size(); ++i) {
      std::vector<Number> none;
      e.argument(args[i], def->args[i], none);
    }
    encode_layout(*def, e);
    Recorded r = record_call(*def, d, e, generator);
    const Dims strides = common_strides(*def, e);
    for (size_t i = 0; i < r.outputs.size(); ++i)
      results.push_back(
          fresh(r, i, strides, strides.empty() ? c10::IntArrayRef() : e.all[0]->sizes()));
  }
  runtime_().after_record(d);
  return results;
}

}  // namespace tpu::bridge
