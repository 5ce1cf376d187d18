"""Comparisons of published models; each model is compiled, run and read once."""

from __future__ import annotations

import dataclasses
from functools import cache
from pathlib import Path

import published_models

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.read import read
from specc.compiler.architecture.run import Run, run_page
from specc.compiler.architecture.tree import Architecture
from specc.compiler.render.model import Comparison, Model

_EXAMPLES = Path(__file__).parents[2] / "generated_examples"


def compared(before: str, after: str) -> Comparison:
    """As `specc diff` compares them: at the longest sequence that both take."""
    length = min(_run(before).length, _run(after).length)
    first, second = _model(before, length), _model(after, length)
    return Comparison(first, second, compare(first.architecture, second.architecture))


def shown(name: str) -> Model:
    """As `specc show` shows it."""
    return _model(name, _run(name).length)


@cache
def _run(name: str) -> Run:
    """Of a published model, or a committed example."""
    if name in published_models.NAMES:
        return published_models.run(name)
    return run_page((_EXAMPLES / f"{name}.py").read_text(encoding="utf-8"), name)


@cache
def _architecture(name: str) -> Architecture:
    return read(_run(name))


@cache
def _model(name: str, length: int) -> Model:
    # Of these models the same as a run of this length, and no second run.
    run = dataclasses.replace(_run(name), length=length)
    return Model(name, f"{name}_spec.py", _architecture(name), figures(run))
