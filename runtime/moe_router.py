"""What the routers of a model do once a step: the biases that even out their choices, and a log."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import torch
import torch.distributed as dist
from torch import Tensor, nn

from .collectives import start_all_reduce, wait
from .mesh import Mesh
from .moe_losses import (
    AuxLoss,
    GlobalAuxLoss,
    SequenceAuxLoss,
    ZLoss,
    count_experts,
    summed,
)
from .multi_token import MultiTokenLoss
from .step_record import AttachedLoss, StepRecord

LOSSES = tuple(
    kind.name for kind in (AuxLoss, SequenceAuxLoss, GlobalAuxLoss, ZLoss, MultiTokenLoss)
)


class ExpertLoad(StepRecord):
    """Counts a step's tokens of each expert, for a router's ``expert_bias`` (arXiv 2408.15664).

    It stands in the router, beside its ``expert_bias`` [E], which ``finish_step`` moves by
    ``update_rate`` towards an even load. The record holds the counts of this rank's tokens.
    """

    def __init__(self, num_experts: int, update_rate: float) -> None:
        super().__init__((num_experts,), torch.int64)
        self.num_experts = num_experts
        self.update_rate = update_rate

    def forward(self, experts: Tensor) -> None:
        """Notes how many tokens go to each expert: ``experts`` [b, t, k], -1 for none."""
        if self.noting:
            self.note(count_experts(experts, self.num_experts).sum(0))

    def extra_repr(self) -> str:
        return f"{self.num_experts}, update_rate={self.update_rate}"


@torch.no_grad()
def finish_step(model: nn.Module | Iterable[nn.Module], mesh: Mesh) -> dict[str, Tensor]:
    """Ends a step of optimizer: moves every ``expert_bias``, and returns the attached losses.

    A bias goes up by its ``update_rate`` where its expert had fewer tokens than the mean of all
    experts, down where it had more; the counts are of all the step's micro-batches, over all ranks
    of the stage. Each loss is the mean over the micro-batches and layers, before its coefficient;
    those that the model has not are not there. Records are cleared: a second call moves nothing.

    All ranks call it, with all that each holds of the model (an iterable where that is several
    chunks). One all-reduce over dp x cp x tp of the stages that have routers, and one of eight
    numbers over pp. Nothing waits for the device, but for pp above 1 the log's choice of names.
    """
    chunks = [model] if isinstance(model, nn.Module) else list(model)
    modules = [module for chunk in chunks for module in chunk.modules()]
    loads = [(load, router.get_parameter("expert_bias")) for _, router, load in _loads(chunks)]
    losses = [module for module in modules if isinstance(module, AttachedLoss)]
    sums = _summed_over_ranks(loads, losses, mesh)
    for (load, bias), counts in zip(loads, sums, strict=False):
        # In whole numbers, so that the sign does not hang on a rounded mean.
        bias.add_(torch.sign(counts.sum() - load.num_experts * counts), alpha=load.update_rate)
    for module in modules:
        if isinstance(module, StepRecord):
            module.record.zero_()
    return _log(losses, sums[len(loads) :], mesh)


def expert_counts(model: nn.Module | Iterable[nn.Module], mesh: Mesh) -> dict[str, Tensor]:
    """How many tokens of the step so far each expert has, int64 [E], by the router's name.

    Of the routers that count: those with an ``expert_bias``, until ``finish_step``. All ranks call
    it, as that. One all-reduce for each router, over dp x cp x tp.
    """
    chunks = [model] if isinstance(model, nn.Module) else list(model)
    return {name: summed(load.record.sum(0), mesh.dp_cp_tp) for name, _, load in _loads(chunks)}


def _loads(chunks: Iterable[nn.Module]) -> Iterator[tuple[str, nn.Module, ExpertLoad]]:
    """Each router that counts, with its name and what it counts by."""
    for chunk in chunks:
        for name, module in chunk.named_modules():
            for load in module.children():
                if isinstance(load, ExpertLoad):
                    yield name, module, load


def _summed_over_ranks(
    loads: list[tuple[ExpertLoad, nn.Parameter]], losses: list[AttachedLoss], mesh: Mesh
) -> list[Tensor]:
    """The counts of each load [E] and the value of each loss [1], over the ranks of the stage."""
    parts = [load.record.sum(0).double() for load, _ in loads]
    parts += [loss.record.double().mean(0, keepdim=True) / loss.losses_per_turn for loss in losses]
    if not parts:
        return []
    whole = torch.cat(parts)
    if mesh.dp_cp_tp.size > 1:
        whole = wait(start_all_reduce(whole, mesh.dp_cp_tp))
    return list(torch.split(whole, [part.shape[0] for part in parts]))


def _log(losses: list[AttachedLoss], values: list[Tensor], mesh: Mesh) -> dict[str, Tensor]:
    """The mean over the layers of all stages, by name."""
    found: dict[str, list[Tensor]] = {}
    for loss, value in zip(losses, values, strict=True):
        found.setdefault(loss.name, []).append(value[0])
    if mesh.pp.size == 1:
        return {name: torch.stack(found[name]).mean().float() for name in LOSSES if name in found}
    device = mesh.device_mesh.device_type if mesh.device_mesh is not None else "cpu"
    table = torch.zeros(len(LOSSES), 2, dtype=torch.float64, device=device)
    for row, name in enumerate(LOSSES):
        if name in found:
            table[row] = torch.stack([torch.stack(found[name]).sum(), _count(found[name])])
    dist.all_reduce(table, group=mesh.pp.group)
    return {
        name: (total / count).float()
        for name, (total, count) in zip(LOSSES, table, strict=True)
        if count > 0
    }


def _count(values: list[Tensor]) -> Tensor:
    return torch.full_like(values[0], len(values))
