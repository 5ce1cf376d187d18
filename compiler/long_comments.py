"""Long comments: words that would push a line over the margin go above it.

black never breaks a comment: it splits the code before it, and `f(x)  # words` becomes three lines.
A statement whose code fits, and whose comment does not, keeps its words on a line of their own.
"""

from __future__ import annotations

import re
import unicodedata
from typing import Any

import libcst as cst

from . import tree

MARGIN = 100


def lift_long_comments(node: Any, indent: int) -> Any:
    """A class or function with such comments above their statements; `indent` is its own, in
    columns.
    """

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
            return (
                rebuilt(child, depth)
                if isinstance(child, (cst.Else, cst.Finally, cst.ExceptHandler))
                else child
            )

        return tree.rebuild(item, change)

    return rebuilt(node, indent)


def _lifted(line: cst.SimpleStatementLine, depth: int) -> cst.SimpleStatementLine:
    line = tree.rebuild(line, lambda part: _lifted_inside(part, depth + 4))
    comment = line.trailing_whitespace.comment
    if comment is None:
        return line
    code = _on_one_line(
        line.with_changes(leading_lines=[], trailing_whitespace=cst.TrailingWhitespace())
    )
    if code is None or _fits(code, comment, depth):
        return line
    above = cst.EmptyLine(comment=comment)
    return line.with_changes(
        leading_lines=[*line.leading_lines, above], trailing_whitespace=cst.TrailingWhitespace()
    )


def _lifted_inside(node: Any, depth: int) -> Any:
    """The same for the arguments of a call that stand on lines of their own, `depth` columns in."""
    if not isinstance(node, cst.Call):
        return tree.rebuild(node, lambda part: _lifted_inside(part, depth))
    args = [tree.rebuild(a, lambda part: _lifted_inside(part, depth + 4)) for a in node.args]
    before = node.whitespace_before_args
    for position, arg in enumerate(args):
        after = _after(arg)
        if not isinstance(after, cst.ParenthesizedWhitespace) or after.first_line.comment is None:
            continue
        comment = after.first_line.comment
        code = _on_one_line(arg.with_changes(comma=cst.MaybeSentinel.DEFAULT))
        above = before if position == 0 else _after(args[position - 1])
        if code is None or _fits(f"{code},", comment, depth):
            continue
        if not isinstance(above, cst.ParenthesizedWhitespace):
            continue
        raised = above.with_changes(
            empty_lines=[*above.empty_lines, cst.EmptyLine(comment=comment)]
        )
        if position == 0:
            before = raised
        else:
            args[position - 1] = _with_after(args[position - 1], raised)
        bare = after.with_changes(first_line=cst.TrailingWhitespace())
        args[position] = _with_after(arg, bare)
    same = all(a is b for a, b in zip(args, node.args, strict=True))
    return node if same else node.with_changes(args=args, whitespace_before_args=before)


def _after(arg: cst.Arg) -> cst.BaseParenthesizableWhitespace | None:
    return arg.comma.whitespace_after if isinstance(arg.comma, cst.Comma) else None


def _with_after(arg: cst.Arg, space: cst.ParenthesizedWhitespace) -> cst.Arg:
    assert isinstance(arg.comma, cst.Comma)
    return arg.with_changes(comma=arg.comma.with_changes(whitespace_after=space))


def _on_one_line(node: cst.CSTNode) -> str | None:
    """The text as black joins it; None where words stand inside, or it does not join."""
    text = tree.code(node).strip()
    if "#" in text or '"""' in text:
        return None
    text = re.sub(r"\s*\n\s*", " ", text)
    return re.sub(r",? ([)\]}])", r"\1", re.sub(r"([(\[{]) ", r"\1", text))


def _fits(code: str, comment: cst.Comment, depth: int) -> bool:
    """Whether the words may stay: behind the code, or behind code that is too long itself."""
    long = depth + width(code)
    return long > MARGIN or long + 2 + width(comment.value) <= MARGIN


def width(text: str) -> int:
    """Columns of a text as black counts them: wide characters take two."""
    if text.isascii():
        return len(text)
    return sum(
        2 if unicodedata.east_asian_width(c) in "WF" else 0 if unicodedata.combining(c) else 1
        for c in text
    )
