"""The pieces that drawings are made with: patterns, rows, lanes, widths of text."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from specc.compiler.render.svg_items import INSIDE, Link
from specc.compiler.render.svg_levels import lanes, rows
from specc.compiler.render.svg_pattern import Term, terms
from specc.compiler.render.svg_text import STYLES, clean


def _written_out(pattern: tuple[Term, ...]) -> list[int]:
    return [
        kind
        for term in pattern
        for _ in range(term.times)
        for kind, count in term.runs
        for _ in range(count)
    ]


@given(st.lists(st.integers(0, 3), max_size=60))
def test_pattern_is_the_stack(kinds: list[int]) -> None:
    assert _written_out(terms(kinds)) == kinds


@given(st.lists(st.integers(0, 2), min_size=2, max_size=6), st.integers(3, 200))
def test_period_is_one_term(period: list[int], times: int) -> None:
    assert len(terms(period * times)) == 1


@given(st.data(), st.integers(1, 12))
def test_rows_go_with_the_flow(data: st.DataObject, count: int) -> None:
    """Each child once; below what it takes from, where the links have no cycle."""
    ends = st.tuples(st.integers(INSIDE, count - 1), st.integers(0, count - 1))
    pairs = data.draw(st.lists(ends.filter(lambda pair: pair[0] < pair[1]), max_size=20))
    links = [Link(a, b) for a, b in pairs]
    found = rows(count, links)
    assert sorted(child for row in found for child in row) == list(range(count))
    row_of = {child: number for number, row in enumerate(found) for child in row}
    assert all(a == INSIDE or row_of[a] < row_of[b] for a, b in pairs)


@given(st.lists(st.tuples(st.integers(0, 5), st.integers(0, 5)), max_size=15))
def test_rows_of_any_links(pairs: list[tuple[int, int]]) -> None:
    """Cycles too: they end, and no child is lost."""
    found = rows(6, [Link(a, b) for a, b in pairs])
    assert sorted(child for row in found for child in row) == list(range(6))


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(0, 20)), max_size=15))
def test_lanes_do_not_cross(spans: list[tuple[int, int]]) -> None:
    found = lanes((min(span), max(span), ()) for span in spans)
    assert len(found) == len(spans)
    for i, lane in enumerate(found):
        for other in found[:i]:
            apart = lane.end < other.start or other.end < lane.start
            assert apart or lane.number != other.number


@given(st.text(max_size=80), st.sampled_from(sorted(STYLES)), st.floats(60, 400))
def test_wrapped_text_is_whole_and_fits(text: str, name: str, room: float) -> None:
    style, said = STYLES[name], clean(text)
    lines = style.wrap(said, room)
    assert "".join(lines).replace(" ", "") == said.replace(" ", "")
    assert all(style.width(line) <= room for line in lines)


@given(st.text())
def test_clean_text_can_be_shown(text: str) -> None:
    said = clean(text)
    said.encode("utf-8")
    assert not any(ord(character) < 32 or character in "\u202e\u2028" for character in said)
