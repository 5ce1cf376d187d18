"""A page's text in pieces, its classes and functions, and which piece of another page each is."""

from __future__ import annotations

import ast
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from .figure_rows import merged

_RENAMED = 0.6  # of the lines of two classes, from which one is the other under another name
_COMPARED = 10_000  # pairs of classes that are looked at for that


@dataclass(frozen=True)
class Piece:
    """Lines of a text from the place `start` on, counted from 0."""

    name: str
    start: int
    lines: tuple[str, ...]


def pieces(text: str) -> tuple[Piece, ...]:
    """The classes and functions of a text, `top` before the first, `code` between and behind them.

    All lines in order; one piece `page` where the text is no Python.
    """
    lines = tuple(text.splitlines())
    try:
        body = ast.parse(text).body
    except (SyntaxError, ValueError):
        return (Piece("page", 0, lines),)
    starts: list[tuple[int, str]] = [(0, "top")]
    for statement in body:
        name = _name(statement)
        if name or _name_of_last(starts) not in ("top", "code"):
            starts.append((_first_line(statement, lines, starts[-1][0]), name or "code"))
    ends = [start for start, _ in starts[1:]] + [len(lines)]
    found = [
        Piece(name, start, _stripped(lines[start:end]))
        for (start, name), end in zip(starts, ends, strict=True)
    ]
    return tuple(piece for piece in found if piece.lines)


def pairs(before: str, after: str) -> Iterator[tuple[Piece | None, Piece | None]]:
    """Each piece of both texts with its like in the other, in the order of the later; what the
    earlier alone has stands behind what it stood behind.
    """
    first, second = _keyed(pieces(before)), _keyed(pieces(after))
    renamed = _renamed(first, second)
    keys = [renamed.get(key, key) for key in first]
    olds = dict(zip(keys, first.values(), strict=True))
    for key in merged(keys, [*second]):
        yield olds.get(key), second.get(key)


def _name(statement: ast.stmt) -> str:
    if isinstance(statement, ast.ClassDef):
        return f"class {statement.name}"
    if isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef):
        return f"def {statement.name}"
    return ""


def _name_of_last(starts: Sequence[tuple[int, str]]) -> str:
    return starts[-1][1]


def _first_line(statement: ast.stmt, lines: Sequence[str], least: int) -> int:
    """The place of a statement's decorators, and of the comments right above it."""
    decorators: list[ast.expr] = getattr(statement, "decorator_list", [])
    line = min([statement.lineno, *(node.lineno for node in decorators)]) - 1
    while line > least and lines[line - 1].startswith("#"):
        line -= 1
    return line


def _stripped(lines: tuple[str, ...]) -> tuple[str, ...]:
    """Without the blank lines behind it, which a formatter places."""
    end = len(lines)
    while end and not lines[end - 1].strip():
        end -= 1
    return lines[:end]


def _keyed(found: Sequence[Piece]) -> dict[str, Piece]:
    """By name; the second of a name is another."""
    keyed: dict[str, Piece] = {}
    for piece in found:
        key, number = piece.name, 1
        while key in keyed:
            number += 1
            key = f"{piece.name} {number}"
        keyed[key] = piece
    return keyed


def _renamed(first: dict[str, Piece], second: dict[str, Piece]) -> dict[str, str]:
    """Classes that the earlier text alone has, with those that are much the same in the later."""
    found: dict[str, str] = {}
    left = [key for key in second if key not in first]
    gone = len(first.keys() - second.keys())
    if gone * len(left) > _COMPARED:
        return found
    for key, piece in first.items():
        if key in second:
            continue
        like = {other: _likeness(piece, second[other]) for other in left}
        best = max(like, key=lambda other: like[other], default=None)
        if best is not None and like[best] >= _RENAMED:
            found[key] = best
            left.remove(best)
    return found


def _likeness(old: Piece, new: Piece) -> float:
    """The share of the lines of two classes, or two functions, that both have."""
    if old.name.split(" ")[0] != new.name.split(" ")[0]:
        return 0.0
    common = Counter(old.lines) & Counter(new.lines)
    return 2 * common.total() / (len(old.lines) + len(new.lines))
