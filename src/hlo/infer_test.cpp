// Each type rule accepts what it should, and refuses at least one thing with the values in the
// text.
#include "hlo/infer.h"

#include "base/error.h"
#include "base/test.h"

namespace tpu::hlo::infer {
namespace {

constexpr DType kB = DType::kBool, kF = DType::kF32, kI = DType::kI32, kC = DType::kC64;
const Type kScalar{kF, {}};

Type f(Dims dims) { return {kF, std::move(dims)}; }
Type i(Dims dims) { return {kI, std::move(dims)}; }

}  // namespace

TEST(infer_unary) {
  EXPECT_EQ(unary(Op::kSine, f({2})), f({2}));
  EXPECT_EQ(unary(Op::kAbs, {kC, {2}}), f({2}));
  EXPECT_EQ(unary(Op::kIsInf, f({2})), (Type{kB, {2}}));
  EXPECT_EQ(unary(Op::kNot, {kB, {2}}), (Type{kB, {2}}));
  EXPECT_THROW_MSG(unary(Op::kSine, i({2})),
                   "stablehlo.sine takes floating or complex elements, got int32[2]");
  EXPECT_THROW_MSG(unary(Op::kAbs, {DType::kU8, {}}), "signed integer");
  EXPECT_THROW_MSG(unary(Op::kNot, f({})), "bool or integer");
  EXPECT_THROW_MSG(unary(Op::kErf, {kC, {}}), "takes floating elements");
  EXPECT_THROW_MSG(unary(Op::kAdd, f({})), "no op of one operand");
}

TEST(infer_binary) {
  EXPECT_EQ(binary(Op::kAdd, {kB, {2}}, {kB, {2}}), (Type{kB, {2}}));
  EXPECT_EQ(binary(Op::kMaximum, {kB, {2}}, {kB, {2}}), (Type{kB, {2}}));
  EXPECT_EQ(binary(Op::kPower, f({2}), f({2})), f({2}));
  EXPECT_THROW_MSG(binary(Op::kAdd, f({2}), f({3})), "got float32[2] and float32[3]");
  EXPECT_THROW_MSG(binary(Op::kAdd, f({2}), i({2})), "operands of one type");
  EXPECT_THROW_MSG(binary(Op::kSubtract, {kB, {}}, {kB, {}}), "got bool[]");
  EXPECT_THROW_MSG(binary(Op::kAnd, f({}), f({})), "bool or integer");
  EXPECT_THROW_MSG(binary(Op::kRemainder, {kC, {}}, {kC, {}}), "integer or floating");
  EXPECT_THROW_MSG(binary(Op::kSine, f({}), f({})), "no op of two operands");
}

TEST(infer_compare_select_clamp) {
  EXPECT_EQ(compare(Cmp::kLt, f({2}), f({2}), true), (Type{kB, {2}}));
  EXPECT_EQ(compare(Cmp::kNe, {kC, {}}, {kC, {}}, false), (Type{kB, {}}));
  EXPECT_THROW_MSG(compare(Cmp::kLt, {kC, {}}, {kC, {}}, false), "complex numbers have no order");
  EXPECT_THROW_MSG(compare(Cmp::kLt, i({}), i({}), true), "total order");
  EXPECT_THROW_MSG(compare(Cmp::kLt, i({}), f({}), false), "int32[] and float32[]");
  EXPECT_EQ(select({kB, {}}, f({2}), f({2})), f({2}));
  EXPECT_THROW_MSG(select({kB, {3}}, f({2}), f({2})), "predicate of sizes [3]");
  EXPECT_THROW_MSG(select(i({2}), f({2}), f({2})), "bool predicate");
  EXPECT_THROW_MSG(select({kB, {2}}, f({2}), i({2})), "branches of one type");
  EXPECT_EQ(clamp(kScalar, f({2}), f({2})), f({2}));
  EXPECT_THROW_MSG(clamp(f({3}), f({2}), kScalar), "bound of sizes [3]");
  EXPECT_THROW_MSG(clamp(i({}), f({2}), kScalar), "int32 and float32");
  EXPECT_THROW_MSG(clamp({kB, {}}, {kB, {}}, {kB, {}}), "got bool[]");
}

TEST(infer_conversions) {
  EXPECT_EQ(convert(f({2}), kI), i({2}));
  EXPECT_EQ(convert(f({2}), kC), (Type{kC, {2}}));
  EXPECT_THROW_MSG(convert({kC, {2}}, kF), "take its real part");
  EXPECT_EQ(bitcast_convert(f({2}), i({2})), i({2}));
  EXPECT_EQ(bitcast_convert(f({2}), {DType::kU8, {2, 4}}), (Type{DType::kU8, {2, 4}}));
  EXPECT_EQ(bitcast_convert({DType::kU8, {2, 4}}, f({2})), f({2}));
  EXPECT_THROW_MSG(bitcast_convert({DType::kU8, {2, 3}}, f({2})), "last dimension of 4");
  EXPECT_THROW_MSG(bitcast_convert(f({2}), i({3})), "has sizes [2], not [3]");
  EXPECT_THROW_MSG(bitcast_convert({kB, {2}}, {DType::kU8, {2}}), "a bool has no bits");
  EXPECT_THROW_MSG(bitcast_convert({kC, {2}}, {DType::kU64, {2}}), "only one is complex");
  EXPECT_EQ(complex(f({2}), f({2})), (Type{kC, {2}}));
  EXPECT_THROW_MSG(complex({DType::kF16, {}}, {DType::kF16, {}}), "float32 or float64 parts");
  EXPECT_EQ(real_or_imag({DType::kC128, {2}}), (Type{DType::kF64, {2}}));
  EXPECT_THROW_MSG(real_or_imag(i({2})), "floating or complex");
  EXPECT_EQ(is_finite(f({2})), (Type{kB, {2}}));
  EXPECT_THROW_MSG(is_finite(i({2})), "takes floating");
  EXPECT_EQ(reduce_precision(f({2}), 5, 0), f({2}));
  EXPECT_THROW_MSG(reduce_precision(f({2}), 0, 3), "got 0 and 3");
}

TEST(infer_iota_broadcast_reshape) {
  EXPECT_EQ(iota(i({2, 3}), 1), i({2, 3}));
  EXPECT_THROW_MSG(iota(i({2, 3}), 2), "out of range for rank 2");
  EXPECT_THROW_MSG(iota({kB, {2}}, 0), "got bool[2]");
  EXPECT_THROW_MSG(iota(i({-1}), 0), "negative size");
  EXPECT_EQ(broadcast_in_dim(f({1, 3}), {4, 3, 2}, {0, 1}), f({4, 3, 2}));
  EXPECT_EQ(broadcast_in_dim(kScalar, {0}, {}), f({0}));
  EXPECT_THROW_MSG(broadcast_in_dim(f({2, 3}), {4, 3}, {0, 1}),
                   "sizes [2, 3] do not broadcast to [4, 3]");
  EXPECT_THROW_MSG(broadcast_in_dim(f({2}), {2, 2}, {2}), "out of range");
  EXPECT_THROW_MSG(broadcast_in_dim(f({2, 2}), {2, 2}, {1, 1}), "twice");
  EXPECT_THROW_MSG(broadcast_in_dim(f({2, 2}), {2, 2}, {1}), "needs 2 broadcast dimensions");
  EXPECT_EQ(reshape(f({2, 3}), {6}), f({6}));
  EXPECT_EQ(reshape(f({0, 3}), {5, 0}), f({5, 0}));
  EXPECT_THROW_MSG(reshape(f({2, 3}), {5}), "float32[2, 3] has 6");
  EXPECT_THROW_MSG(reshape(f({6}), {-2, -3}), "negative size");
}

TEST(infer_transpose_reverse_slice) {
  EXPECT_EQ(transpose(f({2, 3, 4}), {2, 0, 1}), f({4, 2, 3}));
  EXPECT_THROW_MSG(transpose(f({2, 3}), {0, 0}), "twice");
  EXPECT_THROW_MSG(transpose(f({2, 3}), {0}), "needs 2 permutation entries");
  EXPECT_THROW_MSG(transpose(f({2, 3}), {0, -1}), "out of range");
  EXPECT_EQ(reverse(f({2, 3}), {1}), f({2, 3}));
  EXPECT_THROW_MSG(reverse(f({2, 3}), {1, 1}), "twice");
  EXPECT_EQ(slice(f({5, 6}), {1, 0}, {5, 6}, {2, 4}), f({2, 2}));
  EXPECT_EQ(slice(f({5}), {3}, {3}, {}), f({0}));
  EXPECT_EQ(slice(f({5}), {0}, {5}, {int64_t{1} << 62}), f({1}));
  EXPECT_THROW_MSG(slice(f({5}), {2}, {6}, {}), "from 2 to 6 leaves dimension 0 of size 5");
  EXPECT_THROW_MSG(slice(f({5}), {3}, {2}, {}), "from 3 to 2");
  EXPECT_THROW_MSG(slice(f({5}), {0}, {5}, {0}), "positive strides");
  EXPECT_THROW_MSG(slice(f({5}), {}, {5}, {}), "needs 1 starts");
}

TEST(infer_dynamic_slices) {
  const Type x = f({5, 6}), s = i({}), vector = i({1}), wide{DType::kI64, {}};
  EXPECT_EQ(dynamic_slice(x, {&s, &s}, {2, 6}), f({2, 6}));
  EXPECT_THROW_MSG(dynamic_slice(x, {&s}, {2, 6}), "needs 2 start indices");
  EXPECT_THROW_MSG(dynamic_slice(x, {&s, &vector}, {2, 6}), "rank-0 integer starts");
  EXPECT_THROW_MSG(dynamic_slice(x, {&s, &wide}, {2, 6}), "int32 and int64");
  EXPECT_THROW_MSG(dynamic_slice(x, {&s, &s}, {2, 7}), "takes 7 elements of dimension 1 of size 6");
  EXPECT_EQ(dynamic_update_slice(x, f({1, 6}), {&s, &s}), x);
  EXPECT_THROW_MSG(dynamic_update_slice(x, f({6, 6}), {&s, &s}),
                   "6 elements for dimension 0 of size 5");
  EXPECT_THROW_MSG(dynamic_update_slice(x, f({6}), {&s, &s}), "rank 2");
  EXPECT_THROW_MSG(dynamic_update_slice(x, i({1, 1}), {&s, &s}), "float32 and int32");
}

TEST(infer_pad_concatenate) {
  EXPECT_EQ(pad(f({2, 3}), kScalar, {1, -1}, {0, 2}, {2, 0}), f({5, 4}));
  EXPECT_EQ(pad(f({0}), kScalar, {1}, {1}, {5}), f({2}));
  EXPECT_THROW_MSG(pad(f({2}), kScalar, {-2}, {-1}, {}), "takes more than dimension 0 of size 2");
  EXPECT_THROW_MSG(pad(f({2}), kScalar, {0}, {0}, {-1}), "interior");
  EXPECT_THROW_MSG(pad(f({2}), i({}), {0}, {0}, {}), "float32 and int32");
  EXPECT_THROW_MSG(pad(f({2}), f({1}), {0}, {0}, {}), "rank-0 padding value");
  EXPECT_THROW_MSG(pad(f({2}), kScalar, {INT64_MAX}, {1}, {}), "larger than 2^63");
  const Type a = f({2, 3}), b = f({2, 1}), c = f({1, 3}), d = i({2, 3}), e = f({2});
  EXPECT_EQ(concatenate({&a, &b, &a}, 1), f({2, 7}));
  EXPECT_THROW_MSG(concatenate({&a, &c}, 1), "equal other sizes, got [2, 3] and [1, 3]");
  EXPECT_THROW_MSG(concatenate({&a, &d}, 1), "float32 and int32");
  EXPECT_THROW_MSG(concatenate({&a, &e}, 1), "one rank");
  EXPECT_THROW_MSG(concatenate({}, 0), "at least one operand");
  EXPECT_THROW_MSG(concatenate({&a}, 2), "out of range");
}

TEST(infer_dot_general) {
  const DotDims mm{.lhs_contract = {1}, .rhs_contract = {0}};
  EXPECT_EQ(dot_general(f({2, 3}), f({3, 4}), mm, kF), f({2, 4}));
  EXPECT_EQ(
      dot_general({DType::kBF16, {5, 2, 3}}, {DType::kBF16, {3, 5, 4}}, {{0}, {1}, {2}, {0}}, kF),
      f({5, 2, 4}));
  EXPECT_EQ(dot_general(f({2}), f({3}), {}, kF), f({2, 3}));
  EXPECT_THROW_MSG(dot_general(f({2, 3}), f({4, 5}), mm, kF), "inner sizes differ: 3 and 4");
  EXPECT_THROW_MSG(dot_general(f({2, 3}), f({3, 3}), {{0}, {0}, {1}, {1}}, kF),
                   "batch sizes differ: 2 and 3");
  EXPECT_THROW_MSG(dot_general(f({2, 3}), i({3, 4}), mm, kF), "float32 and int32");
  EXPECT_THROW_MSG(dot_general(f({2, 3}), f({3, 4}), mm, kI), "cannot give int32");
  EXPECT_THROW_MSG(dot_general(f({2, 3}), f({3, 4}), mm, DType::kBF16), "cannot give bfloat16");
  EXPECT_THROW_MSG(dot_general(f({2, 3}), f({3, 4}), {.lhs_contract = {1}}, kF), "pair each");
  EXPECT_THROW_MSG(
      dot_general(f({2, 3}), f({3, 4}), {.lhs_contract = {2}, .rhs_contract = {0}}, kF),
      "out of range for rank 2");
  EXPECT_THROW_MSG(dot_general(f({2, 2}), f({2, 2}), {{0}, {0}, {0}, {1}}, kF), "twice");
}

TEST(infer_convolution) {
  ConvDims d;
  d.input_spatial = d.kernel_spatial = d.output_spatial = {2, 3};
  const Type x = f({2, 4, 9, 8}), k = f({6, 2, 3, 2});
  ConvWindow w{.strides = {2, 1}, .pad_low = {1, 0}, .pad_high = {0, 2}, .rhs_dilation = {1, 2}};
  w.feature_groups = 2;
  EXPECT_EQ(convolution(x, k, d, w, kF), f({2, 6, 4, 8}));
  EXPECT_EQ(convolution(f({1, 2, 3, 3}), f({5, 2, 4, 4}), d, {}, kF), f({1, 5, 0, 0}));
  EXPECT_THROW_MSG(convolution(x, k, d, {}, kF),
                   "the kernel takes 2 input channels, the input has 4");
  ConvWindow bad = w;
  bad.strides = {0, 1};
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "positive window strides");
  bad.strides = {1};
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "needs 2 window strides");
  bad = w;
  bad.reversal = {true};
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "window reversals");
  bad = w;
  bad.batch_groups = 2;
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "2 feature groups and 2 batch groups");
  bad = w;
  bad.feature_groups = 3;
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "do not divide by 3 groups");
  bad.feature_groups = 1;
  bad.batch_groups = 4;
  EXPECT_THROW_MSG(convolution(x, k, d, bad, kF), "4 batch groups");
  EXPECT_THROW_MSG(convolution(x, f({6, 2, 3}), d, w, kF), "one rank");
  EXPECT_THROW_MSG(convolution(x, {DType::kF64, k.dims}, d, w, kF), "one element type");
  ConvDims twice = d;
  twice.output_feature = 0;
  EXPECT_THROW_MSG(convolution(x, k, twice, w, kF), "output dimensions");
}

