"""`--format`: JSON for programs and workflow commands for GitHub say what the text says."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import click
import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from specc.compiler.commands.options import FORMATS, Tell, diagnostics_format
from specc.compiler.explain.github_form import annotated_path, command, github_line
from specc.compiler.explain.json_form import KEYS, json_line, render_json
from specc.compiler.report import render_as, report
from specc.templates.diagnostic import Diagnostic, Span, SpecError

FULL = Diagnostic(
    "SP214",
    "`Layer` has no child `mpl`",
    "decoder.layer_spec",
    Span("models/tiny.py", 2, 9, 19),
    label="here",
    also=((Span("layers.py", 7, 1, 4), "asked for here"),),
    note="one line\nand another",
    help="did you mean `mlp`?",
)
BARE = Diagnostic("SP602", "`tiny.py` has no header")


def test_json_has_every_key_and_null_for_what_is_not_there() -> None:
    assert json.loads(json_line(FULL, "error")) == {
        "schema_version": 1,
        "code": "SP214",
        "kind": "error",
        "message": "`Layer` has no child `mpl`",
        "path": "decoder.layer_spec",
        "file": "models/tiny.py",
        "line": 2,
        "column": 9,
        "end_column": 19,
        "label": "here",
        "also": [
            {
                "file": "layers.py",
                "line": 7,
                "column": 1,
                "end_column": 4,
                "label": "asked for here",
            }
        ],
        "note": "one line\nand another",
        "help": "did you mean `mlp`?",
    }
    bare = json.loads(json_line(BARE, "note"))
    assert tuple(bare) == KEYS
    assert {k: v for k, v in bare.items() if v not in (None, "", [])} == {
        "schema_version": 1,
        "code": "SP602",
        "kind": "note",
        "message": "`tiny.py` has no header",
    }


def test_json_is_a_line_each_and_none_is_left_out() -> None:
    many = [Diagnostic("SP1", f"{n}", span=Span("a.py", n, 1, 2)) for n in range(40, 0, -1)]
    lines = render_json(many).splitlines()
    assert [json.loads(line)["line"] for line in lines] == list(range(1, 41))
    assert json_line(FULL, "error").startswith('{"schema_version": 1, ')


def test_github_marks_the_line_and_says_the_rest() -> None:
    assert github_line(FULL, "error") == (
        "::error file=models/tiny.py,line=2,col=9,endColumn=19,title=SP214::"
        "`Layer` has no child `mpl`%0Ahere%0Aat: decoder.layer_spec%0A"
        "asked for here: layers.py:7%0Anote: one line%0Aand another%0Ahelp: did you mean `mlp`?"
    )
    assert github_line(BARE, "warning") == "::warning title=SP602::`tiny.py` has no header"
    assert github_line(BARE, "note").startswith("::notice ")


def test_github_s_marks_are_escaped() -> None:
    line = command("error", {"file": "a,b:c%.py", "title": "x\r\n"}, "100%\r\nof it: a, b")
    assert line == "::error file=a%2Cb%3Ac%25.py,title=x%0D%0A::100%25%0D%0Aof it: a, b"


def unescaped(text: str) -> str:
    for code, character in (("2C", ","), ("3A", ":"), ("0D", "\r"), ("0A", "\n"), ("25", "%")):
        text = text.replace(f"%{code}", character)
    return text


@given(title=st.text(), message=st.text())
def test_a_workflow_command_is_one_line_that_gives_its_words_back(title: str, message: str) -> None:
    """As GitHub's runner reads it: properties to the first `::`, then the message."""
    line = command("notice", {"title": title, "line": 3}, message)
    assert "\n" not in line and "\r" not in line
    found = re.fullmatch(r"::notice title=([^,:]*),line=3::(.*)", line, re.DOTALL)
    assert found is not None
    assert (unescaped(found[1]), unescaped(found[2])) == (title, message)


def test_a_file_is_named_from_the_root_of_the_checkout(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    monkeypatch.setenv("GITHUB_WORKSPACE", str(tmp_path))
    assert annotated_path("tiny.py") == "sub/tiny.py"
    assert annotated_path("/elsewhere/tiny.py") == "/elsewhere/tiny.py"
    monkeypatch.delenv("GITHUB_WORKSPACE")
    assert annotated_path(tmp_path / "sub" / "tiny.py") == "tiny.py"


@pytest.mark.parametrize("format", FORMATS)
def test_nothing_to_say_is_nothing(format: str) -> None:
    assert render_as(format, []) == ""


def broken(folder: Path) -> Exception:
    """What a user's file raises, with its own frames."""
    file = folder / "spec.py"
    file.write_text("def width():\n    return {}['width']\n")
    namespace: dict[str, Any] = {}
    exec(compile(file.read_text(), str(file), "exec"), namespace)
    try:
        namespace["width"]()
    except KeyError as error:
        return error
    raise AssertionError


def test_an_exception_of_the_user_s_is_told_at_its_line(tmp_path: Path) -> None:
    told = json.loads(report(broken(tmp_path), "json"))
    assert (told["code"], told["kind"], told["message"]) == (None, "error", "KeyError: 'width'")
    assert (told["file"], told["line"]) == (str(tmp_path / "spec.py"), 2)
    assert told["note"].startswith("Traceback")
    first, *rest = report(broken(tmp_path), "github").splitlines()
    assert first == f"::error file={tmp_path}/spec.py,line=2,title=KeyError::KeyError: 'width'"
    assert rest[0].startswith("Traceback")


def test_a_file_that_does_not_parse_is_told_at_its_line() -> None:
    try:
        compile("a = 1\nb = (\n", "broken_spec.py", "exec")
    except SyntaxError as error:
        told = json.loads(report(error, "json"))
    assert (told["file"], told["line"]) == ("broken_spec.py", 2)


def test_what_a_library_raises_is_told_at_the_user_s_line() -> None:
    try:
        json.loads("{")
    except ValueError as error:
        told = json.loads(report(error, "json"))
    assert told["file"] is not None and told["file"].endswith("test_formats.py")


@click.command("trial")
@click.argument("what")
@diagnostics_format
def trial(what: str, tell: Tell) -> None:
    """A command that says something, and then ends as it is asked to."""
    tell([BARE], "note")
    click.echo("the result")
    if what == "refuse":
        raise SpecError([FULL])
    if what == "misuse":
        raise click.UsageError("no such thing")


def run(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(trial, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("format", FORMATS)
def test_a_command_tells_in_the_form_that_was_chosen(format: str) -> None:
    status, out, err = run("refuse", "--format", format)
    assert (status, out) == (2, "the result\n")
    assert err == f"{render_as(format, [BARE], 'note')}\n{render_as(format, [FULL])}\n"
    assert run("go", "--format", format)[0] == 0


def test_text_is_the_form_without_a_choice_and_click_keeps_its_own() -> None:
    assert run("refuse") == run("refuse", "--format", "text")
    status, _, err = run("misuse", "--format", "json")
    assert status == 2 and err.endswith("Error: no such thing\n")
    assert "--format [text|json|github]" in CliRunner().invoke(trial, ["--help"]).stdout
