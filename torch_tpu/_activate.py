"""What happens once when the backend is loaded, in order.

Nothing here starts the runtime, prints, or imports anything that `import torch` has not imported:
the whole takes a few milliseconds. What frameworks need is attached when they are imported
(`_integrations`).
"""

import atexit
import os
import threading

import torch

from torch_tpu._version import check_torch

_lock = threading.RLock()
_state = "new"


def activate() -> None:
    """Register the device, once per process.

    Raises ImportError for a torch that is not accepted or a package that was not built.
    """
    global _state
    with _lock:
        # "running": an import below has led back here.
        if _state in ("done", "running"):
            return
        _state = "running"
        try:
            _register()
        except BaseException:
            _state = "new"
            raise
        _state = "done"


def _register() -> None:
    check_torch(torch.__version__)
    try:
        from torch_tpu import _C  # registers kernels, allocator, guard and hooks
    except ModuleNotFoundError as error:
        if error.name != "torch_tpu._C":
            raise
        raise ImportError(
            "torch_tpu is not built here: its compiled part _C is missing; run `pip install .` "
            "in the repository, outside of which the source folder must not be on sys.path."
        ) from error

    # Before Python takes its modules down: running programs may call back into them.
    atexit.register(_C.shutdown)

    if torch._C._get_privateuse1_backend_name() != "tpu":
        torch.utils.rename_privateuse1_backend("tpu")

    from torch_tpu import device

    torch._register_device_module("tpu", device)  # type: ignore[no-untyped-call]
    device._register_submodules()
    torch.utils.generate_methods_for_privateuse1_backend(for_storage=True)

    # accelerate's own choice knows a fixed list of devices and would take the CPU.
    os.environ.setdefault("ACCELERATE_TORCH_DEVICE", "tpu")

    from torch_tpu import _artifacts, _integrations, _patches, mode

    _artifacts.register()
    _patches.apply()
    _integrations.install()
    mode._cut_at_optimizer_steps()
    # A backward pass on this thread, as for CPU tensors, instead of one of the engine's: ADR 27.
    # Where there is CUDA the engine's threads serve its devices.
    if not torch.cuda.is_available():
        torch._C._set_multithreading_enabled(False)
