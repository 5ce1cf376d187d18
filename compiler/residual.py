"""Residual: what is left of each kind's class once it is folded.

Constructors are folded children first, since a parent must know what its children's constructors
came to need; the other methods parents first, since what a forward is called with is known from
the folded text of those that call it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import Any

import libcst as cst
from torch import nn

from . import tree
from .construct import Constructor
from .errors import refuse, span_of_class
from .facts import Facts
from .flatten import Flat, Method
from .fold import Folder
from .kinds import Kind
from .value import is_spec


@dataclass(eq=False)
class Residual:
    """One class of the page in the making."""

    kind: Kind
    flat: Flat
    init: cst.FunctionDef | None = None
    methods: dict[str, cst.FunctionDef] = field(default_factory=dict)  # all but the constructor
    docstring: Any = None  # a statement, or None
    attributes: list[Any] = field(default_factory=list)

    @property
    def ours(self) -> bool:
        """Whether the class is one of specc.templates, whose words we may take out when nothing
        reads them.
        """
        return self.kind.cls.__module__.startswith("specc.templates")

    def functions(self) -> Iterator[cst.FunctionDef]:
        if self.init is not None:
            yield self.init
        yield from self.methods.values()

    def text(self) -> Iterator[cst.CSTNode]:
        yield from self.attributes
        yield from self.functions()

    def parameters(self) -> list[cst.Param]:
        """The constructor's parameters after `self`."""
        return (
            []
            if self.init is None
            else [*self.init.params.params[1:], *self.init.params.kwonly_params]
        )


def fold_all(facts: Facts) -> dict[Kind, Residual]:
    """The residual class of every kind, in the order of `facts.kinds`."""
    residuals: dict[Kind, Residual] = {}
    parameters: dict[Kind, list[str]] = {}
    # Once parents first, for what each constructor passes to the next; what this folds is not kept.
    for kind in reversed(facts.kinds.kinds):
        _fold_constructor(facts, Residual(kind, facts.flat(kind)), {})
    facts.forget_patterns()
    for kind in facts.kinds.kinds:
        residual = Residual(kind, facts.flat(kind))
        _fold_constructor(facts, residual, parameters)
        residuals[kind] = residual
    for kind in reversed(facts.kinds.kinds):
        _fold_methods(facts, residuals[kind])
    return residuals


def _fold_constructor(facts: Facts, residual: Residual, parameters: dict[Kind, list[str]]) -> None:
    kind, flat = residual.kind, residual.flat
    method = flat.init_of(kind.cls)
    parameters[kind] = []
    if method is None:
        return
    _check_self(method, residual, facts)
    constructor = Constructor(facts, kind, flat, parameters)
    folder = Folder(facts, kind, flat, method, constructor)
    names = [p.name.value for p in tree.every_parameter(method.node)[1:]]
    folder.scope.names["self"] = None
    for name in names:
        folder.scope.names[name] = facts.argument(kind, name)
    body = folder.block(tree.body_of(method.node))
    facts.constructed[kind] = {n: v for n, v in folder.scope.names.items() if n.startswith("self.")}
    params = [
        p
        for p in method.node.params.params
        if p.name.value == "self" or not _from_spec(facts, kind, p.name.value)
    ]
    kwonly = [
        p for p in method.node.params.kwonly_params if not _from_spec(facts, kind, p.name.value)
    ]
    body = _hoist_handed(facts, constructor, constructor.with_tables(body))
    params = _with_gained(params, constructor.gained)
    node = tree.with_body(method.node, body)
    star = (
        node.params.star_arg
        if kwonly or not isinstance(node.params.star_arg, cst.ParamStar)
        else cst.MaybeSentinel.DEFAULT
    )
    residual.init = node.with_changes(
        params=node.params.with_changes(
            params=_tidy(params), kwonly_params=_tidy(kwonly), star_arg=star
        )
    )
    parameters[kind] = constructor.gained if constructor.gained else parameters[kind]
    if constructor.declares_mesh:
        parameters[kind] = [*parameters[kind], "mesh"]


