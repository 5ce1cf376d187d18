"""Text that Markdown may not read as markup."""

from __future__ import annotations

import re

from hypothesis import given
from hypothesis import strategies as st

from specc.compiler.render.markdown_text import code, escaped, fenced

_text = st.text(alphabet="ab `|*_<>\n#[]!~\\", max_size=20)


def test_code_spans() -> None:
    assert code("layers[0..31].mlp") == "`layers[0..31].mlp`"
    assert code("a`b") == "`` a`b ``"
    assert code("a|b", in_table=True) == "`a\\|b`"
    assert code("") == "` `"


def test_words_are_no_markup() -> None:
    assert escaped("no *bias*, <b>_x_ | #1\n`c`") == (
        "no \\*bias\\*, \\<b\\>\\_x\\_ \\| \\#1 \\`c\\`"
    )
    assert escaped("GQA 32/8 heads of 128") == "GQA 32/8 heads of 128"


@given(_text)
def test_no_text_closes_its_own_code_span(text: str) -> None:
    span = code(text)
    quotes = re.match("`+", span)
    assert quotes is not None
    inside = span[len(quotes[0]) : -len(quotes[0])]
    assert quotes[0] not in re.findall("`+", inside)
    assert "\n" not in span


@given(_text)
def test_no_line_closes_its_own_fence(text: str) -> None:
    lines = fenced(f"{text}\n", "diff").split("\n")
    fence = lines[0].removesuffix("diff")
    assert lines[-2] == fence
    assert not any(line.strip().startswith(fence) for line in lines[1:-2])


@given(_text)
def test_a_cell_of_a_table_has_no_open_bar(text: str) -> None:
    for cell in (escaped(text), code(text, in_table=True)):
        # How GitHub splits a row: a backslash takes the character behind it along.
        assert "|" not in re.sub(r"\\.", "", cell)
