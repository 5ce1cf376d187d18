"""Each mistake in a spec has its own diagnostic: code, place in the user's file, and help.

The cases are in fixtures/mistakes/*.txt, each a few lines of a spec that is right otherwise, and
what `specc compile` says to it. More mistakes, made in Python, are in templates/test_bad_specs.py.
"""

from __future__ import annotations

import ast
import re
import shlex
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest
from cases import FIXTURES, Case, read_cases, update

from specc.compiler.generate import generate
from specc.compiler.load import forget_last
from specc.compiler.report import report
from specc.compiler.target import parse_target

BASE = (FIXTURES / "mistakes" / "tiny_spec.py.in").read_text(encoding="utf-8")
FILES = sorted((FIXTURES / "mistakes").glob("*.txt"))
CASES = [case for file in FILES for case in read_cases(file)]
CODE = re.compile(r"^\w+\[(SP\d+)\]", re.MULTILINE)


@pytest.fixture(autouse=True)
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path
    forget_last()


def outcome(case: Case) -> str:
    """What `specc compile` writes to stderr, in the folder that the file is in."""
    target, *options = shlex.split(case.words or "tiny_spec.py:model")
    if target.endswith(".yaml"):
        Path(target).write_text(case.given, encoding="utf-8")
    else:
        Path("tiny_spec.py").write_text(with_lines(case.given), encoding="utf-8")
    forget_last()
    try:
        generate(parse_target(target), options[1::2], validate=False)
    except Exception as error:
        return report(error)
    return "no mistake was found"


def with_lines(given: str) -> str:
    """The spec that is right, with these statements in the place of those that bind their names;
    what binds none of its names stands before its first spec."""
    of_name: dict[str, list[str]] = defaultdict(list)
    for statement in ast.parse(given).body:
        name = bound(statement)
        known = name if name in map(bound, ast.parse(BASE).body) else ""
        of_name[known].append(text_of(statement, given))
    lines: list[str] = []
    for statement in ast.parse(BASE).body:
        name = bound(statement)
        if name == "attention":
            lines += of_name.pop("", [])
        lines += (name and of_name.get(name)) or [text_of(statement, BASE)]
    return "\n".join(lines) + "\n"


def bound(statement: ast.stmt) -> str:
    """The name that a statement binds, or an item of which it sets; empty for none."""
    if not isinstance(statement, ast.Assign):
        return ""
    return next(n.id for n in ast.walk(statement.targets[0]) if isinstance(n, ast.Name))


def text_of(statement: ast.stmt, text: str) -> str:
    lines = [statement.lineno, *(d.lineno for d in getattr(statement, "decorator_list", []))]
    return "\n".join(text.splitlines()[min(lines) - 1 : statement.end_lineno])


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_mistake_is_told_as_it_stands_in_the_file(
    case: Case, pytestconfig: pytest.Config
) -> None:
    if not pytestconfig.getoption("--update-golden"):
        assert outcome(case) == case.expected


def test_update(pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        update(CASES, outcome)


def test_each_mistake_has_a_code_of_its_own() -> None:
    codes = defaultdict(list)
    for case in CASES:
        found = CODE.findall(case.expected)
        if len(found) == 1:
            codes[found[0]].append(case.title)
    assert len(codes) >= 25
    assert {code: titles for code, titles in codes.items() if len(titles) > 1} == {}


def test_each_tells_its_place_and_what_would_be_right() -> None:
    for case in CASES:
        if case.file.stem != "commands":
            assert "--> tiny_spec.py:" in case.expected, case
        assert "= help: " in case.expected, case
