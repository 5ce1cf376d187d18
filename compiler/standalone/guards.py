"""Guards: what the runtime refuses, and what it prints of a layer, is not on a standalone page.

A hand-written model has no sentence for each wrong argument: torch says it, or the reader sees it.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree

PRINTED = frozenset({"extra_repr"})


def without_guards(node: Any) -> Any:
    """A definition without `if ...: raise ...` and without methods that print."""

    def change(item: Any) -> Any:
        if isinstance(item, cst.IndentedBlock):
            body = [change(s) for s in item.body if not (_is_guard(s) or _prints(s))]
            return item.with_changes(body=body or [cst.SimpleStatementLine([cst.Pass()])])
        if isinstance(item, (cst.BaseExpression, cst.BaseSmallStatement)):
            return item
        return tree.rebuild(item, change)

    return change(node)


def _is_guard(statement: Any) -> bool:
    if not isinstance(statement, cst.If) or statement.orelse is not None:
        return False
    *before, last = tree.body_of(statement)
    raises = isinstance(last, cst.SimpleStatementLine) and isinstance(last.body[-1], cst.Raise)
    return raises and all(
        isinstance(s, cst.SimpleStatementLine)
        and all(isinstance(x, (cst.Assign, cst.AnnAssign)) for x in s.body)
        for s in before
    )


def _prints(statement: Any) -> bool:
    return isinstance(statement, cst.FunctionDef) and statement.name.value in PRINTED
