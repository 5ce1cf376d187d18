"""Reading and rebuilding libcst trees, faster than its visitors.

`node.visit(CSTVisitor())` rebuilds every node that it passes; these functions read the
code-bearing fields alone, in the order of the source, and share every node that they do not change.
"""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, TypeVar

import libcst as cst

Node = TypeVar("Node", bound=cst.CSTNode)

# fmt: off
_NOT_CODE = frozenset({
    "leading_lines", "lines_after_decorators", "header", "footer", "lpar", "rpar", "comma",
    "semicolon", "indent", "equal", "colon", "dot", "operator", "lbracket", "rbracket",
    "lbrace", "rbrace", "asynchronous", "encoding", "default_indent", "default_newline",
    "has_trailing_newline", "star_etc",
})
# fmt: on
# libcst's order of fields where it is not the order of the source.
_SOURCE_ORDER: dict[type[cst.CSTNode], tuple[str, ...]] = {
    cst.IfExp: ("body", "test", "orelse"),
    cst.FunctionDef: ("decorators", "name", "params", "returns", "body"),
    cst.ClassDef: ("decorators", "name", "bases", "keywords", "body"),
    cst.Arg: ("keyword", "value"),
    cst.Parameters: ("posonly_params", "params", "star_arg", "kwonly_params", "star_kwarg"),
    cst.Comparison: ("left", "comparisons"),
    # the operators of a comparison and of arithmetic carry no names; `in` and `is` do not matter
    # either
    cst.ComparisonTarget: ("comparator",),
    cst.AugAssign: ("target", "value"),
}


@functools.cache
def code_fields(kind: type[cst.CSTNode]) -> tuple[str, ...]:
    if kind in _SOURCE_ORDER:
        return _SOURCE_ORDER[kind]
    names = (f.name for f in dataclasses.fields(kind))
    return tuple(n for n in names if n not in _NOT_CODE and "whitespace" not in n)


_NODE_TYPES: dict[type[object], bool] = {}


def _is_node(value: object) -> bool:
    kind = type(value)
    if kind not in _NODE_TYPES:  # asked once a type: libcst's classes are slow to ask
        _NODE_TYPES[kind] = issubclass(kind, cst.CSTNode)
    return _NODE_TYPES[kind]


@functools.lru_cache(maxsize=1 << 16)
def parts(node: cst.CSTNode) -> tuple[cst.CSTNode, ...]:
    """The code-bearing children, in the order of the source."""
    children: list[cst.CSTNode] = []
    for name in code_fields(type(node)):
        value = getattr(node, name)
        if isinstance(value, (list, tuple)):
            children.extend(v for v in value if _is_node(v))
        elif _is_node(value):
            children.append(value)
    return tuple(children)


