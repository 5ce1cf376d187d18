"""Tuples apart: `a, b = x, y` without the pairs that say nothing."""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .local_names import assignment, stores_of
from .program import Program
from .purity import is_literal, is_path, is_pure


def tuples_apart(function: cst.FunctionDef, program: Program, ours: bool) -> cst.FunctionDef:
    """`a, b = x, y` loses each pair that binds a literal, itself, or what nothing reads."""
    loads = set(tree.loaded_names(function.body))
    stores = stores_of(function)

    def change(node: Any) -> Any:
        if isinstance(node, cst.IndentedBlock):
            body: list[Any] = []
            for statement in node.body:
                body += split(statement)
            same = len(body) == len(node.body) and all(
                a is b for a, b in zip(body, node.body, strict=True)
            )
            return node if same else node.with_changes(body=body)
        if isinstance(node, (cst.BaseExpression, cst.BaseSmallStatement)):
            return node
        return tree.rebuild(node, change)

    def split(statement: Any) -> list[Any]:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return [change(statement)]
        small = statement.body[0]
        if not isinstance(small, cst.Assign) or len(small.targets) != 1:
            return [statement]
        target, value = small.targets[0].target, small.value
        if isinstance(target, cst.Name) and isinstance(value, cst.Name):
            return [] if target.value == value.value else [statement]
        unread = not tree.stored_names(small) & loads and not isinstance(value, cst.Tuple)
        if isinstance(target, cst.Tuple) and ours and is_pure(value) and unread:
            return []
        if not isinstance(target, cst.Tuple) or not isinstance(value, cst.Tuple):
            return [statement]
        if len(target.elements) != len(value.elements):
            return [statement]
        pairs = [(t.value, v.value) for t, v in zip(target.elements, value.elements, strict=True)]
        stored = {t.value for t, _ in pairs if isinstance(t, cst.Name)}
        kept: list[Any] = []
        lines: list[Any] = []
        for one, part in pairs:
            name = one.value if isinstance(one, cst.Name) else None
            if name is None or not is_pure(part) or (not ours and name in program.read_before):
                kept.append((one, part))
            elif (isinstance(part, cst.Name) and part.value == name) or name not in loads:
                continue
            elif (
                stores[name] == 1
                and not set(tree.loaded_names(cst.Expr(part))) & stored
                and (is_literal(part) or is_path(part))
                and all(stores[n] <= 1 for n in tree.loaded_names(cst.Expr(part)))
            ):
                lines.append(assignment(name, part))
            else:
                kept.append((one, part))
        if len(kept) == len(pairs) or (lines and not _worth(lines, kept)):
            return [statement]
        if len(kept) > 1:
            new = small.with_changes(
                targets=[cst.AssignTarget(cst.Tuple([cst.Element(t) for t, _ in kept], [], []))],
                value=cst.Tuple([cst.Element(v) for _, v in kept], [], []),
            )
            lines.append(statement.with_changes(body=[new], leading_lines=[]))
        elif kept:
            new = small.with_changes(targets=[cst.AssignTarget(kept[0][0])], value=kept[0][1])
            lines.append(statement.with_changes(body=[new], leading_lines=[]))
        return tree.with_leading(lines, list(statement.leading_lines))

    def _worth(lines: list[Any], kept: list[Any]) -> bool:
        return not kept or any(is_literal(line.body[0].value) for line in lines)

    return tree.rebuild(function, lambda c: change(c) if isinstance(c, cst.IndentedBlock) else c)
