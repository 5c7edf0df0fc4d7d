"""Compiling for a topology that is not here, in a process of its own, with a cache on disk.

libtpu runs in a child (`compile_ahead`, a small program of this package), which alone gets the
variables that keep it from asking a metadata server; if the compiler ends its process, that is an
error here. What it wrote is kept by a hash of program, topology, options and libtpu.
"""

from __future__ import annotations

import contextlib
import gzip
import hashlib
import importlib.util
import json
import logging
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any

from torch_tpu._programs import program_path

log = logging.getLogger(__name__)

# Part of every cache entry's name: raised when what is stored changes.
_FORMAT = 1

# Files of the compiler's dump that a report reads, by what we call them.
_DUMPS = {
    "hlo": ".after_codegen.txt",
    "live": "after_optimizations-live-range.txt",
    "buffers": "after_optimizations-buffer-assignment.txt",
}


class CompilerError(RuntimeError):
    """libtpu is missing, refused a program or ended."""


class OutOfDeviceMemory(CompilerError):
    """The program does not fit; the text is the compiler's."""


@dataclass
class Compiled:
    """What the compiler says. `texts` has hlo, live, buffers where it wrote them."""

    numbers: dict[str, float]
    answers: dict[str, str]
    texts: dict[str, str]
    serialized: bytes
    seconds: float
    from_cache: bool
    failure: str = ""  # the compiler's text when the program does not fit


def libtpu_path() -> Path:
    """The compiler's library: TPU_LIBRARY_PATH, else the package libtpu.

    Raises CompilerError with what to install.
    """
    given = os.environ.get("TPU_LIBRARY_PATH")
    if given:
        if not Path(given).is_file():
            raise CompilerError(f"TPU_LIBRARY_PATH={given} is no file")
        return Path(given)
    spec = importlib.util.find_spec("libtpu")
    for folder in (spec.submodule_search_locations or []) if spec else []:
        path = Path(folder) / "libtpu.so"
        if path.is_file():
            return path
    raise CompilerError(
        "libtpu is not installed, which compiles for TPUs: pip install 'libtpu>=0.0.50' "
        "(no TPU is needed)"
    )


def _program_path() -> Path:
    try:
        return program_path("compile_ahead")
    except RuntimeError as error:
        raise CompilerError(str(error)) from None


def _environment() -> dict[str, str]:
    # Nothing of the caller's XLA or libtpu settings may change what is compiled, or be refused.
    dropped = ("TPU_", "LIBTPU_", "XLA_", "JAX_", "TF_", "PJRT_")
    env = {k: v for k, v in os.environ.items() if not k.startswith(dropped)}
    env.update(
        TPU_SKIP_MDS_QUERY="1",
        TPU_WORKER_HOSTNAMES="localhost",
        TPU_ACCELERATOR_TYPE="v6e-1",
        TPU_LOG_DIR="disabled",
        ALLOW_MULTIPLE_LIBTPU_LOAD="1",  # no device is opened: several compilers may run
        TF_CPP_MIN_LOG_LEVEL="3",
    )
    flags = os.environ.get("LIBTPU_INIT_ARGS")
    if flags:
        env["LIBTPU_INIT_ARGS"] = flags
    return env


class Child:
    """A running compiler. One request at a time."""

    def __init__(self, library: Path | None = None) -> None:
        self._errors = tempfile.TemporaryFile("w+")  # noqa: SIM115
        self._process = subprocess.Popen(
            [str(_program_path()), str(library or libtpu_path())],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            text=True,
            errors="replace",
            env=_environment(),
        )

    def __enter__(self) -> Child:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End it."""
        if self._process.stdin:
            with contextlib.suppress(OSError):
                self._process.stdin.close()
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._errors.close()

    def kill(self) -> None:
        """End it from another thread: a request that is waited for fails."""
        self._process.kill()

    @property
    def alive(self) -> bool:
        """Whether it takes requests."""
        return self._process.poll() is None

    def ask(self, *fields: str) -> dict[str, str]:
        """The answer to one request. Raises CompilerError, also when the process ends."""
        stdin, stdout = self._process.stdin, self._process.stdout
        assert stdin is not None and stdout is not None
        answers: dict[str, str] = {}
        try:
            stdin.write("\t".join(fields) + "\n")
            stdin.flush()
            for line in stdout:
                key, _, value = line.rstrip("\n").partition("\t")
                if key == "ok":
                    return answers
                if key == "error":
                    text = _unescape(value)
                    if "RESOURCE_EXHAUSTED" in text or "Ran out of memory" in text:
                        raise OutOfDeviceMemory(text)
                    raise CompilerError(text)
                answers[key] = value
        except BrokenPipeError:
            pass
        raise CompilerError(self._how_it_ended())

    def _how_it_ended(self) -> str:
        code = self._process.wait()
        how = f"with exit code {code}"
        if code < 0:
            with contextlib.suppress(ValueError):
                how = f"by {signal.Signals(-code).name}"
        self._errors.seek(0)
        lines = [line for line in self._errors.read().splitlines() if line.strip()]
        # What a failed check says stands before its stack.
        said = [line for line in lines if line[:1] == "F" and line[1:5].isdigit()] or lines[-3:]
        return "\n".join([f"the compiler's process ended {how}", *said[:3]])


def _unescape(text: str) -> str:
    return text.replace("\\\\", "\0").replace("\\n", "\n").replace("\\t", "\t").replace("\0", "\\")


def cache_folder() -> Path:
    """Where results are kept: `aot` in the folder of the programs' disk cache."""
    base = os.environ.get("TORCH_TPU_CACHE_DIR")
    if not base:
        home = os.environ.get("XDG_CACHE_HOME") or os.path.expanduser("~/.cache")
        base = os.path.join(home, "torch_tpu")
    return Path(base) / "aot"


