#include "ops/registry.h"

#include "base/test.h"

namespace tpu::ops {
namespace {

TEST(declaration_gives_the_signature) {
  Registry r;
  r.op("aten::f",
       [](Context&, Value self, const Opt<Value>& w, const Dims& dim, bool, Opt<DType>, Scalar) {
         return std::tuple{self, w.value_or(Value{}), Value{},
                           self.rank() == dim[0] ? self : Value{}};
       })
      .fold("alpha", 1)
      .elementwise();
  const OpDef* d = r.find("aten::f");
  EXPECT_TRUE(d != nullptr);
  const std::vector<ArgKind> expected = {ArgKind::kTensor, ArgKind::kOptTensor, ArgKind::kInts,
                                         ArgKind::kBool,   ArgKind::kOptDType,  ArgKind::kScalar};
  EXPECT_TRUE(d->args == expected);
  EXPECT_EQ(d->num_results, 4);
  EXPECT_EQ(d->id, 0);
  EXPECT_TRUE(!d->returns_list);
  EXPECT_EQ(d->file, "ops/registry_test.cpp");
  EXPECT_EQ(d->folds.size(), 1u);
  EXPECT_TRUE(d->layout == LayoutRule::kElementwise);
  EXPECT_TRUE(r.find("aten::g") == nullptr);
}

TEST(names_are_unique) {
  Registry r;
  r.op("aten::f", [](Context&, Value self) { return self; });
  EXPECT_THROW_MSG(r.op("aten::f", [](Context&, Value self) { return self; }), "declared twice");
  try {
    r.op("aten::f", [](Context&, Value self) { return self; });
  } catch (const Error& e) {
    EXPECT_TRUE(e.kind == ErrorKind::kInternal);
  }
  EXPECT_EQ(r.all().size(), 1u);
}

struct NoHost : Host {
  Value scalar(hlo::Builder& b, int32_t, DType t) override { return b.constant(t, 1); }
  void check_numbers(NumberCheck) override {}
  Value random_state(hlo::Builder& b, int64_t) override { return b.splat({DType::kU64, {2}}, 0); }
  void assertion(hlo::Builder&, Value, Value, ErrorKind, std::string, bool) override {}
};

TEST(arguments_are_unpacked) {
  Registry r;
  r.op("aten::f", [](Context& x, const Values& tensors, const std::vector<Opt<Value>>& indices,
                     const Opt<Dims>& dim, int64_t k, const std::string& mode) {
    x.check(tensors.size() == 2 && indices.size() == 2 && !indices[0] && indices[1], "tensors");
    x.check(!dim && k == 7 && mode == "sum", "attributes");
    return Values{tensors[1]};
  });
  r.out_op("aten::start_out", [](Context& x, Type out, Opt<Scalar> s) {
    x.check(!s, "scalar");
    return x.zeros(out);
  });
  hlo::Function f;
  hlo::Builder b(f);
  NoHost host;
  Context x(b, host,
            {.precision = hlo::Precision::kHighest,
             .default_dtype = DType::kF32,
             .out_type = {DType::kI8, {5}},
             .target = {}});
  const Value p = b.parameter({DType::kF32, {2}}), q = b.parameter({DType::kF32, {3}});
  const OpDef* d = r.find("aten::f");
  EXPECT_TRUE(d->returns_list);
  const Values got = d->lower(x, {Arg{Values{p, q}}, Arg{Values{Value{}, p}}, Arg{Attr{}},
                                  Arg{Attr{int64_t{7}}}, Arg{Attr{std::string("sum")}}});
  EXPECT_EQ(got.size(), 1u);
  EXPECT_EQ(got[0].id, q.id);
  const Values out = r.find("aten::start_out")->lower(x, {Arg{Attr{}}});
  EXPECT_TRUE(out[0].type() == (Type{DType::kI8, {5}}));
  EXPECT_TRUE(r.find("aten::start_out")->form == OpDef::Form::kOut);
}

}  // namespace
}  // namespace tpu::ops
