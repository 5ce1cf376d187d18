"""Simulations, each once, in a process of their own: a fake process group must reach no test."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import pytest
from jobs import jobs
from one_rank import Job, Measured, simulate, without_group
from workers import Pool

from specc.runtime.workload import Workload


@pytest.fixture(scope="session")
def in_worker(_pools: dict[int, Pool]) -> Iterator[Callable[..., Any]]:
    """``in_worker(function, *args)``, in a process without a process group."""
    pool = Pool(_pools[1]._zygote, 1)
    yield lambda function, *args: pool.run(without_group, function, *args)[0]
    pool.kill()


@pytest.fixture(scope="session")
def alone(in_worker: Callable[..., Any]) -> Callable[[Job], Measured]:
    """``alone(job)``: measured there."""
    return lambda job: in_worker(simulate, job)


@pytest.fixture(scope="session")
def measured(
    alone: Callable[[Job], Measured], tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], tuple[Measured, Workload]]:
    """``measured("llama")``: what a step of that job did, and its numbers for the formulas."""
    named = jobs(tmp_path_factory.mktemp("simulation"))

    @cache
    def run(name: str) -> tuple[Measured, Workload]:
        return alone(named[name]), named[name].workload

    return run
