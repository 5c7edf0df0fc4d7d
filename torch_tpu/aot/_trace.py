"""An `nn.Module` or function, with example arguments, as one StableHLO program.

The code runs once on placeholder tensors of the device, which have shapes and no memory, through
the recorder that eager mode uses. Weights are placeholders too: real, meta and fake ones alike.
"""

from __future__ import annotations

import contextlib
import inspect
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Any

import torch
from torch import nn
from torch.overrides import TorchFunctionMode
from torch.utils import _pytree as pytree

from torch_tpu import _C, _control_flow, precision

PRECISIONS = {"highest": "HIGHEST", "high": "HIGH", "medium": "DEFAULT"}


@dataclass
class Argument:
    """One argument of a program. `kind`: input, parameter, buffer, state, constant, generator."""

    name: str
    kind: str
    dtype: str
    shape: list[int]
    size_bytes: int
    updated: bool = False  # the program writes its new value into the same memory


@dataclass
class Program:
    """What `trace` gives."""

    text: str
    arguments: list[Argument]
    outputs: list[str]
    mode: str
    name: str
    batch: int | None = None  # leading size of the first input
    tokens: int | None = None  # elements of the first integer input, if it has two dims
    notes: list[str] = field(default_factory=list)


def trace(
    target: Callable[..., Any],
    args: tuple[Any, ...],
    kwargs: dict[str, Any] | None = None,
    *,
    mode: str = "forward",
    optimizer: Any = None,
    precision_name: str | None = None,
) -> Program:
    """The program of `target(*args, **kwargs)`; `torch_tpu.aot.compile` says what each means.

    Raises what the code raises; RuntimeError where it reads a value, which no placeholder has.
    """
    if mode not in ("forward", "train"):
        raise ValueError(f'mode is "forward" or "train", got {mode!r}')
    if optimizer is not None and mode != "train":
        raise ValueError('an optimizer needs mode="train"')
    if precision_name is not None and precision_name not in PRECISIONS:
        names = ", ".join(PRECISIONS)
        raise ValueError(f"precision is one of {names}, got {precision_name!r}")
    if torch._C._get_dispatch_mode(torch._C._TorchDispatchModeKey.FAKE) is not None:
        raise RuntimeError(
            "a program cannot be traced inside of a FakeTensorMode: leave it first; fake tensors "
            "that were made in it may be arguments"
        )
    _control_flow.register()
    tracer = _Tracer(target, args, kwargs or {}, mode, optimizer)
    with contextlib.ExitStack() as stack:
        if precision_name is not None:
            stack.enter_context(precision.precision(PRECISIONS[precision_name]))
        return tracer.run()


