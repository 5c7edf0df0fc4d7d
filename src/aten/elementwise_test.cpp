// Infers the result types of every op of the elementwise families (elementwise, compare,
// activation, special, complex, loss, foreach, optim) in at least one call, and the errors that
// types alone show.
#include <charconv>
#include <set>
#include <sstream>
#include <string>
#include <vector>

#include "aten/all.h"
#include "aten/elementwise.h"
#include "base/test.h"

namespace tpu::aten {
namespace {

using ops::Arg;
using ops::ArgKind;
using ops::Attr;
using ops::OpDef;
using ops::Registry;

struct TypeHost : ops::Host {
  std::vector<ops::Number> numbers;
  ops::Scalar operand(const ops::Number& n) {
    numbers.push_back(n);
    return {n.kind, static_cast<int32_t>(numbers.size()) - 1, std::nullopt};
  }
  void check_numbers(ops::NumberCheck check) override { check(numbers); }
  Value scalar(hlo::Builder& b, int32_t, DType t) override { return b.parameter({t, {}}); }
  Value random_state(hlo::Builder& b, int64_t) override { return b.parameter({DType::kU64, {2}}); }
  void assertion(hlo::Builder&, Value, Value, ErrorKind, std::string, bool) override {}
};

Registry& registry() {
  static Registry* r = [] {
    auto* made = new Registry;
    register_elementwise(*made);
    register_compare(*made);
    register_activation(*made);
    register_special(*made);
    register_complex(*made);
    register_loss(*made);
    register_foreach(*made);
    register_optim(*made);
    // What list ops of other families repeat.
    made->op("aten::mm", [](Ctx& x, Value a, Value b) { return x.matmul(a, b); });
    for (const char* name : {"aten::linalg_vector_norm", "aten::linalg__powsum"}) {
      made->op(name, [](Ctx& x, Value v, Number, Opt<Dims>, bool, Opt<DType>) {
        return x.sum(v, x.all_axes(v));
      });
    }
    return made;
  }();
  return *r;
}
std::set<std::string>& seen() {
  static std::set<std::string> names;
  return names;
}

DType parse_dtype(const std::string& s) {
  for (int i = 0; i < hlo::kDTypeCount; ++i) {
    std::string name(hlo::torch_name(static_cast<DType>(i)));
    if (name == s) return static_cast<DType>(i);
  }
  throw std::runtime_error("dtype " + s);
}

// "float32[2,3]"
Type parse_type(const std::string& s) {
  const size_t open = s.find('[');
  Type t{parse_dtype(s.substr(0, open)), {}};
  std::istringstream sizes(s.substr(open + 1, s.size() - open - 2));
  for (std::string n; std::getline(sizes, n, ',');) t.dims.push_back(std::stoll(n));
  return t;
}

Number parse_number(const std::string& s) {
  if (s == "true" || s == "false") return Number::of(s == "true");
  if (s.find_first_of(".en") == std::string::npos) return Number::of(int64_t{std::stoll(s)});
  return Number::of(std::stod(s));
}

std::vector<std::string> words(const std::string& s, char separator) {
  std::vector<std::string> out;
  std::istringstream in(s);
  for (std::string w; std::getline(in, w, separator);) {
    if (!w.empty()) out.push_back(w);
  }
  return out;
}

// One argument: "-" is none, "int64[3]" a tensor, "a|b" a list of tensors, "{1|2}" a list of
// numbers,
// "'none" a string, anything else a number.
Arg parse_arg(hlo::Builder& b, TypeHost& host, const std::string& s, ArgKind kind) {
  const bool many = kind == ArgKind::kTensorList;
  if (s == "-")
    return kind == ArgKind::kTensor || kind == ArgKind::kOptTensor ? Arg(Value{}) : Arg(Attr());
  if (s[0] == '\'') return Attr(s.substr(1));
  if (s[0] == '{') {
    std::vector<ops::Scalar> scalars;
    Dims ints;
    for (const std::string& w : words(s.substr(1, s.size() - 2), '|')) {
      const Number n = parse_number(w);
      scalars.push_back(host.operand(n));
      ints.push_back(n.to_int());
    }
    return kind == ArgKind::kScalarList ? Arg(scalars) : Arg(Attr(ints));
  }
  if (s.find('[') != std::string::npos) {
    Values v;
    for (const std::string& w : words(s, '|')) v.push_back(b.parameter(parse_type(w)));
    return many ? Arg(v) : Arg(v[0]);
  }
  const Number n = parse_number(s);
  switch (kind) {
    case ArgKind::kScalar:
    case ArgKind::kOptScalar: return host.operand(n);
    case ArgKind::kNumber: return Attr(n);
    case ArgKind::kInt:
    case ArgKind::kOptInt: return Attr(n.to_int());
    case ArgKind::kBool:
    case ArgKind::kOptBool: return Attr(n.d != 0);
    default: return Attr(n.d);
  }
}

// The result types of a call, "float32[2, 3] bool[2, 3]".
std::string infer(const std::string& name, const std::string& arguments) {
  const OpDef* d = registry().find("aten::" + name);
  if (d == nullptr) throw std::runtime_error("no op " + name);
  hlo::Function f;
  hlo::Builder b(f);
  TypeHost host;
  ops::ContextOptions options;
  if (d->form == OpDef::Form::kOut) options.out_type = {DType::kF32, {}};
  Ctx x(b, host, options);
  std::vector<Arg> args;
  const auto given = words(arguments, ' ');
  if (given.size() != d->args.size())
    throw std::runtime_error(cat(name, " takes ", d->args.size(), " arguments"));
  for (size_t i = 0; i < given.size(); ++i)
    args.push_back(parse_arg(b, host, given[i], d->args[i]));
  std::string out;
  for (const Value& v : d->lower(x, args)) {
    out += cat(out.empty() ? "" : " ", v.valid() ? hlo::to_string(v.type()) : "undefined");
  }
  seen().insert("aten::" + name);
  return out;
}

void expect_all(const char* names, const char* arguments, const char* expected) {
  for (const std::string& name : words(names, ' ')) {
    try {
      const std::string got = infer(name, arguments);
      if (got != expected)
        test::report(__FILE__, __LINE__,
                     cat(name, "(", arguments, ") is ", got, ", not ", expected));
    } catch (const std::exception& e) {
      test::report(__FILE__, __LINE__, cat(name, "(", arguments, ") threw ", e.what()));
    }
  }
}

TEST(one_operand) {
  const char* smooth =
      "acos acosh asin asinh atan atanh cos cosh exp exp2 expm1 log log10 log1p log2 reciprocal "
      "rsqrt sigmoid sin sinc "
      "sinh sqrt tan tanh";
  expect_all(smooth, "float32[2,3]", "float32[2, 3]");
  expect_all(smooth, "int64[0,3]", "float32[0, 3]");
  expect_all(smooth, "bfloat16[]", "bfloat16[]");
  expect_all(smooth, "complex64[4]", "complex64[4]");
  expect_all("erf erfc erfinv digamma lgamma i0 special_i0e special_i1 special_i1e special_entr",
             "uint8[4]", "float32[4]");
  expect_all(
      "special_airy_ai special_bessel_j0 special_bessel_j1 special_bessel_y0 special_bessel_y1 "
      "special_erfcx "
      "special_log_ndtr special_modified_bessel_i0 special_modified_bessel_i1 "
      "special_modified_bessel_k0 "
      "special_modified_bessel_k1 special_ndtri special_scaled_modified_bessel_k0 "
      "special_scaled_modified_bessel_k1 special_spherical_bessel_j0",
      "float64[4]", "float64[4]");
  expect_all("abs neg ceil floor round trunc sign sgn bitwise_not zero", "int32[4]", "int32[4]");
  expect_all("frac relu hardsigmoid hardswish silu mish", "float16[4]", "float16[4]");
  expect_all("abs angle", "complex128[4]", "float64[4]");
  expect_all("sgn neg _conj_physical conj_physical.out conj_physical_", "complex128[4]",
             "complex128[4]");
  expect_all("signbit isfinite isnan isinf isposinf isneginf logical_not", "float32[4]", "bool[4]");
  expect_all("_assert_async", "float32[1]", "");
  expect_all("_assert_async.msg", "bool[] 'text", "");
  expect_all("_functional_assert_async.msg", "bool[] 'text float32[]", "float32[]");
  expect_all("_make_dep_token", "-", "float32[]");
  expect_all("frexp.Tensor", "bfloat16[4]", "bfloat16[4] int32[4]");
  expect_all("round.decimals", "float32[4] 2", "float32[4]");
  expect_all("nan_to_num", "float32[4] 1.0 - -", "float32[4]");
  expect_all("logit", "int64[4] 0.1", "float32[4]");
  expect_all("polygamma", "3 float32[4]", "float32[4]");
  expect_all("mvlgamma", "float64[4] 3", "float64[4]");
}

TEST(two_operands) {
  const char* pair = "float32[2,1] float32[3]";
  expect_all(
      "mul.Tensor div.Tensor floor_divide remainder.Tensor fmod.Tensor maximum minimum fmax fmin "
      "hypot atan2 "
      "copysign.Tensor nextafter logaddexp logaddexp2 xlogy.Tensor special_xlog1py heaviside "
      "pow.Tensor_Tensor "
      "special_zeta igamma igammac clamp_min.Tensor clamp_max.Tensor",
      pair, "float32[2, 3]");
  expect_all(
      "special_chebyshev_polynomial_t special_chebyshev_polynomial_u "
      "special_chebyshev_polynomial_v "
      "special_chebyshev_polynomial_w special_shifted_chebyshev_polynomial_t "
      "special_shifted_chebyshev_polynomial_u special_shifted_chebyshev_polynomial_v "
      "special_shifted_chebyshev_polynomial_w special_hermite_polynomial_h "
      "special_hermite_polynomial_he "
      "special_laguerre_polynomial_l special_legendre_polynomial_p",
      "float32[2,1] int64[3]", "float32[2, 3]");
  expect_all("div.Tensor atan2", "int64[2] int32[]", "float32[2]");
  expect_all("mul.Tensor", "float16[2] float32[]", "float16[2]");
  expect_all(
      "gcd lcm bitwise_left_shift.Tensor bitwise_right_shift.Tensor __lshift__.Tensor "
      "__rshift__.Tensor "
      "__ilshift__.Tensor __irshift__.Tensor floor_divide remainder.Tensor fmod.Tensor "
      "pow.Tensor_Tensor",
      "int32[2] uint8[2]", "int32[2]");
  expect_all("bitwise_and.Tensor bitwise_or.Tensor bitwise_xor.Tensor mul.Tensor maximum",
             "bool[2] bool[2]", "bool[2]");
  expect_all("__lshift__.Scalar __rshift__.Scalar __ilshift__.Scalar __irshift__.Scalar",
             "uint8[2] 3", "uint8[2]");
  expect_all("remainder.Scalar_Tensor", "7 float32[2]", "float32[2]");
  expect_all("div.Tensor_mode", "int64[2] int64[2] -", "float32[2]");
  expect_all("div.Tensor_mode", "int64[2] int64[2] 'floor", "int64[2]");
  expect_all("add.Tensor sub.Tensor rsub.Tensor", "int64[2] float32[3,1] 1.5", "float32[3, 2]");
  expect_all("add.Tensor", "bool[2] bool[2] 1", "bool[2]");
  expect_all("_add_relu.Tensor", "float32[2] float32[2] 1", "float32[2]");
  expect_all("_add_relu.Scalar", "float32[2] 2 1", "float32[2]");
  expect_all("addcmul addcdiv", "bfloat16[2] bfloat16[3,1] bfloat16[1] 0.5", "bfloat16[3, 2]");
  expect_all("lerp.Scalar", "float32[2] float32[2] 0.5", "float32[2]");
  expect_all("lerp.Tensor", "float32[2] float32[2] float32[3,1]", "float32[3, 2]");
  expect_all("pow.Tensor_Scalar", "int64[2] 2.5", "float32[2]");
  expect_all("pow.Tensor_Scalar", "uint8[2] 4", "uint8[2]");
  expect_all("pow.Scalar", "2 int32[2]", "int32[2]");
  expect_all("clamp", "int64[2] 0.5 -", "float32[2]");
  expect_all("clamp.Tensor", "int64[2] - int64[3,1]", "int64[3, 2]");
  expect_all("clamp_min clamp_max", "float32[2] 1", "float32[2]");
  expect_all("where.self", "bool[2] int64[3,1] float32[]", "float32[3, 2]");
  expect_all("masked_fill.Scalar", "int8[2] bool[3,1] 1.5", "int8[3, 2]");
  expect_all("masked_fill.Tensor", "int8[2] bool[3,1] float32[]", "int8[3, 2]");
  expect_all("fill.Scalar", "int8[2] 1", "int8[2]");
  expect_all("fill.Tensor", "int8[2] float32[]", "int8[2]");
  expect_all("complex polar", "float32[2] float32[3,1]", "complex64[3, 2]");
  expect_all(
      "eq.Tensor ne.Tensor lt.Tensor le.Tensor gt.Tensor ge.Tensor logical_and logical_or "
      "logical_xor",
      "int64[2] float32[3,1]", "bool[3, 2]");
  expect_all("eq.Scalar ne.Scalar lt.Scalar le.Scalar gt.Scalar ge.Scalar", "uint8[2] 300",
             "bool[2]");
}

TEST(activations) {
  expect_all(
      "hardsigmoid_backward hardswish_backward silu_backward mish_backward sigmoid_backward "
      "tanh_backward "
      "_prelu_kernel",
      "bfloat16[2] bfloat16[2]", "bfloat16[2]");
  expect_all("_prelu_kernel_backward", "float32[2] float32[2] float32[2]", "float32[2] float32[2]");
  expect_all("threshold", "int64[2] 1 2", "int64[2]");
  expect_all("hardtanh", "int64[2] -1 1", "int64[2]");
  expect_all("threshold_backward softshrink_backward hardshrink_backward",
             "float32[2] float32[2] 1.0", "float32[2]");
  expect_all("hardtanh_backward", "float32[2] float32[2] -1 1", "float32[2]");
  expect_all("leaky_relu softshrink hardshrink", "float32[2] 0.1", "float32[2]");
  expect_all("leaky_relu_backward", "float32[2] float32[2] 0.1 true", "float32[2]");
  expect_all("elu", "float32[2] 1 1 1", "float32[2]");
  expect_all("elu_backward", "float32[2] 1 1 1 false float32[2]", "float32[2]");
  expect_all("gelu", "float32[2] 'tanh", "float32[2]");
  expect_all("gelu_backward", "float32[2] float32[2] 'none", "float32[2]");
  expect_all("softplus", "float32[2] 1 20", "float32[2]");
  expect_all("softplus_backward", "float32[2] float32[2] 1 20", "float32[2]");
  expect_all("log_sigmoid_forward", "float32[2]", "float32[2] float32[2]");
  expect_all("log_sigmoid_backward", "float32[2] float32[2] float32[2]", "float32[2]");
  expect_all("logit_backward", "float32[2] float32[2] -", "float32[2]");
  expect_all("glu", "float32[2,6] -1", "float32[2, 3]");
  expect_all("glu_backward", "float32[2,3] float32[2,6] 1", "float32[2, 6]");
  expect_all("glu_jvp", "float32[2,3] float32[2,6] float32[2,6] 1", "float32[2, 3]");
  expect_all("glu_backward_jvp",
             "float32[2,6] float32[2,3] float32[2,6] float32[2,3] float32[2,6] 1", "float32[2, 6]");
  expect_all("rrelu_with_noise rrelu_with_noise_", "float32[2] float32[2] 0.1 0.3 true",
             "float32[2] float32[2]");
  expect_all("native_dropout", "bfloat16[2] 0.5 true", "bfloat16[2] bool[2]");
  expect_all("native_dropout_backward", "bfloat16[2] bool[2] 2.0", "bfloat16[2]");
  expect_all("native_dropout_backward", "int64[2] bool[2] 2.0", "float32[2]");
}

TEST(losses) {
  for (const auto& [reduction, expected] :
       {std::pair{"0", "float32[3, 4]"}, std::pair{"1", "float32[]"}}) {
    const std::string pair = "float32[3,4] float32[3,4] ";
    expect_all("mse_loss soft_margin_loss", (pair + reduction).c_str(), expected);
    expect_all("smooth_l1_loss huber_loss", (pair + reduction + " 0.5").c_str(), expected);
    expect_all("binary_cross_entropy", (pair + "float32[4] " + reduction).c_str(), expected);
  }
  expect_all("mse_loss_backward soft_margin_loss_backward", "float32[] float32[3,4] float32[3,4] 1",
             "float32[3, 4]");
  expect_all("smooth_l1_loss_backward huber_loss_backward",
             "float32[] float32[3,4] float32[3,4] 1 0.5", "float32[3, 4]");
  expect_all("binary_cross_entropy_backward", "float32[] float32[3,4] float32[3,4] - 1",
             "float32[3, 4]");
  expect_all("nll_loss_forward", "float16[3,4] int64[3] float16[4] 0 -100", "float16[3] float16[]");
  expect_all("nll_loss_forward", "float32[4] int64[] - 1 -100", "float32[] float32[]");
  expect_all("nll_loss_backward", "float32[3] float32[3,4] int64[3] - 0 -100 float32[]",
             "float32[3, 4]");
  expect_all("nll_loss2d_forward", "float32[2,3,4,5] uint8[2,4,5] - 0 -100",
             "float32[2, 4, 5] float32[]");
  expect_all("nll_loss2d_backward", "float32[] float32[2,3,4,5] int64[2,4,5] - 2 1 float32[]",
             "float32[2, 3, 4, 5]");
  expect_all("multi_margin_loss", "float32[3,4] int64[3] 1 1 - 0", "float32[3]");
  expect_all("multi_margin_loss_backward", "float32[3] float32[3,4] int64[3] 2 1 float32[4] 0",
             "float32[3, 4]");
  expect_all("multilabel_margin_loss_forward", "float32[4] int64[4] 1", "float32[] float32[4]");
  expect_all("multilabel_margin_loss_backward", "float32[] float32[3,4] int64[3,4] 1 float32[3,4]",
             "float32[3, 4]");
  expect_all("_ctc_loss", "float32[5,2,4] int64[5] {5|4} {3|2} 0 false",
             "float32[2] float32[2, 5, 7]");
  expect_all("_ctc_loss.Tensor", "float32[5,2,4] int64[2,3] int64[2] int64[2] 0 false",
             "float32[2] float32[2, 5, 7]");
  expect_all("_ctc_loss_backward",
             "float32[2] float32[5,2,4] int64[5] {5|4} {3|2} float32[2] float32[2,5,7] 0 false",
             "float32[5, 2, 4]");
  expect_all(
      "_ctc_loss_backward.Tensor",
      "float32[2] float32[5,2,4] int64[2,3] int64[2] int64[2] float32[2] float32[2,5,7] 0 true",
      "float32[5, 2, 4]");
  for (const char* p : {"0", "0.5", "1", "2", "3", "inf"}) {
    expect_all("_cdist_forward", cat("float32[7,3,4] float32[5,4] ", p, " -").c_str(),
               "float32[7, 3, 5]");
    expect_all("_cdist_backward",
               cat("float32[3,5] float32[3,4] float32[5,4] ", p, " float32[3,5]").c_str(),
               "float32[3, 4]");
    expect_all("_pdist_forward", cat("float32[5,4] ", p).c_str(), "float32[10]");
    expect_all("_pdist_backward", cat("float32[10] float32[5,4] ", p, " float32[10]").c_str(),
               "float32[5, 4]");
  }
  expect_all("_cdist_forward", "float32[30,4] float32[5,4] 2 -", "float32[30, 5]");
}

TEST(lists) {
  const char* two = "float32[2] float32[3, 4]";
  const std::string list = "float32[2]|float32[3,4]";
  std::string unary;
  for (const char* n :
       {"abs",   "acos", "asin",  "atan",       "ceil",  "cos",    "cosh",    "erf",
        "erfc",  "exp",  "expm1", "floor",      "frac",  "lgamma", "log",     "log10",
        "log1p", "log2", "neg",   "reciprocal", "round", "rsqrt",  "sigmoid", "sign",
        "sin",   "sinh", "sqrt",  "tan",        "tanh",  "trunc",  "zero",    "clone"}) {
    unary += cat("_foreach_", n, " ");
  }
  expect_all(unary.c_str(), list.c_str(), two);
  for (const char* n : {"mul", "div", "clamp_max", "clamp_min", "maximum", "minimum", "pow"}) {
    const std::string op = cat("_foreach_", n);
    expect_all((op + ".List").c_str(), (list + " " + list).c_str(), two);
    expect_all((op + ".Scalar").c_str(), (list + " 2").c_str(), two);
    expect_all((op + ".ScalarList").c_str(), (list + " {2|0.5}").c_str(), two);
  }
  for (const char* n : {"add", "sub"}) {
    const std::string op = cat("_foreach_", n);
    expect_all((op + ".List").c_str(), (list + " " + list + " 2").c_str(), two);
    expect_all((op + ".Scalar").c_str(), (list + " 2").c_str(), two);
    expect_all((op + ".ScalarList").c_str(), (list + " {2|0.5}").c_str(), two);
  }
  expect_all("_foreach_add.Tensor", (list + " float32[] 2").c_str(), two);
  expect_all("_foreach_mul.Tensor _foreach_div.Tensor", (list + " float32[]").c_str(), two);
  expect_all("_foreach_mul.Scalar", "int64[2]|bfloat16[3] 0.5", "float32[2] bfloat16[3]");
  expect_all("_foreach_pow.ScalarAndTensor", ("2 " + list).c_str(), two);
  const std::string three = list + " " + list + " " + list;
  expect_all("_foreach_addcdiv.Scalar _foreach_addcmul.Scalar", (three + " 2").c_str(), two);
  expect_all("_foreach_addcdiv.ScalarList _foreach_addcmul.ScalarList", (three + " {2|3}").c_str(),
             two);
  expect_all("_foreach_addcdiv.Tensor _foreach_addcmul.Tensor", (three + " float32[2]").c_str(),
             two);
  expect_all("_foreach_lerp.List", three.c_str(), two);
  expect_all("_foreach_lerp.Scalar", (list + " " + list + " 0.5").c_str(), two);
  expect_all("_foreach_lerp.ScalarList", (list + " " + list + " {0.5|0.1}").c_str(), two);
  expect_all("_foreach_max", list.c_str(), "float32[] float32[]");
  expect_all("_foreach_norm.Scalar _foreach_powsum.Scalar", (list + " 2 -").c_str(),
             "float32[] float32[]");
  expect_all("_foreach_mm", "float32[2,3] float32[3,4]", "float32[2, 4]");
}

TEST(optimizers) {
  const std::string p = "bfloat16[2]|float32[3] ", s = "float32[2]|float32[3] ",
                    t = "float32[]|float32[] ";
  const std::string pp = "bfloat16[2] float32[3]", ss = "float32[2] float32[3]";
  for (const std::string lr : {"", ".tensor_lr"}) {
    const std::string rate = lr.empty() ? "0.1 " : "float32[] ";
    expect_all(("_fused_sgd_" + lr).c_str(),
               (p + p + p + "0.1 0.9 " + rate + "0.0 true false false - -").c_str(),
               (pp + " " + pp + " " + pp).c_str());
    expect_all(("_fused_adam_" + lr + " _fused_adamw_" + lr).c_str(),
               (p + p + s + s + s + t + rate + "0.9 0.999 0.1 1e-8 true true float32[1] float32[1]")
                   .c_str(),
               (pp + " " + pp + " " + ss + " " + ss + " " + ss).c_str());
    expect_all(("_fused_adagrad_" + lr).c_str(),
               (p + p + s + t + rate + "0.1 0.1 1e-8 true - -").c_str(),
               (pp + " " + pp + " " + ss + (lr.empty() ? " float32[] float32[]" : "")).c_str());
  }
  expect_all("_amp_foreach_non_finite_check_and_unscale_", (p + "float32[1] float32[1]").c_str(),
             (pp + " float32[1]").c_str());
  expect_all("_amp_update_scale_", "float32[1] int32[1] float32[1] 2.0 0.5 2000",
             "float32[1] int32[1]");
}

TEST(errors_in_the_words_of_pytorch) {
  EXPECT_THROW_MSG(infer("add.Tensor", "float32[3] float32[4] 1"),
                   "The size of tensor a (3) must match the size of tensor b (4)");
  EXPECT_THROW_MSG(infer("add.Tensor", "int64[3] int64[3] 1.5"),
                   "argument alpha must not be a floating point number");
  EXPECT_THROW_MSG(infer("add.Tensor", "float32[3] float32[3] true"),
                   "Boolean alpha only supported for Boolean results");
  EXPECT_THROW_MSG(infer("sub.Tensor", "bool[3] bool[3] 1"),
                   "Subtraction, the `-` operator, with two bool tensors");
  EXPECT_THROW_MSG(infer("sub.Tensor", "bool[3] int64[3] 1"),
                   "Subtraction, the `-` operator, with a bool tensor");
  EXPECT_THROW_MSG(infer("neg", "bool[3]"),
                   "Negation, the `-` operator, on a bool tensor is not supported");
  EXPECT_THROW_MSG(infer("addcdiv", "float32[3] int64[3] int64[3] 1"),
                   "Integer division with addcdiv is no longer supported");
  EXPECT_THROW_MSG(infer("bitwise_not", "float32[3]"),
                   "\"bitwise_not_cpu\" not implemented for 'Float'");
  EXPECT_THROW_MSG(infer("lt.Tensor", "complex64[3] complex64[3]"),
                   "\"lt_cpu\" not implemented for 'ComplexFloat'");
  EXPECT_THROW_MSG(infer("clamp", "float32[3] - -"),
                   "At least one of 'min' or 'max' must not be None");
  EXPECT_THROW_MSG(infer("div.Tensor_mode", "float32[3] float32[3] 'up"),
                   "div expected rounding_mode to be one of");
  EXPECT_THROW_MSG(infer("where.self", "int64[3] float32[3] float32[3]"),
                   "expected condition to be a boolean tensor");
  EXPECT_THROW_MSG(infer("masked_fill.Tensor", "float32[3] bool[3] float32[1]"),
                   "only supports a 0-dimensional value tensor");
  EXPECT_THROW_MSG(infer("lerp.Scalar", "float32[3] float64[3] 0.5"),
                   "expected dtype float for `end` but got dtype double");
  EXPECT_THROW_MSG(infer("glu", "float32[3] 0"),
                   "Halving dimension must be even, but dimension 0 is size 3");
  EXPECT_THROW_MSG(infer("softshrink", "float32[3] -1.0"), "lambda must be in range [0,");
  EXPECT_THROW_MSG(infer("nll_loss_forward", "float32[3,4] int64[2] - 1 -100"),
                   "size mismatch (got input: [3, 4], target: [2])");
  EXPECT_THROW_MSG(infer("_cdist_forward", "float32[3,4] float32[3,5] 2 -"),
                   "must have the same number of columns");
  EXPECT_THROW_MSG(infer("_ctc_loss", "float32[5,2,4] int64[5] {6|4} {3|2} 0 false"),
                   "Expected input_lengths to have value at most 5");
  EXPECT_THROW_MSG(infer("_foreach_add.List", "float32[3]|float32[3] float32[3] 1"),
                   "must have the same number of tensors, got 2 and 1");
  EXPECT_THROW_MSG(infer("polygamma", "-1 float32[3]"), "does not support negative n");
}

TEST(every_op_was_called) {
  const std::set<std::string> borrowed = {"aten::mm", "aten::linalg_vector_norm",
                                          "aten::linalg__powsum"};
  for (const OpDef& d : registry().all()) {
    if (!borrowed.contains(d.name) && !seen().contains(d.name)) {
      test::report(__FILE__, __LINE__, cat(d.name, " was called by no test"));
    }
  }
}

}  // namespace
}  // namespace tpu::aten
