"""Scopes: which names a piece of text reads from outside itself, by Python's own rules.

A name that a comprehension, a lambda or an inner function binds may be a global one line further
on; `symtable` is the interpreter's own answer, so nothing of that is decided here.
"""

from __future__ import annotations

import functools
import symtable
from dataclasses import dataclass

import libcst as cst

from . import tree


@dataclass(frozen=True)
class FreeNames:
    """`outside` is read where the text itself stands (decorators, defaults, annotations, the body
    of a class); `inside` by the bodies of its functions, when they run."""

    outside: frozenset[str]
    inside: frozenset[str]

    @property
    def all(self) -> frozenset[str]:
        return self.outside | self.inside


@functools.lru_cache(maxsize=4096)
def free_names(node: cst.FunctionDef | cst.ClassDef | cst.SimpleStatementLine) -> FreeNames:
    """The names that a definition or a statement reads and does not bind; its own, where it calls
    itself."""
    table = symtable.symtable(tree.code(node), "<text>", "exec")
    outside = {
        s.get_name() for s in table.get_symbols() if s.is_referenced() and not s.is_assigned()
    }
    inside: set[str] = set()
    pending = list(table.get_children())
    while pending:
        child = pending.pop()
        pending.extend(child.get_children())
        inside |= {s.get_name() for s in child.get_symbols() if s.is_global() and s.is_referenced()}
    if isinstance(node, cst.ClassDef):
        outside, inside = outside | inside, set()
    return FreeNames(frozenset(outside), frozenset(inside))


def annotation_names(function: cst.FunctionDef) -> frozenset[str]:
    """The names in a function's own annotations that are no text in quotes."""
    notes = [p.annotation for p in tree.every_parameter(function)] + [function.returns]
    return frozenset(n for note in notes if note is not None for n in tree.loaded_names(note))
