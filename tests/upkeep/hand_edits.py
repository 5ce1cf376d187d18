"""Edits as a person makes them to a page, drawn at random; each can be taken back from a tree.

So the law of a merge can be stated: take the edit back from the merged page, and what is left is
the page that is compiled now.
"""

from __future__ import annotations

import ast
import io
import random
import tokenize
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(frozen=True)
class Edit:
    """An edited body, what must be found in it, and how a tree loses it again."""

    kind: str
    body: str
    trace: str
    undo: Callable[[ast.Module], ast.AST]


def add_comment(body: str, draw: random.Random, mark: int) -> Edit:
    line, indent = _statement(body, draw)
    trace = f"# edit {mark}"
    return Edit("comment", _insert(body, line, f"{indent}{trace}"), trace, lambda tree: tree)


def add_line(body: str, draw: random.Random, mark: int) -> Edit:
    line, indent = _statement(body, draw)
    trace = f'assert True, "edit {mark}"'

    class Without(ast.NodeTransformer):
        def visit_Assert(self, node: ast.Assert) -> ast.AST | None:
            return None if ast.unparse(node) == trace.replace('"', "'") else node

    return Edit("line", _insert(body, line, f"{indent}{trace}"), trace, Without().visit)


def add_method(body: str, draw: random.Random, mark: int) -> Edit:
    classes = [n for n in ast.parse(body).body if isinstance(n, ast.ClassDef) and n.bases]
    end = draw.choice(classes).end_lineno or 0
    name = f"edit_{mark}"
    text = f"\n    def {name}(self) -> int:\n        return {mark}"

    class Without(ast.NodeTransformer):
        def visit_FunctionDef(self, node: ast.FunctionDef) -> ast.AST | None:
            return None if node.name == name else node

    return Edit("method", _insert(body, end, text), f"def {name}(", Without().visit)


def rename_local(body: str, draw: random.Random, mark: int) -> Edit:
    functions = []
    for node in ast.walk(ast.parse(body)):
        if isinstance(node, ast.FunctionDef):
            stored = {n.id for n in ast.walk(node) if isinstance(n, ast.Name) and _is_store(n)} - {
                argument.arg for argument in node.args.args
            }
            functions += [(node, name) for name in sorted(stored)]
    node, old = draw.choice(functions)
    new = f"{old}_{mark}"
    places = [
        (n.lineno, n.col_offset) for n in ast.walk(node) if isinstance(n, ast.Name) and n.id == old
    ]
    text = _replace_at(body, dict.fromkeys(places, (old, new)))

    class Renamed(ast.NodeTransformer):
        def visit_Name(self, found: ast.Name) -> ast.Name:
            return ast.Name(old, found.ctx) if found.id == new else found

    return Edit("rename", text, new, Renamed().visit)


def change_constant(body: str, draw: random.Random, mark: int) -> Edit:
    numbers = []
    for token in tokenize.generate_tokens(io.StringIO(body).readline):
        if token.type == tokenize.NUMBER:
            numbers.append(token)
    token = draw.choice(numbers)
    new = f"{70000 + mark}" if token.string.isdigit() else f"{70000 + mark}.5"
    old = ast.literal_eval(token.string)
    value = ast.literal_eval(new)

    class Restored(ast.NodeTransformer):
        def visit_Constant(self, node: ast.Constant) -> ast.Constant:
            return ast.Constant(old) if node.value == value else node

    text = _replace_at(body, {token.start: (token.string, new)})
    return Edit("constant", text, new, Restored().visit)


EDITS = (add_comment, rename_local, add_line, change_constant, add_method)


def _is_store(name: ast.Name) -> bool:
    return isinstance(name.ctx, ast.Store)


def _statement(body: str, draw: random.Random) -> tuple[int, str]:
    """A place before a statement of a method: the number of lines before it, and its indent."""
    places = []
    for node in ast.walk(ast.parse(body)):
        if isinstance(node, ast.FunctionDef):
            documented = ast.get_docstring(node) is not None
            places += [(n.lineno - 1, " " * n.col_offset) for n in node.body[documented:]]
    return draw.choice(sorted(places))


def _insert(body: str, line: int, text: str) -> str:
    lines = body.splitlines(keepends=True)
    return "".join([*lines[:line], f"{text}\n", *lines[line:]])


def _replace_at(body: str, changes: dict[tuple[int, int], tuple[str, str]]) -> str:
    lines = body.splitlines(keepends=True)
    for (line, column), (old, new) in sorted(changes.items(), reverse=True):
        text = lines[line - 1]
        assert text[column:].startswith(old)
        lines[line - 1] = text[:column] + new + text[column + len(old) :]
    return "".join(lines)
