#include "trace/key.h"

namespace tpu::trace {
namespace {

class Reader {
 public:
  explicit Reader(std::string_view key) : at_(key.data()), end_(at_ + key.size()) {}

  template <class T>
  T get() {
    TPU_CHECK(at_ + sizeof(T) <= end_, ErrorKind::kInternal, "a call key ends too early");
    T v;
    std::memcpy(&v, at_, sizeof v);
    at_ += sizeof v;
    return v;
  }
  ops::Number number() {
    ops::Number n;
    n.kind = get<ops::NumberKind>();
    n.i = get<int64_t>();
    n.d = get<double>();
    n.imag = get<double>();
    return n;
  }
  template <class T, class F>
  std::vector<T> list(F element) {
    std::vector<T> v(get<uint32_t>());
    for (size_t i = 0; i < v.size(); ++i) v[i] = element();
    return v;
  }

 private:
  const char* at_;
  const char* end_;
};

ops::Attr read_attr(Reader& r) {
  const auto index = r.get<uint8_t>();
  switch (index) {
    case 0: return std::monostate();
    case 1: return r.get<bool>();
    case 2: return r.get<int64_t>();
    case 3: return r.get<double>();
    case 4: {
      std::string s;
      for (uint32_t n = r.get<uint32_t>(); n > 0; --n) s += r.get<char>();
      return s;
    }
    case 5: return r.list<int64_t>([&] { return r.get<int64_t>(); });
    case 6: return r.list<double>([&] { return r.get<double>(); });
    case 7: return r.list<bool>([&] { return r.get<bool>(); });
    case 8: return r.get<DType>();
    case 9: return r.number();
    case 10: return r.list<ops::Number>([&] { return r.number(); });
    default: TPU_THROW(ErrorKind::kInternal, "a call key holds attribute kind ", int{index});
  }
}

ArgSpec read_arg(Reader& r, Call& call) {
  ArgSpec a;
  a.tag = r.get<Tag>();
  switch (a.tag) {
    case Tag::kNone: break;
    case Tag::kTensor:
      a.type = r.get<const Type*>();
      a.operand = static_cast<int32_t>(call.tensors.size());
      call.tensors.push_back(a.type);
      break;
    case Tag::kTensorScalar:
      a.dtype = r.get<DType>();
      a.wrapped = r.get<bool>();
      a.operand = call.scalar_count++;
      break;
    case Tag::kScalar:
      a.kind = r.get<ops::NumberKind>();
      a.operand = call.scalar_count++;
      break;
    case Tag::kKnownScalar: a.known = r.number(); break;
    case Tag::kTensorList:
    case Tag::kScalarList:
      for (uint32_t n = r.get<uint32_t>(); n > 0; --n) a.list.push_back(read_arg(r, call));
      break;
    case Tag::kAttr: a.attr = read_attr(r); break;
  }
  return a;
}

}  // namespace

int32_t op_of(std::string_view key) { return Reader(key).get<int32_t>(); }

Call decode(std::string_view key, const ops::Registry& registry) {
  Reader r(key);
  Call call;
  call.op_id = r.get<int32_t>();
  call.modes.precision = r.get<hlo::Precision>();
  call.modes.default_dtype = r.get<DType>();
  const ops::OpDef& def = registry.all()[static_cast<size_t>(call.op_id)];
  for (size_t i = 0; i < def.args.size(); ++i) call.args.push_back(read_arg(r, call));
  if (def.form == ops::OpDef::Form::kOut) call.out_type = r.get<const Type*>();
  for (uint8_t n = r.get<uint8_t>(); n > 0; --n) {
    Dims& order = call.layouts.emplace_back();
    for (uint8_t k = r.get<uint8_t>(); k > 0; --k) order.push_back(r.get<uint8_t>());
  }
  return call;
}

}  // namespace tpu::trace
