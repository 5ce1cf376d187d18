"""A local put in the place where it is read: the same value, with the parentheses that it needs."""

from __future__ import annotations

import ast
from types import SimpleNamespace
from typing import Any

import libcst as cst
import pytest

from specc.compiler import tree
from specc.compiler.inline import inline_adjacent

OPERATORS = ("+", "-", "*", "/", "//", "%", "@", "**", "<<", "&", "|", "^", "<", "==", "and", "or")


def joined(value: str, second: str) -> str:
    """`y = value` and `second`, between which something was folded away."""
    function: Any = cst.parse_statement(f"def f(a, b, c):\n    y = {value}\n    {second}\n")
    first, *_ = function.body.body
    facts: Any = SimpleNamespace(
        removed_after={id(first): first}, removed_before={}, config_reads={}
    )
    body = inline_adjacent(function, facts).body.body
    return tree.code(body[0]).strip() if len(body) == 1 else "two statements"


@pytest.mark.parametrize(
    ("value", "second", "expected"),
    [
        ("a * b", "return y + c", "return a * b + c"),
        ("a - b", "return y - c", "return a - b - c"),
        ("a - b", "return c - y", "return c - (a - b)"),
        ("a + b", "return y.sum()", "return (a + b).sum()"),
        ("a if c else b", "return y + 1", "return (a if c else b) + 1"),
        ("a if c else b", "return f(y)", "return f(a if c else b)"),
        ("f(a)", "return y[0] * b", "return f(a)[0] * b"),
        ("-a", "return y**2", "return (-a)**2"),
        ("(a, b)", "return y[0]", "return (a, b)[0]"),
        ("lambda: a", "return y()", "return (lambda: a)()"),
    ],
)
def test_what_stands_there(value: str, second: str, expected: str) -> None:
    assert joined(value, second) == expected


@pytest.mark.parametrize("inner", OPERATORS)
def test_parentheses_where_they_bind_and_nowhere_else(inner: str) -> None:
    for outer in OPERATORS:
        for second in (f"y {outer} c", f"c {outer} y"):
            value = f"a {inner} b"
            text = joined(value, f"return {second}")
            if text == "two statements":
                assert outer in ("and", "or")  # what may not run is not moved into
                continue
            meant = second.replace("y", f"({value})")
            plain = second.replace("y", value)
            assert ast.dump(ast.parse(text)) == ast.dump(ast.parse(f"return {meant}"))
            needed = ast.dump(ast.parse(plain)) != ast.dump(ast.parse(meant))
            assert ("(" in text) is needed
