"""Runs of layers of one list (windows in every other, dense before sparse) as one tree.

What all of them share stands there once; what only some have is a line of its own, with their
places behind its name.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace

from .figure_rows import merged
from .row import Row

# Of how many runs of one list the lines are put together; more have no pattern to be read.
MOST_RUNS = 12


@dataclass
class _Node:
    row: Row
    children: list[_Node] = field(default_factory=list)


# A run's places in the list, and its lines; or what one of its lines is in it.
Run = tuple[str, Sequence[Row]]
_Tagged = list[tuple[str, _Node]]


def merge_runs(runs: Sequence[Run]) -> list[Row] | None:
    """The lines below the heads of several runs in one; None where they share none.

    The first line of each run is its head, and is left out.
    """
    nodes = [(places, _tree(rows)) for places, rows in runs]
    rows = list(_below(nodes))
    shared = any(len(row.paths) >= len(runs) for row in rows)
    return rows if shared else None


def _tree(rows: Sequence[Row]) -> _Node:
    """Lines as a tree, by their depths."""
    root = _Node(rows[0])
    above = [root]
    for row in rows[1:]:
        del above[row.depth - root.row.depth :]
        node = _Node(row)
        above[-1].children.append(node)
        above.append(node)
    return root


def _below(nodes: _Tagged) -> Iterator[Row]:
    """The lines of the children of nodes that are one."""
    by_name = [{child.row.name: child for child in node.children} for _, node in nodes]
    names: list[str] = []
    for children in by_name:
        names = merged(names, [*children])
    for name in names:
        same = [
            (places, children[name])
            for (places, _), children in zip(nodes, by_name, strict=True)
            if name in children
        ]
        yield from _one(same) if len(same) == len(nodes) else _each(same)


def _one(nodes: _Tagged) -> Iterator[Row]:
    """The lines of what all runs have."""
    rows = [node.row for _, node in nodes]
    first = rows[0]
    paths = tuple(path for row in rows for path in row.paths)
    alike = all(
        (row.sign, row.parameters, row.steps) == (first.sign, first.parameters, first.steps)
        for row in rows
    )
    if alike and all(row.phrases == first.phrases for row in rows):
        yield replace(first, paths=paths)
        yield from _below(nodes)
        return
    common = tuple(p for p in first.phrases if all(p in row.phrases for row in rows))
    if not alike or not common:
        yield from _each(nodes)
        return
    yield replace(first, paths=paths, phrases=common)
    yield from _below(nodes)
    # Behind what is below all of them, which would else seem to be below these.
    for places, node in nodes:
        rest = tuple(p for p in node.row.phrases if p not in common)
        if rest:
            name = f"{node.row.name} [{places}]"
            yield replace(node.row, name=name, phrases=rest, parameters=None, steps=())


def _each(nodes: _Tagged) -> Iterator[Row]:
    """The lines of what some runs have, or have each in its own way."""
    for places, node in nodes:
        yield replace(node.row, name=f"{node.row.name} [{places}]")
        yield from _all(node)


def _all(node: _Node) -> Iterator[Row]:
    for child in node.children:
        yield child.row
        yield from _all(child)