class _Tracer:
    def __init__(
        self,
        target: Callable[..., Any],
        args: tuple[Any, ...],
        kwargs: dict[str, Any],
        mode: str,
        optimizer: Any,
    ) -> None:
        if not isinstance(args, (tuple, list)):
            raise TypeError(f"args is a tuple of arguments, got {type(args).__name__}")
        self.target, self.args, self.kwargs = target, tuple(args), kwargs
        self.mode, self.optimizer = mode, optimizer
        found = dict(_modules_of(target, self.args, kwargs))
        # A single module needs no name before its paths.
        self.modules = {"": next(iter(found.values()))} if len(found) == 1 else found

    def run(self) -> Program:
        state = self._warm_up() if self.optimizer is not None else None
        with _Scope() as scope, self._placed(scope):
            outputs, names = self._step(scope, state)
            return self._program(scope, outputs, names)

    def _step(self, scope: _Scope, state: Any) -> tuple[list[torch.Tensor], list[str]]:
        leaves, spec = pytree.tree_flatten_with_path((self.args, self.kwargs))
        values = []
        for path, leaf in leaves:
            if isinstance(leaf, torch.Tensor):
                where = pytree.keystr(path[1:])
                name = f"args{where}" if str(path[0]) == "[0]" else f"kwargs{where}"
                leaf = scope.placeholder(leaf, name, "input", leaf.requires_grad)
            values.append(leaf)
        args, kwargs = pytree.tree_unflatten(values, spec)
        train = self.mode == "train"
        step = None
        if state is not None:
            step = self._optimizer(scope)
            _give_state(scope, step, state)
        with torch.set_grad_enabled(train), _paths(self.modules), _compiling(), _OnlyArguments():
            result = self.target(*args, **kwargs)
        if not train:
            named = [
                (f"output{pytree.keystr(path)}", leaf)
                for path, leaf in pytree.tree_flatten_with_path(result)[0]
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "tpu"
            ]
            return [leaf.detach() for _, leaf in named], [name for name, _ in named]
        loss = _loss_of(result)
        # On a thread without Python frames ops are located where their forward ops are.
        with torch.autograd.set_multithreading_enabled(True):
            loss.backward()  # type: ignore[no-untyped-call]
        if step is not None:
            with _path(f"optimizer.{type(step).__name__}"):
                step.step()
            return [loss.detach()], ["loss"]
        outputs, names = [loss.detach()], ["loss"]
        for tensor, name in scope.leaves():
            if tensor.grad is not None:
                outputs.append(tensor.grad)
                names.append(f"grad of {name}")
        return outputs, names

    def _program(self, scope: _Scope, outputs: list[torch.Tensor], names: list[str]) -> Program:
        made = scope.tracing.finish(outputs, False)
        arguments = []
        for kind, index, updated_by in made["arguments"]:
            if kind == "placeholder":
                argument = scope.arguments[index]
            elif kind == "constant":
                argument = _describe(made["constants"][index], f"constant {index}", "constant")
            else:
                argument = Argument("generator state", "generator", "uint64", [2], 16)
            argument.updated = updated_by >= 0
            arguments.append(argument)
        names = names + [f"new {a.name}" for a in arguments if a.updated]
        inputs = [a for a in arguments if a.kind == "input" and a.shape]
        tokens = None
        for a in inputs:
            if a.dtype in ("int64", "int32") and len(a.shape) == 2:
                tokens = a.shape[0] * a.shape[1]
                break
        return Program(
            text=made["text"],
            arguments=arguments,
            outputs=names,
            mode=self.mode,
            name=_name_of(self.target),
            batch=inputs[0].shape[0] if inputs else None,
            tokens=tokens,
        )

    # -- modules ---------------------------------------------------------------------------------

    @contextlib.contextmanager
    def _placed(self, scope: _Scope) -> Iterator[None]:
        """Parameters, buffers and tensor attributes of all modules as placeholders."""
        undo: list[tuple[dict[str, Any], str, Any]] = []

        def put(table: dict[str, Any], name: str, new: Any) -> None:
            undo.append((table, name, table[name]))
            table[name] = new

        try:
            for root, module in self.modules.items():
                for path, sub in module.named_modules(prefix=root):
                    dot = f"{path}." if path else ""
                    for name, value in sub._parameters.items():
                        if value is not None:
                            new = scope.placeholder(
                                value, dot + name, "parameter", value.requires_grad, True
                            )
                            put(sub._parameters, name, new)
                    for name, buffer in sub._buffers.items():
                        if buffer is not None:
                            put(sub._buffers, name, scope.placeholder(buffer, dot + name, "buffer"))
                    for name, value in list(sub.__dict__.items()):
                        if isinstance(value, torch.Tensor):
                            put(sub.__dict__, name, scope.placeholder(value, dot + name, "buffer"))
            yield
        finally:
            for table, name, old in reversed(undo):
                table[name] = old

    # -- optimizer -------------------------------------------------------------------------------

    def _optimizer(self, scope: _Scope) -> torch.optim.Optimizer:
        given = self.optimizer
        if isinstance(given, torch.optim.Optimizer):
            groups = [
                {**g, "params": [scope.known(p) for p in g["params"]]} for g in given.param_groups
            ]
            return type(given)(groups, **given.defaults)
        made = given([p for p, _ in scope.leaves()])
        if not isinstance(made, torch.optim.Optimizer):
            raise TypeError(
                "optimizer is an Optimizer of the module's parameters, its class or a function "
                f"from parameters to one; got {type(made).__name__}"
            )
        return made

    def _warm_up(self) -> list[dict[str, Any]]:
        """The optimizer's state after a step, by parameter: its tensors' types are what counts."""
        with _Scope() as scope, self._placed(scope):
            optimizer = self._optimizer(scope)
            parameters = [p for g in optimizer.param_groups for p in g["params"]]
            for p in parameters:
                p.grad = torch.zeros_like(p)
            optimizer.step()
            return [_without_values(optimizer.state.get(p, {})) for p in parameters]


