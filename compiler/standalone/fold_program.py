"""Fold: the program comes to what one process runs, and nothing is left that says so.

Rounds of small rewritings, each decided from the program's text as it stands, until none changes
it; then the definitions that are still named come in, and it begins again.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import libcst as cst

from .. import tree
from .inline_calls import inline_calls
from .kinds_of import kinds_of
from .link import Late, link
from .narrow import narrow
from .one_class import unite_classes
from .program import Program
from .records import constant_attributes, join_fields, record_names, unwrap
from .signatures import bind_constants, drop_unread
from .simplify import Simplifier
from .tidy_locals import tidy_locals
from .unread import drop_unreached, drop_unread_members

MOST_ROUNDS = 200


def folded(read: Callable[[], Program]) -> Program:
    """What `read` gives, a page as it stands, with the runtime folded in."""
    late: set[str] = set()
    while True:
        program = read()
        program.late = set(late)
        try:
            fold_program(program)
        except Late as error:
            assert not error.names <= late, error.names
            late |= error.names
        else:
            return program


def fold_program(program: Program) -> None:
    """Bring in what the page names of the runtime and fold it all, in place. Raises Late."""
    named = frozenset(program.pending)
    _bind_root(program)
    while link(program, layers=True):
        _to_a_fixed_point(program, named, bind=False)
    unite_classes(program, _trimmed(program))
    _to_a_fixed_point(program, named, bind=True)
    while link(program):
        _to_a_fixed_point(program, named, bind=True)
    program.closed = True
    _to_a_fixed_point(program, named, bind=True)
    program.settled = True
    _to_a_fixed_point(program, named, bind=True)
    drop_unreached(program)


def _to_a_fixed_point(program: Program, named: frozenset[str], *, bind: bool) -> None:
    before = program.text()
    for _ in range(MOST_ROUNDS):
        _round(program, named, bind=bind)
        after = program.text()
        if after == before:
            return
        before = after
    raise AssertionError("folding does not come to an end")


def _round(program: Program, named: frozenset[str], *, bind: bool) -> None:
    records = record_names(program)
    kinds = kinds_of(program)
    constants = constant_attributes(program, kinds, records) if bind else {}
    program.change_functions(
        lambda owner, f: Simplifier(program, kinds, constants, records, owner, f).result()
    )
    program.change_functions(
        lambda owner, f: tidy_locals(f, program, records, program.is_ours(owner, f))
    )
    drop_unreached(program)
    inline_calls(program, kinds_of(program), records, named, program.settled)
    drop_unreached(program)
    if bind:
        bind_constants(program, kinds_of(program), records)
        narrow(program, kinds_of(program))
    if program.closed:
        join_fields(program, kinds_of(program), records)
    drop_unread(program, kinds_of(program), records)
    drop_unread_members(program, kinds_of(program), records)
    if program.closed:
        unwrap(program, kinds_of(program), record_names(program))


def _bind_root(program: Program) -> None:
    """Parameters of the top module that only a runtime could fill are what they are without one."""
    build = program.statements["build_model"]
    roots = [n for n in tree.loaded_names(build.body) if program.class_of(n) is not None]
    for root in roots:
        forward = program.method(root, "forward")
        if forward is None:
            continue
        gone = [
            p
            for p in tree.parameters(forward)
            if p.annotation is not None
            and set(tree.loaded_names(p.annotation)) & program.pending.keys()
            and isinstance(p.default, cst.Name)
            and p.default.value == "None"
        ]
        if gone:
            program.change_functions(
                lambda owner, f, root=root, gone=gone: (  # type: ignore[misc]
                    _without(f, gone) if owner == root and f.name.value == "forward" else f
                )
            )


def _trimmed(program: Program) -> Program:
    """The program as it would be without what nothing reads so far."""
    trial = dataclasses.replace(
        program,
        statements=dict(program.statements),
        ours=set(program.ours),
        altered=set(),
        gone=set(),
        memory={},
        closed=True,
    )
    before = ""
    while (after := trial.text()) != before:
        before = after
        drop_unread(trial, kinds_of(trial), record_names(trial))
        drop_unread_members(trial, kinds_of(trial), record_names(trial))
    return trial


def _without(function: cst.FunctionDef, gone: list[cst.Param]) -> cst.FunctionDef:
    from .signatures import without_parameters

    names = {p.name.value for p in gone}
    return without_parameters(function, names, dict.fromkeys(names, cst.Name("None")))
