"""The counter hash behind initial values: its law, its golden values, equal at any cut."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

from specc.runtime import (
    LocalPart,
    Mesh,
    Normal,
)
from specc.runtime.initial_values import fill, name_key, splitmix64

MESH = Mesh.single()
GOLDEN = [
    "0x1.8466cc0000000p-6",
    "0x1.0c0d060000000p-7",
    "0x1.9bc58e0000000p-6",
    "0x1.41922e0000000p-6",
    "-0x1.0025020000000p-5",
    "-0x1.03f6a20000000p-6",
]


def _splitmix64(index: int, key: int) -> int:
    """The published algorithm, in Python's integers."""
    mask = (1 << 64) - 1
    z = ((index + 1) * 0x9E3779B97F4A7C15 + key) & mask
    z = ((z ^ (z >> 30)) * 0xBF58476D1CE4E5B9) & mask
    z = ((z ^ (z >> 27)) * 0x94D049BB133111EB) & mask
    return z ^ (z >> 31)


@given(st.integers(0, 2**62), st.integers(-(2**63), 2**63 - 1))
def test_splitmix64_is_the_published_one(index: int, key: int) -> None:
    assert splitmix64(torch.tensor([index]), key).item() % 2**64 == _splitmix64(index, key)


def test_splitmix64_known_value() -> None:
    # The first output of java.util.SplittableRandom's mixer from state 0.
    assert splitmix64(torch.tensor([0]), 0).item() % 2**64 == 0xE220A8397B1DCDAF


def _whole(shape: tuple[int, ...], seed: int = 0, name: str = "w") -> Tensor:
    return _part(shape, LocalPart((0,) * len(shape), shape), seed, name)


def _part(shape: tuple[int, ...], part: LocalPart, seed: int = 0, name: str = "w") -> Tensor:
    target = torch.empty(part.extent)
    fill(target, Normal(0.02), shape=shape, part=part, seed=seed, name=name)
    return target


def test_golden_values() -> None:
    """Written down: a change of these changes every model's start."""
    got = _whole((2, 3), seed=7, name="decoder.layers.0.mlp.linear_fc1.weight")
    assert [x.hex() for x in got.double().flatten().tolist()] == GOLDEN


@settings(max_examples=200, deadline=None)
@given(st.data())
def test_any_slice_equals_the_whole_bit_for_bit(data: st.DataObject) -> None:
    shape = tuple(data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=3)))
    offset = tuple(data.draw(st.integers(0, n - 1)) for n in shape)
    extent = tuple(data.draw(st.integers(0, n - o)) for n, o in zip(shape, offset, strict=True))
    part = LocalPart(offset, extent)
    assert torch.equal(_part(shape, part), part.of(_whole(shape)))


def test_chunks_do_not_show(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = _whole((50, 7))
    monkeypatch.setattr("specc.runtime.initial_values._CHUNK", 16)
    assert torch.equal(_whole((50, 7)), whole)


def test_the_law_is_normal() -> None:
    x = _whole((1000, 1000)).double().flatten() / 0.02
    assert abs(x.mean()) < 4e-3 and abs(x.std() - 1) < 4e-3
    assert abs((x**4).mean() - 3) < 0.03
    ordered = x.sort().values
    expected = torch.special.ndtr(ordered)
    uniform = (torch.arange(len(x), dtype=torch.float64) + 0.5) / len(x)
    assert (expected - uniform).abs().max() < 2e-3  # Kolmogorov-Smirnov at about p = 0.001
    rows = x.view(1000, 1000)
    assert abs((rows[:, 1:] * rows[:, :-1]).mean()) < 4e-3  # neighbours are independent
    assert abs((rows[1:] * rows[:-1]).mean()) < 4e-3


def test_seed_and_name_change_everything() -> None:
    a, b, c = _whole((40,)), _whole((40,), seed=1), _whole((40,), name="v")
    assert not ((a == b) | (a == c) | (b == c)).any()
    assert name_key(1, "2:x") != name_key(12, ":x")
