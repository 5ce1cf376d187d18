"""docs/diff.md is what the commands do."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import get_type_hints

import click
import pytest

from specc.compiler.architecture.figures import figures
from specc.compiler.commands import diff, show
from specc.compiler.render import json_fields
from specc.compiler.render.markdown import LIMIT

PAGE = Path(__file__).parents[2] / "docs" / "diff.md"
GOLDEN = Path(__file__).parent / "golden"
TEXT = PAGE.read_text(encoding="utf-8")
FIELDS = {
    name: [*get_type_hints(found)]
    for name, found in vars(json_fields).items()
    if name.endswith("Json")
}


def first_cells(after: str) -> list[str]:
    """The first cells of the table behind a mark, without its head."""
    table = TEXT.split(after, 1)[1].split("|---", 1)[1].split("\n\n", 1)[0]
    return [line.split(" | ")[0].strip("| ") for line in table.splitlines()[1:]]


@pytest.mark.parametrize("name", FIELDS)
def test_fields_of_json(name: str) -> None:
    cells = first_cells(f"<!-- fields {name} -->\n")
    assert [cell.strip("`") for cell in cells] == FIELDS[name]


def test_options() -> None:
    told = {name for cell in first_cells("## Options") for name in re.findall(r"--[a-z-]+", cell)}
    found: set[str] = set()
    for command in (diff.command, show.command):
        for option in command.params:
            if isinstance(option, click.Option):
                found |= {*option.opts, *option.secondary_opts}
    assert told == found


def test_the_output_that_it_shows_is_the_golden_one(pytestconfig: pytest.Config) -> None:
    shown = re.compile(r"(<!-- output ([\w-]+) -->\n```text\n)(.*?)(^```$)", re.DOTALL | re.M)
    (found,) = shown.finditer(TEXT)
    golden = (GOLDEN / f"{found[2]}.txt").read_text(encoding="utf-8")
    if pytestconfig.getoption("--update-golden"):
        PAGE.write_text(shown.sub(lambda m: m[1] + golden + m[4], TEXT), encoding="utf-8")
    assert found[3] == golden


def test_figures_and_limits() -> None:
    told = set(re.findall(r"`([a-z_]+)(?:\.[a-z]+)?`", "\n".join(first_cells("## The figures"))))
    named = set(re.findall(r"`([a-z_]+)(?:\.|`)", inspect.getdoc(figures) or ""))
    assert {"parameters", "flops", "kv_cache", "saved"} <= told & named
    assert f"{LIMIT:,} characters" in TEXT
