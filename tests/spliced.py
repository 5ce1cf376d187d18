"""Lines of a spec put into a whole one, in the place of those that bind the same names."""

from __future__ import annotations

import ast
from collections import defaultdict


def spliced(given: str, base: str, before: str = "attention") -> str:
    """`base` with the statements of `given` in the place of those that bind their names.

    What binds none of its names stands before the statement that binds `before`.
    """
    of_name: dict[str, list[str]] = defaultdict(list)
    names = {bound(statement) for statement in ast.parse(base).body}
    for statement in ast.parse(given).body:
        name = bound(statement)
        of_name[name if name in names else ""].append(text_of(statement, given))
    lines: list[str] = []
    for statement in ast.parse(base).body:
        name = bound(statement)
        if name == before:
            lines += of_name.pop("", [])
        lines += (name and of_name.get(name)) or [text_of(statement, base)]
    return "\n".join(lines) + "\n"


def bound(statement: ast.stmt) -> str:
    """The name that a statement binds, or an item of which it sets; empty for none."""
    if not isinstance(statement, ast.Assign):
        return ""
    return next(n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name))


def text_of(statement: ast.stmt, text: str) -> str:
    lines = [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]
    return "\n".join(text.splitlines()[min(lines) - 1 : statement.end_lineno])
