"""The device as TorchDynamo sees it. Imported with `torch._dynamo`, not before."""

from typing import Any

import torch
from torch._dynamo import device_interface

from torch_tpu import device as tpu


def make_interface() -> type[device_interface.DeviceInterface]:
    """The interface class of `tpu`, in place of torch's own, which knows only device 0."""

    class TpuInterface(device_interface.DeviceInterface):
        device = tpu.device
        Event = tpu.Event
        Stream = tpu.Stream

        current_device = staticmethod(tpu.current_device)
        set_device = staticmethod(tpu.set_device)
        device_count = staticmethod(tpu.device_count)
        exchange_device = staticmethod(tpu._exchange_device)
        maybe_exchange_device = staticmethod(tpu._maybe_exchange_device)
        is_available = staticmethod(tpu.is_available)
        stream = staticmethod(tpu.stream)
        current_stream = staticmethod(tpu.current_stream)
        set_stream = staticmethod(tpu.set_stream)
        _set_stream_by_id = staticmethod(tpu._set_stream_by_id)
        synchronize = staticmethod(tpu.synchronize)
        memory_allocated = staticmethod(tpu.memory_allocated)

        @staticmethod
        def get_raw_stream(device_idx: int) -> int:
            return int(tpu.current_stream(device_idx).stream_id)

        @staticmethod
        def get_compute_capability(device: torch.types.Device = None) -> str:
            return ""

        @staticmethod
        def is_bf16_supported(including_emulation: bool = False) -> bool:
            return True

        @classmethod
        def is_dtype_supported(cls, dtype: torch.dtype, including_emulation: bool = False) -> bool:
            return dtype in tpu.get_device_capability()["supported_dtypes"]

        class Worker:
            """Answers in processes that compile for us and may not touch the device."""

            @staticmethod
            def set_device(device: int) -> None:
                device_interface.caching_worker_current_devices["tpu"] = device

            @staticmethod
            def current_device() -> int:
                chosen = device_interface.caching_worker_current_devices.get("tpu")
                return tpu.current_device() if chosen is None else chosen

            @staticmethod
            def get_device_properties(device: torch.types.Device = None) -> Any:
                return tpu.get_device_properties(device)

    return TpuInterface
