"""Workloads of the benchmarks, in PyTorch and, written plainly, in JAX.

mlp (step of an MLP, SGD), resnet (step of a ResNet-18, batch 4 of 64 x 64), bert (step of two
BERT-base layers), llama (forward of a 4-layer decoder), lm (training step of it), decode (one token
of it, with a cache), tiny (`x + 1` of 16 floats), chain (100 adds of 16 floats, and a read).
"""

import itertools

CHAIN = 100
BATCH, WIDTHS = 64, (784, 1024, 1024, 10)
STAGES = (64, 128, 256, 512)  # channels of ResNet-18, two blocks each
BERT = {
    "layers": 2,
    "width": 768,
    "heads": 12,
    "inner": 3072,
    "vocab": 4096,
    "batch": 2,
    "length": 64,
}
LLAMA = {"layers": 4, "width": 512, "heads": 8, "inner": 1376, "vocab": 2048, "length": 128}


def torch_work(work: str, kind: str, compiled):
    """A call of no arguments that runs one repetition on devices of a kind and waits for it.

    `compiled` is `torch.compile`, or gives back the function that it is given.
    """
    import torch
    import torch.nn.functional as F
    from torch import nn

    device = torch.device(kind)
    torch.manual_seed(0)
    if kind == "xla":
        import torch_xla

    def wait(t):
        if kind == "cpu":
            t.sum().item()
        elif kind == "xla":
            torch_xla.sync()
            t.cpu()  # sync(wait=True) comes back early
        else:
            torch.tpu.synchronize()
        return t

    def training(model, loss, lr):
        model = model.to(device)
        optimizer = torch.optim.SGD(model.parameters(), lr=lr)

        @compiled
        def step():
            value = loss(model)
            value.backward()
            optimizer.step()
            optimizer.zero_grad()
            return value.detach()

        return lambda: wait(step())

    class Block(nn.Module):
        def __init__(self, inner, width, stride):
            super().__init__()
            self.a = nn.Conv2d(inner, width, 3, stride, 1, bias=False)
            self.b = nn.Conv2d(width, width, 3, 1, 1, bias=False)
            self.na, self.nb = nn.BatchNorm2d(width), nn.BatchNorm2d(width)
            self.down = nn.Conv2d(inner, width, 1, stride, bias=False) if stride > 1 else None

        def forward(self, x):
            y = self.nb(self.b(F.relu(self.na(self.a(x)))))
            return F.relu(y + (x if self.down is None else self.down(x)))

    if work == "mlp":
        layers = []
        for i, o in itertools.pairwise(WIDTHS):
            layers += [nn.Linear(i, o), nn.ReLU()]
        x = torch.randn(BATCH, WIDTHS[0]).to(device)
        y = torch.randint(WIDTHS[-1], (BATCH,)).to(device)
        return training(nn.Sequential(*layers[:-1]), lambda m: F.cross_entropy(m(x), y), 0.01)
    if work == "resnet":
        blocks, inner = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU()], 64
        blocks.append(nn.MaxPool2d(3, 2, 1))
        for n, width in enumerate(STAGES):
            for i in range(2):
                blocks.append(Block(inner, width, 2 if n and not i else 1))
                inner = width
        blocks += [nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(512, 100)]
        x, y = torch.randn(4, 3, 64, 64).to(device), torch.randint(100, (4,)).to(device)
        return training(nn.Sequential(*blocks), lambda m: F.cross_entropy(m(x), y), 0.01)
    if work == "bert":
        b = BERT

        class Encoder(nn.Module):
            def __init__(self):
                super().__init__()
                self.embed = nn.Embedding(b["vocab"], b["width"])
                self.layers = nn.ModuleList(
                    nn.ModuleList(
                        [nn.Linear(b["width"], b["width"]) for _ in range(4)]
                        + [nn.Linear(b["width"], b["inner"]), nn.Linear(b["inner"], b["width"])]
                        + [nn.LayerNorm(b["width"]), nn.LayerNorm(b["width"])]
                    )
                    for _ in range(b["layers"])
                )
                self.head = nn.Linear(b["width"], b["vocab"])

            def forward(self, ids):
                x = self.embed(ids)
                heads = lambda t: t.view(*t.shape[:2], b["heads"], -1).transpose(1, 2)  # noqa: E731
                for q, k, v, out, up, down, n1, n2 in self.layers:
                    a = F.scaled_dot_product_attention(heads(q(x)), heads(k(x)), heads(v(x)))
                    x = n1(x + out(a.transpose(1, 2).reshape(x.shape)))
                    x = n2(x + down(F.gelu(up(x))))
                return self.head(x)

        ids = torch.randint(b["vocab"], (b["batch"], b["length"])).to(device)
        loss = lambda m: F.cross_entropy(m(ids).flatten(0, 1), ids.flatten())  # noqa: E731
        return training(Encoder(), loss, 0.01)
    if work == "tiny":
        x = torch.ones(16).to(device)
        f = compiled(lambda x: x + 1)
        return lambda: f(x)
    if work == "chain":
        first, x = torch.zeros(16).to(device), torch.full((16,), 0.5).to(device)

        def chain():
            y = first
            for _ in range(CHAIN):
                y = y + x
            return y.cpu()

        return chain

    c = LLAMA

    class Decoder(nn.Module):
        def __init__(self):
            super().__init__()
            linear = lambda i, o: nn.Linear(i, o, bias=False)  # noqa: E731
            self.embed = nn.Embedding(c["vocab"], c["width"])
            self.layers = nn.ModuleList(
                nn.ModuleList(
                    [linear(c["width"], c["width"]) for _ in range(4)]
                    + [linear(c["width"], c["inner"]), linear(c["width"], c["inner"])]
                    + [linear(c["inner"], c["width"])]
                    + [nn.RMSNorm(c["width"], 1e-5), nn.RMSNorm(c["width"], 1e-5)]
                )
                for _ in range(c["layers"])
            )
            self.norm, self.head = nn.RMSNorm(c["width"], 1e-5), linear(c["width"], c["vocab"])
            a = torch.arange(c["length"])[:, None] / 10000 ** (torch.arange(0, 64, 2) / 64)
            a = torch.cat([a, a], -1)
            self.register_buffer("cos", a.cos())
            self.register_buffer("sin", a.sin())

        def logits(self, ids, cos, sin, put, mask):
            x = self.embed(ids)
            heads = lambda t: t.view(*t.shape[:2], c["heads"], -1).transpose(1, 2)  # noqa: E731
            turned = lambda t: t * cos + torch.cat([-t[..., 32:], t[..., :32]], -1) * sin  # noqa: E731
            for n, (q, k, v, out, gate, up, down, n1, n2) in enumerate(self.layers):
                h = n1(x)
                keys, values = put(n, turned(heads(k(h))), heads(v(h)))
                a = F.scaled_dot_product_attention(
                    turned(heads(q(h))), keys, values, attn_mask=mask, is_causal=mask is None
                )
                x = x + out(a.transpose(1, 2).reshape(x.shape))
                h = n2(x)
                x = x + down(F.silu(gate(h)) * up(h))
            return self.head(self.norm(x))

        def forward(self, *args):
            return self.logits(*args)[:, -1].argmax(-1)

    model = Decoder().to(device).eval()
    plain = lambda n, k, v: (k, v)  # noqa: E731
    if work == "lm":
        ids = torch.randint(c["vocab"], (1, c["length"] + 1)).to(device)

        def loss(m):
            out = m.logits(ids[:, :-1], m.cos, m.sin, plain, None)
            return F.cross_entropy(out.flatten(0, 1), ids[:, 1:].flatten())

        return training(model.train(), loss, 0.01)
    if work == "llama":
        ids = torch.randint(c["vocab"], (1, c["length"])).to(device)
        run = compiled(lambda ids: model(ids, model.cos, model.sin, plain, None))
        return lambda: wait(torch.no_grad()(run)(ids))
    empty = lambda: torch.zeros(1, c["heads"], c["length"], 64, device=device)  # noqa: E731
    cache = [(empty(), empty()) for _ in range(c["layers"])]
    positions = torch.arange(c["length"], device=device)

    @compiled
    def step(token, at):
        def put(n, k, v):
            cache[n][0].index_copy_(2, at, k)
            cache[n][1].index_copy_(2, at, v)
            return cache[n]

        mask = (positions <= at)[None, None, None]
        cos, sin = model.cos.index_select(0, at), model.sin.index_select(0, at)
        return model(token[:, None], cos, sin, put, mask), (at + 1) % c["length"]

    state = [torch.zeros(1, dtype=torch.int64, device=device) for _ in range(2)]

    def one():
        with torch.no_grad():
            state[:] = step(*state)
        return wait(state[0])

    return one


