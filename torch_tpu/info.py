"""`python -m torch_tpu.info`: what is installed, found and set. Starts the runtime."""

import platform
import sys
from collections.abc import Iterable

import torch

import torch_tpu
from torch_tpu import _C, cache
from torch_tpu.memory import _bytes


def _section(title: str, rows: Iterable[tuple[str, object]]) -> list[str]:
    return ["", title, *(f"  {name:30} {value}" for name, value in rows)]


def _devices() -> Iterable[tuple[str, object]]:
    tpu = torch.tpu  # type: ignore[attr-defined]
    for index in range(tpu.device_count()):
        found = tpu.get_device_properties(index)
        free, total = tpu.mem_get_info(index)
        cores = f"{found.core_count} core" + ("s" if found.core_count != 1 else "")
        yield (
            f"tpu:{index}",
            f"{found.name} ({found.kind}), {cores}, {_bytes(free)} of {_bytes(total)} free",
        )


def _settings() -> Iterable[tuple[str, object]]:
    for row in _C.settings():
        shown = row["value"] if row["value"] != "" else "(empty)"
        yield row["env"], shown if row["value"] == row["default"] else f"{shown}  (set)"


def report() -> str:
    """The report as text. Raises RuntimeError when no device can be opened."""
    torch.tpu.init()  # type: ignore[attr-defined]
    plugin = _C.plugin_info()
    stats = cache.stats()
    lines = [f"torch_tpu {torch_tpu.__version__}"]
    lines += _section(
        "software",
        [
            ("torch", torch.__version__),
            ("python", platform.python_version()),
            ("system", platform.platform()),
        ],
    )
    lines += _section("plugin", plugin.items())
    lines += _section("devices", _devices())
    lines += _section(
        "caches",
        [
            (name, _bytes(value) if name.endswith("_bytes") else value)
            for name, value in stats.items()
        ],
    )
    lines += _section("settings", _settings())
    return "\n".join(lines)


def main() -> int:
    """Print the report; 1 and one line on stderr when there is no device."""
    try:
        print(report())
    except RuntimeError as error:
        print(f"torch_tpu {torch_tpu.__version__}: {error}", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
