// The only way to make StableHLO instructions.
//
// Every method checks its operands against the constraints of the StableHLO specification (cited in
// infer.cpp), infers the result type and appends one instruction to the current block, so that text
// and types cannot disagree and a malformed program never reaches a plugin. A failed check throws
// tpu::Error{kInvalid}. Methods that would change nothing (convert to the same type, transpose by
// the identity, ...) give their operand back. Dims are non-negative and already normalised:
// negative axes and broadcasting are ops/context.h's business.
#pragma once
#include <complex>
#include <cstdint>
#include <functional>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "hlo/function.h"

namespace tpu::hlo {

enum class Cmp : uint8_t { kEq, kNe, kGe, kGt, kLe, kLt };
// MXU passes for f32 operands: kDefault 1, kHigh 3, kHighest 6 bfloat16 passes.
enum class Precision : uint8_t { kDefault, kHigh, kHighest };
enum class FftKind : uint8_t { kFft, kIfft, kRfft, kIrfft };
enum class RngAlgorithm : uint8_t { kDefault, kThreeFry, kPhilox };

struct DotDims {
  Dims lhs_batch = {}, rhs_batch = {};
  Dims lhs_contract = {}, rhs_contract = {};
};

// Positions of batch, feature and spatial dims in operand, kernel and result.
struct ConvDims {
  int64_t input_batch = 0, input_feature = 1;
  Dims input_spatial = {};
  int64_t kernel_input_feature = 1, kernel_output_feature = 0;
  Dims kernel_spatial = {};
  int64_t output_batch = 0, output_feature = 1;
  Dims output_spatial = {};
};
struct ConvWindow {
  // Empty: ones, for padding zeros.
  Dims strides = {}, pad_low = {}, pad_high = {}, lhs_dilation = {}, rhs_dilation = {};
  std::vector<bool> reversal = {};  // empty: none
  int64_t feature_groups = 1, batch_groups = 1;
};
struct ReduceWindow {
  Dims sizes, strides = {}, pad_low = {}, pad_high = {}, base_dilation = {}, window_dilation = {};
};
struct GatherDims {
  Dims offset_dims = {}, collapsed_slice_dims = {}, start_index_map = {};
  Dims operand_batching_dims = {}, start_indices_batching_dims = {};
  int64_t index_vector_dim = 0;
};
struct ScatterDims {
  Dims update_window_dims = {}, inserted_window_dims = {}, scatter_dims_to_operand_dims = {};
  Dims input_batching_dims = {}, scatter_indices_batching_dims = {};
  int64_t index_vector_dim = 0;
};
// The processes that a collective runs among: groups of equal size that share no member. Channel 0
// makes the members replica ids. A channel greater than 0 makes them partition ids, for which
// all_gather, all_reduce and reduce_scatter say replica * partitions + partition.
struct Groups {
  std::vector<Dims> members;
  int64_t channel = 0;

  int64_t group_size() const {
    return members.empty() ? 0 : static_cast<int64_t>(members[0].size());
  }
};

class Builder {
 public:
  using Values = std::vector<Value>;
  // Receives the block's arguments, returns the block's results.
  using Region = std::function<Values(const Values& args)>;

  explicit Builder(Function& f) : f_(f), block_(&f.entry()) {}

  Function& function() { return f_; }
  // Entry argument. Only at function level.
  Value parameter(Type t);
  // The first operand of `v` where an instruction `op` of the open block made it, else invalid: for
  // lowerings that read through what their caller had to insert.
  Value operand_of(Value v, Op op) const;
  // What `v` sums to over a dim, where its lowering knows without adding (one element of each row
  // is not 0): a later lowering asks before it adds. Not known: invalid. At function level only.
  void know_sum(Value v, int64_t dim, Value sum) { sums_[{v.id, dim}] = sum; }
  Value known_sum(Value v, int64_t dim) const {
    const auto it = sums_.find({v.id, dim});
    return it != sums_.end() ? it->second : Value();
  }
  // Ends the entry block.
  void finish(const Values& results);
  // Following instructions carry this location ("aten::add, train.py:12"); empty: none.
  void set_location(std::string text);

