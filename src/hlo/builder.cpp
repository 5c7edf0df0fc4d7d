#include "hlo/builder.h"

#include <algorithm>
#include <cmath>
#include <limits>

#include "base/error.h"
#include "hlo/infer.h"
#include "hlo/literal.h"

namespace tpu::hlo {
namespace {

using Values = Builder::Values;
using Regions = std::vector<std::unique_ptr<Block>>;

bool is_identity(const Dims& permutation) {
  for (size_t i = 0; i < permutation.size(); ++i) {
    if (permutation[i] != static_cast<int64_t>(i)) return false;
  }
  return true;
}

bool is_all(const Dims& list, int64_t v) {
  return std::ranges::all_of(list, [v](int64_t x) { return x == v; });
}

DenseInts ones_if_empty(const Dims& list, int64_t rank) {
  return {list.empty() ? Dims(static_cast<size_t>(rank), 1) : list};
}

Raw int32(int64_t v) { return {cat(v, " : i32")}; }

std::vector<Type> scalar_types(const Values& values) {
  std::vector<Type> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back({v.dtype(), {}});
  return types;
}

constexpr const char* kDirections[] = {"EQ", "NE", "GE", "GT", "LE", "LT"};

}  // namespace

// ---- Instructions and regions ----

const Type& Builder::in(Op user, Value v) const {
  const bool ours = v.id >= 0 && v.id < f_.value_count() && f_.value(v.id).type_ptr == v.type_ptr;
  TPU_CHECK(
      ours, ErrorKind::kInternal, user,
      " has an operand that is no value of this function; check that an optional tensor is there");
  TPU_CHECK(v.id >= first_visible_, ErrorKind::kInternal,
            "the body of a reduction, sort or scatter ", "uses the outside value %", v.id, " in ",
            user, "; make constants inside the body");
  if (!closed_.empty()) {
    auto after = std::ranges::upper_bound(closed_, v.id, {}, &std::pair<int32_t, int32_t>::first);
    TPU_CHECK(after == closed_.begin() || v.id >= std::prev(after)->second, ErrorKind::kInternal,
              user, " uses %", v.id, " of a region that has ended; return it from the region");
  }
  return *v.type_ptr;
}

std::vector<const Type*> Builder::in(Op user, const Values& values) const {
  std::vector<const Type*> types;
  types.reserve(values.size());
  for (const Value& v : values) types.push_back(&in(user, v));
  return types;
}

Value Builder::emit(Op op, const Values& operands, Type result, Attributes attributes) {
  Instruction i;
  i.op = op;
  i.operands.reserve(operands.size());
  for (const Value& v : operands) i.operands.push_back(v.id);
  const Value out = f_.make_value(std::move(result));
  i.results.push_back(out.id);
  i.attributes = std::move(attributes);
  i.location = location_;
  block_->body.push_back(std::move(i));
  return out;
}

Values Builder::emit_multi(Op op, const Values& operands, std::vector<Type> results,
                           Attributes attributes, Regions regions) {
  Instruction i;
  i.op = op;
  for (const Value& v : operands) i.operands.push_back(v.id);
  Values out;
  out.reserve(results.size());
  for (Type& t : results) {
    out.push_back(f_.make_value(std::move(t)));
    i.results.push_back(out.back().id);
  }
  i.attributes = std::move(attributes);
  i.regions = std::move(regions);
  i.location = location_;
  block_->body.push_back(std::move(i));
  return out;
}

std::unique_ptr<Block> Builder::region(const std::vector<Type>& arguments, const Region& body,
                                       std::vector<Type>* result_types, Capture capture) {
  auto block = std::make_unique<Block>();
  const int32_t first = f_.value_count();
  // Restores the builder when the body throws, too.
  struct Scope {
    Builder& b;
    Block* block;
    int32_t first_visible;
    ~Scope() {
      b.block_ = block;
      b.first_visible_ = first_visible;
    }
  };
  {
    const Scope scope{*this, block_, first_visible_};
    block_ = block.get();
    if (capture == Capture::kForbidden) first_visible_ = first;
    Values args;
    args.reserve(arguments.size());
    for (const Type& t : arguments) {
      args.push_back(f_.make_value(t));
      block->arguments.push_back(args.back().id);
    }
    for (const Value& v : body(args)) {
      const Type& t = in(Op::kReturn, v);
      block->returns.push_back(v.id);
      if (result_types != nullptr) result_types->push_back(t);
    }
  }
  while (!closed_.empty() && closed_.back().first >= first) closed_.pop_back();
  closed_.emplace_back(first, f_.value_count());
  return block;
}

std::unique_ptr<Block> Builder::binary_region(Op of, DType t, Op op) {
  const Type scalar{t, {}};
  std::vector<Type> results;
  auto block = region(
      {scalar, scalar}, [&](const Values& a) { return Values{binary(op, a[0], a[1])}; }, &results,
      Capture::kForbidden);
  infer::region_results(of, "body", results, {scalar});
  return block;
}

std::unique_ptr<Block> Builder::reduction_region(Op of, const Values& values, const Region& body) {
  const std::vector<Type> scalars = scalar_types(values);
  std::vector<Type> arguments = scalars, results;
  arguments.insert(arguments.end(), scalars.begin(), scalars.end());
  auto block = region(arguments, body, &results, Capture::kForbidden);
  infer::region_results(of, "body", results, scalars);
  return block;
}

Value Builder::parameter(Type t) {
  TPU_CHECK(block_ == &f_.entry(), ErrorKind::kInternal,
            "a parameter is made inside a region; make it at function level");
  const Value v = f_.make_value(std::move(t));
  block_->arguments.push_back(v.id);
  return v;
}

void Builder::finish(const Values& results) {
  TPU_CHECK(block_ == &f_.entry(), ErrorKind::kInternal,
            "a function is finished inside a region; finish it at function level");
  block_->returns.clear();
  for (const Value& v : results) {
    in(Op::kReturn, v);
    block_->returns.push_back(v.id);
  }
}

Value Builder::operand_of(Value v, Op op) const {
  // Numbers of values grow along a block.
  for (auto it = block_->body.rbegin(); it != block_->body.rend(); ++it) {
    if (it->results.empty() || it->results[0] > v.id) continue;
    return it->results[0] == v.id && it->op == op ? f_.value(it->operands[0]) : Value();
  }
  return {};
}

void Builder::set_location(std::string text) {
  location_ = text.empty() ? -1 : f_.add_location(std::move(text));
}

// ---- Constants ----

Value Builder::constant(DType t, double v) { return splat({t, {}}, v); }
Value Builder::constant(DType t, int64_t v) { return splat({t, {}}, v); }

Value Builder::constant(DType t, std::complex<double> v) {
  Type type{t, {}};
  Raw text{dense(type, {{to_element(t, v)}})};
  return emit(Op::kConstant, {}, std::move(type), {{"value", std::move(text)}});
}

Value Builder::splat(Type t, double v) {
  Raw text{dense(t, {{to_element(t.dtype, v)}})};
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::splat(Type t, int64_t v) {
  Raw text{dense(t, {{to_element(t.dtype, v)}})};
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

namespace {

template <class T>
Raw constant_text(std::span<const T> values, const Type& t) {
  TPU_CHECK(static_cast<int64_t>(values.size()) == t.numel(), "a constant of type ", t, " needs ",
            t.numel(), " values, got ", values.size(), "; give one for each element");
  std::vector<Element> elements;
  elements.reserve(values.size());
  for (const T v : values) elements.push_back(to_element(t.dtype, v));
  return {dense(t, elements)};
}

}  // namespace

Value Builder::constant_ints(std::span<const int64_t> values, Type t) {
  Raw text = constant_text(values, t);
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::constant_floats(std::span<const double> values, Type t) {
  Raw text = constant_text(values, t);
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::constant_bytes(std::string_view bytes, Type t) {
  TPU_CHECK(!is_bool(t.dtype) && static_cast<int64_t>(bytes.size()) == t.size_bytes(),
            "a constant of type ", t, " cannot be made of ", bytes.size(), " bytes");
  if (bytes.empty()) return emit(Op::kConstant, {}, t, {{"value", Raw{dense(t, {})}}});
  constexpr char kDigits[] = "0123456789ABCDEF";
  Raw text{"dense<\"0x"};
  text.text.reserve(2 * bytes.size() + 64);
  for (const char c : bytes) {
    const auto byte = static_cast<unsigned char>(c);
    text.text += kDigits[byte >> 4];
    text.text += kDigits[byte & 15];
  }
  text.text += "\"> : ";
  append_mlir(text.text, t);
  return emit(Op::kConstant, {}, std::move(t), {{"value", std::move(text)}});
}

Value Builder::iota(Type t, int64_t dim) {
  return emit(Op::kIota, {}, infer::iota(std::move(t), dim), {{"iota_dimension", dim}});
}

Value Builder::min_value(DType t) {
  TPU_CHECK(!is_complex(t), t, " has no smallest value; use its real or imaginary part");
  if (is_integral(t)) return constant(t, integer_min(t));
  if (t == DType::kF8E8M0FNU) return constant(t, 0x1p-127);
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const bool has_inf = std::isinf(bits_to_double(t, float_to_bits(t, kInf)));
  return constant(t, has_inf ? -kInf : -float_max(t));
}

Value Builder::max_value(DType t) {
  TPU_CHECK(!is_complex(t), t, " has no largest value; use its real or imaginary part");
  if (is_integral(t)) return constant(t, integer_max(t));
  constexpr double kInf = std::numeric_limits<double>::infinity();
  const bool has_inf = std::isinf(bits_to_double(t, float_to_bits(t, kInf)));
  return constant(t, has_inf ? kInf : float_max(t));
}

// ---- Elementwise ----

Value Builder::unary(Op op, Value x) { return emit(op, {x}, infer::unary(op, in(op, x))); }

Value Builder::binary(Op op, Value a, Value b) {
  return emit(op, {a, b}, infer::binary(op, in(op, a), in(op, b)));
}

Value Builder::compare(Cmp c, Value a, Value b, bool total_order) {
  Type result = infer::compare(c, in(Op::kCompare, a), in(Op::kCompare, b), total_order);
  const DType t = a.dtype();
  const char* kind = "SIGNED";
  if (is_float(t) || is_complex(t)) {
    kind = total_order ? "TOTALORDER" : "FLOAT";
  } else if (!is_signed_integer(t)) {
    kind = "UNSIGNED";
  }
  const char* direction = kDirections[static_cast<size_t>(c)];
  return emit(
      Op::kCompare, {a, b}, std::move(result),
      {{"comparison_direction", Raw{cat("#stablehlo<comparison_direction ", direction, ">")}},
       {"compare_type", Raw{cat("#stablehlo<comparison_type ", kind, ">")}}});
}

Value Builder::select(Value pred, Value on_true, Value on_false) {
  constexpr Op kOp = Op::kSelect;
  return emit(kOp, {pred, on_true, on_false},
              infer::select(in(kOp, pred), in(kOp, on_true), in(kOp, on_false)));
}

Value Builder::clamp(Value low, Value x, Value high) {
  constexpr Op kOp = Op::kClamp;
  return emit(kOp, {low, x, high}, infer::clamp(in(kOp, low), in(kOp, x), in(kOp, high)));
}

Value Builder::convert(Value x, DType t) {
  const Type& from = in(Op::kConvert, x);
  if (from.dtype == t) return x;
  return emit(Op::kConvert, {x}, infer::convert(from, t));
}

Value Builder::bitcast_convert(Value x, Type to) {
  const Type& from = in(Op::kBitcastConvert, x);
  if (from == to) return x;
  return emit(Op::kBitcastConvert, {x}, infer::bitcast_convert(from, std::move(to)));
}

Value Builder::complex(Value real, Value imag) {
  constexpr Op kOp = Op::kComplex;
  return emit(kOp, {real, imag}, infer::complex(in(kOp, real), in(kOp, imag)));
}

Value Builder::real(Value x) {
  Type result = infer::real_or_imag(in(Op::kReal, x));
  if (result == x.type()) return x;
  return emit(Op::kReal, {x}, std::move(result));
}

Value Builder::imag(Value x) { return emit(Op::kImag, {x}, infer::real_or_imag(in(Op::kImag, x))); }

Value Builder::is_finite(Value x) {
  return emit(Op::kIsFinite, {x}, infer::is_finite(in(Op::kIsFinite, x)));
}

Value Builder::reduce_precision(Value x, int64_t exponent_bits, int64_t mantissa_bits) {
  constexpr Op kOp = Op::kReducePrecision;
  return emit(kOp, {x}, infer::reduce_precision(in(kOp, x), exponent_bits, mantissa_bits),
              {{"exponent_bits", int32(exponent_bits)}, {"mantissa_bits", int32(mantissa_bits)}});
}

// ---- Shape ----

Value Builder::broadcast_in_dim(Value x, Dims dims, const Dims& broadcast_dims) {
  constexpr Op kOp = Op::kBroadcastInDim;
  Type result = infer::broadcast_in_dim(in(kOp, x), std::move(dims), broadcast_dims);
  if (result == x.type() && is_identity(broadcast_dims)) return x;
  return emit(kOp, {x}, std::move(result), {{"broadcast_dimensions", DenseInts{broadcast_dims}}});
}

Value Builder::reshape(Value x, Dims dims) {
  Type result = infer::reshape(in(Op::kReshape, x), std::move(dims));
  if (result == x.type()) return x;
  return emit(Op::kReshape, {x}, std::move(result));
}

Value Builder::transpose(Value x, const Dims& permutation) {
  Type result = infer::transpose(in(Op::kTranspose, x), permutation);
  if (is_identity(permutation)) return x;
  return emit(Op::kTranspose, {x}, std::move(result), {{"permutation", DenseInts{permutation}}});
}

Value Builder::reverse(Value x, const Dims& dims) {
  Type result = infer::reverse(in(Op::kReverse, x), dims);
  if (dims.empty()) return x;
  return emit(Op::kReverse, {x}, std::move(result), {{"dimensions", DenseInts{dims}}});
}

Value Builder::slice(Value x, const Dims& starts, const Dims& limits, const Dims& strides) {
  Type result = infer::slice(in(Op::kSlice, x), starts, limits, strides);
  if (result == x.type()) return x;
  return emit(Op::kSlice, {x}, std::move(result),
              {{"start_indices", DenseInts{starts}},
               {"limit_indices", DenseInts{limits}},
               {"strides", ones_if_empty(strides, x.rank())}});
}

Value Builder::slice_dim(Value x, int64_t dim, int64_t start, int64_t limit, int64_t stride) {
  const Type& t = in(Op::kSlice, x);
  TPU_CHECK(dim >= 0 && dim < t.rank(), Op::kSlice, " has dimension ", dim,
            ", out of range for rank ", t.rank(), "; use 0 to ", t.rank() - 1);
  Dims starts(t.dims.size(), 0), limits = t.dims, strides(t.dims.size(), 1);
  const auto axis = static_cast<size_t>(dim);
  starts[axis] = start;
  limits[axis] = limit;
  strides[axis] = stride;
  return slice(x, starts, limits, strides);
}

Value Builder::dynamic_slice(Value x, const Values& starts, const Dims& sizes) {
  constexpr Op kOp = Op::kDynamicSlice;
  Type result = infer::dynamic_slice(in(kOp, x), in(kOp, starts), sizes);
  // Starts are clamped so that the slice fits, which leaves only 0 here.
  if (result == x.type()) return x;
  Values operands{x};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit(kOp, operands, std::move(result), {{"slice_sizes", DenseInts{sizes}}});
}

Value Builder::dynamic_update_slice(Value x, Value update, const Values& starts) {
  constexpr Op kOp = Op::kDynamicUpdateSlice;
  Type result = infer::dynamic_update_slice(in(kOp, x), in(kOp, update), in(kOp, starts));
  if (result == update.type()) return update;
  Values operands{x, update};
  operands.insert(operands.end(), starts.begin(), starts.end());
  return emit(kOp, operands, std::move(result));
}

Value Builder::pad(Value x, Value value, const Dims& low, const Dims& high, const Dims& interior) {
  Type result = infer::pad(in(Op::kPad, x), in(Op::kPad, value), low, high, interior);
  if (is_all(low, 0) && is_all(high, 0) && result == x.type()) return x;
  return emit(Op::kPad, {x, value}, std::move(result),
              {{"edge_padding_low", DenseInts{low}},
               {"edge_padding_high", DenseInts{high}},
               {"interior_padding", DenseInts{interior.empty() ? Dims(low.size(), 0) : interior}}});
}

Value Builder::concatenate(const Values& values, int64_t dim) {
  Type result = infer::concatenate(in(Op::kConcatenate, values), dim);
  if (values.size() == 1) return values[0];
  return emit(Op::kConcatenate, values, std::move(result), {{"dimension", dim}});
}

}  // namespace tpu::hlo
