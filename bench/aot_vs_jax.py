#!/usr/bin/env python3
"""The same computation written plainly in PyTorch and in JAX, both compiled for a TPU.

    python bench/aot_vs_jax.py [-t v6e:1x1] [-t tpu7x:1x1x1] [--only NAME] [--json FILE]

Nothing runs: both StableHLO texts go through the same libtpu with the same options, and estimated
cycles, bytes accessed (all and those of the main memory), flops of matrix products and peak memory
are compared. Ratios are ours over JAX's: below 1 is better. Needs jax.
"""

import argparse
import itertools
import json
import math
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

os.environ.setdefault("JAX_PLATFORMS", "cpu")

import jax
import jax.numpy as jnp
import torch
import torch.nn.functional as F
from jax import lax
from torch import nn

from torch_tpu.aot import _chips, _compiler, _hlo, _trace

ROOT = Path(__file__).resolve().parent.parent
META = torch.device("meta")
BF16 = torch.bfloat16


@dataclass
class Program:
    """`torch()` gives arguments of `_trace.trace`, `jax()` a function, its arguments as shapes and
    which of them are donated.
    """

    name: str
    torch: Callable[[], dict]
    jax: Callable[[], tuple]


def call(**arguments):
    return arguments


def shape(*dims, dtype=jnp.float32):
    return jax.ShapeDtypeStruct(dims, dtype)


def empty(*dims, dtype=torch.float32, grad=False):
    return torch.empty(dims, dtype=dtype, device=META, requires_grad=grad)


def sgd(parameters):
    return torch.optim.SGD(parameters, lr=1e-2)


def jax_sgd(loss, params, *batch):
    value, grads = jax.value_and_grad(loss)(params, *batch)
    new = jax.tree.map(lambda p, g: p - (1e-2 * g).astype(p.dtype), params, grads)
    return value, new


def cross_entropy(logits, labels):
    logp = jax.nn.log_softmax(logits.astype(jnp.float32))
    return -jnp.mean(jnp.take_along_axis(logp, labels[:, None], axis=1))


# -- MLP step, float32 in six passes ---------------------------------------------------------------


def mlp_torch():
    with META:
        m = nn.Sequential(nn.Linear(1024, 2048), nn.ReLU(), nn.Linear(2048, 2048), nn.ReLU(),
                          nn.Linear(2048, 1024))  # fmt: skip
    x, y = empty(512, 1024), empty(512, dtype=torch.int64)
    return call(target=lambda m, x, y: F.cross_entropy(m(x), y), args=(m, x, y), mode="train",
                optimizer=sgd)  # fmt: skip


def mlp_jax():
    def loss(params, x, y):
        for i, (w, b) in enumerate(params):
            x = x @ w + b
            if i < 2:
                x = jax.nn.relu(x)
        return cross_entropy(x, y)

    sizes = [1024, 2048, 2048, 1024]
    params = [(shape(a, b), shape(b)) for a, b in itertools.pairwise(sizes)]
    step = lambda params, x, y: jax_sgd(loss, params, x, y)  # noqa: E731
    return step, (params, shape(512, 1024), shape(512, dtype=jnp.int32)), (0,)


# -- ResNet-50, bfloat16 ---------------------------------------------------------------------------

STAGES = ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2))


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        self.c1, self.b1 = nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width)
        self.c2 = nn.Conv2d(width, width, 3, stride, 1, bias=False)
        self.b2 = nn.BatchNorm2d(width)
        self.c3, self.b3 = nn.Conv2d(width, 4 * width, 1, bias=False), nn.BatchNorm2d(4 * width)
        self.down = None
        if stride != 1 or inner != 4 * width:
            self.down = nn.Sequential(
                nn.Conv2d(inner, 4 * width, 1, stride, bias=False), nn.BatchNorm2d(4 * width)
            )

    def forward(self, x):
        y = F.relu(self.b1(self.c1(x)))
        y = F.relu(self.b2(self.c2(y)))
        y = self.b3(self.c3(y))
        return F.relu(y + (x if self.down is None else self.down(x)))


class ResNet50(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem, self.norm = nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64)
        blocks, inner = [], 64
        for width, count, stride in STAGES:
            for i in range(count):
                blocks.append(Bottleneck(inner, width, stride if i == 0 else 1))
                inner = 4 * width
        self.blocks = nn.Sequential(*blocks)
        self.head = nn.Linear(2048, 1000)

    def forward(self, x):
        x = F.max_pool2d(F.relu(self.norm(self.stem(x))), 3, 2, 1)
        return self.head(self.blocks(x).mean((2, 3)))


