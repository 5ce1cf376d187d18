"""Which lines one model is shown in."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..architecture.tree import Architecture, Part, indices_text
from .phrase import Phrase
from .phrases import layers_phrase, said
from .row import Row
from .runs import MOST_RUNS, merge_runs
from .segment import shortened

# Parts whose words say what the linear layers in them are.
_WHOLE = frozenset({"attention", "mixer", "mlp"})


def show_rows(architecture: Architecture, *, everything: bool = False) -> tuple[Row, ...]:
    """The lines of a model: the root's, those of all parts below it, the config's.

    Without `everything` the linear layers of an attention or a feed-forward layer are left out, and
    the layers of a list are one tree.
    """
    return (*_rows(architecture.root, "", 0, everything), *_config_rows(architecture))


def _rows(part: Part, path: str, depth: int, everything: bool) -> Iterator[Row]:
    yield _row(part, path, depth)
    children = [
        child
        for child in part.children
        if everything or part.kind not in _WHOLE or child.kind not in ("linear", "convolution")
    ]
    for runs in _by_list(children):
        if 1 < len(runs) <= MOST_RUNS and not everything:
            yield from _together(runs, path, depth + 1)
        else:
            for child in runs:
                yield from _rows(child, _below(path, child), depth + 1, everything)


def _by_list(parts: Sequence[Part]) -> list[list[Part]]:
    """Parts in groups: layers of one list are one."""
    groups: dict[object, list[Part]] = {}
    for part in parts:
        groups.setdefault(part.name if part.indices else id(part), []).append(part)
    return [*groups.values()]


def _together(runs: Sequence[Part], path: str, depth: int) -> Iterator[Row]:
    """Layers of one list in one tree where they have something in common."""
    lines = [
        (indices_text(run.indices), list(_rows(run, _below(path, run), depth, False)))
        for run in runs
    ]
    below = merge_runs(lines)
    if below is None:
        for _, rows in lines:
            yield from rows
        return
    places = tuple(sorted(place for run in runs for place in run.indices))
    heads = [rows[0] for _, rows in lines]
    counts = {head.parameters for head in heads}
    yield replace(
        heads[0],
        name=shortened(f"{runs[0].name}[{indices_text(places)}]"),
        paths=tuple(path for head in heads for path in head.paths),
        phrases=(layers_phrase(len(places), len(places)),),
        parameters=heads[0].parameters if len(counts) == 1 else None,
        times=len(places),
    )
    yield from below


def _row(part: Part, path: str, depth: int) -> Row:
    return Row(
        sign=" ",
        depth=depth,
        name=shortened(part.segment) if depth else part.kind,
        paths=(path,),
        phrases=(Phrase(None, said(part)),),
        parameters=part.parameters,
        times=part.times,
        part=part,
    )


def _below(path: str, part: Part) -> str:
    return f"{path}.{part.segment}" if path else part.segment


def _config_rows(architecture: Architecture) -> Iterator[Row]:
    for name, value in architecture.config:
        path = f"config.{name}"
        yield Row(" ", 1, path, (path,), (Phrase(None, str(value)),))
