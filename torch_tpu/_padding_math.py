"""Rules for ops that reduce, multiply, index or are layers of a network, on padded arrays.

What they have in common: they mix elements along a dim, so padding is masked first. See
torch_tpu/_padding_rules.py.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import sympy
import torch

from torch_tpu._padding import Array, Dim, size, sizes_of, symbolic
from torch_tpu._padding_rules import Padding, dim_of, dims_of, pointwise, rule

aten = torch.ops.aten


# -- reductions ------------------------------------------------------------------------------------


def _reduced(a: Array, dims: Sequence[int], keep: bool) -> list[Dim]:
    if keep:
        return [(1,) if d in dims else x for d, x in enumerate(a.dims)]
    return [x for d, x in enumerate(a.dims) if d not in dims]


def _lowest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return -math.inf
    return False if dtype is torch.bool else torch.iinfo(dtype).min


def _highest(dtype: torch.dtype) -> Any:
    if dtype.is_floating_point:
        return math.inf
    return True if dtype is torch.bool else torch.iinfo(dtype).max


_FILL: dict[Any, Callable[[torch.dtype], Any]] = {
    aten.sum: lambda _: 0, aten.nansum: lambda _: 0, aten.prod: lambda _: 1,
    aten.any: lambda _: 0, aten.all: lambda _: 1, aten.count_nonzero: lambda _: 0,
    aten.amax: _lowest, aten.max: _lowest, aten.argmax: _lowest, aten.logsumexp: _lowest,
    aten.amin: _highest, aten.min: _highest, aten.argmin: _highest,
}  # fmt: skip


@rule(*_FILL)
def _reduce(p: Padding, a: SimpleNamespace) -> Any:
    rank = len(a.self.dims)
    dims = dims_of(getattr(a, "dim", None), rank)
    if (
        p.kind in (aten.argmax, aten.argmin)
        and a.dim is None
        and any(map(symbolic, a.self.dims[1:]))
    ):
        raise p.refuse("an index into padded dims")
    if hasattr(a, "other"):
        return pointwise(p, a)
    x = p.sizes.filled(a.self, _FILL[p.kind](a.self.tensor.dtype), dims)
    out = _reduced(a.self, dims, getattr(a, "keepdim", False))
    result = p.call(a, self=x)
    if isinstance(result, torch.Tensor):
        return p.array(result, out)
    return tuple(p.array(r, out) for r in result)


def _count(p: Padding, x: Array, dims: Sequence[int]) -> torch.Tensor:
    n = sympy.Integer(1)
    for d in dims:
        n = n * size(x.dims[d])
    return p.sizes.value(sympy.expand(n))


def _wide(dtype: torch.dtype) -> torch.dtype:
    return torch.float32 if dtype in (torch.bfloat16, torch.float16) else dtype


@rule(aten.mean)
def _mean(p: Padding, a: SimpleNamespace) -> Array:
    dims = dims_of(getattr(a, "dim", None), len(a.self.dims))
    keep = getattr(a, "keepdim", False)
    x = p.sizes.filled(a.self, 0, dims)
    total = x.sum(dims, keepdim=keep, dtype=_wide(p.fake.dtype))
    mean = total / _count(p, a.self, dims).to(total.dtype)
    return p.array(mean.to(p.fake.dtype), _reduced(a.self, dims, keep))


@rule(aten.var, aten.std, aten.var_mean, aten.std_mean)
def _var(p: Padding, a: SimpleNamespace) -> Any:
    dims = dims_of(a.dim, len(a.self.dims))
    if a.self.tensor.is_complex():
        raise p.refuse("of complex numbers")
    count = _count(p, a.self, dims)
    correction = getattr(a, "correction", 1)
    correction = 1 if correction is None else correction
    wide = _wide(a.self.tensor.dtype)
    count = count.to(wide)
    x = p.sizes.filled(a.self, 0, dims).to(wide)
    mean = x.sum(dims, keepdim=True) / count
    d = p.sizes.filled(Array(x - mean, a.self.dims), 0, dims)
    result = (d * d).sum(dims, keepdim=True) / (count - correction).clamp_min(0)
    if p.kind in (aten.std, aten.std_mean):
        result = result.sqrt()
    out = _reduced(a.self, dims, a.keepdim)
    shape = p.sizes.bounds_of(out)
    arrays = [p.array(t.to(a.self.tensor.dtype).reshape(shape), out) for t in (result, mean)]
    return tuple(arrays) if p.kind in (aten.var_mean, aten.std_mean) else arrays[0]


@rule(aten.linalg_vector_norm)
def _norm(p: Padding, a: SimpleNamespace) -> Array:
    dims = dims_of(a.dim, len(a.self.dims))
    fill = math.inf if a.ord < 0 else 0
    x = p.sizes.filled(a.self, fill, dims)
    return p.array(p.call(a, self=x), _reduced(a.self, dims, a.keepdim))


@rule(aten.cumsum, aten.cumprod, aten.logcumsumexp, aten.cummax, aten.cummin)
def _scan(p: Padding, a: SimpleNamespace) -> Any:
    d = dim_of(a.dim, max(len(a.self.dims), 1))
    if a.self.dims:
        p.one_piece(a.self.dims[d])
    result = p.call(a, self=p.sizes.filled(a.self, 0, [d] if a.self.dims else []))
    if isinstance(result, torch.Tensor):
        return p.array(result, a.self.dims)
    return tuple(p.array(r, a.self.dims) for r in result)


@rule(aten._softmax, aten._log_softmax, aten._safe_softmax)
def _softmax(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    return p.array(p.call(a, self=p.sizes.filled(a.self, -math.inf, [d])), a.self.dims)


@rule(aten._softmax_backward_data, aten._log_softmax_backward_data)
def _softmax_backward(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.output.dims))
    fill = 0 if p.kind is aten._softmax_backward_data else -math.inf
    grad = p.sizes.filled(p.as_in(a.grad_output, a.output.dims), 0, [d])
    output = p.sizes.filled(a.output, fill, [d])
    return p.array(p.call(a, grad_output=grad, output=output), a.output.dims)


@rule(aten.sort, aten.argsort, aten.topk, aten.msort)
def _sort(p: Padding, a: SimpleNamespace) -> Any:
    d = dim_of(getattr(a, "dim", -1), len(a.self.dims))
    p.one_piece(a.self.dims[d])
    dtype = a.self.tensor.dtype
    down = getattr(a, "descending", getattr(a, "largest", False))
    # Last of all, after the real NaNs; ties are in the order of their positions.
    last = math.nan if dtype.is_floating_point else _highest(dtype)
    changed: dict[str, Any] = {
        "self": p.sizes.filled(a.self, _lowest(dtype) if down else last, [d])
    }
    if hasattr(a, "stable"):
        changed["stable"] = True
    elif symbolic(a.self.dims[d]) and p.op is aten.sort.default:
        values, indices = torch.sort(changed["self"], dim=d, descending=down, stable=True)
        return (p.array(values, a.self.dims), p.array(indices, a.self.dims))
    result = p.call(a, **changed)
    dims = list(a.self.dims)
    if hasattr(a, "k"):
        if not isinstance(a.k, int):
            raise p.refuse("k varies")
        dims[d] = (a.k,)
    if isinstance(result, torch.Tensor):
        return p.array(result, dims)
    return tuple(p.array(r, dims) for r in result)


# -- products --------------------------------------------------------------------------------------


def _product(p: Padding, x: Array, y: Array) -> tuple[torch.Tensor, torch.Tensor, list[Dim]]:
    """The operands of x @ y without padding where they are summed, and the dims of the product."""
    (inner,) = p.broadcast([x.dims[-1:], y.dims[-2:-1]], relaid=True)
    batch = p.broadcast([x.dims[:-2], y.dims[:-2]], relaid=True)
    x = p.as_in(x, [*batch, x.dims[-2], inner])
    y = p.as_in(y, [*batch, inner, y.dims[-1]])
    rank = len(x.dims)
    return (
        p.sizes.filled(x, 0, [rank - 1]),
        p.sizes.filled(y, 0, [rank - 2]),
        [*batch, x.dims[-2], y.dims[-1]],
    )


@rule(aten.mm, aten.bmm)
def _mm(p: Padding, a: SimpleNamespace) -> Array:
    x, y, dims = _product(p, a.self, a.mat2)
    return p.array(p.call(a, self=x, mat2=y), dims)


@rule(aten.addmm, aten.baddbmm)
def _addmm(p: Padding, a: SimpleNamespace) -> Array:
    batched = hasattr(a, "batch1")
    names = ("batch1", "batch2") if batched else ("mat1", "mat2")
    x, y, dims = _product(p, getattr(a, names[0]), getattr(a, names[1]))
    changed = dict(zip(names, (x, y), strict=True))
    return p.array(p.call(a, self=p.as_in(a.self, dims).tensor, **changed), dims)


@rule(aten.mv, aten.dot)
def _mv(p: Padding, a: SimpleNamespace) -> Array:
    other = a.vec if hasattr(a, "vec") else a.tensor
    (inner,) = p.broadcast([a.self.dims[-1:], other.dims], relaid=True)
    x = p.sizes.filled(p.as_in(a.self, [inner]), 0, [len(a.self.dims) - 1])
    y = p.sizes.filled(p.as_in(other, [inner]), 0)
    changed = {"self": x, ("vec" if hasattr(a, "vec") else "tensor"): y}
    return p.array(p.call(a, **changed), a.self.dims[:-1])


_ATTENTION = "_scaled_dot_product_fused_attention_overrideable"


def _attention_operands(p: Padding, a: SimpleNamespace) -> tuple[dict[str, Any], Any]:
    """Arguments without padding, and the factor of the query, if its last dim varies."""
    if a.dropout_p:
        raise p.refuse("dropout draws as many numbers as there are scores")
    key, bias = a.key.dims[-2], a.attn_bias
    rows = [a.query.dims[:1], a.key.dims[:1], a.value.dims[:1]]
    p.broadcast([*rows, *([bias.dims[:-3]] if bias is not None else [])])
    p.broadcast(
        [a.key.dims[-2:-1], a.value.dims[-2:-1], *([bias.dims[-1:]] if bias is not None else [])]
    )
    p.broadcast([a.query.dims[-1:], a.key.dims[-1:]])
    if bias is not None:
        p.broadcast([a.query.dims[-2:-1], bias.dims[-2:-1]])
    for x in (a.grad_out, a.out) if hasattr(a, "out") else ():
        p.broadcast([x.dims, [*a.query.dims[:-1], a.value.dims[-1]]])
    if a.is_causal and a.query.dims[-2] != key:
        raise p.refuse("causal, with queries and keys of different lengths")
    # A causal query reads nothing after its own position, so no padding either.
    if symbolic(key) and not a.is_causal:
        mask = p.sizes.real(key)
        if bias is None:
            bias = mask.expand(a.query.tensor.shape[-2], -1)
        elif bias.tensor.dtype is torch.bool:
            bias = bias.tensor & mask
        else:
            bias = bias.tensor.masked_fill(~mask, -math.inf)
    names = ("grad_out", "query", "key", "value", "out", "logsumexp")
    clean: dict[str, Any] = {n: p.sizes.filled(getattr(a, n), 0) for n in names if hasattr(a, n)}
    clean["attn_bias"] = bias
    width = a.query.dims[-1]
    if not symbolic(width):
        return clean, None
    scale = (
        p.sizes.value(size(width)).to(clean["query"].dtype).rsqrt() if a.scale is None else a.scale
    )
    clean |= {"query": clean["query"] * scale, "scale": 1.0}
    return clean, scale


@rule(getattr(aten, _ATTENTION))
def _attention(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    clean, _ = _attention_operands(p, a)
    r = p.call(a, **clean)
    dims = a.query.dims[:-1]  # keys may have fewer heads
    seeds = [t if t is None else p.array(t, [(int(n),) for n in t.shape]) for t in r[6:]]
    # The lengths are sizes, and are those of the fake tensors.
    return (
        p.array(r[0], [*dims, a.value.dims[-1]]),
        p.array(r[1], dims),
        *r[2:4],
        *p.fake[4:6],
        *seeds,
    )


@rule(getattr(aten, _ATTENTION + "_backward"))
def _attention_backward(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    if a.attn_bias is not None and a.grad_input_mask[3]:
        raise p.refuse("a bias with a gradient")
    clean, scale = _attention_operands(p, a)
    # They count for nothing where the padding is zero.
    lengths = {"max_q": a.query.tensor.shape[-2], "max_k": a.key.tensor.shape[-2]}
    dq, dk, dv, _ = p.call(a, **clean, **lengths)
    if scale is not None:
        dq = dq * scale
    return (p.array(dq, a.query.dims), p.array(dk, a.key.dims), p.array(dv, a.value.dims), None)


# -- indices ---------------------------------------------------------------------------------------


@rule(aten.embedding)
def _embedding(p: Padding, a: SimpleNamespace) -> Array:
    index = p.index(a.indices, a.weight.dims[0])
    return p.array(p.call(a, indices=index), [*a.indices.dims, a.weight.dims[1]])


@rule(aten.embedding_dense_backward)
def _embedding_backward(p: Padding, a: SimpleNamespace) -> Array:
    if not isinstance(a.num_weights, int):
        raise p.refuse("the number of rows varies")
    rank = len(a.indices.dims)
    grad_output = p.as_in(a.grad_output, [*a.indices.dims, a.grad_output.dims[-1]])
    grad = p.sizes.filled(grad_output, 0, range(rank))
    index = p.sizes.filled(a.indices, 0)
    return p.array(
        p.call(a, grad_output=grad, indices=index), [(a.num_weights,), a.grad_output.dims[-1]]
    )


@rule(aten.index_select)
def _index_select(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    index = p.index(a.index, a.self.dims[d])
    return p.array(p.call(a, index=index), [*a.self.dims[:d], *a.index.dims, *a.self.dims[d + 1 :]])


@rule(aten.gather)
def _gather(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    _same_or_static(p, a.self, a.index, d)
    return p.array(p.call(a, index=p.index(a.index, a.self.dims[d])), a.index.dims)


def _same_or_static(p: Padding, x: Array, index: Array, but: int) -> None:
    for d, (mine, its) in enumerate(zip(x.dims, index.dims, strict=True)):
        if d != but and mine != its and (symbolic(mine) or symbolic(its)):
            raise p.refuse(f"dims of {size(mine)} and {size(its)} do not pair up")


def _indexed(p: Padding, x: Array, indices: Sequence[Any]) -> tuple[list[Dim], list[Dim], int]:
    """For x[indices]: the dims of the index, those of the result, and where the first begin."""
    given = [d for d, i in enumerate(indices) if i is not None]
    if any(indices[d].tensor.dtype in (torch.bool, torch.uint8) for d in given):
        raise p.refuse("a mask as an index")
    index = p.broadcast([indices[d].dims for d in given])
    rest = [dim for d, dim in enumerate(x.dims) if d not in given]
    together = given == list(range(given[0], given[-1] + 1))
    at = given[0] if together else 0
    return index, [*rest[:at], *index, *rest[at:]], at


@rule(aten.index, aten._unsafe_index)
def _index(p: Padding, a: SimpleNamespace) -> Array:
    _, dims, _ = _indexed(p, a.self, a.indices)
    indices = [None if i is None else p.index(i, a.self.dims[d]) for d, i in enumerate(a.indices)]
    return p.array(p.call(a, indices=indices), dims)


@rule(aten.index_put, aten._unsafe_index_put)
def _index_put(p: Padding, a: SimpleNamespace) -> Array:
    index, dims, at = _indexed(p, a.self, a.indices)
    p.broadcast([a.values.dims, dims])
    indices: list[torch.Tensor | None] = []
    for d, i in enumerate(a.indices):
        if i is None:
            indices.append(None)
            continue
        found = p.index(i, a.self.dims[d])
        indices.append(
            found if a.accumulate else p.repeated(Array(found, i.dims), range(len(i.dims)))
        )
    shape = p.sizes.bounds_of(dims)
    places = range(at, at + len(index))
    values = Array(a.values.tensor.expand(shape), tuple(dims))
    # What pads the index writes once more what its last element writes, or adds nothing.
    new = p.sizes.filled(values, 0, places) if a.accumulate else p.repeated(values, places)
    return p.array(p.call(a, indices=indices, values=new), a.self.dims)


@rule(aten.index_add, aten.index_copy)
def _index_add(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    source = a.source
    p.broadcast(
        [
            (*a.self.dims[:d], (1,), *a.self.dims[d + 1 :]),
            (*source.dims[:d], (1,), *source.dims[d + 1 :]),
        ]
    )
    index = p.index(a.index, a.self.dims[d])
    if p.kind is aten.index_add:
        return p.array(p.call(a, index=index, source=p.sizes.filled(source, 0, [d])), a.self.dims)
    index = p.repeated(Array(index, a.index.dims), [0])
    return p.array(p.call(a, index=index, source=p.repeated(source, [d])), a.self.dims)


@rule(aten.scatter, aten.scatter_add)
def _scatter(p: Padding, a: SimpleNamespace) -> Array:
    d = dim_of(a.dim, len(a.self.dims))
    _same_or_static(p, a.self, a.index, d)
    index = p.index(a.index, a.self.dims[d])
    src = getattr(a, "src", None)
    if hasattr(a, "reduce"):
        raise p.refuse("with a reduction")
    if src is not None and src.dims != a.index.dims:
        raise p.refuse("a source of other sizes than the index")
    if p.kind is aten.scatter_add:
        return p.array(p.call(a, index=index, src=p.sizes.filled(a.src, 0)), a.self.dims)
    changed = {"index": p.repeated(Array(index, a.index.dims), [d])}
    if src is not None:
        changed["src"] = p.repeated(src, [d])
    return p.array(p.call(a, **changed), a.self.dims)


# -- layers ----------------------------------------------------------------------------------------


@rule(
    aten.nll_loss_forward, aten.nll_loss_backward, aten.nll_loss2d_forward, aten.nll_loss2d_backward
)
def _nll_loss(p: Padding, a: SimpleNamespace) -> Any:
    classes = 1 if len(a.self.dims) > 1 else 0
    p.only_in(a.self, [d for d in range(len(a.self.dims)) if d != classes])
    samples = [dim for d, dim in enumerate(a.self.dims) if d != classes]
    changed = {
        "self": p.sizes.filled(a.self, 0),
        "target": p.sizes.filled(p.as_in(a.target, samples), a.ignore_index),
    }
    if hasattr(a, "grad_output"):
        changed["grad_output"] = p.sizes.filled(p.as_in(a.grad_output, samples), 0)
        return p.array(p.call(a, **changed), a.self.dims)
    loss, weight = p.call(a, **changed)
    return (p.array(loss, samples if a.reduction == 0 else ()), p.array(weight, ()))


@rule(aten.native_layer_norm, aten._fused_rms_norm)
def _layer_norm(p: Padding, a: SimpleNamespace) -> tuple[Array, ...]:
    n = len(a.normalized_shape)
    outer = range(len(a.input.dims) - n)
    p.only_in(a.input, outer)
    r = p.call(a)
    few = [*(a.input.dims[d] for d in outer), *[(1,)] * n]
    return (p.array(r[0], a.input.dims), *(p.array(x, few) for x in r[1:]))


@rule(aten.native_layer_norm_backward, aten._fused_rms_norm_backward)
def _layer_norm_backward(p: Padding, a: SimpleNamespace) -> tuple[Array | None, ...]:
    p.only_in(a.input, range(len(a.input.dims) - len(a.normalized_shape)))
    n = len(a.normalized_shape)
    few = [*a.input.dims[: len(a.input.dims) - n], *[(1,)] * n]
    dims = {"grad_out": a.input.dims, "input": a.input.dims, "mean": few, "rstd": few}
    clean = {
        n: p.sizes.filled(p.as_in(getattr(a, n), d), 0) for n, d in dims.items() if hasattr(a, n)
    }
    r = p.call(a, **clean)
    grads: list[Array | None] = [None if r[0] is None else p.array(r[0], a.input.dims)]
    for t in r[1:]:
        grads.append(None if t is None else p.array(t, [(int(n),) for n in t.shape]))
    return tuple(grads)


def _strided_dims(p: Padding, fake: torch.Tensor, tensor: torch.Tensor) -> list[Dim]:
    """The dims of a result that are sizes of its own; what they are on the bucket's sizes."""
    dims: list[Dim] = [(s,) for s in sizes_of(fake)]
    if p.sizes.bounds_of(dims) != list(tensor.shape):
        raise p.refuse(f"{list(tensor.shape)} elements where {p.sizes.bounds_of(dims)} were due")
    return dims


