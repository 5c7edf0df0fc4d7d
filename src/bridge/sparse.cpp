// Sparse tensors (COO, CSR) on the device: index and value tensors are ordinary ones, and every op
// is written in terms of dense ops on them. An op that is not here says so in a sentence.
#include <ATen/Functions.h>
#include <ATen/ops/_coalesced_native.h>
#include <ATen/ops/_indices_native.h>
#include <ATen/ops/_nnz_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_and_tensors_native.h>
#include <ATen/ops/_sparse_coo_tensor_with_dims_native.h>
#include <ATen/ops/_to_sparse_csr_native.h>
#include <ATen/ops/_to_sparse_native.h>
#include <ATen/ops/_values_native.h>
#include <ATen/ops/clone_native.h>
#include <ATen/ops/col_indices_native.h>
#include <ATen/ops/copy_native.h>
#include <ATen/ops/copy_sparse_to_sparse_native.h>
#include <ATen/ops/crow_indices_native.h>
#include <ATen/ops/dense_dim_native.h>
#include <ATen/ops/empty_like_native.h>
#include <ATen/ops/empty_native.h>
#include <ATen/ops/indices_native.h>
#include <ATen/ops/is_coalesced_native.h>
#include <ATen/ops/sparse_dim_native.h>
#include <ATen/ops/sparse_resize_and_clear_native.h>
#include <ATen/ops/sparse_resize_native.h>
#include <ATen/ops/values_native.h>
#include <torch/library.h>

#include "bridge/errors.h"

