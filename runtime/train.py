"""Train a page on text: ``specc train PAGE`` and ``torchrun ... -m specc.runtime.train PAGE``."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import nullcontext

import torch

from . import launch
from .mesh import Mesh
from .options import Options, parse
from .refusal import Refusal
from .run import Run

DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status: 0, or 2 where the input was refused in a sentence."""
    given = list(sys.argv[1:] if arguments is None else arguments)
    return guarded(lambda: _main(given))


def guarded(program: Callable[[], int]) -> int:
    """Run a program whose Refusals are told to the user in a sentence."""
    try:
        return program()
    except Refusal as refusal:
        if launch.local_rank() == 0:
            print(f"error: {refusal}", file=sys.stderr, flush=True)
        else:
            time.sleep(3)  # torchrun ends all at the first exit: let the one that speaks be first
        return 2
    except KeyboardInterrupt:
        return 130


def _main(arguments: list[str]) -> int:
    options = parse(arguments)
    if not launch.launched() and options.nproc > 1:
        _check_degrees(options, options.nproc)
        return launch.launch("specc.runtime.train", arguments, options.nproc)
    world = launch.world_size()
    if options.nproc not in (1, world):
        raise Refusal(f"--nproc is {options.nproc}, and {world} processes were started already.")
    _check_degrees(options, world)
    device = launch.choose_device(options.device)
    dtype = _dtype(options.dtype, device)
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True)
    alone = world == 1 and dtype == torch.float32  # plain PyTorch: no process group, no FSDP
    with nullcontext() if alone else launch.process_group(device):
        mesh = (
            Mesh.single(compiled=options.compile)
            if alone
            else Mesh.launch(
                tp=options.tp,
                sequence_parallel=options.sequence_parallel,
                device=device,
                dtype=dtype,
                compiled=options.compile,
            )
        )
        Run(options, mesh, device).train()
    return 0


def _check_degrees(options: Options, world: int) -> None:
    start = f"--nproc starts more, or `torchrun --nproc-per-node {options.tp * (options.dp or 1)}`"
    if world % options.tp:
        raise Refusal(
            f"--tp {options.tp} does not divide the number of processes, {world} ({start})."
        )
    if options.dp is not None and options.dp * options.tp != world:
        raise Refusal(
            f"--tp {options.tp} x --dp {options.dp} is {options.tp * options.dp} processes, and "
            f"there are {world} ({start})."
        )


def _dtype(name: str | None, device: str) -> torch.dtype:
    if name is None:
        return DTYPES["bf16" if device == "cuda" else "float32"]
    if name not in DTYPES:
        raise Refusal(f"--dtype {name} is not one of the {len(DTYPES)} known: {', '.join(DTYPES)}.")
    return DTYPES[name]


if __name__ == "__main__":
    sys.exit(main())
