"""Every cause for which a page is not what its spec gives, alone and in pairs, is told apart.

All are made for real in the files of a small project, but for black's version and for what the
formatter and the library would print (see `FakePipeline`).
"""

from __future__ import annotations

import itertools
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from specc.compiler import fingerprint
from specc.compiler.target import parse_target
from specc.compiler.upkeep import check, verdict
from specc.compiler.upkeep.check import check_page
from specc.compiler.write import write_page

SPEC = """
from torch import nn
from specc.templates import ModuleSpec
from sizes import Sizes
config = Sizes()
tiny = ModuleSpec(nn.Module, params={"config": config})
"""
SIZES = """
from dataclasses import dataclass
@dataclass(frozen=True)
class Sizes:
    hidden_size: int = 32
    depth: int = 2
"""


@dataclass
class Project:
    """A page, what it comes from, and how each cause is brought about."""

    page: Path
    sizes: Path
    spec: Path
    library: Path  # a copy of the templates
    pipeline: Any
    monkeypatch: pytest.MonkeyPatch

    def change_the_spec(self) -> None:
        replace(self.sizes, "hidden_size: int = 32", "hidden_size: int = 48")

    def change_the_library(self) -> None:
        replace(self.library / "mlp.py", "class MLP", "LIMIT = 1\n\n\nclass MLP")
        self.pipeline.style = "breadth = {width}\n"

    def change_the_formatter(self) -> None:
        self.monkeypatch.setattr(check, "black_version", lambda: "99.1.0")
        self.pipeline.style = self.pipeline.style.replace("{width}", "(\n    {width}\n)")

    def edit(self) -> None:
        replace(self.page, '"""A page."""\n', '"""A page."""\nmine = 1\n')

    def lose_the_spec(self) -> None:
        replace(self.spec, "tiny = ", "little = ")

    def lose_the_spec_s_file(self) -> None:
        self.spec.unlink()

    def lose_the_field(self) -> None:
        replace(self.sizes, "    depth: int = 2\n", "")

    def break_the_spec(self) -> None:
        replace(self.sizes, "class Sizes", "class Sizes(Missing)")

    def leave_markers(self) -> None:
        replace(self.page, "width =", "<<<<<<< yours\nx =\n=======\nwidth =\n>>>>>>> other\ny =")


MADE: dict[str, tuple[Callable[[Project], None], set[str]]] = {
    "spec": (Project.change_the_spec, {verdict.SPEC}),
    "library": (Project.change_the_library, {verdict.LIBRARY}),
    "formatter": (Project.change_the_formatter, {verdict.FORMATTER}),
    "edited": (Project.edit, {verdict.EDITED}),
    "name gone": (Project.lose_the_spec, {verdict.GONE}),
    "file gone": (Project.lose_the_spec_s_file, {verdict.GONE}),
    # What takes a field away, or breaks a spec, is a change of it.
    "override": (Project.lose_the_field, {verdict.OVERRIDE, verdict.SPEC}),
    "broken": (Project.break_the_spec, {verdict.BROKEN, verdict.SPEC}),
    "conflict": (Project.leave_markers, {verdict.CONFLICT}),
}
# A spec that is gone has no text to change, and a compile ends at its first error. Markers are an
# edit.
ONE_OF = [{"spec", "name gone", "file gone"}, {"name gone", "file gone", "override", "broken"}]
SAME = [{"spec", "override"}, {"spec", "broken"}, {"edited", "conflict"}]
UNKNOWN = {verdict.GONE, verdict.OVERRIDE, verdict.BROKEN}

PAIRS = [
    pair
    for pair in itertools.combinations(MADE, 2)
    if not any(len({*pair} & group) == 2 for group in [*ONE_OF, *SAME])
]


@pytest.fixture
def project(folder: Path, pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> Project:
    from specc.compiler.generate import generate

    library = folder / "library"
    shutil.copytree(fingerprint._folder("templates"), library)
    monkeypatch.setattr(
        fingerprint,
        "_folder",
        lambda name, real=fingerprint._folder: library if name == "templates" else real(name),
    )
    spec, sizes = folder / "tiny_spec.py", folder / "sizes.py"
    spec.write_text(SPEC)
    sizes.write_text(SIZES)
    page = folder / "tiny.py"
    generated = generate(parse_target("tiny_spec.py:tiny"), ["config.depth=3"])
    write_page(page, generated.page(page))
    assert check_page(page).render() == "tiny.py: fresh"
    return Project(page, sizes, spec, library, pipeline, monkeypatch)


@pytest.mark.parametrize("names", [(name,) for name in MADE] + PAIRS, ids="+".join)
def test_each_cause_and_each_pair_is_told(project: Project, names: tuple[str, ...]) -> None:
    for name in names:
        MADE[name][0](project)
    found = check_page(project.page)
    assert {*found.causes} == expected(names)
    if UNKNOWN & {*found.causes}:
        assert found.state == "unknown"
        assert found.error is not None
    else:
        assert found.state == "stale"
        assert found.diff


def expected(names: tuple[str, ...]) -> set[str]:
    causes = set().union(*(MADE[name][1] for name in names))
    if "file gone" in names and verdict.LIBRARY in causes:
        causes = causes - {verdict.LIBRARY} | {verdict.LIBRARY_OR_PACKAGE}
    return causes


def test_no_two_of_them_are_told_alike() -> None:
    told = [expected(names) for names in [(name,) for name in MADE] + PAIRS]
    of_files = [one for one in told if verdict.GONE not in one]
    assert len(of_files) == len({frozenset(one) for one in of_files})


def replace(file: Path, old: str, new: str) -> None:
    text = file.read_text()
    assert old in text
    file.write_text(text.replace(old, new, 1))
