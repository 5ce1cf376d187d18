"""`specc why`: every line of every class has an answer, and the named statement has its words."""

from __future__ import annotations

import dataclasses
from pathlib import Path

import pytest
from cases import Case, read_cases, update
from explained import (
    CHOSEN,
    class_lines,
    docstring_lines,
    example,
    random_one,
    unfounded,
    written_anywhere,
)

from specc.compiler.sources.answer import Explained
from specc.compiler.sources.shown import shown
from specc.compiler.sources.why import Explainer
from specc.compiler.sources.why_text import as_text

LLAMA = "llama_spec.py:llama"
LOOKS = read_cases(Path(__file__).parent / "why.txt")


def assert_explained(explainer: Explainer) -> None:
    anywhere, docstrings = written_anywhere(explainer.text), docstring_lines(explainer.text)
    for line in class_lines(explainer.text):
        answer = explainer.answer(line)
        told = f"{line}: {answer.text}"
        assert answer.made_by == "code", told
        assert answer.places and answer.places[0].shown, told
        assert not unfounded(answer, anywhere, line in docstrings), f"{told}\n{answer}"


def test_every_line_of_the_golden_page_comes_from_the_statement_that_is_named() -> None:
    assert_explained(example(LLAMA))


def test_so_does_every_line_of_the_seeds_page(seed_spec: Path) -> None:
    assert_explained(example(f"{seed_spec}:diy_simple_gpt_spec"))


@pytest.mark.parametrize("row", CHOSEN)
def test_so_does_every_line_of_a_random_configuration(row: int) -> None:
    assert_explained(random_one(row))


def test_the_end_of_a_docstring_is_the_end_of_the_author_s() -> None:
    explainer = example(LLAMA)
    ends = [n for n in docstring_lines(explainer.text) if explainer.lines[n - 1] == '    """']
    assert ends
    for line in ends:
        ((_, text),) = explainer.answer(line).places[0].shown
        assert text.strip() == '"""'


def test_a_fact_on_several_lines_is_one_fact() -> None:
    explainer = example("deepseek_v3_spec.py:deepseek_v3")
    first = next(n for n, text in enumerate(explainer.lines, 1) if text.startswith("- latent"))
    assert explainer.lines[first].startswith("  ")
    one, other = explainer.answer(first), explainer.answer(first + 1)
    assert (
        one.notes == other.notes == ("a fact of the model, from the fields that its text went by",)
    )
    assert one.places == other.places and one.reads == other.reads


def test_the_measure_sees_an_answer_that_is_off() -> None:
    explainer = example(LLAMA)
    anywhere, docstrings = written_anywhere(explainer.text), docstring_lines(explainer.text)
    lines = class_lines(explainer.text)
    off = []
    for line, other in zip(lines, lines[5:], strict=False):
        answer, places = explainer.answer(line), explainer.answer(other).places
        if answer.places != places:
            moved = dataclasses.replace(answer, places=places)
            off.append(bool(unfounded(moved, anywhere, line in docstrings)))
    assert sum(off) > len(off) // 3  # the others have no names but those of their neighbours


@pytest.mark.parametrize("row", [None, *CHOSEN[:2]])
def test_every_other_line_has_an_answer_too(row: int | None) -> None:
    explainer = example(LLAMA) if row is None else random_one(row)
    for line, text in enumerate(explainer.lines, 1):
        answer = explainer.answer(line)
        assert answer.text == text
        assert answer.places or answer.because or answer.notes, f"{line}: {text}"


def answer_of(case: Case) -> str:
    """What is said of the one line that has these words, on a page of classes whose lines move
    with no template."""
    explainer = example(str(Path(__file__).with_name("reader_spec.py")))
    (line,) = [n for n, text in enumerate(explainer.lines, 1) if case.given in text]
    answers = Explained("reader.py", (explainer.answer(line),))
    return as_text(answers).replace(shown(__file__).removesuffix("test_why.py"), "")


@pytest.mark.parametrize("case", LOOKS, ids=str)
def test_how_an_answer_looks(case: Case, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden") and answer_of(case) != case.expected:
        update(LOOKS, answer_of)
    else:
        assert answer_of(case) == case.expected
