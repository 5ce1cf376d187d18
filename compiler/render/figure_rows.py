"""The figures of two models side by side, or of one."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from ..architecture.figure import Figure
from .numbers import percent, short


@dataclass(frozen=True)
class FigureRow:
    """A line of the figures: `before` is empty where one model is shown, a side that lacks the
    figure has a dash. `change` is empty where there is nothing to compare.
    """

    name: str
    label: str
    level: int
    before: str
    after: str
    change: str
    note: str


NONE = "-"


def figure_rows(before: Sequence[Figure], after: Sequence[Figure]) -> tuple[FigureRow, ...]:
    """The figures of both, in the order of the later."""
    firsts = {figure.name: figure for figure in before}
    seconds = {figure.name: figure for figure in after}
    return tuple(
        _compared(firsts.get(name), seconds.get(name)) for name in merged([*firsts], [*seconds])
    )


def lone_rows(figures: Sequence[Figure]) -> tuple[FigureRow, ...]:
    """The figures of one model."""
    return tuple(FigureRow(f.name, f.label, f.level, "", _value(f), "", f.note) for f in figures)


def _compared(before: Figure | None, after: Figure | None) -> FigureRow:
    figure = after or before
    assert figure is not None  # a name comes from one of the two
    change = ""
    if before and after and before.value is not None and after.value is not None:
        change = percent(before.value, after.value)
    note = _notes(before.note, after.note) if before and after else figure.note
    return FigureRow(
        figure.name, figure.label, figure.level, _value(before), _value(after), change, note
    )


def _notes(before: str, after: str) -> str:
    """What both notes say, then what only one does: `bf16; before: 4,096 in a window`."""
    first, second = before.split(", "), after.split(", ")
    found = [", ".join(part for part in second if part in first)]
    for side, own, other in (("before", first, second), ("after", second, first)):
        alone = ", ".join(part for part in own if part not in other)
        found.append(f"{side}: {alone}" if alone else "")
    return "; ".join(filter(None, found))


def _value(figure: Figure | None) -> str:
    return NONE if figure is None or figure.value is None else short(figure.value, figure.unit)


def merged(first: list[str], second: list[str]) -> list[str]:
    """Names of both lists: the second's order, each that the first alone has behind the one that
    it stands behind there."""
    merged = list(second)
    for index, name in enumerate(first):
        if name not in merged:
            before = next((n for n in reversed(first[:index]) if n in merged), None)
            merged.insert(merged.index(before) + 1 if before else 0, name)
    return merged
