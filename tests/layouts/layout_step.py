"""A page's step on ranks of the tests, and how far it is from the same step in one process."""

from __future__ import annotations

import functools
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import torch
from torch._dynamo.utils import counters

from specc.runtime import compile
from specc.runtime.one_step import Case, Shape, differences, one_step
from specc.runtime.page import Page, load_page

SHAPE, VOCABULARY = Shape(), 131

Differences = Mapping[str, float]


@dataclass(frozen=True)
class Alone:
    """A page's file, and a file with the values it was given and the step it took, in one process,
    for sequences of several documents or of one.
    """

    page: str
    file: str
    packed: bool


@functools.cache
def page_of(file: str) -> Page:
    return load_page(file)


def run(one: Alone, case: Case, dtype: torch.dtype) -> Differences:
    """Runs a page in one of many processes; its differences from the stored step."""
    assert case.packed == one.packed
    expected = torch.load(one.file)
    page, mesh = page_of(one.page), case.degrees.mesh(dtype=dtype)
    with _compiled_quickly():
        got = one_step(page, page.config(), mesh, case, SHAPE, expected["values"])
    if case.compiled:
        assert counters["stats"]["unique_graphs"] > 0 and not counters["graph_break"]
    return differences(got, expected["step"], mesh, case, SHAPE)


@contextmanager
def _compiled_quickly() -> Iterator[None]:
    """The trainer compiles layers; here without inductor, whose C++ takes seconds a layer."""
    before = compile.compile_layers
    compile.compile_layers = functools.partial(before, backend="aot_eager")
    try:
        yield
    finally:
        compile.compile_layers = before


def run_all(
    ones: Sequence[Alone], cases: Sequence[Case], dtype: torch.dtype = torch.float32
) -> dict[str, Differences]:
    """Several cases after one another: one call to the processes, one word of each case."""
    return {str(c): run(one, c, dtype) for one, c in zip(ones, cases, strict=True)}


def assert_within(results: Sequence[Mapping[str, Any]], limit: float) -> None:
    """Of each rank's results, as ``run_all`` returns them, no difference is above the limit.

    NaN, of a tensor that is zero in one process too, is above any.
    """
    wrong = [
        f"rank {rank}, {case}: {name} differs by {difference:.1e}"
        for rank, result in enumerate(results)
        for case, found in result.items()
        for name, difference in found.items()
        if not difference <= limit
    ]
    assert not wrong, f"{len(wrong)} tensors:\n" + "\n".join(wrong[:40])
