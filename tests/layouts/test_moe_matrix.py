"""Each kind of router at mixes of ep, etp, tp, pp and dp equals one process that runs the data
parallel ranks' micro-batches one after another: loss, gradients, the routers' losses, their counts
of tokens and their biases after the step.

One mix for each kind; `--more-layouts` runs all of 4 processes, and all of 8 for some kinds.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from moe_matrix import Run, compare, mixes, runs, write_alone, wrong
from moe_pages import DEEPSEEK, KINDS, compiled

from specc.runtime.verify_worker import reference

Ranks = Callable[..., list[Any]]
ALL = (*KINDS, *DEEPSEEK)
EIGHT = ("mixtral", "capacity", *DEEPSEEK)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("matrix")


def every_run(kind: str, processes: int) -> list[Run]:
    one_loss = kind == "global_balance"
    return [
        run
        for number, mix in enumerate(mixes(processes))
        for run in runs(mix, number + ALL.index(kind), one_loss=one_loss)
    ]


def check(ranks: Ranks, folder: Path, kind: str, processes: int, given: list[Run]) -> int:
    """How many runs were compared."""
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
    return len(given)


@pytest.mark.parametrize("kind", ALL)
def test_one_mix(ranks: Ranks, folder: Path, kind: str) -> None:
    every = every_run(kind, 4)
    check(ranks, folder, kind, 4, [every[(len(every) * ALL.index(kind)) // len(ALL)]])


@pytest.mark.more_layouts
@pytest.mark.parametrize(
    ("kind", "processes"), [(kind, 4) for kind in ALL] + [(kind, 8) for kind in EIGHT]
)
def test_every_mix(ranks: Ranks, folder: Path, kind: str, processes: int) -> None:
    check(ranks, folder, kind, processes, every_run(kind, processes))
