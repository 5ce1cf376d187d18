"""The instrument: writes down each module's steps while a model runs."""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Callable, Hashable, Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch
from torch import Tensor, nn
from torch.overrides import TorchFunctionMode

from specc.runtime import Mesh, Positions
from specc.runtime.moe_dispatch import Dispatched

from .calls import AttentionCall, ModuleCall, Name, Phase, Step, Value
from .frames import Frame, tracked
from .recorded_attention import of_runtime, of_torch, rotary_words
from .recurrences import Recurrence, recurrence

_NOTHING = object()  # an argument that is not written down


class Recorder(TorchFunctionMode):
    """Collects `calls`, by phase and path, and the attention calls and recurrences among them.

    Steps are taken at the level of torch's Python functions: what a function does inside is not
    seen, and neither is what happens inside a wrapped function of the runtime.
    """

    def __init__(self, model: nn.Module, content: Callable[[Tensor], str | None]) -> None:
        super().__init__()
        self.phase: Phase = "train"
        self._content = content
        self.calls: dict[Phase, dict[str, list[ModuleCall]]] = {}
        self.attention: list[AttentionCall] = []
        self.inside_attention: int | None = None
        self.recurrences: list[Recurrence] = []
        self.inside_recurrence = False
        self.names = {id(t): n for n, t in (*model.named_buffers(), *model.named_parameters())}
        self.modules = {id(m): path for path, m in model.named_modules()}
        self.frames: list[Frame] = []
        self.rotary: dict[int, tuple[str, ...]] = {}  # of rotary tables, what they were made with
        self._held: list[Any] = []  # so that no id is used twice
        self._quiet = False

    @property
    def path(self) -> str:
        """The module whose forward runs."""
        return self.frames[-1].path if self.frames else ""

    @contextmanager
    def silenced(self, quiet: bool = True) -> Iterator[None]:
        before, self._quiet = self._quiet, quiet
        try:
            yield
        finally:
            self._quiet = before

    def __torch_function__(
        self, func: Any, types: Any, args: tuple[Any, ...] = (), kwargs: Any = None
    ) -> Any:
        kwargs = kwargs or {}
        if self._quiet or not self.frames:
            return func(*args, **kwargs)
        written = self._written(args), self._named(kwargs)
        attention = of_torch(func, args, kwargs, self.path)
        with self._attending(attention) as number:
            out = func(*args, **kwargs)
        name = _name(func)
        if name == "__setitem__" or (name.endswith("_") and not name.startswith("__")):
            changed = args[0]
        elif any(True for _ in tracked(out)):
            changed = out
        else:
            return out  # a size, a dtype: no step of the computation
        self._add("torch", name, *written, changed, number)
        return out

    @contextmanager
    def _attending(self, call: AttentionCall | None) -> Iterator[int | None]:
        if call is None or self.phase == "eval":
            yield None
            return
        number = self.inside_attention = len(self.attention)
        self.attention.append(dataclasses.replace(call, phase=self.phase))
        try:
            yield number
        finally:
            self.inside_attention = None

    @contextmanager
    def _recurring(self, call: Recurrence | None) -> Iterator[None]:
        if call is None or self.phase == "eval":
            yield
            return
        self.recurrences.append(dataclasses.replace(call, phase=self.phase))
        self.inside_recurrence = True
        try:
            yield
        finally:
            self.inside_recurrence = False

    def run_forward(
        self, path: str, forward: Callable[..., Any], inputs: dict[str, Any], args: Any, kwargs: Any
    ) -> Any:
        """Runs a module's forward, called with these inputs, and writes its steps down."""
        frame = Frame(path, inputs)
        root = not self.frames
        forms = [
            (name if root else self._label(value), self._write(value, frame))
            for name, value in inputs.items()
        ]
        self.frames.append(frame)
        try:
            with self.silenced(False):
                out = forward(*args, **kwargs)
        finally:
            self.frames.pop()
        known = tuple((name, form) for name, form in forms if form is not _NOTHING)
        call = ModuleCall(path, known, tuple(frame.steps), self._write(out, frame))
        self.calls.setdefault(self.phase, {}).setdefault(path, []).append(call)
        return out

    def _label(self, value: Any) -> str:
        """What an input is, where that is known whatever its name."""
        parts = list(tracked(value))
        if any(isinstance(part, Positions) for part in parts):
            return "positions"
        return "rotary" if parts and all(id(part) in self.rotary for part in parts) else ""

    @contextmanager
    def child(self, path: str, inputs: dict[str, Any]) -> Iterator[Callable[[Any], None]]:
        """The call of a module, as a step of the forward that is open; is told its result."""
        if self._quiet or not self.frames:
            yield lambda out: None
            return
        written = self._named({n: v for n, v in inputs.items() if v is not None})
        name = self._seen_from(path, self.frames[-1])
        yield lambda out: self._add("child", name, (), written, out, None)

    def call_runtime(self, name: str, function: Callable[..., Any], args: Any, kwargs: Any) -> Any:
        """Runs a function of the runtime as one step."""
        if self._quiet or not self.frames:
            return function(*args, **kwargs)
        inputs = bound(function, args, kwargs)
        parameters = inspect.signature(function).parameters
        needed = [n for n in inputs if parameters[n].default is inspect.Parameter.empty]
        others = [
            n for n in inputs if n not in needed and not _is(inputs[n], parameters[n].default)
        ]
        args = self._written(inputs[n] for n in needed)
        kwargs = self._named({n: inputs[n] for n in others})
        attention = of_runtime(name, inputs, self.path, self.names)
        shapes = [tuple(value.shape) for value in inputs.values() if isinstance(value, Tensor)]
        recurring = self._recurring(recurrence(name, shapes, self.path))
        with self._attending(attention) as number, recurring, self.silenced():
            out = function(**inputs)
        rotary = None
        if name == "rotary_tables":
            self.rotary |= {id(table): rotary_words(inputs) for table in out}
            self._held.append(out)
        elif name == "apply_rotary":
            rotary = self.rotary.get(id(inputs["cos"]), ())
        self._add("runtime", name, args, kwargs, out, number, rotary)
        return out

    def _add(
        self,
        kind: Any,
        name: str,
        args: Any,
        kwargs: Any,
        out: Any,
        attention: int | None,
        rotary: tuple[str, ...] | None = None,
    ) -> None:
        frame = self.frames[-1]
        frame.know(out, len(frame.steps))
        results = tuple(self._write(one, frame) for one in tracked(out))
        frame.steps.append(Step(kind, name, args, kwargs, results, attention, rotary))

    def _written(self, values: Any) -> tuple[Any, ...]:
        frame = self.frames[-1]
        found = [self._write(value, frame) for value in values]
        return tuple(value for value in found if value is not _NOTHING)

    def _named(self, values: dict[str, Any]) -> tuple[tuple[str, Any], ...]:
        frame = self.frames[-1]
        found = [(name, self._write(value, frame)) for name, value in values.items()]
        return tuple((name, value) for name, value in found if value is not _NOTHING)

    def _write(self, value: Any, frame: Frame) -> Any:
        if isinstance(value, (Tensor, Positions)):
            return self._value(value, frame)
        if value is None or isinstance(value, (bool, int, float, str)):
            return value
        if isinstance(value, Dispatched):
            return tuple(self._value(v, frame) for v in tracked(value))
        if isinstance(value, (tuple, list)):
            found = [self._write(v, frame) for v in value]
            return tuple(v for v in found if v is not _NOTHING)
        if isinstance(value, dict):
            return tuple((str(k), self._write(v, frame)) for k, v in value.items())
        if isinstance(value, slice):
            parts = (value.start, value.stop, value.step)
            return ("slice", *(self._write(p, frame) for p in parts))
        if isinstance(value, nn.Module):
            path = self.modules.get(id(value), type(value).__name__)
            return Name(self._seen_from(path, frame))
        if isinstance(value, (Mesh, torch.device, torch.Generator)):
            return _NOTHING
        if value is Ellipsis:
            return Name("...")
        if isinstance(value, torch.dtype):
            return Name(str(value).removeprefix("torch."))
        if dataclasses.is_dataclass(value) and not isinstance(value, type):
            fields = [(f.name, getattr(value, f.name)) for f in dataclasses.fields(value)]
            return (Name(type(value).__name__), *((n, self._write(v, frame)) for n, v in fields))
        return Name(getattr(value, "__name__", type(value).__name__))

    def _seen_from(self, path: str, frame: Frame) -> str:
        return path.removeprefix(f"{frame.path}.") if frame.path else path

    def _value(self, value: Any, frame: Frame) -> Value:
        known = frame.sources.get(id(value))
        if known is None:
            name = self.names.get(id(value))
            if name is None:
                known = (self._unnamed(value), -1)
            else:
                known = (self._seen_from(name, frame), -1)
        if isinstance(value, Positions):
            return Value(*known, (), None)
        return Value(*known, tuple(value.shape), value.dtype)

    def _unnamed(self, value: Any) -> str:
        """A tensor that no step gave and that has no name: a constant of the page or a module."""
        if not isinstance(value, Tensor):
            return "positions"
        content = None if value.requires_grad else self._content(value)
        return "another tensor" if content is None else f"tensor {content}"

    def meaning(self, tensor: Tensor) -> Hashable:
        """What is known of a tensor beside its form: what rotary tables were made with."""
        return self.rotary.get(id(tensor))