@rule(aten.convolution)
def _convolution(p: Padding, a: SimpleNamespace) -> Array:
    p.only_in(a.weight, [])
    spatial = range(2, len(a.input.dims))
    p.only_in(a.input, [0] if a.transposed else [0, *spatial])
    result = p.call(a, input=p.sizes.filled(a.input, 0, spatial))
    return p.array(result, [a.input.dims[0], *_strided_dims(p, p.fake, result)[1:]])


@rule(aten.convolution_backward)
def _convolution_backward(p: Padding, a: SimpleNamespace) -> tuple[Array | None, ...]:
    p.only_in(a.weight, [])
    p.only_in(a.input, [0] if a.transposed else range(len(a.input.dims)))
    p.broadcast([a.grad_output.dims[:1], a.input.dims[:1]])
    clean = {n: p.sizes.filled(getattr(a, n), 0) for n in ("grad_output", "input")}
    r = p.call(a, **clean)
    dims = (a.input.dims, a.weight.dims, None)
    return tuple(
        None if t is None else p.array(t, d or [(int(n),) for n in t.shape])
        for t, d in zip(r, dims, strict=True)
    )


@rule(
    aten.avg_pool2d, aten.max_pool2d_with_indices, aten._adaptive_avg_pool2d,
    aten.max_pool3d_with_indices, aten.avg_pool3d, aten._adaptive_avg_pool3d,
    aten.adaptive_max_pool2d, aten.upsample_nearest2d, aten.upsample_bilinear2d,
    aten.upsample_nearest1d, aten.upsample_linear1d, aten.upsample_bicubic2d,
    aten.upsample_nearest3d, aten.upsample_trilinear3d, aten.reflection_pad1d,
    aten.reflection_pad2d, aten.replication_pad1d, aten.replication_pad2d,
)  # fmt: skip
def _of_each_sample(p: Padding, a: SimpleNamespace) -> Any:
    """Ops that treat the samples of a batch one by one."""
    x: Array = a.self if hasattr(a, "self") else a.input
    p.only_in(x, [0])
    result = p.call(a)
    one = isinstance(result, torch.Tensor)
    arrays = [
        p.array(t, [x.dims[0], *[(int(n),) for n in t.shape[1:]]])
        for t in ([result] if one else result)
    ]
    return arrays[0] if one else tuple(arrays)


@rule(
    aten.max_pool2d_with_indices_backward, aten.avg_pool2d_backward,
    aten._adaptive_avg_pool2d_backward, aten.max_pool3d_with_indices_backward,
)  # fmt: skip
def _of_each_sample_backward(p: Padding, a: SimpleNamespace) -> Array:
    p.only_in(a.self, [0])
    p.broadcast([a.self.dims[:1], a.grad_output.dims[:1]])
    changed: dict[str, Any] = {"grad_output": p.sizes.filled(a.grad_output, 0)}
    if hasattr(a, "indices"):
        changed["indices"] = p.sizes.filled(a.indices, 0)
    return p.array(p.call(a, **changed), a.self.dims)


@rule(aten._native_batch_norm_legit_no_training, aten._batch_norm_no_update)
def _batch_norm_as_learnt(p: Padding, a: SimpleNamespace) -> tuple[Any, ...]:
    if len(a.input.dims) > 1 and symbolic(a.input.dims[1]):
        raise p.refuse("channels vary")
    r = p.call(a)
    return (p.array(r[0], a.input.dims), *(p.array(x, [(int(n),) for n in x.shape]) for x in r[1:]))
