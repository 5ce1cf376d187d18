"""What the documentation shows runs, and its tables are the code's.

The blocks of a page run in the order in which they stand, in a folder with the files of
`generated_examples/`:

- `python`: in one namespace for the page. One that begins with `# NAME.py` is a file of that name
  that later blocks import or run. One with `...` in it is a sketch, and one that begins with a
  space an excerpt of a page of the examples, word for word;
- `yaml`: a spec, which is built;
- `sh`: commands, which have to succeed (those of docs/ alone: README's install and test).
"""

from __future__ import annotations

import argparse
import dataclasses
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from specc.compiler.yaml_spec import read_yaml_spec
from specc.runtime.options import Options
from specc.runtime.options import parser as train_parser
from specc.runtime.sample import parser as sample_parser
from specc.runtime.tokenize import parser as tokenize_parser
from specc.runtime.verify import parser as verify_parser
from specc.templates import LAUNCH_FIELDS, TransformerConfig

ROOT = Path(__file__).parents[1]
EXAMPLES = ROOT / "generated_examples"
PAGES = [ROOT / "README.md", *sorted((ROOT / "docs").glob("*.md")), EXAMPLES / "README.md"]
BLOCK = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
FILE = re.compile(r"# (\w+\.py)\n")
LINK = re.compile(r"\]\(([^)\s]+)\)")


def blocks(page: Path) -> Iterator[tuple[str, str, int]]:
    """Each block's language, its text, and the number of its first line."""
    text = page.read_text(encoding="utf-8")
    for found in BLOCK.finditer(text):
        yield found[1], found[2], text.count("\n", 0, found.start(2)) + 1


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder to work in that has the examples' files, on Python's path."""
    for file in EXAMPLES.iterdir():
        shutil.copy(file, tmp_path)  # not linked: a command that writes would write there
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    before = set(sys.modules)
    yield tmp_path
    for name in set(sys.modules) - before:
        if getattr(sys.modules[name], "__file__", None) == str(tmp_path / f"{name}.py"):
            del sys.modules[name]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_blocks_run(page: Path, folder: Path) -> None:
    namespace: dict[str, Any] = {"__name__": "documentation"}
    for language, text, line in blocks(page):
        place = f"{page.relative_to(ROOT)}, line {line}"
        if language == "sh" and page.parent.name == "docs":
            run_commands(text, place)
        elif language == "yaml":
            (folder / "block.yaml").write_text(text)
            read_yaml_spec(folder / "block.yaml").build_module()
        elif language == "python" and "..." not in text:
            if text.startswith(" "):
                examples = (file.read_text(encoding="utf-8") for file in EXAMPLES.glob("*.py"))
                assert any(text in example for example in examples), f"{place}: in no example"
            elif file := FILE.match(text):
                (folder / file[1]).write_text(text)
                sys.modules.pop(Path(file[1]).stem, None)  # another test's file of that name
            else:
                # Padded, so that a traceback has the page's own line numbers.
                exec(compile("\n" * (line - 1) + text, str(page), "exec"), namespace)


def run_commands(text: str, place: str) -> None:
    path = os.pathsep.join((str(Path(sys.executable).parent), os.environ["PATH"]))
    hidden = ("RANK", "LOCAL_RANK", "WORLD_SIZE")
    environment = {k: v for k, v in os.environ.items() if k not in hidden} | {"PATH": path}
    for command in text.splitlines():
        done = subprocess.run(
            command, shell=True, env=environment, capture_output=True, text=True, timeout=300
        )
        assert done.returncode == 0, f"{place}: {command}\n{done.stdout}\n{done.stderr}"


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.relative_to(ROOT).as_posix())
def test_links_lead_somewhere(page: Path) -> None:
    for link in LINK.findall(page.read_text(encoding="utf-8")):
        if link.startswith("http"):
            continue
        name, _, anchor = link.partition("#")
        target = page.parent / name if name else page
        assert target.exists(), f"{link} in {page.name}"
        if anchor:
            headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
            assert anchor in map(slug, headings), f"{link} in {page.name}"


def slug(heading: str) -> str:
    """A heading's anchor, as GitHub makes it."""
    return re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-")


def rows(page: str, mark: str) -> Iterator[list[str]]:
    """The cells of the rows of the table after a mark, without its head."""
    text = (ROOT / "docs" / page).read_text(encoding="utf-8")
    for line in text.split(mark, 1)[1].split("|---", 1)[1].splitlines()[1:]:
        if not line.startswith("|"):
            return
        yield [cell.strip() for cell in line.strip("|").split(" | ")]


def test_table_of_fields_is_the_config() -> None:
    expected = {}
    for f in dataclasses.fields(TransformerConfig):
        if not f.name.startswith("_"):
            required = f.default is dataclasses.MISSING
            expected[f.name] = "required" if required else f"`{f.default!r}`"
    found = {}
    launch: set[str] | None = None
    for name, default, *_ in rows("specs.md", "<!-- fields"):
        if name == "**Launch**":
            launch = set()
            continue
        found[name.strip("`")] = default
        if launch is not None:
            launch.add(name.strip("`"))
    assert found == expected
    assert launch == LAUNCH_FIELDS


def options(parser: argparse.ArgumentParser) -> dict[str, Any]:
    """Each option and its default."""
    found = {a.option_strings[-1]: a.default for a in parser._actions if a.option_strings}
    del found["--help"]
    return found


TRAIN = {
    name: getattr(Options, name[2:].replace("-", "_"), None) for name in options(train_parser())
}


@pytest.mark.parametrize(
    ("page", "mark", "expected"),
    [
        ("training.md", "<!-- options", TRAIN),
        ("training.md", "## Sampling", options(sample_parser())),
        ("training.md", "<!-- tokenize", options(tokenize_parser())),
        ("verify.md", "| 2 | ", options(verify_parser())),
    ],
    ids=["train", "sample", "tokenize", "verify"],
)
def test_tables_of_options_are_the_programs(page: str, mark: str, expected: dict[str, Any]) -> None:
    """Names, and the defaults where the table gives one as code."""
    table = rows(page, mark)
    found = {name.strip("`"): told for name, told, *_ in table if name[0] == "`"}
    assert found.keys() == expected.keys()
    for name, told in found.items():
        if re.fullmatch(r"`[\w.]+`", told):
            assert str(expected[name]) == told.strip("`"), name
