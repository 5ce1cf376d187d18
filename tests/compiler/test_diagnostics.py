"""Diagnostics as text."""

from pathlib import Path

import pytest

from specc.compiler.diagnostics import render, shown_path
from specc.compiler.report import report
from specc.templates.diagnostic import Diagnostic, Span, SpecError


@pytest.fixture
def spec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "models").mkdir()
    file = tmp_path / "models" / "tiny.py"
    file.write_text("first = 1\nlayer = ModuleSpec(Layer)\n\n\n\tname = '中文' + broken\n")
    return str(file)


def test_error_with_a_place(spec: str) -> None:
    diagnostic = Diagnostic(
        "SP102",
        "`Layer` has no child `mpl`",
        "decoder.layer_spec",
        Span(spec, 2, 9, 19),
        help="did you mean `mlp`?",
    )
    assert render([diagnostic]) == (
        "error[SP102]: `Layer` has no child `mpl`\n"
        " --> models/tiny.py:2:9\n"
        "  |\n"
        "2 | layer = ModuleSpec(Layer)\n"
        "  |         ^^^^^^^^^^ at decoder.layer_spec\n"
        "  = help: did you mean `mlp`?"
    )


def test_further_places_in_the_same_file_and_in_another(spec: str, tmp_path: Path) -> None:
    other = tmp_path / "other.py"
    other.write_text("read = here\n")
    diagnostic = Diagnostic(
        "SP312",
        "two places",
        span=Span(spec, 5, 2, 6),
        label="wrong",
        also=((Span(spec, 1, 1, 6), "first"), (Span(str(other), 1, 8, 12), "read here")),
        note="one line\nand another",
    )
    assert render([diagnostic], "note") == (
        "note[SP312]: two places\n"
        " --> models/tiny.py:5:2\n"
        "  |\n"
        "1 | first = 1\n"
        "  | ----- first\n"
        "..\n"
        "5 | \tname = '中文' + broken\n"
        "  | \t^^^^ wrong\n"
        " ::: other.py:1:8\n"
        "  |\n"
        "1 | read = here\n"
        "  |        ---- read here\n"
        "  = note: one line\n"
        "          and another"
    )


def test_mark_stands_under_what_follows_wide_characters(spec: str) -> None:
    line = render([Diagnostic("SP1", "wide", span=Span(spec, 5, 16, 22))]).splitlines()[-1]
    assert line == "  | \t" + " " * len("name = '....' + ") + "^^^^^^"


def test_without_a_place_the_path_stands_below() -> None:
    assert render([Diagnostic("SP9", "wrong", "decoder.mlp")]) == (
        "error[SP9]: wrong\n  = at: decoder.mlp"
    )


def test_file_that_cannot_be_read_gives_the_place_alone() -> None:
    text = render([Diagnostic("SP9", "wrong", span=Span("<stdin>", 3, 1, 2))])
    assert text == "error[SP9]: wrong\n --> <stdin>:3:1"


def test_diagnostics_come_by_line_and_not_endlessly(spec: str) -> None:
    many = [Diagnostic("SP9", f"number {n}", span=Span(spec, n, 1, 2)) for n in range(30, 0, -1)]
    text = render(many)
    assert text.index("number 1\n") < text.index("number 2\n") < text.index("number 20\n")
    assert "number 21" not in text and text.endswith("\n\nand 10 more")


def test_path_outside_the_folder_stays_whole(spec: str, tmp_path: Path) -> None:
    assert shown_path(spec) == "models/tiny.py"
    assert shown_path("/elsewhere/a.py") == "/elsewhere/a.py"


def test_report_renders_diagnostics_and_keeps_other_exceptions() -> None:
    assert report(SpecError([Diagnostic("SP9", "wrong")])) == "error[SP9]: wrong"
    try:
        raise KeyError("the user's own words")
    except KeyError as error:
        error.add_note("while importing")
        text = report(error)
    assert text.startswith("Traceback")
    assert text.endswith('KeyError: "the user\'s own words"\nwhile importing')