def jax_work(work: str):
    import jax
    import jax.numpy as jnp
    from jax import lax

    key = iter(jax.random.split(jax.random.PRNGKey(0), 500))
    normal = lambda *s: jax.random.normal(next(key), s) * 0.02  # noqa: E731

    def cross_entropy(logits, labels):
        logp = jax.nn.log_softmax(logits)
        return -jnp.take_along_axis(logp, labels[:, None], 1).mean()

    def training(params, loss, lr):
        @lambda f: jax.jit(f, donate_argnums=0)
        def step(params):
            value, grads = jax.value_and_grad(loss)(params)
            return value, jax.tree.map(lambda p, g: p - lr * g, params, grads)

        state = [params]

        def run():
            value, state[0] = step(state[0])
            jax.block_until_ready(state[0])
            return value

        return run

    def linear(x, w):
        return x @ w[0].T + w[1]

    def layer_norm(x, w):
        mean = x.mean(-1, keepdims=True)
        return (x - mean) * lax.rsqrt(x.var(-1, keepdims=True) + 1e-5) * w[0] + w[1]

    if work == "mlp":
        params = [(normal(o, i), jnp.zeros(o)) for i, o in itertools.pairwise(WIDTHS)]
        x, y = normal(BATCH, WIDTHS[0]), jnp.arange(BATCH) % 10

        def loss(params):
            h = x
            for n, w in enumerate(params):
                h = linear(h, w)
                h = jax.nn.relu(h) if n + 1 < len(params) else h
            return cross_entropy(h, y)

        return training(params, loss, 0.01)
    if work == "resnet":

        def conv(x, w, stride=1):
            pad = w.shape[2] // 2
            return lax.conv_general_dilated(
                x,
                w,
                (stride, stride),
                ((pad, pad),) * 2,
                dimension_numbers=("NCHW", "OIHW", "NCHW"),
            )

        def norm(x, w):
            mean, var = x.mean((0, 2, 3), keepdims=True), x.var((0, 2, 3), keepdims=True)
            return (x - mean) * lax.rsqrt(var + 1e-5) * w[0][:, None, None] + w[1][:, None, None]

        unit = lambda n: (jnp.ones(n), jnp.zeros(n))  # noqa: E731
        blocks, inner = [], 64
        for n, width in enumerate(STAGES):
            for i in range(2):
                down = n and not i
                blocks.append(
                    {"a": normal(width, inner, 3, 3), "b": normal(width, width, 3, 3)}
                    | {"na": unit(width), "nb": unit(width)}
                    | ({"down": normal(width, inner, 1, 1)} if down else {})
                )
                inner = width
        params = {"stem": normal(64, 3, 7, 7), "norm": unit(64), "blocks": blocks}
        params["head"] = (normal(100, 512), jnp.zeros(100))
        x, y = normal(4, 3, 64, 64), jnp.arange(4)

        def loss(p):
            h = jax.nn.relu(norm(conv(x, p["stem"], 2), p["norm"]))
            window = (1, 1, 3, 3), (1, 1, 2, 2), ((0, 0), (0, 0), (1, 1), (1, 1))
            h = lax.reduce_window(h, -jnp.inf, lax.max, *window)
            for b in p["blocks"]:
                stride = 2 if "down" in b else 1
                y1 = norm(
                    conv(jax.nn.relu(norm(conv(h, b["a"], stride), b["na"])), b["b"]), b["nb"]
                )
                h = jax.nn.relu(y1 + (conv(h, b["down"], 2) if "down" in b else h))
            return cross_entropy(linear(h.mean((2, 3)), p["head"]), y)

        return training(params, loss, 0.01)
    if work == "bert":
        b = BERT
        d, f = b["width"], b["inner"]
        layer = lambda i, o: (normal(o, i), jnp.zeros(o))  # noqa: E731
        unit = lambda: (jnp.ones(d), jnp.zeros(d))  # noqa: E731
        params = {"embed": normal(b["vocab"], d), "head": layer(d, b["vocab"])}
        params["layers"] = [
            [*(layer(d, d) for _ in range(4)), layer(d, f), layer(f, d), unit(), unit()]
            for _ in range(b["layers"])
        ]
        ids = jax.random.randint(next(key), (b["batch"], b["length"]), 0, b["vocab"])

        def loss(p):
            x = p["embed"][ids]
            heads = lambda t: t.reshape(*t.shape[:2], b["heads"], -1).swapaxes(1, 2)  # noqa: E731
            for q, k, v, out, up, down, n1, n2 in p["layers"]:
                scores = heads(linear(x, q)) @ heads(linear(x, k)).swapaxes(-1, -2) / 8
                a = jax.nn.softmax(scores, -1) @ heads(linear(x, v))
                x = layer_norm(x + linear(a.swapaxes(1, 2).reshape(x.shape), out), n1)
                x = layer_norm(x + linear(jax.nn.gelu(linear(x, up), False), down), n2)
            logits = linear(x, p["head"])
            return cross_entropy(logits.reshape(-1, b["vocab"]), ids.reshape(-1))

        return training(params, loss, 0.01)
    if work == "tiny":
        x, add = jnp.ones(16), jax.jit(lambda x: x + 1)
        return lambda: add(x)

    c = LLAMA
    d, f, length = c["width"], c["inner"], c["length"]
    params = {"embed": normal(c["vocab"], d), "head": normal(c["vocab"], d), "norm": jnp.ones(d)}
    params["layers"] = [
        [
            *(normal(d, d) for _ in range(4)),
            normal(f, d),
            normal(f, d),
            normal(d, f),
            jnp.ones(d),
            jnp.ones(d),
        ]
        for _ in range(c["layers"])
    ]
    angles = jnp.arange(length)[:, None] / 10000 ** (jnp.arange(0, 64, 2) / 64)
    angles = jnp.concatenate([angles, angles], -1)
    cos, sin = jnp.cos(angles), jnp.sin(angles)

    def rms(x, w):
        return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w

    def forward(p, ids, cos, sin, put, mask):
        x = p["embed"][ids]
        heads = lambda t: t.reshape(*t.shape[:2], c["heads"], -1).swapaxes(1, 2)  # noqa: E731

        def turned(t):
            return t * cos + jnp.concatenate([-t[..., 32:], t[..., :32]], -1) * sin

        for n, (q, k, v, out, gate, up, down, n1, n2) in enumerate(p["layers"]):
            h = rms(x, n1)
            keys, values = put(n, turned(heads(h @ k.T)), heads(h @ v.T))
            scores = turned(heads(h @ q.T)) @ keys.swapaxes(-1, -2) / 8
            a = jax.nn.softmax(jnp.where(mask, scores, -jnp.inf), -1) @ values
            x = x + a.swapaxes(1, 2).reshape(x.shape) @ out.T
            h = rms(x, n2)
            x = x + (jax.nn.silu(h @ gate.T) * (h @ up.T)) @ down.T
        return (rms(x, p["norm"]) @ p["head"].T)[:, -1].argmax(-1)

    if work == "llama":
        ids = jax.random.randint(next(key), (1, length), 0, c["vocab"])
        mask = jnp.tri(length, dtype=bool)
        run = jax.jit(lambda p, ids: forward(p, ids, cos, sin, lambda n, k, v: (k, v), mask))
        return lambda: run(params, ids).block_until_ready()
    empty = lambda: jnp.zeros((1, c["heads"], length, 64))  # noqa: E731
    state = [
        jnp.zeros(1, jnp.int32),
        jnp.int32(0),
        [(empty(), empty()) for _ in range(c["layers"])],
    ]

    @lambda f: jax.jit(f, donate_argnums=3)
    def step(p, token, at, cache):
        new = []

        def put(n, k, v):
            new.append(
                tuple(
                    lax.dynamic_update_slice_in_dim(old, x, at, 2)
                    for old, x in zip(cache[n], (k, v), strict=True)
                )
            )
            return new[-1]

        rows = (lax.dynamic_slice_in_dim(t, at, 1) for t in (cos, sin))
        token = forward(p, token[:, None], *rows, put, jnp.arange(length) <= at)
        return token, (at + 1) % length, new

    def one():
        state[:] = step(params, *state)
        return state[0].block_until_ready()

    return one
