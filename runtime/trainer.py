"""Trainer: the model, its optimizer, and what one step and one evaluation do."""

from __future__ import annotations

import warnings
from collections.abc import Iterable, Sequence
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.distributed.fsdp import FSDPModule

from .data import MicroBatch, random_seed
from .data_parallel import accumulate, shard, units
from .dropout import set_dropout_step
from .gradients import clip_gradients, sum_replicated_gradients
from .loss import local_loss
from .mesh import Mesh
from .optimizer import adamw, set_rate
from .page import LOSSES, Page
from .parameters import parameter_table
from .refusal import Refusal


class Trainer:
    """One model in training. ``model``, ``optimizer`` and ``mesh`` are there to be read.

    Raises Refusal where the mesh does not divide the model, or the page's LOSS cannot be summed
    over the data-parallel ranks and micro-batches that are asked for.
    """

    def __init__(
        self,
        page: Page,
        config: Any,
        mesh: Mesh,
        *,
        device: str = "cpu",
        seed: int = 0,
        accumulation: int = 1,
        betas: tuple[float, float] = (0.9, 0.95),
        weight_decay: float = 0.1,
        clip: float = 1.0,
        compile_layers: bool = False,
    ) -> None:
        parts = mesh.dp.size * accumulation
        if page.loss not in LOSSES and parts > 1:
            raise Refusal(
                f"{page.path} states LOSS = {page.loss!r}, and only "
                f"{' and '.join(map(repr, LOSSES))} can be summed over {mesh.dp.size} "
                f"data-parallel ranks x {accumulation} accumulated micro-batches."
            )
        self.page = page
        self.mesh = mesh
        # One process sees one GPU: launch.process_group chose it.
        current = f"cuda:{torch.cuda.current_device()}" if device == "cuda" else device
        self.device = torch.device(current)
        self.seed = seed
        self.clip = clip if clip > 0 else float("inf")

        def wrap(model: nn.Module) -> None:
            # Layers are compiled in place, so names stay, and before FSDP puts its hooks around.
            if compile_layers:
                for unit in units(model):
                    unit.compile()
            if _needs_sharding(model, mesh):
                shard(model, mesh, dtype=mesh.dtype)
                # FSDP warns of a page that returns a view: only adding in place to it would hurt.
                warnings.filterwarnings("ignore", "FSDP2-wrapped module .* returned a view tensor")

        self.model = page.build(mesh, config, seed=seed, device=str(self.device), wrap=wrap)
        self.optimizer = adamw(self.model, lr=0.0, betas=betas, weight_decay=weight_decay)

    def step(self, step: int, rate: float, batches: Sequence[MicroBatch]) -> tuple[Tensor, Tensor]:
        """Take step ``step`` (from 0) with these micro-batches of this rank.

        Returns this rank's part of the loss, which ``summed`` adds up, and the norm of all
        gradients before clipping: scalars on the device, so nothing waits for it.
        """
        self.model.train()
        tokens = self._count(batches)
        loss = torch.zeros((), device=self.device)
        for turn, batch in enumerate(batches):
            set_dropout_step(
                self.model, seed=self.seed, step=step, first_sequence=batch.first_sequence
            )
            # For attention dropout and a user's nn.Dropout. The same on all tp ranks: what they
            # hold in common has to stay equal.
            torch.manual_seed(random_seed(self.seed, step, batch.first_sequence))
            accumulate(self.model, last=turn == len(batches) - 1)
            part = self._loss(batch.to(self.device), tokens)
            part.backward()  # type: ignore[no-untyped-call]  # torch leaves it untyped
            loss += part.detach()
        sum_replicated_gradients(self.model, self.mesh)
        norm = clip_gradients(self.model, self.mesh, self.clip)
        set_rate(self.optimizer, rate)
        self.optimizer.step()
        self.optimizer.zero_grad(set_to_none=True)
        return loss, norm

    @torch.no_grad()
    def evaluate(self, batches: Iterable[MicroBatch]) -> float:
        """The mean loss per token of all ranks' micro-batches, in eval mode."""
        self.model.eval()
        total = torch.zeros((), device=self.device)
        count = 0
        for batch in batches:
            # A mean of one call is of no use where calls differ in size: sums here, too.
            total += self._loss(batch.to(self.device), 1)
            count += batch.tokens if self.page.loss in LOSSES else 1
        for module in self.model.modules():
            if isinstance(module, FSDPModule):
                module.reshard()  # no backward comes that would do it
        counts = torch.tensor(float(count), dtype=torch.float64, device=self.device)
        if self.mesh.dp.size > 1:
            dist.all_reduce(counts, group=self.mesh.dp.group)
        return float(self.summed(total)) / float(counts)

    def summed(self, local: Tensor) -> Tensor:
        """The sum over all ranks of each one's part."""
        local = local.clone()
        if self.mesh.size > 1:
            dist.all_reduce(local)
        return local

    def _count(self, batches: Sequence[MicroBatch]) -> Tensor:
        """Labels that count, in the whole step."""
        count = torch.tensor(sum(batch.tokens for batch in batches), device=self.device)
        if self.mesh.dp.size > 1:
            dist.all_reduce(count, group=self.mesh.dp.group)
        return count

    def _loss(self, batch: MicroBatch, tokens: int | Tensor) -> Tensor:
        output = self.model(input_ids=batch.input_ids, labels=batch.labels)
        if self.page.loss in LOSSES:
            try:
                return local_loss(output, batch.labels, str(self.page.loss), self.mesh, tokens)
            except ValueError as error:
                raise Refusal(f"{self.page.path}: {error}.") from error
        # The page's own scalar is the loss of the whole step: there is one call in it.
        scalar = output[0] if isinstance(output, tuple) else output
        if not isinstance(scalar, Tensor) or scalar.dim():
            raise Refusal(
                f"{self.page.path} states LOSS = {self.page.loss!r}, and forward returns no scalar "
                f"to train on; state one of {', '.join(map(repr, LOSSES))}."
            )
        return scalar.float() / self.mesh.tp.size


def _needs_sharding(model: nn.Module, mesh: Mesh) -> bool:
    """Whether FSDP has a part in this run.

    On one rank in bf16 it only makes bf16 copies of float32 masters. Our layers cast their weights
    themselves, in a fused kernel where they are compiled, which saves FSDP's copies (20 ms of a
    477 ms step of 2.8 B parameters on an H200); a user's `nn.Linear` needs them.
    """
    if mesh.dp.size > 1:
        return True
    foreign = any(record.law is None for record in parameter_table(model).values())
    return mesh.dtype != torch.float32 and foreign