TEST(infer_reductions) {
  const Type x = f({3, 4, 5}), index = i({3, 4, 5}), s = f({}), si = i({}), other = f({3, 4});
  EXPECT_EQ(reduce({&x, &index}, {&s, &si}, {0, 2}), (std::vector<Type>{f({4}), i({4})}));
  EXPECT_THROW_MSG(reduce({&x}, {&s}, {3}), "out of range for rank 3");
  EXPECT_THROW_MSG(reduce({&x}, {&s}, {1, 1}), "twice");
  EXPECT_THROW_MSG(reduce({&x}, {&si}, {1}), "initial value of float32");
  EXPECT_THROW_MSG(reduce({&x}, {}, {1}), "1 operand and 0 initial values");
  EXPECT_THROW_MSG(reduce({&x, &other}, {&s, &s}, {1}), "equal sizes");
  const ReduceWindow w{{1, 2, 3}, {1, 2, 1}, {0, 1, 0}, {0, 0, 2}, {1, 1, 2}, {1, 2, 1}};
  EXPECT_EQ(reduce_window({&x}, {&s}, w)[0], f({3, 2, 9}));
  EXPECT_EQ(reduce_window({&x}, {&s}, {{1, 5, 1}})[0], f({3, 0, 5}));
  EXPECT_THROW_MSG(reduce_window({&x}, {&s}, {{1, 0, 1}}), "positive window sizes");
  EXPECT_THROW_MSG(reduce_window({&x}, {&s}, {{1, 1}}), "needs 3 window sizes");
  EXPECT_THROW_MSG(reduce_window({&x}, {&s}, {{1, 1, 1}, {1}}), "needs 3 window strides");
  const ReduceWindow pool{{2, 2}, {2, 2}};
  EXPECT_EQ(select_and_scatter(f({4, 5}), f({2, 2}), s, pool), f({4, 5}));
  EXPECT_THROW_MSG(select_and_scatter(f({4, 5}), f({2, 3}), s, pool),
                   "float32[2, 2], got float32[2, 3]");
  EXPECT_THROW_MSG(select_and_scatter(f({4, 5}), f({2, 2}), s, {{2, 2}, {2, 2}, {}, {}, {1, 1}}),
                   "no dilations");
}

