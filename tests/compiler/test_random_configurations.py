"""Pages of random configurations equal their interpreter, bit for bit, by the tests' own measure.

500 configurations: first few that hold every pair of option values, then what hypothesis draws, the
same ones on every run. 200 of them run always, the others with `pytest --more-configurations`. The
table of pairs stands at the end of the report.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from configurations import OPTIONS, VOCAB, at_work, options, spec_of
from equality import assert_page_equals_spec, token_inputs
from hypothesis import HealthCheck, assume, given, seed, settings
from pairs import covering, possible_pairs

ROWS = covering(OPTIONS, at_work)
CHUNK = 20  # configurations of one test: the tests spread over processes
ALWAYS, ALL = 200, 500

# The chunks of drawn configurations: which one, and how many it has.
FILL = (ALWAYS - len(ROWS)) % CHUNK
DRAWN = [(0, FILL), *((number, CHUNK) for number in range(1, 1 + (ALL - len(ROWS)) // CHUNK))]
IN_ALL_RUNS = 1 + (ALWAYS - len(ROWS)) // CHUNK

Record = Callable[[str, object], None]


def identity(drawn: dict[str, Any]) -> tuple[tuple[str, int], ...]:
    """Which configuration this is: options that make no difference do not count."""
    working = at_work(drawn)
    return tuple((n, OPTIONS[n].index(drawn[n])) for n in OPTIONS if n in working)


def assert_equal(drawn: dict[str, Any]) -> None:
    try:
        assert_page_equals_spec(spec_of(drawn), token_inputs(VOCAB))
    except BaseException as error:
        error.add_note(f"the configuration is {drawn}")
        raise


def test_the_covering_configurations_hold_every_pair() -> None:
    values = [identity(row) for row in ROWS]
    held = {(a, b) for row in values for i, a in enumerate(row) for b in row[i + 1 :]}
    assert held == set(possible_pairs(OPTIONS, at_work))
    assert len(set(values)) == len(ROWS) < 60


def test_the_chunks_make_the_number_of_configurations() -> None:
    assert len(ROWS) + sum(count for _, count in DRAWN[:IN_ALL_RUNS]) == ALWAYS
    assert len(ROWS) + sum(count for _, count in DRAWN) == ALL


@pytest.mark.parametrize("start", range(0, len(ROWS), CHUNK))
def test_pages_of_every_pair_of_options(start: int, record_property: Record) -> None:
    for drawn in ROWS[start : start + CHUNK]:
        assert_equal(drawn)
        record_property("configuration", identity(drawn))


@pytest.mark.parametrize(
    ("number", "count"),
    [
        pytest.param(*chunk, marks=[] if index < IN_ALL_RUNS else pytest.mark.more_configurations)
        for index, chunk in enumerate(DRAWN)
    ],
)
def test_pages_of_drawn_configurations(number: int, count: int, record_property: Record) -> None:
    # The rows are done, and hypothesis begins every chunk with the same simplest configuration.
    simplest = identity({name: values[0] for name, values in OPTIONS.items()})
    done = {simplest, *map(identity, ROWS)}

    @seed(number)
    @settings(
        max_examples=count,
        deadline=None,
        database=None,
        suppress_health_check=list(HealthCheck),
        print_blob=False,
    )
    @given(options())
    def draw(drawn: dict[str, Any]) -> None:
        assume(identity(drawn) not in done)
        assert_equal(drawn)
        done.add(identity(drawn))  # not before: a failure is run again, and made smaller
        record_property("configuration", identity(drawn))

    draw()
