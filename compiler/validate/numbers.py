"""The same numbers, bit for bit, on the smallest copy of the spec that stands for it."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from torch import nn

from specc.runtime import Mesh, materialize
from specc.templates.diagnostic import Diagnostic
from specc.templates.spec import PreparedSpec, construct

from .copies import Copy, copies
from .difference import Side, first_difference, refuse
from .failure import differ, reason
from .page_module import page_module
from .same_text import same_text
from .session import Numbers, is_finite
from .stages import compare_stages

SEED = 1


def compare_numbers(
    spec: PreparedSpec, text: str, page: Any, recompile: Callable[[PreparedSpec], str]
) -> list[Diagnostic]:
    """Raises ValidationError at the first number that differs; a note where none were compared.

    A small copy of the spec is run beside the page with the copy's numbers in its Config. If they
    are equal, so is the page. If not, or if the page has numbers outside its Config, the copy is
    compiled: it stands for the page only if that gives the page's text, and then has to be equal.
    The page that is equal is run once more in stages, where it says that it can be cut into them.
    """
    refused: list[str] = []
    for copy in copies(spec, refused):
        theirs = Side(lambda copy=copy: _theirs(copy), copy)  # type: ignore[misc]
        try:
            expected = theirs.run()
        except Exception as error:
            refused.append(f"the spec's own model {copy.described()}: {reason(error)}")
            continue
        if not is_finite(expected):
            refused.append(f"the spec's own model {copy.described()} gives numbers beyond range")
            continue
        if _is_equal(text, page, copy, expected):
            return _note_of_inputs(theirs)
        if copy.is_whole:
            return _compared(text, page, copy, theirs, expected)
        try:
            small_text = recompile(copy.spec)
        except Exception as error:
            refused.append(f"a copy can't be compiled: {reason(error)}")
            continue
        if not same_text(text, small_text, copy.literals):
            refused.append("a smaller copy has another page")
            continue
        with page_module(small_text) as small:
            return _compared(small_text, small, copy, theirs, expected)
    reasons = "; ".join(dict.fromkeys(refused)) or "there is no copy of it"
    return [_note(f"no copy of the model could stand for it ({reasons})")]


def _theirs(copy: Copy) -> nn.Module:
    mesh = Mesh.single()
    model: nn.Module = materialize(lambda: construct(copy.spec, mesh), mesh, seed=SEED)
    return model


def _is_equal(text: str, page: Any, copy: Copy, expected: Numbers) -> bool:
    """Whether the page itself, with the copy's numbers in its Config, gives the same."""
    config = _page_config(page, copy)
    if config is None and not copy.is_whole:
        return False
    args = () if config is None else (config,)
    try:
        ours = Side(lambda: page.build_model(Mesh.single(), *args, seed=SEED), copy).run()
    except Exception:  # a number on the page that is not in its Config; the copy's page will tell
        return False
    if first_difference(ours, expected) is not None:
        return False
    compare_stages(text, args, copy, expected)
    return True


def _page_config(page: Any, copy: Copy) -> Any:
    """The page's Config with the numbers of the copy; None where it has no Config, or several."""
    cls = getattr(page, "Config", None)
    if cls is None:
        return None
    fields = dataclasses.fields(cls)
    if copy.is_whole:
        return cls()
    distinct: list[tuple[Any, Any]] = []
    for old, new in copy.configs:
        if not any(old == other and type(old) is type(other) for other, _ in distinct):
            distinct.append((old, new))
    if len(distinct) != 1:
        return None
    _, new = distinct[0]
    if any(not hasattr(new, f.name) for f in fields):
        return None
    changed = {
        f.name: getattr(new, f.name)
        for f in fields
        if getattr(new, f.name) != getattr(distinct[0][0], f.name)
    }
    try:
        return dataclasses.replace(cls(), **changed)
    except Exception:  # what folding assumed of the numbers does not hold of these
        return None


def _compared(
    text: str, page: Any, copy: Copy, theirs: Side, expected: Numbers
) -> list[Diagnostic]:
    ours = Side(lambda: page.build_model(Mesh.single(), seed=SEED), copy)
    try:
        found = ours.run()
    except Exception as error:
        differ("SP505", f"the page's model does not run {copy.described()}: {reason(error)}")
    difference = first_difference(found, expected)
    if difference is None:
        compare_stages(text, (), copy, expected)
        return _note_of_inputs(theirs)
    if first_difference(theirs.run(), expected) is not None:
        return [_note("two runs of the spec's own model give different numbers")]
    refuse(difference, ours, theirs)


def _note(why: str) -> Diagnostic:
    return Diagnostic("SP521", f"validated structurally, not numerically: {why}")


def _note_of_inputs(side: Side) -> list[Diagnostic]:
    if side.refusal is None:
        return []
    return [_note(f"only initial values were compared, since {side.refusal}")]
