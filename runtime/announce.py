"""What a run says of itself before its first step, and after it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed as dist
from torch import nn

from . import attention_choice, mixer_kernels
from .causal_conv import CausalConv1d
from .mesh import Mesh
from .options import Options
from .parameters import parameter_table
from .recompute import Recompute
from .stage_parts import stage_parts
from .trainer import Trainer

if TYPE_CHECKING:
    from .run import Run


def lines(run: Run) -> Iterator[str]:
    """Model and data; layout; computation: a line each."""
    model, layout, data, options = run.trainer.model, run.layout, run.data, run.options
    parts = stage_parts(model)
    table = parameter_table(model) if parts is None else parts.table
    count = sum(math.prod(record.shape) for record in table.values() if record.tied_to is None)
    at = f"after step {run.done}" if run.done else "from the start"
    again = f" (restart {run.job.restarts} of the job)" if run.job and run.job.restarts else ""
    yield (
        f"{run.page.path.name}: {count:,} parameters; {data.count:,} sequences of {run.length} "
        f"tokens, {data.held_out_count:,} held out; {at}{again}"
    )
    yield (
        f"layout: {_degrees(run.mesh, options.schedule)}, "
        f"{_sharding(run.trainer, run.mesh, options.zero)}; "
        f"{layout.accumulation} x {layout.micro_batch} sequences on each dp rank"
    )
    yield f"computation: {', '.join(_computation(run.trainer, run.config, options))}"


def memory(trainer: Trainer) -> str | None:
    """The peak of this GPU's memory so far and the highest of all; None on a CPU.

    All ranks call it together.
    """
    if trainer.device.type != "cuda":
        return None
    own = torch.cuda.max_memory_allocated(trainer.device)
    highest = torch.tensor(own, device=trainer.device)
    if trainer.mesh.size > 1:
        dist.all_reduce(highest, op=dist.ReduceOp.MAX)
    told = f"peak memory: {own / 2**30:.2f} GiB"
    if trainer.mesh.size > 1:
        told += f" on rank {trainer.mesh.rank}, {int(highest) / 2**30:.2f} GiB on the fullest"
    return told


def _degrees(mesh: Mesh, schedule: str) -> str:
    if mesh.size == 1:
        return "one process"
    tp = f"tp {mesh.tp.size}" + (" with sequence parallel" if mesh.sequence_parallel else "")
    cp = f" x cp {mesh.cp.size} ({mesh.cp_comm_type})" if mesh.cp.size > 1 else ""
    pp = f" x pp {mesh.pp.size} ({schedule})" if mesh.pp.size > 1 else ""
    told = f"{tp}{cp}{pp} x dp {mesh.dp.size}"
    if mesh.ep.size > 1 or mesh.etp.size != mesh.tp.size:
        told += f", experts over ep {mesh.ep.size} x etp {mesh.etp.size}"
    return told


def _sharding(trainer: Trainer, mesh: Mesh, zero: int) -> str:
    if not trainer.sharded:
        return "nothing sharded"
    copies = mesh.dp_replicate.size
    over = mesh.dp_cp.size // copies
    told = f"ZeRO-{zero} over {over}"
    return told + (f" in {copies} copies" if copies > 1 else "")


def _computation(trainer: Trainer, config: Any, options: Options) -> Iterator[str]:
    mesh = trainer.mesh
    bf16 = mesh.dtype == torch.bfloat16
    yield "bf16 with float32 masters" if bf16 else "float32"
    yield f"attention by {_kernel(trainer, config, options)}"
    yield from mixers(trainer.model, trainer.device)
    if options.compile:
        yield "layers, head and loss compiled"
    if options.loss_chunks > 1:
        yield f"head and loss in {options.loss_chunks} chunks"
    yield _recomputed(options.recomputed())


def mixers(model: nn.Module, device: torch.device) -> Iterator[str]:
    """What computes the mixers of a hybrid stack, where the model has any here."""
    if any(isinstance(module, CausalConv1d) for module in model.modules()):
        told = mixer_kernels.told(device)
        yield "mixers: " + ", ".join(f"{what} by {package}" for what, package in told.items())


def _recomputed(choice: Recompute) -> str:
    if choice.granularity == "none":
        return "nothing recomputed"
    what = {"full": "layers", "selective": "cheap operations"}[choice.granularity]
    each = f", of one layer in {choice.every}" if choice.every > 1 else ""
    return f"{', '.join(choice.modules) or what} recomputed{each}"


def _kernel(trainer: Trainer, config: Any, options: Options) -> str:
    """The kernel of attention, as far as a Config with our own names says what it has to do."""
    asked = attention_choice.Options(
        window=getattr(config, "window_size", None),
        softcap=getattr(config, "attn_logit_softcapping", None),
        dropout=getattr(config, "attention_dropout", 0.0),
    )
    return attention_choice.kernel_name(
        trainer.device,
        trainer.mesh,
        asked,
        head_dim=getattr(config, "head_dim", 128),
        sinks=getattr(config, "softmax_type", "vanilla") != "vanilla",
        documents=options.packed_documents,
    )
