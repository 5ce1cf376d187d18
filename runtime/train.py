"""Train a page on text: ``specc train PAGE`` and ``torchrun ... -m specc.runtime.train PAGE``."""

from __future__ import annotations

import os
import sys
import time
import traceback
from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch.distributed.distributed_c10d import Store

from . import launch
from .layouts import Degrees
from .mesh import Mesh
from .options import Options, parse
from .page import load_page
from .refusal import Refusal
from .run import Run
from .verified import ensure_verified
from .watch import LOST, Watch

DTYPES = {"bf16": torch.bfloat16, "float32": torch.float32}


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status: 0, 2 where the input was refused in a sentence, 1 where
    something else was raised.

    A process that ends because another one was lost has status 3.
    """
    given = list(sys.argv[1:] if arguments is None else arguments)
    try:
        return guarded(lambda: _main(given))
    except Exception:  # `specc` itself would end with 2, which tells of bad input
        traceback.print_exc()
        return 1


def guarded(program: Callable[[], int]) -> int:
    """Run a program whose Refusals are told to the user in a sentence."""
    try:
        return program()
    except Refusal as refusal:
        return _refuse(refusal, launch.local_rank() == 0)
    except KeyboardInterrupt:
        return 130


def _refuse(refusal: Refusal, speaks: bool) -> int:
    if speaks:
        print(f"error: {refusal}", file=sys.stderr, flush=True)
    else:
        time.sleep(3)  # torchrun ends all at the first exit: let the one that speaks be first
    return launch.REFUSED


def _main(arguments: list[str]) -> int:
    options = parse(arguments)
    if not launch.launched() and options.nproc > 1:
        _check_degrees(options, options.nproc)
        return launch.launch(f"{__package__}.train", arguments, options.nproc)
    world = launch.world_size()
    if options.nproc not in (1, world):
        raise Refusal(f"--nproc is {options.nproc}, and {world} processes were started already.")
    _check_degrees(options, world)
    device = launch.choose_device(options.device)
    dtype = _dtype(options.dtype, device)
    if options.deterministic:
        os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")  # read when CUDA starts
        torch.use_deterministic_algorithms(True)
    if world == 1 and dtype == torch.float32:  # plain PyTorch: no process group, no FSDP
        Run(options, Mesh.single(**_for_mesh(options)), device).train()
        return 0
    with launch.process_group(device, launch.patience(options.timeout)) as store:
        if world == 1:
            _run(options, device, dtype, store)
            return 0
        watch = Watch(
            store, launch.rank(), world, timeout=options.timeout, launcher=launch.launcher()
        )
        return _watched(watch.start(), lambda: _run(options, device, dtype, store, watch.mark))


def _run(
    options: Options,
    device: str,
    dtype: torch.dtype,
    store: Store,
    mark: Callable[[str], None] = lambda where: None,
) -> None:
    mesh = launch_mesh(options, device, dtype)
    if mesh.size > 1:
        _verify(options, mesh)
    Run(options, mesh, device, job=launch.job(store), mark=mark).train()


def _verify(options: Options, mesh: Mesh) -> None:
    """A page of its author's own classes has to give here what it gives in one process."""

    def say(line: str) -> None:
        if mesh.rank == 0:
            print(line, flush=True)

    if options.no_verify:
        say("not verified: --no-verify")
        return
    zero = options.zero if mesh.dp_cp.size > 1 else None
    degrees = Degrees.of(mesh, zero=zero, schedule=options.schedule)
    ensure_verified(load_page(options.page), degrees, changes=options.changes, say=say)


def _watched(watch: Watch, program: Callable[[], None]) -> int:
    """Run what may fail on one rank alone, or because of another one."""
    try:
        program()
    except Refusal as refusal:
        return _refuse(refusal, watch.refused(str(refusal)))
    except Exception as error:
        told = watch.failed(error)
        if told is None:
            traceback.print_exc()
        elif told:
            print(f"error: {told}", file=sys.stderr)
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(1 if told is None else LOST)  # leaving the group would wait for the others
    watch.done()
    return 0


def launch_mesh(options: Options, device: str, dtype: torch.dtype) -> Mesh:
    """The mesh that the options ask for, over the initialised process group."""
    return Mesh.launch(
        tp=options.tp,
        cp=options.cp,
        pp=options.pp,
        ep=options.ep,
        etp=options.etp,
        capacity_scope=options.capacity_scope,
        moe_token_dispatcher_type=options.moe_token_dispatcher_type,
        dp_replicate=options.dp_replicate,
        sequence_parallel=options.sequence_parallel,
        cp_comm_type=options.cp_comm_type,
        device=device,
        dtype=dtype,
        **_for_mesh(options),
    )


def _for_mesh(options: Options) -> dict[str, Any]:
    return {
        "compiled": options.compile,
        "recompute_core_attn": options.recomputed().core_attention,
        "loss_chunks": options.loss_chunks,
    }


def _check_degrees(options: Options, world: int) -> None:
    """Raises Refusal where the degrees do not make up the number of processes."""
    given = {"--tp": options.tp, "--cp": options.cp, "--pp": options.pp}
    shared = {flag: degree for flag, degree in given.items() if degree > 1} or {"--tp": 1}
    inner = options.tp * options.cp * options.pp
    started = inner * (options.dp or options.dp_replicate)
    start = f"--nproc starts more, or `torchrun --nproc-per-node {started}`"
    product = " x ".join(f"{flag} {degree}" for flag, degree in shared.items())
    if world % inner:
        is_that = f" is {inner}, which" if len(shared) > 1 else ""
        raise Refusal(
            f"{product}{is_that} does not divide the number of processes, {world} ({start})."
        )
    if options.dp is not None and options.dp * inner != world:
        raise Refusal(
            f"{product} x --dp {options.dp} is {inner * options.dp} processes, and there are "
            f"{world} ({start})."
        )
    if world // inner % options.dp_replicate:
        raise Refusal(
            f"--dp-replicate {options.dp_replicate} does not divide the {world // inner} processes "
            f"that share the batch ({world} over {product})."
        )
    experts = options.ep * (options.tp if options.etp is None else options.etp)
    shared_by = world // options.pp // options.dp_replicate
    if shared_by % experts:
        raise Refusal(
            f"--ep {options.ep} x --etp {experts // options.ep} does not divide the {shared_by} "
            "processes that share one copy of a stage's experts."
        )


def _dtype(name: str | None, device: str) -> torch.dtype:
    if name is None:
        return DTYPES["bf16" if device == "cuda" else "float32"]
    if name not in DTYPES:
        raise Refusal(f"--dtype {name} is not one of the {len(DTYPES)} known: {', '.join(DTYPES)}.")
    return DTYPES[name]


if __name__ == "__main__":
    sys.exit(main())
