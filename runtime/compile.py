"""Layers compiled one by one, in place."""

from __future__ import annotations

from collections.abc import Callable, Collection, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from .data_parallel import parts_around

# torch 2.11 raises the first where 2.13 raises the second.
_BREAKS = (torch._dynamo.exc.Unsupported, torch._dynamo.exc.UserError)


def compile_layers(
    units: Sequence[nn.Module],
    *,
    apart: Collection[nn.Module] = (),
    backend: str = "inductor",
) -> None:
    """Compiles each of ``units``, a model's layers, in place and as one graph; all names stay.

    ``apart`` are modules that ``shard`` will gather by themselves, at a call of theirs, which no
    graph can hold: experts. A layer with one inside is compiled in parts, the largest that hold
    none, and the module's own forward; what the layer does between them is not.

    Layers of one class share a graph where they differ in parameters only. Call it after
    ``apply_recompute`` and before ``shard``. What cannot be one graph raises at the first call: a
    ValueError with the line of the layer's class that broke it.
    """
    # Layers that differ in a number have a graph each, in train and in eval mode; past the limit
    # torch would refuse.
    config = torch._dynamo.config
    config.recompile_limit = max(config.recompile_limit, 8 + 4 * len(units))
    for part in (part for unit in units for part in parts_around(unit, apart)):
        if part in apart:
            compiled = torch.compile(part.forward, fullgraph=True, backend=backend)
            # Below the hooks that shard will put around a call of the module.
            part.__dict__["forward"] = _explained(type(part), compiled)
            continue
        part.compile(fullgraph=True, backend=backend)
        # Where Module.compile puts what a call of the module runs.
        call: Any = part._compiled_call_impl
        part._compiled_call_impl = _explained(type(part), call)


def _explained(kind: type[nn.Module], call: Callable[..., Any]) -> Callable[..., Any]:
    def explained(*args: Any, **kwargs: Any) -> Any:
        try:
            return call(*args, **kwargs)
        except _BREAKS as error:
            raise ValueError(_sentence(kind, error)) from error

    return explained


def _sentence(kind: type[nn.Module], error: Exception) -> str:
    torchs = Path(torch.__file__).parent
    stack = getattr(error, "real_stack", ())
    frames = [frame for frame in stack if torchs not in Path(frame.filename).parents]
    where = f" at {frames[-1].filename}:{frames[-1].lineno}: {frames[-1].line}" if frames else ""
    reason = str(error).strip().splitlines()[0]
    return (
        f"{kind.__name__} cannot be compiled as one graph{where} ({reason}); "
        "write that line without it, or train without compiling"
    )
