"""Which tokens of a micro-batch a rank works on in a layer of experts."""

from __future__ import annotations

import torch
from torch import Tensor

from .collectives import start_all_reduce, wait
from .mesh import Mesh


def micro_batch_tokens(tokens: Tensor, mesh: Mesh) -> int | Tensor:
    """How many tokens a micro-batch has, of which this rank's are ``tokens`` [b, t, ...].

    An integer where every rank of tp x cp has as many; else (tp that cuts no positions, and may not
    divide them) a scalar on the device, by an all-reduce over tp x cp.
    """
    own = tokens.shape[0] * tokens.shape[1]
    if _even(mesh):
        return own * mesh.tp_cp.size
    return wait(start_all_reduce(_filled(own, tokens.device), mesh.tp_cp))


def token_places(length: int, mesh: Mesh, device: torch.device) -> Tensor:
    """The places int64 [t], in the whole sequence, of this rank's ``length`` = t tokens."""
    here = torch.arange(length, device=device)
    if mesh.tp_cp.size == 1:
        return here
    if _even(mesh):
        part: int | Tensor = length
        whole: int | Tensor = length * mesh.tp.size
    else:
        # Rank 0 has no fewer than any other, and only the last ranks may have fewer.
        part = wait(start_all_reduce(_filled(length, device), mesh.tp, "max"))
        whole = wait(start_all_reduce(_filled(length, device), mesh.tp))
    here = here + part * mesh.tp.rank
    if mesh.cp.size == 1:
        return here
    # A rank of cp holds two pieces of the sequence, each half of what it has: `zigzag` of
    # positions.py, for a length that may be on the device.
    half = whole // 2
    first, second = mesh.cp.rank, 2 * mesh.cp.size - 1 - mesh.cp.rank
    return torch.where(here < half, here + first * half, here + (second - 1) * half)


def _even(mesh: Mesh) -> bool:
    """Whether all ranks of tp x cp have as many tokens, whatever the length."""
    return mesh.tp.size == 1 or mesh.sequence_parallel


def _filled(value: int, device: torch.device) -> Tensor:
    return torch.full((), value, dtype=torch.int64, device=device)
