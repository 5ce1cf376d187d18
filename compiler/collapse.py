"""Collapse: a class that only calls the constructor of a runtime class is that runtime class.

`RMSNorm(config, hidden_size, eps)` of the templates hands its sizes to the runtime's norm and adds
nothing; where the page builds it, the runtime's own class is built.
"""

from __future__ import annotations

from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .construct import POSITIONAL, imported
from .facts import Facts
from .kinds import Kind
from .prune import rewrite_calls
from .residual import Residual


def collapse(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Replace such kinds where they are built, and drop them; in place."""
    in_patterns = {kind for kinds in facts.patterns.values() for kind in kinds}
    for kind in list(residuals):
        if kind is facts.kinds.root or kind in in_patterns:
            continue
        base_call = _only_base_call(residuals[kind])
        if base_call is None:
            continue
        residual = residuals.pop(kind)

        def change(
            call: cst.Call,
            kind: Kind = kind,
            residual: Residual = residual,
            base_call: Any = base_call,
        ) -> cst.Call:
            if isinstance(call.func, cst.Name) and call.func.value == kind.handle:
                return _of_base(call, residual, base_call, facts)
            return call

        for other in residuals.values():
            rewrite_calls(other, change)


def _only_base_call(residual: Residual) -> cst.Call | None:
    """The call of the imported base's constructor, where it is all that the class is."""
    if residual.flat.base is nn.Module or residual.methods or residual.attributes:
        return None
    if residual.init is None:
        return None
    statements = [s for s in tree.body_of(residual.init) if tree.docstring_of([s]) is None]
    if len(statements) != 1 or not isinstance(statements[0], cst.SimpleStatementLine):
        return None
    small = statements[0].body[0]
    if (
        not isinstance(small, cst.Expr)
        or not isinstance(small.value, cst.Call)
        or not tree.is_super_init(small.value)
    ):
        return None
    call = small.value
    return call if all(tree.is_pure(a.value) and not a.star for a in call.args) else None


def _of_base(call: cst.Call, residual: Residual, base_call: cst.Call, facts: Facts) -> cst.Call:
    passed = {
        a.keyword.value.removeprefix(POSITIONAL): a.value
        for a in call.args
        if a.keyword is not None
    }
    for param in residual.parameters():
        if param.default is not None:
            passed.setdefault(param.name.value, param.default)

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, cst.Attribute):
            inner = tree.replace(node.value, swap)
            if inner is node.value:
                return node
            read = node.with_changes(value=inner)
            if id(node) in facts.config_reads:
                indices, name, _ = facts.config_reads[id(node)]
                facts.config_reads[id(read)] = (indices, name, read)
            return read
        if isinstance(node, cst.Name) and node.value in passed:
            new = passed[node.value]
            return (
                node
                if isinstance(new, cst.Name) and new.value == node.value
                else tree.parenthesised(new)
            )
        return None

    args = [
        a.with_changes(
            value=tree.bare(tree.replace(a.value, swap)), comma=cst.MaybeSentinel.DEFAULT
        )
        for a in base_call.args
    ]
    return cst.Call(imported(residual.flat.base, facts), args)
