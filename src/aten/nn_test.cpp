// Infers the result types of every op of the network families (matmul, conv, pool, resample,
// attention, embedding, rnn, quant) in at least one call, and the errors that types alone show.
//
// A case is text: op, arguments, results. Tensors are f32[2,3], lists (1,2), tensor lists
// {f32[2];f32[3]}, an absent argument or result is "-".
#include <map>
#include <set>
#include <sstream>

#include "aten/all.h"
#include "aten/nn.h"
#include "base/test.h"

namespace tpu::aten {
namespace {

using ops::Arg;
using ops::ArgKind;
using ops::Attr;
using ops::Number;
using ops::OpDef;
using ops::Registry;

struct TypeHost : ops::Host {
  int assertions = 0;
  Value scalar(hlo::Builder& b, int32_t, DType t) override { return b.parameter({t, {}}); }
  void check_numbers(ops::NumberCheck) override {}
  Value random_state(hlo::Builder& b, int64_t) override { return b.parameter({DType::kU64, {2}}); }
  void assertion(hlo::Builder&, Value, Value, ErrorKind, std::string, bool) override {
    ++assertions;
  }
};

Registry& registry() {
  static Registry* r = [] {
    auto* made = new Registry;
    register_matmul(*made);
    register_conv(*made);
    register_pool(*made);
    register_resample(*made);
    register_attention(*made);
    register_embedding(*made);
    register_rnn(*made);
    register_quant(*made);
    return made;
  }();
  return *r;
}

std::set<std::string>& seen() {
  static std::set<std::string> names;
  return names;
}

const std::map<std::string, DType>& dtypes() {
  static const std::map<std::string, DType> names{
      {"f32", DType::kF32}, {"f64", DType::kF64}, {"f16", DType::kF16},    {"bf16", DType::kBF16},
      {"i64", DType::kI64}, {"i32", DType::kI32}, {"i8", DType::kI8},      {"u8", DType::kU8},
      {"b", DType::kBool},  {"c64", DType::kC64}, {"f8", DType::kF8E4M3FN}};
  return names;
}

std::string short_name(DType t) {
  for (const auto& [name, dtype] : dtypes()) {
    if (dtype == t) return name;
  }
  return std::string(hlo::torch_name(t));
}

std::vector<std::string> words(const std::string& s, char separator) {
  std::vector<std::string> out;
  std::istringstream in(s);
  for (std::string w; std::getline(in, w, separator);) {
    if (!w.empty()) out.push_back(w);
  }
  return out;
}

Dims parse_dims(const std::string& s) {  // with its brackets
  Dims d;
  for (const auto& w : words(s.substr(1, s.size() - 2), ',')) d.push_back(std::stoll(w));
  return d;
}

struct Call {
  hlo::Function f;
  hlo::Builder b{f};
  TypeHost host;
  ops::Context x{b, host, {}};

  Value tensor(const std::string& s) {
    if (s == "-") return {};
    const size_t open = s.find('[');
    return b.parameter({dtypes().at(s.substr(0, open)), parse_dims(s.substr(open))});
  }

  Arg argument(const OpDef& d, size_t i, const std::string& s) {
    switch (d.args[i]) {
      case ArgKind::kTensor:
      case ArgKind::kOptTensor: return tensor(s);
      case ArgKind::kTensorList: {
        Values v;
        for (const auto& w : words(s.substr(1, s.size() - 2), ';')) v.push_back(tensor(w));
        return v;
      }
      case ArgKind::kScalar: {
        ops::Scalar scalar{
            s.find('.') == std::string::npos ? ops::NumberKind::kInt : ops::NumberKind::kFloat,
            static_cast<int32_t>(i),
            {}};
        if (s.starts_with('=')) scalar.known = Number::of(std::stod(s.substr(1)));  // folded
        return scalar;
      }
      default: break;
    }
    if (s == "-") return Attr{};
    switch (d.args[i]) {
      case ArgKind::kInt:
      case ArgKind::kOptInt: return Attr{int64_t{std::stoll(s)}};
      case ArgKind::kInts:
      case ArgKind::kOptInts: return Attr{parse_dims(s)};
      case ArgKind::kFloat:
      case ArgKind::kOptFloat: return Attr{std::stod(s)};
      case ArgKind::kBool:
      case ArgKind::kOptBool: return Attr{s == "true"};
      case ArgKind::kBools: {
        std::vector<bool> v;
        for (const char c : s) v.push_back(c == '1');
        return Attr{v};
      }
      case ArgKind::kDType:
      case ArgKind::kOptDType: return Attr{dtypes().at(s)};
      default:
        throw std::runtime_error(
            cat("argument ", i, " of ", d.name, " has a kind the test does not know"));
    }
  }

  std::string operator()(const std::string& name, const std::string& arguments) {
    const OpDef* d = registry().find(name);
    if (!d) throw std::runtime_error("no op " + name);
    seen().insert(name);
    const auto given = words(arguments, ' ');
    if (given.size() != d->args.size()) {
      throw std::runtime_error(
          cat(name, " takes ", d->args.size(), " arguments, the case has ", given.size()));
    }
    std::vector<Arg> args;
    for (size_t i = 0; i < given.size(); ++i) args.push_back(argument(*d, i, given[i]));
    std::vector<std::string> results;
    for (const Value& v : d->lower(x, args)) {
      results.push_back(v.valid() ? cat(short_name(v.dtype()), "[", join(v.dims(), ","), "]")
                                  : "-");
    }
    return join(results, " ");
  }