def library_identity(library: Path) -> str:
    """Changes with the library's file."""
    stat = library.stat()
    return f"{library.name} {stat.st_size} {stat.st_mtime_ns}"


def entry_name(text: str, topology: str, options: str, library: Path) -> str:
    """Name of the cache entry of a program."""
    parts = (str(_FORMAT), topology, options, library_identity(library), text)
    flags = os.environ.get("LIBTPU_INIT_ARGS", "")
    return hashlib.sha256("\0".join((*parts, flags)).encode()).hexdigest()[:32]


def compile_text(
    text: str, topology: str, *, options: str = "", progress: Progress | None = None
) -> Compiled:
    """Compile StableHLO text. A program that does not fit comes back with `failure`.

    Raises CompilerError when libtpu is not there, refuses the program or ends.
    """
    library = libtpu_path()
    folder = cache_folder() / entry_name(text, topology, options, library)
    stored = _load(folder)
    if stored is not None:
        return stored
    start = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="torch_tpu_aot_") as work, Child(library) as child:
        source = Path(work) / "program.mlir"
        source.write_text(text)
        dumps = Path(work) / "dump"
        settings = f"{options} xla_dump_to={dumps}".strip()
        answers: dict[str, str] = {}
        failure = ""
        with (
            progress.waiting(f"compiling for {topology}") if progress else contextlib.nullcontext()
        ):
            try:
                answers = child.ask("compile", topology, str(source), f"{work}/out", settings)
            except OutOfDeviceMemory as error:
                failure = str(error)
        exe = Path(work) / "out.exe"
        compiled = Compiled(
            numbers=_numbers(answers),
            answers={k: v for k, v in answers.items() if not _is_number(v)},
            texts={k: _read_dump(dumps, suffix) for k, suffix in _DUMPS.items()},
            serialized=exe.read_bytes() if exe.is_file() else b"",
            seconds=time.monotonic() - start,
            from_cache=False,
            failure=failure,
        )
    _store(folder, compiled)
    return compiled


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True


def _numbers(answers: dict[str, str]) -> dict[str, float]:
    return {k: float(v) for k, v in answers.items() if _is_number(v)}


def _read_dump(folder: Path, suffix: str) -> str:
    found = sorted(folder.glob(f"*{suffix}")) if folder.is_dir() else []
    return found[-1].read_text(errors="replace") if found else ""


def _store(folder: Path, c: Compiled) -> None:
    try:
        folder.parent.mkdir(parents=True, exist_ok=True)
        new = Path(tempfile.mkdtemp(prefix=".new_", dir=folder.parent))
    except OSError as error:
        log.warning("the result is not kept: %s", error)
        return
    try:
        for name, text in c.texts.items():
            (new / f"{name}.txt.gz").write_bytes(gzip.compress(text.encode(), 3))
        (new / "program.exe").write_bytes(c.serialized)
        about = {
            "numbers": c.numbers,
            "answers": c.answers,
            "seconds": c.seconds,
            "failure": c.failure,
        }
        (new / "result.json").write_text(json.dumps(about))
        os.rename(new, folder)  # fails when another process was first: its result is the same
    except OSError:
        shutil.rmtree(new, ignore_errors=True)


def _load(folder: Path) -> Compiled | None:
    try:
        about: dict[str, Any] = json.loads((folder / "result.json").read_text())
        texts = {
            name: gzip.decompress((folder / f"{name}.txt.gz").read_bytes()).decode()
            for name in _DUMPS
        }
        serialized = (folder / "program.exe").read_bytes()
    except (OSError, ValueError, EOFError):
        return None
    return Compiled(texts=texts, serialized=serialized, from_cache=True, **about)


class Progress:
    """What is being done, on stderr: a line that counts on a terminal, else one line a phase."""

    def __init__(self, show: bool, stream: IO[str] | None = None) -> None:
        self.show, self.stream = show, stream or sys.stderr

    @contextlib.contextmanager
    def waiting(self, what: str) -> Iterator[None]:
        """Show `what` and the seconds that pass inside the block."""
        if not self.show:
            yield
            return
        start = time.monotonic()
        done = threading.Event()
        live = self.stream.isatty()

        def count() -> None:
            while not done.wait(1.0):
                print(
                    f"\r{what} ... {time.monotonic() - start:.0f} s",
                    end="", file=self.stream, flush=True,
                )  # fmt: skip

        thread = threading.Thread(target=count, daemon=True)
        if live:
            thread.start()
        else:
            print(f"{what} ...", file=self.stream, flush=True)
        try:
            yield
        finally:
            done.set()
            if live:
                thread.join()
                print("\r\x1b[K", end="", file=self.stream, flush=True)
            else:
                print(f"{what}: {time.monotonic() - start:.1f} s", file=self.stream, flush=True)


def describe(topology: str) -> dict[str, str]:
    """What the compiler knows of a topology: devices, memory, coordinates."""
    with Child() as child:
        return child.ask("describe", topology)
