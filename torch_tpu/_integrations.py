"""What other packages, and the parts of torch that `import torch` leaves out, need to know of us.

Each piece is attached when its package is imported; none is imported here.
"""

import functools
import pkgutil
import sys
from types import ModuleType
from typing import Any

import torch

import torch_tpu
from torch_tpu._import_hook import when_imported


def install() -> None:
    """Arrange for all of it. Called once."""
    when_imported("torch._dynamo.backends.registry", _dynamo_backend)
    when_imported("torch._dynamo.device_interface", _dynamo_device)
    when_imported("torch._dynamo.trace_rules", _dynamo_rules)
    when_imported("torch._subclasses.fake_impls", _fake_rules)
    when_imported("torch.nn.attention.flex_attention", _flex_attention)
    when_imported("safetensors", _safetensors)
    when_imported("accelerate.utils.modeling", _accelerate_memory)


# -- torch.compile ---------------------------------------------------------------------------------


def _dynamo_backend(registry: ModuleType) -> None:
    from torch_tpu.compile import default_backend, tpu_backend

    registry.register_backend(tpu_backend, name="tpu")
    # A bare torch.compile would hand tpu graphs to Inductor, which has no code generator for them.
    if registry.get_default_backend() == "inductor":
        registry.set_default_backend(default_backend)


def _dynamo_device(device_interface: ModuleType) -> None:
    from torch_tpu._dynamo import make_interface

    # First, since its first call registers torch's own interface for "tpu".
    device_interface.init_device_reg()
    interface = make_interface()
    names = ["tpu", *(f"tpu:{i}" for i in range(torch.tpu.device_count()))]  # type: ignore[attr-defined]
    for name in names:
        device_interface.register_interface_for_device(name, interface)


def _dynamo_rules(trace_rules: ModuleType) -> None:
    # Our own code is called, not traced into. precision() is: it annotates the graph. So is what
    # torch's own code calls in place of a function of its own.
    for module in pkgutil.iter_modules(torch_tpu.__path__):
        if module.name not in ("_C", "_flex_attention", "precision"):
            trace_rules.add(f"torch_tpu.{module.name}")


def _fake_rules(fake_impls: ModuleType) -> None:
    from torch_tpu import _fake

    _fake.install(fake_impls.op_implementations_dict)


def _flex_attention(module: ModuleType) -> None:
    from torch_tpu import _flex_attention

    _flex_attention.install(module)


# -- safetensors -----------------------------------------------------------------------------------


def _tpu_of(device: Any) -> torch.device | None:
    """`device` as a tpu device, None if it names another. A bare index means the accelerator."""
    try:
        found = torch.device(device)
    except (RuntimeError, TypeError):
        return None
    return found if found.type == "tpu" else None


class _Slice:
    """A tensor of an open file that is read when indexed."""

    def __init__(self, inner: Any, device: torch.device) -> None:
        self._inner = inner
        self._device = device

    def __getitem__(self, where: Any) -> torch.Tensor:
        return self._inner[where].to(self._device)  # type: ignore[no-any-return]

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


class _File:
    """An open safetensors file whose tensors go from the mapped file straight to the device."""

    def __init__(self, inner: Any, device: torch.device) -> None:
        self._inner = inner
        self._device = device

    def __enter__(self) -> "_File":
        self._inner.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self._inner.__exit__(*error)

    def get_tensor(self, name: str) -> torch.Tensor:
        return self._inner.get_tensor(name).to(self._device)  # type: ignore[no-any-return]

    def get_tensors(self) -> dict[str, torch.Tensor]:
        return {name: self.get_tensor(name) for name in self._inner.offset_keys()}

    def get_slice(self, name: str) -> _Slice:
        return _Slice(self._inner.get_slice(name), self._device)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._inner, name)


def _safetensors(module: ModuleType) -> None:
    # The package keeps its list of devices in compiled code, and its class admits no subclass.
    original = module.safe_open

    class Opener(type):
        def __instancecheck__(cls, instance: object) -> bool:
            return isinstance(instance, (original, _File))

    class safe_open(metaclass=Opener):
        __doc__ = original.__doc__

        def __new__(cls, filename: Any, framework: str, device: Any = "cpu", **options: Any) -> Any:
            target = _tpu_of(device) if framework in ("pt", "torch", "pytorch") else None
            if target is None:
                return original(filename, framework, device, **options)
            return _File(original(filename, framework, "cpu", **options), target)

    module.safe_open = safe_open  # type: ignore[attr-defined]
    # Importing safetensors.torch first imports torch, and so us, when it is half done.
    inner = sys.modules.get("safetensors.torch")
    if inner is not None and getattr(inner, "safe_open", None) is original:
        inner.safe_open = safe_open  # type: ignore[attr-defined]


# -- accelerate ------------------------------------------------------------------------------------


def _accelerate_memory(module: ModuleType) -> None:
    original = module.get_max_memory

    @functools.wraps(original)
    def get_max_memory(max_memory: dict[Any, Any] | None = None) -> Any:
        found = original(max_memory)
        if max_memory is not None:
            return found
        tpu = torch.tpu  # type: ignore[attr-defined]
        memory = {i: tpu.mem_get_info(i)[0] for i in range(tpu.device_count())}
        return {**memory, **found}

    module.get_max_memory = get_max_memory  # type: ignore[attr-defined]
