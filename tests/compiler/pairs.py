"""Every pair of option values in few configurations, and the table that shows it."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from typing import Any

Options = Mapping[str, tuple[Any, ...]]
AtWork = Callable[[dict[str, Any]], set[str]]
"""Of a drawn configuration, in part or in whole, the options that make a difference in it."""
Value = tuple[str, int]
"""An option and which of its values."""
Pair = tuple[Value, Value]


def possible_pairs(options: Options, at_work: AtWork) -> dict[Pair, None]:
    """The pairs that can work side by side: a scaling of rotary positions needs rotary ones."""
    pairs = {}
    for a, b in itertools.combinations(options, 2):
        for i, j in itertools.product(range(len(options[a])), range(len(options[b]))):
            if {a, b} <= at_work({a: options[a][i], b: options[b][j]}):
                pairs[((a, i), (b, j))] = None
    return pairs


def pairs_of(drawn: dict[str, Any], options: Options, at_work: AtWork) -> set[Pair]:
    """The pairs of one configuration, in part or in whole."""
    working = at_work(drawn)
    values = [(n, options[n].index(drawn[n])) for n in options if n in working]
    return set(itertools.combinations(values, 2))


def covering(options: Options, at_work: AtWork) -> list[dict[str, Any]]:
    """Configurations in which every possible pair occurs.

    Greedy: each starts from the first pair that is still missing, and gives every other option in
    turn the value that brings the most missing pairs, the one least used among equals.
    """
    missing = possible_pairs(options, at_work)
    used: Counter[Value] = Counter()
    rows = []
    while missing:
        first = next(iter(missing))
        row = {name: options[name][index] for name, index in first}
        for name in options:
            if name in row:
                continue
            best: tuple[int, int, int] | None = None
            for index, value in enumerate(options[name]):
                trial = {**row, name: value}
                pairs = pairs_of(trial, options, at_work)
                if first in pairs:
                    rank = (len(pairs & missing.keys()), -used[name, index], -index)
                    best = max(best or rank, rank)
            assert best is not None, f"no value of {name} goes with {first}"
            row[name] = options[name][-best[2]]
        rows.append({name: row[name] for name in options})
        used.update((name, options[name].index(row[name])) for name in options)
        for pair in pairs_of(row, options, at_work):
            missing.pop(pair, None)
    return rows


def summary(ran: Iterable[Iterable[Value]], options: Options, at_work: AtWork) -> str:
    """What was run, as the options at work and their values: how many, and how often each pair.

    A triangle: for each two options, how often the rarest pair of their values came.
    """
    rows = {tuple((name, index) for name, index in row) for row in ran}
    counts = Counter(pair for row in rows for pair in itertools.combinations(row, 2))
    possible = possible_pairs(options, at_work)
    rarest: dict[tuple[str, str], int] = {}
    for (a, i), (b, j) in possible:
        count = counts[(a, i), (b, j)]
        rarest[a, b] = min(rarest.get((a, b), count), count)
    names = list(options)
    width = max(map(len, names))
    came = sum(counts[pair] > 0 for pair in possible)
    lines = [
        f"{len(rows)} configurations; {came} of {len(possible)} pairs, the rarest of them "
        f"{min(rarest.values())} times; by two options, the rarest:",
        " " * (width + 3) + "".join(f"{n:>4}" for n in range(1, len(names))),
    ]
    for row, name in enumerate(names):
        shown = "".join(f"{rarest[other, name]:>4}" for other in names[:row])
        lines.append(f"{row + 1:>2} {name:<{width}}{shown}")
    return "\n".join(lines)
