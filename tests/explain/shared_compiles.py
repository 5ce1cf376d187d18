"""One compile for all examples whose trees are the same, where all of their classes are specc's."""

from __future__ import annotations

import dataclasses
from typing import Any

from specc.compiler.pipeline import Compiled, compile_spec
from specc.templates import ModelParallelConfig, ModuleSpec, prepare
from specc.templates.spec import PreparedSpec

_done: dict[str, Compiled] = {}


def compile_shared(spec: ModuleSpec, *, validate: bool = True) -> Compiled:
    """`compile_spec`, or what it gave for the same tree before, with this tree's own notes."""
    prepared = prepare(spec)
    key = _written(prepared.spec)
    if key is None:
        return compile_spec(spec, validate=validate)
    key = f"{key} {validate}"
    if key not in _done:
        compiled = compile_spec(spec, validate=validate)
        notes = tuple(n for n in compiled.notes if n not in prepared.notes)
        if any(n.code == "SP192" for n in notes):
            return compiled  # said of this tree alone
        _done[key] = dataclasses.replace(compiled, notes=notes)
    return dataclasses.replace(_done[key], notes=(*prepared.notes, *_done[key].notes))


def _written(thing: Any) -> str | None:
    """A text that is the same for the same tree; None where a class is not specc's."""
    if isinstance(thing, PreparedSpec):
        if not getattr(thing.module, "__module__", "").startswith("specc."):
            return None
        parts = _all(
            {"params": thing.params, "submodules": thing.submodules, "children": thing.children}
        )
        return None if parts is None else f"{thing.module.__qualname__}{parts}"
    if isinstance(thing, ModelParallelConfig):
        return f"{thing!r} {sorted(thing._set_fields)}"
    if dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        return _all({f.name: getattr(thing, f.name) for f in dataclasses.fields(thing)})
    if isinstance(thing, dict):
        return _all(thing)
    if isinstance(thing, list | tuple):
        return _all(dict(enumerate(thing)))
    return repr(thing)


def _all(parts: dict[Any, Any]) -> str | None:
    written: dict[Any, str] = {}
    for name, part in parts.items():
        text = _written(part)
        if text is None:
            return None
        written[name] = text
    return repr(written)
