"""Which lines a difference is shown in: the layout that terminal, Markdown and HTML have in common.

Parts that are the same are left out, but for those that lead to one that differs. A chain of these
is one line (`decoder.layers[0..31].mlp`), and so are neighbours that differ in the same way
(`q_norm, k_norm`) and layers of a list (`runs.py`). What follows from what stands above it is left
out too (`told.py`). With `everything` all parts stand there, one a line.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from ..architecture.difference import Change, Difference
from ..architecture.tree import Part, indices_text
from .phrase import Phrase
from .phrases import layers_phrase, phrases_of, said, steps_shown
from .row import Row, Sign
from .runs import MOST_RUNS, merge_runs
from .segment import shortened
from .told import Told, restated

_SIGNS: dict[str, Sign] = {"added": "+", "removed": "-"}


def diff_rows(difference: Difference, *, everything: bool = False) -> tuple[Row, ...]:
    """The lines of a difference, the root's first, the config's last; none where nothing differs
    and not everything is asked for.
    """
    if difference.empty and not everything:
        return ()
    rows: Iterator[Row] = iter(())
    if everything or not difference.root.empty:
        rows = _Layout(everything).rows(difference.root, Told.of(difference), 0)
    return (*rows, *_config_rows(difference))


class _Layout:
    """Makes rows of changes."""

    def __init__(self, everything: bool) -> None:
        self.everything = everything

    def rows(self, change: Change, told: Told, depth: int) -> Iterator[Row]:
        """The rows of a change and of what is below it."""
        row = self.row(change, told, depth)
        groups = list(self.children(change, told.below(change), depth + 1))
        if row.quiet and depth > 0 and len(groups) == 1 and not self.everything:
            yield from (_lifted(below, row) for below in groups[0])
            return
        yield row
        yield from (row for group in self.joined(groups) for row in group)
        if self.everything and change.kind in ("added", "removed"):
            yield from _below(row)

    def children(self, change: Change, told: Told, depth: int) -> Iterator[tuple[Row, ...]]:
        """The rows of each child that is shown, the runs of a list together."""
        shown = [c for c in change.children if self.everything or differs(c, told)]
        for group in _by_list(shown):
            together = 1 < len(group) <= MOST_RUNS and not self.everything
            rows = self.runs(group, told, depth) if together else None
            if rows is None:
                yield from (tuple(self.rows(child, told, depth)) for child in group)
            else:
                yield tuple(rows)

    def runs(self, runs: Sequence[Change], told: Told, depth: int) -> list[Row] | None:
        """The rows of layers of one list, None where they have nothing in common."""
        heads = [self.row(run, told, depth, left_out=("layers", "places")) for run in runs]
        lines: list[tuple[str, list[Row]]] = []
        for run, head in zip(runs, heads, strict=True):
            groups = list(self.children(run, told.below(run), depth + 1))
            below = [row for group in self.joined(groups) for row in group]
            lines.append((indices_text(_part(run).indices), [head, *below]))
        below_all = merge_runs(lines)
        if below_all is None:
            return None
        return [_head(runs, heads), *_rest(heads, lines), *below_all]

    def row(self, change: Change, told: Told, depth: int, left_out: tuple[str, ...] = ()) -> Row:
        part = _part(change)
        explained = restated(change) if self.everything else told.explained(change)
        hidden = {*explained, *left_out}
        found = phrases_of(change, hidden)
        if not self.everything and (others := told.law_of_others(change)):
            found = (*found, Phrase(None, others))
        return Row(
            sign=_SIGNS.get(change.kind, "~") if found else " ",
            depth=depth,
            name=shortened(part.segment) if depth else part.kind,
            paths=(change.path,),
            phrases=found or (Phrase(None, said(part)),),
            parameters=more_parameters(change),
            times=part.times,
            quiet=not found,
            steps=change.steps if self.everything or steps_shown(change, hidden) else (),
            change=change,
            part=part,
        )

    def joined(self, groups: list[tuple[Row, ...]]) -> list[tuple[Row, ...]]:
        """Neighbours that differ in the same way, in one row."""
        found: list[tuple[Row, ...]] = []
        for group in groups:
            last = found[-1] if found else ()
            if not self.everything and len(last) == len(group) == 1 and _alike(last[0], group[0]):
                found[-1] = (_together(last[0], group[0]),)
            else:
                found.append(group)
        return found


def differs(change: Change, told: Told) -> bool:
    """Whether a change or one below it is shown: it differs in more than what its parents say."""
    if change.kind != "same" and not told.explain(change):
        return True
    below = told.below(change)
    return any(differs(child, below) for child in change.children)


def more_parameters(change: Change) -> int:
    """How many more parameters than before one module of what a change stands for has."""
    before, after = change.before, change.after
    return (after.parameters if after else 0) - (before.parameters if before else 0)


def _part(change: Change) -> Part:
    part = change.after or change.before
    assert part is not None  # a change has one side at least
    return part


def _by_list(changes: Sequence[Change]) -> list[list[Change]]:
    """Changes in groups: layers of one list on both sides are one, where its first stands."""
    groups: dict[object, list[Change]] = {}
    for change in changes:
        before, after = change.before, change.after
        listed = before is not None and after is not None and before.indices and after.indices
        key = (before.name, after.name) if before and after and listed else id(change)
        groups.setdefault(key, []).append(change)
    return [*groups.values()]


def _head(runs: Sequence[Change], heads: Sequence[Row]) -> Row:
    """The row of a list: how many layers it has, and what all of them have in common."""
    places = sorted(place for run in runs for place in _part(run).indices)
    before = sum(run.before.times for run in runs if run.before)
    counted = layers_phrase(before, len(places))
    common = [p for p in heads[0].phrases if all(p in head.phrases for head in heads)]
    phrases = [] if heads[0].quiet else common
    more = {head.parameters for head in heads}
    return replace(
        heads[0],
        sign="~" if phrases or before != len(places) else " ",
        name=shortened(f"{_part(runs[0]).name}[{indices_text(tuple(places))}]"),
        paths=tuple(path for head in heads for path in head.paths),
        phrases=(counted, *phrases),
        quiet=not phrases and before == len(places),
        parameters=heads[0].parameters if len(more) == 1 else None,
        times=len(places),
    )


def _rest(heads: Sequence[Row], lines: Sequence[tuple[str, list[Row]]]) -> Iterator[Row]:
    """What the layers' own facts say of some of the layers."""
    for head, (places, _) in zip(heads, lines, strict=True):
        rest = tuple(p for p in head.phrases if not all(p in other.phrases for other in heads))
        if rest and not head.quiet:
            yield replace(head, depth=head.depth + 1, name=f"[{places}]", phrases=rest)


