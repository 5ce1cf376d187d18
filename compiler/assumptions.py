"""Assumptions: tests of numbers that decided a page's text, in the terms of its Config.

`if config.hidden_dropout > 0.0` is gone from the page, so the page's Config asserts it: else the
page would lie when somebody changes the number.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import libcst as cst

from . import tree
from .value import Fields, Scope, Unknown, Value, evaluate, is_config, literal


@dataclass
class Assumption:
    """A number was asked about, and the answer decided the page's text."""

    test: cst.BaseExpression  # over `self`, which is the config
    holds: bool
    fields: Fields
    config: Any  # the one that was asked


def assumption(test: cst.BaseExpression, value: Value, scope: Scope) -> Assumption | None:
    """What folding this test assumes; None where it can't be said of one config alone."""
    asked: list[Any] = []

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, (cst.Name, cst.Attribute)):
            try:
                known = evaluate(node, scope).object
            except Unknown:
                return None
            if is_config(known):
                if not any(known is other for other in asked):
                    asked.append(known)
                return cst.Name("self")
            if isinstance(node, cst.Name) and node.value in scope.names and _is_plain(known):
                return literal(known)
        if isinstance(node, cst.Attribute):  # its own name is only a label
            inner = tree.replace(node.value, swap)
            return node if inner is node.value else node.with_changes(value=inner)
        if isinstance(node, cst.Arg) and node.keyword is not None:
            return node.with_changes(value=tree.replace(node.value, swap))
        return None

    new = tree.replace(test, swap).with_changes(lpar=[], rpar=[])
    if len(asked) != 1:
        return None
    return Assumption(new, bool(value.object), value.fields, asked[0])


def _is_plain(thing: Any) -> bool:
    return thing is None or isinstance(thing, (bool, str))
