"""The program that a standalone page is made from: the page's definitions and the runtime's, flat.

A name at the top level is the same thing everywhere in it, whichever file it came from.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from typing import Any

import libcst as cst

from .. import tree


@dataclass(frozen=True)
class Home:
    """Where the runtime defines a name."""

    module: str
    name: str


@dataclass
class Program:
    """`statements`: definitions by name, the page's in its order, then those of the runtime.

    A statement of the page that defines nothing stands under a name that is none, and is kept.
    `ours` are the runtime's. `pending`: names that text refers to, whose definitions are still to
    be brought in. `imports` has a line for each name of another package.
    """

    docstring: str
    statements: dict[str, Any]
    imports: dict[str, str]
    pending: dict[str, Home] = field(default_factory=dict)
    flat: dict[Home, str] = field(default_factory=dict)  # names of what came in, or is to
    ours: set[str] = field(default_factory=set)
    # Functions and records of which folding took for granted that every call is here already, and
    # those for which that turned out wrong: they wait until nothing is pending.
    altered: set[str] = field(default_factory=set)
    late: set[str] = field(default_factory=set)
    gone: set[tuple[str, str]] = field(default_factory=set)  # methods that nothing named
    closed: bool = False  # nothing is pending
    settled: bool = False  # nor left to fold but the functions that the page calls by name
    memory: dict[str, Any] = field(default_factory=dict)  # of what was found out about the text
    # What the page's own text read before anything was folded: attributes and parameters.
    read_before: frozenset[str] = frozenset()
    # And which names it bound: any other came with a function of the runtime.
    bound_before: frozenset[str] = frozenset()

    def functions(self) -> Iterator[tuple[str | None, cst.FunctionDef]]:
        """Every function and method, with the class that it is in."""
        for name, node in self.statements.items():
            if isinstance(node, cst.FunctionDef):
                yield None, node
            elif isinstance(node, cst.ClassDef):
                for item in tree.body_of(node):
                    if isinstance(item, cst.FunctionDef):
                        yield name, item

    def is_ours(self, owner: str | None, function: cst.FunctionDef) -> bool:
        """Whether a function is the runtime's, whose text we may change as we like."""
        return (owner or function.name.value) in self.ours

    def change_functions(
        self, change: Callable[[str | None, cst.FunctionDef], cst.FunctionDef | None]
    ) -> None:
        """Put what `change` returns in each function's place; None takes a method out."""
        for name, node in list(self.statements.items()):
            if isinstance(node, cst.FunctionDef):
                new = change(None, node)
                assert new is not None
                self.statements[name] = new
            elif isinstance(node, cst.ClassDef):
                body: list[Any] = []
                for item in tree.body_of(node):
                    kept = change(name, item) if isinstance(item, cst.FunctionDef) else item
                    if kept is not None:
                        body.append(kept)
                old = tree.body_of(node)
                if len(body) != len(old) or any(a is not b for a, b in zip(body, old, strict=True)):
                    self.statements[name] = tree.with_body(node, body)

    def class_of(self, name: str) -> cst.ClassDef | None:
        node = self.statements.get(name)
        return node if isinstance(node, cst.ClassDef) else None

    def method(self, owner: str, name: str) -> cst.FunctionDef | None:
        """A class's own method."""
        node = self.class_of(owner)
        for item in tree.body_of(node) if node is not None else ():
            if isinstance(item, cst.FunctionDef) and item.name.value == name:
                return item
        return None

    def bases(self, name: str) -> list[str]:
        """The bases of a class that are in the program."""
        node = self.class_of(name)
        found = [tree.dotted(b.value) for b in node.bases] if node is not None else []
        return [b for b in found if b in self.statements]

    def is_record(self, name: str) -> bool:
        """Whether a class is a dataclass or a named tuple: its fields are its constructor's."""
        node = self.class_of(name)
        if node is None:
            return False
        marks = [tree.code(d.decorator) for d in node.decorators]
        marks += [tree.code(b.value) for b in node.bases]
        return any(m.startswith(("dataclass", "NamedTuple")) for m in marks)

    def may_alter(self, name: str) -> bool:
        """Whether every call of a function or class is here, as far as is known."""
        return self.closed or name not in self.late

    def fields(self, name: str) -> dict[str, cst.AnnAssign]:
        """The fields of a record, in order."""
        node = self.class_of(name)
        found: dict[str, cst.AnnAssign] = {}
        for item in tree.body_of(node) if node is not None else ():
            if isinstance(item, cst.SimpleStatementLine):
                for small in item.body:
                    if isinstance(small, cst.AnnAssign) and isinstance(small.target, cst.Name):
                        found[small.target.value] = small
        return found

    def text(self) -> str:
        """All of it, to see whether anything changed."""
        return "\n".join(f"{n}\n{_code(s)}" for n, s in self.statements.items())


@functools.lru_cache(maxsize=1 << 12)
def _code(statement: Any) -> str:
    return tree.code(statement)


def marked(function: cst.FunctionDef, *names: str) -> bool:
    """Whether a function has one of these decorators."""
    return any(tree.code(d.decorator) in names for d in function.decorators)


def is_static(function: cst.FunctionDef) -> bool:
    return marked(function, "staticmethod")


def is_property(function: cst.FunctionDef) -> bool:
    return marked(function, "property")


def own_body(function: cst.FunctionDef) -> list[Any]:
    """A function's statements behind its docstring."""
    body = list(tree.body_of(function))
    return body[1:] if tree.docstring_of(body) is not None else body


def is_empty(statements: Sequence[Any]) -> bool:
    """Whether statements do nothing."""
    return all(
        isinstance(s, cst.SimpleStatementLine) and all(isinstance(x, cst.Pass) for x in s.body)
        for s in statements
    )
