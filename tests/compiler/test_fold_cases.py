"""The compiler's rules one by one: fixtures/fold/*.txt, a few lines of a class and its page's text.

Every case also runs: its page and its spec give the same, bit for bit. A new case is its title, its
class and a line of dashes; `pytest --update-golden tests/compiler/test_fold_cases.py` writes the
rest, to be read before it is committed.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from types import ModuleType

import pytest
import torch
from cases import FIXTURES, Case, read_cases, update
from equality import assert_same, load_page, run

from specc.compiler.load import forget_last, load_spec
from specc.compiler.pipeline import compile_spec
from specc.compiler.target import parse_target
from specc.runtime import Mesh

FILES = sorted((FIXTURES / "fold").glob("*.txt"))
CASES = [case for file in FILES for case in read_cases(file)]

# What every case may use; the words of its title are the arguments of its config.
HEAD = """
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import Tensor, nn

from specc import runtime
from specc.runtime import ColumnParallelLinear, Mesh
from specc.templates import IdentityOp, ModuleSpec, build_module

@dataclass(frozen=True)
class Options:
    width: int = 8
    depth: int = 3
    kind: str = "plain"
    flag: bool = False
    scale: float = 0.0
    limit: int | None = None

config = Options({words})
"""
MODEL = '\nmodel = ModuleSpec(Model, {"config": config})\n'


@pytest.fixture(autouse=True)
def cleaned() -> Iterator[None]:
    yield
    forget_last()


Fold = Callable[[Case], str]


@pytest.fixture
def fold(tmp_path: Path) -> Fold:
    """The classes of a case's page, compared with its spec's model."""

    def folded(case: Case) -> str:
        text = HEAD.format(words=case.words) + "\n\n" + case.given + "\n"
        number = CASES.index(case)
        file = tmp_path / f"case_{number}_spec.py"  # classes are known by their module's name
        file.write_text(text if "\nmodel = " in text else text + MODEL, encoding="utf-8")
        spec = load_spec(parse_target(f"{file.name}:model", tmp_path)).spec
        body = compile_spec(spec, validate=False).body
        inputs = {"x": torch.randn(4, 8, generator=torch.Generator().manual_seed(0))}
        page: ModuleType = load_page(body)
        seen = run(page.build_model(Mesh.single(), seed=3), inputs)
        assert_same(seen, run(spec.build_module(seed=3), inputs))
        assert spec.module.__module__ in sys.modules
        return classes(body)

    return folded


def classes(body: str) -> str:
    """The page between its imports and its entry point."""
    start = min(i for i in (body.find("\n@dataclass"), body.find("\nclass ")) if i >= 0)
    return body[start : body.index("\ndef build_model(")].strip("\n")


@pytest.mark.parametrize("case", CASES, ids=str)
def test_a_class_is_folded_as_it_stands(
    case: Case, fold: Fold, pytestconfig: pytest.Config
) -> None:
    if not pytestconfig.getoption("--update-golden"):
        assert fold(case) == case.expected


def test_update(fold: Fold, pytestconfig: pytest.Config) -> None:
    if pytestconfig.getoption("--update-golden"):
        update(CASES, fold)
