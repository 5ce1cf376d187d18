"""Validate: a page is its spec's own model, or it is not written.

Two programs are at hand, so they are compared: how they are built and which operations they run at
full size, without values (`names`, `operations`), and their numbers, bit for bit, on a small copy
(`numbers`). What could not be compared is said in a note.
"""

from __future__ import annotations

from collections.abc import Callable

from specc.templates.diagnostic import Diagnostic
from specc.templates.spec import PreparedSpec

from .build import build_ours, build_theirs
from .failure import ValidationError
from .names import compare_names
from .numbers import compare_numbers
from .operations import compare_operations
from .page_module import page_module

__all__ = ["ValidationError", "validate_page"]


def validate_page(
    spec: PreparedSpec, text: str, recompile: Callable[[PreparedSpec], str]
) -> tuple[Diagnostic, ...]:
    """Compare the page `text` with the model of its prepared `spec`.

    `recompile` gives the text of the page of another spec. Returns notes (SP520, SP521) on what
    was not compared and why. Raises ValidationError with what differs first (SP501 to SP506), and
    what the spec's own constructors raise.
    """
    with page_module(text) as page:
        theirs = build_theirs(spec)
        ours = build_ours(page)
        compare_names(ours, theirs, page.__name__)
        notes = compare_operations(spec, page, ours, theirs)
        notes += compare_numbers(spec, text, page, recompile)
    return tuple(notes)
