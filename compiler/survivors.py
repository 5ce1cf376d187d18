"""Survivors: what folding had to take away and could not, named where the author wrote it.

A part of the spec, a class that the page renames or joins, a child that does nothing: each would
read well on the page and be wrong, or would not run.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator

import libcst as cst

from specc.templates import IdentityOp
from specc.templates.diagnostic import Span

from . import tree
from .construct import IDENTITY
from .errors import refuse, span_of_class
from .facts import Facts
from .kinds import Kind
from .names import RESERVED, is_written_class, outside_names, refuse_class_read, refuse_reserved
from .residual import Residual

# Words of the spec that must not survive in the page's code.
SPEC_WORDS = frozenset(
    {
        "ModuleSpec",
        "build_module",
        "submodules",
        "layer_spec",
        "layer_specs",
        "get_submodules",
        "IdentityOp",
        IDENTITY,
    }
)

_BUILD_PLAINLY = (
    "build children in `__init__`, with build_module(submodules.name, ...), and decide them by "
    "options"
)


def refuse_survivors(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Raise a CompileError for the first of them."""
    for residual in residuals.values():
        outside = outside_names(residual)
        identities = _identities(residual)
        for item in _code(residual):
            _refuse_spec(item, residual, facts)
            name = item.value if isinstance(item, cst.Name) else None
            if name in outside and is_written_class(name, residual):
                refuse_class_read(name, _span(item, residual, facts))
            if name in outside and name in RESERVED and RESERVED[name] is None:
                refuse_reserved(name, _span(item, residual, facts))
            attribute = tree.self_attribute(item)
            if attribute in identities:
                refuse(
                    "SP327",
                    f"`self.{attribute}` of `{residual.kind.cls.__name__}` is an identity, which "
                    f"the page has not, and it "
                    "is used other than by calling it",
                    _span(item, residual, facts),
                    help="call it with one argument, or ask `isinstance(..., IdentityOp)`",
                )


def _code(residual: Residual) -> Iterator[cst.CSTNode]:
    """The nodes that run: no annotations, no labels, no names that are only bound."""
    for root in residual.text():
        notes = {
            id(n) for a in tree.walk(root) if isinstance(a, cst.Annotation) for n in tree.walk(a)
        }
        yield from (n for n in tree.walk_loads(root) if id(n) not in notes)


def _refuse_spec(item: cst.CSTNode, residual: Residual, facts: Facts) -> None:
    word = item.value if isinstance(item, cst.Name) else None
    if isinstance(item, cst.Attribute):
        word = item.attr.value
    if word in SPEC_WORDS:
        refuse(
            "SP401",
            f"`{'an identity' if word == IDENTITY else word}` is left in "
            f"`{residual.kind.cls.__name__}` once it is folded",
            _span(item, residual, facts),
            help=_BUILD_PLAINLY,
        )


def _identities(residual: Residual) -> set[str]:
    """Attributes that hold an identity, which folding took from the constructor."""
    found: set[str] = set()
    for module in residual.kind.instances:
        found |= {name for name, child in module._modules.items() if isinstance(child, IdentityOp)}
    return found


def _span(node: cst.CSTNode, residual: Residual, facts: Facts) -> Span | None:
    node = facts.origins.get(id(node), node)
    return facts.sources.span(node, *residual.flat.chain) or span_of_class(residual.kind.cls)


def refuse_words(text: str) -> None:
    """The same of the whole page, for what came onto it in other ways (a helper, a property).

    An author's words in comments and strings are his own.
    """
    for word, _ in words_left(ast.parse(text)):
        lines = [
            line.strip()
            for line in text.splitlines()
            if word in line and not line.strip().startswith("#")
        ]
        refuse(
            "SP401",
            f"`{word}` is left on the page: {lines[0] if lines else word}",
            None,
            help=_BUILD_PLAINLY,
        )


def words_left(page: ast.Module) -> Iterator[tuple[str, int]]:
    """The words of a spec that a page's code holds, each with its line."""
    for node in ast.walk(page):
        words = {getattr(node, field, None) for field in ("id", "attr", "arg", "name", "asname")}
        for word in sorted(w for w in words if isinstance(w, str) and w in SPEC_WORDS):
            yield word, getattr(node, "lineno", 1)
