"""Whether two pages are one text, apart from the numbers in their configs."""

from __future__ import annotations

import ast
from typing import Any


def same_text(one: str, other: str, literals: frozenset[tuple[int, int]] = frozenset()) -> bool:
    """Whether `other` is `one` but for the fields' values in config classes, the page's own
    docstring (it counts the parameters), and integers that became others as `literals` says."""
    return _same(_prepared(one), _prepared(other), literals)


def _prepared(text: str) -> ast.Module:
    page = ast.parse(text)
    if ast.get_docstring(page, clean=False) is not None:
        page.body = page.body[1:]
    for node in page.body:
        if isinstance(node, ast.ClassDef) and any(_is_dataclass(d) for d in node.decorator_list):
            for item in node.body:
                if isinstance(item, ast.AnnAssign) and item.value is not None:
                    item.value = ast.Constant(value=None)
    return page


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return isinstance(called, ast.Name) and called.id == "dataclass"


def _same(one: Any, other: Any, literals: frozenset[tuple[int, int]]) -> bool:
    if type(one) is not type(other):
        return False
    if isinstance(one, ast.Constant):
        if type(one.value) is int and (one.value, other.value) in literals:
            return True
        return type(one.value) is type(other.value) and bool(one.value == other.value)
    if isinstance(one, ast.AST):
        return all(
            _same(getattr(one, name, None), getattr(other, name, None), literals)
            for name in one._fields
        )
    if isinstance(one, list):
        return len(one) == len(other) and all(
            _same(a, b, literals) for a, b in zip(one, other, strict=True)
        )
    return bool(one == other)
