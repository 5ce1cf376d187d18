"""The published models of `published/`: their specs, pages and runs, each made once."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from torch import nn

from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.run import Run, run_page
from specc.compiler.generate import generate
from specc.compiler.load import load_spec
from specc.compiler.target import Target, parse_target

FOLDER = Path(__file__).parent / "published"
NAMES = tuple(sorted(file.stem.removesuffix("_spec") for file in FOLDER.glob("*_spec.py")))


def target(name: str) -> Target:
    return parse_target(f"{name}_spec.py", FOLDER)


def model(name: str) -> nn.Module:
    """What the spec builds, on the meta device."""
    built: nn.Module = load_spec(target(name)).spec.build_module(device="meta")
    return built


@cache
def page(name: str) -> str:
    """The text of its page, not validated."""
    return generate(target(name), validate=False).compiled.body


@cache
def run(name: str, length: int | None = None) -> Run:
    return run_page(page(name), name, length=length)


@cache
def figures_of(name: str, length: int | None = None) -> dict[str, Figure]:
    return {figure.name: figure for figure in figures(run(name, length))}


def number(name: str, figure: str, length: int | None = None) -> int:
    """A figure of a published model that has a value."""
    value = figures_of(name, length)[figure].value
    assert value is not None
    return value
