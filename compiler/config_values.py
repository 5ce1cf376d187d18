"""Config values: what becomes of a whole config that is handed on, put into a list or compared.

A page's Config holds the fields that the page reads. Where a config is read field by field that is
seen; where it goes elsewhere, its readers are found by name, or there are none to be found.
"""

from __future__ import annotations

import builtins
import sys
from collections.abc import Iterator
from types import FunctionType
from typing import Any

import libcst as cst

from . import tree
from .calls import kinds_called
from .errors import refuse
from .facts import Facts
from .kinds import Kind
from .residual import Residual
from .source import SourceFile, is_foldable_module
from .value import is_field_or_property


def follow_config_values(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Note what is read by name of configs that are handed on. Refuses what hands one to code that
    is not on the page."""
    for residual in residuals.values():
        for function in residual.functions():
            parents = {id(part): node for node in tree.walk(function) for part in tree.parts(node)}
            for node in tree.walk(function):
                if id(node) in facts.config_values:
                    _Use(node, parents, function, residual, facts).follow()
    if facts.config_goes_elsewhere:
        _refuse_methods_read(residuals, facts)
        facts.read_by_name |= {
            n for r in residuals.values() for text in r.text() for n in _names_read(text)
        }
        facts.read_by_name |= {n for h in facts.helpers for n in _names_read(h.node)}


def _refuse_methods_read(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """What a config that is handed on is asked for must be something that the page's Config has."""
    texts: list[tuple[cst.CSTNode, SourceFile]] = [
        (text, file)
        for residual in residuals.values()
        for text in residual.text()
        for file in dict.fromkeys(facts.sources.of(owner) for owner in residual.flat.chain)
        if file is not None
    ]
    texts += [(helper.node, facts.sources.file(helper.path)) for helper in facts.helpers]
    for text, file in texts:
        for item in tree.walk(text):
            if isinstance(item, cst.Attribute) and tree.self_attribute(item) is None:
                _refuse_method_read(item, file, facts)


def _refuse_method_read(item: cst.Attribute, file: SourceFile, facts: Facts) -> None:
    name, span = item.attr.value, file.span(item)
    for config in facts.kinds.configs:
        known = is_field_or_property(config, name) or name.startswith("__")
        if span is not None and not known and hasattr(type(config), name):
            refuse(
                "SP208",
                f"`{tree.code(item)}` may be asked of a config that is handed on, and `{name}` "
                f"is no "
                f"field and no property of `{type(config).__name__}`",
                span,
                help="make it a field or a property; the page's Config has nothing else",
            )


def _names_read(text: cst.CSTNode) -> Iterator[str]:
    for item in tree.walk(text):
        if isinstance(item, cst.Attribute):
            yield item.attr.value
        elif isinstance(item, cst.SimpleString):
            yield str(item.raw_value)


# Where the value of an expression goes on, to readers that are found by name.
_HANDING_ON = (
    cst.Return, cst.Yield, cst.Element, cst.DictElement, cst.Lambda, cst.NamedExpr,
    cst.IfExp, cst.BooleanOperation, cst.UnaryOperation, cst.If, cst.Assert, cst.Expr,
)  # fmt: skip


class _Use:
    """One place where a config is a value."""

    def __init__(
        self,
        node: cst.CSTNode,
        parents: dict[int, cst.CSTNode],
        function: cst.FunctionDef,
        residual: Residual,
        facts: Facts,
    ) -> None:
        self.node, self.parents, self.function, self.residual, self.facts = (
            node,
            parents,
            function,
            residual,
            facts,
        )

    def follow(self) -> None:
        parent = self.parents.get(id(self.node))
        if isinstance(parent, cst.Arg):
            self._argument(self.parents.get(id(parent)))
        elif isinstance(parent, (cst.Assign, cst.AnnAssign)):
            targets = (
                [t.target for t in parent.targets]
                if isinstance(parent, cst.Assign)
                else [parent.target]
            )
            if not all(self._keeps(t) for t in targets):
                self.facts.config_goes_elsewhere = True
        elif isinstance(parent, _HANDING_ON):
            self.facts.config_goes_elsewhere = True
        else:
            self._refuse("uses a whole config as a value")

    def _keeps(self, target: cst.BaseExpression) -> bool:
        """Whether the new name of the config is one that the folder followed."""
        name = tree.self_attribute(target)
        if name is not None:
            return self.facts.is_stable(self.residual.flat, name)
        if not isinstance(target, cst.Name):
            return False
        bound = [s for s in tree.walk(self.function) if target.value in tree.bound_names(s)]
        line = self.parents.get(id(bound[0])) if len(bound) == 1 else None
        return line is not None and self.parents.get(id(line)) is self.function.body

    def _argument(self, call: Any) -> None:
        if not isinstance(call, cst.Call):
            self._refuse("uses a whole config as a value")
        func = call.func
        if kinds_called(call, self.facts):
            return
        callee = self._callee(func)
        if callee in (isinstance, type, id) and callee is not None:
            return
        if callee in (getattr, hasattr) and callee is not None:
            name = call.args[1].value if len(call.args) > 1 else None
            if not isinstance(name, cst.SimpleString):
                self._refuse("reads a field of the config by a name that is not written there")
            self.facts.read_by_name.add(str(name.raw_value))  # type: ignore[union-attr]
            return
        if tree.is_super_init(call):
            self._refuse("hands its config to a base that the page imports")
        of_page = isinstance(callee, (FunctionType, type)) and is_foldable_module(callee.__module__)
        own = tree.self_attribute(func) in self.residual.methods
        local = isinstance(func, cst.Name) and func.value in tree.stored_names(self.function.body)
        if of_page:
            self._check_helpers()
        if not (of_page or own or local or isinstance(func, cst.Lambda)):
            self._refuse(f"hands a whole config to `{tree.code(func)}`, which is not on the page")
        self.facts.config_goes_elsewhere = True

    def _callee(self, func: cst.BaseExpression) -> Any:
        first, *rest = (tree.dotted(func) or "").split(".")
        if not first or first in tree.stored_names(self.function.body):
            return None
        for owner in self.residual.flat.chain:
            thing = vars(sys.modules[owner.__module__]).get(first, getattr(builtins, first, None))
            for name in rest:
                thing = getattr(thing, name, None)
            if thing is not None:
                return thing
        return None

    def _check_helpers(self) -> None:
        """A helper that is handed a config must name the fields that it reads."""
        for helper in self.facts.helpers:
            for item in tree.walk(helper.node):
                if not isinstance(item, cst.Call):
                    continue
                word = (tree.dotted(item.func) or "").rpartition(".")[2]
                name = item.args[1].value if len(item.args) > 1 else None
                computed = word == "getattr" and not isinstance(name, cst.SimpleString)
                if computed or word in _ENUMERATING:
                    file = self.facts.sources.file(helper.path)
                    refuse(
                        "SP203",
                        f"`{helper.name}` uses `{word}`, and a config is handed to a helper: the "
                        "page's Config has the fields alone that the page reads by name",
                        file.span(item),
                        help="read each field by its name",
                    )

    def _refuse(self, what: str) -> None:
        span = self.facts.sources.span(self.node, *self.residual.flat.chain)
        refuse(
            "SP203",
            f"`{self.residual.kind.cls.__name__}.{self.function.name.value}` {what}; the page's "
            "Config has the fields alone that the page reads by name",
            span,
            help="read the fields that are needed, by name",
        )


_ENUMERATING = frozenset({"asdict", "astuple", "fields", "replace"})
