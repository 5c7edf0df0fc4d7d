// Matrix products. Every product is one dot_general on the operands as they lie; alpha and beta are
// applied to the sums before they are rounded.
#include "aten/all.h"
#include "aten/nn.h"

namespace tpu::aten {

namespace {

// An operand as [batch, free, contract] or [batch, contract, free], by a reshape alone. No batch:
// its product is 1.
struct Matrices {
  Dims dims;
  int64_t contract;
  bool has_batch;
  Dims free;  // sizes of the free dims that were merged
};

Opt<Matrices> as_matrices(Value v, const Dims& batch, const Dims& contract) {
  int64_t batches = 1, inner = 1, outer = 1;
  for (size_t i = 0; i < batch.size(); ++i) {
    if (batch[i] != static_cast<int64_t>(i)) return std::nullopt;
    batches *= v.dim(batch[i]);
  }
  if (contract.empty()) return std::nullopt;
  for (size_t i = 0; i < contract.size(); ++i) {
    if (contract[i] != contract[0] + static_cast<int64_t>(i)) return std::nullopt;
    inner *= v.dim(contract[i]);
  }
  const auto first_free = static_cast<int64_t>(batch.size());
  const bool contract_first = contract[0] == first_free;
  if (!contract_first && contract.back() != v.rank() - 1) return std::nullopt;
  Matrices m;
  for (int64_t i = first_free; i < v.rank(); ++i) {
    if (i >= contract[0] && i <= contract.back()) continue;
    m.free.push_back(v.dim(i));
    outer *= v.dim(i);
  }
  m.has_batch = batches != 1;
  if (m.has_batch) m.dims.push_back(batches);
  m.contract = static_cast<int64_t>(m.dims.size()) + (contract_first ? 0 : 1);
  m.dims.push_back(contract_first ? inner : outer);
  m.dims.push_back(contract_first ? outer : inner);
  return m;
}

// Products summed without a dot: TPU compilers have none for 64-bit integers.
Value summed_products(Ctx& x, Value lhs, Value rhs, const hlo::DotDims& d) {
  const auto contains = [](const Dims& list, int64_t i) {
    return std::find(list.begin(), list.end(), i) != list.end();
  };
  Dims all, left(at(lhs.rank())), right(at(rhs.rank())), summed;
  const auto add = [&](int64_t size) {
    all.push_back(size);
    return static_cast<int64_t>(all.size()) - 1;
  };
  for (size_t i = 0; i < d.lhs_batch.size(); ++i) {
    left[at(d.lhs_batch[i])] = right[at(d.rhs_batch[i])] = add(lhs.dim(d.lhs_batch[i]));
  }
  for (int64_t i = 0; i < lhs.rank(); ++i) {
    if (!contains(d.lhs_batch, i) && !contains(d.lhs_contract, i)) left[at(i)] = add(lhs.dim(i));
  }
  for (int64_t i = 0; i < rhs.rank(); ++i) {
    if (!contains(d.rhs_batch, i) && !contains(d.rhs_contract, i)) right[at(i)] = add(rhs.dim(i));
  }
  for (size_t i = 0; i < d.lhs_contract.size(); ++i) {
    summed.push_back(add(lhs.dim(d.lhs_contract[i])));
    left[at(d.lhs_contract[i])] = right[at(d.rhs_contract[i])] = summed.back();
  }
  // broadcast_in_dim wants operand dims in the order of the result's.
  const auto spread = [&](Value v, const Dims& to) {
    Dims order = x.all_axes(v), map;
    std::sort(order.begin(), order.end(),
              [&](int64_t a, int64_t b) { return to[at(a)] < to[at(b)]; });
    for (const int64_t i : order) map.push_back(to[at(i)]);
    return x.b.broadcast_in_dim(x.b.transpose(v, order), all, map);
  };
  return x.sum(x.b.mul(spread(lhs, left), spread(rhs, right)), summed);
}

}  // namespace

Value wide_dot(Ctx& x, Value lhs, Value rhs, const hlo::DotDims& d) {
  const DType t = lhs.dtype();
  if (!x.on_cpu_plugin() && (t == DType::kI64 || t == DType::kU64) && t == rhs.dtype()) {
    return summed_products(x, lhs, rhs, d);
  }
  if (!is_narrow(t) || t != rhs.dtype()) return x.dot(lhs, rhs, d);
  const auto p = t == DType::kF16 ? x.precision() : hlo::Precision::kDefault;
  if (!x.on_cpu_plugin()) return x.b.dot_general(lhs, rhs, d, p, DType::kF32);
  // XLA's CPU dot takes narrow operands with wide sums in some forms only, and fails at run time in
  // others (a batch of one, several free dims on the right). Plain (batches of) matrices are safe
  // and use the processor's bf16 instructions; all else is done in float32.
  const auto left = as_matrices(lhs, d.lhs_batch, d.lhs_contract);
  const auto right = as_matrices(rhs, d.rhs_batch, d.rhs_contract);
  if (!left || !right) {
    return x.dot(x.b.convert(lhs, DType::kF32), x.b.convert(rhs, DType::kF32), d);
  }
  hlo::DotDims plain{.lhs_contract = {left->contract}, .rhs_contract = {right->contract}};
  if (left->has_batch) plain.lhs_batch = plain.rhs_batch = {0};
  const Value r = x.b.dot_general(x.b.reshape(lhs, left->dims), x.b.reshape(rhs, right->dims),
                                  plain, p, DType::kF32);
  Dims result;
  for (const int64_t i : d.lhs_batch) result.push_back(lhs.dim(i));
  result.insert(result.end(), left->free.begin(), left->free.end());
  result.insert(result.end(), right->free.begin(), right->free.end());
  return x.b.reshape(r, result);
}

namespace {

using ops::cpp_type_name;
using ops::scalar_type_name;

void check_not_bool(Ctx& x, Value v, const char* kernel) {
  x.check_supported(!hlo::is_bool(v.dtype()), "\"", kernel, "\" not implemented for 'Bool'");
}

// beta * self + alpha * product, rounded to `out`. beta = 0 ignores self, NaN included; so does
// alpha = 0 with the product where CPU's gemm does (`zero_alpha`).
Value mix(Ctx& x, Value self, Value product, Scalar beta, Scalar alpha, DType out,
          bool zero_alpha = true) {
  const DType t = product.dtype();
  Value r = product;
  if (zero_alpha && x.is(alpha, 0)) {
    r = x.like(product, 0);
  } else if (!x.is(alpha, 1)) {
    r = x.b.mul(r, x.scalar_like(alpha, r));
  }
  const Value base = x.broadcast(x.convert(self, t), product.dims());
  if (!x.is(beta, 0)) {
    r = x.b.add(x.is(beta, 1) ? base : x.b.mul(base, x.scalar_like(beta, base)), r);
  }
  return x.convert(r, out);
}

void check_expands(Ctx& x, Value self, const Dims& to) {
  x.check(self.rank() <= static_cast<int64_t>(to.size()), "expand(torch.",
          scalar_type_name(self.dtype()), "Tensor{", self.dims(), "}, size=", to,
          "): the number of sizes provided (", to.size(),
          ") must be greater or equal to the number of dimensions in the tensor (", self.rank(),
          ")");
}

// A matrix as [rows..., columns] where a reshape merged several dims into its rows. With the matrix
// a TPU compiler copies from the layout of the array's other users; with the array it chooses one.
Value unmerged(Ctx& x, Value matrix) {
  const Value v = x.b.operand_of(matrix, Op::kReshape);
  if (!v.valid() || matrix.numel() == 0) return matrix;
  int64_t rows = 1;
  for (int64_t i = 0; i < v.rank() && rows < matrix.dim(0); ++i) {
    rows *= v.dim(i);
    if (rows != matrix.dim(0) || i == 0) continue;
    Dims d(v.dims().begin(), v.dims().begin() + i + 1);
    d.push_back(matrix.dim(1));
    return x.b.reshape(v, d);
  }
  return matrix;
}

Dims rows_of(Value v) { return {v.dims().begin(), v.dims().end() - 1}; }

// mat1 x mat2 for a TPU as [rows..., columns], with the rows that were merged. Narrow floats are
// summed in float32 whatever `result` is, and rounded once.
Value tpu_product(Ctx& x, Value mat1, Value mat2, DType result) {
  const DType t = mat1.dtype();
  const auto p = t == DType::kBF16 || hlo::is_float8(t) ? hlo::Precision::kDefault : x.precision();
  if (const Value u = x.b.operand_of(mat1, Op::kTranspose); u.valid()) {
    // Summed over merged rows, as a weight's gradient is.
    const Value l = unmerged(x, u), r = unmerged(x, mat2);
    if (l.rank() > 2 && r.rank() > 2 && rows_of(l) == rows_of(r)) {
      hlo::DotDims d;
      for (int64_t i = 0; i < l.rank() - 1; ++i) d.lhs_contract.push_back(i);
      d.rhs_contract = d.lhs_contract;
      return x.b.dot_general(l, r, d, p, result);
    }
  }
  // Many columns of few sums are scores of a vocabulary, which losses read row by row: with merged
  // rows from here to there, a compiler makes their gradient inside the products that read it.
  const Value l = mat2.dim(1) >= 8 * mat2.dim(0) ? mat1 : unmerged(x, mat1);
  return x.b.dot_general(l, mat2, {.lhs_contract = {l.rank() - 1}, .rhs_contract = {0}}, p, result);
}

// The same for batches: [batch..., rows, columns].
Value tpu_batched_product(Ctx& x, Value batch1, Value batch2, DType result) {
  const auto split = [&](Value v) {
    const Value u = x.b.operand_of(v, Op::kReshape);
    const bool same = u.valid() && u.rank() > 3 && u.numel() > 0 &&
                      u.dim(u.rank() - 2) == v.dim(1) && u.dim(u.rank() - 1) == v.dim(2);
    return same ? u : v;
  };
  Value l = split(batch1), r = split(batch2);
  const auto batch = [](Value v) { return Dims(v.dims().begin(), v.dims().end() - 2); };
  if (batch(l) != batch(r)) l = batch1, r = batch2;
  hlo::DotDims d;
  for (int64_t i = 0; i < l.rank() - 2; ++i) d.lhs_batch.push_back(i);
  d.rhs_batch = d.lhs_batch;
  d.lhs_contract = {l.rank() - 1};
  d.rhs_contract = {l.rank() - 2};
  const DType t = batch1.dtype();
  const auto p = t == DType::kBF16 || hlo::is_float8(t) ? hlo::Precision::kDefault : x.precision();
  return x.b.dot_general(l, r, d, p, result);
}

// Sums of mat1 x mat2, not yet rounded; on a TPU in `tpu_result` and with the rows that were
// merged.
Value mm_sums(Ctx& x, Value mat1, Value mat2, DType tpu_result) {
  x.check(mat1.dim(1) == mat2.dim(0), "mat1 and mat2 shapes cannot be multiplied (",
          by(mat1.dims()), " and ", by(mat2.dims()), ")");
  x.check(mat1.dtype() == mat2.dtype(),
          "expected m1 and m2 to have the same dtype, but got: ", cpp_type_name(mat1.dtype()),
          " != ", cpp_type_name(mat2.dtype()));
  check_not_bool(x, mat1, "addmm_impl_cpu_");
  if (!x.on_cpu_plugin() && hlo::is_float(mat1.dtype()))
    return tpu_product(x, mat1, mat2, tpu_result);
  return wide_matmul(x, mat1, mat2);
}

Value mm(Ctx& x, Value self, Value mat2, DType out) {
  x.check(self.rank() == 2, "self must be a matrix");
  x.check(mat2.rank() == 2, "mat2 must be a matrix");
  const Value r = x.convert(mm_sums(x, self, mat2, out), out);
  return x.b.reshape(r, {self.dim(0), mat2.dim(1)});
}

// The type in which a TPU leaves a product that is added to something. For bfloat16 its own: the
// product is often stored between two others, and would take twice the traffic in float32. The sum
// is computed in float32.
DType stored_type(Ctx& x, DType t, Scalar alpha, DType out) {
  return t == DType::kBF16 && out == t && x.is(alpha, 1) ? t : hlo::compute_type(t);
}

Value addmm(Ctx& x, Value self, Value mat1, Value mat2, Scalar beta, Scalar alpha, DType out) {
  x.check(mat1.rank() == 2, "mat1 must be a matrix, got ", mat1.rank(), "-D tensor");
  x.check(mat2.rank() == 2, "mat2 must be a matrix, got ", mat2.rank(), "-D tensor");
  x.check(mat1.dim(1) == mat2.dim(0), "mat1 and mat2 shapes cannot be multiplied (",
          by(mat1.dims()), " and ", by(mat2.dims()), ")");
  const Dims dims{mat1.dim(0), mat2.dim(1)};
  check_expands(x, self, dims);
  x.check(self.dtype() == mat2.dtype() || self.dtype() == out,
          "self and mat2 must have the same dtype, but got ", scalar_type_name(self.dtype()),
          " and ", scalar_type_name(mat2.dtype()));
  Value sums = x.to_compute(mm_sums(x, mat1, mat2, stored_type(x, mat1.dtype(), alpha, out)));
  if (self.rank() > 1) sums = x.b.reshape(sums, dims);
  return x.b.reshape(mix(x, self, sums, beta, alpha, out), dims);
}

// In `tpu_result` on a TPU.
Value bmm_sums(Ctx& x, Value batch1, Value batch2, DType tpu_result) {
  x.check(batch1.rank() == 3, "batch1 must be a 3D tensor");
  x.check(batch2.rank() == 3, "batch2 must be a 3D tensor");
  x.check(batch1.dim(0) == batch2.dim(0) && batch1.dim(2) == batch2.dim(1),
          "Expected size for first two dimensions of batch2 tensor to be: [", batch1.dim(0), ", ",
          batch1.dim(2), "] but got: [", batch2.dim(0), ", ", batch2.dim(1), "].");
  x.check(batch1.dtype() == batch2.dtype(), "expected scalar type ",
          scalar_type_name(batch1.dtype()), " but found ", scalar_type_name(batch2.dtype()));
  check_not_bool(x, batch1, "bmm");
  if (x.on_cpu_plugin() || !hlo::is_float(batch1.dtype())) return wide_matmul(x, batch1, batch2);
  return x.b.reshape(tpu_batched_product(x, batch1, batch2, tpu_result),
                     {batch1.dim(0), batch1.dim(1), batch2.dim(2)});
}

Value baddbmm(Ctx& x, Value self, Value batch1, Value batch2, Scalar beta, Scalar alpha,
              DType out) {
  x.check(
      (self.dtype() == batch1.dtype() || self.dtype() == out) && batch1.dtype() == batch2.dtype(),
      "Input dtypes must be the same, got: input ", cpp_type_name(self.dtype()),
      ", batch1: ", cpp_type_name(batch1.dtype()), ", batch2: ", cpp_type_name(batch2.dtype()));
  const Value sums =
      x.to_compute(bmm_sums(x, batch1, batch2, stored_type(x, batch1.dtype(), alpha, out)));
  check_expands(x, self, sums.dims());
  return mix(x, self, sums, beta, alpha, out, /*zero_alpha=*/false);
}

// All batches in one contraction over (batch, k).
Value addbmm(Ctx& x, Value self, Value batch1, Value batch2, Scalar beta, Scalar alpha) {
  x.check(batch1.rank() == 3, "batch1 must be a 3D tensor");
  x.check(batch2.rank() == 3, "batch2 must be a 3D tensor");
  x.check(batch1.dim(0) == batch2.dim(0),
          "batch1 and batch2 must have same number of batches, got ", batch1.dim(0), " and ",
          batch2.dim(0));
  x.check(batch1.dim(2) == batch2.dim(1), "Incompatible matrix sizes for bmm (", batch1.dim(1), "x",
          batch1.dim(2), " and ", batch2.dim(1), "x", batch2.dim(2), ")");
  x.check(self.dtype() == batch2.dtype() && batch1.dtype() == batch2.dtype(),
          "self and mat2 must have the same dtype, but got ", scalar_type_name(self.dtype()),
          " and ", scalar_type_name(batch2.dtype()));
  check_expands(x, self, {batch1.dim(1), batch2.dim(2)});
  check_not_bool(x, batch1, "addmm_impl_cpu_");
  const Value sums = wide_dot(x, batch1, batch2, {.lhs_contract = {0, 2}, .rhs_contract = {0, 1}});
  return mix(x, self, sums, beta, alpha, self.dtype());
}

void check_mv(Ctx& x, Value mat, Value vec, int64_t self_rank, int64_t self_numel, DType self) {
  x.check(mat.rank() == 2 && vec.rank() == 1 && self_rank <= 1,
          "vector + matrix @ vector expected, got ", self_rank, ", ", mat.rank(), ", ", vec.rank());
  x.check(mat.dim(1) == vec.dim(0) && (self_numel == mat.dim(0) || self_numel == 1),
          "size mismatch, got input (", self_numel, "), mat (", by(mat.dims()), "), vec (",
          vec.dim(0), ")");
  x.check(self == mat.dtype() && mat.dtype() == vec.dtype(),
          "addmv input tensors must have the same dtype, but got ", scalar_type_name(self), ", ",
          scalar_type_name(mat.dtype()), ", and ", scalar_type_name(vec.dtype()));
  check_not_bool(x, mat, "addmv_impl_cpu");
}

Value addmv(Ctx& x, Value self, Value mat, Value vec, Scalar beta, Scalar alpha) {
  check_mv(x, mat, vec, self.rank(), self.numel(), self.dtype());
  const Value sums = wide_dot(x, mat, vec, {.lhs_contract = {1}, .rhs_contract = {0}});
  return mix(x, self, sums, beta, alpha, self.dtype());
}

Value addr(Ctx& x, Value self, Value vec1, Value vec2, Scalar beta, Scalar alpha) {
  x.check(vec1.rank() == 1, "addr: Expected 1-D argument vec1, but got ", vec1.rank(), "-D");
  x.check(vec2.rank() == 1, "addr: Expected 1-D argument vec2, but got ", vec2.rank(), "-D");
  const Dims dims{vec1.dim(0), vec2.dim(0)};
  check_expands(x, self, dims);
  const DType t = x.promote(self, vec1, vec2);
  const auto check_number = [&](const Scalar& s, const char* name) {
    x.check(!hlo::is_integral(t) || s.kind <= ops::NumberKind::kInt,
            "For integral input tensors, argument ", name, " must not be a floating point number.");
    x.check(hlo::is_bool(t) || s.kind != ops::NumberKind::kBool, "Boolean ", name,
            " only supported for Boolean results.");
    x.check(hlo::is_complex(t) || s.kind != ops::NumberKind::kComplex,
            "For non-complex input tensors, argument ", name, " must not be a complex number.");
  };
  check_number(beta, "beta");
  check_number(alpha, "alpha");
  const DType c = hlo::compute_type(t);
  const Value rows = along(x, x.convert(vec1, c), dims, 0);
  const Value columns = along(x, x.convert(vec2, c), dims, 1);
  if (hlo::is_bool(t)) {
    const Value product =
        x.b.logical_and(x.b.logical_and(rows, columns), x.scalar_like(alpha, rows));
    const Value base = x.broadcast(x.convert(self, c), dims);
    return x.b.logical_or(x.b.logical_and(base, x.scalar_like(beta, base)), product);
  }
  return mix(x, self, x.b.mul(rows, columns), beta, alpha, t, /*zero_alpha=*/false);
}

Value inner(Ctx& x, Value self, Value other, bool conjugate) {
  x.check(self.rank() == 1 && other.rank() == 1, "1D tensors expected, but got ", self.rank(),
          "D and ", other.rank(), "D tensors");
  x.check(self.dtype() == other.dtype(),
          "dot : expected both vectors to have same dtype, but found ",
          scalar_type_name(self.dtype()), " and ", scalar_type_name(other.dtype()));
  x.check(self.dim(0) == other.dim(0), "inconsistent tensor size, expected tensor [", self.dim(0),
          "] and src [", other.dim(0), "] to have the same number of elements, but got ",
          self.dim(0), " and ", other.dim(0), " elements respectively");
  check_not_bool(x, self, "dot");
  if (conjugate && hlo::is_complex(self.dtype())) {
    self = x.b.complex(x.b.real(self), x.b.neg(x.b.imag(self)));
  }
  return x.convert(wide_dot(x, self, other, {.lhs_contract = {0}, .rhs_contract = {0}}),
                   self.dtype());
}

Value addmm_activation(Ctx& x, Value self, Value mat1, Value mat2, Scalar beta, Scalar alpha,
                       bool use_gelu) {
  const DType t = self.dtype();
  x.check(!hlo::is_complex(t), "clamp is not supported for complex types");
  const Value y = x.to_compute(addmm(x, self, mat1, mat2, beta, alpha, mat2.dtype()));
  if (!use_gelu) return x.convert(x.b.maximum(y, x.like(y, 0)), t);
  const Value erf = x.b.unary(Op::kErf, x.b.mul(y, x.like(y, 0.70710678118654752440)));
  return x.convert(x.b.mul(x.b.mul(y, x.like(y, 0.5)), x.b.add(erf, x.like(y, 1))), t);
}

Value int_mm(Ctx& x, Value self, Value mat2) {
  const DType t = self.dtype();
  x.check(self.rank() == 2, "int_mm_out_cpu: Expected self to be of dimension 2 but got ",
          self.rank());
  x.check(mat2.rank() == 2, "int_mm_out_cpu: Expected mat2 to be of dimension 2 but got ",
          mat2.rank());
  x.check(self.dim(1) == mat2.dim(0),
          "int_mm_out_cpu: self.size(1) needs to match mat2.size(0) but got ", self.dim(1), " and ",
          mat2.dim(0));
  x.check(t == DType::kI8 || t == DType::kU8,
          "int_mm_out_cpu: Expected self dtype to be int8 or uint8 but got ", cpp_type_name(t));
  x.check(mat2.dtype() == DType::kI8,
          "int_mm_out_cpu: Expected mat2 dtype to be of type int8 but got ",
          cpp_type_name(mat2.dtype()));
  if (t == DType::kU8) {  // mixed signs: widen both
    self = x.b.convert(self, DType::kI32);
    mat2 = x.b.convert(mat2, DType::kI32);
  }
  return x.b.dot_general(self, mat2, {.lhs_contract = {1}, .rhs_contract = {0}},
                         hlo::Precision::kDefault, DType::kI32);
}

// ---- Grouped products: group g owns the range [offs[g-1], offs[g]) of one dim, known at run time.
// A loop over tiles of that dim, each inside one group. The number of steps is the static bound
// size / tile + groups, so the cost is that of the plain product plus one tile for each group.
struct Tiles {
  int64_t size, tile, groups, steps;
  Value begin, end, before, total;  // per group; `before`: tiles of earlier groups; total: rank 0
};

Tiles make_tiles(Ctx& x, Value offs, int64_t size) {
  Tiles t;
  t.size = size;
  t.tile = std::clamp<int64_t>(size, 1, 128);
  t.groups = offs.dim(0);
  t.steps = size / t.tile + t.groups;
  const Value zero = x.b.constant(DType::kI32, 0);
  t.end = x.b.clamp(zero, offs, x.b.constant(DType::kI32, size));
  t.begin =
      x.b.concatenate({x.zeros({DType::kI32, {1}}), x.b.slice_dim(t.end, 0, 0, t.groups - 1)}, 0);
  const Value length = x.b.maximum(x.b.sub(t.end, t.begin), x.like(t.end, 0));
  const Value tiles = x.b.div(x.b.add(length, x.like(length, static_cast<double>(t.tile - 1))),
                              x.like(length, static_cast<double>(t.tile)));
  // Exclusive running count: groups are few.
  const Dims square{t.groups, t.groups};
  const Value earlier =
      x.b.compare(Cmp::kLt, x.b.iota({DType::kI32, square}, 1), x.b.iota({DType::kI32, square}, 0));
  const Value spread = x.b.broadcast_in_dim(tiles, square, {1});
  t.before = x.b.reduce(x.b.select(earlier, spread, x.like(spread, 0)), zero, {1}, Op::kAdd);
  t.total = x.b.reduce(tiles, zero, {0}, Op::kAdd);
  return t;
}

struct Step {
  Value group, start;  // rank 0
  Value inside;        // bool[tile]: elements that belong to the group
};

Step tile_at(Ctx& x, const Tiles& t, Value i) {
  auto& b = x.b;
  const Value zero = b.constant(DType::kI32, 0);
  const auto pick = [&](Value v, Value g) { return b.reshape(b.dynamic_slice(v, {g}, {1}), {}); };
  // The last group whose earlier tiles are at most i; empty groups share a count with their
  // successor.
  const Value passed = b.compare(Cmp::kLe, t.before, b.broadcast_scalar(i, {t.groups}));
  const Value counted = b.reduce(b.convert(passed, DType::kI32), zero, {0}, Op::kAdd);
  Step s;
  s.group = b.sub(counted, b.constant(DType::kI32, 1));
  s.start = b.add(pick(t.begin, s.group),
                  b.mul(b.sub(i, pick(t.before, s.group)), b.constant(DType::kI32, t.tile)));
  s.start = b.minimum(s.start, b.constant(DType::kI32, t.size));
  const Value position =
      b.add(b.iota({DType::kI32, {t.tile}}, 0), b.broadcast_scalar(s.start, {t.tile}));
  const Value below =
      b.compare(Cmp::kLt, position, b.broadcast_scalar(pick(t.end, s.group), {t.tile}));
  const Value live = b.compare(Cmp::kLt, i, t.total);
  s.inside = b.logical_and(below, b.broadcast_scalar(live, {t.tile}));
  return s;
}

Value pad_end(Ctx& x, Value v, int64_t dim, int64_t by) {
  Dims low(at(v.rank()), 0), high(at(v.rank()), 0);
  high[at(dim)] = by;
  return x.b.pad(v, x.constant(v.dtype(), 0), low, high);
}

Value tile_loop(Ctx& x, const Tiles& t, Value init,
                const std::function<Value(const Step&, Value)>& body) {
  const auto cond = [&](const Values& a) {
    return Values{x.b.compare(Cmp::kLt, a[0], x.b.constant(DType::kI32, t.steps))};
  };
  const auto step = [&](const Values& a) {
    const Value next = x.b.add(a[0], x.b.constant(DType::kI32, 1));
    return Values{next, body(tile_at(x, t, a[0]), a[1])};
  };
  return x.b.while_loop({x.b.constant(DType::kI32, 0), init}, cond, step)[1];
}

// rows[m, k] by mats[g, k, n]: row groups.
Value grouped_rows(Ctx& x, Value rows, Value mats, Value offs) {
  const int64_t m = rows.dim(0), k = rows.dim(1), n = mats.dim(2);
  const Tiles t = make_tiles(x, offs, m);
  const Value padded = pad_end(x, rows, 0, t.tile);
  const Value zero = x.b.constant(DType::kI32, 0);
  const Value out =
      tile_loop(x, t, x.zeros({rows.dtype(), {m + t.tile, n}}), [&](const Step& s, Value acc) {
        const Value lhs = x.b.dynamic_slice(padded, {s.start, zero}, {t.tile, k});
        const Value rhs =
            x.b.reshape(x.b.dynamic_slice(mats, {s.group, zero, zero}, {1, k, n}), {k, n});
        const Value old = x.b.dynamic_slice(acc, {s.start, zero}, {t.tile, n});
        const Value made = x.convert(wide_matmul(x, lhs, rhs), rows.dtype());
        return x.b.dynamic_update_slice(
            acc, x.b.select(along(x, s.inside, old.dims(), 0), made, old), {s.start, zero});
      });
  return x.b.slice_dim(out, 0, 0, m);
}

// a[m, k] by b[k, n]: groups of the contracted dim, giving [g, m, n].
Value grouped_inner(Ctx& x, Value a, Value mat, Value offs) {
  const int64_t m = a.dim(0), n = mat.dim(1);
  const Tiles t = make_tiles(x, offs, a.dim(1));
  const Value lhs_all = pad_end(x, a, 1, t.tile), rhs_all = pad_end(x, mat, 0, t.tile);
  const Value zero = x.b.constant(DType::kI32, 0);
  const DType wide = hlo::compute_type(a.dtype());
  const Value out =
      tile_loop(x, t, x.zeros({wide, {t.groups, m, n}}), [&](const Step& s, Value acc) {
        Value lhs = x.b.dynamic_slice(lhs_all, {zero, s.start}, {m, t.tile});
        Value rhs = x.b.dynamic_slice(rhs_all, {s.start, zero}, {t.tile, n});
        lhs = x.b.select(along(x, s.inside, lhs.dims(), 1), lhs, x.like(lhs, 0));
        rhs = x.b.select(along(x, s.inside, rhs.dims(), 0), rhs, x.like(rhs, 0));
        const Value old = x.b.dynamic_slice(acc, {s.group, zero, zero}, {1, m, n});
        const Value made = x.b.reshape(wide_matmul(x, lhs, rhs), {1, m, n});
        return x.b.dynamic_update_slice(acc, x.b.add(old, made), {s.group, zero, zero});
      });
  return x.convert(out, a.dtype());
}

Value grouped_mm(Ctx& x, Value self, Value mat2, Opt<Value> offs, Opt<Value> bias,
                 Opt<DType> out_dtype) {
  const bool flat1 = self.rank() == 2, flat2 = mat2.rank() == 2;
  x.check((flat1 || self.rank() == 3) && (flat2 || mat2.rank() == 3),
          "mat_a and mat_b have to be 2 or 3 dimensional");
  x.check(
      flat2 ? self.dim(self.rank() - 1) == mat2.dim(0) : self.dim(self.rank() - 1) == mat2.dim(1),
      "contraction dimension of mat_a and mat_b must match");
  x.check(self.dtype() == mat2.dtype(),
          "expected m1 and m2 to have the same dtype, but got: ", cpp_type_name(self.dtype()),
          " != ", cpp_type_name(mat2.dtype()));
  x.check(hlo::is_float(self.dtype()), "Expected inputs of BF16, FP16 or FP32 type but got ",
          scalar_type_name(self.dtype()));
  x.check(offs.has_value() == (flat1 || flat2),
          "Have to provide offsets if there is a 2d matrix, or no offset if both matrices are 3d");
  x.check(!bias, "Bias not supported yet");
  x.check(!out_dtype || *out_dtype == self.dtype(),
          "Grouped gemm output dtype must match `mat_a` dtype");
  if (!offs) {
    x.check(self.dim(0) == mat2.dim(0), "batched dimension has to match");
    return x.convert(wide_matmul(x, self, mat2), self.dtype());
  }
  x.check(offs->rank() == 1, "offs has to be 1D");
  x.check(offs->dtype() == DType::kI32, "Offsets have to be int32");
  const int64_t groups = offs->dim(0);
  x.check((flat1 || self.dim(0) == groups) && (flat2 || mat2.dim(0) == groups),
          "matrix batch sizes have to match");
  const Dims result = flat1 && flat2 ? Dims{groups, self.dim(0), mat2.dim(1)}
                                     : Dims{self.dim(self.rank() - 2), mat2.dim(mat2.rank() - 1)};
  if (groups == 0 || hlo::product(result) == 0) return x.zeros({self.dtype(), result});
  if (flat1 && flat2) return grouped_inner(x, self, mat2, *offs);
  if (flat1) return grouped_rows(x, self, mat2, *offs);
  // Column groups are row groups of the transposed product.
  return x.b.transpose(
      grouped_rows(x, x.b.transpose(mat2, {1, 0}), x.b.transpose(self, {0, 2, 1}), *offs), {1, 0});
}

// float8 operands with a float32 scale for each row of self and column of mat2.
Value scaled_grouped_mm(Ctx& x, Value self, Value mat2, Value scale_a, Value scale_b,
                        Opt<Value> offs, Opt<Value> bias, Opt<Value> scale_result,
                        Opt<DType> out_dtype, [[maybe_unused]] bool use_fast_accum) {
  x.check(hlo::is_float8(self.dtype()) && hlo::is_float8(mat2.dtype()),
          "Expected mat_a and mat_b to be Float8 matrices, got ", scalar_type_name(self.dtype()),
          " and ", scalar_type_name(mat2.dtype()));
  x.check(
      self.rank() == 3 || mat2.rank() == 3,
      "two matrices, grouped along what is summed, have no scaled product here; use 3d operands");
  x.check(!scale_result, "Scale result not supported yet");
  const auto unscaled = [&](Value v, Value scale, int64_t dim, const char* name) {
    Dims expected = v.dims();
    expected.erase(expected.begin() + dim);
    x.check(scale.dtype() == DType::kF32 && scale.dims() == expected, name,
            " must be float32 of shape ", expected, ", got ", hlo::torch_name(scale.dtype()), " ",
            scale.dims());
    Dims map;
    for (int64_t i = 0; i < v.rank(); ++i) {
      if (i != dim) map.push_back(i);
    }
    const Value wide = x.convert(v, DType::kF32);
    return x.b.mul(wide, x.b.broadcast_in_dim(scale, wide.dims(), map));
  };
  const Value a = unscaled(self, scale_a, self.rank() - 1, "scale_a");
  const Value b = unscaled(mat2, scale_b, mat2.rank() - 2, "scale_b");
  return x.convert(grouped_mm(x, a, b, offs, bias, std::nullopt), out_dtype.value_or(DType::kBF16));
}

}  // namespace

void register_matmul(ops::Registry& r) {
  const auto with_numbers = [](ops::OpBuilder b) {
    b.fold("alpha", 1).fold("beta", 1).fold("beta", 0);
  };
  const auto with_zero_alpha = [&](ops::OpBuilder b) { with_numbers(b.fold("alpha", 0)); };

  r.op("aten::mm", [](Ctx& x, Value self, Value mat2) { return mm(x, self, mat2, self.dtype()); });
  r.op("aten::mm.dtype", mm);
  r.op("aten::bmm", [](Ctx& x, Value self, Value mat2) {
    return x.convert(bmm_sums(x, self, mat2, self.dtype()), self.dtype());
  });
  r.op("aten::bmm.dtype", [](Ctx& x, Value self, Value mat2, DType out) {
    return x.convert(bmm_sums(x, self, mat2, out), out);
  });
  with_zero_alpha(r.op("aten::addmm",
                       [](Ctx& x, Value self, Value mat1, Value mat2, Scalar beta, Scalar alpha) {
                         return addmm(x, self, mat1, mat2, beta, alpha, mat2.dtype());
                       }));
  with_zero_alpha(r.op("aten::addmm.dtype",
                       [](Ctx& x, Value self, Value mat1, Value mat2, DType out, Scalar beta,
                          Scalar alpha) { return addmm(x, self, mat1, mat2, beta, alpha, out); }));
  with_numbers(r.op("aten::baddbmm",
                    [](Ctx& x, Value self, Value batch1, Value batch2, Scalar beta, Scalar alpha) {
                      return baddbmm(x, self, batch1, batch2, beta, alpha, batch1.dtype());
                    }));
  with_numbers(r.op("aten::baddbmm.dtype", [](Ctx& x, Value self, Value batch1, Value batch2,
                                              DType out, Scalar beta, Scalar alpha) {
    return baddbmm(x, self, batch1, batch2, beta, alpha, out);
  }));
  with_zero_alpha(r.op("aten::addbmm", addbmm));
  with_zero_alpha(r.op("aten::addmv", addmv));
  with_zero_alpha(r.op("aten::_addmm_activation", addmm_activation));
  with_numbers(r.op("aten::addr", addr).layout(ops::LayoutRule::kLikeSelf).out_casts(true));
  r.op("aten::mv", [](Ctx& x, Value self, Value vec) {
    const int64_t rows = self.rank() == 2 ? self.dim(0) : 1;
    check_mv(x, self, vec, 1, rows, self.dtype());
    return x.convert(wide_dot(x, self, vec, {.lhs_contract = {1}, .rhs_contract = {0}}),
                     self.dtype());
  });
  r.op("aten::dot", [](Ctx& x, Value self, Value tensor) { return inner(x, self, tensor, false); });
  r.op("aten::vdot", [](Ctx& x, Value self, Value other) { return inner(x, self, other, true); });
  r.op("aten::_compute_linear_combination", [](Ctx& x, Value input, Value coefficients) {
    x.check(input.rank() > 0 && input.numel() > 0, "Empty tensor not supported");
    x.check(coefficients.rank() == 2 && coefficients.dim(1) == input.dim(0), "coefficients ",
            coefficients.dims(), " do not have a column for each of the ", input.dim(0), " inputs");
    return x.dot(coefficients, input, {.lhs_contract = {1}, .rhs_contract = {0}});
  });
  r.op("aten::_int_mm", int_mm);
  r.op("aten::_grouped_mm", grouped_mm);
  r.op("aten::_scaled_grouped_mm", scaled_grouped_mm);
}

}  // namespace tpu::aten
