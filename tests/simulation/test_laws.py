"""Laws of the formulas, for any shape, and what they refuse."""

from __future__ import annotations

import dataclasses
import importlib.util
import sys
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import nn

from specc.runtime import Mesh, RMSNorm
from specc.runtime.communication import layer_collectives, sharding_collectives
from specc.runtime.layouts import Degrees
from specc.runtime.memory import saved_activations
from specc.runtime.model_shape import ModelShape
from specc.runtime.peak_memory import moments, peak_memory
from specc.runtime.recompute import Recompute
from specc.runtime.workload import Workload

EXAMPLES = Path(__file__).parents[2] / "generated_examples"

shapes = st.builds(
    ModelShape,
    layers=st.integers(1, 5),
    hidden=st.sampled_from([512, 1024]),
    heads=st.sampled_from([16, 32]),
    groups=st.sampled_from([8, 16]),
    head_dim=st.sampled_from([64, 128]),
    ffn=st.sampled_from([1024, 4096]),
    vocab=st.sampled_from([50257, 131]),
    gated=st.booleans(),
    layer_norm=st.booleans(),
    qkv_bias=st.booleans(),
    bias=st.booleans(),
    positions=st.sampled_from([0, 4096]),
    tied=st.booleans(),
    dropout=st.booleans(),
)
ALONE = Workload(Degrees(zero=3), length=4096, batch=2)


def at(**degrees: Any) -> Workload:
    return dataclasses.replace(ALONE, degrees=Degrees(**({"zero": 3} | degrees)))


@given(shapes, st.sampled_from([2, 4, 8]))
def test_sequence_parallel_divides_all_that_a_layer_saves(shape: ModelShape, tp: int) -> None:
    whole = saved_activations(shape, ALONE)
    assert tp * saved_activations(shape, at(tp=tp, sequence_parallel=True)) == whole
    assert whole / tp < saved_activations(shape, at(tp=tp)) < whole


@given(shapes, st.sampled_from([2, 4]), st.sampled_from(["all_gather", "p2p"]))
def test_context_parallel_divides_it_too(shape: ModelShape, cp: int, kind: str) -> None:
    assert cp * saved_activations(shape, at(cp=cp, cp_comm_type=kind)) == (
        saved_activations(shape, ALONE)
    )


@given(shapes, st.sampled_from([2, 4, 8]))
def test_sequence_parallel_moves_one_gather_more(shape: ModelShape, tp: int) -> None:
    """An all-reduce moves what a gather and a reduce-scatter do; a backward gathers x again."""
    plain = layer_collectives(shape, at(tp=tp)).times(1)
    cut = layer_collectives(shape, at(tp=tp, sequence_parallel=True)).times(1)
    assert sum(plain.values()) == 4
    assert {one.kind: n for one, n in cut.items()} == {"all_gather": 6, "reduce_scatter": 4}
    assert {one.bytes for one in [*plain, *cut]} == {2 * 2 * 4096 * shape.hidden}


@given(shapes, st.sampled_from([1, 2, 3]), st.integers(1, 4))
def test_stages_of_zero_trade_memory_for_gathers(
    shape: ModelShape, zero: int, micro_batches: int
) -> None:
    work = dataclasses.replace(at(dp=4, zero=zero), accumulation=micro_batches)
    found = sharding_collectives(shape, work)
    gathers = sum(n for one, n in found.items() if one.kind == "all_gather")
    scatters = sum(n for one, n in found.items() if one.kind == "reduce_scatter")
    count = shape.layers
    assert gathers == (2 * count * micro_batches + 1 if zero == 3 else count + 1)
    assert scatters == (count + 1) * (1 if zero == 1 else micro_batches)
    if zero > 1:
        less = dataclasses.replace(work, degrees=Degrees(dp=4, zero=zero - 1))
        assert peak_memory(shape, work).total <= peak_memory(shape, less).total


@given(shapes)
def test_recompute_trades_memory_for_collectives(shape: ModelShape) -> None:
    none = at(tp=2, sequence_parallel=True, cp=2)
    full = dataclasses.replace(none, recompute=Recompute("full"))
    half = dataclasses.replace(none, recompute=Recompute("full", every=2))
    x = 2 * 2 * 1024 * shape.hidden
    assert saved_activations(shape, full) == x == saved_activations(shape, half, 2)
    assert saved_activations(shape, half, 1) == saved_activations(shape, none, 1)
    again = layer_collectives(shape, full).backward - layer_collectives(shape, none).backward
    forward = layer_collectives(shape, none).forward
    assert sum(forward.values()) - sum(again.values()) == (0 if shape.dropout else 1)


@given(shapes, st.sampled_from([0, 1, 2, 3]))
def test_the_parts_of_a_moment_are_no_less_than_nothing(shape: ModelShape, zero: int) -> None:
    for memory in moments(shape, at(dp=2, zero=zero)):
        parts = dataclasses.astuple(memory)[1:]
        assert min(parts) >= 0 and sum(parts) == memory.total, memory
        assert memory.optimizer == 2 * memory.parameters > 0


def test_a_page_of_another_form_is_refused() -> None:
    """Queries and keys are normed there, which the formulas do not know."""
    spec = importlib.util.spec_from_file_location("small_page", EXAMPLES / "small.py")
    assert spec is not None and spec.loader is not None
    page = importlib.util.module_from_spec(spec)
    sys.modules["small_page"] = page
    spec.loader.exec_module(page)
    with pytest.raises(NotImplementedError, match="TransformerLayer has 4 norms and 4 parallel"):
        ModelShape.of(page.build_model(Mesh.single(), device="meta"))


@pytest.mark.parametrize("change", ["zero_centered", "sinks"])
def test_a_layer_that_saves_more_is_refused(change: str) -> None:
    layer = nn.Module()
    layer.norm = RMSNorm(8, zero_centered=change == "zero_centered")
    layer.attention = nn.Module()
    if change == "sinks":
        layer.attention.softmax_offset = nn.Parameter(torch.zeros(4))
    model = nn.Module()
    model.layers = nn.ModuleList([layer])
    words = {"zero_centered": "norm is one", "sinks": "attention has softmax_offset"}
    with pytest.raises(NotImplementedError, match=words[change]):
        ModelShape.of(model)


def test_a_recompute_that_the_formulas_do_not_know_is_refused() -> None:
    with pytest.raises(NotImplementedError, match="not selective of mlp; simulate it"):
        Workload(Degrees(), 8, recompute=Recompute("selective", modules=("mlp",)))


def test_a_peak_that_the_formula_does_not_know_is_refused() -> None:
    shape = ModelShape(2, 512, 8, 8, 64, 1024, 131)
    assert peak_memory(shape, at(cp=2)).total > 0
    with pytest.raises(NotImplementedError, match="cp=2 by all_gather attention in torch"):
        peak_memory(shape, dataclasses.replace(at(cp=2), dtype=torch.float32))
