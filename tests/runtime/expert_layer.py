"""One layer of experts on test ranks: its output and every gradient, whole."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn

from specc.runtime import Mesh
from specc.runtime.expert_linear import GroupedColumnParallelLinear, GroupedRowParallelLinear
from specc.runtime.gradients import sum_replicated_gradients
from specc.runtime.materialize import materialize
from specc.runtime.moe_dispatch import all_tokens, combine, dispatch, own_tokens
from specc.runtime.parameters import full_tensors

EXPERTS, TOPK, WIDTH = 4, 2, 8
BATCH, LENGTH = 4, 6


@dataclass(frozen=True)
class Way:
    """How tokens reach their experts."""

    tp: int = 1
    sp: bool = False
    ep: int = 1
    etp: int | None = None
    dispatcher: str = "alltoall"
    capacity: int | None = None


class Experts(nn.Module):
    def __init__(self, mesh: Mesh, experts: int = EXPERTS) -> None:
        super().__init__()
        self.mesh, self.num_experts = mesh, experts
        self.up = GroupedColumnParallelLinear(experts, WIDTH, 16, mesh, bias=True, init_std=0.5)
        self.down = GroupedRowParallelLinear(experts, 16, WIDTH, mesh, bias=True, init_std=0.5)

    def forward(
        self, x: Tensor, probs: Tensor, experts: Tensor, capacity: int | None = None
    ) -> Tensor:
        own = own_tokens(x, self.mesh)
        sent = dispatch(
            own,
            own_tokens(probs, self.mesh),
            own_tokens(experts, self.mesh),
            self.num_experts,
            self.mesh,
            capacity=capacity,
        )
        y = self.up(sent.rows, sent.tokens_per_expert).relu() * sent.probs[:, None]
        y = self.down(y, sent.tokens_per_expert, bias_scale=sent.probs)
        return all_tokens(combine(y, sent), x, self.mesh)


def choices(kind: str) -> tuple[Tensor, Tensor, Tensor]:
    """x [b, s, h], probs and experts [b, s, k] of a whole batch."""
    generator = torch.Generator().manual_seed(1)
    length = 1 if kind == "one token" else LENGTH
    x = torch.randn(BATCH, length, WIDTH, generator=generator)
    probs = torch.rand(BATCH, length, TOPK, generator=generator)
    experts = torch.rand(BATCH, length, EXPERTS, generator=generator).topk(TOPK).indices
    if kind == "all to one":
        experts[:] = torch.tensor([3, -1])
    if kind == "none for some":
        experts = experts % 2
        experts[..., 1] = 1 - experts[..., 0]
    if kind == "dropped":
        experts[torch.rand(experts.shape, generator=generator) < 0.4] = -1
    if kind == "nothing":
        experts[:] = -1
    return x, probs, experts


def run(ways: list[Way], kinds: list[str]) -> list[dict[str, Any]]:
    """On every rank, for each way and kind: outputs and gradients, those of tokens of this rank."""
    results = []
    for way in ways:
        mesh = (
            Mesh.launch(
                tp=way.tp,
                sequence_parallel=way.sp,
                ep=way.ep,
                etp=way.etp,
                moe_token_dispatcher_type=way.dispatcher,
            )
            if dist.is_initialized() and dist.get_world_size() > 1
            else Mesh.single()
        )
        for kind in kinds:
            results.append(_one(way, kind, mesh))
    return results


def part_of(whole: Tensor, mesh: Mesh) -> Tensor:
    """This rank's sequences, and under sequence parallel its places of them."""
    whole = whole.chunk(mesh.dp.size)[mesh.dp.rank]
    return whole.chunk(mesh.tp.size, 1)[mesh.tp.rank] if mesh.sequence_parallel else whole


def _one(way: Way, kind: str, mesh: Mesh) -> dict[str, Any]:
    model = materialize(lambda: Experts(mesh), mesh, seed=1)
    with torch.no_grad():
        for name in ("up", "down"):
            getattr(model, name).bias.fill_(0.3)
    x, probs, experts = choices(kind)
    weights = torch.arange(x.numel()).view_as(x).cos()
    x, probs, experts, weights = (part_of(t, mesh) for t in (x, probs, experts, weights))
    x, probs = x.clone().requires_grad_(), probs.clone().requires_grad_()
    y = model(x, probs, experts, way.capacity)
    # Of a loss that every rank of tp computes each has its share.
    share = 1 if mesh.sequence_parallel else mesh.tp.size
    (y * weights).sum().div(share).backward()
    sum_replicated_gradients(model, mesh)
    assert x.grad is not None and probs.grad is not None
    dx, dprobs = x.grad, probs.grad
    if mesh.tp.size > 1 and not mesh.sequence_parallel:
        for gradient in (dx, dprobs):
            dist.all_reduce(gradient, group=mesh.tp.group)
    return {
        "y": y.detach(),
        "dx": dx,
        "dprobs": dprobs,
        "gradients": full_tensors(model, mesh, grads=True),
        "part": (mesh.dp.size, mesh.dp.rank, mesh.tp.size if way.sp else 1, mesh.tp.rank),
    }
