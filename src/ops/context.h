// What a lowering works with: the builder, ATen's rules (promotion, broadcasting, axes), run-time
// scalars, random bits and range checks of indices.
//
// The same lowering runs twice: once on an empty function to learn result types (a bad shape throws
// here, on the user's line), and once more when a window is lowered. Host is what differs between
// the two. Conversions follow PyTorch, not C++ or StableHLO, where they differ.
#pragma once
#include <array>
#include <functional>
#include <initializer_list>
#include <span>
#include <string>
#include <string_view>
#include <unordered_set>
#include <vector>

#include "base/error.h"
#include "ops/attr.h"

namespace tpu::ops {

using NumberCheck = std::function<void(std::span<const Number> operands)>;

// Where operands that are not tensors come from; one for type inference, one for lowering a window.
class Host {
 public:
  virtual ~Host() = default;
  // Rank-0 value of scalar operand `operand`, as `dtype`: one of bool, int32, int64, float32,
  // float64; for a number of kind kComplex, one of complex64, complex128.
  virtual Value scalar(hlo::Builder& b, int32_t operand, DType dtype) = 0;
  // Runs at every call of the op with its scalar operands; what it throws, the call throws.
  virtual void check_numbers(NumberCheck check) = 0;
  // ui64[2]: {seed, offset}. `count` is how many 32-bit draws follow; they use count / 4 (rounded
  // up) consecutive offsets, which no other draw may use.
  virtual Value random_state(hlo::Builder& b, int64_t count) = 0;
  // `violated`: rank-0 bool. Reported at the next sync with the text; `value` (rank-0 int64) goes
  // with it. `spoils`: what the op gives is wrong then, and must not be read.
  virtual void assertion(hlo::Builder& b, Value violated, Value value, ErrorKind kind,
                         std::string text, bool spoils) = 0;
};

// What a program is compiled for: which custom calls exist.
struct Target {
  bool cpu_plugin = true;
  bool lapack = false;     // those of linear algebra that the host answers (aten/linalg.h)
  bool tpu_calls = false;  // those that libtpu has, and no CPU plugin
};

// What an op asserts: the operands of Host::assertion.
struct Assertion {
  Value violated, value;
  ErrorKind kind;
  std::string text;
  bool spoils;
};

// Traced subgraphs, by the number that the key of a control-flow op holds.
class Subgraphs {
 public:
  virtual ~Subgraphs() = default;
  // Of one run: 32-bit random draws, in whole Philox blocks, and how many assertions it makes.
  virtual int64_t draws(int64_t number) const = 0;
  virtual int64_t assertions(int64_t number) const = 0;
  virtual std::vector<Type> result_types(int64_t number) const = 0;
  // Appends its instructions to the open block and gives its results. `random`: ui64[2], the state
  // before its first draw; invalid where it draws nothing.
  virtual Values lower(hlo::Builder& b, int64_t number, const Values& arguments, Value random,
                       Target target, std::vector<Assertion>& assertions) const = 0;
};

// The text with a number in place of "{}".
std::string with_number(std::string text, std::string_view number);

// How a bad index is told; "{}" in the text stands for it.
struct BadIndex {
  ErrorKind kind;
  std::string text;
};
// "index {} is out of bounds for dimension 0 with size 5".
BadIndex out_of_bounds(int64_t dim, int64_t size, ErrorKind kind = ErrorKind::kIndex);

struct ContextOptions {
  hlo::Precision precision = hlo::Precision::kHighest;
  DType default_dtype = DType::kF32;
  Type out_type;  // for out_op
  Target target;
  const Subgraphs* subgraphs = nullptr;
};

class Context {
 public:
  Context(hlo::Builder& builder, Host& host, ContextOptions options)
      : b(builder), host_(host), options_(std::move(options)) {}

  hlo::Builder& b;

  const Type& out_type() const { return options_.out_type; }
  hlo::Precision precision() const { return options_.precision; }
  DType default_dtype() const { return options_.default_dtype; }
  bool on_cpu_plugin() const { return options_.target.cpu_plugin; }
  bool has_lapack() const { return options_.target.lapack; }
  bool has_tpu_calls() const { return options_.target.tpu_calls; }

  // ---- Checks. The text is "reason with values; remedy"; PyTorch's own phrase where its tests
  // match one.
  template <class... P>
  void check(bool ok, const P&... parts) const {
    if (!ok) fail(ErrorKind::kInvalid, cat(parts...));
  }
  template <class... P>
  void check_index(bool ok, const P&... parts) const {  // IndexError
    if (!ok) fail(ErrorKind::kIndex, cat(parts...));
  }
  template <class... P>
  void check_type(bool ok, const P&... parts) const {  // TypeError
    if (!ok) fail(ErrorKind::kType, cat(parts...));
  }
  template <class... P>
  void check_value(bool ok, const P&... parts) const {  // ValueError
    if (!ok) fail(ErrorKind::kValue, cat(parts...));
  }
  template <class... P>
  void check_supported(bool ok, const P&... parts) const {  // NotImplementedError
    if (!ok) fail(ErrorKind::kUnsupported, cat(parts...));
  }

