"""A base's constructor: its body in place of `super().__init__(...)`, its parameters bound."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import libcst as cst

from . import tree
from .errors import refuse
from .flatten import Method

if TYPE_CHECKING:
    from .fold import Folder

Statements = list[Any]


def splice_base(folder: Folder, node: cst.SimpleStatementLine) -> Statements | None:
    """The body of a written-out base's constructor in place of the call of it."""
    if folder.constructor is None or len(node.body) != 1 or not isinstance(node.body[0], cst.Expr):
        return None
    call = node.body[0].value
    if not isinstance(call, cst.Call) or not tree.is_super_init(call):
        return None
    position = folder.flat.chain.index(folder.method.owner)
    base = (
        folder.flat.init_of(folder.flat.chain[position + 1])
        if position + 1 < len(folder.flat.chain)
        else None
    )
    if base is None:
        return None  # the base is imported: its constructor is called on the page too
    inner = type(folder)(folder.facts, folder.kind, folder.flat, base, folder.constructor)
    inner.outer = folder.outer | _locals(folder)
    inner.scope.names = {k: v for k, v in folder.scope.names.items() if k.startswith("self.")}
    inner.scope.names["self"] = None
    lines = _bind_base(folder, call, base, inner)
    lines += _without_return(folder, inner.block(_without_docstring(tree.body_of(base.node))), base)
    folder.scope.names |= {k: v for k, v in inner.scope.names.items() if k.startswith("self.")}
    lines = tree.with_leading(lines, list(node.leading_lines))
    if (
        lines
        and node.trailing_whitespace.comment is not None
        and isinstance(lines[0], cst.SimpleStatementLine)
    ):
        lines[0] = lines[0].with_changes(trailing_whitespace=node.trailing_whitespace)
    return lines


def _locals(folder: Folder) -> frozenset[str]:
    names = {p.name.value for p in tree.every_parameter(folder.method.node)}
    return frozenset(tree.stored_names(folder.method.node.body) | names)


def _without_return(folder: Folder, lines: Statements, base: Method) -> Statements:
    """A base's constructor that ends early would end the one that it is spliced into."""
    if (
        lines
        and isinstance(lines[-1], cst.SimpleStatementLine)
        and isinstance(lines[-1].body[-1], cst.Return)
    ):
        last = lines[-1].body[:-1]
        lines = [*lines[:-1], *([lines[-1].with_changes(body=last)] if last else [])]
    for line in lines:
        for item in tree.own(line):
            if isinstance(item, cst.Return):
                refuse(
                    "SP324",
                    f"the constructor of `{base.owner.__name__}`, a base of "
                    f"`{folder.kind.cls.__name__}`, returns early",
                    folder.facts.sources.span(item, base.owner),
                    help="put the rest of it under an `if`",
                )
    return lines


def _bind_base(folder: Folder, call: cst.Call, base: Method, inner: Folder) -> Statements:
    """Give the base's parameters their values; one without a name of its own becomes a local."""
    params = list(tree.parameters(base.node))[1:]
    passed = tree.arguments_by_name(call, [p.name.value for p in params])
    if passed is None:
        refuse(
            "SP307",
            f"`{folder.kind.cls.__name__}` calls its base's constructor with `*` or `**`, or with "
            "a parameter it has not",
            folder.span(call),
            help="pass each argument by its plain name",
        )
    lines: Statements = []
    used = set(tree.loaded_names(base.node.body))
    stored = tree.stored_names(base.node.body)
    locals_here = _locals(folder) | folder.outer
    same = {n for n, e in passed.items() if isinstance(e, cst.Name) and e.value == n}
    # A parameter that both call by one name is one local on the page: the base must leave it alone.
    clash = (stored & locals_here) - set(passed) | {
        n for n in stored & same if _reads_beside(folder, n, call)
    }
    if clash:
        refuse(
            "SP308",
            f"`{folder.kind.cls.__name__}` and its base `{base.owner.__name__}` both have a local "
            f"`{sorted(clash)[0]}` in `__init__`",
            folder.span(call),
            help="rename one of them",
        )
    defaults = {
        p.name.value: p.default
        for p in params
        if p.default is not None and p.name.value not in passed
    }
    for name, expression in [*passed.items(), *defaults.items()]:
        given = name in passed
        known = folder.known(expression) if given else folder.facts.default(expression, base.owner)
        inner.scope.names[name] = known
        if name in same:
            continue
        if name not in used and tree.is_pure(expression):
            continue
        if name in locals_here:
            refuse(
                "SP307",
                f"`{folder.kind.cls.__name__}` passes `{tree.code(expression)}` for `{name}` of "
                "its base "
                f"`{base.owner.__name__}`, and has a `{name}` of its own",
                folder.span(call),
                help="pass the parameter of that name, or rename one of the two",
            )
        folded = (folder if given else inner).expression(expression)
        line = cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], folded)])
        lines.append(line)
        folder.facts.keep(folded)
    return lines


def _reads_beside(folder: Folder, name: str, call: cst.Call) -> bool:
    """Whether the constructor reads a name anywhere but in this call of its base's."""
    inside = sum(1 for n in tree.loaded_names(call) if n == name)
    return (
        sum(1 for n in tree.loaded_names(folder.method.node.body) if n == name) > inside
        or name in folder.outer
    )


def _without_docstring(statements: Sequence[Any]) -> list[Any]:
    return list(statements[1:] if tree.docstring_of(statements) is not None else statements)