class _Scope:
    """One program that is being traced, and its placeholders by the tensor they stand for."""

    def __init__(self) -> None:
        self.tracing = _C.Tracing(_C.current_device(), True)
        self.arguments: list[Argument] = []
        self._made: dict[int, tuple[torch.Tensor, torch.Tensor, str]] = {}

    def __enter__(self) -> _Scope:
        self.tracing.enter()
        return self

    def __exit__(self, *_: object) -> None:
        self.tracing.exit()

    def placeholder(
        self,
        like: torch.Tensor,
        name: str,
        kind: str,
        requires_grad: bool = False,
        is_parameter: bool = False,
    ) -> torch.Tensor:
        if id(like) in self._made:
            return self._made[id(like)][1]
        strides = list(like.stride()) if like.layout is torch.strided else []
        if like.layout is not torch.strided:
            raise NotImplementedError(
                f"{name} is {like.layout}: only strided tensors can be traced"
            )
        made = self.tracing.placeholder(list(like.shape), strides, like.dtype)
        if is_parameter:
            made = nn.Parameter(made, requires_grad=requires_grad)
        elif requires_grad:
            made.requires_grad_()
        self._made[id(like)] = (like, made, name)  # `like` is kept: its id must stay its own
        self.arguments.append(_describe(like, name, kind))
        return made

    def known(self, like: torch.Tensor) -> torch.Tensor:
        if id(like) not in self._made:
            raise ValueError("the optimizer has a parameter that is none of the module's")
        return self._made[id(like)][1]

    def leaves(self) -> list[tuple[torch.Tensor, str]]:
        """Placeholders that need a gradient, with their names."""
        return [(made, name) for _, made, name in self._made.values() if made.requires_grad]


def _describe(tensor: torch.Tensor, name: str, kind: str) -> Argument:
    size = tensor.numel() * tensor.element_size()
    return Argument(name, kind, str(tensor.dtype).removeprefix("torch."), list(tensor.shape), size)


def _name_of(target: Any) -> str:
    return str(getattr(target, "__qualname__", type(target).__qualname__))


def _modules_of(
    target: Any, args: tuple[Any, ...], kwargs: dict[str, Any]
) -> Iterator[tuple[str, nn.Module]]:
    """The module, modules among the arguments, and those that a function closes over, by name."""
    seen: set[int] = set()

    def found(name: str, value: Any) -> Iterator[tuple[str, nn.Module]]:
        if isinstance(value, nn.Module) and id(value) not in seen:
            seen.add(id(value))
            yield name, value

    yield from found("", target)
    for i, value in enumerate(args):
        yield from found(f"args{i}", value)
    for name, value in kwargs.items():
        yield from found(name, value)
    function = inspect.unwrap(target) if callable(target) else target
    if inspect.ismethod(function):
        yield from found("self", function.__self__)
        function = function.__func__
    if inspect.isfunction(function):
        variables = inspect.getclosurevars(function)
        for name, value in {**variables.globals, **variables.nonlocals}.items():
            yield from found(name, value)


