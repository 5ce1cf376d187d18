"""What a text of `specc explain` calls wrong gives just its code; what it calls right does not."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from examples import Example, example, told
from shared_compiles import compile_shared

from specc.compiler.cli import main
from specc.compiler.explain.explanations import codes
from specc.templates.diagnostic import Diagnostic

TESTS = Path(__file__).parents[1]

# Codes that a spec and a few commands cannot give, with the reason: other tests drive them.
ELSEWHERE = {
    **dict.fromkeys(
        ("SP501", "SP502", "SP503", "SP504", "SP505", "SP506"), "a bug of specc's is planted"
    ),
    **dict.fromkeys(("SP606", "SP609"), "told in the forms json and github alone"),
    "SP615": "it takes a commit and an edited installation",
    "SP675": "it takes a history of commits",
    "SP678": "git is taken away",
    "SP684": "a bug of specc's is planted",
}


@pytest.fixture
def run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> Iterator[Callable[[list[str]], str]]:
    """Runs a `specc` command in a folder of the test's; gives what it writes to stderr."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("specc.compiler.generate.compile_spec", compile_shared)

    def command(arguments: list[str]) -> str:
        capfd.readouterr()
        with pytest.raises(SystemExit):
            main(arguments)
        return capfd.readouterr().err

    yield command


DRIVEN = [code for code in codes() if code not in ELSEWHERE]


@pytest.mark.parametrize("code", DRIVEN)
def test_what_is_wrong_gives_the_code(
    code: str, run: Callable[[list[str]], str], tone_of_messages: list[Diagnostic]
) -> None:
    assert told(example(code).wrong, run) == {code}
    unhelped = {d.code for d in tone_of_messages if not d.help and not d.note}
    assert unhelped <= {"SP520", "SP521"}, "what would be right is told"


@pytest.mark.parametrize("code", DRIVEN)
def test_what_is_right_compiles(code: str, run: Callable[[list[str]], str]) -> None:
    # A small class of one's own need not fit a pipeline.
    assert told(example(code).right, run) <= {"SP412"}


@pytest.mark.parametrize("code", ELSEWHERE)
def test_what_has_no_example_is_driven_elsewhere(code: str) -> None:
    assert example(code) == Example((), ())
    files = (p for p in TESTS.rglob("test_*.py") if p.parent != Path(__file__).parent)
    assert any(f'"{code}"' in path.read_text(encoding="utf-8") for path in files)
