"""`python -m torch_tpu.aot FILE.py:NAME`: compile for TPUs that are not here.

NAME is a function without arguments in FILE.py (or in an importable module) that gives what
`torch_tpu.aot.compile` takes: `(module_or_fn, args)`, `(module_or_fn, args, kwargs)`, or a dict of
its arguments by name. Make big modules under `torch.device("meta")`: they take no memory.
"""

from __future__ import annotations

import argparse
import importlib
import importlib.util
import os
import sys
from pathlib import Path
from typing import Any

from torch_tpu import aot
from torch_tpu.aot import _chips
from torch_tpu.aot._table import rows_text, size_text, time_text


def main(arguments: list[str] | None = None) -> int:
    """Run the command; exit code 1 for an error, 3 when the program does not fit."""
    parser = argparse.ArgumentParser(
        prog="python -m torch_tpu.aot",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("program", nargs="?", help="FILE.py:NAME or package.module:NAME")
    parser.add_argument(
        "-t", "--topology", action="append", help="v6e:1x1 (default), v5e, v5p, v7x, v6e:2x2, ...; "
        "repeat it to compare",
    )  # fmt: skip
    parser.add_argument("--mode", choices=("forward", "train"))
    parser.add_argument("--precision", choices=("highest", "high", "medium"))
    parser.add_argument("--optimizer", help="a class of torch.optim, with --mode train")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the report as JSON")
    parser.add_argument("--html", type=Path, metavar="FILE", help="write the report as a page")
    parser.add_argument("--save", type=Path, metavar="FOLDER", help="programs and executable, too")
    parser.add_argument("--list", action="store_true", help="print the topologies there are")
    options = parser.parse_args(arguments)
    if options.list:
        print("\n".join(aot.topologies()))
        return 0
    if options.program is None:
        parser.error("which program? FILE.py:NAME")
    try:
        return _run(options)
    except (RuntimeError, ValueError, TypeError, NotImplementedError, ImportError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 1


def _run(options: argparse.Namespace) -> int:
    for name in options.topology or ():
        _chips.normalize(name)
    _check_targets(options)
    optimizer = _optimizer(options.optimizer) if options.optimizer else None
    call = _load(options.program)
    given = call.pop("topology", "v6e:1x1")
    topologies = options.topology or [given]
    for key in ("mode", "precision"):
        if getattr(options, key):
            call[key] = getattr(options, key)
    if optimizer is not None:
        call["optimizer"] = optimizer
    reports = []
    for name in topologies:
        report = aot.compile(**call, topology=name)
        reports.append(report)
        print(report, end="\n\n")
        several = len(topologies) > 1
        if options.json:
            _one_of(options.json, name, several).write_text(report.to_json())
        if options.html:
            print("page:", report.to_html(_one_of(options.html, name, several)))
        if options.save:
            print("saved:", report.save(_one_of(options.save, name, several)))
    if len(reports) > 1:
        print(_comparison(reports))
    return 0 if all(r.fits for r in reports) else 3


def _check_targets(options: argparse.Namespace) -> None:
    """What is written at the end is checked before anything is compiled."""
    for path in (options.json, options.html):
        if path is not None and (path.is_dir() or not os.access(path.absolute().parent, os.W_OK)):
            raise ValueError(f"{path} cannot be written")
    if options.save is not None:
        names = options.topology or [""]
        for folder in (_one_of(options.save, name, len(names) > 1) for name in names):
            try:
                folder.mkdir(parents=True, exist_ok=True)
            except OSError as error:
                raise ValueError(f"the folder {folder} cannot be written: {error}") from None


def _optimizer(name: str) -> Any:
    import torch

    found = getattr(torch.optim, name, None)
    if not (isinstance(found, type) and issubclass(found, torch.optim.Optimizer)):
        raise ValueError(f"torch.optim has no optimizer {name!r}")
    return found


def _one_of(path: Path, topology: str, several: bool) -> Path:
    if not several:
        return path
    return path.with_stem(f"{path.stem}-{topology.replace(':', '-')}")


def _comparison(reports: list[aot.Report]) -> str:
    rows = []
    for r in reports:
        line = r.roofline
        rows.append(
            (
                r.topology,
                "yes" if r.fits else "NO",
                size_text(r.peak_bytes),
                size_text(r.capacity_bytes),
                time_text(line.seconds) if line else "",
                time_text(line.bound_seconds) if line else "",
                f"{line.peak_share:.1%}" if line else "",
            )
        )
    columns = ("topology", "fits", "peak", "HBM", "estimated", "roofline", "of peak")
    return rows_text(columns, rows, {2, 3, 4, 5, 6})


def _load(program: str) -> dict[str, Any]:
    """The arguments of `compile` that the named function gives."""
    where, colon, name = program.rpartition(":")
    if not colon:
        raise ValueError(f"{program!r} is not FILE.py:NAME")
    if where.endswith(".py"):
        path = Path(where)
        if not path.is_file():
            raise ValueError(f"there is no file {where}")
        spec = importlib.util.spec_from_file_location(path.stem, path)
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        sys.modules[path.stem] = module
        sys.path.insert(0, str(path.parent.resolve()))
        spec.loader.exec_module(module)
    else:
        module = importlib.import_module(where)
    made = getattr(module, name, None)
    if not callable(made):
        names = [n for n, v in vars(module).items() if callable(v) and not n.startswith("_")]
        raise ValueError(f"{where} has no function {name}; it has {', '.join(names)}")
    result = made()
    if isinstance(result, dict):
        return dict(result)
    if isinstance(result, tuple) and len(result) in (2, 3):
        return dict(zip(("module_or_fn", "args", "kwargs"), result, strict=False))
    raise TypeError(
        f"{name} gave {type(result).__name__}; it has to give (module_or_fn, args), with kwargs, "
        "or a dict of the arguments of torch_tpu.aot.compile"
    )


if __name__ == "__main__":
    sys.exit(main())
