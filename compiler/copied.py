"""Copied: the user's functions, classes and constants that a page holds as they stand.

A copy is right where the one statement that is copied is all that makes the thing what it is. A
name that is bound twice, filled from elsewhere or replaced is refused.
"""

from __future__ import annotations

import inspect
from types import FunctionType, ModuleType
from typing import Any, NoReturn

import libcst as cst

from specc.templates.diagnostic import Span

from . import tree
from .errors import refuse
from .source import SourceFile

Statement = cst.FunctionDef | cst.ClassDef | cst.SimpleStatementLine
_MUTABLE = (list, dict, set)


def statement_of(
    name: str, thing: Any, module: ModuleType, file: SourceFile, span: Span | None
) -> Statement:
    """The statement of `module` that makes `name` what it is. Raises CompileError where no single
    one does.

    `span` is the place that reads the name, for the message.
    """
    node: Any = file.functions.get(name) or file.classes.get(name) or file.constants.get(name)
    if node is None:
        refuse(
            "SP408",
            f"the page has to hold `{name}`, whose source is not a plain statement of "
            f"`{module.__name__}`",
            span,
            help="define it at the top level of a file, under no condition",
        )
    if binders(name, file) > 1:
        refuse_rebound(name, "is bound by several statements", span)
    if _is_filled(name, file):
        refuse_rebound(name, "is changed by other statements", span)
    if isinstance(thing, FunctionType):
        _check_function(name, thing, node, file, span)
    elif isinstance(node, cst.SimpleStatementLine):
        _check_value(name, thing, node, span)
    return node  # type: ignore[no-any-return]  # one of the three


def refuse_rebound(name: str, what: str, span: Span | None) -> NoReturn:
    refuse(
        "SP411",
        f"`{name}` {what} of its module, and a page would hold one of them alone",
        span,
        help=(
            f"bind `{name}` in one statement, under no condition; keep what depends on the "
            f"machine out of a model"
        ),
    )


def binders(name: str, file: SourceFile) -> int:
    """How many statements at the top level of a file bind a name."""
    return sum(name in _bound(statement) for statement in file.module.body)


def _bound(statement: cst.CSTNode) -> set[str]:
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        return {statement.name.value}
    return tree.stored_names(statement)


def _is_filled(name: str, file: SourceFile) -> bool:
    """Whether a statement at the top level stores into the thing, or calls a method of it."""
    for statement in file.module.body:
        if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            continue
        for item in tree.own(statement):
            if (
                isinstance(item, cst.AssignTarget)
                and _root(item.target) == name
                and not isinstance(item.target, cst.Name)
            ):
                return True
            if isinstance(item, (cst.AugAssign, cst.Del)) and _root(item.target) == name:
                return True
            if isinstance(item, cst.Expr) and isinstance(item.value, cst.Call):
                call = item.value
                handed = any(_root(a.value) == name for a in call.args)
                if handed or (
                    isinstance(call.func, cst.Attribute) and _root(call.func.value) == name
                ):
                    return True
    return False


def _root(node: cst.CSTNode) -> str:
    """`a` of `a.b["c"]`."""
    while isinstance(node, (cst.Attribute, cst.Subscript)):
        node = node.value
    return node.value if isinstance(node, cst.Name) else ""


def _check_function(
    name: str, thing: FunctionType, node: Statement, file: SourceFile, span: Span | None
) -> None:
    if not isinstance(node, cst.FunctionDef):
        if inspect.getclosurevars(thing).nonlocals:
            refuse(
                "SP409",
                f"`{name}` is a closure, whose free variables have no source",
                span,
                help="write it as a function of its own, with the variables as parameters",
            )
        return
    inner = inspect.unwrap(thing)
    if not node.decorators and (
        inner.__code__.co_filename != file.path or inner.__code__.co_name != name
    ):
        refuse_rebound(name, "was replaced after the `def`", span)
    attributes = vars(thing).keys() - {"__wrapped__"}
    if attributes and not node.decorators:
        refuse_rebound(
            name, f"carries an attribute, `{min(attributes)}`, from another statement", span
        )


def _check_value(name: str, thing: Any, node: cst.SimpleStatementLine, span: Span | None) -> None:
    """A literal must still be what it says."""
    value = next((s.value for s in node.body if isinstance(s, (cst.Assign, cst.AnnAssign))), None)
    if isinstance(value, (cst.List, cst.Dict, cst.Set)) and isinstance(thing, _MUTABLE):
        starred = (cst.StarredElement, cst.StarredDictElement)
        if not any(isinstance(e, starred) for e in value.elements) and len(value.elements) != len(
            thing
        ):
            refuse_rebound(name, "was filled by other code", span)
    if (
        isinstance(value, (cst.Integer, cst.Float, cst.SimpleString))
        and value.evaluated_value != thing
    ):
        refuse_rebound(name, f"is {thing!r} by now, changed by other code", span)