def bound(function: Callable[..., Any], args: Any, kwargs: Any) -> dict[str, Any]:
    """The arguments of a call by the names of the parameters, in their order."""
    found = inspect.signature(function).bind(*args, **kwargs)
    return dict(found.arguments)


@contextmanager
def runtime_watched(recorder: Recorder, names: dict[str, Any]) -> Iterator[None]:
    """Inside, the runtime's functions that stand among the `names` of a page are steps."""
    before: dict[str, Any] = {}
    for name, value in names.items():
        if isinstance(value, FunctionType) and value.__module__.startswith("specc.runtime"):
            before[name] = value
            names[name] = _watched(recorder, value.__name__, value)
    makers = {name: vars(Positions)[name] for name in ("of", "of_hidden")}
    for name, maker in makers.items():
        watched = _watched(recorder, f"Positions.{name}", maker.__func__)
        setattr(Positions, name, staticmethod(watched))
    try:
        yield
    finally:
        names.update(before)
        for name, maker in makers.items():
            setattr(Positions, name, maker)


def _watched(recorder: Recorder, name: str, function: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*args: Any, **kwargs: Any) -> Any:
        return recorder.call_runtime(name, function, args, kwargs)

    return watched


def _name(func: Any) -> str:
    name = getattr(func, "__name__", "") or type(func).__name__
    if name == "__get__":  # a property: `x.mT`
        return str(getattr(getattr(func, "__self__", None), "__name__", name))
    return str(name)


def _is(value: Any, default: Any) -> bool:
    return type(value) is type(default) and (value is default or bool(value == default))
