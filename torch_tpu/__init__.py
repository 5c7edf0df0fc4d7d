"""TPU backend for PyTorch.

`import torch` is enough: torch finds this package through the entry point group `torch.backends`
and calls `_autoload`. With TORCH_DEVICE_BACKEND_AUTOLOAD=0, or from a folder that is not installed,
`import torch_tpu` does the same. Either order of the two imports works.

The device's interface is `torch.tpu`; this package adds what other backends do not have:
`torch_tpu.debug`, `torch_tpu.set_fallback`, `torch_tpu.cache`, `torch_tpu.export`,
`torch_tpu.load_package`, `python -m torch_tpu.info`.
"""

from pkgutil import extend_path

# In a checkout the compiled part may be the installed one.
__path__ = extend_path(__path__, __name__)


def _autoload() -> None:
    """Make `tpu` a device. Called by torch, possibly while this module is still being imported."""
    from torch_tpu._activate import activate

    activate()


# Importing torch may call _autoload by itself, so that must be defined above.
import torch  # noqa: E402, F401

_autoload()

from typing import TYPE_CHECKING, Any  # noqa: E402

from torch_tpu import cache, debug, precision  # noqa: E402
from torch_tpu._version import __version__  # noqa: E402
from torch_tpu.fallback import get_fallback, set_fallback  # noqa: E402

if TYPE_CHECKING:
    from torch_tpu.package import export, load_package

__all__ = [
    "__version__", "cache", "debug", "export", "get_fallback", "load_package", "precision",
    "set_fallback",
]  # fmt: skip


def __getattr__(name: str) -> Any:
    # What needs torch.export is imported with its first use.
    if name in ("export", "load_package"):
        from torch_tpu import package

        return getattr(package, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