  // Constants. A number is converted to the element type as a C++ cast would; NaN and inf are kept.
  Value constant(DType t, double v);   // rank 0
  Value constant(DType t, int64_t v);  // rank 0, exact 64-bit
  Value constant(DType t, int v) { return constant(t, static_cast<int64_t>(v)); }
  Value constant(DType t, std::complex<double> v);  // rank 0
  Value splat(Type t, double v);                    // one number everywhere
  Value splat(Type t, int64_t v);
  Value splat(Type t, int v) { return splat(std::move(t), static_cast<int64_t>(v)); }
  Value constant_ints(std::span<const int64_t> values, Type t);  // row-major, integer or bool type
  Value constant_floats(std::span<const double> values, Type t);
  // The elements as they lie in memory, row-major and little-endian; of any type but bool.
  Value constant_bytes(std::string_view bytes, Type t);
  Value iota(Type t, int64_t dim);
  // Smallest / largest value of a type (-inf, inf for floats; false, true for bool), rank 0.
  Value min_value(DType t);
  Value max_value(DType t);

  // Elementwise. Operands have one type.
  // The result has the operand's type, but kIsInf.. give bool and kAbs of complex gives real.
  Value unary(Op op, Value x);
  Value binary(Op op, Value a, Value b);
  Value add(Value a, Value b) { return binary(Op::kAdd, a, b); }
  Value sub(Value a, Value b) { return binary(Op::kSubtract, a, b); }
  Value mul(Value a, Value b) { return binary(Op::kMultiply, a, b); }
  Value div(Value a, Value b) { return binary(Op::kDivide, a, b); }
  Value maximum(Value a, Value b) { return binary(Op::kMaximum, a, b); }
  Value minimum(Value a, Value b) { return binary(Op::kMinimum, a, b); }
  Value logical_and(Value a, Value b) { return binary(Op::kAnd, a, b); }
  Value logical_or(Value a, Value b) { return binary(Op::kOr, a, b); }
  Value logical_not(Value x) { return unary(Op::kNot, x); }
  Value neg(Value x) { return unary(Op::kNegate, x); }
  // Comparison type follows from the element type (FLOAT, SIGNED, UNSIGNED); total order on
  // request.
  Value compare(Cmp c, Value a, Value b, bool total_order = false);
  Value select(Value pred, Value on_true, Value on_false);  // pred: bool, same dims or rank 0
  Value clamp(Value low, Value x, Value high);              // bounds: same type or rank 0
  Value convert(Value x, DType t);  // StableHLO convert: float to int truncates, to bool is != 0
  Value bitcast_convert(Value x, Type t);
  Value complex(Value real, Value imag);
  Value real(Value x);
  Value imag(Value x);
  Value is_finite(Value x);
  Value reduce_precision(Value x, int64_t exponent_bits, int64_t mantissa_bits);

  // Shape.
  Value broadcast_in_dim(Value x, Dims dims, const Dims& broadcast_dims);
  Value broadcast_scalar(Value x, Dims dims) { return broadcast_in_dim(x, std::move(dims), {}); }
  Value reshape(Value x, Dims dims);
  Value transpose(Value x, const Dims& permutation);
  Value reverse(Value x, const Dims& dims);
  Value slice(Value x, const Dims& starts, const Dims& limits, const Dims& strides = {});
  Value slice_dim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride = 1);
  // Starts are rank-0 integers of one type, clamped so that the slice fits.
  Value dynamic_slice(Value x, const Values& starts, const Dims& sizes);
  Value dynamic_update_slice(Value x, Value update, const Values& starts);
  Value pad(Value x, Value value, const Dims& low, const Dims& high, const Dims& interior = {});
  Value concatenate(const Values& values, int64_t dim);

  // Contraction. Result dims: batch, lhs free, rhs free. `result` may be wider than the operands.
  Value dot_general(Value a, Value b, const DotDims& d, Precision p, DType result);
  Value convolution(Value lhs, Value rhs, const ConvDims& d, const ConvWindow& w, Precision p,
                    DType result);

