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
    pools = {size: Pool(_zygote, size) for size in (1, 2, 4, 8)}
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


ON_REQUEST = {
    "more_configurations": "--more-configurations",
    "more_kills": "--more-kills",
    "more_layouts": "--more-layouts",
}


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--more-configurations", action="store_true", help="run 500 random configurations, not 100"
    )
    parser.addoption(
        "--more-kills", action="store_true", help="kill 50 runs of `specc train`, not 5"
    )
    parser.addoption(
        "--more-layouts",
        action="store_true",
        help="run every mix of layouts with experts, on up to 8 processes",
    )
    parser.addoption(
        "--update-golden", action="store_true", help="write the golden texts that differ anew"
    )


def pytest_configure(config: pytest.Config) -> None:
    for marker, option in ON_REQUEST.items():
        config.addinivalue_line("markers", f"{marker}: runs with {option}")


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    for marker, option in ON_REQUEST.items():
        if not config.getoption(option):
            skip = pytest.mark.skip(reason=f"runs with {option}")
            for item in items:
                if item.get_closest_marker(marker):
                    item.add_marker(skip)


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """Which pairs of option values the tests of random configurations have run."""
    reports = terminalreporter.stats.get("passed", ())
    ran = [v for r in reports for name, v in r.user_properties if name == "configuration"]
    if ran:
        sys.path.insert(0, str(Path(__file__).parent / "compiler"))
        from configurations import OPTIONS, at_work
        from pairs import summary

        terminalreporter.section("pairs of option values")
        terminalreporter.write_line(summary(ran, OPTIONS, at_work))
