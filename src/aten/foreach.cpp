#include <string>
#include <utility>
#include <variant>

#include "aten/all.h"
#include "aten/elementwise.h"

namespace tpu::aten {
namespace {

using ops::Arg;
using ops::ArgKind;
using ops::Attr;
using ops::OpDef;
using ops::Registry;

// A list op repeats the lowering of the op on one tensor, which it finds in the registry. Its
// results are row-major: a layout rule speaks of one tensor, and these have many.

using In = std::variant<Value, Scalar, Number, Attr>;

Scalar known(const Number& n) { return {n.kind, -1, n}; }

// A number where the repeated op takes a tensor: a 0-d tensor that promotes as a number does.
Value wrapped(Ctx& x, const Scalar& s, DType like) {
  const bool wide = hlo::real_type(like) == DType::kF64 || x.default_dtype() == DType::kF64;
  DType t = wide ? DType::kF64 : DType::kF32;
  if (s.kind == NumberKind::kBool) t = DType::kBool;
  if (s.kind == NumberKind::kInt) t = DType::kI64;
  if (s.kind == NumberKind::kComplex) t = hlo::complex_type(t);
  const Value v = x.wrapped_scalar(s, t);
  x.mark_wrapped(v);
  return v;
}

// The argument in the form the repeated op declared.
Arg adapt(Ctx& x, const In& in, ArgKind kind, DType like) {
  const auto* n = std::get_if<Number>(&in);
  const Scalar* s = std::get_if<Scalar>(&in);
  if (kind == ArgKind::kTensor || kind == ArgKind::kOptTensor) {
    if (s != nullptr) return wrapped(x, *s, like);
    return std::get<Value>(in);
  }
  if (kind == ArgKind::kScalar || kind == ArgKind::kOptScalar) return n != nullptr ? known(*n) : *s;
  if (n != nullptr) return Attr(*n);
  return std::get<Attr>(in);
}

Value call(Ctx& x, const Registry& r, const std::string& name, const std::vector<In>& in,
           DType like) {
  const OpDef* d = r.find(name);
  TPU_CHECK(d != nullptr, ErrorKind::kMissingOp, name,
            " has no TPU lowering for a list op to repeat");
  TPU_CHECK(d->args.size() >= in.size(), ErrorKind::kInternal, name, " takes ", d->args.size(),
            " arguments, not ", in.size());
  std::vector<Arg> args;
  for (size_t i = 0; i < in.size(); ++i) args.push_back(adapt(x, in[i], d->args[i], like));
  // What is left has its default in the schema: factors of 1, no dims, no dtype.
  for (size_t i = in.size(); i < d->args.size(); ++i) {
    if (d->args[i] == ArgKind::kScalar) {
      args.emplace_back(known(Number::of(int64_t{1})));
    } else if (d->args[i] == ArgKind::kBool) {
      args.emplace_back(Attr(false));
    } else {
      args.emplace_back(Attr());
    }
  }
  return d->lower(x, args)[0];
}

void check_not_empty(Ctx& x, const Values& list) {
  x.check(!list.empty(), "Tensor list must have at least one tensor.");
}
void check_same_size(Ctx& x, const Values& a, const Values& b) {
  check_not_empty(x, a);
  x.check(a.size() == b.size(), "Tensor lists must have the same number of tensors, got ", a.size(),
          " and ", b.size());
}
void check_scalar_list(Ctx& x, const Values& a, const std::vector<Scalar>& s) {
  check_not_empty(x, a);
  x.check(a.size() == s.size(),
          "Tensor list must have same number of elements as scalar list. Got ", a.size(), " and ",
          s.size());
}

// f(i) for each tensor of the list.
template <class F>
Values each(const Values& list, F f) {
  Values out;
  out.reserve(list.size());
  for (size_t i = 0; i < list.size(); ++i) out.push_back(f(i));
  return out;
}

constexpr const char* kUnary[] = {
    "abs",   "acos", "asin",  "atan",       "ceil",  "cos",    "cosh",    "erf",
    "erfc",  "exp",  "expm1", "floor",      "frac",  "lgamma", "log",     "log10",
    "log1p", "log2", "neg",   "reciprocal", "round", "rsqrt",  "sigmoid", "sign",
    "sin",   "sinh", "sqrt",  "tan",        "tanh",  "trunc",  "zero"};

void register_foreach_unary(Registry& r) {
  for (const std::string name : kUnary) {
    r.op("aten::_foreach_" + name, [&r, one = "aten::" + name](Ctx& x, Values self) {
      check_not_empty(x, self);
      return each(self, [&](size_t i) { return call(x, r, one, {self[i]}, self[i].dtype()); });
    });
  }
  r.op("aten::_foreach_clone", [](Ctx& x, Values self) {
    check_not_empty(x, self);
    return self;
  });
  r.op("aten::_foreach_max", [](Ctx& x, Values self) {
    check_not_empty(x, self);
    return each(self, [&](size_t i) {
      check_dtype(x, self[i].dtype(), kBoolean | kOrdered, "max_all");
      x.check(self[i].numel() > 0,
              "max(): Expected reduction dim to be specified for input.numel() == 0. Specify the "
              "reduction dim with the 'dim' argument.");
      return x.max(self[i], x.all_axes(self[i]));
    });
  });
}

struct Binary {
  const char* name;
  const char* with_tensor;  // repeated for List and Tensor
  const char* with_number;  // repeated for Scalar and ScalarList
  bool has_alpha;
  bool has_tensor;  // a Tensor overload exists
};
constexpr Binary kBinary[] = {
    {"add", "aten::add.Tensor", "aten::add.Tensor", true, true},
    {"sub", "aten::sub.Tensor", "aten::sub.Tensor", true, false},
    {"mul", "aten::mul.Tensor", "aten::mul.Tensor", false, true},
    {"div", "aten::div.Tensor", "aten::div.Tensor", false, true},
    {"clamp_max", "aten::clamp_max.Tensor", "aten::clamp_max", false, false},
    {"clamp_min", "aten::clamp_min.Tensor", "aten::clamp_min", false, false},
    {"maximum", "aten::clamp_min.Tensor", "aten::clamp_min", false, false},
    {"minimum", "aten::clamp_max.Tensor", "aten::clamp_max", false, false},
    {"pow", "aten::pow.Tensor_Tensor", "aten::pow.Tensor_Scalar", false, false},
};

void register_foreach_binary(Registry& r) {
  const auto tensor_of = [](const Values& list, size_t i) { return In(list[i]); };
  for (const Binary& k : kBinary) {
    const std::string name = std::string("aten::_foreach_") + k.name;
    if (k.has_alpha) {
      r.op(name + ".List", [&r, k](Ctx& x, Values self, Values other, Scalar alpha) {
         check_same_size(x, self, other);
         return each(self, [&](size_t i) {
           return call(x, r, k.with_tensor, {self[i], other[i], alpha}, self[i].dtype());
         });
       }).fold("alpha", 1);
    } else {
      r.op(name + ".List", [&r, k, tensor_of](Ctx& x, Values self, Values other) {
        check_same_size(x, self, other);
        return each(self, [&](size_t i) {
          return call(x, r, k.with_tensor, {self[i], tensor_of(other, i)}, self[i].dtype());
        });
      });
    }
    ops::OpBuilder scalar = r.op(name + ".Scalar", [&r, k](Ctx& x, Values self, Scalar s) {
      check_not_empty(x, self);
      return each(
          self, [&](size_t i) { return call(x, r, k.with_number, {self[i], s}, self[i].dtype()); });
    });
    if (k.name == std::string_view("pow")) {
      for (const double e : {-2.0, -1.0, -0.5, 0.0, 0.5, 1.0, 2.0, 3.0}) scalar.fold("exponent", e);
    }
    r.op(name + ".ScalarList", [&r, k](Ctx& x, Values self, std::vector<Scalar> s) {
      check_scalar_list(x, self, s);
      return each(self, [&](size_t i) {
        return call(x, r, k.with_number, {self[i], s[i]}, self[i].dtype());
      });
    });
  }
  const auto check_0d = [](Ctx& x, const Values& self, Value other) {
    check_not_empty(x, self);
    x.check(other.rank() == 0 && other.numel() == 1,
            "scalar tensor expected to be 0 dim but it has ", other.rank(), " dimensions and ",
            other.numel(), " elements.");
  };
  r.op("aten::_foreach_add.Tensor", [&r, check_0d](Ctx& x, Values self, Value other, Scalar alpha) {
     check_0d(x, self, other);
     return each(self, [&](size_t i) {
       return call(x, r, "aten::add.Tensor", {self[i], other, alpha}, self[i].dtype());
     });
   }).fold("alpha", 1);
  for (const char* name : {"mul", "div"}) {
    r.op(std::string("aten::_foreach_") + name + ".Tensor",
         [&r, check_0d, one = std::string("aten::") + name + ".Tensor"](Ctx& x, Values self,
                                                                        Value other) {
           check_0d(x, self, other);
           return each(
               self, [&](size_t i) { return call(x, r, one, {self[i], other}, self[i].dtype()); });
         });
  }
  r.op("aten::_foreach_pow.ScalarAndTensor", [&r](Ctx& x, Scalar self, Values exponent) {
    check_not_empty(x, exponent);
    return each(exponent, [&](size_t i) {
      return call(x, r, "aten::pow.Scalar", {self, exponent[i]}, exponent[i].dtype());
    });
  });
}

void register_foreach_ternary(Registry& r) {
  for (const std::string name : {"addcdiv", "addcmul"}) {
    const std::string list = "aten::_foreach_" + name, one = "aten::" + name;
    const auto apply = [&r, one](Ctx& x, const Values& self, const Values& t1, const Values& t2,
                                 auto value) {
      check_same_size(x, self, t1);
      check_same_size(x, self, t2);
      return each(self, [&](size_t i) {
        return call(x, r, one, {self[i], t1[i], t2[i], value(i)}, self[i].dtype());
      });
    };
    r.op(list + ".Scalar", [apply](Ctx& x, Values self, Values tensor1, Values tensor2,
                                   Scalar value) {
       return apply(x, self, tensor1, tensor2, [&](size_t) { return value; });
     }).fold("value", 1);
    r.op(list + ".ScalarList",
         [apply](Ctx& x, Values self, Values tensor1, Values tensor2, std::vector<Scalar> s) {
           check_scalar_list(x, self, s);
           return apply(x, self, tensor1, tensor2, [&](size_t i) { return s[i]; });
         });
    // The factors lie in one tensor: they are multiplied in beforehand.
    r.op(list + ".Tensor", [&r, apply](Ctx& x, Values self, Values tensor1, Values tensor2,
                                       Value scalars) {
      check_same_size(x, self, tensor1);
      const auto n = static_cast<int64_t>(self.size());
      x.check(scalars.rank() == 1, "Expected packed scalar Tensor to be of dimension 1. Got ",
              scalars.rank(), " instead.");
      x.check(scalars.dim(0) == n, "Expected length of scalars to match input of length ", n,
              " but got ", scalars.dim(0), " instead.");
      const Values scaled = each(tensor1, [&](size_t i) {
        const auto k = static_cast<int64_t>(i);
        const Value factor = x.b.reshape(x.b.slice_dim(scalars, 0, k, k + 1), {});
        x.mark_wrapped(factor);
        return call(x, r, "aten::mul.Tensor", {tensor1[i], factor}, tensor1[i].dtype());
      });
      return apply(x, self, scaled, tensor2, [](size_t) { return known(Number::of(int64_t{1})); });
    });
  }
  const auto lerp = [&r](Ctx& x, const Values& self, const Values& end, const char* one,
                         auto weight) {
    check_same_size(x, self, end);
    return each(self, [&](size_t i) {
      return call(x, r, one, {self[i], end[i], weight(i)}, self[i].dtype());
    });
  };
  r.op("aten::_foreach_lerp.List", [lerp](Ctx& x, Values self, Values tensors1, Values weights) {
    check_same_size(x, self, weights);
    return lerp(x, self, tensors1, "aten::lerp.Tensor", [&](size_t i) { return weights[i]; });
  });
  r.op("aten::_foreach_lerp.Scalar", [lerp](Ctx& x, Values self, Values tensors1, Scalar weight) {
    return lerp(x, self, tensors1, "aten::lerp.Scalar", [&](size_t) { return weight; });
  });
  r.op("aten::_foreach_lerp.ScalarList",
       [lerp](Ctx& x, Values self, Values tensors1, std::vector<Scalar> weight) {
         check_scalar_list(x, self, weight);
         return lerp(x, self, tensors1, "aten::lerp.Scalar", [&](size_t i) { return weight[i]; });
       });
}

void register_foreach_others(Registry& r) {
  for (const auto& [name, one] :
       {std::pair{"aten::_foreach_norm.Scalar", "aten::linalg_vector_norm"},
        std::pair{"aten::_foreach_powsum.Scalar", "aten::linalg__powsum"}}) {
    r.op(name, [&r, one = std::string(one)](Ctx& x, Values self, Number ord, Opt<DType> dtype) {
      check_not_empty(x, self);
      const Attr result = dtype ? Attr(*dtype) : Attr();
      // (self, ord, dim, keepdim, dtype)
      return each(self, [&](size_t i) {
        return call(x, r, one, {self[i], ord, Attr(), Attr(false), result}, self[i].dtype());
      });
    });
  }
  r.op("aten::_foreach_mm", [&r](Ctx& x, Values self, Values mat2) {
    check_same_size(x, self, mat2);
    return each(self, [&](size_t i) {
      return call(x, r, "aten::mm", {self[i], mat2[i]}, self[i].dtype());
    });
  });
  // _foreach_copy is a loop over copy_, which may cross devices: PyTorch's own decomposition.
}

}  // namespace

void register_foreach(Registry& r) {
  register_foreach_unary(r);
  register_foreach_binary(r);
  register_foreach_ternary(r);
  register_foreach_others(r);
}

}  // namespace tpu::aten