TEST(infer_sort_top_k) {
  const Type x = f({3, 4}), index = i({3, 4}), other = i({3});
  EXPECT_EQ(sort({&x, &index}, 1), (std::vector<Type>{x, index}));
  EXPECT_THROW_MSG(sort({&x, &other}, 1), "equal sizes");
  EXPECT_THROW_MSG(sort({&x}, 2), "out of range");
  EXPECT_THROW_MSG(sort({}, 0), "at least one");
  EXPECT_EQ(top_k(x, 2), (std::vector<Type>{f({3, 2}), i({3, 2})}));
  EXPECT_THROW_MSG(top_k(x, 5), "takes 5 of 4 elements");
  EXPECT_THROW_MSG(top_k(kScalar, 0), "a dimension to search");
}

TEST(infer_gather) {
  const Type x = f({3, 4, 5}), indices = i({2, 1});
  GatherDims d{.offset_dims = {1, 2},
               .collapsed_slice_dims = {0},
               .start_index_map = {0},
               .index_vector_dim = 1};
  EXPECT_EQ(gather(x, indices, d, {1, 4, 5}), f({2, 4, 5}));
  EXPECT_EQ(gather(x, i({}), {{0, 1, 2}, {}, {1}}, {2, 1, 3}), f({2, 1, 3}));
  EXPECT_THROW_MSG(gather(x, f({2, 1}), d, {1, 4, 5}), "integer indices");
  EXPECT_THROW_MSG(gather(x, indices, d, {1, 4, 6}), "slices of 6 in dimension 2 of size 5");
  EXPECT_THROW_MSG(gather(x, indices, d, {2, 4, 5}), "slices of 2 in dimension 0");
  EXPECT_THROW_MSG(gather(x, indices, d, {1, 4}), "needs 3 slice sizes");
  const auto refused = [&](auto change, std::string_view part) {
    GatherDims bad = d;
    change(bad);
    EXPECT_THROW_MSG(gather(x, indices, bad, {1, 4, 5}), part);
  };
  refused([](GatherDims& g) { g.offset_dims = {1}; }, "names 2 dimensions");
  refused([](GatherDims& g) { g.offset_dims = {2, 1}; }, "ascending order");
  refused([](GatherDims& g) { g.offset_dims = {1, 3}; }, "out of range");
  refused([](GatherDims& g) { g.start_index_map = {0, 1}; }, "index vectors of length 1");
  refused([](GatherDims& g) { g.start_index_map = {3}; }, "mapped dimensions");
  refused([](GatherDims& g) { g.index_vector_dim = 3; }, "index vectors in dimension 3");
  refused([](GatherDims& g) { g.collapsed_slice_dims = {3}; }, "dropped dimensions");
  const GatherDims batched{.collapsed_slice_dims = {1},
                           .start_index_map = {1},
                           .operand_batching_dims = {0},
                           .start_indices_batching_dims = {0},
                           .index_vector_dim = 2};
  EXPECT_EQ(gather(f({5, 6}), i({5, 2, 1}), batched, {1, 1}), f({5, 2}));
  EXPECT_THROW_MSG(gather(f({5, 6}), i({4, 2, 1}), batched, {1, 1}), "batch sizes 5 and 4");
}

