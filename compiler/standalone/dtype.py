"""What is left of the mesh: the dtype that activations have.

A parameter or attribute that held the mesh holds the dtype; where nothing reads that, it has gone.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .kinds_of import MESH, kinds_of
from .program import Program

DTYPE = "dtype"
# What a page says of its model, and what is true of it where no `materialize` gives the values.
_HASHED = (
    "The model with initial values that depend on the seed and on each parameter's name alone."
)
_DRAWN = "The model with initial values that torch's generator draws."


def mesh_to_dtype(program: Program) -> None:
    """Put the dtype in the place of the mesh, in place, and make `build_model` take it last."""
    kinds = kinds_of(program)

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        names = kinds.environment(owner, function)
        meshes = {n for n in names if names[n] == MESH}

        def visit(node: Any) -> Any:
            if isinstance(node, cst.Attribute):
                if node.attr.value == "dtype" and kinds.of(node.value, names) == MESH:
                    return visit(node.value)
                value = visit(node.value)
                if kinds.of(node, names) == MESH:
                    return node.with_changes(value=value, attr=cst.Name(DTYPE))
                return node if value is node.value else node.with_changes(value=value)
            if isinstance(node, cst.Arg):
                value = visit(node.value)
                keyword = node.keyword.value if node.keyword is not None else ""
                names_it = keyword in ("mesh", "parallel_mesh")
                if names_it and kinds.of(node.value, names) == MESH:
                    return node.with_changes(value=value, keyword=cst.Name(DTYPE))
                return node if value is node.value else node.with_changes(value=value)
            if isinstance(node, cst.Param) and node.name.value in meshes:
                return node.with_changes(name=cst.Name(DTYPE), annotation=_annotation(program))
            if isinstance(node, cst.Name) and node.value in meshes:
                return cst.Name(DTYPE)
            return tree.rebuild(node, visit)

        return visit(function)  # type: ignore[no-any-return]

    program.change_functions(change)
    build = program.statements["build_model"]
    program.statements["build_model"] = _build_model(build, program)


def _annotation(program: Program) -> cst.Annotation:
    program.imports.setdefault("torch", "import torch")
    return cst.Annotation(cst.parse_expression("torch.dtype"))


def _build_model(function: cst.FunctionDef, program: Program) -> cst.FunctionDef:
    """`build_model(config=Config(), dtype=torch.float32)`: what its body reads, the dtype last."""
    read = set(tree.loaded_names(function.body))
    kept = [p for p in tree.parameters(function) if p.name.value in read]
    kept = [p.with_changes(comma=cst.MaybeSentinel.DEFAULT) for p in kept]
    others = [p for p in kept if p.name.value != DTYPE]
    last = [
        p.with_changes(default=cst.parse_expression("torch.float32"))
        for p in kept
        if p.name.value == DTYPE
    ]
    params = cst.Parameters(params=[*others, *last])
    body = list(tree.body_of(function))
    docstring = tree.docstring_of(body)
    if docstring is not None and docstring.raw_value == _HASHED:
        words = cst.SimpleString(f'"""{_DRAWN}"""')
        body[0] = cst.SimpleStatementLine([cst.Expr(words)])
    return tree.with_body(function.with_changes(params=params), body)