  int count(Op op) const {
    int n = 0;
    for (const auto& i : const_cast<hlo::Function&>(f).entry().body) n += i.op == op;
    return n;
  }
};

struct Case {
  const char *name, *arguments, *results;
};

void check_all(std::initializer_list<Case> cases) {
  for (const Case& c : cases) {
    try {
      const std::string got = Call{}(c.name, c.arguments);
      if (got != c.results) {
        test::report(__FILE__, __LINE__,
                     cat(c.name, " ", c.arguments, " gives ", got, ", expected ", c.results));
      }
    } catch (const std::exception& e) {
      test::report(__FILE__, __LINE__, cat(c.name, " ", c.arguments, " threw ", e.what()));
    }
  }
}

TEST(matmul_types) {
  check_all({
      {"aten::mm", "f32[2,3] f32[3,4]", "f32[2,4]"},
      {"aten::mm", "i8[2,0] i8[0,4]", "i8[2,4]"},
      {"aten::mm.dtype", "bf16[2,3] bf16[3,4] f32", "f32[2,4]"},
      {"aten::bmm", "bf16[5,2,3] bf16[5,3,4]", "bf16[5,2,4]"},
      {"aten::bmm.dtype", "bf16[5,2,3] bf16[5,3,4] f32", "f32[5,2,4]"},
      {"aten::addmm", "f16[4] f16[2,3] f16[3,4] =1 =1", "f16[2,4]"},
      {"aten::addmm.dtype", "f32[4] bf16[2,3] bf16[3,4] f32 1.5 2.5", "f32[2,4]"},
      {"aten::baddbmm", "f32[1,4] f32[5,2,3] f32[5,3,4] =0 2.5", "f32[5,2,4]"},
      {"aten::baddbmm.dtype", "f32[1,4] bf16[5,2,3] bf16[5,3,4] f32 =0 2.5", "f32[5,2,4]"},
      {"aten::addbmm", "f32[2,4] f32[5,2,3] f32[5,3,4] 1.5 2.5", "f32[2,4]"},
      {"aten::addmv", "f64[1] f64[2,3] f64[3] 1.5 2.5", "f64[2]"},
      {"aten::addr", "i64[2,3] f32[2] i64[3] 1 2", "f32[2,3]"},
      {"aten::_addmm_activation", "f32[4] f32[2,3] f32[3,4] =1 =1 true", "f32[2,4]"},
      {"aten::mv", "c64[2,3] c64[3]", "c64[2]"},
      {"aten::_compute_linear_combination", "f32[3,5,5] f32[4,3]", "f32[4,5,5]"},
      {"aten::dot", "i64[3] i64[3]", "i64[]"},
      {"aten::vdot", "c64[3] c64[3]", "c64[]"},
      {"aten::_compute_linear_combination", "f32[3,4,4] f32[2,3]", "f32[2,4,4]"},
      {"aten::_int_mm", "u8[2,3] i8[3,4]", "i32[2,4]"},
      {"aten::_grouped_mm", "bf16[9,4] bf16[3,4,5] i32[3] - -", "bf16[9,5]"},
      {"aten::_grouped_mm", "f32[3,9,4] f32[4,7] i32[3] - -", "f32[9,7]"},
      {"aten::_grouped_mm", "f32[9,4] f32[4,7] i32[3] - -", "f32[3,9,7]"},
      {"aten::_grouped_mm", "f32[3,9,4] f32[3,4,7] - - -", "f32[3,9,7]"},
      {"aten::_scaled_grouped_mm", "f8[9,4] f8[3,4,5] f32[9] f32[3,5] i32[3] - - - false",
       "bf16[9,5]"},
  });
}

TEST(products_skip_what_numbers_make_needless) {
  Call plain;
  plain("aten::addmm", "f32[4] f32[2,3] f32[3,4] =1 =1");
  EXPECT_EQ(plain.count(Op::kMultiply), 0);
  EXPECT_EQ(plain.count(Op::kAdd), 1);
  Call zero_beta;
  zero_beta("aten::addmm", "f32[4] f32[2,3] f32[3,4] =0 2.5");
  EXPECT_EQ(zero_beta.count(Op::kMultiply), 1);
  EXPECT_EQ(zero_beta.count(Op::kAdd), 0);
  Call batches;
  batches("aten::addbmm", "f32[2,4] f32[5,2,3] f32[5,3,4] =1 =1");
  EXPECT_EQ(batches.count(Op::kDotGeneral), 1);
  EXPECT_EQ(batches.count(Op::kTranspose), 0);
}

TEST(convolution_types) {
  check_all({
      {"aten::convolution_overrideable",
       "bf16[2,3,8,8] bf16[6,3,3,3] bf16[6] (2,2) (1,1) (1,1) false (0,0) 1", "bf16[2,6,4,4]"},
      {"aten::convolution_overrideable", "f32[2,4,8] f32[4,3,3] - (2) (1) (1) true (1) 2",
       "f32[2,6,16]"},
      {"aten::convolution_overrideable", "i64[2,4,5,5,5] i64[4,1,3,3,3] - (1) (0) (1) false (0) 4",
       "i64[2,4,3,3,3]"},
      {"aten::convolution_overrideable", "f32[0,4,8] f32[4,4,3] - (1) (1) (1) false (0) 1",
       "f32[0,4,8]"},
      {"aten::convolution_backward_overrideable",
       "f32[2,6,4,4] f32[2,3,8,8] f32[6,3,3,3] (2,2) (1,1) (1,1) false (0,0) 1 111",
       "f32[2,3,8,8] f32[6,3,3,3] f32[6]"},
      {"aten::convolution_backward_overrideable",
       "f32[2,6,16] f32[2,4,8] f32[4,3,3] (2) (1) (1) true (1) 2 010", "- f32[4,3,3] -"},
      {"aten::_slow_conv2d_forward", "f32[2,3,5,5] f32[4,3,3,3] (3,3) f32[4] (1,1) (1,1)",
       "f32[2,4,5,5]"},
      {"aten::_slow_conv2d_backward.output_mask",
       "f32[2,4,5,5] f32[2,3,5,5] f32[4,3,3,3] (3,3) (1,1) (1,1) 110",
       "f32[2,3,5,5] f32[4,3,3,3] -"},
      {"aten::slow_conv3d_forward", "f32[2,3,5,5,5] f32[4,3,3,3,3] (3,3,3) - (1,1,1) (1,1,1)",
       "f32[2,4,5,5,5]"},
      {"aten::slow_conv_dilated2d", "f32[3,5,5] f32[4,3,3,3] (3,3) - (1,1) (0,0) (2,2)",
       "f32[4,1,1]"},
      {"aten::slow_conv_dilated3d",
       "f32[2,3,5,5,5] f32[4,3,3,3,3] (3,3,3) - (1,1,1) (0,0,0) (2,2,2)", "f32[2,4,1,1,1]"},
      {"aten::slow_conv_transpose2d", "f32[2,3,5,5] f32[3,4,3,3] (3,3) - (2,2) (0,0) (1,1) (1,1)",
       "f32[2,4,12,12]"},
      {"aten::slow_conv_transpose3d",
       "f32[2,3,5,5,5] f32[3,4,3,3,3] (3,3,3) - (1,1,1) (0,0,0) (0,0,0) (1,1,1)", "f32[2,4,7,7,7]"},
      {"aten::_conv_depthwise2d", "f32[2,3,5,5] f32[3,1,3,3] (3,3) - (1,1) (1,1) (1,1)",
       "f32[2,3,5,5]"},
      {"aten::conv_depthwise3d", "f32[2,3,5,5,5] f32[3,1,3,3,3] (3,3,3) - (1,1,1) (1,1,1) (1,1,1)",
       "f32[2,3,5,5,5]"},
      {"aten::conv_tbc", "f32[7,2,3] f32[3,3,4] f32[4] 1", "f32[7,2,4]"},
      {"aten::im2col", "f32[2,3,7,6] (3,2) (1,2) (1,0) (2,1)", "f32[2,18,16]"},
      {"aten::im2col", "b[3,70,6] (40,2) (1,1) (0,0) (1,1)", "b[240,155]"},
      {"aten::col2im", "f32[2,18,16] (7,6) (3,2) (1,2) (1,0) (2,1)", "f32[2,3,7,6]"},
      {"aten::unfold_backward", "bf16[2,7,3,4] (2,10,3) 1 4 1", "bf16[2,10,3]"},
      {"aten::unfold_backward", "f32[97,512] (10752) 0 512 128", "f32[10752]"},
      {"aten::unfold_backward", "f32[61,40] (100) 0 40 1", "f32[100]"},
  });
}

TEST(convolution_transposes_nothing) {
  Call c;
  c("aten::convolution_backward_overrideable",
    "f32[2,6,4,4] f32[2,3,8,8] f32[6,3,3,3] (2,2) (1,1) (1,1) false (0,0) 1 111");
  EXPECT_EQ(c.count(Op::kConvolution), 2);
  EXPECT_EQ(c.count(Op::kTranspose), 0);
}

TEST(pool_types) {
  check_all({
      {"aten::max_pool2d_with_indices", "bf16[2,3,7,8] (3,2) () (1,1) (1,1) true",
       "bf16[2,3,3,5] i64[2,3,3,5]"},
      {"aten::max_pool3d_with_indices", "i64[3,7,8,9] (2) (1) (0) (2) false",
       "i64[3,5,6,7] i64[3,5,6,7]"},
      {"aten::max_pool2d_with_indices_backward",
       "f32[2,3,4,4] f32[2,3,8,8] (2,2) (2,2) (0,0) (1,1) false i64[2,3,4,4]", "f32[2,3,8,8]"},
      {"aten::max_pool2d_with_indices_backward",
       "f32[3,2,2] f32[3,8,8] (7,7) (1,1) (0,0) (1,1) false i64[3,2,2]", "f32[3,8,8]"},
      {"aten::max_pool3d_with_indices_backward",
       "f32[2,3,4,4,4] f32[2,3,8,8,8] (2) (2) (0) (1) false i64[2,3,4,4,4]", "f32[2,3,8,8,8]"},
      {"aten::avg_pool2d", "f16[3,7,8] (3,2) () (1,1) true false -", "f16[3,3,5]"},
      {"aten::avg_pool3d", "f32[2,3,4,5,6] (2,2,2) (1,1,1) (0,0,0) false true 3", "f32[2,3,3,4,5]"},
      {"aten::avg_pool2d_backward", "f32[2,3,4,4] f32[2,3,8,8] (2,2) (2,2) (0,0) false true -",
       "f32[2,3,8,8]"},
      {"aten::avg_pool3d_backward", "f32[2,3,2,2,2] f32[2,3,4,4,4] (2) () (0) false true -",
       "f32[2,3,4,4,4]"},
      {"aten::_adaptive_avg_pool2d", "f32[2,3,7,8] (3,4)", "f32[2,3,3,4]"},
      {"aten::_adaptive_avg_pool3d", "bf16[3,6,8,4] (1,1,1)", "bf16[3,1,1,1]"},
      {"aten::adaptive_avg_pool2d.out", "f32[2,3,7,8] (3,4)", "f32[2,3,3,4]"},
      {"aten::adaptive_avg_pool3d.out", "f32[2,3,7,8,9] (3,4,5)", "f32[2,3,3,4,5]"},
      {"aten::_adaptive_avg_pool2d_backward", "f32[2,3,3,4] f32[2,3,7,8]", "f32[2,3,7,8]"},
      {"aten::_adaptive_avg_pool3d_backward", "f32[2,3,3,4,2] f32[2,3,7,8,4]", "f32[2,3,7,8,4]"},
      {"aten::adaptive_avg_pool3d_backward.grad_input", "f32[3,3,4,2] f32[3,7,8,4]",
       "f32[3,7,8,4]"},
      {"aten::adaptive_max_pool2d", "f32[2,3,7,8] (3,4)", "f32[2,3,3,4] i64[2,3,3,4]"},
      {"aten::adaptive_max_pool3d", "f32[2,3,6,8,9] (3,4,3)", "f32[2,3,3,4,3] i64[2,3,3,4,3]"},
      {"aten::adaptive_max_pool2d_backward", "f32[2,3,3,4] f32[2,3,7,8] i64[2,3,3,4]",
       "f32[2,3,7,8]"},
      {"aten::adaptive_max_pool3d_backward", "f32[2,3,3,4,3] f32[2,3,6,8,9] i64[2,3,3,4,3]",
       "f32[2,3,6,8,9]"},
      {"aten::fractional_max_pool2d", "f32[2,3,7,8] (2,3) (3,4) f32[2,3,2]",
       "f32[2,3,3,4] i64[2,3,3,4]"},
      {"aten::fractional_max_pool3d", "f32[2,3,7,8,9] (2,3,2) (3,4,5) f32[2,3,3]",
       "f32[2,3,3,4,5] i64[2,3,3,4,5]"},
      {"aten::fractional_max_pool2d_backward", "f32[2,3,3,4] f32[2,3,7,8] (2,3) (3,4) i64[2,3,3,4]",
       "f32[2,3,7,8]"},
      {"aten::fractional_max_pool3d_backward",
       "f32[2,3,3,4,5] f32[2,3,7,8,9] (2,3,2) (3,4,5) i64[2,3,3,4,5]", "f32[2,3,7,8,9]"},
      {"aten::max_unpool2d", "f32[2,3,3,4] i64[2,3,3,4] (7,8)", "f32[2,3,7,8]"},
      {"aten::max_unpool3d", "f32[3,3,4,2] i64[3,3,4,2] (7,8,4) (2,2,2) (0,0,0)", "f32[3,7,8,4]"},
  });
}

TEST(max_pool_values_do_not_wait_for_indices) {
  Call c;
  c("aten::max_pool2d_with_indices", "f32[2,3,8,8] (2,2) () (0,0) (1,1) false");
  EXPECT_EQ(c.count(Op::kReduceWindow), 2);  // one for the values alone
}

TEST(resample_types) {
  for (const char* prefix : {"aten::upsample_nearest", "aten::_upsample_nearest_exact"}) {
    const std::string p = prefix;
    EXPECT_EQ(Call{}(p + "1d", "f32[2,3,5] (9) -"), "f32[2,3,9]");
    EXPECT_EQ(Call{}(p + "2d", "u8[2,3,5,4] (10,8) 2.0 2.0"), "u8[2,3,10,8]");
    EXPECT_EQ(Call{}(p + "3d", "bf16[2,3,5,4,3] (10,8,7) - - -"), "bf16[2,3,10,8,7]");
    EXPECT_EQ(Call{}(p + "1d_backward", "f32[2,3,9] (9) (2,3,5) -"), "f32[2,3,5]");
    EXPECT_EQ(Call{}(p + "2d_backward", "f32[2,3,10,8] (10,8) (2,3,5,4) - -"), "f32[2,3,5,4]");
    EXPECT_EQ(Call{}(p + "3d_backward", "f32[2,3,10,8,7] (10,8,7) (2,3,5,4,3) - - -"),
              "f32[2,3,5,4,3]");
  }
  check_all({
      {"aten::upsample_linear1d", "f32[2,3,5] (9) false -", "f32[2,3,9]"},
      {"aten::upsample_bilinear2d", "u8[2,3,5,4] (9,7) true - -", "u8[2,3,9,7]"},
      {"aten::upsample_trilinear3d", "f64[2,3,5,4,3] (9,7,6) false - - -", "f64[2,3,9,7,6]"},
      {"aten::upsample_bicubic2d", "bf16[2,3,5,4] (9,7) false 1.5 1.5", "bf16[2,3,9,7]"},
      {"aten::_upsample_bilinear2d_aa", "f32[2,3,50,40] (9,7) false - -", "f32[2,3,9,7]"},
      {"aten::_upsample_bicubic2d_aa", "f32[2,3,90,80] (9,7) false - -", "f32[2,3,9,7]"},
      {"aten::_upsample_lanczos2d_aa", "u8[2,3,50,40] (9,7) false - -", "u8[2,3,9,7]"},
      {"aten::upsample_linear1d_backward", "f32[2,3,9] (9) (2,3,5) false -", "f32[2,3,5]"},
      {"aten::upsample_bilinear2d_backward", "f16[2,3,9,7] (9,7) (2,3,5,4) true - -",
       "f16[2,3,5,4]"},
      {"aten::upsample_trilinear3d_backward", "f32[2,3,9,7,6] (9,7,6) (2,3,5,4,3) false - - -",
       "f32[2,3,5,4,3]"},
      {"aten::upsample_bicubic2d_backward", "f32[2,3,9,7] (9,7) (2,3,5,4) false - -",
       "f32[2,3,5,4]"},
      {"aten::_upsample_bilinear2d_aa_backward", "f32[2,3,9,7] (9,7) (2,3,50,40) false - -",
       "f32[2,3,50,40]"},
      {"aten::_upsample_bicubic2d_aa_backward", "f32[2,3,9,7] (9,7) (2,3,50,40) false - -",
       "f32[2,3,50,40]"},
      {"aten::_upsample_lanczos2d_aa_backward", "f32[2,3,9,7] (9,7) (2,3,50,40) false - -",
       "f32[2,3,50,40]"},
      {"aten::reflection_pad1d", "i64[3,5] (2,-1)", "i64[3,6]"},
      {"aten::reflection_pad2d", "f32[3,5,6] (1,2,3,4)", "f32[3,12,9]"},
      {"aten::reflection_pad3d", "c64[2,3,5,6,7] (1,1,1,1,1,1)", "c64[2,3,7,8,9]"},
      {"aten::replication_pad1d", "f32[3,5] (9,-7)", "f32[3,7]"},
      {"aten::replication_pad2d", "f32[3,5,6] (7,2,3,4)", "f32[3,12,15]"},
      {"aten::replication_pad3d", "f32[2,3,5,6,7] (1,1,1,1,1,1)", "f32[2,3,7,8,9]"},
      {"aten::reflection_pad1d_backward", "f32[3,6] f32[3,5] (2,-1)", "f32[3,5]"},
      {"aten::reflection_pad2d_backward", "f32[3,12,9] f32[3,5,6] (1,2,3,4)", "f32[3,5,6]"},
      {"aten::reflection_pad3d_backward", "f32[2,3,7,8,9] f32[2,3,5,6,7] (1,1,1,1,1,1)",
       "f32[2,3,5,6,7]"},
      {"aten::replication_pad1d_backward", "f32[3,7] f32[3,5] (9,-7)", "f32[3,5]"},
      {"aten::replication_pad2d_backward", "f32[3,12,15] f32[3,5,6] (7,2,3,4)", "f32[3,5,6]"},
      {"aten::replication_pad3d_backward", "f32[2,3,7,8,9] f32[2,3,5,6,7] (1,1,1,1,1,1)",
       "f32[2,3,5,6,7]"},
      {"aten::grid_sampler_2d", "f32[2,3,5,6] f32[2,7,8,2] 2 2 false", "f32[2,3,7,8]"},
      {"aten::grid_sampler_3d", "bf16[2,3,5,6,7] bf16[2,7,8,9,3] 0 1 true", "bf16[2,3,7,8,9]"},
      {"aten::grid_sampler_2d_backward", "f32[2,3,7,8] f32[2,3,5,6] f32[2,7,8,2] 0 0 false 11",
       "f32[2,3,5,6] f32[2,7,8,2]"},
      {"aten::grid_sampler_3d_backward",
       "f32[2,3,7,8,9] f32[2,3,5,6,7] f32[2,7,8,9,3] 1 0 false 01", "- f32[2,7,8,9,3]"},
      {"aten::pixel_shuffle", "b[2,8,3,4] 2", "b[2,2,6,8]"},
      {"aten::pixel_unshuffle", "f32[2,3,4,6] 2", "f32[2,12,2,3]"},
      {"aten::channel_shuffle", "f32[2,6,3,4] 3", "f32[2,6,3,4]"},
  });
}

TEST(resizing_by_whole_factors_gathers_nothing) {
  Call c;
  c("aten::upsample_nearest2d", "f32[2,3,5,4] (10,12) - -");
  EXPECT_EQ(c.count(Op::kGather), 0);
}

TEST(attention_types) {
  check_all({
      {"tpu::scaled_dot_product_attention",
       "bf16[2,8,5,4] bf16[2,2,6,4] bf16[2,2,6,7] - 0.0 false -",
       "bf16[2,8,5,7] f32[2,8,5] i64[] i64[]"},
      {"tpu::scaled_dot_product_attention", "f64[8,5,4] f64[8,6,4] f64[8,6,7] b[5,6] 0.5 false 0.3",
       "f64[8,5,7] f32[1,8,5] i64[] i64[]"},
      {"tpu::scaled_dot_product_attention",
       "f32[2,64,4096,64] f32[2,64,4096,64] f32[2,64,4096,64] - 0.0 true -",
       "f32[2,64,4096,64] f32[2,64,4096] i64[] i64[]"},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward",
       "bf16[2,8,5,7] bf16[2,8,5,4] bf16[2,2,6,4] bf16[2,2,6,7] bf16[8,1,6] 1111 bf16[2,8,5,7] "
       "f32[2,8,5] - - 5 6 0.0 "
       "false i64[] i64[] -",
       "bf16[2,8,5,4] bf16[2,2,6,4] bf16[2,2,6,7] bf16[8,1,6]"},
      {"aten::_scaled_dot_product_fused_attention_overrideable_backward",
       "f32[2,64,4096,64] f32[2,64,4096,64] f32[2,64,4096,64] f32[2,64,4096,64] - 1110 "
       "f32[2,64,4096,64] f32[2,64,4096] - - "
       "4096 4096 0.1 true i64[] i64[] -",
       "f32[2,64,4096,64] f32[2,64,4096,64] f32[2,64,4096,64] -"},
      {"aten::_transform_bias_rescale_qkv", "f32[2,3,24] f32[24] 2",
       "f32[2,2,3,4] f32[2,2,3,4] f32[2,2,3,4]"},
      {"aten::_native_multi_head_attention",
       "f32[2,3,8] f32[2,3,8] f32[2,3,8] 8 2 f32[24,8] f32[24] f32[8,8] f32[8] b[3,3] true false 0",
       "f32[2,3,8] f32[2,2,3,3]"},
      {"aten::_transformer_encoder_layer_fwd",
       "f32[2,3,8] 8 2 f32[24,8] f32[24] f32[8,8] f32[8] true true 1e-5 f32[8] f32[8] f32[8] "
       "f32[8] f32[16,8] f32[16] "
       "f32[8,16] f32[8] b[2,3] 1",
       "f32[2,3,8]"},
  });
  Call small, large;
  small("tpu::scaled_dot_product_attention",
        "f32[1,8,512,64] f32[1,8,512,64] f32[1,8,512,64] - 0.0 true -");
  EXPECT_EQ(small.count(Op::kWhile), 0);
  large("tpu::scaled_dot_product_attention",
        "f32[1,8,8192,64] f32[1,8,8192,64] f32[1,8,8192,64] - 0.0 true -");
  EXPECT_EQ(large.count(Op::kWhile), 1);
}

TEST(embedding_types) {
  check_all({
      {"aten::embedding", "bf16[10,3] i64[2,4] -1 false false", "bf16[2,4,3]"},
      {"aten::embedding", "f32[10,3] i32[] 2 false false", "f32[3]"},
      {"aten::embedding_dense_backward", "bf16[2,4,3] i64[2,4] 10 2 true", "bf16[10,3]"},
      {"aten::embedding_renorm", "f32[10,3] i64[4] 1.5 2.0", "f32[10,3]"},
      {"aten::_embedding_bag", "f32[10,3] i64[8] i64[4] false 0 false f32[8] true -1",
       "f32[3,3] i64[8] i64[4] i64[0]"},
      {"aten::_embedding_bag_forward_only", "f32[10,3] i32[8] i64[4] false 2 false - false 2",
       "f32[4,3] i64[8] i64[4] i64[4,3]"},
      {"aten::_embedding_bag_backward",
       "f32[4,3] i64[8] i64[4] i64[8] i64[4] i64[0] 10 true 1 false - -1", "f32[10,3]"},
      {"aten::_embedding_bag_dense_backward",
       "f32[4,3] i64[8] i64[8] i64[4] i64[4,3] 10 false 2 - -1", "f32[10,3]"},
      {"aten::_embedding_bag_per_sample_weights_backward",
       "f32[4,3] f32[10,3] i64[8] i64[4] i64[8] 0 -1", "f32[8]"},
  });
  Call c;
  c("aten::embedding", "f32[10,3] i64[2,4] -1 false false");
  EXPECT_EQ(c.host.assertions, 1);
}

TEST(rnn_types) {
  check_all({
      {"aten::_thnn_fused_lstm_cell", "bf16[3,20] bf16[3,20] bf16[3,5] bf16[20] bf16[20]",
       "bf16[3,5] bf16[3,5] bf16[3,20]"},
      {"aten::_thnn_fused_lstm_cell_backward_impl", "f32[3,5] - f32[3,5] f32[3,5] f32[3,20] true",
       "f32[3,20] f32[3,5] f32[20]"},
      {"aten::_thnn_fused_lstm_cell_backward_impl", "- - f32[3,5] f32[3,5] f32[3,20] true",
       "- - -"},
      {"aten::_thnn_fused_gru_cell", "f32[3,15] f32[3,15] f32[3,5] - -", "f32[3,5] f32[3,25]"},
      {"aten::_thnn_fused_gru_cell_backward", "f32[3,5] f32[3,25] false",
       "f32[3,15] f32[3,15] f32[3,5] - -"},
  });
}

TEST(quant_types) {
  check_all({
      {"aten::fake_quantize_per_tensor_affine_cachemask", "f16[3,4] 0.1 3 -8 7", "f16[3,4] b[3,4]"},
      {"aten::_fake_quantize_per_tensor_affine_cachemask_tensor_qparams",
       "f32[3,4] f32[1] i32[1] i64[1] -8 7", "f32[3,4] b[3,4]"},
      {"aten::fake_quantize_per_channel_affine_cachemask", "f32[3,4] f32[4] f32[4] 1 -8 7",
       "f32[3,4] b[3,4]"},
      {"aten::_fake_quantize_learnable_per_tensor_affine", "f32[3,4] f32[1] f32[1] -8 7 1.0",
       "f32[3,4]"},
      {"aten::_fake_quantize_learnable_per_tensor_affine_backward",
       "f32[3,4] f32[3,4] f32[1] f32[1] -8 7 1.0", "f32[3,4] f32[1] f32[1]"},
      {"aten::_fake_quantize_learnable_per_channel_affine", "f32[3,4] f32[4] f32[4] 1 -8 7 1.0",
       "f32[3,4]"},
      {"aten::_fake_quantize_learnable_per_channel_affine_backward",
       "f32[3,4] f32[3,4] f32[4] f32[4] 1 -8 7 1.0", "f32[3,4] f32[4] f32[4]"},
      {"aten::_fused_moving_avg_obs_fq_helper",
       "f32[3,4] i64[1] i64[1] f32[0] f32[0] f32[0] i32[0] 0.1 -128 127 0 true false",
       "f32[3] f32[3] f32[3] i32[3] f32[3,4] b[3,4]"},
      {"aten::_fused_moving_avg_obs_fq_helper_functional",
       "f32[3,4] i64[1] i64[1] f32[1] f32[1] f32[1] i32[1] 0.1 -128 127 -1 false true",
       "f32[3,4] b[3,4] f32[1] f32[1] f32[1] i32[1]"},
      {"aten::_weight_int8pack_mm", "bf16[4,32] i8[16,32] bf16[16]", "bf16[4,16]"},
      {"aten::_convert_weight_to_int4pack", "u8[16,64] 4", "i32[2,2,32,2]"},
      {"aten::_weight_int4pack_mm", "bf16[4,128] i32[2,2,32,2] 32 bf16[4,16,2]", "bf16[4,16]"},
      {"aten::_scaled_mm", "f8[16,32] f8[32,8] f32[16,1] f32[1,8] bf16[8] - bf16 false",
       "bf16[16,8]"},
      {"aten::_scaled_mm_v2", "f8[16,32] f8[32,8] {f32[]} (0) (0) {f32[]} (0) (0) - - () false",
       "f8[16,8]"},
  });
}

TEST(errors_say_what_pytorch_says) {
  const auto call = [](const char* name, const char* arguments) { return Call{}(name, arguments); };
  EXPECT_THROW_MSG(call("aten::mm", "f32[2,3] f32[4,5]"),
                   "mat1 and mat2 shapes cannot be multiplied (2x3 and 4x5)");
  EXPECT_THROW_MSG(call("aten::mm", "f32[2,3] f64[3,5]"),
                   "expected m1 and m2 to have the same dtype, but got: float != double");
  EXPECT_THROW_MSG(
      call("aten::bmm", "f32[2,3,4] f32[3,4,5]"),
      "Expected size for first two dimensions of batch2 tensor to be: [2, 4] but got: [3, 4].");
  EXPECT_THROW_MSG(call("aten::addmm", "f32[4] f32[2,3] f32[3,5] 1 1"),
                   "The expanded size of the tensor (5) must match the existing size (4)");
  EXPECT_THROW_MSG(call("aten::convolution_overrideable",
                        "f32[1,4,5,5] f32[4,3,3,3] - (1,1) (0,0) (1,1) false (0,0) 1"),
                   "Given groups=1, weight of size [4, 3, 3, 3], expected input[1, 4, 5, 5] to "
                   "have 3 channels, but got 4 "
                   "channels instead");
  EXPECT_THROW_MSG(call("aten::convolution_overrideable",
                        "f32[1,4,5,5] f32[4,4,6,6] - (1,1) (0,0) (1,1) false (0,0) 1"),
                   "Calculated padded input size per channel: (5 x 5). Kernel size: (6 x 6). "
                   "Kernel size can't be greater "
                   "than actual input size");
  EXPECT_THROW_MSG(
      call("aten::max_pool2d_with_indices", "f32[2,3,5,5] (2,2) (1,1) (2,2) (1,1) false"),
      "pad should be at most half of effective kernel size, but got pad=2, kernel_size=2 and "
      "dilation=1");
  EXPECT_THROW_MSG(call("aten::avg_pool2d", "f32[2,3,5,5] (2,2) () (0,0) false true 0"),
                   "divisor must be not zero");
  EXPECT_THROW_MSG(call("aten::upsample_bilinear2d", "f32[2,3,5,5] (0,9) false - -"),
                   "Input and output sizes should be greater than 0, but got input (H: 5, W: 5) "
                   "output (H: 0, W: 9)");
  EXPECT_THROW_MSG(call("aten::grid_sampler_2d", "f32[2,3,5,5] f32[1,4,4,2] 0 0 false"),
                   "expected grid and input to have same batch size");
  EXPECT_THROW_MSG(call("aten::embedding", "f32[10,3] f32[2] -1 false false"),
                   "Expected tensor for argument #1 'indices' to have one of the following scalar "
                   "types: Long, Int; but "
                   "got torch.FloatTensor instead");
  EXPECT_THROW_MSG(call("tpu::scaled_dot_product_attention",
                        "f32[2,4,5,4] f32[2,3,6,4] f32[2,3,6,4] - 0.0 false -"),
                   "Number of heads in key and value must divide the number of heads in query");
  EXPECT_THROW_MSG(call("aten::_grouped_mm", "f32[9,4] f32[3,4,5] - - -"),
                   "Have to provide offsets");
}

// For a TPU: the types that products are made of.
struct TpuProduct {
  hlo::Function f;
  hlo::Builder b{f};
  TypeHost host;
  ops::Context x{b, host, for_tpu()};

