"""Leftovers: what names several processes and could not be folded is refused, with its line."""

from __future__ import annotations

from typing import Any, NoReturn

import libcst as cst

from .. import tree
from ..errors import refuse
from .call_graph import call_graph
from .kinds_of import AXIS, MESH, Kinds, kinds_of
from .program import Program
from .read import Page
from .unread import names_read


def refuse_leftovers(program: Program, page: Page) -> None:
    """Raise a CompileError where text still needs the mesh, or the runtime."""
    kinds = kinds_of(program)
    graph = call_graph(program, kinds)
    reached = {id(s.call): s.callees for sites in graph.sites.values() for s in sites}
    for owner, function in program.functions():
        _Checker(program, page, kinds, graph, reached, owner, function).check()
    for name, statement in program.statements.items():
        missing = sorted(
            n for n in names_read(statement) if n in program.pending.keys() - program.statements
        )
        missing = [n for n in missing if n not in ("Mesh", "Axis")]
        if missing:
            _refuse(f"`{name}` still names `{missing[0]}` of the runtime", page, missing[0], name)


class _Checker:
    def __init__(
        self,
        program: Program,
        page: Page,
        kinds: Kinds,
        graph: Any,
        reached: dict[int, Any],
        owner: str | None,
        function: cst.FunctionDef,
    ) -> None:
        self.program, self.page, self.kinds, self.graph = program, page, kinds, graph
        self.reached, self.owner, self.function = reached, owner, function
        self.names = kinds.environment(owner, function)

    def check(self) -> None:
        self._visit(self.function.body, None)

    def _visit(self, node: Any, parent: Any) -> None:
        if isinstance(node, cst.Annotation):
            return
        if isinstance(node, (cst.Name, cst.Attribute)) and not isinstance(parent, cst.AssignTarget):
            kind = self.kinds.of(node, self.names)
            if kind == AXIS or (kind == MESH and not self._is_handed_on(node, parent)):
                what = tree.code(parent if isinstance(parent, cst.Attribute) else node)
                self._refuse(f"`{what}` asks for the mesh", what)
        if isinstance(node, cst.Attribute):
            self._visit(node.value, node)
            return
        if isinstance(node, cst.Call):
            self._visit(node.func, node)
            for position, arg in enumerate(node.args):
                if self.kinds.of(arg.value, self.names) == MESH:
                    self._check_argument(node, position)
                else:
                    self._visit(arg.value, arg)
            return
        for part in tree.parts(node):
            self._visit(part, node)

    def _is_handed_on(self, node: Any, parent: Any) -> bool:
        """`self.mesh = mesh`, `mesh.dtype`."""
        if isinstance(parent, cst.Attribute):
            return parent.attr.value == "dtype"
        return isinstance(parent, (cst.Assign, cst.AnnAssign))

    def _check_argument(self, call: cst.Call, position: int) -> None:
        keys = self.reached.get(id(call), ())
        arg = call.args[position]
        for key in keys:
            params = self.graph.parameters(key)
            name = arg.keyword.value if arg.keyword is not None else None
            param = next((p for p in params if p.name.value == name), None)
            if name is None and position < len(params):
                param = params[position]
            if param is None or self.kinds.annotation(param.annotation) != MESH:
                keys = ()
        if not keys:
            shown = tree.dotted(call.func) or tree.code(call.func)
            self._refuse(f"`{shown}` is handed the mesh", f"{shown}(")

    def _refuse(self, what: str, words: str) -> NoReturn:
        name = self.function.name.value
        where = f"{self.owner}.{name}" if self.owner else name
        if self.program.is_ours(self.owner, self.function):
            refuse(
                "SP683",
                f"`{where}` of the runtime does not come to what one process does: {what}",
                self.page.span(f"{self.owner or name}("),
                help="call it in the way that a page of specc's templates does",
            )
        _refuse(f"in `{where}`, {what}", self.page, words, "mesh")


def _refuse(what: str, page: Page, *words: str) -> NoReturn:
    refuse(
        "SP683",
        f"{what}, and a standalone page has none",
        page.span(*words),
        note="a degree that is read of a parameter annotated `Mesh` is folded to 1",
        help="write `mesh: Mesh` where the mesh is handed over, or take that code out of the page",
    )