@contextlib.contextmanager
def _path(name: str) -> Iterator[None]:
    _C.push_path(name)
    try:
        yield
    finally:
        _C.pop_path()


@contextlib.contextmanager
def _paths(modules: dict[str, nn.Module]) -> Iterator[None]:
    """While a module runs, ops are recorded under its path."""
    names = {
        id(sub): path
        for root, module in modules.items()
        for path, sub in module.named_modules(prefix=root)
    }
    hooks = nn.modules.module

    def enter(module: nn.Module, _: Any) -> None:
        _C.push_path(names.get(id(module), type(module).__name__))

    def leave(module: nn.Module, _args: Any, _result: Any) -> None:
        _C.pop_path()

    before = hooks.register_module_forward_pre_hook(enter)
    after = hooks.register_module_forward_hook(leave, always_call=True)
    try:
        yield
    finally:
        before.remove()
        after.remove()


@contextlib.contextmanager
def _compiling() -> Iterator[None]:
    """Libraries that look at data in eager mode leave it out where torch says that it compiles."""
    before = torch.compiler._is_compiling_flag
    torch.compiler._is_compiling_flag = True
    try:
        yield
    finally:
        torch.compiler._is_compiling_flag = before


class _OnlyArguments(TorchFunctionMode):
    """Refuses operations on a placeholder and on a meta tensor that is no argument.

    A meta tensor that a function closes over would lead PyTorch to its kernels for shapes alone,
    whose results on the device are values that nothing computed.
    """

    def __torch_function__(
        self, func: Any, types: Any, args: Any = (), kwargs: dict[str, Any] | None = None
    ) -> Any:
        kwargs = kwargs or {}
        # Control flow has its bodies traced by Dynamo, which would trace this as well.
        if not torch.compiler.is_dynamo_compiling():
            _check_values(func, (args, kwargs))
        return func(*args, **kwargs)


def _check_values(func: Any, arguments: Any) -> None:
    tensors = [leaf for leaf in pytree.tree_leaves(arguments) if isinstance(leaf, torch.Tensor)]
    if not any(t.device.type == "tpu" for t in tensors):
        return
    for t in tensors:
        if t.is_meta:
            raise RuntimeError(
                f"{getattr(func, '__name__', func)}: a meta tensor of shape {list(t.shape)} is no "
                "argument of the program: pass it in args or kwargs, or make it a buffer of the "
                "module"
            )


def _loss_of(result: Any) -> torch.Tensor:
    if not isinstance(result, torch.Tensor):
        found = result.get("loss") if isinstance(result, dict) else getattr(result, "loss", None)
        result = result[0] if found is None and isinstance(result, (tuple, list)) else found
    if not isinstance(result, torch.Tensor) or result.numel() != 1:
        what = list(result.shape) if isinstance(result, torch.Tensor) else type(result).__name__
        raise ValueError(
            f'mode="train" needs a loss of one element, got {what}; pass a function that computes '
            "it, e.g. compile(lambda model, x, y: loss(model(x), y), (model, x, y), ...)"
        )
    return result


def _without_values(state: dict[str, Any]) -> dict[str, Any]:
    return {
        key: torch.empty_like(value, device="meta")
        if isinstance(value, torch.Tensor) and value.device.type == "tpu"
        else value
        for key, value in state.items()
    }


def _give_state(
    scope: _Scope, optimizer: torch.optim.Optimizer, states: list[dict[str, Any]]
) -> None:
    names = {id(made): name for made, name in scope.leaves()}
    parameters = [p for g in optimizer.param_groups for p in g["params"]]
    for p, state in zip(parameters, states, strict=True):
        for key, value in state.items():
            if isinstance(value, torch.Tensor) and value.device.type == "meta":
                value = scope.placeholder(value, f"{names[id(p)]}.{key}", "state")
            elif isinstance(value, torch.Tensor):
                value = value.clone()
            optimizer.state[p][key] = value
