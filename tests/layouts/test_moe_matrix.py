"""Each kind of router at mixes of ep, etp, tp, pp and dp equals one process that runs the data
parallel ranks' micro-batches one after another: loss, gradients, the routers' losses, their counts
of tokens and their biases after the step.

One mix for the kinds that no other test has; `--more-layouts` runs all of 4 processes, and of
8 those of tp 2 x pp 2 x dp 2 and of tp 2 x ep 2 x dp 4, for every kind.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moe_matrix import Run, compare, mixes, runs, write_alone, wrong
from moe_pages import DEEPSEEK, KINDS, compiled

from specc.runtime.layouts import Degrees
from specc.runtime.verify_worker import reference

Ranks = Callable[..., list[Any]]
ALL = (*KINDS, *DEEPSEEK)
QUICK = (
    "softmax_first",
    "global_balance",
    "groups_capacity",
    "capacity_by_position",
    "padded",
    "shared_gated",
    "deepseek_capacity",
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


def every_run(kind: str, processes: int) -> list[Run]:
    one_loss = kind == "global_balance"
    chosen = mixes(processes)
    if processes == 8:
        chosen = [mix for mix in chosen if mix.tp == 2 and _named(mix)]
    return [
        run
        for number, mix in enumerate(chosen)
        for run in runs(mix, number + ALL.index(kind), one_loss=one_loss)
    ]


def _named(mix: Degrees) -> bool:
    return mix.schedule == "1f1b" if mix.pp == 2 else mix.pp == 1 and mix.ep == 2


def check(ranks: Ranks, folder: Path, kind: str, processes: int, given: list[Run]) -> None:
    file = folder / f"{kind}.py"
    file.write_text(compiled(kind))
    for run in given:
        write_alone(file, folder, reference(run.case, routed=True))
    results = ranks(processes, compare, file, folder, given, timeout=60 + 20.0 * len(given))
    assert all(len(found) == len(given) for found in results)
    found = {run: max(result[run] for result in results) for run in results[0]}
    worst = max(found, key=lambda run: found[run])
    print(f"\n{kind}, {processes} processes: {len(given)} runs, at most {found[worst]} at {worst}")
    assert not wrong(results), "\n".join(wrong(results)[:40])


@pytest.mark.parametrize("kind", QUICK)
def test_one_mix(ranks: Ranks, folder: Path, kind: str) -> None:
    every = every_run(kind, 4)
    check(ranks, folder, kind, 4, [every[(len(every) * ALL.index(kind)) // len(ALL)]])


@pytest.mark.more_layouts
@pytest.mark.parametrize(
    ("kind", "processes"), [(kind, n) for kind in ALL for n in (4, 8) if every_run(kind, n)]
)
def test_every_mix(ranks: Ranks, folder: Path, kind: str, processes: int) -> None:
    check(ranks, folder, kind, processes, every_run(kind, processes))
