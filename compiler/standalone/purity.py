"""Which expressions may be dropped, and which may be moved or repeated."""

from __future__ import annotations

import libcst as cst

from .. import tree

# Calls that compute and do nothing else.
_BUILTINS = frozenset(
    {"all", "any", "bool", "enumerate", "float", "int", "isinstance", "len", "list", "max", "min",
     "range", "reversed", "round", "str", "sum", "tuple", "type", "zip", "getattr"}
)  # fmt: skip
_TORCH = frozenset({"torch.arange"})
_METHODS = frozenset({"dim", "size", "numel", "is_floating_point"})
_PURE = (
    cst.Name, cst.Attribute, cst.Integer, cst.Float, cst.SimpleString, cst.BinaryOperation,
    cst.UnaryOperation, cst.BooleanOperation, cst.Comparison, cst.ComparisonTarget, cst.IfExp,
    cst.Tuple, cst.List, cst.Element, cst.StarredElement, cst.Subscript, cst.SubscriptElement,
    cst.Index, cst.Slice, cst.BaseUnaryOp, cst.BaseBinaryOp, cst.BaseBooleanOp, cst.BaseCompOp,
)  # fmt: skip


def is_pure(node: cst.CSTNode) -> bool:
    """Names, attributes, elements, operators: may be dropped, moved and repeated."""
    return all(isinstance(item, _PURE) for item in tree.walk(node))


def is_path(node: cst.CSTNode) -> bool:
    """`a`, `a.b.c`, `a.shape[0]`, or a literal: as short to read as a name."""
    if isinstance(node, (cst.Integer, cst.Float, cst.SimpleString, cst.Name)):
        return True
    if isinstance(node, cst.UnaryOperation):
        return isinstance(node.expression, (cst.Integer, cst.Float))
    if isinstance(node, cst.Subscript):
        return is_pure(node) and is_path(node.value)
    return isinstance(node, cst.Attribute) and is_path(node.value)


def is_harmless(node: cst.CSTNode, records: frozenset[str] = frozenset()) -> bool:
    """Whether an expression only computes: it may be dropped. `records`: classes of plain data."""
    for item in tree.walk(node):
        if isinstance(item, (cst.Await, cst.Yield, cst.NamedExpr, cst.Lambda)):
            return False
        if isinstance(item, cst.Call):
            dotted = tree.dotted(item.func)
            method = isinstance(item.func, cst.Attribute) and item.func.attr.value in _METHODS
            if not (dotted in _BUILTINS | _TORCH or dotted in records or method):
                return False
    return True


def is_record_of_pure(node: cst.CSTNode, records: frozenset[str]) -> bool:
    """`Record(a, b.c, field=None)`, also inside one another: may be dropped, moved and repeated."""
    return (
        isinstance(node, cst.Call)
        and tree.dotted(node.func) in records
        and all(
            not a.star and (is_pure(a.value) or is_record_of_pure(a.value, records))
            for a in node.args
        )
    )


def is_literal(node: cst.CSTNode | None) -> bool:
    if isinstance(node, cst.UnaryOperation) and isinstance(node.operator, cst.Minus):
        return isinstance(node.expression, (cst.Integer, cst.Float))
    return isinstance(node, (cst.Integer, cst.Float, cst.SimpleString)) or (
        isinstance(node, cst.Name) and node.value in ("None", "True", "False")
    )
