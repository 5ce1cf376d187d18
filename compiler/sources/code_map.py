"""The source map of a page: which line of which file each word of its code was written on.

Folding keeps an author's nodes as they are and puts them into new ones, so most leaves of the
finished trees are still objects of the parsed source files, whose places are known. A page's text
has the same leaves in the same order: black moves them and makes none.
"""

from __future__ import annotations

import ast
import difflib
import functools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst

from .. import tree
from ..facts import Facts
from ..kinds import Kind
from ..names import collect
from ..page import class_node
from ..pipeline import Translated
from ..source import SourceFile
from ..value import is_config
from .emitted import Emitted, emitted, key, leaves
from .statements import Statements


@dataclass(frozen=True)
class Origin:
    """Where a node was written."""

    file: SourceFile
    line: int
    column: int
    end_line: int
    end_column: int

    @property
    def first(self) -> tuple[int, int]:
        return self.line, self.column

    @property
    def last(self) -> tuple[int, int]:
        return self.end_line, self.end_column


class Places:
    """The place of every node of the files that a compile has parsed, by the node's identity."""

    def __init__(self, facts: Facts) -> None:
        self._facts = facts
        self._files = [_origins(file) for file in facts.sources.files()]

    def of(self, node: cst.CSTNode) -> Origin | None:
        """Where a node stands in its file; None for one that folding made."""
        node = self._facts.origins.get(id(node), node)
        found = (origins.get(id(node)) for origins in self._files)
        return next((origin for origin in found if origin is not None), None)


@functools.lru_cache(maxsize=256)
def _origins(file: SourceFile) -> dict[int, Origin]:
    """The place of each node of a file, by its identity: the file keeps its nodes alive."""
    origins: dict[int, Origin] = {}
    for each in emitted(file.module):
        origin = Origin(file, each.line, each.column, each.end_line, each.end_column)
        origins.setdefault(id(each.node), origin)
    return origins


@dataclass(frozen=True)
class Part:
    """A class, a function or a property of the page: its first and last line, and its origins.

    `kind` is the one that a class was folded for, None for others; `config` the number of the
    config that `config` is in it. `words` has an entry for each leaf on the page.
    """

    name: str
    first: int
    last: int
    kind: Kind | None
    config: int
    words: tuple[tuple[Emitted, Origin | None], ...]

    def on(self, line: int) -> list[Origin]:
        """The origins of the words on a line of the page, in their order."""
        return [o for word, o in self.words if word.line == line and o is not None]

    def comments_on(self, line: int) -> list[str]:
        """The comments on a line that folding wrote anew."""
        return [
            word.node.value
            for word, origin in self.words
            if word.line == line and origin is None and isinstance(word.node, cst.Comment)
        ]


def code_map(traced: Translated, body: Statements, places: Places) -> list[Part]:
    """The parts of a page's text that were folded or copied from source files."""
    finished = dict(_finished(traced))
    words = leaves(emitted(cst.parse_module(body.text)))
    parts = []
    previous = 0
    for statement in body.tree.body:
        for name, node, first, last in _named(statement, previous):
            if name not in finished:
                continue
            kind, tree_of_it = finished[name]
            own = [w for w in words if first <= w.line <= last]
            made = leaves(emitted(cst.Module([tree_of_it])))
            origins = _aligned(own, made, tree_of_it, kind, traced.facts, places)
            config = _config_number(name, kind, traced)
            parts.append(Part(name, first, node.end_lineno or last, kind, config, origins))
        previous = statement.end_lineno or previous
    return parts


def _config_number(name: str, kind: Kind | None, traced: Translated) -> int:
    """Which config a part reads: the one that its class was given, or that a property is of."""
    given = kind.built[0].arguments if kind is not None else {}
    for argument in ("config", "model_config"):
        if is_config(given.get(argument)):
            return traced.facts.kinds.config_index(given[argument])
    return config_number(name.partition(".")[0], traced)


def config_number(name: str, traced: Translated) -> int:
    """The number of a config by the name of its class on the page."""
    handles = [handle for handle, known in traced.configs.items() if known == name]
    return int(handles[0].removeprefix("_Config").rstrip("_")) if handles else 0


def _finished(traced: Translated) -> Iterator[tuple[str, tuple[Kind | None, Any]]]:
    """The finished trees by the names of what they are on the page."""
    for kind, residual in traced.residuals.items():
        yield traced.names[kind], (kind, class_node(residual, traced.names[kind]))
    configs = set(traced.configs.values())
    needs = collect(traced.residuals, traced.facts, traced.names, configs)
    for name, statement in needs.copied.items():
        yield name, (None, statement)
    found: list[cst.CSTNode] = []

    def note(node: cst.CSTNode) -> str:
        found.append(node)
        return ""

    for text in traced.page_config.classes(traced.configs, note):
        for node in found:
            assert isinstance(node, cst.FunctionDef)
            yield f"{text.name}.{node.name.value}", (None, node)
        found.clear()


def _named(statement: ast.stmt, previous: int) -> Iterator[tuple[str, ast.stmt, int, int]]:
    """What a statement of the page defines, with its lines; comments above it are its own."""
    if isinstance(statement, (ast.ClassDef, ast.FunctionDef)):
        yield statement.name, statement, previous + 1, statement.end_lineno or 0
    if isinstance(statement, ast.ClassDef):
        for inner in statement.body:
            if isinstance(inner, ast.FunctionDef):
                first = min([inner.lineno, *(d.lineno for d in inner.decorator_list)])
                yield f"{statement.name}.{inner.name}", inner, first, inner.end_lineno or 0
    elif isinstance(statement, (ast.Assign, ast.AnnAssign)):
        targets = statement.targets if isinstance(statement, ast.Assign) else [statement.target]
        for target in targets:
            if isinstance(target, ast.Name):
                yield target.id, statement, previous + 1, statement.end_lineno or 0


def _aligned(
    page: Sequence[Emitted],
    made: Sequence[Emitted],
    node: Any,
    kind: Kind | None,
    facts: Facts,
    places: Places,
) -> tuple[tuple[Emitted, Origin | None], ...]:
    """The words on the page, each with the origin of the leaf that it is in the finished tree."""
    renamed = facts.flat(kind).node.name if kind is not None else None

    def origin(leaf: Emitted) -> Origin | None:
        own = isinstance(node, cst.ClassDef) and leaf.node is node.name and renamed is not None
        return places.of(renamed if own and renamed is not None else leaf.node)

    old, new = [key(each.node) for each in made], [key(each.node) for each in page]
    found: list[Origin | None] = [None] * len(page)
    matcher = difflib.SequenceMatcher(None, old, new, autojunk=False)
    blocks = [(0, 0, len(new))] if old == new else matcher.get_matching_blocks()
    for before, after, size in blocks:
        for step in range(size):
            found[after + step] = origin(made[before + step])
    return tuple(zip(page, found, strict=True))


def code_of(node: cst.CSTNode) -> str:
    """A node's text on one line."""
    return " ".join(tree.code(node).split())
