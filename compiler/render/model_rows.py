"""Which lines one model is shown in."""

from __future__ import annotations

from collections.abc import Iterator

from ..architecture.tree import Architecture, Part
from .phrase import Phrase
from .phrases import said
from .row import Row

# Parts whose words say what the linear layers in them are.
_WHOLE = frozenset({"attention", "mlp", "experts"})


def show_rows(architecture: Architecture, *, everything: bool = False) -> tuple[Row, ...]:
    """The lines of a model: the root's, those of all parts below it, the config's.

    Without `everything` the linear layers of an attention or a feed-forward layer are left out, and

    """
    return (*_rows(architecture.root, "", 0, everything), *_config_rows(architecture))


def _rows(part: Part, path: str, depth: int, everything: bool) -> Iterator[Row]:
    yield Row(
        sign=" ",
        depth=depth,
        name=part.segment if depth else part.kind,
        paths=(path,),
        phrases=(Phrase(None, said(part)),),
        parameters=part.parameters,
        times=part.times,
        part=part,
    )
    for child in part.children:
        if everything or not (part.kind in _WHOLE and child.kind == "linear"):
            below = f"{path}.{child.segment}" if path else child.segment
            yield from _rows(child, below, depth + 1, everything)


def _config_rows(architecture: Architecture) -> Iterator[Row]:
    for name, value in architecture.config:
        path = f"config.{name}"
        yield Row(" ", 1, path, (path,), (Phrase(None, str(value)),))