TEST(infer_scatter) {
  const Type x = f({3, 4, 5}), indices = i({2, 1}), u = f({2, 4, 5});
  const ScatterDims d{.update_window_dims = {1, 2},
                      .inserted_window_dims = {0},
                      .scatter_dims_to_operand_dims = {0},
                      .index_vector_dim = 1};
  EXPECT_EQ(scatter({&x}, indices, {&u}, d)[0], x);
  const Type long_window = f({2, 4, 6}), batch = f({3, 4, 5}), rank = f({4, 5}),
             wrong = i({2, 4, 5});
  EXPECT_THROW_MSG(scatter({&x}, indices, {&long_window}, d), "windows of sizes [4, 6]");
  EXPECT_THROW_MSG(scatter({&x}, indices, {&batch}, d), "updates of sizes [2, 4, 5]");
  EXPECT_THROW_MSG(scatter({&x}, indices, {&rank}, d), "out of range");
  EXPECT_THROW_MSG(scatter({&x}, indices, {&wrong}, d), "float32 and int32");
  EXPECT_THROW_MSG(scatter({&x, &x}, indices, {&u}, d), "2 operands and 1 update");
  EXPECT_THROW_MSG(scatter({&x}, f({2, 1}), {&u}, d), "integer indices");
  EXPECT_THROW_MSG(scatter({&x, &rank}, indices, {&u, &u}, d), "operands of one shape");
}