def resnet_torch(train, batch):
    with META:
        m = ResNet50().to(BF16)
    x = empty(batch, 3, 224, 224, dtype=BF16)
    if not train:
        return call(target=m.eval(), args=(x,))
    y = empty(batch, dtype=torch.int64)
    return call(target=lambda m, x, y: F.cross_entropy(m(x).float(), y), args=(m.train(), x, y),
                mode="train", optimizer=sgd)  # fmt: skip


def resnet_jax(train, batch):
    bf16 = jnp.bfloat16

    def conv(x, w, stride=1):
        k = w.shape[2]
        # Weights as PyTorch stores them; activations NHWC as TPUs like them.
        return lax.conv_general_dilated(
            x, w, (stride, stride), [(k // 2, k // 2)] * 2,
            dimension_numbers=("NCHW", "OIHW", "NCHW"),
        )  # fmt: skip

    def norm(x, p, stats):
        shape4 = (1, -1, 1, 1)
        if train:
            x32 = x.astype(jnp.float32)
            mean = x32.mean((0, 2, 3))
            var = jnp.square(x32).mean((0, 2, 3)) - jnp.square(mean)
            n = x.size // x.shape[1]
            new = {
                "mean": (0.9 * stats["mean"] + 0.1 * mean).astype(bf16),
                "var": (0.9 * stats["var"] + 0.1 * var * (n / (n - 1))).astype(bf16),
            }
        else:
            mean, var, new = stats["mean"].astype(jnp.float32), stats["var"].astype(jnp.float32), {}
        scale = p["scale"].astype(jnp.float32) * lax.rsqrt(var + 1e-5)
        shift = p["bias"].astype(jnp.float32) - mean * scale
        y = x.astype(jnp.float32) * scale.reshape(shape4) + shift.reshape(shape4)
        return y.astype(bf16), new

    def forward(params, stats, x):
        new = {}

        def cn(name, x, stride=1):
            y, new[name] = norm(conv(x, params[name]["w"], stride), params[name], stats[name])
            return y

        x = jax.nn.relu(cn("stem", x, 2))
        x = lax.reduce_window(x, -jnp.inf, lax.max, (1, 1, 3, 3), (1, 1, 2, 2),
                              [(0, 0), (0, 0), (1, 1), (1, 1)])  # fmt: skip
        for name, stride, down in blocks:
            y = jax.nn.relu(cn(name + "1", x))
            y = jax.nn.relu(cn(name + "2", y, stride))
            y = cn(name + "3", y)
            x = jax.nn.relu(y + (cn(name + "d", x, stride) if down else x))
        x = x.astype(jnp.float32).mean((2, 3)).astype(bf16)
        return x @ params["head"]["w"].T + params["head"]["b"], new

    params, stats, blocks = {}, {}, []

    def add(name, out, inner, k):
        params[name] = {
            "w": shape(out, inner, k, k, dtype=bf16),
            "scale": shape(out, dtype=bf16),
            "bias": shape(out, dtype=bf16),
        }
        stats[name] = {"mean": shape(out, dtype=bf16), "var": shape(out, dtype=bf16)}

    add("stem", 64, 3, 7)
    inner = 64
    for s, (width, count, stride) in enumerate(STAGES):
        for i in range(count):
            name = f"s{s}b{i}c"
            add(name + "1", width, inner, 1)
            add(name + "2", width, width, 3)
            add(name + "3", 4 * width, width, 1)
            if i == 0:
                add(name + "d", 4 * width, inner, 1)
            blocks.append((name, stride if i == 0 else 1, i == 0))
            inner = 4 * width
    params["head"] = {"w": shape(1000, 2048, dtype=bf16), "b": shape(1000, dtype=bf16)}
    x = shape(batch, 3, 224, 224, dtype=bf16)
    if not train:
        return (lambda p, s, x: forward(p, s, x)[0]), (params, stats, x), ()

    def step(params, stats, x, y):
        def loss(params):
            logits, new = forward(params, stats, x)
            return cross_entropy(logits, y), new

        (value, new), grads = jax.value_and_grad(loss, has_aux=True)(params)
        params = jax.tree.map(lambda p, g: p - (1e-2 * g).astype(p.dtype), params, grads)
        return value, params, new

    return step, (params, stats, x, shape(batch, dtype=jnp.int32)), (0, 1)


# -- BERT-base layer, bfloat16 ---------------------------------------------------------------------


class BertLayer(nn.Module):
    def __init__(self, d=768, heads=12, inner=3072):
        super().__init__()
        self.heads = heads
        self.q, self.k, self.v, self.o = (nn.Linear(d, d) for _ in range(4))
        self.n1, self.n2 = nn.LayerNorm(d, eps=1e-12), nn.LayerNorm(d, eps=1e-12)
        self.up, self.down = nn.Linear(d, inner), nn.Linear(inner, d)

    def forward(self, x):
        b, t, d = x.shape
        q, k, v = (
            f(x).view(b, t, self.heads, -1).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        y = F.scaled_dot_product_attention(q, k, v).transpose(1, 2).reshape(b, t, d)
        x = self.n1(x + self.o(y))
        return self.n2(x + self.down(F.gelu(self.up(x))))


def bert_torch(train):
    with META:
        m = BertLayer().to(BF16)
    x = empty(32, 512, 768, dtype=BF16)
    if not train:
        return call(target=m, args=(x,))
    return call(target=lambda m, x: m(x).float().square().mean(), args=(m, x), mode="train",
                optimizer=sgd)  # fmt: skip


def jax_layer_norm(x, w, b, eps=1e-5):
    x32 = x.astype(jnp.float32)
    mean = x32.mean(-1, keepdims=True)
    var = jnp.square(x32 - mean).mean(-1, keepdims=True)
    y = (x32 - mean) * lax.rsqrt(var + eps)
    return (y * w.astype(jnp.float32) + b.astype(jnp.float32)).astype(x.dtype)


def jax_attention(q, k, v, causal=False):
    # Softmax in float32, as PyTorch's attention has it.
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, preferred_element_type=jnp.float32)
    scores = scores * q.shape[-1] ** -0.5
    if causal:
        t, s = scores.shape[-2:]
        scores = jnp.where(jnp.tril(jnp.ones((t, s), bool)), scores, -jnp.inf)
    p = jax.nn.softmax(scores, axis=-1).astype(v.dtype)
    return jnp.einsum("bhqk,bhkd->bhqd", p, v)


def bert_jax(train):
    bf16, d, inner, heads = jnp.bfloat16, 768, 3072, 12

    def layer(p, x):
        b, t, _ = x.shape

        def dense(name, x):
            return x @ p[name]["w"].T + p[name]["b"]

        q, k, v = (dense(n, x).reshape(b, t, heads, -1).transpose(0, 2, 1, 3) for n in "qkv")
        y = jax_attention(q, k, v).transpose(0, 2, 1, 3).reshape(b, t, d)
        x = jax_layer_norm(x + dense("o", y), p["n1"]["w"], p["n1"]["b"], 1e-12)
        y = dense("down", jax.nn.gelu(dense("up", x), approximate=False))
        return jax_layer_norm(x + y, p["n2"]["w"], p["n2"]["b"], 1e-12)

    def dense(o, i):
        return {"w": shape(o, i, dtype=bf16), "b": shape(o, dtype=bf16)}

    params = {n: dense(d, d) for n in "qkvo"}
    params |= {"up": dense(inner, d), "down": dense(d, inner)}
    params |= {n: {"w": shape(d, dtype=bf16), "b": shape(d, dtype=bf16)} for n in ("n1", "n2")}
    x = shape(32, 512, d, dtype=bf16)
    if not train:
        return layer, (params, x), ()

    def step(params, x):
        return jax_sgd(lambda p, x: jnp.square(layer(p, x).astype(jnp.float32)).mean(), params, x)

    return step, (params, x), (0,)


# -- Llama-style decoder layer, bfloat16: prefill and one token with a cache -----------------------

LLAMA = {"d": 4096, "heads": 32, "kv": 8, "inner": 14336, "head": 128}


class LlamaLayer(nn.Module):
    def __init__(self):
        super().__init__()
        c = LLAMA
        self.q = nn.Linear(c["d"], c["heads"] * c["head"], bias=False)
        self.k = nn.Linear(c["d"], c["kv"] * c["head"], bias=False)
        self.v = nn.Linear(c["d"], c["kv"] * c["head"], bias=False)
        self.o = nn.Linear(c["heads"] * c["head"], c["d"], bias=False)
        self.gate = nn.Linear(c["d"], c["inner"], bias=False)
        self.up = nn.Linear(c["d"], c["inner"], bias=False)
        self.down = nn.Linear(c["inner"], c["d"], bias=False)
        self.n1, self.n2 = nn.RMSNorm(c["d"], eps=1e-5), nn.RMSNorm(c["d"], eps=1e-5)

    def forward(self, x, cos, sin, cache=None, at=None, mask=None):
        b, t, _ = x.shape
        h = self.n1(x)
        q, k, v = (
            f(h).view(b, t, -1, LLAMA["head"]).transpose(1, 2) for f in (self.q, self.k, self.v)
        )
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        if cache is not None:
            keys, values = cache
            keys.index_copy_(2, at, k)
            values.index_copy_(2, at, v)
            k, v = keys, values
        y = F.scaled_dot_product_attention(
            q, k, v, attn_mask=mask, is_causal=cache is None, enable_gqa=True
        )
        x = x + self.o(y.transpose(1, 2).reshape(b, t, -1))
        h = self.n2(x)
        return x + self.down(F.silu(self.gate(h)) * self.up(h))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


def llama_torch(decode):
    with META:
        m = LlamaLayer().to(BF16)
    d, head = LLAMA["d"], LLAMA["head"]
    if not decode:
        return call(target=m, args=(empty(1, 2048, d, dtype=BF16), empty(2048, head, dtype=BF16),
                                    empty(2048, head, dtype=BF16)))  # fmt: skip
    cache = tuple(empty(16, LLAMA["kv"], 2048, head, dtype=BF16) for _ in range(2))
    return call(
        target=m,
        args=(empty(16, 1, d, dtype=BF16), empty(1, head, dtype=BF16), empty(1, head, dtype=BF16)),
        kwargs=call(
            cache=cache, at=empty(1, dtype=torch.int64), mask=empty(1, 1, 1, 2048, dtype=torch.bool)
        ),
    )


def llama_jax(decode):
    bf16, c = jnp.bfloat16, LLAMA

    def rms(x, w):
        x32 = x.astype(jnp.float32)
        y = x32 * lax.rsqrt(jnp.square(x32).mean(-1, keepdims=True) + 1e-5)
        return (y * w.astype(jnp.float32)).astype(x.dtype)

    def rot(x, cos, sin):
        a, b = jnp.split(x, 2, -1)
        return x * cos + jnp.concatenate((-b, a), -1) * sin

    def layer(p, x, cos, sin, cache=None, at=None, mask=None):
        b, t, _ = x.shape
        h = rms(x, p["n1"])
        q, k, v = ((h @ p[n].T).reshape(b, t, -1, c["head"]).transpose(0, 2, 1, 3) for n in "qkv")
        q, k = rot(q, cos, sin), rot(k, cos, sin)
        if cache is not None:
            zero = jnp.zeros((), at.dtype)
            k = lax.dynamic_update_slice(cache[0], k, (zero, zero, at, zero))
            v = lax.dynamic_update_slice(cache[1], v, (zero, zero, at, zero))
            cache = (k, v)
        q = q.reshape(b, c["kv"], -1, t, c["head"])
        s = jnp.einsum("bgrqd,bgkd->bgrqk", q, k, preferred_element_type=jnp.float32)
        s = s * c["head"] ** -0.5
        if mask is None:
            mask = jnp.tril(jnp.ones((t, t), bool))
        s = jnp.where(mask, s, -jnp.inf)
        w = jax.nn.softmax(s, axis=-1).astype(bf16)
        y = jnp.einsum("bgrqk,bgkd->bgrqd", w, v)
        y = y.reshape(b, c["heads"], t, c["head"]).transpose(0, 2, 1, 3).reshape(b, t, -1)
        x = x + y @ p["o"].T
        h = rms(x, p["n2"])
        y = x + (jax.nn.silu(h @ p["gate"].T) * (h @ p["up"].T)) @ p["down"].T
        return y if cache is None else (y, cache)

    d, hd = c["d"], c["heads"] * c["head"]
    sizes = call(q=(hd, d), k=(c["kv"] * c["head"], d), v=(c["kv"] * c["head"], d), o=(d, hd),
                 gate=(c["inner"], d), up=(c["inner"], d), down=(d, c["inner"]),
                 n1=(d,), n2=(d,))  # fmt: skip
    p = {n: shape(*s, dtype=bf16) for n, s in sizes.items()}
    if not decode:
        rope = shape(2048, c["head"], dtype=bf16)
        return layer, (p, shape(1, 2048, d, dtype=bf16), rope, rope), ()
    rope = shape(1, c["head"], dtype=bf16)
    cache = (shape(16, c["kv"], 2048, c["head"], dtype=bf16),) * 2
    mask = shape(1, 1, 1, 1, 2048, dtype=jnp.bool_)
    args = (p, shape(16, 1, d, dtype=bf16), rope, rope, cache, shape(dtype=jnp.int32), mask)
    return layer, args, (4,)


# -- single parts ----------------------------------------------------------------------------------


def attention_torch():
    q = empty(4, 16, 2048, 128, dtype=BF16)
    return call(target=lambda q, k, v: F.scaled_dot_product_attention(q, k, v, is_causal=True),
                args=(q, q.clone(), q.clone()))  # fmt: skip


def attention_jax():
    q = shape(4, 16, 2048, 128, dtype=jnp.bfloat16)
    return (lambda q, k, v: jax_attention(q, k, v, True)), (q, q, q), ()


def norm_torch():
    with META:
        m = nn.LayerNorm(4096).to(BF16)
    return call(target=m, args=(empty(8192, 4096, dtype=BF16),))


def norm_jax():
    w = shape(4096, dtype=jnp.bfloat16)
    return jax_layer_norm, (shape(8192, 4096, dtype=jnp.bfloat16), w, w), ()


SIZES = [(4096, 1024), (4096,), (1024, 4096), (1024,), (1024, 1024), (1024, 1024), (32000, 1024)]


class Parameters(nn.Module):
    def __init__(self):
        super().__init__()
        self.list = nn.ParameterList(nn.Parameter(empty(*s)) for s in SIZES)

    def forward(self, *gradients):
        return sum((p * g).sum() for p, g in zip(self.list, gradients, strict=True))


def adamw_torch():
    return call(target=Parameters(), args=tuple(empty(*s) for s in SIZES), mode="train",
                optimizer=lambda p: torch.optim.AdamW(p, lr=1e-3))  # fmt: skip


def adamw_jax():
    b1, b2, eps, lr, decay, step = 0.9, 0.999, 1e-8, 1e-3, 1e-2, 2

    def update(params, m, v, grads):
        # The loss is what the PyTorch side computes, too.
        loss = sum(jnp.sum(p * g) for p, g in zip(params, grads, strict=True))
        new = []
        for p, m_, v_, g in zip(params, m, v, grads, strict=True):
            p = p * (1 - lr * decay)
            m_ = m_ + (1 - b1) * (g - m_)
            v_ = b2 * v_ + (1 - b2) * g * g
            den = jnp.sqrt(v_) / math.sqrt(1 - b2**step) + eps
            new.append((p - lr / (1 - b1**step) * m_ / den, m_, v_))
        return loss, new

    s = [shape(*x) for x in SIZES]
    return update, (s, s, s, s), (0, 1, 2)


def embedding_torch():
    with META:
        table, head = (
            nn.Embedding(32000, 1024).to(BF16),
            nn.Linear(1024, 32000, bias=False).to(BF16),
        )
    ids, labels = empty(4, 1024, dtype=torch.int64), empty(4, 1024, dtype=torch.int64)

    def loss(table, head, ids, labels):
        return F.cross_entropy(head(table(ids)).view(-1, 32000).float(), labels.view(-1))

    return call(target=loss, args=(table, head, ids, labels), mode="train", optimizer=sgd)


def embedding_jax():
    def loss(params, ids, labels):
        table, head = params
        logits = table[ids].reshape(-1, 1024) @ head.T
        return cross_entropy(logits, labels.reshape(-1))

    w = shape(32000, 1024, dtype=jnp.bfloat16)
    ids = shape(4, 1024, dtype=jnp.int32)
    return (lambda p, i, y: jax_sgd(loss, p, i, y)), ((w, w), ids, ids), (0,)


PROGRAMS = (
    Program("MLP training step, float32", mlp_torch, mlp_jax),
    Program("ResNet-50 forward", lambda: resnet_torch(False, 32), lambda: resnet_jax(False, 32)),
    Program(
        "ResNet-50 training step", lambda: resnet_torch(True, 32), lambda: resnet_jax(True, 32)
    ),
    Program("BERT-base layer forward", lambda: bert_torch(False), lambda: bert_jax(False)),
    Program("BERT-base layer training step", lambda: bert_torch(True), lambda: bert_jax(True)),
    Program("Llama layer prefill", lambda: llama_torch(False), lambda: llama_jax(False)),
    Program("Llama layer decode, cache", lambda: llama_torch(True), lambda: llama_jax(True)),
    Program("attention", attention_torch, attention_jax),
    Program("layer norm", norm_torch, norm_jax),
    Program("AdamW update", adamw_torch, adamw_jax),
    Program("embedding and cross-entropy step", embedding_torch, embedding_jax),
)

FIGURES = ("cycles", "bytes", "hbm", "flops", "peak")


def texts(program: Program) -> tuple[str, str]:
    """StableHLO of both sides."""
    # Results are kept by text: where the repository lies must not be part of it.
    ours = _trace.trace(**{"kwargs": None, **program.torch()}).text.replace(f"{ROOT}/", "")
    function, args, donated = program.jax()
    # PyTorch's own default. JAX's is one pass; for bfloat16 operands there is nothing to choose.
    precision = "highest" if "float32" in program.name else "default"
    with jax.default_matmul_precision(precision):
        jitted = jax.jit(function, donate_argnums=donated, keep_unused=True)
        lowered = jitted.trace(*args).lower(lowering_platforms=("tpu",))
    return ours, lowered.as_text()


def figures(text: str, topology: str, progress: _compiler.Progress) -> dict[str, float]:
    """Compile, and what is compared."""
    compiled = _compiler.compile_text(text, topology, progress=progress)
    if compiled.failure:
        raise RuntimeError(compiled.failure)
    module = _hlo.parse(compiled.texts["hlo"])
    found = _hlo.buffers(compiled.texts["buffers"], compiled.texts["live"])
    return {
        "cycles": float(sum(i.cycles * times for i, times, _ in module.scheduled())),
        # The compiler counts a loop's body once: these counts are of the optimized program.
        "bytes": _hlo.traffic(module, everywhere=True),
        "hbm": _hlo.traffic(module),
        "flops": sum(p.flops * times for p, times in _hlo.products(module)),
        "peak": float(max(b for _, b in _hlo.timeline(found))),
    }


def table(rows: list[dict]) -> str:
    """Markdown: ours, JAX's and the ratio."""
    lines = [
        "| program | topology | " + " | ".join(FIGURES) + " |",
        "|---|---|" + "---|" * len(FIGURES),
    ]
    for row in rows:
        cells = [
            f"{row['ours'][f]:.4g} / {row['jax'][f]:.4g} = **{row['ratio'][f]:.3f}**"
            for f in FIGURES
        ]
        lines.append(f"| {row['program']} | {row['topology']} | " + " | ".join(cells) + " |")
    for topology in dict.fromkeys(r["topology"] for r in rows):
        means = [
            math.exp(sum(math.log(r["ratio"][f]) for r in some) / len(some))
            for f in FIGURES
            if (some := [r for r in rows if r["topology"] == topology])
        ]
        cells = " | ".join(f"**{m:.3f}**" for m in means)
        lines.append(f"| geometric mean | {topology} | {cells} |")
    return "\n".join(lines)


def main() -> int:
    """Compare and print; exit code 1 where cycles or bytes are above 1.05 of JAX's."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("-t", "--topology", action="append")
    parser.add_argument("--only", default="", help="programs whose name contains this")
    parser.add_argument("--json", type=Path)
    parser.add_argument("--save", type=Path, help="folder for StableHLO and optimized HLO")
    options = parser.parse_args()
    show = _compiler.Progress(sys.stderr.isatty())
    rows = []
    for program in PROGRAMS:
        if options.only not in program.name:
            continue
        both = texts(program)
        for topology in options.topology or ["v6e:1x1"]:
            name, _ = _chips.normalize(topology)
            ours, theirs = (figures(t, name, show) for t in both)
            ratio = {f: ours[f] / theirs[f] if ours[f] and theirs[f] else 1.0 for f in FIGURES}
            rows.append(
                {
                    "program": program.name,
                    "topology": name,
                    "ours": ours,
                    "jax": theirs,
                    "ratio": ratio,
                }
            )
            print(program.name, name, {f: f"{ratio[f]:.3f}" for f in FIGURES}, flush=True)
            if options.save:
                options.save.mkdir(parents=True, exist_ok=True)
                for side, text in zip(("ours", "jax"), both, strict=True):
                    stem = f"{program.name.replace(' ', '_').replace(',', '')}.{side}"
                    (options.save / f"{stem}.mlir").write_text(text)
                    hlo = _compiler.compile_text(text, name).texts["hlo"]
                    (options.save / f"{stem}.hlo").write_text(hlo)
    print(table(rows))
    if options.json:
        options.json.write_text(json.dumps(rows, indent=1))
    return int(any(r["ratio"][f] > 1.05 for r in rows for f in ("cycles", "bytes")))


if __name__ == "__main__":
    sys.exit(main())
