"""What a simulated rank does, against the formulas of communication, memory and peak_memory."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable

import pytest
from jobs import LLAMA_70B
from one_rank import Measured
from tracker import Place

from specc.runtime.communication import (
    Collective,
    end_collectives,
    layer_collectives,
    sharding_collectives,
    step_collectives,
)
from specc.runtime.memory import saved_activations
from specc.runtime.peak_memory import peak_memory
from specc.runtime.workload import Workload

NAMES = (
    "llama",
    "llama recomputed",
    "llama cp",
    "llama cp recomputed",
    "gpt",
    "gpt recomputed",
    "gpt cp",
    "gpt cp recomputed",
    "ring",
    "heads",
    "zero1",
    "zero2",
    "no fsdp",
)
Get = Callable[[str], tuple[Measured, Workload]]
MIB = 1 << 20


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_communicates_what_its_table_says(measured: Get, name: str) -> None:
    got, work = measured(name)
    for layer in range(got.shape.layers):
        traffic = layer_collectives(got.shape, work, layer)
        for phase, expected in (("forward", traffic.forward), ("backward", traffic.backward)):
            assert expected, "a test of nothing"
            per_step = {one: n * work.accumulation for one, n in expected.items()}
            assert got.between_ranks(Place(phase, layer)) == got.counted(per_step), (layer, phase)


@pytest.mark.parametrize("name", NAMES)
def test_a_step_communicates_nothing_else(measured: Get, name: str) -> None:
    got, work = measured(name)
    expected = end_collectives(got.shape, work).times(work.accumulation)
    for layer in range(got.shape.layers):
        expected += layer_collectives(got.shape, work, layer).times(work.accumulation)
    expected += sharding_collectives(got.shape, work) + step_collectives(got.shape, work)
    assert Counter(one for _, one in got.collectives) == got.counted(expected)


@pytest.mark.parametrize("name", NAMES)
def test_each_layer_saves_what_its_table_says(measured: Get, name: str) -> None:
    got, work = measured(name)
    layers = range(got.shape.layers)
    assert got.saved == {layer: saved_activations(got.shape, work, layer) for layer in layers}


@pytest.mark.parametrize("name", NAMES)
def test_the_peak_is_within_five_per_cent_of_the_formula(measured: Get, name: str) -> None:
    got, work = measured(name)
    assert got.peak == pytest.approx(peak_memory(got.shape, work).total, rel=0.05)


def test_numbers_worked_out_by_hand(measured: Get) -> None:
    """The golden Llama at tp 8 with sequence parallel: [8192, 8192] in bf16 is 128 MiB."""
    got, _ = measured("llama")
    gather = Collective("all_gather", "tp", 128 * MIB)
    scatter = Collective("reduce_scatter", "tp", 128 * MIB)
    assert got.between_ranks(Place("forward", 1)) == {gather: 2, scatter: 2}
    assert got.between_ranks(Place("backward", 1)) == {gather: 4, scatter: 2}
    # In MiB: x before and between the halves and both norms' outputs, 16 each; qkv 20, q and k
    # turned 18, y 16, log-sum-exp 1/4; the MLP's projection 112, silu 56, product 56; statistics.
    assert got.saved[1] == 342.25 * MIB + 2 * 4 * 1024
    # A layer's 855.6 M parameters over tp 8; FSDP gathers them in bf16 and reduces in float32.
    layer = (10240 + 8192 + 3 * 28672) * 8192 // 8 + 2 * 8192
    seen = Counter(got.collectives)
    assert seen[Place("forward", 1), Collective("all_gather", "fsdp", 2 * layer)] == 1
    assert seen[Place("backward", 1), Collective("reduce_scatter", "fsdp", 4 * layer)] == 1
    # Between steps: parameters and two states in float32 over 4 ranks, AdamW's count of steps for
    # each of 15 parameters, and the micro-batch.
    tables = 2 * 16032 * 8192 + 8192
    assert got.held == 3 * 4 * (2 * layer + tables) // 4 + 15 * 4 + 8 * 8192


def test_the_shape_counts_the_parameters_of_the_page(measured: Get) -> None:
    got, _ = measured("llama")
    whole = got.shape.parameters + 78 * sum(p.count for p in got.shape.layer_parameters(1))
    assert whole == 70_553_706_496  # as Meta's Llama 3 70B
    assert got.shape.hidden == LLAMA_70B["hidden_size"]