TEST(infer_linear_algebra) {
  EXPECT_EQ(cholesky(f({2, 3, 3})), f({2, 3, 3}));
  EXPECT_THROW_MSG(cholesky(f({2, 3})), "2 rows and 3 columns");
  EXPECT_THROW_MSG(cholesky(f({3})), "needs a matrix");
  EXPECT_THROW_MSG(cholesky(i({3, 3})), "floating or complex");
  EXPECT_EQ(triangular_solve(f({3, 3}), f({3, 2}), true, 'N'), f({3, 2}));
  EXPECT_EQ(triangular_solve(f({3, 3}), f({2, 3}), false, 'T'), f({2, 3}));
  EXPECT_THROW_MSG(triangular_solve(f({3, 3}), f({2, 3}), true, 'N'), "2 rows");
  EXPECT_THROW_MSG(triangular_solve(f({4, 3, 3}), f({5, 3, 2}), true, 'N'), "one batch");
  EXPECT_THROW_MSG(triangular_solve(f({3, 3}), {kC, {3, 2}}, true, 'N'), "one element type");
  EXPECT_THROW_MSG(triangular_solve(f({3, 3}), f({3, 2}), true, 'X'), "transpose of 'X'");
}

TEST(infer_fft_rng) {
  EXPECT_EQ(fft(f({2, 6}), FftKind::kRfft, {6}), (Type{kC, {2, 4}}));
  EXPECT_EQ(fft({kC, {2, 4}}, FftKind::kIrfft, {7}), (f({2, 7})));
  EXPECT_EQ(fft({kC, {2, 4}}, FftKind::kFft, {2, 4}), (Type{kC, {2, 4}}));
  EXPECT_THROW_MSG(fft(f({2, 6}), FftKind::kFft, {6}), "takes complex");
  EXPECT_THROW_MSG(fft(i({2, 6}), FftKind::kRfft, {6}), "float32 or float64");
  EXPECT_THROW_MSG(fft(f({2, 6}), FftKind::kRfft, {5}), "needs 5 elements in dimension 1, got 6");
  EXPECT_THROW_MSG(fft({kC, {2, 5}}, FftKind::kIrfft, {6}), "needs 4 elements");
  EXPECT_THROW_MSG(fft(f({2}), FftKind::kRfft, {}), "1 to 3 dimensions");
  const Type bits{DType::kU32, {4}};
  EXPECT_EQ(rng_bit_generator(RngAlgorithm::kPhilox, {DType::kU64, {3}}, bits), bits);
  EXPECT_THROW_MSG(rng_bit_generator(RngAlgorithm::kThreeFry, {DType::kU64, {3}}, bits),
                   "state of 2");
  EXPECT_THROW_MSG(rng_bit_generator(RngAlgorithm::kDefault, {DType::kU32, {2}}, bits),
                   "uint64 state");
  EXPECT_THROW_MSG(rng_bit_generator(RngAlgorithm::kDefault, {DType::kU64, {2}}, f({2})),
                   "unsigned");
}