  // ---- Type promotion (torch.result_type: dimension, 0-d and Python-number categories).
  // A Python number that arrived as a 0-d tensor (wrapped number).
  bool is_wrapped(Value v) const { return wrapped_.contains(v.id); }
  void mark_wrapped(Value v) { wrapped_.insert(v.id); }
  // Arguments: any mix of Value, Opt<Value>, Values, Scalar, Opt<Scalar>, Number.
  template <class... A>
  DType promote(const A&... args) const {
    Promotion p;
    (p.see(*this, args), ...);
    return p.result(default_dtype());
  }
  // Integers and bool -> default dtype; floats and complex unchanged.
  DType float_type(DType t) const { return hlo::is_integral(t) ? default_dtype() : t; }
  // sum, prod, cumsum: integers and bool -> int64.
  DType sum_type(DType t) const { return hlo::is_integral(t) ? DType::kI64 : t; }

  // ---- Conversion and broadcasting.
  // As PyTorch converts: to bool is != 0, complex to real drops the imaginary part, float to
  // integer truncates (out of range: as x86 does for int32/int64 where XLA allows), narrowing
  // integers wrap.
  Value convert(Value v, DType t);
  // Integers and bool to the default dtype.
  Value to_float(Value v) { return convert(v, float_type(v.dtype())); }
  // f16, bf16, f8 to f32: what math on v is computed in.
  Value to_compute(Value v) { return convert(v, hlo::compute_type(v.dtype())); }
  // NumPy broadcasting to exactly these dims (right-aligned, size 1 stretches).
  Value broadcast(Value v, const Dims& dims);
  // Common dims, with PyTorch's message on a mismatch.
  Dims broadcast_dims(std::initializer_list<Dims> shapes) const;
  Dims broadcast_dims(const std::vector<Dims>& shapes) const;
  // All converted to t and broadcast to the common dims.
  template <class... V>
  auto broadcast_all(DType t, const V&... v) {
    const Dims d = broadcast_dims({v.dims()...});
    return std::array{broadcast(convert(v, t), d)...};
  }

  // ---- Numbers.
  // Rank-0 value of a run-time scalar as t (through f32/f64/i64, then converted as PyTorch does).
  // A number that t cannot hold is refused where the op is called.
  Value scalar(const Scalar& s, DType t);
  Value scalar(const Number& n, DType t);
  // The same for numbers that PyTorch wraps into tensors: one that t cannot hold wraps or is inf.
  Value wrapped_scalar(const Scalar& s, DType t);
  // The scalar broadcast to v's dims with v's dtype.
  Value scalar_like(const Scalar& s, Value v) { return broadcast(scalar(s, v.dtype()), v.dims()); }
  // `test(number...)` runs where the op is called, on the user's line, and throws what it likes to.
  template <class Test, class... S>
  void check_numbers(Test test, const S&... scalars) {
    if ((scalars.known && ...)) return test(*scalars.known...);
    host_.check_numbers([=](std::span<const Number> operands) {
      test((scalars.known ? *scalars.known : operands[static_cast<size_t>(scalars.operand)])...);
    });
  }
  // The same for one number: it throws `text`, the number in place of "{}", unless `holds`.
  template <class Holds>
  void check_number(const Scalar& s, Holds holds, const std::string& text) {
    check_numbers([=](const Number& n) { TPU_CHECK(holds(n.d), with_number(text, cat(n.d))); }, s);
  }
  // Folded to this very value (OpBuilder::fold); false for a run-time number.
  bool is(const Scalar& s, double value) const {
    return s.known && s.known->d == value && s.known->imag == 0;
  }
  Value constant(DType t, double v) { return b.constant(t, v); }
  Value like(Value v, double c) { return b.splat(v.type(), c); }  // constant c of v's type
  Value zeros(Type t) { return b.splat(std::move(t), 0); }

  // ---- Axes.
  // 0 <= result < rank (rank 0 counts as 1); IndexError "Dimension out of range (expected to be in
  // range of ...".
  int64_t axis(int64_t dim, int64_t rank) const;
  int64_t axis(int64_t dim, Value v) const { return axis(dim, v.rank()); }
  // Normalised, sorted, no duplicates (else error); nullopt or empty: all axes.
  Dims axes(const Opt<Dims>& dims, Value v) const;
  Dims all_axes(Value v) const;
  // dims without the axes, or with 1 at them.
  static Dims reduced(const Dims& dims, const Dims& axes, bool keepdim);

