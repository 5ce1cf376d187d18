"""The statements of a source file by line: which one a line is of, and what stands around it."""

from __future__ import annotations

import ast
import functools
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

Definition = ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef


@dataclass(frozen=True, eq=False)
class Statement:
    """A statement with the lines of its own: of a compound one, those before its first block."""

    node: ast.stmt | ast.Module
    parents: tuple[ast.AST, ...]  # outermost first

    @property
    def first(self) -> int:
        return first_line(self.node)

    @property
    def last(self) -> int:
        """The last line of a simple statement, or of a compound one's head."""
        body = getattr(self.node, "body", None)
        if isinstance(self.node, ast.Module):
            return 1
        if not body or not isinstance(body, list):
            return self.node.end_lineno or self.first
        return max(self.first, first_line(body[0]) - 1)

    @property
    def inside(self) -> str:
        """`SelfAttention.forward`: the class and function that it stands in, itself included."""
        around = [*self.parents, self.node]
        names = [node.name for node in around if isinstance(node, Definition)]
        return ".".join(names)

    @property
    def function(self) -> Definition | None:
        around = [*self.parents, self.node]
        return next((node for node in reversed(around) if isinstance(node, Definition)), None)

    def siblings(self) -> tuple[list[ast.stmt], list[ast.stmt]]:
        """The statements before and after it in its block, the nearest first."""
        for block in blocks(self.parents[-1]) if self.parents else ():
            for position, node in enumerate(block):
                if node is self.node:
                    return block[:position][::-1], block[position + 1 :]
        return [], []


class Statements:
    """One file's."""

    def __init__(self, text: str) -> None:
        self.text = text
        self.lines = lines_of(text)
        self.tree = ast.parse(text)

    def at(self, line: int) -> Statement:
        """The innermost statement of a line; for a comment's line the statement below it."""
        parents: list[ast.AST] = []
        node: ast.AST = self.tree
        while True:
            inner = [child for block in blocks(node) for child in block]
            found = next((c for c in inner if first_line(c) <= line <= (c.end_lineno or 0)), None)
            if found is None and parents and isinstance(node, ast.stmt) and line <= _head_end(node):
                break
            if found is None:
                below = next((c for c in inner if first_line(c) > line), None)
                if below is not None:
                    parents.append(node)
                    node = below
                break
            parents.append(node)
            node = found
        assert isinstance(node, (ast.stmt, ast.Module))
        return Statement(node, tuple(parents))


def lines_of(text: str) -> list[str]:
    """Lines as Python counts them: a form feed in a docstring ends none."""
    return text.removesuffix("\n").split("\n")


def blocks(node: ast.AST) -> Iterator[list[ast.stmt]]:
    """The blocks of a compound statement, in the order of the source."""
    for name in ("body", "handlers", "orelse", "finalbody", "cases"):
        value = getattr(node, name, None)
        if not isinstance(value, list) or not value:
            continue
        if name in ("handlers", "cases"):
            for part in value:
                yield from blocks(part)
        elif isinstance(value[0], ast.stmt):
            yield value


def first_line(node: ast.AST) -> int:
    """Where a statement begins, its decorators included."""
    decorators = getattr(node, "decorator_list", [])
    return int(min([getattr(node, "lineno", 1), *(d.lineno for d in decorators)]))


def _head_end(node: ast.stmt) -> int:
    inner = [first_line(block[0]) for block in blocks(node)]
    return min(inner) - 1 if inner else node.end_lineno or node.lineno


@functools.lru_cache(maxsize=64)
def _of(path: str, changed: int) -> Statements:
    return Statements(Path(path).read_text(encoding="utf-8"))


def statements_of(path: str) -> Statements:
    """The statements of a file, read once for each of its changes."""
    return _of(path, Path(path).stat().st_mtime_ns)
