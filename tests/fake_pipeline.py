"""A compiler small enough to see through: the tests of the command line need no real pages."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from specc.compiler.load import forget_last
from specc.templates.diagnostic import Diagnostic


@dataclass
class Compiled:
    body: str
    notes: tuple[Diagnostic, ...] = ()
    classes: tuple[type, ...] = ()
    parameters: int = 1234567
    authored: tuple[str, ...] = ()


class FakePipeline(ModuleType):
    """Stands for `specc.compiler.pipeline`; `style` is what a library or black would change."""

    Compiled = Compiled

    def __init__(self) -> None:
        super().__init__("specc.compiler.pipeline")
        self.style = "width = {width}\n"
        self.notes: tuple[Diagnostic, ...] = ()
        self.calls: list[dict[str, Any]] = []

    def compile_spec(self, spec: Any, **options: Any) -> Compiled:
        self.calls.append(options)
        print("printed by a constructor")
        body = f'"""A page."""\n{self.style.format(width=spec.params["config"].hidden_size)}'
        return Compiled(body, self.notes)


@pytest.fixture
def pipeline(monkeypatch: pytest.MonkeyPatch) -> Iterator[FakePipeline]:
    """Puts the fake in the pipeline's place for one test."""
    fake = FakePipeline()
    monkeypatch.setitem(sys.modules, "specc.compiler.pipeline", fake)
    monkeypatch.delitem(sys.modules, "specc.compiler.generate", raising=False)
    yield fake
    forget_last()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pipeline: FakePipeline) -> Path:
    """The current folder for one test: a spec, and the file that it imports its width from."""
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tiny_spec.py").write_text(SPEC)
    (tmp_path / "sizes.py").write_text("WIDTH = 32\n")
    return tmp_path


SPEC = """
from torch import nn
from specc.templates import ModuleSpec, TransformerConfig
from sizes import WIDTH
config = TransformerConfig(
    num_layers=2,
    hidden_size=WIDTH,
    num_attention_heads=4,
    vocab_size=64,
    max_position_embeddings=16,
)
tiny = ModuleSpec(nn.Module, params={"config": config})
"""