  // ---- Building blocks.
  // Plain reduction in v's own type (callers choose the accumulation type).
  Value reduce(Value v, Value init, const Dims& axes, bool keepdim, Op op);
  Value sum(Value v, const Dims& axes,
            bool keepdim = false);  // accumulates f16/bf16 in f32, gives v's type
  Value max(Value v, const Dims& axes, bool keepdim = false);  // NaN propagates
  Value min(Value v, const Dims& axes, bool keepdim = false);
  Value any(Value v, const Dims& axes, bool keepdim = false);  // v: bool
  Value all(Value v, const Dims& axes, bool keepdim = false);
  Value keep_dims(Value reduced, const Dims& original, const Dims& axes);  // reinsert size-1 axes
  Value unsqueeze(Value v, int64_t dim);
  Value squeeze(Value v, int64_t dim);
  Value is_nan(Value v);  // all false for non-floats; complex: either part
  // dot_general with the context's precision; bf16/f16 accumulate in f32 and are rounded once;
  // integers and bool are exact. Gives the operands' (common) dtype.
  Value dot(Value a, Value b, const hlo::DotDims& d);
  Value matmul(Value a, Value b);  // [.., m, k] x [.., k, n] with equal batch dims, any rank >= 2
  // Elementwise with broadcasting; a and b already have one dtype.
  Value binary(Op op, Value a, Value b);
  Value compare(Cmp c, Value a, Value b);
  Value select(Value pred, Value on_true, Value on_false);  // broadcasts all three

  // ---- Random numbers (only in ops declared .random()).
  Value random_bits(DType unsigned_type, const Dims& dims);  // kU32 or kU64
  Value uniform(DType t, const Dims& dims);                  // [0, 1), as PyTorch's CPU resolution
  Value normal(DType t, const Dims& dims);                   // mean 0, standard deviation 1

  // ---- Index ranges. Reports at the next sync IndexError "index 7 is out of bounds for dimension
  // 0 with size 5". Gives the index with negatives wrapped when `wrap`, clamped into [0, size) so
  // nothing else is touched.
  Value checked_index(Value index, int64_t size, int64_t dim, bool wrap = true);
  // The same for a place that is written: a bad index is `size`, and a scatter leaves it out.
  Value checked_place(Value index, int64_t size, int64_t dim, bool wrap = true);
  // Both with the class and the text of the op.
  Value checked_index(Value index, int64_t size, bool wrap, const BadIndex& error);
  Value checked_place(Value index, int64_t size, bool wrap, const BadIndex& error);
  // General form: text reported when `violated` (any dims, bool) has a true element.
  void assert_none(Value violated, const std::string& text, ErrorKind kind = ErrorKind::kInvalid);

  // ---- Subgraphs.
  const Subgraphs& subgraphs() const;
  // Runs one in the open block, which may be a region; what it asserts is to be carried out of that
  // and reported.
  Values run(int64_t subgraph, const Values& arguments, Value random,
             std::vector<Assertion>& assertions);
  void report(const Assertion& a) {
    host_.assertion(b, a.violated, a.value, a.kind, a.text, a.spoils);
  }
  // ui64[2]: the state before that many 32-bit draws; invalid for none.
  Value random_state(int64_t draws) { return draws > 0 ? host_.random_state(b, draws) : Value(); }

 private:
  Value checked(Value index, int64_t size, bool wrap, const BadIndex& error, bool written);
  struct Promotion {
    // Highest type seen per category: tensors with dims, 0-d tensors, Python numbers.
    Opt<DType> dim, zero, wrapped;
    void add(Opt<DType>& slot, DType t);
    void see(const Context& x, Value v);
    void see(const Context& x, const Opt<Value>& v) {
      if (v) see(x, *v);
    }
    void see(const Context& x, const Values& v) {
      for (const Value& e : v) see(x, e);
    }
    void see(const Context& x, const Scalar& s) { see_kind(x, s.kind); }
    void see(const Context& x, const Opt<Scalar>& s) {
      if (s) see_kind(x, s->kind);
    }
    void see(const Context& x, const Number& n) { see_kind(x, n.kind); }
    void see(const Context& x, const Opt<Number>& n) {
      if (n) see_kind(x, n->kind);
    }
    void see_kind(const Context& x, NumberKind k);
    DType result(DType default_dtype) const;
  };
  Value operand(const Scalar& s, DType t);
  [[noreturn]] static void fail(ErrorKind kind, std::string text);

  Host& host_;
  ContextOptions options_;
  std::unordered_set<int32_t> wrapped_;
};

// torch.promote_types.
DType promote_types(DType a, DType b);
// PyTorch's name in messages: Bool, Byte, Char, Half, Float, ComplexFloat, ...
std::string_view scalar_type_name(DType t);
// The other name: that of the C++ type, as compilers print it.
std::string_view cpp_type_name(DType t);
// Throws "value cannot be converted to type ... without overflow" where c10::overflows does: out of
// range, NaN to integers, an imaginary part to reals. Negative whole numbers wrap into unsigned
// types as far as their magnitude fits; everything fits bool.
void check_fits(const Number& n, DType t);

}  // namespace tpu::ops
