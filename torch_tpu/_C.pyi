"""Types of the extension module. Everything here is internal; `torch.tpu` is the public face."""

from collections.abc import Callable
from typing import Any

import torch

# -- runtime -------------------------------------------------------------------------------------
def is_available() -> bool: ...  # a plugin was found; starts nothing
def is_initialized() -> bool: ...
def is_in_bad_fork() -> bool: ...
def initialize() -> None: ...  # starts the client; errors name plugin and remedy
def shutdown() -> None: ...
def device_count() -> int: ...  # starts nothing on the CPU plugin (a setting tells)
def current_device() -> int: ...
def set_device(index: int) -> None: ...  # per thread; RuntimeError for an index that is not there
def exchange_device(index: int) -> int: ...  # -1: no change
def synchronize(index: int) -> None: ...  # flushes and waits for all streams of the device
def plugin_info() -> dict[str, Any]: ...  # path, sha256, api_version, platform_name, platform_version, kind
def device_properties(index: int) -> dict[str, Any]: ...  # name, total_memory, kind, platform, core_count

# -- memory --------------------------------------------------------------------------------------
def memory_stats(index: int) -> dict[str, int]: ...  # torch.cuda's flat names: allocated_bytes.all.current, ...
def reset_peak_memory_stats(index: int) -> None: ...
def reset_accumulated_memory_stats(index: int) -> None: ...
def empty_cache() -> None: ...
def mem_get_info(index: int) -> tuple[int, int]: ...  # free, total bytes

# -- random --------------------------------------------------------------------------------------
def default_generator(index: int) -> torch.Generator: ...

# -- execution -----------------------------------------------------------------------------------
# Modes: 0 debug (one op at a time, waits), 1 strict (one op at a time), 2 fused.
def default_mode() -> int: ...
def set_default_mode(mode: int) -> None: ...
def current_mode() -> int: ...  # this thread's innermost, else the default
def push_mode(mode: int) -> None: ...
def pop_mode() -> None: ...
def end_step() -> None: ...  # fused eager: launch what every device has recorded
def begin_graph(index: int) -> None: ...  # launch what is recorded, so that what follows stands alone
def end_graph(index: int) -> None: ...  # launch it as one program, compiled if need be
def flush(index: int) -> None: ...  # launch what is recorded; does not wait
def precision() -> int: ...  # 0 default (1 pass), 1 high (3), 2 highest (6); this thread's innermost, else global
def push_precision(value: int) -> None: ...
def pop_precision() -> None: ...

# -- fallback, counters, caches, debug -----------------------------------------------------------
def fallback_mode() -> str: ...  # "warn" | "error"
def set_fallback_mode(mode: str) -> None: ...
def counters() -> dict[str, Any]: ...
def reset_counters() -> None: ...
def keep_events(on: bool) -> None: ...  # nests
def take_events() -> list[dict[str, Any]]: ...  # runtime/events.h
def cache_stats() -> dict[str, Any]: ...  # keys: torch_tpu.cache.stats
def cache_clear(memory: bool, disk: bool) -> None: ...
def take_program_names() -> list[str]: ...  # on disk, used since the last call; none at the first
def stored_program(name: str) -> bytes | None: ...
def store_program(name: str, entry: bytes) -> bool: ...  # False: damaged
def memory_limit(device: int) -> int: ...  # bytes that may be used
def set_memory_limit(device: int, size_bytes: int) -> None: ...
def live_tensors(device: int) -> list[tuple[int, int, str]]: ...  # slot, bytes, type
def wait_notice() -> int: ...  # 0, 1, 2: reads by the host are silent, warn, raise
def set_wait_notice(notice: int) -> None: ...
def set_setting(name: str, text: str) -> None: ...  # beats the environment
def settings() -> list[dict[str, Any]]: ...  # name, env, type, default, value, doc
def ops() -> list[dict[str, Any]]: ...  # name, family (schema names), file (from src/), layout, random
def lower(tensors: list[torch.Tensor]) -> str: ...  # StableHLO text of what these deferred tensors need
def time_launch(device: int, rounds: int) -> float: ...  # seconds of the plugin's part of a flush
def set_module_callback(fn: Callable[[str, str], None] | None) -> None: ...  # (key, text) of each compile
def storage_info(t: torch.Tensor) -> dict[str, Any]: ...  # slot, state ("deferred" | "ready"), base type