def walk(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """The node and all below it, parents first, in the order of the source."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        stack.extend(reversed(parts(top)))


def rebuild(node: Node, change: Callable[[Any], Any]) -> Node:
    """`node` with `change` applied to each code-bearing child; the same object if none changed."""
    changes: dict[str, Any] = {}
    for name in code_fields(type(node)):
        value = getattr(node, name)
        if _is_node(value):
            new = change(value)
            if new is not value:
                changes[name] = new
        elif isinstance(value, (list, tuple)) and value:
            news = [change(v) if _is_node(v) else v for v in value]
            if any(a is not b for a, b in zip(news, value, strict=True)):
                changes[name] = news
    return node.with_changes(**changes) if changes else node


def replace(node: Node, swap: Callable[[cst.CSTNode], cst.CSTNode | None]) -> Any:
    """`node` with every topmost sub-tree for which `swap` returns a node replaced by that node."""
    new = swap(node)
    if new is not None:
        return new
    return rebuild(node, lambda child: replace(child, swap))


def code(node: cst.CSTNode) -> str:
    return cst.Module(body=[]).code_for_node(node)


def dotted(node: cst.CSTNode) -> str | None:
    """`a.b.c` for a chain of names, else None."""
    if isinstance(node, cst.Name):
        return node.value
    if isinstance(node, cst.Attribute):
        base = dotted(node.value)
        return None if base is None else f"{base}.{node.attr.value}"
    return None


def self_attribute(node: cst.CSTNode) -> str | None:
    """`x` for `self.x`, else None."""
    if (
        isinstance(node, cst.Attribute)
        and isinstance(node.value, cst.Name)
        and node.value.value == "self"
    ):
        return node.attr.value
    return None


def body_of(node: cst.BaseCompoundStatement | cst.Else) -> Sequence[Any]:
    """The statements of a suite; a one-line suite is lifted to lines of its own."""
    suite = node.body
    if isinstance(suite, cst.IndentedBlock):
        return suite.body
    assert isinstance(suite, cst.SimpleStatementSuite)
    return [
        cst.SimpleStatementLine(body=[s.with_changes(semicolon=cst.MaybeSentinel.DEFAULT)])
        for s in suite.body
    ]


def with_body(node: Node, statements: Sequence[Any]) -> Node:
    """`node` with these statements as its suite (a `pass` where there are none)."""
    lines = list(statements) or [cst.SimpleStatementLine(body=[cst.Pass()])]
    suite = node.body  # type: ignore[attr-defined]
    if isinstance(suite, cst.IndentedBlock):
        return node.with_changes(body=suite.with_changes(body=lines))
    return node.with_changes(body=cst.IndentedBlock(body=lines))


ATOMS = (
    cst.Name,
    cst.Attribute,
    cst.Call,
    cst.Subscript,
    cst.Integer,
    cst.Float,
    cst.SimpleString,
    cst.List,
    cst.Tuple,
    cst.Dict,
    cst.Set,
    cst.ListComp,
    cst.FormattedString,
    cst.ConcatenatedString,
)


def in_place_of(old: cst.BaseExpression, new: cst.BaseExpression) -> cst.BaseExpression:
    """`new` standing where `old` stood: keeps the parentheses of `old` unless `new` is an atom."""
    if isinstance(new, ATOMS) or new.lpar or not old.lpar:
        return new
    return new.with_changes(lpar=old.lpar, rpar=old.rpar)


def parenthesised(node: cst.BaseExpression) -> cst.BaseExpression:
    if isinstance(node, ATOMS) or node.lpar:
        return node
    return node.with_changes(lpar=[cst.LeftParen()], rpar=[cst.RightParen()])


def parameters(node: cst.FunctionDef | cst.Lambda) -> list[cst.Param]:
    """A function's parameters, those for `*` and `**` apart."""
    return [*node.params.posonly_params, *node.params.params, *node.params.kwonly_params]


def every_parameter(node: cst.FunctionDef | cst.Lambda) -> list[cst.Param]:
    """A function's parameters, those for `*` and `**` last."""
    stars = (node.params.star_arg, node.params.star_kwarg)
    return [*parameters(node), *(p for p in stars if isinstance(p, cst.Param))]


def bare(node: cst.BaseExpression) -> cst.BaseExpression:
    """Without parentheses of its own, which an argument needs none of."""
    if not node.lpar or isinstance(node, (cst.Tuple, cst.GeneratorExp, cst.NamedExpr, cst.Yield)):
        return node
    return node.with_changes(lpar=[], rpar=[])


def docstring_of(statements: Sequence[Any]) -> cst.SimpleString | None:
    if not statements:
        return None
    first = statements[0]
    if isinstance(first, cst.SimpleStatementLine) and isinstance(first.body[0], cst.Expr):
        value = first.body[0].value
        if isinstance(value, cst.SimpleString):
            return value
    return None


# Asked by their exact types first: libcst's classes are abstract, and slow to ask.
_STORES = frozenset(
    {cst.Assign, cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.Del, cst.AsName}
)
_BINDS = _STORES | frozenset(
    {cst.FunctionDef, cst.ClassDef, cst.NamedExpr, cst.ImportAlias, cst.MatchAs, cst.MatchStar}
)


def stored_names(node: cst.CSTNode) -> set[str]:
    """Every local name that the code under `node` binds or deletes (nested functions: their names
    alone).
    """
    names: set[str] = set()
    for item in own(node):
        if type(item) not in _BINDS:
            continue
        if isinstance(item, (cst.FunctionDef, cst.ClassDef)):
            names.add(item.name.value)
        elif isinstance(item, cst.NamedExpr):
            names |= _targets(item.target)
        elif isinstance(item, cst.Assign):
            for target in item.targets:
                names |= _targets(target.target)
        elif isinstance(item, (cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.Del)):
            names |= _targets(item.target)
        elif isinstance(item, cst.AsName):
            names |= _targets(item.name)
        elif isinstance(item, cst.ImportAlias) and item.asname is None:
            names.add((dotted(item.name) or "").split(".")[0])
        elif isinstance(item, (cst.MatchAs, cst.MatchStar)) and item.name is not None:
            names.add(item.name.value)
    return names


def bound_names(node: cst.CSTNode) -> set[str]:
    """The names that one statement or clause binds itself: not those of statements inside it."""
    if isinstance(node, cst.Assign):
        return set().union(*(_targets(t.target) for t in node.targets))
    target = node.name if isinstance(node, cst.AsName) else getattr(node, "target", None)
    return set() if target is None else _targets(target)


def own(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """As `walk`, but not into nested functions, classes and lambdas."""
    stack = [node]
    while stack:
        top = stack.pop()
        yield top
        if not isinstance(top, (cst.FunctionDef, cst.ClassDef, cst.Lambda)) or top is node:
            stack.extend(reversed(parts(top)))


def _targets(node: cst.CSTNode) -> set[str]:
    if isinstance(node, cst.Name):
        return {node.value}
    if isinstance(node, (cst.Tuple, cst.List)):
        return set().union(*(_targets(e.value) for e in node.elements)) if node.elements else set()
    if isinstance(node, cst.StarredElement):
        return _targets(node.value)
    return set()


def nested_functions(function: cst.FunctionDef) -> list[cst.CSTNode]:
    """The functions and lambdas inside a function, which run when they are called."""
    inside = (
        item for item in walk(function.body) if isinstance(item, (cst.FunctionDef, cst.Lambda))
    )
    return list(inside)


def stored_attributes(node: cst.CSTNode) -> Iterator[cst.Attribute]:
    """Every attribute that is assigned, augmented, deleted or looped into under `node`."""

    def inside(target: cst.CSTNode) -> Iterator[cst.Attribute]:
        if isinstance(target, cst.Attribute):
            yield target
        elif isinstance(target, (cst.Tuple, cst.List)):
            for element in target.elements:
                yield from inside(element.value)

    for item in walk(node):
        if type(item) not in _STORES:
            continue
        if isinstance(item, cst.Assign):
            for each in item.targets:
                yield from inside(each.target)
        elif isinstance(item, (cst.AnnAssign, cst.AugAssign, cst.For, cst.CompFor, cst.Del)):
            yield from inside(item.target)
        elif isinstance(item, cst.AsName):
            yield from inside(item.name)


@functools.lru_cache(maxsize=1 << 13)
def loaded_names(node: cst.CSTNode) -> tuple[str, ...]:
    """Every name that is read under `node`: not those stored, attribute names or keywords."""
    return tuple(item.value for item in walk_loads(node) if type(item) is cst.Name)


def walk_loads(node: cst.CSTNode) -> Iterator[cst.CSTNode]:
    """As `walk`, leaving out nodes that bind (targets that are plain names) or only label."""
    stack: list[cst.CSTNode] = [node]
    while stack:
        top = stack.pop()
        yield top
        if isinstance(top, (cst.Attribute, cst.Arg)):
            stack.append(top.value)
        elif isinstance(
            top, (cst.AssignTarget, cst.For, cst.CompFor, cst.AnnAssign, cst.NamedExpr)
        ):
            children = [p for p in parts(top) if p is not top.target]
            children += _loads_in_target(top.target)
            stack.extend(reversed(children))
        elif isinstance(top, cst.Param):
            stack.extend(p for p in (top.annotation, top.default) if p is not None)
        elif isinstance(top, (cst.FunctionDef, cst.ClassDef)):
            stack.extend(reversed([p for p in parts(top) if p is not top.name]))
        elif isinstance(top, (cst.ImportAlias, cst.Import, cst.ImportFrom)):
            continue
        else:
            stack.extend(reversed(parts(top)))


def _loads_in_target(target: cst.CSTNode) -> list[cst.CSTNode]:
    if isinstance(target, cst.Name):
        return []
    if isinstance(target, (cst.Tuple, cst.List)):
        return [x for e in target.elements for x in _loads_in_target(e.value)]
    return [target]


def is_pure(node: cst.CSTNode) -> bool:
    """Names, attributes, literals, operators: may be dropped or moved. Never a call."""
    allowed = (
        cst.Name,
        cst.Attribute,
        cst.Integer,
        cst.Float,
        cst.SimpleString,
        cst.BinaryOperation,
        cst.UnaryOperation,
        cst.BooleanOperation,
        cst.Comparison,
        cst.ComparisonTarget,
        cst.IfExp,
        cst.Tuple,
        cst.List,
        cst.Element,
        cst.BaseUnaryOp,
        cst.BaseBinaryOp,
        cst.BaseBooleanOp,
        cst.BaseCompOp,
    )
    return all(isinstance(item, allowed) or _is_child_spec(item) for item in walk(node))


_LABELS = (cst.SubscriptElement, cst.Index)


def _is_child_spec(node: cst.CSTNode) -> bool:
    """`submodules["name"]`: a dict of the spec's, which reading does not change."""
    return isinstance(node, _LABELS) or (
        isinstance(node, cst.Subscript) and dotted(node.value) == "submodules"
    )


def arguments_by_name(call: cst.Call, names: list[str]) -> dict[str, cst.BaseExpression] | None:
    """A call's arguments by the names of the parameters; None where that can't be said."""
    found: dict[str, cst.BaseExpression] = {}
    for position, arg in enumerate(call.args):
        if arg.star or (arg.keyword is None and position >= len(names)):
            return None
        name = arg.keyword.value if arg.keyword is not None else names[position]
        if name not in names:
            return None
        found[name] = arg.value
    return found


def same_parts(new: cst.CSTNode, old: cst.CSTNode) -> bool:
    """Whether two nodes hold the same children, object by object."""
    return all(a is b for a, b in zip(parts(new), parts(old), strict=False)) and len(
        list(parts(new))
    ) == len(list(parts(old)))


def is_super_init(call: cst.Call) -> bool:
    func = call.func
    return (
        isinstance(func, cst.Attribute)
        and func.attr.value == "__init__"
        and isinstance(func.value, cst.Call)
        and isinstance(func.value.func, cst.Name)
        and func.value.func.value == "super"
    )


def with_leading(statements: list[Any], lines: list[cst.EmptyLine]) -> list[Any]:
    """The lines above a folded statement, above what is left of it."""
    if not statements or not lines:
        return statements
    first = statements[0]
    if not hasattr(first, "leading_lines"):
        return statements
    return [first.with_changes(leading_lines=[*lines, *first.leading_lines]), *statements[1:]]
