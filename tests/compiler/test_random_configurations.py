"""Pages of random configurations equal their interpreter, bit for bit, by the tests' own measure.

500 configurations: first few that hold every pair of option values, then what hypothesis draws, the
same ones on every run. 100 of them run always, the others with `pytest --more-configurations`. The
table of pairs stands at the end of the report.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import pytest
from configurations import OPTIONS, VOCAB, at_work, options, spec_of
from equality import assert_page_equals_spec, token_inputs
from hypothesis import HealthCheck, assume, given, seed, settings
from pairs import covering, possible_pairs

ROWS = covering(OPTIONS, at_work)
CHUNK = 10  # configurations of one test: the tests spread over processes
ALWAYS, ALL = 100, 500

Record = Callable[[str, object], None]


def identity(drawn: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """Which configuration this is: options that make no difference do not count."""
    working = at_work(drawn)
    return tuple((n, OPTIONS[n].index(drawn[n])) for n in OPTIONS if n in working)


@functools.cache
def configurations() -> list[dict[str, Any]]:
    """The rows with every pair, then what hypothesis draws; no two are the same."""
    found = {identity(row): row for row in ROWS}

    @seed(0)
    @settings(
        max_examples=ALL - len(ROWS),
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
    )
    @given(options())
    def draw(drawn: dict[str, Any]) -> None:
        assume(identity(drawn) not in found)
        found[identity(drawn)] = drawn

    draw()
    return list(found.values())


def test_every_pair_of_option_values_occurs_and_no_configuration_twice() -> None:
    drawn = [identity(configuration) for configuration in configurations()]
    assert len(set(drawn)) == len(drawn) == ALL
    held = {(a, b) for row in drawn[: len(ROWS)] for i, a in enumerate(row) for b in row[i + 1 :]}
    assert held == set(possible_pairs(OPTIONS, at_work))
    assert len(ROWS) < 60


def chunks() -> list[Any]:
    more = pytest.mark.more_configurations
    starts = range(0, ALL, CHUNK)
    return [pytest.param(s, marks=[] if s < ALWAYS else [more], id=f"from {s}") for s in starts]


@pytest.mark.parametrize("start", chunks())
def test_the_page_equals_the_interpreter(start: int, record_property: Record) -> None:
    for drawn in configurations()[start : start + CHUNK]:
        error = failure(drawn)
        if error is not None:
            error.add_note(f"the configuration is {drawn}")
            error.add_note(f"made as simple as it may be, it is {simplest(drawn)}")
            raise error
        record_property("configuration", identity(drawn))


def failure(drawn: dict[str, Any]) -> Exception | None:
    try:
        assert_page_equals_spec(spec_of(drawn), token_inputs(VOCAB))
    except Exception as error:
        return error
    return None


def simplest(drawn: dict[str, Any]) -> dict[str, Any]:
    """What is left of a configuration that fails when each option gets its first value if it may;
    those that have theirs are not shown."""
    for name, values in OPTIONS.items():
        simpler = {**drawn, name: values[0]}
        if simpler != drawn and failure(simpler) is not None:
            drawn = simpler
    return {name: value for name, value in drawn.items() if value != OPTIONS[name][0]}
