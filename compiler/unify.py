"""Unify: the classes that one call of a page builds take the same arguments.

A list of layers of several classes is built by one call (pattern.py): a class that has no use for
an argument that another needs takes it too.
"""

from __future__ import annotations

import libcst as cst

from . import tree
from .calls import kinds_called, shaped
from .construct import POSITIONAL
from .errors import refuse, span_of_class
from .facts import Facts
from .kinds import Kind
from .pattern import handle_of
from .residual import Residual, insert_parameter


def unify(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Give each class of a pattern every parameter that its call passes; in place."""
    for residual in residuals.values():
        for node in residual.text():
            for call in tree.walk(node):
                if isinstance(call, cst.Call) and handle_of(call, facts) is not None:
                    _give_parameters(call, residual, residuals, facts)


def _give_parameters(
    call: cst.Call, parent: Residual, residuals: dict[Kind, Residual], facts: Facts
) -> None:
    kinds = kinds_called(call, facts)
    known = {p.name.value: p for k in kinds for p in residuals[k].parameters()}
    for arg in call.args:
        assert arg.keyword is not None  # until `shaped`, every argument has its name
        name = plain_name(arg)
        for kind in kinds:
            residual = residuals[kind]
            if name in {p.name.value for p in residual.parameters()}:
                continue
            if residual.init is None or name not in known:
                refuse(
                    "SP312",
                    f"the layers built at one place in `{parent.kind.cls.__name__}` take different "
                    f"arguments: `{kind.cls.__name__}` has no parameter `{name}`",
                    span_of_class(kind.cls),
                    help=f"give its constructor a parameter `{name}`",
                )
            residual.init = insert_parameter(residual.init, known[name])


def plain_name(arg: cst.Arg) -> str:
    """The parameter that an argument is for; arguments that stood by position carry a mark."""
    return "" if arg.keyword is None else arg.keyword.value.removeprefix(POSITIONAL)


def shaped_for_all(call: cst.Call, residuals: dict[Kind, Residual], facts: Facts) -> cst.Call:
    """The final form of a pattern's call: by position as far as all its classes agree, else by
    name.
    """
    passed = {plain_name(a): a for a in call.args}
    orders = [
        [p.name.value for p in residuals[k].parameters()]
        for k in kinds_called(call, facts)
        if k in residuals  # one that merged with another is gone
    ]
    common: list[str] = []
    for column in zip(*orders, strict=False):
        if len(set(column)) > 1 or column[0] not in passed:
            break
        common.append(column[0])
    rest = [n for n in passed if n not in common]
    args = [passed[n] if n in common else _named(n, passed[n]) for n in [*common, *rest]]
    return shaped(call.with_changes(args=args), [*common, *rest])


def _named(name: str, arg: cst.Arg) -> cst.Arg:
    return cst.Arg(arg.value, keyword=cst.Name(name))