namespace tpu::bridge {
namespace {

using at::Scalar;
using at::Tensor;

bool is_coo(const Tensor& t) { return t.layout() == c10::kSparse; }

// Sizes of the indexed dims.
std::vector<int64_t> indexed_sizes(const Tensor& self) {
  return std::vector<int64_t>(self.sizes().begin(), self.sizes().begin() + self.sparse_dim());
}

// The indices as row-major positions in the indexed dims: [nnz].
Tensor flat_indices(const Tensor& self) {
  const Tensor indices = self._indices();
  Tensor flat = at::zeros({self._nnz()}, indices.options());
  const std::vector<int64_t> sizes = indexed_sizes(self);
  for (size_t d = 0; d < sizes.size(); ++d)
    flat = at::add(at::mul(flat, sizes[d]), indices.select(0, static_cast<int64_t>(d)));
  return flat;
}

Tensor unflatten_indices(Tensor flat, const std::vector<int64_t>& sizes) {
  std::vector<Tensor> rows(sizes.size());
  for (size_t d = sizes.size(); d-- > 0;) {
    rows[d] = at::remainder(flat, sizes[d]);
    flat = at::div(flat, sizes[d], "floor");
  }
  return rows.empty() ? at::zeros({0, flat.size(0)}, flat.options()) : at::stack(rows);
}

// A dense tensor with the indexed dims as one.
Tensor flat_view(const Tensor& dense, const Tensor& like) {
  std::vector<int64_t> sizes{1};
  for (int64_t s : indexed_sizes(like)) sizes[0] *= s;
  for (int64_t d = like.sparse_dim(); d < like.dim(); ++d) sizes.push_back(like.size(d));
  return dense.reshape(sizes);
}

Tensor with_values(const Tensor& self, const Tensor& values) {
  return at::_sparse_coo_tensor_unsafe(self._indices(), values, self.sizes())
      ._coalesced_(self.is_coalesced());
}

// How many distinct places there are is read from the device.
Tensor coalesce(const Tensor& self) {
  if (self.is_coalesced()) return self;
  if (self._nnz() < 2) return with_values(self, self._values().clone())._coalesced_(true);
  const auto [places, inverse, counts] = at::_unique2(flat_indices(self), true, true, false);
  std::vector<int64_t> sizes = self._values().sizes().vec();
  sizes[0] = places.size(0);
  const Tensor values =
      at::zeros(sizes, self._values().options()).index_add_(0, inverse, self._values());
  return at::_sparse_coo_tensor_unsafe(unflatten_indices(places, indexed_sizes(self)), values,
                                       self.sizes())
      ._coalesced_(true);
}

// dense + alpha * self
Tensor added(const Tensor& dense, const Tensor& self, const Scalar& alpha) {
  const auto type = at::result_type(dense, self._values());
  const Tensor base = at::broadcast_to(dense, self.sizes()).to(type);
  if (self._nnz() == 0) return base.clone();
  return flat_view(base, self)
      .index_add(0, flat_indices(self), self._values().to(type), alpha)
      .reshape(self.sizes());
}

Tensor to_dense(const Tensor& self, std::optional<at::ScalarType> dtype, std::optional<bool>) {
  const Tensor coo = is_coo(self) ? self : self.to_sparse();
  const Tensor zeros = at::zeros(coo.sizes(), coo._values().options());
  const Tensor r = added(zeros, coo, 1);
  return dtype ? r.to(*dtype) : r;
}

Tensor add(const Tensor& self, const Tensor& other, const Scalar& alpha) {
  if (self.is_sparse_csr() || other.is_sparse_csr()) {
    const auto coo = [](const Tensor& t) { return t.is_sparse_csr() ? t.to_sparse() : t; };
    const Tensor r = bridge::add(coo(self), coo(other), alpha);
    return is_coo(r) ? r.coalesce().to_sparse_csr() : r;
  }
  if (!is_coo(self)) return added(self, other, alpha);
  if (!is_coo(other)) return added(at::mul(other, alpha), self, 1);
  TORCH_CHECK(self.sizes() == other.sizes(),
              "add: expected 'self' and 'other' to have same sizes, but ", self.sizes(),
              " != ", other.sizes());
  TORCH_CHECK(self.sparse_dim() == other.sparse_dim(),
              "add: expected 'self' and 'other' to have same number of sparse dims");
  const auto type = at::result_type(self, other);
  return at::_sparse_coo_tensor_unsafe(
      at::cat({self._indices(), other._indices()}, 1),
      at::cat({self._values().to(type), at::mul(other._values(), alpha).to(type)}), self.sizes());
}

Tensor& add_(Tensor& self, const Tensor& other, const Scalar& alpha) {
  const Tensor r = bridge::add(self, other, alpha);
  TORCH_CHECK(self.layout() == r.layout(), "add_: a dense tensor cannot be added to a sparse one");
  return self.copy_(r);
}
Tensor& add_out(const Tensor& self, const Tensor& other, const Scalar& alpha, Tensor& out) {
  const Tensor r = bridge::add(self, other, alpha);
  if (out.layout() == c10::kStrided && out.sizes() != r.sizes()) out.resize_(r.sizes());
  return out.copy_(r);
}

Tensor mul(const Tensor& self, const Tensor& other) {
  const bool first = is_coo(self);
  const Tensor& sparse = first ? self : other;
  const Tensor& factor = first ? other : self;
  TORCH_CHECK(is_coo(sparse) && factor.layout() == c10::kStrided,
              "mul: of two sparse tensors, or with a CSR tensor: not on a tpu device; use "
              ".to_dense()");
  if (factor.dim() == 0) return with_values(sparse, at::mul(sparse._values(), factor));
  const Tensor all = flat_view(at::broadcast_to(factor, sparse.sizes()), sparse);
  return with_values(sparse, at::mul(sparse._values(), all.index_select(0, flat_indices(sparse))));
}

Tensor div(const Tensor& self, const Tensor& other) {
  TORCH_CHECK(is_coo(self) && other.dim() == 0,
              "div: a sparse tensor can be divided by a number only");
  return with_values(self, at::div(self._values(), other));
}

Tensor neg(const Tensor& self) { return with_values(self, at::neg(self._values())); }

Tensor& zero_(Tensor& self) {
  at::native::sparse_resize_and_clear_(self, self.sizes(), self.sparse_dim(), self.dense_dim());
  return self;
}

// sparse [m, k] @ dense [k, n]
Tensor product(const Tensor& self, const Tensor& dense) {
  TORCH_CHECK(self.dim() == 2 && dense.dim() == 2 && dense.layout() == c10::kStrided,
              "a product of a sparse tensor needs a sparse and a dense matrix");
  TORCH_CHECK(self.size(1) == dense.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", dense.size(0), "x", dense.size(1), ")");
  const Tensor coo = is_coo(self) ? self : self.to_sparse();
  TORCH_CHECK(coo.sparse_dim() == 2, "a product of a sparse tensor needs two sparse dims");
  const Tensor indices = coo._indices();
  const Tensor rows =
      at::mul(dense.index_select(0, indices.select(0, 1)), coo._values().unsqueeze(1));
  return at::zeros({self.size(0), dense.size(1)}, rows.options())
      .index_add_(0, indices.select(0, 0), rows);
}

Tensor mm(const Tensor& self, const Tensor& mat2) {
  if (self.layout() == c10::kStrided) {
    const Tensor coo = is_coo(mat2) ? mat2 : mat2.to_sparse();
    return product(coo.t(), self.t()).t();
  }
  return product(self, mat2.layout() == c10::kStrided ? mat2 : mat2.to_dense());
}
Tensor addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
             const Scalar& alpha) {
  const Tensor r = at::mul(bridge::mm(mat1, mat2), alpha);
  const Tensor base = self.layout() == c10::kStrided ? self : self.to_dense();
  return at::add(r, at::mul(base, beta));
}
Tensor& give(const Tensor& r, Tensor& out) {
  if (out.sizes() != r.sizes()) out.resize_(r.sizes());
  return out.copy_(r);
}
Tensor& mm_out(const Tensor& self, const Tensor& mat2, Tensor& out) {
  return give(bridge::mm(self, mat2), out);
}
Tensor& addmm_out(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                  const Scalar& alpha, Tensor& out) {
  return give(bridge::addmm(self, mat1, mat2, beta, alpha), out);
}

// ---- Products with a CSR matrix, element by element of it.

struct Elements {
  explicit Elements(const Tensor& csr)
      : rows(csr.to_sparse()._indices().select(0, 0)), columns(csr.col_indices().to(at::kLong)) {}

