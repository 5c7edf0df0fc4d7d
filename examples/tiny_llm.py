"""Train a small Llama-style language model from scratch, then let it write.

python examples/tiny_llm.py
python examples/tiny_llm.py --steps 20 --compare-cpu

It reads Python's language reference, which ships with Python, character by character. The model
has RMSNorm, rotary positions, grouped-query attention, SwiGLU and tied embeddings; generation
keeps keys and values in a cache.
"""

import argparse
import copy
import math
import pydoc_data.topics
import sys
import time

import torch
from torch import Tensor, nn
from torch.nn import functional as F


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--steps", type=int, default=300)
    parser.add_argument("--batch", type=int, default=16)
    parser.add_argument("--context", type=int, default=128, help="characters that it looks back")
    parser.add_argument("--dim", type=int, default=128)
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--heads", type=int, default=4)
    parser.add_argument("--kv-heads", type=int, default=2)
    parser.add_argument("--lr", type=float, default=3e-3)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--prompt", default="The for statement ")
    parser.add_argument("--new", type=int, default=100, help="characters to write")
    parser.add_argument("--temperature", type=float, default=0.6, help="0: always the likeliest")
    parser.add_argument(
        "--compare-cpu", action="store_true", help="fail unless the CPU does the same"
    )
    return parser.parse_args(argv)


class Attention(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int):
        super().__init__()
        self.heads, self.kv_heads, self.head_dim = heads, kv_heads, dim // heads
        self.query = nn.Linear(dim, heads * self.head_dim, bias=False)
        self.key = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.value = nn.Linear(dim, kv_heads * self.head_dim, bias=False)
        self.out = nn.Linear(dim, dim, bias=False)

    def forward(self, x: Tensor, rotary: Tensor, past=None) -> Tensor:
        """x: [batch, length, dim]; past: (keys, values, positions) of one layer's cache."""
        split = [
            layer(x).unflatten(-1, (-1, self.head_dim)).transpose(1, 2)
            for layer in (self.query, self.key, self.value)
        ]
        query, key, value = rotate(split[0], rotary), rotate(split[1], rotary), split[2]
        mask = None
        if past is not None:
            keys, values, positions = past
            key = keys.index_copy_(2, positions, key)
            value = values.index_copy_(2, positions, value)
            mask = torch.arange(keys.shape[2], device=x.device) <= positions.unsqueeze(1)
        y = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, is_causal=mask is None, enable_gqa=True
        )
        return self.out(y.transpose(1, 2).flatten(2))


def rotate(x: Tensor, rotary: Tensor) -> Tensor:
    """Turn pairs of x [batch, heads, length, head_dim] by the angles [length, head_dim / 2]."""
    a, b = x.chunk(2, -1)
    cos, sin = rotary.cos(), rotary.sin()
    return torch.cat((a * cos - b * sin, a * sin + b * cos), -1)


class Block(nn.Module):
    def __init__(self, dim: int, heads: int, kv_heads: int):
        super().__init__()
        self.attention_norm, self.mlp_norm = nn.RMSNorm(dim), nn.RMSNorm(dim)
        self.attention = Attention(dim, heads, kv_heads)
        self.gate = nn.Linear(dim, 3 * dim, bias=False)
        self.up = nn.Linear(dim, 3 * dim, bias=False)
        self.down = nn.Linear(3 * dim, dim, bias=False)

    def forward(self, x: Tensor, rotary: Tensor, past=None) -> Tensor:
        x = x + self.attention(self.attention_norm(x), rotary, past)
        y = self.mlp_norm(x)
        return x + self.down(F.silu(self.gate(y)) * self.up(y))


