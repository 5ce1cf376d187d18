"""`specc explain`: a code however it is written, the list, and what is no code."""

from __future__ import annotations

import json
import subprocess
import sys

import pytest
from click.testing import CliRunner

from specc.compiler.commands.explain import command
from specc.compiler.explain.explanations import Explanation, code_of, codes, nearest, tiny_spec


def explain(*arguments: str) -> tuple[int, str, str]:
    result = CliRunner().invoke(command, list(arguments))
    return result.exit_code, result.stdout, result.stderr


@pytest.mark.parametrize("word", ["SP102", "sp102", "102", "error[SP102]", "Sp102", " SP102 "])
def test_a_code_is_known_however_it_is_written(word: str) -> None:
    status, out, err = explain(word)
    assert (status, err) == (0, "")
    assert out.startswith("SP102: a child that a dict has to name is missing\n\n")


def test_an_example_is_indented_and_a_file_stands_under_its_name() -> None:
    text = "Words.\n\nWrong:\n\n```python layers.py\na = 1\n\nb = 2\n```\n\nMore.\n"
    shown = Explanation("SP999", "a meaning", text).for_terminal()
    assert shown == (
        "SP999: a meaning\n\nWords.\n\nWrong:\n\n" "  layers.py:\n\n    a = 1\n\n    b = 2\n\nMore."
    )


def test_without_a_code_all_are_listed() -> None:
    status, out, _ = explain()
    lines = out.splitlines()
    assert status == 0
    assert [line.split("  ")[0] for line in lines] == list(codes())
    assert "SP102  a child that a dict has to name is missing" in lines


def test_the_spec_of_the_examples_is_shown() -> None:
    assert explain("--spec")[1] == tiny_spec()


@pytest.mark.parametrize(
    ("word", "help"),
    [
        ("SP998", "SP699"),
        ("104x", "`specc explain` lists all codes"),
        ("SP1O2", "`specc explain` lists all codes"),
        ("metaclass", "the nearest are SP302 (a metaclass)"),
        ("YAML", "SP630"),
        ("", "the nearest are"),
    ],
)
def test_what_is_no_code_gets_the_nearest(word: str, help: str) -> None:
    status, out, err = explain(word)
    assert (status, out) == (2, "")
    assert err.startswith(f"error[SP699]: `{word}` is not the code of a diagnostic")
    assert help in err


def test_the_nearest_of_a_number_are_its_neighbours() -> None:
    assert nearest("SP132") == ("SP130", "SP131", "SP133")
    assert code_of("error[SP130]") == "SP130" and code_of("SP13") is None


def test_as_json() -> None:
    told = json.loads(explain("102", "--format", "json")[1])
    assert list(told) == ["schema_version", "code", "meaning", "text"]
    assert told["code"] == "SP102" and "```python" in told["text"]
    lines = explain("--format", "json")[1].splitlines()
    assert [json.loads(line)["code"] for line in lines] == list(codes())
    assert json.loads(explain("998", "--format", "json")[2])["code"] == "SP699"


def test_it_imports_no_torch() -> None:
    """It is asked at a terminal, in the middle of something else."""
    said = "import sys; from specc.compiler.cli import main\ntry: main(['explain', '101'])\n"
    said += "except SystemExit: print('torch' in sys.modules)"
    run = subprocess.run([sys.executable, "-c", said], capture_output=True, text=True, timeout=60)
    assert run.stdout.rstrip().endswith("False"), run.stdout + run.stderr
