"""Writes a pipeline's tests into an author's forward, and leaves all else as it stands."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import libcst as cst

from . import tree
from .stage_flow import Flow
from .stage_reads import NoCut

HIDDEN = "hidden"  # what later stages are given; the runtime calls it so
FIRST, LAST = "first_stage", "last_stage"  # of the mesh
STAGE_WORDS = (HIDDEN, FIRST, LAST)  # what stands on a page for a pipeline's sake


def insert_guards(text: str, class_name: str, flow: Flow) -> str:
    """The page's text with the tests in the forward of one class. Raises NoCut where its names are
    taken or its constructor is given no mesh.
    """
    module = cst.parse_module(text)
    annotated = "\nfrom torch import Tensor" in text
    body = [
        (
            _guarded_class(node, flow, annotated=annotated)
            if isinstance(node, cst.ClassDef) and node.name.value == class_name
            else node
        )
        for node in module.body
    ]
    return module.with_changes(body=body).code


def _guarded_class(node: cst.ClassDef, flow: Flow, *, annotated: bool) -> cst.ClassDef:
    mesh = _mesh_parameter(node)
    statements: list[Any] = []
    for statement in tree.body_of(node):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            statement = _keeping_mesh(statement, mesh)
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "forward":
            statement = _guarded_forward(statement, flow, f"self.{mesh}", annotated=annotated)
        statements.append(statement)
    return tree.with_body(node, statements)


def _mesh_parameter(node: cst.ClassDef) -> str:
    for statement in tree.body_of(node):
        if isinstance(statement, cst.FunctionDef) and statement.name.value == "__init__":
            for parameter in tree.every_parameter(statement):
                annotation = parameter.annotation
                if annotation is not None and tree.code(annotation.annotation) == "Mesh":
                    return parameter.name.value
    raise NoCut(f"the constructor of {node.name.value} is given no mesh")


def _keeping_mesh(init: cst.FunctionDef, mesh: str) -> cst.FunctionDef:
    kept = f"self.{mesh} = {mesh}"
    statements = list(tree.body_of(init))
    stores = [tree.code(s).strip() for s in statements]
    if any(text.startswith(kept) for text in stores):
        return init
    if any(f"self.{mesh} =" in text for text in stores):
        raise NoCut(f"self.{mesh} is something else than the mesh")
    place = next((i + 1 for i, t in enumerate(stores) if "super().__init__" in t), 0)
    statements.insert(place, cst.parse_statement(kept))
    return tree.with_body(init, statements)


def _guarded_forward(
    forward: cst.FunctionDef, flow: Flow, mesh: str, *, annotated: bool
) -> cst.FunctionDef:
    statements = list(tree.body_of(forward))
    later = flow.activation or HIDDEN
    if flow.activation is None:
        if HIDDEN in {p.name.value for p in tree.every_parameter(forward)} | {
            n.value for n in tree.walk(forward) if isinstance(n, cst.Name)
        }:
            raise NoCut(f"forward has a name `{HIDDEN}` of its own")
        forward = _with_hidden(forward, annotated=annotated)
    _refuse_shared_lines(statements)
    layers = flow.layers
    after: list[Any] = statements[layers + 1 :]
    if flow.guard_last:
        test = cst.parse_statement(f"if not {mesh}.{LAST}:\n    return {flow.result}\n")
        after = [test, *after]
    run = statements[layers]
    before: list[Any] = []
    groups = _groups(flow.on_first)
    needs_else = flow.given != flow.activation and flow.argument is None
    for number, statement in enumerate(statements[:layers]):
        group = next((g for g in groups if number in g), None)
        if group is None:
            before.append(statement)
        elif number == group[0]:
            inside = [statements[i] for i in group]
            is_last = needs_else and group is groups[-1]
            before.append(_first_only(inside, mesh, flow.given, later if is_last else None))
    if flow.argument is not None:
        before.append(
            cst.parse_statement(f"{flow.result} = {flow.argument} if {mesh}.{FIRST} else {later}")
        )
        run = _given_name(run, flow)
    return tree.with_body(forward, [*before, run, *after])


def _refuse_shared_lines(statements: Sequence[Any]) -> None:
    """`ast`, which the flow was read from, and libcst number statements alike but for these."""
    for statement in statements:
        if isinstance(statement, cst.SimpleStatementLine) and len(statement.body) != 1:
            raise NoCut("forward has two statements on a line", tree.code(statement).strip())


def _groups(numbers: Sequence[int]) -> list[list[int]]:
    """Neighbours together."""
    groups: list[list[int]] = []
    for number in numbers:
        if groups and groups[-1][-1] == number - 1:
            groups[-1].append(number)
        else:
            groups.append([number])
    return groups


def _first_only(inside: list[Any], mesh: str, given: str, later: str | None) -> Any:
    """The statements under a test; one plain assignment of what goes on becomes a choice."""
    test = f"{mesh}.{FIRST}"
    only = inside[0] if len(inside) == 1 else None
    if later is not None and isinstance(only, cst.SimpleStatementLine):
        assign = only.body[0]
        if (
            isinstance(assign, cst.Assign)
            and len(assign.targets) == 1
            and tree.code(assign.targets[0].target) == given
        ):
            value = cst.IfExp(
                test=cst.parse_expression(test),
                body=(
                    tree.parenthesised(assign.value)
                    if isinstance(assign.value, cst.IfExp | cst.Lambda | cst.Tuple)
                    else assign.value
                ),
                orelse=cst.Name(later),
            )
            return only.with_changes(body=[assign.with_changes(value=value)])
    tail = f"else:\n    {given} = {later}\n" if later is not None else ""
    frame = cst.parse_statement(f"if {test}:\n    pass\n{tail}")
    assert isinstance(frame, cst.If)
    return frame.with_changes(body=cst.IndentedBlock(body=inside))


def _given_name(run: Any, flow: Flow) -> Any:
    """The call of the layers with the name that the argument now has."""

    def swap(node: cst.CSTNode) -> cst.CSTNode | None:
        if isinstance(node, cst.Arg) and tree.code(node.value) == flow.argument:
            return node.with_changes(value=cst.Name(flow.result))
        return None

    return tree.replace(run, swap)


def _with_hidden(forward: cst.FunctionDef, *, annotated: bool) -> cst.FunctionDef:
    """`hidden` as the last parameter that may be given by name."""
    annotation = cst.Annotation(cst.parse_expression("Tensor | None")) if annotated else None
    extra = cst.Param(cst.Name(HIDDEN), annotation, default=cst.Name("None"))
    given = forward.params
    if given.kwonly_params or given.star_arg is not cst.MaybeSentinel.DEFAULT:
        return forward.with_changes(
            params=given.with_changes(kwonly_params=[*given.kwonly_params, extra])
        )
    return forward.with_changes(params=given.with_changes(params=[*given.params, extra]))
