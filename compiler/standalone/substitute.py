"""Names replaced by expressions, wherever a name is read."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import libcst as cst

from .. import tree

_BARE_INSIDE = (
    cst.Arg,
    cst.Return,
    cst.Assign,
    cst.AnnAssign,
    cst.Element,
    cst.Index,
    cst.Expr,
    cst.Param,
    cst.Annotation,
)


def substituted(node: Any, mapping: Mapping[str, cst.BaseExpression]) -> Any:
    """`node` with every read of these names replaced; what binds or labels stays.

    An inner function's or comprehension's own names hide those outside.
    """
    if not mapping:
        return node

    def inside(parent: Any, child: Any) -> Any:
        new = visit(child)
        if new is child or isinstance(parent, _BARE_INSIDE) or not isinstance(child, cst.Name):
            return new
        return tree.parenthesised(new)

    def visit(item: Any) -> Any:
        if isinstance(item, cst.Name):
            # A node of its own at each place: calls and names are told apart by identity.
            found = mapping.get(item.value)
            return item if found is None else found.deep_clone()
        if isinstance(item, (cst.Attribute, cst.Arg)):
            value = inside(item, item.value)
            return item if value is item.value else item.with_changes(value=value)
        if isinstance(item, cst.Param):
            changes = {}
            for name in ("annotation", "default"):
                part = getattr(item, name)
                if part is not None and (new := visit(part)) is not part:
                    changes[name] = new
            return item.with_changes(**changes) if changes else item
        if isinstance(item, (cst.FunctionDef, cst.Lambda)):
            hidden = {p.name.value for p in tree.every_parameter(item)}
            if isinstance(item, cst.FunctionDef):
                hidden |= tree.stored_names(item.body)
            return _without(item, hidden, mapping, inside, skip=("name",))
        if isinstance(item, (cst.ListComp, cst.SetComp, cst.DictComp, cst.GeneratorExp)):
            hidden = set()
            for clause in tree.walk(item.for_in):
                if isinstance(clause, cst.CompFor):
                    hidden |= tree.bound_names(clause)
            return _without(item, hidden, mapping, inside)
        if isinstance(item, (cst.AssignTarget, cst.AnnAssign, cst.For, cst.CompFor, cst.AugAssign)):
            return _with_target(item, inside)
        if isinstance(item, (cst.ClassDef, cst.ImportFrom, cst.Import)):
            if not isinstance(item, cst.ClassDef):
                return item
            return tree.rebuild(item, lambda child: child if child is item.name else visit(child))
        return tree.rebuild(item, lambda child: inside(item, child))

    def target(item: Any) -> Any:
        if isinstance(item, cst.Name):
            return item
        if isinstance(item, (cst.Tuple, cst.List, cst.StarredElement, cst.Element)):
            return tree.rebuild(item, target)
        return visit(item)

    def _with_target(item: Any, change: Any) -> Any:
        return tree.rebuild(
            item,
            lambda child: target(child) if child is item.target else change(item, child),
        )

    return visit(node)


def _without(
    item: Any,
    hidden: set[str],
    mapping: Mapping[str, cst.BaseExpression],
    inside: Any,
    skip: tuple[str, ...] = (),
) -> Any:
    left = {n: e for n, e in mapping.items() if n not in hidden}
    kept = [getattr(item, name) for name in skip if hasattr(item, name)]
    if len(left) == len(mapping):
        return tree.rebuild(
            item, lambda child: child if any(child is k for k in kept) else inside(item, child)
        )
    # Defaults and annotations of a function are read outside of it; nobody gives them such names.
    return tree.rebuild(
        item, lambda child: child if any(child is k for k in kept) else substituted(child, left)
    )


def renamed(node: Any, names: Mapping[str, str]) -> Any:
    """`node` with these names read under others."""
    return substituted(node, {old: cst.Name(new) for old, new in names.items() if old != new})


def renamed_everywhere(node: Any, names: Mapping[str, str]) -> Any:
    """`node` with local names read and bound under others; labels stay."""

    def visit(item: Any) -> Any:
        if isinstance(item, cst.Name):
            return cst.Name(names[item.value]) if item.value in names else item
        if isinstance(item, (cst.Attribute, cst.Arg)):
            value = visit(item.value)
            return item if value is item.value else item.with_changes(value=value)
        return tree.rebuild(item, visit)

    return visit(node)
