"""The lines of a tree as a page shows them: one within the other, so that they fold."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from ..architecture.difference import Change, Difference
from .row import Row
from .row_numbers import row_parameters
from .svg_text import clean

MOST = 2_000  # lines of one tree; nobody reads more, and a browser takes seconds for them
_OPEN = 300  # lines of a tree up to which nothing is folded at first; then all but the root
_WORDS = {"+": "added", "-": "removed", "~": "changed", " ": ""}


@dataclass
class Node:
    """A line and what is below it."""

    row: Row
    open: bool
    below: list[Node] = field(default_factory=list)

    @property
    def word(self) -> str:
        """What its sign means."""
        replaced = self.row.change is not None and self.row.change.kind == "replaced"
        return "replaced" if replaced else _WORDS[self.row.sign]

    @property
    def css(self) -> str:
        return f"{self.word or 'same'}{' quiet' if self.row.quiet and self.row.change else ''}"

    @property
    def title(self) -> str:
        return clean(", ".join(self.row.paths))

    @property
    def parameters(self) -> str:
        return row_parameters(self.row)

    @property
    def phrases(self) -> Iterator[tuple[str, str, str, str]]:
        """What is said of it: words before, what was, what is, words behind."""
        for phrase in self.row.phrases:
            if phrase.before is None or phrase.after is None:
                yield phrase.text(), "", "", ""
            else:
                yield phrase.pieces()

    @property
    def lines(self) -> int:
        """How many lines are below it."""
        return sum(1 + node.lines for node in self.below)

    @property
    def steps(self) -> tuple[str, ...]:
        return () if self.row.quiet else self.row.steps


@dataclass(frozen=True)
class Tree:
    """`left`: how many lines there are beyond those that stand there."""

    nodes: tuple[Node, ...] = ()
    left: int = 0


def tree_of(rows: Sequence[Row]) -> Tree:
    """Lines one within the other, by their depth."""
    shown = rows[:MOST]
    top: list[Node] = []
    stack: list[tuple[int, list[Node]]] = [(-1, top)]
    for row in shown:
        while stack[-1][0] >= row.depth:
            stack.pop()
        node = Node(row, open=len(rows) <= _OPEN or row.depth == 0)
        stack[-1][1].append(node)
        stack.append((row.depth, node.below))
    return Tree(tuple(top), len(rows) - len(shown))


def marked(difference: Difference, rows: Sequence[Row]) -> tuple[dict[str, str], dict[str, str]]:
    """How parts differ, by their paths in the model before and in the one after: those of the lines
    shown, so that drawings mark what the tree says.
    """
    olds: dict[str, str] = {}
    news: dict[str, str] = {}
    told = {path for row in rows if not row.quiet for path in row.paths}
    for old, change in _with_old_paths(difference.root, ""):
        if change.path not in told or change.kind == "same" or not change.path:
            continue
        if change.before is not None:
            olds[old] = change.kind
        if change.after is not None:
            news[change.path] = change.kind
    return olds, news


def _with_old_paths(change: Change, path: str) -> Iterator[tuple[str, Change]]:
    """Changes with the path of the part in the model before; of what is new it says nothing."""
    yield path, change
    for child in change.children:
        part = child.before or child.after
        assert part is not None  # a change has one side at least
        yield from _with_old_paths(child, f"{path}.{part.segment}" if path else part.segment)
