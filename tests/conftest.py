"""Fixtures of all tests. Importing this forks the zygote that ranks come from: see workers.py."""

from __future__ import annotations

import os
import sys
from pathlib import Path

os.environ["OMP_NUM_THREADS"] = "1"  # before torch: many processes share few cores
sys.path.insert(0, str(Path(__file__).parent))  # `workers` has one name, whatever is a package

from collections.abc import Callable, Iterator
from typing import Any

import pytest
import torch
from workers import Pool, Zygote

torch.set_num_threads(1)
_zygote = Zygote()


@pytest.fixture(scope="session")
def _pools() -> Iterator[dict[int, Pool]]:
    pools = {size: Pool(_zygote, size) for size in (1, 2, 4)}
    yield pools
    for pool in pools.values():
        pool.kill()
    _zygote.close()


@pytest.fixture
def ranks(_pools: dict[int, Pool]) -> Callable[..., list[Any]]:
    """``ranks(4, function, *args)``: the results of ``function(*args)`` on 4 gloo ranks."""

    def run(size: int, function: Callable[..., Any], *args: Any, timeout: float = 120.0) -> Any:
        return _pools[size].run(function, *args, timeout=timeout)

    return run