  Tensor rows, columns;  // [nnz]
};

Tensor with_csr_values(const Tensor& self, const Tensor& values) {
  return at::_sparse_csr_tensor_unsafe(self.crow_indices(), self.col_indices(), values,
                                       self.sizes(), values.options().layout(self.layout()));
}

Tensor mul_csr(const Tensor& self, const Tensor& other) {
  const bool first = self.is_sparse_csr();
  const Tensor& csr = first ? self : other;
  const Tensor& factor = first ? other : self;
  TORCH_CHECK(factor.layout() == c10::kStrided && factor.dim() == 0,
              "mul: a CSR tensor can be multiplied by a number only; use .to_sparse()");
  return with_csr_values(csr, at::mul(csr.values(), factor));
}

// The elements of self at the places of the CSR matrix `mask`.
Tensor csr_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(mask.is_sparse_csr() && mask.dim() == 2 && self.sizes() == mask.sizes(),
              "sparse_mask: needs a matrix and a CSR mask of its sizes, got ", self.sizes(),
              " and ", mask.sizes());
  const Elements e(mask);
  const Tensor dense = self.layout() == c10::kStrided ? self : self.to_dense();
  const Tensor places = at::add(at::mul(e.rows, mask.size(1)), e.columns);
  return with_csr_values(mask, dense.reshape({-1}).index_select(0, places));
}

