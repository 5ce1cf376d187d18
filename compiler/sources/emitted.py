"""Which line each node of a libcst tree comes to stand on, in the order of the text.

As libcst's own positions, but of every node, and each time that a node is written: folding may
write one node in two places.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import libcst as cst
from libcst._nodes.internal import CodegenState  # what its position providers derive from

# What is the author's on a line: a formatter moves these, and neither makes nor drops one.
_WORDS = (cst.Name, cst.Integer, cst.Float, cst.Imaginary, cst.SimpleString, cst.FormattedString)
_MARKS = (cst.Pass, cst.Return, cst.Raise, cst.Break, cst.Continue)


@dataclass(frozen=True)
class Emitted:
    """A node and its place in the text: lines count from 1, columns from 0, the end is past it."""

    node: cst.CSTNode
    line: int
    column: int
    end_line: int
    end_column: int


def emitted(module: cst.Module) -> list[Emitted]:
    """Every node of a module with its place, in the order in which they begin."""
    state = _State(module.default_indent, module.default_newline)
    module._codegen(state)
    return [Emitted(node, *start, *end) for node, start, end in state.found]


def leaves(nodes: Sequence[Emitted]) -> list[Emitted]:
    """Those that are names, numbers, strings, comments, or statements of one word."""
    return [each for each in nodes if isinstance(each.node, (*_WORDS, *_MARKS, cst.Comment))]


def key(node: cst.CSTNode) -> tuple[str, str]:
    """What a leaf has in common with the same leaf after formatting."""
    if isinstance(node, cst.Name):
        return "name", node.value
    if isinstance(node, (cst.Integer, cst.Float, cst.Imaginary)):
        return "number", node.value.lower()
    if isinstance(node, cst.Comment):
        return "comment", node.value.lstrip("#: ").strip()
    return type(node).__name__, ""


class _State(CodegenState):
    """Notes where nodes begin and end while the text is made."""

    def __init__(self, indent: str, newline: str) -> None:
        super().__init__(indent, newline)
        self.line, self.column = 1, 0
        self.found: list[list[Any]] = []
        self.open: list[list[Any]] = []

    def add_token(self, value: str) -> None:
        super().add_token(value)
        self._move(value)

    def add_indent_tokens(self) -> None:
        super().add_indent_tokens()
        for token in self.indent_tokens:
            self._move(token)

    def _move(self, value: str) -> None:
        lines = value.split("\n")
        self.line += len(lines) - 1
        self.column = len(lines[-1]) + (self.column if len(lines) == 1 else 0)

    def before_codegen(self, node: cst.CSTNode) -> None:
        entry = [node, (self.line, self.column), None]
        self.found.append(entry)
        self.open.append(entry)

    def after_codegen(self, node: cst.CSTNode) -> None:
        self.open.pop()[2] = (self.line, self.column)
