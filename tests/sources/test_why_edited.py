"""`specc why` of pages on disk: edited by hand, stale, without a header, asked for wrongly."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specc.compiler.cli import main
from specc.compiler.generate import generate
from specc.compiler.sources.why import explain, parse_lines
from specc.compiler.target import parse_target
from specc.templates.diagnostic import SpecError

Capture = pytest.CaptureFixture[str]
SPEC = Path(__file__).with_name("reader_spec.py")


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A spec and its page."""
    folder = tmp_path_factory.mktemp("edited")
    (folder / "reader_spec.py").write_text(SPEC.read_text())
    generated = generate(parse_target("reader_spec.py", folder), validate=False)
    (folder / "reader.py").write_text(generated.page(folder / "reader.py"))
    return folder


def edited(folder: Path, *changes: tuple[str, str], name: str = "edited.py") -> Path:
    text = (folder / "reader.py").read_text()
    for old, new in changes:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    (folder / name).write_text(text)
    return folder / name


def line_of(page: Path, words: str) -> int:
    (line,) = [n for n, text in enumerate(page.read_text().splitlines(), 1) if words in text]
    return line


def test_a_line_of_the_page_as_it_was_written(folder: Path) -> None:
    page = folder / "reader.py"
    line = line_of(page, "y = F.relu(y)")
    explained = explain(page, line, line)
    (answer,) = explained.answers
    assert (answer.line, answer.text.strip(), answer.made_by) == (line, "y = F.relu(y)", "code")
    assert answer.places[0].shown == ((61, "            y = F.relu(y)"),)
    assert explained.notes == ()


def test_a_form_feed_in_an_edit_counts_no_line(folder: Path) -> None:
    page = edited(
        folder, ("    width: int = 8\n", "    width: int = 8  # \x0c\u2028\n"), name="odd.py"
    )
    above, _, _ = page.read_text().partition("y = F.relu(y)")
    line = above.count("\n") + 1
    answer = explain(page, line, line).answers[0]
    assert (answer.text.strip(), answer.places[0].line) == ("y = F.relu(y)", 61)


def test_lines_below_an_edit_are_found_and_counted_on_the_page(folder: Path) -> None:
    page = edited(folder, ("    width: int = 8\n", "    # chosen by hand\n    width: int = 8\n"))
    line = line_of(page, "y = F.relu(y)")
    answer = explain(page, line, line).answers[0]
    assert (answer.line, answer.places[0].line) == (line, 61)
    width = explain(page, line_of(page, "width: int"), line_of(page, "width: int")).answers[0]
    readers = [n for n, t in enumerate(page.read_text().splitlines(), 1) if "config.width" in t]
    assert f"lines {line_of(page, 'self.width')}, {readers[0]}, " in width.because[1].text


@pytest.mark.parametrize(
    ("change", "words", "told"),
    [
        (
            ("y = F.relu(y)", "y = F.silu(y)"),
            "F.silu",
            "in its place the compiler writes `y = F.relu(y)`",
        ),
        (("        y = F.relu(y)\n", "        y = F.relu(y)\n        y = y + 1\n"), "y + 1", None),
    ],
)
def test_a_line_of_a_person_is_said_to_be_one(
    folder: Path, change: tuple[str, str], words: str, told: str | None
) -> None:
    page = edited(folder, change)
    explained = explain(page, line_of(page, words), line_of(page, words))
    (answer,) = explained.answers
    assert explained.notes == (f"`{page}` was edited by hand since it was compiled",)
    assert answer.made_by == "hand"
    assert answer.notes[0] == "not the compiler's: this line was written by hand"
    assert told is None or told in answer.notes
    above = line_of(page, words) - 1
    assert answer.notes[-1].startswith(f"the nearest compiled line is {above}, `")
    assert answer.places  # that line's


def test_a_stale_page_is_explained_as_of_now(folder: Path) -> None:
    spec = folder / "gated_spec.py"
    spec.write_text(SPEC.read_text())
    page = folder / "gated.py"
    page.write_text(generate(parse_target(str(spec)), validate=False).page(page))
    spec.write_text(SPEC.read_text().replace("Sizes(width=8)", "Sizes(width=8, gate=True)"))
    line = line_of(page, "return 4 * self.width")
    explained = explain(page, line, line)
    assert explained.notes == (
        f"`{page}` is stale: its spec, specc or the formatter changed since it was compiled; what "
        "follows is as of now",
    )
    (answer,) = explained.answers
    assert answer.made_by == "hand"
    assert answer.notes[:2] == (
        "not what the spec compiles to any more",
        "in its place the compiler writes `return 2 * self.width`",
    )
    line = line_of(page, "y = F.relu(y)")
    assert explain(page, line, line).answers[0].places[0].line == 61


def test_a_value_that_was_set_on_the_command_line(folder: Path) -> None:
    overrides = ("config.depth=3",)
    page = folder / "deep.py"
    target = parse_target("reader_spec.py", folder)
    page.write_text(generate(target, overrides, validate=False).page(page))
    line = line_of(page, "depth: int")
    (answer,) = explain(page, line, line).answers
    assert answer.because[0].text == "its value, 3: --set config.depth=3"
    (head,) = explain(page, 1, 1).answers
    texts = [because.text for because in head.because]
    assert texts == ["compiled from `reader_spec.py:reader`", "with --set config.depth=3"]


@pytest.mark.parametrize(
    ("asked", "code"),
    [
        ("reader.py", "SP665"),
        ("reader.py:0", "SP665"),
        ("reader.py:9-3", "SP665"),
        ("reader.py:2000", "SP665"),
        ("reader.py:x", "SP665"),
        ("none.py:3", "SP611"),
        ("reader_spec.py:3", "SP666"),
    ],
)
def test_what_is_refused(folder: Path, asked: str, code: str) -> None:
    with pytest.raises(SpecError) as error:
        page, first, last = parse_lines(asked)
        explain(folder / page, first, last)
    assert error.value.diagnostics[0].code == code


def test_a_page_whose_spec_is_gone(folder: Path) -> None:
    page = edited(folder, ("from reader_spec.py:reader", "from gone_spec.py:reader"))
    with pytest.raises(SpecError) as error:
        explain(page, 30, 30)
    assert error.value.diagnostics[0].code == "SP604"


def test_the_command(folder: Path, monkeypatch: pytest.MonkeyPatch, capsys: Capture) -> None:
    monkeypatch.chdir(folder)
    line = line_of(Path("reader.py"), "y = F.relu(y)")
    main_ends(0, "why", f"reader.py:{line}")
    assert capsys.readouterr().out.startswith(
        f"reader.py:{line}\n{line} |         y = F.relu(y)\n  --> reader_spec.py:61, in Mixer.for"
    )
    main_ends(0, "why", f"reader.py:{line}-{line + 1}", "--format", "json")
    told = json.loads(capsys.readouterr().out)
    assert (told["schema_version"], told["page"], len(told["lines"])) == (1, "reader.py", 2)
    first = told["lines"][0]
    assert first["made_by"] == "code"
    assert first["places"][0]["lines"] == [{"line": 61, "text": "            y = F.relu(y)"}]
    assert first["because"][0]["fields"] == [
        {"name": "activation", "value": "'relu'", "origin": "the default of Sizes"}
    ]
    main_ends(2, "why", "reader.py:999")
    assert "SP665" in capsys.readouterr().err


def main_ends(status: int, *arguments: str) -> None:
    with pytest.raises(SystemExit) as ended:
        main(list(arguments))
    assert ended.value.code in ((0, None) if status == 0 else (status,))
