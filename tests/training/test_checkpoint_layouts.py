"""A checkpoint saved at any layout loads at any other, bit for bit; each shard is written once."""

import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from checkpoint_model import build, everything, expected, read, write

from specc.runtime import Mesh
from specc.runtime.checkpoint import Stored

Ranks = Callable[..., list[Any]]

LAYOUTS = {
    "one": (1, {}),
    "tp2": (2, {"tp": 2}),
    "dp2": (2, {}),
    "tp2 dp2": (4, {"tp": 2}),
    "tp2 dp2 zero1": (4, {"tp": 2, "zero": 1}),
    "tp4": (4, {"tp": 4}),
    "dp4": (4, {}),
    "dp4 zero2": (4, {"zero": 2}),
    "cp2 dp2": (4, {"cp": 2}),
    "tp2 cp2": (4, {"tp": 2, "cp": 2}),
    "hsdp 2x2": (4, {"dp_replicate": 2}),
    "tp2 hsdp 2x1": (4, {"tp": 2, "dp_replicate": 2}),
}


@pytest.mark.parametrize("saved", LAYOUTS)
def test_what_was_saved_is_loaded_bit_for_bit(ranks: Ranks, tmp_path: Path, saved: str) -> None:
    size, layout = LAYOUTS[saved]
    ranks(size, write, tmp_path, layout)
    checkpoint = tmp_path / "step-00000001"
    assert read(checkpoint, None, 1) == []
    others = LAYOUTS if saved == "tp2 dp2" else ("one", "tp2 dp2")
    for other in others:
        size, layout = LAYOUTS[other]
        assert ranks(size, read, checkpoint, layout, 1) == [[]] * size, other


@pytest.mark.parametrize("layout", LAYOUTS)
def test_each_shard_is_written_once_and_the_work_is_spread(
    ranks: Ranks, tmp_path: Path, layout: str
) -> None:
    size, degrees = LAYOUTS[layout]
    ranks(size, write, tmp_path, degrees)
    checkpoint = tmp_path / "step-00000001"
    index = json.loads((checkpoint / "index.json").read_text())
    mesh = Mesh.single()
    tensors = everything(*build(mesh))
    whole = 0
    for section in ("model", "optimizer"):
        stored = Stored(checkpoint, section)
        for name, tensor in stored.items():
            held, record = tensors[name]
            assert torch.equal(tensor, expected(name, held, record, mesh, 1)), name
        whole += sum(math.prod(saved.shape) * 4 for saved in stored.tensors.values())
    written = []  # bytes of each rank's tensors
    for rank in range(size):
        files = [index["files"][section][str(rank)] for section in ("model", "optimizer")]
        headers = 0
        for name, length, _ in files:
            assert (checkpoint / name).stat().st_size == length
            with (checkpoint / name).open("rb") as file:
                headers += 8 + int.from_bytes(file.read(8), "little")
        written.append(sum(length for _, length, _ in files) - headers)
    assert sum(written) == whole
    # 13 rows over 4 ranks are 4, 4, 4 and 1: no rank has more than the even cut gives it, and what
    # is whole on several ranks is written by each in turn.
    assert max(written) <= whole / size * 1.25


@pytest.mark.filterwarnings("ignore:torch.distributed is disabled")
def test_torchs_own_reader_loads_it_too(ranks: Ranks, tmp_path: Path) -> None:
    from torch.distributed.checkpoint import HuggingFaceStorageReader, load

    ranks(4, write, tmp_path, {"tp": 2})
    checkpoint = tmp_path / "step-00000001"
    mesh = Mesh.single()
    tensors = everything(*build(mesh))
    state = {name: torch.empty(record.shape) for name, (_, record) in tensors.items()}
    load(state, storage_reader=HuggingFaceStorageReader(str(checkpoint)), no_dist=True)
    for name, (tensor, record) in tensors.items():
        assert torch.equal(state[name], expected(name, tensor, record, mesh, 1)), name
