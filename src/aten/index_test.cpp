// Infers the result types of every op of the index, shape, create, random, fft and linalg families
// in at least one call, and the errors that types alone show. Values are checked against PyTorch by
// the conformance tests.
//
// A call is text: tensors are f32[2,3], lists (1,2), tensor lists {f32[2];-}, strings 'sum, types
// =f32,
// "-" an absent argument; the results of a call are types, "-" for an undefined one.
#include <map>
#include <set>
#include <sstream>

#include "aten/all.h"
#include "aten/indexing.h"
#include "base/test.h"

namespace tpu::aten {
namespace {

using ops::Arg;
using ops::ArgKind;
using ops::Attr;
using ops::Number;
using ops::OpDef;
using ops::Registry;
using ops::Scalar;

struct TypeHost : ops::Host {
  std::vector<ops::Number> numbers;
  ops::Scalar operand(const ops::Number& n) {
    numbers.push_back(n);
    return {n.kind, static_cast<int32_t>(numbers.size()) - 1, std::nullopt};
  }
  void check_numbers(ops::NumberCheck check) override { check(numbers); }
  int draws = 0, assertions = 0;
  Value scalar(hlo::Builder& b, int32_t, DType t) override { return b.parameter({t, {}}); }
  Value random_state(hlo::Builder& b, int64_t) override {
    ++draws;
    return b.parameter({DType::kU64, {2}});
  }
  void assertion(hlo::Builder&, Value, Value, ErrorKind, std::string, bool) override {
    ++assertions;
  }
};

Registry& registry() {
  static Registry* r = [] {
    auto* made = new Registry;
    for (auto* add : {register_index, register_shape, register_create, register_random,
                      register_fft, register_linalg}) {
      add(*made);
    }
    return made;
  }();
  return *r;
}

std::set<std::string>& called() {
  static std::set<std::string> names;
  return names;
}

const std::map<std::string, DType>& dtypes() {
  static const std::map<std::string, DType> names{
      {"b", DType::kBool},  {"u8", DType::kU8},   {"i8", DType::kI8},     {"i32", DType::kI32},
      {"i64", DType::kI64}, {"f16", DType::kF16}, {"bf16", DType::kBF16}, {"f32", DType::kF32},
      {"f64", DType::kF64}, {"c64", DType::kC64}, {"c128", DType::kC128}};
  return names;
}

std::vector<std::string> parts(const std::string& s, char separator) {
  std::vector<std::string> out;
  std::istringstream in(s);
  for (std::string w; std::getline(in, w, separator);) {
    if (!w.empty()) out.push_back(w);
  }
  return out;
}

Dims parse_dims(const std::string& bracketed) {
  Dims d;
  for (const auto& w : parts(bracketed.substr(1, bracketed.size() - 2), ','))
    d.push_back(std::stoll(w));
  return d;
}

Type parse_type(const std::string& s) {
  const size_t open = s.find('[');
  return {dtypes().at(s.substr(0, open)), parse_dims(s.substr(open))};
}

std::string show(const Type& t) {
  for (const auto& [name, dtype] : dtypes()) {
    if (dtype == t.dtype) return cat(name, "[", join(t.dims, ","), "]");
  }
  return to_string(t);
}

Number parse_number(const std::string& s) {
  if (s.find_first_of(".e") != std::string::npos) return Number::of(std::stod(s));
  return Number::of(int64_t{std::stoll(s)});
}

Value parse_tensor(hlo::Builder& b, const std::string& s) {
  return s == "-" ? Value{} : b.parameter(parse_type(s));
}

Arg parse_arg(hlo::Builder& b, TypeHost& host, const std::string& s, ArgKind kind) {
  if (kind == ArgKind::kTensor || kind == ArgKind::kOptTensor) return parse_tensor(b, s);
  if (kind == ArgKind::kTensorList || kind == ArgKind::kOptTensorList) {
    Values v;
    for (const auto& w : parts(s.substr(1, s.size() - 2), ';')) v.push_back(parse_tensor(b, w));
    return v;
  }
  if (s == "-") return Attr();
  if (s[0] == '\'') return Attr(s.substr(1));
  if (s[0] == '=') return Attr(dtypes().at(s.substr(1)));
  if (s[0] == '(') return Attr(parse_dims(s));
  if (s == "true" || s == "false") return Attr(s == "true");
  const Number n = parse_number(s);
  switch (kind) {
    case ArgKind::kScalar:
    case ArgKind::kOptScalar: return host.operand(n);
    case ArgKind::kNumber: return Attr(n);
    case ArgKind::kFloat:
    case ArgKind::kOptFloat: return Attr(n.d);
    default: return Attr(n.to_int());
  }
}

ops::Target target;  // of `infer`

struct Outcome {
  std::string results;
  std::set<std::string> custom_calls;
  int draws = 0, assertions = 0;
};

// `out` is the destination's type, for ops of the out= form.
Outcome infer(const std::string& name, const std::string& args, const std::string& out = "") {
  const OpDef* d = registry().find(name);
  TPU_CHECK(d, "no op ", name);
  called().insert(name);
  hlo::Function f;
  hlo::Builder b(f);
  TypeHost host;
  ops::ContextOptions options;
  options.target = target;
  if (!out.empty()) options.out_type = parse_type(out);
  Context x(b, host, options);
  const auto words = parts(args, ' ');
  TPU_CHECK(words.size() == d->args.size(), name, " takes ", d->args.size(), " arguments");
  std::vector<Arg> values;
  for (size_t i = 0; i < words.size(); ++i)
    values.push_back(parse_arg(b, host, words[i], d->args[i]));
  const Values results = d->lower(x, values);
  Outcome o{"", {}, host.draws, host.assertions};
  for (const Value& v : results)
    o.results += cat(o.results.empty() ? "" : " ", v ? show(v.type()) : "-");
  b.finish(results);
  for (const hlo::Instruction& i : f.entry().body) {
    if (i.op == hlo::Op::kCustomCall)
      o.custom_calls.insert(std::get<std::string>(i.attributes.at(0).second));
  }
  return o;
}

struct Call {
  const char *name, *args, *results;
  const char* out = "";
};

void expect(std::initializer_list<Call> calls) {
  for (const Call& c : calls) {
    try {
      const std::string got = infer(c.name, c.args, c.out).results;
      if (got != c.results) {
        test::report(c.name, 0, cat(c.args, " gives ", got, ", expected ", c.results));
      }
    } catch (const std::exception& e) {
      test::report(c.name, 0, cat(c.args, " threw ", e.what()));
    }
  }
}

struct Refusal {
  const char *name, *args, *phrase;
  ErrorKind kind = ErrorKind::kInvalid;
  const char* out = "";
};

void expect_errors(std::initializer_list<Refusal> refusals) {
  for (const Refusal& c : refusals) {
    try {
      const std::string got = infer(c.name, c.args, c.out).results;
      test::report(c.name, 0, cat(c.args, " gives ", got, ", expected an error"));
    } catch (const Error& e) {
      if (e.text.find(c.phrase) == std::string::npos || e.kind != c.kind) {
        test::report(c.name, 0, cat(c.args, " threw ", to_string(e.kind), ": ", e.text));
      }
    }
  }
}

constexpr auto kIndex = ErrorKind::kIndex;
constexpr auto kUnsupported = ErrorKind::kUnsupported;

TEST(index_types) {
  expect({
      {"aten::index.Tensor", "f32[3,4,5] {i64[2,6]}", "f32[2,6,4,5]"},
      {"aten::index.Tensor", "bf16[3,4,5] {-;i64[6];i32[2,1]}", "bf16[3,2,6]"},
      {"aten::index.Tensor", "c64[3,4,5] {i64[6];-;i64[6]}", "c64[6,4]"},  // not side by side
      {"aten::index.Tensor", "b[3,4] {i64[];i64[]}", "b[]"},
      {"aten::index.Tensor", "f32[0,4] {i64[0]}", "f32[0,4]"},
      {"aten::index_put", "f32[3,4] {i64[2]} f32[4] false", "f32[3,4]"},
      {"aten::index_put", "f16[3,4] {-;i64[2]} f16[] true", "f16[3,4]"},
      {"aten::index_put", "f32[3,4] {b[3,4]} f32[] false", "f32[3,4]"},
      {"aten::index_put", "b[3,4] {-;b[4]} b[1] true", "b[3,4]"},
      {"aten::_index_put_impl", "i64[3,4] {i64[2]} i64[2,4] true false", "i64[3,4]"},
      {"aten::index_select", "f32[3,4] -1 i32[7]", "f32[3,7]"},
      {"aten::index_select", "f32[] 0 i64[]", "f32[]"},
      {"aten::index_add", "bf16[3,4] 0 i64[2] bf16[2,4] 2", "bf16[3,4]"},
      {"aten::index_copy", "f32[3,4] 1 i64[2] f32[3,2]", "f32[3,4]"},
      {"aten::index_fill.int_Scalar", "i8[3,4] 0 i64[2] 1", "i8[3,4]"},
      {"aten::index_fill.int_Tensor", "f32[3,4] 0 i64[] f64[]", "f32[3,4]"},
      {"aten::index_reduce", "f16[3,4] 0 i64[2] f16[2,4] 'mean false", "f16[3,4]"},
  });
  expect_errors({
      {"aten::index.Tensor", "f32[3] {i64[1];i64[1]}", "too many indices for tensor of dimension 1",
       kIndex},
      {"aten::index.Tensor", "f32[3] {f32[1]}", "must be long, int, byte or bool", kIndex},
      {"aten::index.Tensor", "f32[3,4] {i64[2];i64[3]}", "could not be broadcast together", kIndex},
      {"aten::index.Tensor", "f32[0,4] {i64[1]}", "out of bounds for dimension with size 0",
       kIndex},
      {"aten::index.Tensor", "f32[3,4] {b[3]}", "nonzero()", kUnsupported},
      {"aten::index_put", "f32[3,4] {i64[2]} f32[3] false",
       "cannot be broadcast to indexing result"},
      {"aten::index_put", "f32[3,4] {i64[2]} f64[4] false",
       "got Float for the destination and Double"},
      {"aten::index_put", "f32[3,4] {b[3,3]} f32[] false",
       "The shape of the mask [3, 3] at index 1", kIndex},
      {"aten::index_select", "f32[3] 0 f32[1]", "Expected dtype int32 or int64 for index"},
      {"aten::index_add", "f32[3,4] 0 i64[2] f32[3,4] 1", "Number of indices (2) should be equal"},
      {"aten::index_copy", "f32[3,4] 0 i64[2] f32[2,3]", "must have same slice shapes"},
      {"aten::index_fill.int_Scalar", "f32[3] 0 i32[1] 1", "Expected dtype int64 for index.",
       kIndex},
      {"aten::index_reduce", "f32[3] 0 i64[1] f32[1] 'sum true",
       "to be one of prod, mean, amax or amin"},
  });
}

TEST(scatter_types) {
  expect({
      {"aten::gather", "f32[3,4] 1 i64[2,7] false", "f32[2,7]"},
      {"aten::gather", "f32[] 0 i64[3] false", "f32[3]"},
      {"aten::gather", "f32[3,4] 0 i64[0] false", "f32[0]"},
      {"aten::scatter.src", "f32[3,4] 0 i64[2,2] f32[2,3]", "f32[3,4]"},
      {"aten::scatter.value", "i64[3,4] 0 i64[2,2] 1.5", "i64[3,4]"},
      {"aten::scatter.reduce", "bf16[3,4] 0 i64[2,2] bf16[2,2] 'multiply", "bf16[3,4]"},
      {"aten::scatter.value_reduce", "b[3,4] 0 i64[2,2] 1 'add", "b[3,4]"},
      {"aten::scatter_add", "c64[3,4] 0 i32[5,2] c64[5,2]", "c64[3,4]"},
      {"aten::scatter_reduce.two", "i32[3,4] 0 i64[2,2] i32[2,2] 'mean true", "i32[3,4]"},
  });
  expect_errors({
      {"aten::gather", "f32[3,4] 0 i64[1,5] false",
       "expected index [1, 5] to be no larger than self [3, 4]"},
      {"aten::gather", "f32[3,4] 0 i64[2] false", "same number of dimensions as input"},
      {"aten::scatter.src", "f32[3,4] 0 i64[2,2] f32[1,2]", "to be no larger size than src [1, 2]"},
      {"aten::scatter.src", "f32[3,4] 0 i64[2,2] f64[2,2]",
       "Expected self.dtype to be equal to src.dtype"},
      {"aten::scatter.reduce", "f32[3,4] 0 i64[2,2] f32[2,2] 'sum",
       "must be either add or multiply"},
      {"aten::scatter_reduce.two", "b[3] 0 i64[2] b[2] 'mean true", "not implemented for 'Bool'",
       kUnsupported},
  });
}

TEST(mask_types) {
  expect({
      {"aten::take", "f32[3,4] i64[2,5]", "f32[2,5]"},
      {"aten::put", "f32[3,4] i64[2] f32[2] true", "f32[3,4]"},
      {"aten::masked_scatter", "f32[4] b[3,4] f32[20]", "f32[3,4]"},
      {"aten::masked_scatter_backward", "f32[3,4] b[3,4] (2,3)", "f32[2,3]"},
      {"tpu::masked_select_padded", "f32[4] b[3,1]", "f32[12] i64[]"},
      {"tpu::nonzero_padded", "f32[3,4]", "i64[2,12] i64[]"},
      {"tpu::nonzero_padded", "f32[]", "i64[0,1] i64[]"},
      {"aten::nonzero_static", "f32[3,4] 5 -1", "i64[5,2]"},
      {"aten::repeat_interleave.Tensor", "i32[3] 7", "i32[7]"},
  });
  expect_errors({
      {"aten::take", "f32[0] i64[1]", "tried to take from an empty tensor", kIndex},
      {"aten::put", "f32[3] i64[1] f32[2] false", "same number of elements", kIndex},
      {"aten::masked_scatter", "f32[3] u8[3] f32[3]", "only supports boolean masks"},
      {"tpu::masked_select_padded", "f32[3] u8[3]", "expected BoolTensor for mask"},
      {"aten::nonzero_static", "f32[3] -2 0", "must be an non-negative integer"},
      {"aten::repeat_interleave.Tensor", "i64[3] -", "pass output_size", kUnsupported},
  });
}

TEST(view_gradient_types) {
  expect({
      {"aten::select_backward", "f32[4] (3,4) 0 -1", "f32[3,4]"},
      {"aten::slice_backward", "f32[2,4] (3,4) 0 0 9 2", "f32[3,4]"},
      {"aten::diagonal_backward", "f32[3] (3,4) 1 0 1", "f32[3,4]"},
      {"aten::select_scatter", "f32[3,4] f64[3] 1 2", "f32[3,4]"},
      {"aten::slice_scatter", "f32[3,4] f32[2,4] 0 - - 2", "f32[3,4]"},
      {"aten::slice_scatter", "f32[3,4] f32[1,4] 0 -1 - 1", "f32[3,4]"},
      {"aten::diagonal_scatter", "f32[3,4] f32[2] -1 0 1", "f32[3,4]"},
      {"aten::diag_embed", "f32[2,4] -1 0 2", "f32[5,2,5]"},
  });
  expect_errors({
      {"aten::select_backward", "f32[4] (3,4) 0 7", "select(): index 7 out of range", kIndex},
      {"aten::slice_scatter", "f32[3,4] f32[4] 0 0 1 1", "equal to the slice of self"},
      {"aten::slice_scatter", "f32[3,4] f32[2,4] 0 0 2 -1", "slice step must be positive"},
      {"aten::diag_embed", "f32[4] 0 1 1", "diagonal dimensions cannot be identical"},
  });
}

TEST(shape_types) {
  expect({
      {"aten::cat", "{f32[2,3];f64[1,3];f16[0]} 0", "f64[3,3]"},
      {"aten::cat", "{i64[0];b[0]} 1", "i64[0]"},
      {"aten::_stack", "{f32[2];f32[2]} 0", "f32[2,2]"},
      {"aten::block_diag", "{f32[2,3];i64[];f32[4]}", "f32[4,8]"},
      {"aten::constant_pad_nd", "i64[3,4] (1,-2,0,2) 2.5", "i64[5,3]"},
      {"aten::repeat", "f32[3] (2,4)", "f32[2,12]"},
      {"aten::narrow_copy", "f32[3,4] 0 -2 2", "f32[2,4]"},
      {"aten::flip", "f32[3,4] (0,-1)", "f32[3,4]"},
      {"aten::roll", "f32[3,4] (5) ()", "f32[3,4]"},
      {"aten::roll", "f32[3,4] (1,2) (0,1)", "f32[3,4]"},
      {"aten::tril", "b[2,3,4] 1", "b[2,3,4]"},
      {"aten::triu", "c64[3,4] -1099511627776", "c64[3,4]"},
      {"aten::tril_indices", "3 4 0 -", "i64[2,6]"},
      {"aten::triu_indices", "3 4 1 =i32", "i32[2,6]"},
  });
  expect_errors({
      {"aten::cat", "{f32[3,4];f32[3,5]} 0", "Expected size 4 but got size 5 for tensor number 1"},
      {"aten::cat", "{f32[3];f32[]} 0", "zero-dimensional tensor (at position 1)"},
      {"aten::cat", "{f32[3];f32[3]} 1", "Dimension out of range", kIndex},
      {"aten::_stack", "{f32[3];f32[4]} 0", "stack expects each tensor to be equal size"},
      {"aten::constant_pad_nd", "f32[3] (1,1,1) 0", "Length of pad must be even"},
      {"aten::flip", "f32[3] (0,0)", "dim 0 appears multiple times"},
      {"aten::roll", "f32[3,4] (1,2) (0)", "shifts and dimensions must align"},
      {"aten::tril", "f32[3] 0", "must have at least 2 dimensions"},
      {"aten::repeat", "f32[3,4] (2)", "can not be smaller than number of dimensions"},
  });
}

TEST(create_types) {
  expect({
      {"tpu::arange", "5 0 2 =f32", "f32[5]"},
      {"tpu::arange", "6 5 -2 =i8", "i8[6]"},
      {"aten::linspace.out", "0 1 7", "bf16[7]", "bf16[0]"},
      {"aten::logspace.out", "0 1 7 2.0", "i64[7]", "i64[0]"},
      {"aten::linspace.Scalar_Tensor", "0 f32[] 7 -", "f32[7]"},
      {"aten::linspace.Tensor_Scalar", "i64[] 2 7 =f64", "f64[7]"},
      {"aten::linspace.Tensor_Tensor", "c64[] f32[] 7 -", "c64[7]"},
      {"aten::logspace.Scalar_Tensor", "0 f32[] 7 10.0 -", "f32[7]"},
      {"aten::logspace.Tensor_Scalar", "f64[] 2 0 10.0 -", "f32[0]"},
      {"aten::logspace.Tensor_Tensor", "f32[] f32[] 1 10.0 =f16", "f16[1]"},
      {"aten::eye.out", "3", "b[3,3]", "b[0]"},
      {"aten::eye.m_out", "3 5", "c64[3,5]", "c64[0]"},
  });
  expect_errors({
      {"tpu::arange", "3 0 1 =b", "not implemented for 'Bool'", kUnsupported},
      {"aten::linspace.out", "0 1 -1", "number of steps must be non-negative", ErrorKind::kInvalid,
       "f32[0]"},
      {"aten::linspace.Tensor_Tensor", "f32[1] f32[] 3 -",
       "only supports 0-dimensional start and end"},
      {"aten::eye.out", "-1", "n must be greater or equal to 0", ErrorKind::kInvalid, "f32[0]"},
  });
}

TEST(random_types) {
  expect({
      {"aten::uniform", "bf16[3,4] 0 1", "bf16[3,4]"},
      {"aten::uniform", "c64[3] 0 1", "c64[3]"},
      {"aten::normal_", "f32[3] 0 1", "f32[3]"},
      {"aten::normal_functional", "c64[3] 0 1", "c64[3]"},
      {"aten::normal.Tensor_float", "f64[3] 1", "f64[3]"},
      {"aten::normal.float_Tensor", "0 f16[3]", "f16[3]"},
      {"aten::normal.Tensor_Tensor", "f32[3,1] f32[2]", "f32[3,2]"},
      {"aten::bernoulli", "f32[3]", "f32[3]"},
      {"aten::bernoulli.Tensor", "i8[3] f32[3]", "i8[3]"},
      {"aten::bernoulli.p", "b[3] 0.5", "b[3]"},
      {"aten::exponential", "f16[3] 1", "f16[3]"},
      {"aten::geometric", "i64[3] 0.5", "i64[3]"},
      {"aten::cauchy", "f32[3] 0.0 1.0", "f32[3]"},
      {"aten::log_normal", "f64[3] 1.0 2.0", "f64[3]"},
      {"aten::random", "f32[3]", "f32[3]"},
      {"aten::random.to", "i32[3] 7", "i32[3]"},
      {"aten::random.from", "i64[3] -9223372036854775807 -", "i64[3]"},
      {"aten::randperm.generator_out", "9", "i32[9]", "i32[0]"},
      {"aten::multinomial", "f32[3,4] 2 false", "i64[3,2]"},
      {"aten::multinomial", "bf16[4] 9 true", "i64[9]"},
      {"aten::poisson", "bf16[3]", "bf16[3]"},
      {"aten::binomial", "f32[3,1] f32[2]", "f32[3,2]"},
      {"aten::_standard_gamma", "f32[3]", "f32[3]"},
      {"aten::_sample_dirichlet", "f64[3,2]", "f64[3,2]"},
      {"aten::_standard_gamma_grad", "f32[3] f32[3]", "f32[3]"},
      {"aten::_dirichlet_grad", "f32[3] f32[3] f32[3]", "f32[3]"},
  });
  expect_errors({
      {"aten::uniform", "i32[3] 0 1", "not implemented for 'Int'", kUnsupported},
      {"aten::normal_", "b[3] 0 1", "not implemented for 'Bool'", kUnsupported},
      {"aten::geometric", "f32[3] 1.5", "geometric_ expects p to be in (0, 1), but got p=1.5"},
      {"aten::cauchy", "f32[3] 0.0 0.0", "cauchy_ expects sigma > 0.0"},
      {"aten::random.from", "i64[3] 5 2", "got from=5 >= to=2"},
      {"aten::random.to", "i8[3] 200", "to - 1 is out of bounds"},
      {"aten::randperm.generator_out", "300", "without overflow", ErrorKind::kInvalid, "i8[0]"},
      {"aten::multinomial", "f32[4] 5 false", "cannot sample n_sample > prob_dist.size(-1)"},
      {"aten::multinomial", "i64[4] 2 true", "only supports floating-point dtypes"},
      {"aten::_standard_gamma", "f16[3]", "not implemented for 'Half'", kUnsupported},
  });
}

TEST(random_ops_are_declared_random) {
  EXPECT_EQ(infer("aten::multinomial", "f32[4] 9 true").draws, 1);
  EXPECT_EQ(infer("aten::normal_functional", "f32[4] 0 1").draws, 1);
  for (const OpDef& d : registry().all()) {
    const bool gradient = d.name.ends_with("_grad");
    if (d.file.ends_with("random.cpp") || d.file.ends_with("distributions.cpp")) {
      EXPECT_EQ(cat(d.name, " ", d.random), cat(d.name, " ", !gradient));
    } else {
      EXPECT_EQ(cat(d.name, " ", d.random), cat(d.name, " ", false));
    }
  }
}

TEST(indices_are_checked_at_run_time) {
  EXPECT_EQ(infer("aten::index.Tensor", "f32[3,4] {i64[2];i64[2]}").assertions, 2);
  EXPECT_EQ(infer("aten::gather", "f32[3,4] 0 i64[2,4] false").assertions, 1);
  EXPECT_EQ(infer("aten::scatter_add", "f32[3,4] 0 i64[2,4] f32[2,4]").assertions, 1);
  EXPECT_EQ(infer("aten::take", "f32[3,4] i64[2]").assertions, 1);
}

TEST(fft_types) {
  expect({
      {"aten::_fft_c2c", "c64[3,4] (0,1) 2 false", "c64[3,4]"},
      {"aten::_fft_c2c", "c128[2,3,4,5] (0,1,2,3) 0 true", "c128[2,3,4,5]"},
      {"aten::_fft_r2c", "f32[3,5] (0,1) 1 true", "c64[3,3]"},
      {"aten::_fft_r2c", "f64[3,5] (1,0) 1 true", "c128[2,5]"},
      {"aten::_fft_r2c", "f32[3,5] (1) 0 false", "c64[3,5]"},
      {"aten::_fft_c2r", "c64[3,4] (0,1) 0 7", "f32[3,7]"},
  });
  expect_errors({
      {"aten::_fft_c2c", "f32[3] (0) 0 true", "Only supports complex dtypes"},
      {"aten::_fft_r2c", "f16[3] (0) 0 true", "doesn't support tensors of type: Half"},
      {"aten::_fft_r2c", "f32[0] (0) 0 true", "Invalid number of data points (0) specified"},
      {"aten::_fft_c2r", "c64[3] (0) 0 9", "needs 5 points"},
  });
}

void expect_linalg_types() {
  expect({
      {"aten::linalg_cholesky_ex", "f32[2,3,3] false false", "f32[2,3,3] i32[2]"},
      {"aten::linalg_cholesky_ex", "c64[0,0] true false", "c64[0,0] i32[]"},
      {"aten::cholesky", "f64[3,3] true", "f64[3,3]"},
      {"aten::cholesky_inverse", "c64[3,3] false", "c64[3,3]"},
      {"aten::_cholesky_solve_helper", "f32[3,2] f32[3,3] true", "f32[3,2]"},
      {"aten::linalg_solve_triangular", "f32[2,1,3,3] f32[4,5,3] true false true", "f32[2,4,5,3]"},
      {"aten::triangular_solve", "f32[2,3,4] f32[3,3] true false false", "f32[2,3,4] f32[2,3,3]"},
      {"aten::linalg_matrix_exp", "bf16[2,3,3]", "bf16[2,3,3]"},
      {"aten::linalg_lstsq", "f32[5,3] f32[5] - 'gels", "f32[3] f32[1] i64[0] f32[0]"},
      {"aten::linalg_lstsq", "c64[2,3,5] c64[3,4] - 'gelsd", "c64[2,5,4] f32[0] i64[2] f32[2,3]"},
      {"aten::linalg_cross", "i64[4,3] i64[1,3] -1", "i64[4,3]"},
      {"aten::linalg_lu_factor_ex", "c64[2,5,3] true false", "c64[2,5,3] i32[2,3] i32[2]"},
      {"aten::linalg_lu_factor_ex", "f32[200,130] true true", "f32[200,130] i32[130] i32[]"},
      {"aten::linalg_lu", "f32[3,5] true", "f32[3,3] f32[3,3] f32[3,5]"},
      {"aten::lu_unpack", "f32[5,3] i32[3] true true", "f32[5,5] f32[5,3] f32[3,3]"},
      {"aten::linalg_lu_solve", "f32[3,3] i32[3] f32[2,4,3] false true", "f32[2,4,3]"},
      {"aten::linalg_inv_ex", "c128[3,3] false", "c128[3,3] i32[]"},
      {"aten::_linalg_solve_ex", "f32[2,3,3] f32[3] true false",
       "f32[2,3] f32[2,3,3] i32[2,3] i32[2]"},
      {"aten::_linalg_det", "f32[2,3,3]", "f32[2] f32[2,3,3] i32[2,3]"},
      {"tpu::linalg_det", "f32[3,3] false", "f32[] f32[3,3] i32[3]"},
      {"aten::_linalg_slogdet", "c64[0,0]", "c64[] f32[] c64[0,0] i32[0]"},
      {"tpu::linalg_slogdet", "f32[3,3] true", "f32[] f32[] f32[3,3] i32[3]"},
      {"aten::linalg_ldl_factor_ex", "c64[2,3,3] true false", "c64[2,3,3] i32[2,3] i32[2]"},
      {"aten::linalg_ldl_solve", "f32[3,3] i32[3] f32[2,3,4] false", "f32[2,3,4]"},
      {"aten::geqrf", "f32[2,5,3]", "f32[2,5,3] f32[2,3]"},
      {"aten::linalg_eig", "f32[2,3,3]", "c64[2,3] c64[2,3,3]"},
      {"aten::linalg_eig", "c128[0,0]", "c128[0] c128[0,0]"},
      {"aten::_linalg_eigvals", "f64[3,3]", "c128[3]"},
      {"aten::linalg_eigvals.out", "f32[1,1]", "c64[1]"},
      {"aten::linalg_qr", "f32[2,5,3] 'complete", "f32[2,5,5] f32[2,5,3]"},
      {"aten::linalg_qr", "f32[40,70] 'reduced", "f32[40,40] f32[40,70]"},
      {"aten::linalg_qr", "f32[5,3] 'r", "f32[0] f32[3,3]"},
      {"aten::linalg_householder_product", "c64[5,3] c64[2]", "c64[5,3]"},
      {"aten::ormqr", "f32[5,3] f32[3] f32[2,5] false true", "f32[2,5]"},
      {"aten::_linalg_eigh", "c64[2,3,3] 'U true", "f32[2,3] c64[2,3,3]"},
      {"aten::_linalg_eigh", "f64[3,3] 'L false", "f64[3] f64[0]"},
      {"aten::_linalg_svd", "c64[2,5,3] true true -", "c64[2,5,5] f32[2,3] c64[2,3,3]"},
      {"aten::_linalg_svd", "f32[3,5] false true -", "f32[3,3] f32[3] f32[3,5]"},
      {"aten::_linalg_svd", "f32[0,5] true true -", "f32[0,0] f32[0] f32[5,5]"},
  });
}

const ops::Target kLoops, kLapack{.cpu_plugin = true, .lapack = true, .tpu_calls = false},
    kTpu{.cpu_plugin = false, .tpu_calls = true};

TEST(linalg_types) {
  for (const ops::Target t : {kLoops, kLapack, kTpu}) {
    target = t;
    expect_linalg_types();
  }
  target = {};
  expect_errors({
      {"aten::linalg_cholesky_ex", "f32[3,4] false false", "but they are 3 by 4 matrices"},
      {"aten::linalg_cholesky_ex", "i64[3,3] false false",
       "Expected a floating point or complex tensor"},
      {"aten::cholesky", "f16[3,3] false", "\"cholesky_cpu\" not implemented for 'Half'",
       kUnsupported},
      {"aten::linalg_solve_triangular", "f32[3,3] f32[4,3] true true false",
       "Incompatible shapes of A and B for the equation AX = B"},
      {"aten::triangular_solve", "f32[3,3] f64[3,3] true false false",
       "Expected b and A to have the same dtype"},
      {"aten::linalg_lu_solve", "f32[3,3] i64[3] f32[3,1] true false", "scalar type torch.int32"},
      {"aten::_linalg_det", "f32[3,4]", "linalg.det: A must be batches of square matrices"},
      {"aten::linalg_qr", "f32[3,4] 'full", "unrecognized mode 'full'"},
      {"aten::linalg_householder_product", "f32[3,4] f32[3]",
       "greater than or equal to input.shape[-1]"},
      {"aten::_linalg_eigh", "f32[3,3] 'X true", "Expected UPLO argument"},
      {"aten::_linalg_svd", "f32[3,3] true true 'gesvd", "only supported on CUDA"},
      {"aten::linalg_lstsq", "f32[3,4] f32[4,2] - -", "input.size(-2) should match other.size(-2)"},
      {"aten::linalg_cross", "f32[4] f32[4] -1", "must have length 3. Got 4 and 4"},
  });
}

TEST(linalg_custom_calls) {
  const auto calls = [](ops::Target t, const char* op, const char* arguments) {
    target = t;
    const auto names = infer(op, arguments).custom_calls;
    target = {};
    return join(std::vector<std::string>(names.begin(), names.end()), " ");
  };
  const char* lu = "aten::linalg_lu_factor_ex";
  EXPECT_EQ(calls(kLoops, lu, "f32[3,3] true false"), "");
  EXPECT_EQ(calls(kLapack, lu, "f32[3,3] true false"), "torch_tpu.lu_factor");
  EXPECT_EQ(calls(kLapack, lu, "f32[3,3] false false"), "");  // not in LAPACK
  EXPECT_EQ(calls(kLapack, lu, "f32[0,3] true false"), "");
  EXPECT_EQ(calls(kTpu, lu, "f32[3,3] true false"), "LuDecomposition");
  const char* qr = "aten::linalg_qr";
  EXPECT_EQ(calls(kLapack, qr, "f32[5,3] 'complete"),
            "torch_tpu.geqrf torch_tpu.householder_product");
  EXPECT_EQ(calls(kTpu, qr, "f32[5,3] 'complete"), "ProductOfElementaryHouseholderReflectors Qr");
  EXPECT_EQ(calls(kLapack, "aten::_linalg_eigh", "f32[3,3] 'U true"), "torch_tpu.eigh");
  EXPECT_EQ(calls(kTpu, "aten::_linalg_eigh", "f32[3,3] 'U true"), "");
}

// A factorisation is a loop: the program does not grow with the matrix.
TEST(programs_do_not_grow_with_the_matrix) {
  const auto size = [](const char* name, int64_t n, const char* rest) {
    const OpDef* d = registry().find(name);
    hlo::Function f;
    hlo::Builder b(f);
    TypeHost host;
    Context x(b, host, {});
    std::vector<Arg> args{b.parameter({DType::kF32, {n, n}})};
    const auto words = parts(rest, ' ');
    for (size_t i = 0; i < words.size(); ++i)
      args.push_back(parse_arg(b, host, words[i], d->args[i + 1]));
    (void)d->lower(x, args);
    return f.value_count();
  };
  EXPECT_EQ(size("aten::linalg_lu_factor_ex", 100, "true false"),
            size("aten::linalg_lu_factor_ex", 5000, "true false"));
  EXPECT_EQ(size("aten::geqrf", 100, ""), size("aten::geqrf", 5000, ""));
  EXPECT_EQ(size("aten::_linalg_eigh", 10, "'L true"), size("aten::_linalg_eigh", 1000, "'L true"));
}

// Last: all tests above have run.
TEST(zz_every_op_was_called) {
  for (const OpDef& d : registry().all()) {
    if (!called().contains(d.name)) test::report(d.name.c_str(), 0, "no call infers its types");
  }
}

}  // namespace
}  // namespace tpu::aten