# -- traced programs -----------------------------------------------------------------------------
class Tracing:
    # Between enter() and exit() every op of this thread on the device goes into the program.
    # for_tpu: to be compiled, for a TPU or for the plugin in use; without: for graph().
    def __init__(self, device: int, for_tpu: bool = ...) -> None: ...
    def enter(self) -> None: ...
    def exit(self) -> None: ...
    def placeholder(self, sizes: list[int], strides: list[int], dtype: torch.dtype) -> torch.Tensor: ...
    # text; arguments: (kind, index, output that updates it or -1); constants; outputs (count);
    # assertions: (kind, text). `embedded`: placeholders that become constants, with their bytes.
    def finish(
        self,
        outputs: list[torch.Tensor],
        assertions: bool,
        locations: bool = ...,
        embedded: dict[int, bytes] = ...,
    ) -> dict[str, Any]: ...

    drawn: int  # random draws so far from the state that the default generator has now
    # What was traced as a function of the placeholders.
    def graph(self, outputs: list[torch.Tensor | None]) -> CompiledGraph: ...
    # One of a subgraph of the program that this thread traces; None where it traces none.
    @staticmethod
    def inside(device: int) -> Tracing | None: ...
    # What was traced, for control_flow: its number, and tensors that it takes after the placeholders.
    def subgraph(self, outputs: list[torch.Tensor]) -> tuple[int, list[torch.Tensor]]: ...

# "cond", "while_loop" or "scan" (src/trace/control.cpp).
def control_flow(op: str, tensors: list[list[torch.Tensor]], numbers: list[int]) -> list[torch.Tensor]: ...

class CompiledGraph:
    nodes: int
    # Takes the tensors of `arguments` and empties it; None, and it stays, where they do not fit.
    def __call__(self, arguments: list[Any], held: tuple[torch.Tensor, ...]) -> list[Any] | None: ...

def is_tracing(device: int) -> bool: ...  # this thread traces a program of that device
def padded(t: torch.Tensor, numel: int) -> torch.Tensor: ...  # [numel] that begins with t's elements
def prefix(flat: torch.Tensor, sizes: list[int], strides: list[int]) -> torch.Tensor: ...  # its first elements

# -- programs of packages ------------------------------------------------------------------------
class LoadedProgram:
    # arguments: (dtype, shape, result that updates it or -1); results; assertions: (kind, text).
    # `executable` is taken where it fits this plugin and processor, else `text` is compiled.
    def __init__(
        self,
        arguments: list[tuple[torch.dtype, list[int], int]],
        outputs: list[tuple[torch.dtype, list[int]]],
        assertions: list[tuple[str, str]],
        text: str,
        executable: bytes,
    ) -> None: ...

    why_compiled: str  # empty: the executable was taken
    # The results that are no updates; those are written to the arguments.
    def __call__(self, arguments: list[torch.Tensor]) -> list[torch.Tensor]: ...

def compile_for_package(text: str) -> bytes: ...  # for this plugin and processor, never from the disk cache
def plugin_path() -> str: ...  # of the one that would be used; starts nothing

def push_path(path: str) -> None: ...  # the module that runs on this thread, for locations
def pop_path() -> None: ...

# `t.data = data` between device types, what torch does except for its check: reset the
# grad accumulator when dtype or device differ, then unsafeGetTensorImpl()->shallow_copy_from.
# Gives False and changes nothing unless both are plain TensorImpls (no wrapper subclass, dense).
def set_data(t: torch.Tensor, data: torch.Tensor) -> bool: ...
