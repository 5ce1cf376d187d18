"""Every code has a text of its own, and docs/diagnostics.md says the same of it in a line."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from examples import FENCE, RIGHT, WRONG, example

from specc.compiler.explain.explanations import codes, explanation

DOCS = Path(__file__).parents[2] / "docs" / "diagnostics.md"
ROW = re.compile(r"^\| (SP\d{3}) \| (.+?) \| (.+?) \|$", re.MULTILINE)
WIDTH = 110  # of a line of prose


def rows() -> dict[str, str]:
    return {code: meaning for code, meaning, _ in ROW.findall(DOCS.read_text(encoding="utf-8"))}


def test_the_codes_of_the_docs_are_those_that_have_a_text() -> None:
    assert sorted(rows()) == list(codes())


def test_a_text_opens_with_the_words_of_the_docs() -> None:
    assert {code: explanation(code).meaning for code in codes()} == rows()


@pytest.mark.parametrize("code", codes())
def test_a_text_explains_and_shows(code: str) -> None:
    text = explanation(code).text
    prose = FENCE.sub("", text)
    assert len(prose.split()) >= 12, "a stub"
    assert max(map(len, prose.splitlines())) <= WIDTH
    assert text.count("```") % 2 == 0
    markers = [line for line in prose.splitlines() if line in (*WRONG, *RIGHT)]
    shown = example(code)
    assert bool(shown.wrong) == bool(shown.right)
    assert len(markers) == (2 if shown.wrong else 0)
    assert shown.wrong != shown.right or not shown.wrong


def test_no_two_texts_are_one() -> None:
    words = [explanation(code).text.split("\n\n")[0] for code in codes()]
    assert len(set(words)) == len(words)
