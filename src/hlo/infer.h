// Type rules: operand types and attributes in, result type out; pure functions that know no values.
//
// Each rule checks the constraints that the StableHLO specification gives its op, cited as (C1),
// (C2), ... in infer*.cpp, and throws tpu::Error{kInvalid} where one does not hold. Optional lists
// (strides, dilations, padding) may be empty: ones, or zeros for padding. Shapes of regions are
// checked by `region_results`, their parameters are the builder's business.
#pragma once
#include <optional>
#include <vector>

#include "hlo/builder.h"
#include "hlo/op.h"
#include "hlo/type.h"

namespace tpu::hlo::infer {

using TypeRefs = std::vector<const Type*>;

// Elementwise.
Type unary(Op op, const Type& x);
Type binary(Op op, const Type& a, const Type& b);
Type compare(Cmp c, const Type& a, const Type& b, bool total_order);
Type select(const Type& pred, const Type& on_true, const Type& on_false);
Type clamp(const Type& low, const Type& x, const Type& high);
Type convert(const Type& x, DType to);
Type bitcast_convert(const Type& x, Type to);
Type complex(const Type& real, const Type& imag);
Type real_or_imag(const Type& x);
Type is_finite(const Type& x);
Type reduce_precision(const Type& x, int64_t exponent_bits, int64_t mantissa_bits);

// Shape.
Type iota(Type t, int64_t dim);
Type broadcast_in_dim(const Type& x, Dims dims, const Dims& broadcast_dims);
Type reshape(const Type& x, Dims dims);
Type transpose(const Type& x, const Dims& permutation);
Type reverse(const Type& x, const Dims& dims);
Type slice(const Type& x, const Dims& starts, const Dims& limits, const Dims& strides);
Type dynamic_slice(const Type& x, const TypeRefs& starts, const Dims& sizes);
Type dynamic_update_slice(const Type& x, const Type& update, const TypeRefs& starts);
Type pad(const Type& x, const Type& value, const Dims& low, const Dims& high, const Dims& interior);
Type concatenate(const TypeRefs& types, int64_t dim);

// Contraction, windows, indexing.
Type dot_general(const Type& a, const Type& b, const DotDims& d, DType result);
Type convolution(const Type& lhs, const Type& rhs, const ConvDims& d, const ConvWindow& w,
                 DType result);
std::vector<Type> reduce(const TypeRefs& inputs, const TypeRefs& inits, const Dims& dims);
std::vector<Type> reduce_window(const TypeRefs& inputs, const TypeRefs& inits,
                                const ReduceWindow& w);
Type select_and_scatter(const Type& x, const Type& source, const Type& init, const ReduceWindow& w);
std::vector<Type> sort(const TypeRefs& inputs, int64_t dim);
Type gather(const Type& x, const Type& indices, const GatherDims& d, const Dims& slice_sizes);
std::vector<Type> scatter(const TypeRefs& inputs, const Type& indices, const TypeRefs& updates,
                          const ScatterDims& d);
std::vector<Type> top_k(const Type& x, int64_t k);

// Linear algebra, FFT, random.
Type cholesky(const Type& a);
Type triangular_solve(const Type& a, const Type& b, bool left, char transpose);
Type fft(const Type& x, FftKind kind, const Dims& lengths);
Type rng_bit_generator(RngAlgorithm algorithm, const Type& state, Type bits);

// Collectives; `groups` is the number of members that each group has.
void replica_groups(Op op, const Groups& groups);
Type all_gather(const Type& x, int64_t dim, const Groups& groups);
Type reduce_scatter(const Type& x, int64_t dim, const Groups& groups);
Type all_to_all(const Type& x, int64_t split_dim, int64_t concat_dim, const Groups& groups);
void source_target_pairs(const std::vector<std::pair<int64_t, int64_t>>& pairs);

// The results that a region of `op` must have; `what` names the region in the message.
void region_results(Op op, std::string_view what, const std::vector<Type>& got,
                    const std::vector<Type>& expected);

}  // namespace tpu::hlo::infer