class Llama(nn.Module):
    def __init__(self, vocabulary: int, dim: int, layers: int, heads: int, kv_heads: int):
        super().__init__()
        self.kv_heads, self.head_dim = kv_heads, dim // heads
        self.embedding = nn.Embedding(vocabulary, dim)
        self.blocks = nn.ModuleList(Block(dim, heads, kv_heads) for _ in range(layers))
        self.norm = nn.RMSNorm(dim)
        self.head = nn.Linear(dim, vocabulary, bias=False)
        for parameter in self.parameters():
            if parameter.dim() == 2:
                nn.init.normal_(parameter, std=0.02)
        self.head.weight = self.embedding.weight
        self.register_buffer("frequencies", 1e4 ** -torch.linspace(0, 1, self.head_dim // 2))

    def forward(self, tokens: Tensor, positions: Tensor | None = None, cache=None) -> Tensor:
        """Give the next token's logits [batch, length, vocabulary] for tokens [batch, length].

        With a cache, `positions` [length] says where the tokens stand.
        """
        if positions is None:
            positions = torch.arange(tokens.shape[1], device=tokens.device)
        rotary = positions.unsqueeze(1) * self.frequencies
        x = self.embedding(tokens)
        for block, past in zip(self.blocks, cache or [None] * len(self.blocks), strict=True):
            x = block(x, rotary, past and (*past, positions))
        return self.head(self.norm(x))

    @torch.inference_mode()
    def generate(self, tokens: Tensor, new: int, temperature: float) -> Tensor:
        """Continue tokens [batch, length] by `new` tokens; give [batch, length + new]."""
        batch, length = tokens.shape
        shape = (batch, self.kv_heads, length + new, self.head_dim)
        like = self.embedding.weight
        cache = [(like.new_zeros(shape), like.new_zeros(shape)) for _ in self.blocks]
        positions = torch.arange(length, device=tokens.device)
        pieces = [tokens]
        for _ in range(new):
            logits = self(pieces[-1], positions, cache)[:, -1]
            if temperature:
                token = torch.multinomial((logits / temperature).softmax(-1), 1)
            else:
                token = logits.argmax(-1, keepdim=True)
            pieces.append(token)
            positions = positions[-1:] + 1
        return torch.cat(pieces, 1)


def train(model: Llama, text: Tensor, args: argparse.Namespace, device: torch.device):
    """Give the trained copy of the model on `device` and the loss of each step."""
    model = copy.deepcopy(model).to(device)
    optimizer = torch.optim.AdamW(model.parameters(), args.lr, betas=(0.9, 0.95))
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer,
        lambda step: min((step + 1) / 20, 0.55 + 0.45 * math.cos(math.pi * step / args.steps)),
    )
    text = text.to(device)
    at = torch.arange(args.context + 1, device=device)
    random = torch.Generator().manual_seed(args.seed)
    losses: list[Tensor] = []
    start = time.perf_counter()
    for step in range(args.steps):
        first = torch.randint(len(text) - len(at), (args.batch, 1), generator=random)
        window = text[first.to(device) + at]
        logits = model(window[:, :-1])
        loss = F.cross_entropy(logits.flatten(0, 1), window[:, 1:].flatten())
        optimizer.zero_grad()
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        losses.append(loss.detach())
        if (step + 1) % 20 == 0 or step + 1 == args.steps:
            mean = torch.stack(losses[-20:]).mean().item()
            spent = time.perf_counter() - start
            print(f"[{device}] step {step + 1:4}: loss {mean:.3f}, {spent:.1f} s", flush=True)
    return model, torch.stack(losses).tolist()


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    text = "\n".join(pydoc_data.topics.topics.values())
    alphabet = sorted(set(text))
    code = {c: i for i, c in enumerate(alphabet)}
    if unknown := set(args.prompt) - set(code):
        sys.exit(f"the prompt has characters that the text has not: {sorted(unknown)}")
    tokens = torch.tensor([code[c] for c in text])
    prompt = torch.tensor([[code[c] for c in args.prompt]])

    torch.manual_seed(args.seed)
    model = Llama(len(alphabet), args.dim, args.layers, args.heads, args.kv_heads)
    size = sum(p.numel() for p in model.parameters())
    print(f"{size:,} parameters, {len(text):,} characters of text, alphabet of {len(alphabet)}")
    trained, losses = train(model, tokens, args, torch.device(args.device))

    def write(model: Llama, device: str, temperature: float) -> str:
        start = time.perf_counter()
        output = model.generate(prompt.to(device), args.new, temperature)
        written = "".join(alphabet[i] for i in output[0].tolist())
        print(f"[{device}] {args.new / (time.perf_counter() - start):.1f} characters/s")
        return written

    print(write(trained, args.device, args.temperature))
    if args.compare_cpu:
        _, expected = train(model, tokens, args, torch.device("cpu"))
        gap = max(abs(a - b) for a, b in zip(losses, expected, strict=True))
        ours = write(trained, args.device, 0)
        theirs = write(copy.deepcopy(trained).to("cpu"), "cpu", 0)
        print(f"largest difference of a step's loss from the CPU's: {gap:.2e}")
        print(f"the CPU writes {'the same' if ours == theirs else 'something else'}: {theirs!r}")
        if gap > 0.05 or ours != theirs:
            sys.exit("the results differ from the CPU's")


if __name__ == "__main__":
    main()
