"""torch's ways to start a parameter that do nothing on the meta device, written down there."""

from __future__ import annotations

import inspect
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import torch

from ..validate.op_log import OpLog

_SILENT = ("trunc_normal_", "orthogonal_", "sparse_", "dirac_")


@contextmanager
def init_noted(log: OpLog, page: dict[str, Any]) -> Iterator[None]:
    """Inside, a call of one of them on the meta device is an entry of the log: `init.sparse_.meta`,
    with the tensor and the numbers. `page`: the names of a page, which may have imported some.
    """
    init = vars(torch.nn.init)
    before = {name: init[name] for name in _SILENT}
    noted = {function: _noted(name, function, log) for name, function in before.items()}
    imported = {name: value for name, value in page.items() if value in before.values()}
    try:
        init.update({name: noted[function] for name, function in before.items()})
        page.update({name: noted[function] for name, function in imported.items()})
        yield
    finally:
        init.update(before)
        page.update(imported)


def _noted(name: str, function: Callable[..., Any], log: OpLog) -> Callable[..., Any]:
    signature = inspect.signature(function)

    def start(*args: Any, **kwargs: Any) -> Any:
        given = signature.bind(*args, **kwargs)
        given.apply_defaults()
        tensor, *numbers = given.arguments.values()
        if tensor.is_meta:
            plain = [float(n) for n in numbers if isinstance(n, (int, float))]
            log.note(f"init.{name}.meta", (tensor, *plain), written=[tensor])
        return function(*args, **kwargs)

    return start