  static ops::ContextOptions for_tpu() {
    ops::ContextOptions o;
    o.target.cpu_plugin = false;
    return o;
  }

  Value parameter(Dims d, DType t = DType::kBF16) { return b.parameter({t, std::move(d)}); }
  Value run(const char* op, Value l, Value r) {
    const std::vector<Arg> args{l, r};
    return registry().find(op)->lower(x, args)[0];
  }
  // Types of the last dot's operands and result.
  std::string dot() const {
    for (auto it = f.entry().body.rbegin(); it != f.entry().body.rend(); ++it) {
      if (it->op != Op::kDotGeneral) continue;
      return cat(hlo::to_string(f.type(it->operands[0])), " ",
                 hlo::to_string(f.type(it->operands[1])), " ",
                 hlo::to_string(f.type(it->results[0])));
    }
    return "none";
  }
};

TEST(tpu_products_keep_the_rows_that_were_merged) {
  TpuProduct p;
  const Value x = p.parameter({2, 3, 4}), w = p.parameter({4, 5});
  const Value rows = p.b.reshape(x, {6, 4});
  EXPECT_EQ(p.run("aten::mm", rows, w).dims(), (Dims{6, 5}));
  EXPECT_EQ(p.dot(), "bfloat16[2, 3, 4] bfloat16[4, 5] bfloat16[2, 3, 5]");
  // A weight's gradient: summed over both.
  const Value grad = p.b.reshape(p.parameter({2, 3, 5}), {6, 5});
  EXPECT_EQ(p.run("aten::mm", p.b.transpose(grad, {1, 0}), rows).dims(), (Dims{5, 4}));
  EXPECT_EQ(p.dot(), "bfloat16[2, 3, 5] bfloat16[2, 3, 4] bfloat16[5, 4]");
  // Rows that were merged differently stay merged.
  const Value other = p.b.reshape(p.parameter({3, 2, 5}), {6, 5});
  p.run("aten::mm", p.b.transpose(other, {1, 0}), rows);
  EXPECT_EQ(p.dot(), "bfloat16[6, 5] bfloat16[6, 4] bfloat16[5, 4]");
  // Heads that become columns at the same time.
  p.run("aten::mm", p.b.reshape(p.parameter({2, 3, 2, 2}), {6, 4}), w);
  EXPECT_EQ(p.dot(), "bfloat16[2, 3, 4] bfloat16[4, 5] bfloat16[2, 3, 5]");
  // A reshape that mixes rows and columns is no merge.
  const Value mixed = p.b.reshape(p.parameter({2, 2, 6}), {6, 4});
  p.run("aten::mm", mixed, w);
  EXPECT_EQ(p.dot(), "bfloat16[6, 4] bfloat16[4, 5] bfloat16[6, 5]");
}

TEST(tpu_batched_products_keep_the_batch_that_was_merged) {
  TpuProduct p;
  const Value q = p.b.reshape(p.parameter({2, 3, 4, 5}), {6, 4, 5});
  const Value k = p.b.reshape(p.parameter({2, 3, 5, 7}), {6, 5, 7});
  EXPECT_EQ(p.run("aten::bmm", q, k).dims(), (Dims{6, 4, 7}));
  EXPECT_EQ(p.dot(), "bfloat16[2, 3, 4, 5] bfloat16[2, 3, 5, 7] bfloat16[2, 3, 4, 7]");
  p.run("aten::bmm", q, p.parameter({6, 5, 7}));
  EXPECT_EQ(p.dot(), "bfloat16[6, 4, 5] bfloat16[6, 5, 7] bfloat16[6, 4, 7]");
}

// Runs after the others (definition order).
TEST(every_op_was_called) {
  for (const OpDef& d : registry().all()) {
    EXPECT_TRUE(seen().contains(d.name) ||
                (std::printf("not called: %s\n", d.name.c_str()), false));
  }
}

}  // namespace
}  // namespace tpu::aten
