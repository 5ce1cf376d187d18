"""What planning a save costs at many ranks: ours, and torch.distributed.checkpoint's.

    python benchmarks/checkpoint_plan.py 256 1024 4096          # ours, over a fake process group
    python benchmarks/checkpoint_plan.py --dcp 64 256           # DCP's: what its rank 0 does

The model is 80 layers of 70B width at tp 8, FSDP over the rest, with AdamW's two states.
"""

from __future__ import annotations

import argparse
import pickle
import subprocess
import sys
import time
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn

from specc.runtime import ColumnParallelLinear, Mesh, RMSNorm, RowParallelLinear, materialize, shard
from specc.runtime.checkpoint_index import SECTIONS, File, Index, Saved, parse
from specc.runtime.checkpoint_plan import Planner
from specc.runtime.parameters import canonical_parameters

STATES = ("", "optim.exp_avg.", "optim.exp_avg_sq.")
WIDTH, HIDDEN, LAYERS = 8192, 28672, 80


class Layer(nn.Module):
    def __init__(self, mesh: Mesh) -> None:
        super().__init__()
        self.norm1, self.norm2 = RMSNorm(WIDTH), RMSNorm(WIDTH)
        self.qkv = ColumnParallelLinear(WIDTH, WIDTH + 2048, mesh)
        self.proj = RowParallelLinear(WIDTH, WIDTH, mesh)
        self.fc1 = ColumnParallelLinear(WIDTH, 2 * HIDDEN, mesh)
        self.fc2 = RowParallelLinear(HIDDEN, WIDTH, mesh)


class Clock:
    """Seconds of the processor: other programs on the machine do not count."""

    def __init__(self) -> None:
        self.last = time.process_time()

    def __call__(self, what: str) -> None:
        now = time.process_time()
        print(f"  {what}: {now - self.last:.2f} s", flush=True)
        self.last = now


def ours(ranks: int) -> None:
    from torch.testing._internal.distributed.fake_pg import FakeStore

    dist.init_process_group("fake", rank=0, world_size=ranks, store=FakeStore())
    mesh = Mesh.launch(tp=8)
    model = materialize(
        lambda: nn.Sequential(*(Layer(mesh) for _ in range(LAYERS))),
        mesh,
        device="meta",
        wrap=lambda root: shard(root, mesh, dtype=torch.float32),
    )
    tensors = {
        (SECTIONS[state != ""], state + name): (parameter, record)
        for state in STATES
        for name, record, parameter in canonical_parameters(model)
    }
    print(f"{ranks} ranks, {len(tensors)} tensors, ours:")
    planner, clock = Planner(mesh), Clock()
    shards = planner.assign(tensors)
    clock("plan of the first save, on every rank")
    planner.assign(tensors)
    clock("plan of a later save, on every rank")
    saved: dict[str, dict[str, Saved]] = {section: {} for section in SECTIONS}
    for (section, name), table in shards.items():
        saved[section][name] = Saved(torch.float32, tensors[section, name][1].shape, table)
    files = {s: {r: File(f"{s}.safetensors", 1, 1) for r in range(ranks)} for s in SECTIONS}
    text = Index(files, saved).text()
    clock(f"index.json of {len(text) / 1e6:.2f} MB, on rank 0")
    parse(text, Path("index.json"))
    clock("reading and checking it, on every rank")


def dcp(ranks: int) -> None:
    from torch.distributed.checkpoint import DefaultSavePlanner
    from torch.distributed.checkpoint.metadata import (
        ChunkStorageMetadata,
        MetadataIndex,
        TensorProperties,
    )
    from torch.distributed.checkpoint.planner import (
        SavePlan,
        TensorWriteData,
        WriteItem,
        WriteItemType,
    )

    shapes = [(WIDTH + 2048, WIDTH), (WIDTH, WIDTH), (2 * HIDDEN, WIDTH), (WIDTH, HIDDEN)]
    properties = TensorProperties(dtype=torch.float32)

    def item(name: str, shape: tuple[int, ...], rank: int) -> WriteItem:
        rows = -(-shape[0] // ranks)
        begin = min(rank * rows, shape[0])
        offset = torch.Size((begin, *(0,) * (len(shape) - 1)))
        extent = torch.Size((min(rows, shape[0] - begin), *shape[1:]))
        data = TensorWriteData(ChunkStorageMetadata(offset, extent), properties, torch.Size(shape))
        return WriteItem(MetadataIndex(name, offset), WriteItemType.SHARD, tensor_data=data)

    def plan(rank: int) -> SavePlan:
        return SavePlan(
            [
                item(f"{state}layers.{layer}.parameter{number}", shape, rank)
                for state in STATES
                for layer in range(LAYERS)
                for number, shape in enumerate([*shapes, (WIDTH,), (WIDTH,)])
            ]
        )

    plans = [pickle.dumps(plan(rank)) for rank in range(ranks)]
    size = sum(map(len, plans)) / 1e6
    print(f"{ranks} ranks, {len(pickle.loads(plans[0]).items)} tensors, DCP's rank 0:")
    clock = Clock()
    local = [pickle.loads(text) for text in plans]
    clock(f"unpickling {size:.0f} MB of plans")
    planner = DefaultSavePlanner(flatten_state_dict=False, flatten_sharded_tensors=False)
    whole, _ = planner.create_global_plan(local)
    clock("the global plan")
    for part in whole:
        pickle.dumps(part)
    clock("pickling what it sends back")


def main() -> None:
    arguments = argparse.ArgumentParser(description=__doc__)
    arguments.add_argument("ranks", type=int, nargs="+")
    arguments.add_argument("--dcp", action="store_true")
    options = arguments.parse_args()
    if len(options.ranks) > 1:  # a fake group of one size in a process
        for ranks in options.ranks:
            flag = ["--dcp"] if options.dcp else []
            subprocess.run([sys.executable, __file__, *flag, str(ranks)], check=True)
    else:
        (dcp if options.dcp else ours)(options.ranks[0])


if __name__ == "__main__":
    main()