// beta * self + alpha * mat1 @ mat2, at the places of self.
Tensor sampled_addmm(const Tensor& self, const Tensor& mat1, const Tensor& mat2, const Scalar& beta,
                     const Scalar& alpha) {
  const char* name = "sampled_addmm";
  TORCH_CHECK(
      self.is_sparse_csr() && mat1.layout() == c10::kStrided && mat2.layout() == c10::kStrided,
      name, ": Expected self to be a CSR matrix and mat1 and mat2 to be dense");
  TORCH_CHECK(self.dim() == 2 && mat1.dim() == 2 && mat2.dim() == 2, name,
              ": Expected matrices, but got ", self.dim(), ", ", mat1.dim(), " and ", mat2.dim(),
              " dims");
  TORCH_CHECK(mat1.size(1) == mat2.size(0), name, ": mat1 and mat2 shapes cannot be multiplied (",
              mat1.size(0), "x", mat1.size(1), " and ", mat2.size(0), "x", mat2.size(1), ")");
  TORCH_CHECK(self.size(0) == mat1.size(0) && self.size(1) == mat2.size(1), name,
              ": self.shape does not match the product's");
  TORCH_CHECK(self.scalar_type() == mat1.scalar_type() && self.scalar_type() == mat2.scalar_type(),
              name, ": Expected self, mat1 and mat2 to have the same dtype");
  const Elements e(self);
  const Tensor products =
      at::mul(mat1.index_select(0, e.rows), mat2.t().index_select(0, e.columns)).sum(1);
  return with_csr_values(self, at::add(at::mul(self.values(), beta), at::mul(products, alpha)));
}

// How many elements each row has, 1 for none: [rows, 1].
Tensor row_lengths(const Tensor& self, const at::TensorOptions& options) {
  return self.crow_indices().diff().clamp_min(1).to(options.dtype()).unsqueeze(1);
}

// Over the elements of each row of self, their products with rows of `other`; 0 for an empty row.
// For a maximum or minimum also the element that it is.
std::tuple<Tensor, Tensor> mm_reduce(const Tensor& self, const Tensor& other,
                                     c10::string_view reduce) {
  TORCH_CHECK(self.is_sparse_csr() && self.dim() == 2 && other.layout() == c10::kStrided &&
                  other.dim() == 2,
              "torch.sparse.mm: expected a CSR and a dense matrix");
  TORCH_CHECK(self.size(1) == other.size(0), "mat1 and mat2 shapes cannot be multiplied (",
              self.size(0), "x", self.size(1), " and ", other.size(0), "x", other.size(1), ")");
  TORCH_CHECK(self.scalar_type() == other.scalar_type(), "torch.sparse.mm: expected ",
              self.scalar_type(), " for both matrices, but got ", other.scalar_type());
  const Elements e(self);
  const Tensor products = at::mul(other.index_select(0, e.columns), self.values().unsqueeze(1));
  const Tensor zeros = at::zeros({self.size(0), other.size(1)}, products.options());
  const Tensor no_places = at::empty({0}, e.rows.options());
  if (reduce == "sum" || reduce == "mean") {
    const Tensor sum = zeros.index_add(0, e.rows, products);
    return {reduce == "sum" ? sum : at::div(sum, row_lengths(self, sum.options())), no_places};
  }
  TORCH_CHECK(reduce == "amax" || reduce == "amin",
              "reduce argument must be either sum, mean, amax or amin, got ", reduce);
  const Tensor rows = e.rows.unsqueeze(1).expand_as(products);
  const Tensor most = zeros.scatter_reduce(0, rows, products, reduce, false);
  const Tensor number = at::arange(self._nnz(), e.rows.options()).unsqueeze(1);
  const Tensor none = at::full_like(number, self._nnz());
  const Tensor hit = at::where(at::eq(products, most.index_select(0, e.rows)), number, none);
  return {most,
          at::full_like(zeros, self._nnz(), e.rows.options()).scatter_reduce(0, rows, hit, "amin")};
}

std::tuple<Tensor, Tensor> mm_reduce_backward(const Tensor& self, const Tensor& grad_out,
                                              const Tensor& other, c10::string_view reduce,
                                              const Tensor& places, std::array<bool, 2> wanted) {
  const Elements e(self);
  const Tensor scaled =
      reduce == "mean" ? at::div(grad_out, row_lengths(self, grad_out.options())) : grad_out;
  Tensor grad = scaled.index_select(0, e.rows);  // of each element's products
  if (reduce == "amax" || reduce == "amin") {
    const Tensor number = at::arange(self._nnz(), e.rows.options()).unsqueeze(1);
    grad = at::where(at::eq(places.index_select(0, e.rows), number), grad, at::zeros_like(grad));
  }
  Tensor grad_self, grad_other;
  if (wanted[0]) {
    const Tensor values = at::mul(grad, other.index_select(0, e.columns)).sum(1);
    grad_self = with_csr_values(self, values);
  }
  if (wanted[1]) {
    grad_other =
        at::zeros_like(other).index_add(0, e.columns, at::mul(grad, self.values().unsqueeze(1)));
  }
  return {grad_self, grad_other};
}