def _fold_methods(facts: Facts, residual: Residual) -> None:
    kind, flat = residual.kind, residual.flat
    for name, method in flat.methods.items():
        if name == "__init__":
            continue
        static = any(
            tree.code(d.decorator) in ("staticmethod", "classmethod")
            for d in method.node.decorators
        )
        if not static:
            _check_self(method, residual, facts)
        folder = Folder(facts, kind, flat, method, None)
        for param in tree.every_parameter(method.node):
            folder.scope.names[param.name.value] = None
        node = method.node
        if name == "forward" and kind is not facts.kinds.root:
            _bind(facts, kind, folder)
        new = tree.with_body(node, folder.block(tree.body_of(node)))
        if _yields(node) and not _yields(new):
            new = folder.leave(
                node
            )  # without its only `yield` it would be another kind of function
        residual.methods[name] = new
    head = [tree_doc] if (tree_doc := _class_docstring(flat)) is not None else []
    if head:
        from .comments import fold_docstring

        folder = Folder(
            facts,
            kind,
            flat,
            Method(
                cst.FunctionDef(cst.Name("f"), cst.Parameters(), cst.IndentedBlock([])), kind.cls
            ),
            None,
        )
        for name in {n for b in kind.built for n in b.arguments}:
            folder.scope.names[name] = facts.argument(kind, name)
        folded = fold_docstring(head[0], folder.scope)
        residual.docstring = folded[0] if folded else None
    residual.attributes = list(flat.attributes)


def _bind(facts: Facts, kind: Kind, folder: Folder) -> None:
    """Give the forward's parameters what every call on the page passes for them."""
    binding = facts.bindings[kind]
    if binding.called and not binding.escaped:
        for name, value in binding.values.items():
            if value is not None and not isinstance(value.object, nn.Module):
                folder.scope.names[name] = value


