"""Classes of the runtime that are the same once no process is beside them become one.

A column-parallel linear layer and a row-parallel one are a linear layer.
"""

from __future__ import annotations

import re
from typing import Any

import libcst as cst

from .. import tree
from .program import Program
from .substitute import renamed

# What a name says of several processes: not the parts of a name, but how they are shared.
_SHARED = re.compile(r"(?:Column|Row|Vocab)?Parallel(?=[A-Z])")


def unite_classes(program: Program, trimmed: Program) -> None:
    """Give equal classes one name, and none that speaks of processes; in place.

    `trimmed`: the program without what nothing reads; what is equal there is equal.
    """
    names: dict[str, str] = {}
    bodies: dict[str, list[str]] = {}
    for name in sorted(program.ours):
        node = trimmed.class_of(name)
        if node is not None:
            bodies.setdefault(tree.code(_bare(node)).strip(), []).append(name)
    for equal in bodies.values():
        # The one that takes every argument of the others stands for all.
        first = next(
            (n for n in equal if all(_takes(program, n) >= _takes(program, o) for o in equal)), None
        )
        names |= {n: first for n in equal if first is not None and n != first}
    for name in names:
        del program.statements[name]
        program.ours.discard(name)
    taken = set(program.statements) | set(program.imports) | set(program.pending)
    for name in sorted(program.ours):
        plain = _SHARED.sub("", name)
        if plain != name and plain not in taken:
            names[name] = plain
            taken.add(plain)
    final = {old: names.get(new, new) for old, new in names.items()}
    for key, statement in list(program.statements.items()):
        new = renamed(statement, final)
        if key in final:
            new = new.with_changes(name=cst.Name(final[key]))
        program.statements[key] = new
    program.statements = {final.get(k, k): s for k, s in program.statements.items()}
    for old, plain in final.items():
        if old in program.ours:
            program.ours.discard(old)
            program.ours.add(plain)
    program.flat = {home: final.get(name, name) for home, name in program.flat.items()}


def _takes(program: Program, name: str) -> set[str]:
    """The parameters of a class's constructor."""
    init = program.method(name, "__init__")
    return set() if init is None else {p.name.value for p in tree.every_parameter(init)}


def _bare(node: cst.ClassDef) -> Any:
    """A class without its name and its words."""

    def change(item: Any) -> Any:
        if isinstance(item, (cst.FunctionDef, cst.ClassDef)):
            body = list(tree.body_of(item))
            if tree.docstring_of(body) is not None:
                body = body[1:]
            item = tree.with_body(item, body)
        if isinstance(item, (cst.SimpleStatementLine, cst.If, cst.FunctionDef)):
            item = item.with_changes(leading_lines=[])
        if isinstance(item, cst.SimpleStatementLine):
            item = item.with_changes(trailing_whitespace=cst.TrailingWhitespace())
        return tree.rebuild(item, change)

    return change(node).with_changes(name=cst.Name("_"), leading_lines=[])