TEST(infer_collectives) {
  const Groups two{{{0, 1}, {2, 3}}};
  EXPECT_EQ(all_gather(f({4, 3}), 1, two), f({4, 6}));
  EXPECT_EQ(reduce_scatter(f({4, 3}), 0, two), f({2, 3}));
  EXPECT_EQ(all_to_all(f({4, 3}), 0, 1, two), f({2, 6}));
  EXPECT_EQ(all_to_all(f({4, 3}), 0, 0, two), f({4, 3}));
  EXPECT_THROW_MSG(all_gather(f({4}), 1, two), "out of range");
  EXPECT_THROW_MSG(reduce_scatter(f({4, 3}), 1, two), "split dimension 1 of size 3 among 2");
  EXPECT_THROW_MSG(all_to_all(f({4, 3}), 1, 0, two), "split dimension 1 of size 3 among 2");
  EXPECT_THROW_MSG(replica_groups(Op::kAllReduce, {}), "no replica groups");
  EXPECT_THROW_MSG(replica_groups(Op::kAllReduce, {{{0, 1}, {2}}}), "2 and 1 members");
  EXPECT_THROW_MSG(replica_groups(Op::kAllReduce, {{{0, 1}, {1, 2}}}), "once");
  source_target_pairs({{0, 1}, {1, 0}});
  EXPECT_THROW_MSG(source_target_pairs({{0, 1}, {0, 2}}), "sources [0, 0]");
  EXPECT_THROW_MSG(source_target_pairs({{0, 1}, {2, 1}}), "targets [1, 1]");
  EXPECT_THROW_MSG(source_target_pairs({{-1, 1}}), "(-1, 1)");
}

TEST(infer_region_results) {
  region_results(Op::kReduce, "body", {kScalar}, {kScalar});
  EXPECT_THROW_MSG(region_results(Op::kReduce, "body", {kScalar, kScalar}, {kScalar}),
                   "the body of stablehlo.reduce gives 2 values where 1 are needed");
  EXPECT_THROW_MSG(region_results(Op::kSort, "comparator", {kScalar}, {{kB, {}}}),
                   "float32[] for value 0 where bool[] is needed");
}

}  // namespace tpu::hlo::infer