def tighten(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """A parameter that every call passes, and never as None, loses its `= None` and its `| None`;
    in place.
    """
    for kind, residual in residuals.items():
        forward, binding = residual.methods.get("forward"), facts.bindings[kind]
        if forward is None or kind is facts.kinds.root or not binding.called or binding.escaped:
            continue
        params = list(forward.params.params)
        for position, param in enumerate(params):
            value = binding.values.get(param.name.value)
            never_none = value is not None and value.object is not None
            optional = isinstance(param.default, cst.Name) and param.default.value == "None"
            if never_none and optional and all(p.default is None for p in params[:position]):
                params[position] = _required_param(param)
        residual.methods["forward"] = forward.with_changes(
            params=forward.params.with_changes(params=params)
        )
    _tighten_constructors(residuals)


def _tighten_constructors(residuals: dict[Kind, Residual]) -> None:
    """The same for constructors: what every instance was given, and never as None, is required; in
    place.
    """
    for kind, residual in residuals.items():
        if residual.init is None:
            continue
        params = list(residual.init.params.params)
        for position, param in enumerate(params[1:], 1):
            name = param.name.value
            given = all(name in b.given and b.arguments.get(name) is not None for b in kind.built)
            optional = isinstance(param.default, cst.Name) and param.default.value == "None"
            defaulted = optional or (residual.ours and param.default is not None)
            if given and defaulted and all(p.default is None for p in params[:position]):
                params[position] = _required_param(param)
        residual.init = residual.init.with_changes(
            params=residual.init.params.with_changes(params=params)
        )


def _required_param(param: cst.Param) -> cst.Param:
    return param.with_changes(
        default=None, equal=cst.MaybeSentinel.DEFAULT, annotation=_without_none(param.annotation)
    )


def _without_none(annotation: cst.Annotation | None) -> cst.Annotation | None:
    """`X` for `X | None`."""
    if annotation is None or not isinstance(annotation.annotation, cst.BinaryOperation):
        return annotation
    union = annotation.annotation
    if (
        isinstance(union.operator, cst.BitOr)
        and isinstance(union.right, cst.Name)
        and union.right.value == "None"
    ):
        return annotation.with_changes(annotation=union.left)
    return annotation


def _from_spec(facts: Facts, kind: Kind, name: str) -> bool:
    """Whether a constructor's parameter carries a part of the spec: its children, or one child
    built.
    """
    if name == "submodules":
        return True
    for built in kind.built:
        value = built.arguments.get(name)
        if is_spec(value) or (
            isinstance(value, (list, tuple)) and value and all(is_spec(v) for v in value)
        ):
            return True
        if isinstance(value, nn.Module):
            holder = facts.kinds.holder(value)
            if holder is not None and holder[0] is built:
                return True
    return False


def _hoist_handed(facts: Facts, constructor: Constructor, body: list[Any]) -> list[Any]:
    """A child that is read more than once is built once, under its parameter's name."""
    lines: list[Any] = []
    for name, call in constructor.handed.items():
        uses = sum(1 for s in body for n in tree.walk(s) if n is call)
        left = any(name == n for s in body for n in tree.loaded_names(s))
        if uses > 1 or left:
            body = [_with_name(s, call, name) for s in body]
            lines.append(
                cst.SimpleStatementLine([cst.Assign([cst.AssignTarget(cst.Name(name))], call)])
            )
    return [*lines, *body]


def _with_name(statement: Any, call: cst.BaseExpression, name: str) -> Any:
    return tree.replace(statement, lambda node: cst.Name(name) if node is call else None)


def _with_gained(params: list[cst.Param], gained: list[str]) -> list[cst.Param]:
    """The new parameters stand after `config`, else first."""
    names = [p.name.value for p in params]
    for name in gained:
        annotation = cst.Annotation(cst.Name("Mesh" if "mesh" in name else "Config"))
        at = 1
        if "mesh" in name:
            at = next((i + 1 for i, n in enumerate(names) if n in ("config", "model_config")), 1)
        params = [*params[:at], cst.Param(cst.Name(name), annotation), *params[at:]]
        names = [p.name.value for p in params]
    return params


def insert_parameter(function: Any, param: cst.Param) -> Any:
    """A constructor that takes `param` too: the config and the mesh in front, others before
    defaults.
    """
    params = list(function.params.params)
    name = param.name.value
    if name in ("config", "mesh", "model_config", "parallel_mesh"):
        params = _with_gained(params, [name])
    else:
        at = next((i for i, p in enumerate(params) if p.default is not None), len(params))
        params.insert(at, _required_param(param))
    return function.with_changes(params=function.params.with_changes(params=_tidy(params)))


def _tidy(params: list[cst.Param]) -> list[cst.Param]:
    """Without the source's commas and line breaks; a comment on a parameter's line goes with the
    break.
    """
    return [p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in params]


def _yields(function: cst.FunctionDef) -> bool:
    return any(isinstance(item, cst.Yield) for item in tree.own(function))


def _check_self(method: Method, residual: Residual, facts: Facts) -> None:
    params = tree.every_parameter(method.node)
    if method.node.params.posonly_params and method.node.name.value == "__init__":
        refuse(
            "SP326",
            f"the constructor of `{method.owner.__name__}` has parameters before `/`, and a page "
            "passes them by name",
            facts.sources.span(method.node, method.owner),
            help="leave the `/` out",
        )
    if not params or params[0].name.value != "self":
        refuse(
            "SP316",
            f"the first parameter of `{method.owner.__name__}.{method.node.name.value}` is not "
            "`self`",
            facts.sources.span(method.node, method.owner) or span_of_class(method.owner),
            help="call it self: the compiler finds the attributes of a class by that name",
        )


def _class_docstring(flat: Flat) -> Any:
    statements = tree.body_of(flat.node)
    return statements[0] if tree.docstring_of(statements) is not None else None
