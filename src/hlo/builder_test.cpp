#include "hlo/builder.h"

#include "base/error.h"
#include "base/test.h"
#include "hlo/print.h"

namespace tpu::hlo {
namespace {

using Values = Builder::Values;

struct Fixture {
  Function f;
  Builder b{f};
  Value x = b.parameter({DType::kF32, {2, 3}});
  size_t size() const { return f.entry().body.size(); }
};

ErrorKind kind_of(const std::function<void()>& body) {
  try {
    body();
  } catch (const Error& e) {
    return e.kind;
  }
  return ErrorKind::kMissingOp;
}

}  // namespace

TEST(builder_leaves_out_no_ops) {
  Fixture s;
  Builder& b = s.b;
  const Value x = s.x;
  const auto same = [&](Value v) { EXPECT_EQ(v.id, x.id); };
  const Value zero = b.constant(DType::kF32, 0), start = b.constant(DType::kI32, 0);
  const size_t before = s.size();
  same(b.convert(x, DType::kF32));
  same(b.bitcast_convert(x, x.type()));
  same(b.reshape(x, {2, 3}));
  same(b.transpose(x, {0, 1}));
  same(b.broadcast_in_dim(x, {2, 3}, {0, 1}));
  same(b.slice(x, {0, 0}, {2, 3}));
  same(b.slice_dim(x, 1, 0, 3));
  same(b.pad(x, zero, {0, 0}, {0, 0}));
  same(b.concatenate({x}, 1));
  same(b.reverse(x, {}));
  same(b.real(x));
  same(b.dynamic_slice(x, {start, start}, {2, 3}));
  same(b.dynamic_update_slice(b.splat(x.type(), 0), x, {start, start}));
  EXPECT_EQ(s.size(), before + 1);
  const Value square = b.parameter({DType::kF32, {2, 2}});
  EXPECT_TRUE(b.broadcast_in_dim(square, {2, 2}, {1, 0}).id != square.id);
  EXPECT_TRUE(b.transpose(square, {1, 0}).id != square.id);
  EXPECT_TRUE(b.pad(square, zero, {1, 0}, {-1, 0}).id != square.id);
}

TEST(builder_dot_reads_through_transposes) {
  Fixture s;
  Builder& b = s.b;
  const auto operands = [&] { return s.f.entry().body.back().operands; };
  const auto dot = [&](Value l, Value r, const DotDims& d) {
    return b.dot_general(l, r, d, Precision::kDefault, DType::kF32);
  };
  const Value w = b.parameter({DType::kF32, {4, 3}});
  const Value y = dot(s.x, b.transpose(w, {1, 0}), {.lhs_contract = {1}, .rhs_contract = {0}});
  EXPECT_EQ(y.dims(), (Dims{2, 4}));
  EXPECT_EQ(operands(), (std::vector<int32_t>{s.x.id, w.id}));
  const Value m = b.parameter({DType::kF32, {5, 2, 3}});
  const DotDims batched{{0}, {0}, {2}, {1}};
  EXPECT_EQ(dot(m, b.transpose(m, {0, 2, 1}), batched).dims(), (Dims{5, 2, 2}));
  EXPECT_EQ(operands(), (std::vector<int32_t>{m.id, m.id}));
  // The order of the result's dims would change, or the batch would not come first.
  const Value t = b.transpose(m, {0, 2, 1}), u = b.transpose(m, {1, 0, 2});
  dot(t, s.x, {.lhs_contract = {1}, .rhs_contract = {1}});
  EXPECT_EQ(operands(), (std::vector<int32_t>{t.id, s.x.id}));
  dot(u, u, {{0}, {0}, {2}, {2}});
  EXPECT_EQ(operands(), (std::vector<int32_t>{u.id, u.id}));
}

TEST(builder_types) {
  Fixture s;
  const Value y = s.b.compare(Cmp::kLt, s.x, s.x);
  EXPECT_EQ(y.type(), (Type{DType::kBool, {2, 3}}));
  EXPECT_EQ(s.b.top_k(s.x, 2)[1].type(), (Type{DType::kI32, {2, 2}}));
  EXPECT_EQ(s.b.reduce(s.x, s.b.constant(DType::kF32, 0), {1}, Op::kAdd).dims(), (Dims{2}));
  EXPECT_EQ(s.b.min_value(DType::kI8).type(), (Type{DType::kI8, {}}));
  EXPECT_THROW_MSG(s.b.min_value(DType::kC64), "no smallest value");
  EXPECT_THROW_MSG(s.b.constant_ints({}, {DType::kI32, {2}}), "needs 2 values, got 0");
}

TEST(builder_keeps_types_while_it_grows) {
  Fixture s;
  const Type* type = s.x.type_ptr;
  for (int i = 0; i < 1000; ++i) s.b.neg(s.x);
  EXPECT_TRUE(type == s.x.type_ptr && type == s.f.value(s.x.id).type_ptr);
}

TEST(builder_refuses_foreign_values) {
  Fixture s, other;
  EXPECT_TRUE(kind_of([&] { s.b.neg(Value{}); }) == ErrorKind::kInternal);
  EXPECT_THROW_MSG(s.b.neg(other.x), "no value of this function");
  EXPECT_THROW_MSG(s.b.neg(Value{}), "optional tensor");
  EXPECT_TRUE(kind_of([&] { s.b.unary(Op::kNot, s.x); }) == ErrorKind::kInvalid);
}

TEST(builder_checks_scopes_of_regions) {
  Fixture s;
  Builder& b = s.b;
  const Value zero = b.constant(DType::kF32, 0);
  EXPECT_THROW_MSG(
      b.reduce({s.x}, {zero}, {0}, [&](const Values& a) { return Values{b.add(a[0], zero)}; }),
      "make constants inside the body");
  Value leaked;
  b.reduce({s.x}, {zero}, {0}, [&](const Values& a) { return Values{leaked = b.add(a[0], a[1])}; });
  EXPECT_THROW_MSG(b.neg(leaked), "region that has ended");
  // Control flow may use what is around it, reductions inside it may not.
  const Value yes = b.constant(DType::kBool, 1);
  const auto pass = [&](const Values&) { return Values{s.x}; };
  EXPECT_EQ(b.if_else(
                 yes, [&](const Values&) { return Values{b.neg(s.x)}; }, pass)[0]
                .type(),
            s.x.type());
  // After a throw the builder is where it was.
  const size_t before = s.size();
  b.neg(s.x);
  EXPECT_EQ(s.size(), before + 1);
}

TEST(builder_checks_results_of_regions) {
  Fixture s;
  Builder& b = s.b;
  const Value zero = b.constant(DType::kF32, 0), yes = b.constant(DType::kBool, 1);
  const auto pass = [&](const Values& a) { return a; };
  EXPECT_THROW_MSG(b.reduce({s.x}, {zero}, {0}, pass), "body of stablehlo.reduce gives 2 values");
  EXPECT_THROW_MSG(b.sort({s.x}, 0, true, [](const Values& a) { return Values{a[0]}; }),
                   "comparator of stablehlo.sort gives float32[]");
  EXPECT_THROW_MSG(b.while_loop({s.x}, pass, pass), "condition of stablehlo.while");
  EXPECT_THROW_MSG(b.while_loop(
                       {s.x}, [&](const Values&) { return Values{yes}; },
                       [&](const Values&) { return Values{zero}; }),
                   "body of stablehlo.while gives float32[]");
  EXPECT_THROW_MSG(b.if_else(
                       yes, [&](const Values&) { return Values{zero}; },
                       [&](const Values&) { return Values{s.x}; }),
                   "else branch");
  EXPECT_THROW_MSG(b.if_else(zero, pass, pass), "rank-0 bool condition, got float32[]");
  EXPECT_THROW_MSG(b.switch_case(zero, {pass}), "rank-0 int32 index");
  EXPECT_THROW_MSG(b.switch_case(b.constant(DType::kI32, 0), {}), "at least one branch");
  EXPECT_THROW_MSG(b.reduce(s.x, zero, {0}, Op::kAnd), "bool or integer");
  EXPECT_THROW_MSG(b.reduce({s.x}, {zero}, {0},
                            [&](const Values& a) {
                              b.parameter({DType::kF32, {}});
                              return Values{a[0]};
                            }),
                   "parameter is made inside a region");
}

TEST(builder_custom_call_and_slice_dim) {
  Fixture s;
  EXPECT_THROW_MSG(s.b.custom_call("", {s.x}, {}), "no target");
  EXPECT_THROW_MSG(s.b.slice_dim(s.x, 2, 0, 1), "dimension 2, out of range for rank 2");
  EXPECT_EQ(s.b.slice_dim(s.x, 1, 0, 3, 2).dims(), (Dims{2, 2}));
}

TEST(function_refuses_overflow) {
  Fixture s;
  const Value v = s.b.constant(DType::kF32, 0);
  EXPECT_THROW_MSG(s.b.broadcast_scalar(v, {int64_t{1} << 40, int64_t{1} << 40}), "64-bit");
}

}  // namespace tpu::hlo
