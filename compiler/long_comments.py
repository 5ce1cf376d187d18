"""Long comments: words that would push a line over the margin go above it.

black never breaks a comment: it splits the code before it, and `f(x)  # words` becomes three lines.
A statement whose code fits, and whose comment does not, keeps its words on a line of their own.
"""

from __future__ import annotations

import unicodedata
from typing import Any

import libcst as cst

from . import tree

MARGIN = 100


def lift_long_comments(node: Any, indent: int) -> Any:
    """A class or function with such comments above their statements; `indent` is its own, in columns."""

    def statement(item: Any, depth: int) -> Any:
        if isinstance(item, cst.SimpleStatementLine):
            return _lifted(item, depth)
        return rebuilt(item, depth)

    def rebuilt(item: Any, depth: int) -> Any:
        def change(child: Any) -> Any:
            if isinstance(child, cst.IndentedBlock):
                body = [statement(s, depth + 4) for s in child.body]
                same = all(a is b for a, b in zip(body, child.body, strict=True))
                return child if same else child.with_changes(body=body)
            if isinstance(child, cst.BaseExpression):
                return child
            return rebuilt(child, depth) if isinstance(child, (cst.Else, cst.Finally, cst.ExceptHandler)) else child

        return tree.rebuild(item, change)

    return rebuilt(node, indent)


def _lifted(line: cst.SimpleStatementLine, depth: int) -> cst.SimpleStatementLine:
    comment = line.trailing_whitespace.comment
    if comment is None:
        return line
    text = tree.code(line.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())).rstrip("\n")
    if "\n" in text or depth + width(text) > MARGIN or depth + width(text) + 2 + width(comment.value) <= MARGIN:
        return line
    above = cst.EmptyLine(comment=comment)
    return line.with_changes(
        leading_lines=[*line.leading_lines, above], trailing_whitespace=cst.TrailingWhitespace()
    )


def width(text: str) -> int:
    """Columns of a text as black counts them: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1 for c in text)
