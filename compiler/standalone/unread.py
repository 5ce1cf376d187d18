"""Unread: definitions, methods, attributes and fields that nothing reads any more go."""

from __future__ import annotations

import functools
from typing import Any

import libcst as cst

from .. import tree
from ..stage_guards import HIDDEN
from .kinds_of import NONE, Kinds
from .program import Program, is_empty, own_body
from .purity import is_harmless

_PLAIN = frozenset({"Mesh", "Axis", "Tensor", "torch.Tensor", "nn.Parameter", "int", "float"})
_CALLED_BY_TORCH = frozenset({"forward", "__init__"})


def drop_unreached(program: Program) -> None:
    """Take out what `build_model` and the page's own statements do not lead to, in place."""
    reached: set[str] = set()
    pending = [n for n in program.statements if n not in program.ours]
    while pending:
        name = pending.pop()
        if name in reached or name not in program.statements:
            continue
        reached.add(name)
        pending += sorted(names_read(program.statements[name]))
    for name in list(program.statements):
        if name not in reached:
            del program.statements[name]
            program.ours.discard(name)


def drop_unread_members(program: Program, kinds: Kinds, records: frozenset[str]) -> None:
    """Take unread methods and attributes out of the runtime's classes, and attributes that
    folding left unread out of the page's; in place.
    """
    reads = attributes_read(program, kinds)
    words = {
        i.raw_value
        for s in program.statements.values()
        for i in tree.walk(s)
        if isinstance(i, cst.SimpleString)
    }

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef | None:
        name = function.name.value
        ours = owner in program.ours
        if owner is None:
            return function
        read = reads.get(owner, set()) | reads["?"] | words
        if ours and name not in read | _CALLED_BY_TORCH and not name.startswith("__"):
            if not program.may_alter(owner):
                return function
            program.altered.add(owner)
            program.gone.add((owner, name))
            return None
        if name == "__post_init__" and ours and is_empty(own_body(function)):
            return None
        if name == "__init__" and program.closed:
            return _without_stores(function, program, owner, read, records)
        return function

    program.change_functions(change)
    for owner in sorted(program.ours):
        node = program.class_of(owner)
        if node is None or program.is_record(owner) or not program.closed:
            continue
        read = reads.get(owner, set()) | reads["?"] | words
        body = [s for s in tree.body_of(node) if not _is_unread_field(s, read)]
        if len(body) != len(tree.body_of(node)):
            program.statements[owner] = tree.with_body(node, body)


def drop_fields_of_the_trainer(program: Program) -> None:
    """Take fields out of the page's configs that only the trainer reads, as their notes say."""
    read = {
        i.attr.value
        for s in program.statements.values()
        for i in tree.walk(s)
        if isinstance(i, cst.Attribute)
    }
    for name, node in list(program.statements.items()):
        if name in program.ours or not program.is_record(name):
            continue
        body = [s for s in tree.body_of(node) if not _is_for_the_trainer(s, read)]
        if len(body) != len(tree.body_of(node)) and body:
            program.statements[name] = tree.with_body(node, body)


def drop_hidden(program: Program) -> None:
    """Take out the parameter that hands a pipeline's later stages their input: nothing reads it."""

    def change(owner: str | None, function: cst.FunctionDef) -> cst.FunctionDef:
        if owner is None or function.name.value != "forward":
            return function
        if any(isinstance(i, cst.Name) and i.value == HIDDEN for i in tree.walk(function.body)):
            return function
        given = function.params
        kept = {
            "params": [p for p in given.params if p.name.value != HIDDEN],
            "kwonly_params": [p for p in given.kwonly_params if p.name.value != HIDDEN],
        }
        return function.with_changes(params=given.with_changes(**kept))

    program.change_functions(change)


def _is_for_the_trainer(statement: Any, read: set[str]) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small, note = statement.body[0], statement.trailing_whitespace.comment
    return (
        isinstance(small, cst.AnnAssign)
        and isinstance(small.target, cst.Name)
        and small.target.value not in read
        and note is not None
        and "the trainer" in note.value
    )


def attributes_read(program: Program, kinds: Kinds) -> dict[str, set[str]]:
    """The attributes that are read of each class; "?" has those of whatever it may be."""
    reads: dict[str, set[str]] = {"?": set()}

    def note(node: Any, names: Any, stored: set[int]) -> None:
        for item in tree.walk(node):
            if not isinstance(item, cst.Attribute) or id(item) in stored:
                continue
            kind = kinds.of(item.value, names) - NONE
            bare = {k.removeprefix("type:") for k in kind}
            if bare and all(program.class_of(k) is not None or k in _PLAIN for k in bare):
                for one in bare:
                    reads.setdefault(one, set()).add(item.attr.value)
                    for base in program.bases(one):
                        reads.setdefault(base, set()).add(item.attr.value)
            else:
                reads["?"].add(item.attr.value)

    for owner, function in program.functions():
        stored = {id(a) for a in tree.stored_attributes(function)}
        note(function, kinds.environment(owner, function), stored)
    for statement in program.statements.values():
        if not isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
            note(statement, {}, set())
    return reads


def _without_stores(
    function: cst.FunctionDef,
    program: Program,
    owner: str,
    reads: set[str],
    records: frozenset[str],
) -> cst.FunctionDef:
    ours = owner in program.ours

    def kept(statement: Any) -> bool:
        if not isinstance(statement, cst.SimpleStatementLine) or len(statement.body) != 1:
            return True
        small = statement.body[0]
        if isinstance(small, cst.Assign) and len(small.targets) == 1:
            target, value = small.targets[0].target, small.value
        elif isinstance(small, cst.AnnAssign) and small.value is not None:
            target, value = small.target, small.value
        else:
            return True
        name = tree.self_attribute(target)
        if name is None or name in reads or not is_harmless(value, records):
            return True
        return not ours and (name not in program.read_before or _holds_module(small.value))

    body = [s for s in tree.body_of(function) if kept(s)]
    same = len(body) == len(tree.body_of(function))
    return function if same else tree.with_body(function, body)


def _holds_module(value: Any) -> bool:
    """A plain name may hold a module, which an attribute makes a part of the model."""
    return isinstance(value, cst.Name) and value.value not in ("mesh", "parallel_mesh", "dtype")


def _is_unread_field(statement: Any, reads: set[str]) -> bool:
    if not isinstance(statement, cst.SimpleStatementLine):
        return False
    small = statement.body[0]
    return (
        isinstance(small, cst.AnnAssign)
        and small.value is None
        and isinstance(small.target, cst.Name)
        and small.target.value not in reads
    )


@functools.lru_cache(maxsize=1 << 12)
def names_read(node: cst.CSTNode) -> frozenset[str]:
    """Every name that a definition reads, annotations too."""
    found = set(tree.loaded_names(node))
    for item in tree.walk(node):  # an assignment's annotation is no read of its target
        if type(item) is cst.Annotation and isinstance(item, cst.Annotation):
            found |= {n.value for n in tree.walk(item) if isinstance(n, cst.Name)}
    return frozenset(found)
