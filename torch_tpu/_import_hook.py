"""Run a function right after a module has been imported, without importing it.

`when_imported("accelerate.utils.modeling", f)` calls `f(module)` as soon as that module's body has
run, before whoever imported it goes on; at once if it is there already. The hook leaves no trace on
the module: it shadows `exec_module` on the one loader instance and removes itself afterwards.
"""

import contextlib
import sys
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

Callback = Callable[[ModuleType], None]

_waiting: dict[str, list[Callback]] = {}


class _Finder(MetaPathFinder):
    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        if fullname not in _waiting:
            return None
        for finder in sys.meta_path:
            if finder is self or not hasattr(finder, "find_spec"):
                continue
            spec = finder.find_spec(fullname, path, target)
            if spec is not None:
                _watch(spec)
                return spec
        return None


_finder = _Finder()


def _watch(spec: ModuleSpec) -> None:
    loader: Any = spec.loader
    if loader is None:
        return
    run = loader.exec_module

    def exec_module(module: ModuleType) -> None:
        with contextlib.suppress(AttributeError):
            del loader.exec_module
        run(module)
        for callback in _waiting.pop(spec.name, ()):
            callback(module)
        if not _waiting and _finder in sys.meta_path:
            sys.meta_path.remove(_finder)

    # A loader that is a class or frozen: its module goes without.
    with contextlib.suppress(AttributeError):
        loader.exec_module = exec_module


def when_imported(name: str, callback: Callback) -> None:
    """Call `callback(module)` once, when module `name` has been imported or now if it has been.

    A module whose import is under way now counts as imported when it already has the attributes
    that the callback wants: the callback must cope with ones that are missing.
    """
    module = sys.modules.get(name)
    if module is not None:
        callback(module)
        return
    _waiting.setdefault(name, []).append(callback)
    if _finder not in sys.meta_path:
        sys.meta_path.insert(0, _finder)