  // Regions. The short form applies one binary op.
  Values reduce(const Values& inputs, const Values& inits, const Dims& dims, const Region& body);
  Value reduce(Value x, Value init, const Dims& dims, Op op);
  Values reduce_window(const Values& inputs, const Values& inits, const ReduceWindow& w,
                       const Region& body);
  Value reduce_window(Value x, Value init, const ReduceWindow& w, Op op);
  // select: two scalars -> bool; scatter: two scalars -> scalar.
  Value select_and_scatter(Value x, Value source, Value init, const ReduceWindow& w, Cmp select,
                           Op scatter);
  // Comparator gets (a0, b0, a1, b1, ...), returns one bool.
  Values sort(const Values& inputs, int64_t dim, bool stable, const Region& comparator);
  Value gather(Value x, Value indices, const GatherDims& d, const Dims& slice_sizes,
               bool sorted = false);
  // Body gets (current..., update...), returns the new values.
  Values scatter(const Values& inputs, Value indices, const Values& updates, const ScatterDims& d,
                 const Region& body, bool sorted = false, bool unique = false);
  // Without an op the update overwrites.
  Value scatter(Value x, Value indices, Value updates, const ScatterDims& d, std::optional<Op> op,
                bool sorted = false, bool unique = false);
  Values while_loop(const Values& init, const Region& cond, const Region& body);
  // Regions without arguments.
  Values if_else(Value pred, const Region& on_true, const Region& on_false);
  // Runs branches[index], the last one for an index out of range; regions without arguments.
  Values switch_case(Value index, const std::vector<Region>& branches);
  Values top_k(Value x, int64_t k);  // along the last dim: values, int32 indices

  // Linear algebra, FFT, random.
  Value cholesky(Value a, bool lower);
  // op(a) x = b (left) or x op(a) = b; transpose: 'N', 'T', 'C'.
  Value triangular_solve(Value a, Value b, bool left, bool lower, bool unit_diagonal,
                         char transpose);
  Value fft(Value x, FftKind kind, const Dims& lengths);
  // state: ui64[2 or 3]; gives {new state, random bits of type t (an unsigned integer type)}.
  std::pair<Value, Value> rng_bit_generator(RngAlgorithm a, Value state, Type t);

  using Attributes = std::vector<std::pair<const char*, Attribute>>;
  // The configuration is a dictionary ({factor = 3.0 : f32}) for api_version 4, else any text. More
  // attributes (layouts, aliases, mhlo.frontend_attributes) may follow.
  Values custom_call(std::string_view target, const Values& operands,
                     const std::vector<Type>& results, std::string backend_config_text = "",
                     bool has_side_effect = false, int api_version = 4, Attributes more = {});
  Values optimization_barrier(const Values& values);

  // Collectives.
  Value all_gather(Value x, int64_t dim, const Groups& groups);
  Value all_reduce(Value x, Op op, const Groups& groups);
  Value reduce_scatter(Value x, int64_t dim, Op op, const Groups& groups);
  // Splits dim `split_dim` among the group and joins what arrives along `concat_dim`.
  Value all_to_all(Value x, int64_t split_dim, int64_t concat_dim, const Groups& groups);
  // Who receives from nobody gets zeros.
  Value collective_permute(Value x,
                           const std::vector<std::pair<int64_t, int64_t>>& source_target_pairs,
                           int64_t channel = 0);
  Value replica_id();    // rank 0, uint32
  Value partition_id();  // rank 0, uint32

 private:
  // Whether a region may use values from outside. XLA compiles the bodies of reductions, sorts and
  // scatters apart, so these may not.
  enum class Capture : uint8_t { kAllowed, kForbidden };

  Value emit(Op op, const Values& operands, Type result, Attributes attributes = {});
  Values emit_multi(Op op, const Values& operands, std::vector<Type> results, Attributes attributes,
                    std::vector<std::unique_ptr<Block>> regions);
  std::unique_ptr<Block> region(const std::vector<Type>& arguments, const Region& body,
                                std::vector<Type>* result_types, Capture capture);
  // A region with two scalars of type t that applies one op.
  std::unique_ptr<Block> binary_region(Op of, DType t, Op op);
  // The region of `of` with the scalar types of a reduction over `types`.
  std::unique_ptr<Block> reduction_region(Op of, const Values& values, const Region& body);
  // The types of operands of `user`, which must be values of this function that are in scope.
  const Type& in(Op user, Value v) const;
  std::vector<const Type*> in(Op user, const Values& values) const;

  Function& f_;
  Block* block_;
  int32_t location_ = -1;
  int32_t first_visible_ = 0;  // values before this one are outside a closed body
  std::map<std::pair<int32_t, int64_t>, Value> sums_;
  std::vector<std::pair<int32_t, int32_t>> closed_;  // values of finished regions: [first, last)
};

}  // namespace tpu::hlo
