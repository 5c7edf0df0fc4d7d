// Ops whose result's size depends on data. The device computes a result padded to the largest
// possible size and a count; the count is read, which is the one wait of the op, and the result is
// cut to it.
#include <ATen/Functions.h>
#include <torch/library.h>

#include "bridge/errors.h"
#include "bridge/kernel.h"

namespace tpu::bridge {
namespace {

using c10::IValue;

std::vector<at::Tensor> run(const char* op, c10::ArrayRef<IValue> args) {
  try {
    return call(op, args);
  } catch (const Error& e) {
    rethrow(e, cat(op, ": "));
  }
}

// A cut result owns just its own memory, as everywhere.
at::Tensor first(const at::Tensor& padded, int64_t count, int64_t dim = 0) {
  return padded.size(dim) == count ? padded : padded.narrow(dim, 0, count).clone();
}

at::Tensor& give(const at::Tensor& result, at::Tensor& out) {
  out.resize_(result.sizes());
  out.copy_(result);
  return out;
}

at::Tensor nonzero(const at::Tensor& self) {
  const auto r = run("tpu::nonzero_padded", {self});
  return first(r[0], r[1].item<int64_t>(), 1).t();
}
at::Tensor& nonzero_out(const at::Tensor& self, at::Tensor& out) {
  TORCH_CHECK(out.scalar_type() == at::kLong, "nonzero: Expected out tensor to have scalar type ",
              at::kLong, " but got scalar type", out.scalar_type());
  TORCH_CHECK(self.device() == out.device(),
              "expected self and out to be on the same device, but got out on ", out.device(),
              " and self on ", self.device());
  const at::Tensor r = bridge::nonzero(self);
  if (out.sizes() != r.sizes()) out.resize_(r.sizes());
  out.copy_(r);
  return out;
}

at::Tensor masked_select(const at::Tensor& self, const at::Tensor& mask) {
  TORCH_CHECK(mask.scalar_type() == at::kBool, "masked_select: expected BoolTensor for mask");
  const auto r = run("tpu::masked_select_padded", {self, mask});
  return first(r[0], r[1].item<int64_t>());
}
at::Tensor& masked_select_out(const at::Tensor& self, const at::Tensor& mask, at::Tensor& out) {
  TORCH_CHECK(self.scalar_type() == out.scalar_type(),
              "masked_select(): self and result must have the same scalar type");
  return give(bridge::masked_select(self, mask), out);
}

// Results of the unique family: values, inverse, counts; those not asked for are empty.
std::tuple<at::Tensor, at::Tensor, at::Tensor> cut(const std::vector<at::Tensor>& r, int64_t dim,
                                                   bool inverse, bool counts) {
  const int64_t n = r[3].item<int64_t>();
  const at::Tensor none = at::empty({0}, r[0].options().dtype(at::kLong));
  return {first(r[0], n, dim), inverse ? r[1] : none, counts ? first(r[2], n) : none};
}

std::tuple<at::Tensor, at::Tensor, at::Tensor> unique2(const at::Tensor& self, bool /*sorted*/,
                                                       bool inverse, bool counts) {
  return cut(run("tpu::unique_padded", {self, inverse, counts}), 0, inverse, counts);
}
std::tuple<at::Tensor, at::Tensor> unique(const at::Tensor& self, bool /*sorted*/, bool inverse) {
  auto [values, index, _] =
      cut(run("tpu::unique_padded", {self, inverse, false}), 0, inverse, false);
  return {values, index};
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_dim(const at::Tensor& self, int64_t dim,
                                                          bool /*sorted*/, bool inverse,
                                                          bool counts) {
  const int64_t d = at::maybe_wrap_dim(dim, self.dim());
  return cut(run("tpu::unique_dim_padded", {self, dim}), d, inverse, counts);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_consecutive(const at::Tensor& self,
                                                                  bool inverse, bool counts,
                                                                  std::optional<int64_t> dim) {
  if (!dim)
    return cut(run("tpu::unique_consecutive_padded", {self, inverse, counts}), 0, inverse, counts);
  const int64_t d = at::maybe_wrap_dim(*dim, self.dim());
  return cut(run("tpu::unique_dim_consecutive_padded", {self, *dim}), d, inverse, counts);
}
std::tuple<at::Tensor, at::Tensor, at::Tensor> unique_dim_consecutive(const at::Tensor& self,
                                                                      int64_t dim, bool inverse,
                                                                      bool counts) {
  return bridge::unique_consecutive(self, inverse, counts, dim);
}

at::Tensor bincount(const at::Tensor& self, const std::optional<at::Tensor>& weights,
                    int64_t minlength) {
  const IValue w = weights && weights->defined() ? IValue(*weights) : IValue();
  const int64_t size = run("tpu::bincount_size", {self, w, minlength})[0].item<int64_t>();
  TORCH_CHECK(size >= 0, "bincount only supports 1-d non-negative integral inputs.");
  return run("tpu::bincount_sized", {self, w, size})[0];
}

at::Tensor repeat_interleave(const at::Tensor& repeats, std::optional<int64_t> output_size) {
  if (!output_size) {
    TORCH_CHECK(repeats.dim() == 1, "repeat_interleave only accept 1D vector as repeat");
    TORCH_CHECK(repeats.scalar_type() == at::kLong || repeats.scalar_type() == at::kInt,
                "repeats has to be Long or Int tensor");
    if (repeats.numel() > 0) {
      const at::Tensor least = repeats.min(), sum = repeats.sum();
      TORCH_CHECK(least.item<int64_t>() >= 0, "repeats can not be negative");
      output_size = sum.item<int64_t>();
    } else {
      output_size = 0;
    }
  }
  return run("aten::repeat_interleave.Tensor", {repeats, *output_size})[0];
}

at::Tensor padded_dense_to_jagged(const at::Tensor& dense, at::TensorList offsets,
                                  std::optional<int64_t> total) {
  TORCH_CHECK(!offsets.empty(), "_padded_dense_to_jagged_forward: needs offsets");
  if (!total) total = offsets[0].select(0, -1).item<int64_t>();
  return run("aten::_padded_dense_to_jagged_forward", {dense, offsets.vec(), *total})[0];
}

// PyTorch wants the places of the cuts on the CPU, whatever the device; here they are read. The
// kernel stands above autograd, which then sees slices.
std::vector<at::Tensor> tensor_split(const at::Tensor& self, const at::Tensor& places,
                                     int64_t dim) {
  TORCH_CHECK(places.scalar_type() == at::kLong,
              "tensor_split expected tensor_indices_or_sections to have dtype of long, but got ",
              places.scalar_type());
  TORCH_CHECK(places.dim() <= 1,
              "tensor_split expected tensor_indices_or_sections to be a zero-dimensional or "
              "one-dimensional tensor, but got a tensor with ",
              places.dim(), " dims");
  const at::Tensor read = places.cpu().contiguous();
  const auto* first_place = read.const_data_ptr<int64_t>();
  if (places.dim() == 0) return at::tensor_split(self, *first_place, dim);
  return at::tensor_split(self, c10::IntArrayRef(first_place, static_cast<size_t>(read.numel())),
                          dim);
}

// ---- Masks as indices.

using Indices = c10::List<std::optional<at::Tensor>>;

bool is_mask(const at::Tensor& t) {
  return t.scalar_type() == at::kBool || t.scalar_type() == at::kByte;
}

// Indices on the device, each mask as the positions of its true elements (a read of their number);
// masks stay where `keep_masks` says so.
Indices positions(const at::Tensor& self, const Indices& indices, bool keep_masks) {
  Indices result;
  for (const std::optional<at::Tensor> i : indices) {
    if (!i || !i->defined()) {
      result.push_back(std::nullopt);
      continue;
    }
    TORCH_CHECK_INDEX(is_mask(*i) || i->scalar_type() == at::kLong || i->scalar_type() == at::kInt,
                      "tensors used as indices must be long, int, byte or bool tensors");
    TORCH_CHECK(i->is_cpu() || i->device() == self.device(),
                "indices should be either on cpu or on the same device as the indexed tensor (",
                self.device(), "), but one is on ", i->device());
    const at::Tensor index = i->device() == self.device() ? *i : i->to(self.device());
    if (!is_mask(index) || keep_masks) {
      result.push_back(index);
      continue;
    }
    const auto first_dim = static_cast<int64_t>(result.size());
    for (int64_t d = 0; d < index.dim(); ++d) {
      TORCH_CHECK_INDEX(first_dim + d < self.dim() && index.size(d) == self.size(first_dim + d),
                        "The shape of the mask ", index.sizes(), " at index ", d,
                        " does not match the shape of the indexed tensor ", self.sizes(),
                        " at index ", first_dim + d);
    }
    if (index.dim() == 0) {
      // A mask of rank 0 selects from a dim of its own: all or nothing.
      TORCH_CHECK_INDEX(false,
                        "a mask of rank 0 cannot be an index of a tpu tensor; use torch.where");
    }
    const at::Tensor found = bridge::nonzero(index);
    for (int64_t d = 0; d < index.dim(); ++d) result.push_back(found.select(1, d));
  }
  return result;
}

at::Tensor index(const at::Tensor& self, const Indices& indices) {
  return run("aten::index.Tensor", {self, positions(self, indices, false)})[0];
}

at::Tensor& index_put_impl(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                           bool accumulate, bool unsafe) {
  // One value through a mask alone is a select: no read.
  bool keep = values.numel() == 1 && !accumulate;
  int64_t given = 0;
  for (const std::optional<at::Tensor> i : indices) {
    if (!i || !i->defined()) continue;
    keep &= is_mask(*i);
    ++given;
  }
  keep &= given == 1;
  TORCH_CHECK(values.device() == self.device() || values.dim() == 0,
              "Expected all tensors to be on the same device, but found at least two devices, ",
              self.device(), " and ", values.device(), "!");
  at::Tensor v = values;
  // That is masked_fill_, which converts the value.
  if (keep && (self.is_complex() || !v.is_complex())) v = v.to(self.scalar_type());
  self.copy_(run("aten::_index_put_impl",
                 {self, positions(self, indices, keep), v, accumulate, unsafe})[0]);
  return self;
}
at::Tensor& index_put_(at::Tensor& self, const Indices& indices, const at::Tensor& values,
                       bool accumulate) {
  return index_put_impl(self, indices, values, accumulate, false);
}
at::Tensor index_put(const at::Tensor& self, const Indices& indices, const at::Tensor& values,
                     bool accumulate) {
  at::Tensor result = self.clone();
  index_put_impl(result, indices, values, accumulate, false);
  return result;
}

TORCH_LIBRARY_IMPL(aten, AutogradPrivateUse1, m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
}

TORCH_LIBRARY_IMPL(aten, PrivateUse1, m) {
  m.impl("tensor_split.tensor_indices_or_sections", tensor_split);
  m.impl("index.Tensor", index);
  m.impl("index_put", index_put);
  m.impl("index_put_", index_put_);
  m.impl("_index_put_impl_", index_put_impl);
  m.impl("nonzero", nonzero);
  m.impl("nonzero.out", nonzero_out);
  m.impl("masked_select", masked_select);
  m.impl("masked_select.out", masked_select_out);
  m.impl("_unique2", unique2);
  m.impl("_unique", unique);
  m.impl("unique_dim", unique_dim);
  m.impl("unique_consecutive", unique_consecutive);
  m.impl("unique_dim_consecutive", unique_dim_consecutive);
  m.impl("bincount", bincount);
  m.impl("repeat_interleave.Tensor", repeat_interleave);
  m.impl("_padded_dense_to_jagged_forward", padded_dense_to_jagged);
}

}  // namespace

}  // namespace tpu::bridge
