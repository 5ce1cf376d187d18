"""Comments: a line that ends in `[if test]` stands only where the test holds.

It is the one convention that folding asks of an author's words: a docstring that lists options, or
a comment above both branches of an `if`, would otherwise speak of what is not there.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from .value import Scope, Unknown, truth

_NOTE = re.compile(r"^(?P<text>.*?)\s*\[if (?P<test>[^\]]+(?:\[[^\]]*\][^\]]*)*)\]\s*$")


def note(line: str, scope: Scope) -> str | None:
    """The line without its note, or None where the test does not hold. A line without a note is
    itself.
    """
    match = _NOTE.match(line)
    if match is None:
        return line
    try:
        holds = truth(cst.parse_expression(match["test"]), scope).object
    except (Unknown, cst.ParserSyntaxError):
        return match["text"]  # undecided: the words stay, as an undecided branch does
    return match["text"] if holds else None


def fold_comments(statement: Any, scope: Scope) -> Any:
    """A statement with the notes in its own comments decided, not those inside it."""
    changes: dict[str, Any] = {}
    lines = getattr(statement, "leading_lines", None)
    if lines and any(line.comment is not None and "[if " in line.comment.value for line in lines):
        kept = []
        for line in lines:
            text = None if line.comment is None else note(line.comment.value, scope)
            if line.comment is None or text == line.comment.value:
                kept.append(line)
            elif text is not None:
                kept.append(line.with_changes(comment=cst.Comment(text)))
        changes["leading_lines"] = kept
    trailing = getattr(statement, "trailing_whitespace", None)
    if trailing is not None and trailing.comment is not None and "[if " in trailing.comment.value:
        text = note(trailing.comment.value, scope)
        comment = None if text is None or text.strip() == "#" else cst.Comment(text)
        changes["trailing_whitespace"] = trailing.with_changes(comment=comment)
    return statement.with_changes(**changes) if changes else statement


def fold_docstring(statement: cst.SimpleStatementLine, scope: Scope) -> list[Any]:
    """The docstring's statement with its noted lines decided; nothing where no words are left."""
    expression = statement.body[0]
    assert isinstance(expression, cst.Expr) and isinstance(expression.value, cst.SimpleString)
    string = expression.value
    if "[if " not in string.value:
        return [statement]
    lines = string.raw_value.split("\n")
    kept = [text for text in (note(line, scope) for line in lines) if text is not None]
    words = _without_doubled_blanks(kept)
    if not any(line.strip() for line in words):
        return []
    if len([line for line in words if line.strip()]) == 1:
        words = [next(line for line in words if line.strip()).strip()]
    new = cst.SimpleString(f"{string.prefix}{string.quote}" + "\n".join(words) + string.quote)
    return [statement.with_changes(body=[expression.with_changes(value=new)])]


def _without_doubled_blanks(lines: list[str]) -> list[str]:
    """Taking a line out leaves no two blank lines, and none before the closing quotes."""
    kept: list[str] = []
    for line in lines:
        if line.strip() or not kept or kept[-1].strip():
            kept.append(line)
    if len(kept) >= 2 and not kept[-1].strip() and not kept[-2].strip():
        kept.pop(-2)
    if len(kept) >= 3 and not kept[-1].strip() and lines[-1].strip() == "" and not kept[-2].strip():
        kept.pop(-2)
    return kept
