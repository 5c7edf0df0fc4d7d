"""What happens with an op that has no TPU lowering."""

from torch_tpu import _C

__all__ = ["get_fallback", "set_fallback"]


def set_fallback(mode: str) -> None:
    """Choose what an op without a TPU lowering does; also TORCH_TPU_FALLBACK.

    "warn" runs it on the CPU and says so once per op, naming it and the call site; "error" raises
    NotImplementedError. Counted either way in `torch_tpu.debug.counters()["fallbacks"]`.
    Raises RuntimeError for another mode.
    """
    _C.set_fallback_mode(mode)


def get_fallback() -> str:
    """The mode in force."""
    return _C.fallback_mode()
