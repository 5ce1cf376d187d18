"""Link: definitions of the runtime that text refers to are brought into the program.

Only what folded text still names: what a branch for several processes calls never comes in.
"""

from __future__ import annotations

from typing import Any

import libcst as cst

from .. import tree
from .guards import without_guards
from .kinds_of import kinds_of
from .program import Home, Program
from .records import record_names
from .runtime_source import RuntimeFile, home_of, runtime_file
from .simplify import Simplifier
from .substitute import substituted
from .unread import attributes_read, names_read

MESH = frozenset({Home("mesh", "Mesh"), Home("mesh", "Axis")})  # the constant: never brought in
STANDALONE = Home("standalone", "STANDALONE")


class Late(Exception):
    """Calls came in of what was altered when they were not seen."""

    def __init__(self, names: set[str]) -> None:
        super().__init__(names)
        self.names = names


def link(program: Program, *, layers: bool = False) -> bool:
    """Bring in every definition that is named and missing, in place; says whether there was one.

    `layers`: only module classes and what they name.
    """
    named = {
        n
        for key, s in program.statements.items()
        for n in names_read(s)
        if not layers or key in program.ours or _is_layer(program.pending.get(n))
    }
    wanted = [n for n in program.pending if n in named and n not in program.statements]
    found: list[str] = []
    for name in wanted:
        home = program.pending[name]
        if home in MESH:
            continue
        program.statements[name] = _definition(name, home, program)
        program.ours.add(name)
        found.append(name)
    _simplify(program, found)
    for name in found:
        called = _called(program.statements[name]) & program.altered
        if called:
            raise Late(called)
    reads = attributes_read(program, kinds_of(program))
    missed = {owner for owner, name in program.gone if name in reads.get(owner, ())}
    if missed:
        raise Late(missed)
    return bool(found)


def _simplify(program: Program, names: list[str]) -> None:
    """Take the branches for several processes out of what came in, with the calls in them."""
    kinds, records = kinds_of(program), record_names(program)

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        if (owner or function.name.value) not in names:
            return function
        new: cst.FunctionDef = Simplifier(program, kinds, {}, records, owner, function).result()
        return new

    program.change_functions(change)


def _called(node: Any) -> set[str]:
    """Functions and classes that a definition calls, `f(...)` and `C.m(...)`."""
    return {
        (tree.dotted(item.func) or "").split(".")[0]
        for item in tree.walk(node)
        if isinstance(item, cst.Call)
    }


def _is_layer(home: Home | None) -> bool:
    node = None if home is None else runtime_file(home.module).definitions.get(home.name)
    return isinstance(node, cst.ClassDef) and any(
        tree.code(b.value) == "nn.Module" for b in node.bases
    )


def _definition(name: str, home: Home, program: Program) -> Any:
    file = runtime_file(home.module)
    node = file.definitions[home.name]
    mapping: dict[str, cst.BaseExpression] = {}
    for used in dict.fromkeys(names_read(node)):
        target = home_of(home.module, used)
        if target == STANDALONE:
            mapping[used] = cst.Name("True")
        elif target is not None:
            flat = _flat(target, program)
            mapping[used] = cst.Name(flat)
        elif used in file.outside:
            mapping[used] = cst.Name(_outside(used, file, program))
    node = without_guards(substituted(node, mapping))
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        return node.with_changes(name=cst.Name(name))
    return node


def _flat(home: Home, program: Program) -> str:
    """The name of a runtime's definition in the program: its own, where no other has it."""
    if home in program.flat:
        return program.flat[home]
    name = home.name
    while name in program.statements or name in program.pending or name in program.imports:
        name = f"{home.module}_{home.name.lstrip('_')}" if name == home.name else f"{name}_"
    program.pending[name] = home
    program.flat[home] = name
    return name


def _outside(used: str, file: RuntimeFile, program: Program) -> str:
    """The name that a thing of another package is imported by."""
    line = file.outside[used]
    for name, other in program.imports.items():
        if other.split(" as ")[0] == line.split(" as ")[0]:
            return name
    name = used
    taken = program.statements.keys() | program.pending.keys() | program.imports.keys()
    while name in taken:
        name += "_"
    if name != used:
        line = f"{line.split(' as ')[0]} as {name}"
    program.imports[name] = line
    return name