Tensor sparse_mask(const Tensor& self, const Tensor& mask) {
  TORCH_CHECK(is_coo(mask) && self.layout() == c10::kStrided && self.sizes() == mask.sizes(),
              "sparse_mask: needs a dense tensor and a COO mask of its sizes, got ", self.sizes(),
              " and ", mask.sizes());
  return with_values(mask, flat_view(self, mask).index_select(0, flat_indices(mask)));
}

Tensor transpose_coo(const Tensor& self, int64_t dim0, int64_t dim1) {
  const int64_t a = at::maybe_wrap_dim(dim0, self.dim()), b = at::maybe_wrap_dim(dim1, self.dim());
  TORCH_CHECK(a < self.sparse_dim() && b < self.sparse_dim(),
              "transpose: only sparse dims of a sparse tensor can be exchanged");
  std::vector<int64_t> sizes = self.sizes().vec(), rows;
  for (int64_t d = 0; d < self.sparse_dim(); ++d) rows.push_back(d == a ? b : d == b ? a : d);
  std::swap(sizes[static_cast<size_t>(a)], sizes[static_cast<size_t>(b)]);
  std::vector<Tensor> indices;
  for (int64_t d : rows) indices.push_back(self._indices().select(0, d));
  return at::_sparse_coo_tensor_unsafe(at::stack(indices), self._values(), sizes);
}

Tensor sum(const Tensor& self, std::optional<at::ScalarType> dtype) {
  return self._values().sum(dtype);
}

// ---- What is not here, of these and of other kinds of tensors.

template <c10::DispatchKey key>
void missing(const c10::OperatorHandle& op, torch::jit::Stack*) {
  const c10::FunctionSchema& s = op.schema();
  const std::string name =
      s.overload_name().empty() ? s.name() : s.name() + "." + s.overload_name();
  const char* why =
      key == c10::DispatchKey::QuantizedPrivateUse1
          ? "tensors of quantized dtypes have no kernels on a tpu device; use .cpu() first"
      : key == c10::DispatchKey::NestedTensorPrivateUse1
          ? "nested tensors of the strided layout have no kernels on a tpu device; make them with "
            "layout=torch.jagged"
          : "sparse tensors have no such kernel on a tpu device; use .to_dense(), or .cpu() first";
  rethrow({ErrorKind::kMissingOp, why}, name + ": ");
}

template <c10::DispatchKey key>
void refuse_the_rest(torch::Library& m) {
  m.fallback(torch::CppFunction::makeFromBoxedFunction<&missing<key>>());
}
TORCH_LIBRARY_IMPL(_, SparsePrivateUse1, m) {
  refuse_the_rest<c10::DispatchKey::SparsePrivateUse1>(m);
}
TORCH_LIBRARY_IMPL(_, SparseCsrPrivateUse1, m) {
  refuse_the_rest<c10::DispatchKey::SparseCsrPrivateUse1>(m);
}
TORCH_LIBRARY_IMPL(_, QuantizedPrivateUse1, m) {
  refuse_the_rest<c10::DispatchKey::QuantizedPrivateUse1>(m);
}
TORCH_LIBRARY_IMPL(_, NestedTensorPrivateUse1, m) {
  refuse_the_rest<c10::DispatchKey::NestedTensorPrivateUse1>(m);
}

// The overloads of the same names.
using ToSparse = Tensor(const Tensor&, std::optional<c10::Layout>, at::OptionalIntArrayRef,
                        std::optional<int64_t>);
using ToSparseDim = Tensor(const Tensor&, int64_t);

