"""Record: build the tree once and write down who built whom, where, and with which arguments.

Nothing is interpreted. The ordinary constructors run, on the meta device, with every
`__init__` of a module class wrapped for the time of the build; the wrapper notes the bound
arguments and the exact place of the call (line and column, from the caller's frame).
"""

from __future__ import annotations

import functools
import inspect
import linecache
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import FrameType
from typing import Any

import torch
from torch import nn

from specc.templates import identity as identity_module
from specc.templates import spec as spec_module
from specc.templates.diagnostic import Span

from .errors import refuse
from .source import is_foldable_module

# Frames of these files stand between a parent and the child that it asked for.
MACHINERY = frozenset({spec_module.__file__, identity_module.__file__, __file__})


@dataclass(frozen=True)
class Place:
    """A call expression in a source file: 1-based lines, columns in bytes of UTF-8."""

    file: str
    line: int
    column: int
    end_line: int
    end_column: int


@dataclass(eq=False)
class Built:
    """One module, and how it came to be."""

    module: nn.Module = field(repr=False)
    arguments: dict[str, Any] = field(
        repr=False
    )  # by the constructor's parameter names, defaults filled in
    given: frozenset[str]  # those of them that were passed
    place: Place | None  # None where no Python source made the call
    owner: nn.Module | None = field(repr=False)  # whose method made the call
    span: Span | None = None  # of its spec, in the user's file

    @property
    def cls(self) -> type[nn.Module]:
        return type(self.module)


@dataclass(eq=False)
class Recording:
    root: nn.Module
    built: dict[int, Built] = field(default_factory=dict)  # by id of the module

    def of(self, module: nn.Module) -> Built | None:
        return self.built.get(id(module))


def record(build: Callable[[], nn.Module]) -> Recording:
    """Run `build` on the meta device and return the root with every module's record.

    Raises whatever the constructors raise, and a CompileError where one asks a tensor for its
    numbers.
    """
    built: dict[int, Built] = {}
    with _listening(built), torch.device("meta"):
        try:
            root = build()
        except (RuntimeError, NotImplementedError) as error:
            if "meta" not in str(error):
                raise
            refuse(
                "SP331",
                "a constructor asks a tensor for its numbers, and a model is compiled without "
                f"any ({error})",
                users_line(error),
                help="let the constructor depend on the config and on shapes alone",
            )
    return Recording(root, built)


def users_line(error: BaseException) -> Span | None:
    """The innermost line of the traceback that is not a library's."""
    found: Span | None = None
    for frame, line in traceback.walk_tb(error.__traceback__):
        if frame.f_code.co_filename not in MACHINERY and is_foldable_module(
            frame.f_globals.get("__name__", "")
        ):
            text = linecache.getline(frame.f_code.co_filename, line).rstrip()
            found = Span(
                frame.f_code.co_filename, line, len(text) - len(text.lstrip()) + 1, len(text) + 1
            )
    return found


@contextmanager
def _listening(built: dict[int, Built]) -> Iterator[None]:
    originals = {cls: cls.__dict__["__init__"] for cls in _module_classes()}
    for cls, original in originals.items():
        _replace_init(cls, _listener(original, built))
    try:
        yield
    finally:
        for cls, original in originals.items():
            _replace_init(cls, original)


def _replace_init(cls: type, function: Any) -> None:
    cls.__init__ = function  # type: ignore[misc]  # the one place that swaps a constructor


def _module_classes() -> list[type[nn.Module]]:
    """Every loaded module class that writes its own constructor."""
    found: dict[type[nn.Module], None] = {}
    todo: list[type[nn.Module]] = [nn.Module]
    while todo:
        cls = todo.pop()
        if cls not in found:
            found[cls] = None
            todo.extend(cls.__subclasses__())
    return [c for c in found if inspect.isfunction(c.__dict__.get("__init__"))]


_PLAIN = nn.Module.__init__  # of classes that write no constructor: nn.Tanh, nn.Sigmoid
_SELF = inspect.Parameter("self", inspect.Parameter.POSITIONAL_ONLY)


def _listener(original: Any, built: dict[int, Built]) -> Any:
    @functools.wraps(original)
    def listening(self: nn.Module, *args: Any, **kwargs: Any) -> None:
        # A base's constructor, called by super(), belongs to the record of the class built; that
        # of nn.Module is the class's own where no class between them writes one.
        if id(self) not in built and (original is not _PLAIN or type(self).__init__ is listening):
            built[id(self)] = _record_of(self, original, args, kwargs, sys._getframe(1))
        original(self, *args, **kwargs)

    return listening


def _record_of(
    module: nn.Module, init: Any, args: tuple[Any, ...], kwargs: dict[str, Any], frame: FrameType
) -> Built:
    try:
        signature = inspect.Signature([_SELF]) if init is _PLAIN else inspect.signature(init)
        bound = signature.bind(module, *args, **kwargs)
    except TypeError:  # the call itself is about to raise, with a better message
        return Built(module, {}, frozenset(), None, None)
    spec = spec_module.being_built()
    span = spec.span if spec is not None and spec.module is type(module) else None
    given = frozenset(list(bound.arguments)[1:])
    bound.apply_defaults()
    arguments = dict(list(bound.arguments.items())[1:])
    caller: FrameType | None = frame
    while caller is not None and caller.f_code.co_filename in MACHINERY:
        caller = caller.f_back
    return Built(module, arguments, given, _place(caller), _owner(caller), span)


def _place(frame: FrameType | None) -> Place | None:
    if frame is None:
        return None
    line, end_line, column, end_column = list(frame.f_code.co_positions())[frame.f_lasti // 2]
    if line is None or end_line is None or column is None or end_column is None:
        return None
    return Place(frame.f_code.co_filename, line, column, end_line, end_column)


def _owner(frame: FrameType | None) -> nn.Module | None:
    # Before Python 3.12 a comprehension has a frame of its own, without the method's `self`.
    while frame is not None and frame.f_code.co_name in (
        "<listcomp>",
        "<genexpr>",
        "<dictcomp>",
        "<setcomp>",
    ):
        frame = frame.f_back
    if frame is None or not frame.f_code.co_argcount:
        return None
    first = frame.f_locals.get(frame.f_code.co_varnames[0])
    return first if isinstance(first, nn.Module) else None