def _lifted(row: Row, above: Row) -> Row:
    """A row on the line of the one above it, where that says nothing itself."""
    depth = row.depth - 1
    if depth > above.depth:
        return replace(row, depth=depth)
    return replace(row, depth=depth, name=f"{above.name}.{row.name}", times=above.times * row.times)


def _alike(row: Row, other: Row) -> bool:
    return (
        (row.sign, row.phrases, row.steps, row.times) == (other.sign, other.phrases, other.steps, 1)
        and not row.quiet
        and "." not in row.name + other.name
    )


def _together(row: Row, other: Row) -> Row:
    return replace(
        row,
        name=f"{row.name}, {other.name}",
        paths=row.paths + other.paths,
        parameters=(row.parameters or 0) + (other.parameters or 0),
    )


def _below(row: Row) -> Iterator[Row]:
    """What is below a part that only one side has."""
    if row.part is None:
        return
    for child in row.part.children:
        count = -child.parameters if row.sign == "-" else child.parameters
        phrase = Phrase(said(child), None) if row.sign == "-" else Phrase(None, said(child))
        path = f"{row.paths[0]}.{child.segment}"
        own = Row(
            row.sign, row.depth + 1, child.segment, (path,), (phrase,), count, child.times,
            part=child,
        )  # fmt: skip
        yield own
        yield from _below(own)


def _config_rows(difference: Difference) -> Iterator[Row]:
    for fact in difference.config:
        before = None if fact.before is None else str(fact.before)
        after = None if fact.after is None else str(fact.after)
        sign: Sign = "+" if before is None else "-" if after is None else "~"
        name = f"config.{fact.name}"
        yield Row(sign, 1, name, (name,), (Phrase(before, after),))