TORCH_LIBRARY_IMPL(aten, SparsePrivateUse1, m) {
  m.impl("_sparse_coo_tensor_with_dims", at::native::new_with_dims_sparse);
  m.impl("_sparse_coo_tensor_with_dims_and_tensors",
         at::native::new_with_dims_and_tensor_sparse_symint);
  m.impl("empty.memory_format", at::native::empty_sparse_symint);
  m.impl("empty_like", at::native::empty_like_sparse_coo);
  m.impl("_indices", at::native::_indices_sparse);
  m.impl("_values", at::native::_values_sparse);
  m.impl("indices", at::native::indices_sparse);
  m.impl("values", at::native::values_sparse);
  m.impl("_nnz", at::native::_nnz_sparse);
  m.impl("sparse_dim", at::native::sparse_dim_sparse);
  m.impl("dense_dim", at::native::dense_dim_sparse);
  m.impl("_dimI", at::native::sparse_dim_sparse);
  m.impl("_dimV", at::native::dense_dim_sparse);
  m.impl("is_coalesced", at::native::is_coalesced_sparse);
  m.impl("_coalesced_", at::native::_coalesced_sparse_);
  m.impl("copy_", at::native::copy_sparse_wrapper_);
  m.impl("copy_sparse_to_sparse_", at::native::copy_sparse_);
  m.impl("clone", at::native::clone_sparse);
  m.impl("sparse_resize_", at::native::sparse_resize_);
  m.impl("sparse_resize_and_clear_", at::native::sparse_resize_and_clear_);
  m.impl("_coalesce", coalesce);
  m.impl("_to_dense", to_dense);
  m.impl("_to_sparse", static_cast<ToSparse*>(at::native::sparse_coo_to_sparse));
  m.impl("_to_sparse_csr", at::native::coo_to_sparse_csr);
  m.impl("add.Tensor", add);
  m.impl("add_.Tensor", add_);
  m.impl("add.out", add_out);
  m.impl("mul.Tensor", mul);
  m.impl("div.Tensor", div);
  m.impl("neg", neg);
  m.impl("zero_", zero_);
  m.impl("mm", mm);
  m.impl("mm.out", mm_out);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
  m.impl("sparse_mask", sparse_mask);
  m.impl("transpose.int", transpose_coo);
  m.impl("sum", sum);
}

TORCH_LIBRARY_IMPL(aten, SparseCsrPrivateUse1, m) {
  m.impl("crow_indices", at::native::crow_indices_sparse_csr);
  m.impl("col_indices", at::native::col_indices_sparse_csr);
  m.impl("values", at::native::values_sparse_csr);
  m.impl("_nnz", at::native::_nnz_sparse_csr);
  m.impl("sparse_dim", at::native::sparse_dim_sparse_csr);
  m.impl("dense_dim", at::native::dense_dim_sparse_csr);
  m.impl("empty.memory_format", at::native::empty_sparse_compressed_symint);
  m.impl("empty_like", at::native::empty_like_sparse_csr);
  m.impl("copy_", at::native::copy_sparse_compressed_);
  m.impl("clone", at::native::clone_sparse_compressed);
  m.impl("_to_dense", to_dense);
  m.impl("_to_sparse", static_cast<ToSparse*>(at::native::sparse_compressed_to_sparse));
  m.impl("_to_sparse.sparse_dim",
         static_cast<ToSparseDim*>(at::native::sparse_compressed_to_sparse));
  m.impl("add.Tensor", add);
  m.impl("mul.Tensor", mul_csr);
  m.impl("sparse_mask", csr_mask);
  m.impl("sparse_sampled_addmm", sampled_addmm);
  m.impl("_sparse_mm_reduce_impl", mm_reduce);
  m.impl("_sparse_mm_reduce_impl_backward", mm_reduce_backward);
  m.impl("mm", mm);
  m.impl("mm.out", mm_out);
  m.impl("addmm", addmm);
  m.impl("addmm.out", addmm_out);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("_to_sparse", static_cast<ToSparse*>(at::native::dense_to_sparse));
  m.impl("_to_sparse.sparse_dim", static_cast<ToSparseDim*>(at::native::dense_to_sparse));
  m.impl("_to_sparse_csr", at::native::dense_to_sparse_csr);
}

}  // namespace
}  // namespace tpu::bridge
