"""Running a model on the meta device without importing torch._dynamo.

torch's meta kernels that are written in Python (`torch._refs`) are wrapped so that dynamo, if it
ever traces one, steps around it; the wrapper imports the whole of torch._dynamo at its first call,
a second of a compile that traces nothing. Where dynamo is not there yet, the wrappers are told for
the time of a run that they have nothing to step around.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from types import FunctionType
from typing import Any

import torch._compile
import torch._decomp
import torch._refs

_MARK = "__dynamo_disable"  # where torch._disable_dynamo keeps what it calls instead


@contextmanager
def without_dynamo() -> Iterator[None]:
    """Inside, a meta kernel imports no dynamo, unless torch comes to wrap in another way."""
    marked: list[Any] = []
    if "torch._dynamo" not in sys.modules:
        kernels = [*vars(torch._refs).values()]
        for table in torch._decomp.global_decomposition_table.values():
            kernels += table.values()
        for kernel in kernels:
            for function in _wrapped(kernel):
                if not hasattr(function, _MARK):
                    setattr(function, _MARK, function)
                    marked.append(function)
    try:
        yield
    finally:
        for function in marked:
            delattr(function, _MARK)


def _wrapped(kernel: Any) -> Iterator[FunctionType]:
    """What `torch._disable_dynamo` wraps, at any depth of a kernel's decorators."""
    todo, seen = [kernel], set()
    while todo:
        function = todo.pop()
        if not isinstance(function, FunctionType) or id(function) in seen:
            continue
        seen.add(id(function))
        # A decorator's function holds what it decorates in a cell; `__wrapped__` skips some.
        names = function.__code__.co_freevars
        cells = dict(zip(names, function.__closure__ or (), strict=True))
        if function.__code__.co_filename == torch._compile.__file__ and "fn" in cells:
            yield cells["fn"].cell_contents
        if "fn" in cells:
            todo.append(cells["fn"].cell_contents)
