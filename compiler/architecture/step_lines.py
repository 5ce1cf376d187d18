"""The lines in which two forwards differ, the same seen from either side."""

from __future__ import annotations

import difflib
from collections.abc import Iterator, Sequence

_CONTEXT = 3


def step_lines(before: Sequence[str], after: Sequence[str]) -> tuple[str, ...]:
    """A unified diff without its heading: "-old", "+new", " same", "@@" between distant places.

    Swapping the sides swaps the signs: `difflib` alone does not promise that.
    """
    swapped = tuple(before) > tuple(after)
    sides = (after, before) if swapped else (before, after)
    groups = difflib.SequenceMatcher(None, *sides, autojunk=False).get_grouped_opcodes(_CONTEXT)
    found: list[str] = []
    for number, group in enumerate(groups):
        found += ["@@"] if number else []
        for tag, low, high, other_low, other_high in group:
            places = (low, high, other_low, other_high)
            if swapped:
                places = (other_low, other_high, low, high)
            found += _lines(tag, before[places[0] : places[1]], after[places[2] : places[3]])
    return tuple(found)


def _lines(tag: str, before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    if tag == "equal":
        yield from (f" {line}" for line in before)
        return
    yield from (f"-{line}" for line in before)
    yield from (f"+{line}" for line in after)


def first_difference(before: Sequence[str], after: Sequence[str]) -> tuple[str, str]:
    """The first lines that differ; "nothing" where one side has no more."""
    for one, other in zip(before, after, strict=False):
        if one != other:
            return one.strip(), other.strip()
    rest = [side[min(len(before), len(after)) :] for side in (before, after)]
    return rest[0][0].strip() if rest[0] else "nothing", (
        rest[1][0].strip() if rest[1] else "nothing"
    )
