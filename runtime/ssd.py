"""Mamba-2's state space, in chunks (arXiv 2405.21060)."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunk_decay import chunked, decays
from .mesh import Mesh
from .mixer_kernels import ssd_by_kernel, ssd_kernel
from .positions import Positions
from .standalone import STANDALONE
from .whole_sequence import own_groups, refuse_decoding


def ssd(
    x: Tensor,
    dt: Tensor,
    a: Tensor,
    b: Tensor,
    c: Tensor,
    d: Tensor,
    positions: Positions,
    mesh: Mesh,
    *,
    chunk_size: int = 128,
) -> Tensor:
    """Each head's state, a matrix, decays and is added to; a place reads it off.

        h[i] = exp(dt[i] a) h[i - 1] + dt[i] x[i] b[i]^T,    y[i] = h[i] c[i] + d x[i]

    x [b, s, g, m, p]: m heads of each of g groups, p channels of each head; dt [b, s, g, m], steps
    above 0, float32; a [g * m], below 0; b, c [b, s, g, k]: what goes into and comes out of the
    states of a group's heads; d [g * m]. -> y as x. The state is zero where a document begins.

    Computed in float32, as matrix products within chunks of ``chunk_size`` places, and of the
    chunks' states. No collective runs: places are all there (under cp, see ``whole_sequence``; a
    and d are then whole, and this rank's part is taken). With `mamba-ssm` installed, on a GPU, by
    its kernel. Saved by the plain form: several of [b, s, g * m, chunk_size] in float32.
    """
    if not STANDALONE:
        refuse_decoding(positions)
    a, d = own_groups(a, mesh), own_groups(d, mesh)
    if not STANDALONE and ssd_kernel(x.device):
        return ssd_by_kernel(x, dt, a, b, c, d, positions.starts, chunk_size)
    length, groups = x.shape[1], x.shape[2]
    size = min(chunk_size, length)
    log_decay = dt.flatten(2) * a  # [b, s, n]
    left = decays(log_decay, size, positions.starts)
    added = chunked(x.float() * dt.unsqueeze(-1), size)  # [b, z, q, g, m, p]
    into, out_of = chunked(b.float(), size), chunked(c.float(), size)  # [b, z, q, g, k]

    seen = torch.einsum("bzigk,bzjgk->bzgij", out_of, into).unsqueeze(3)
    seen = seen * torch.unflatten(left.between, 2, (groups, -1))  # [b, z, g, m, q, q]
    y = torch.einsum("bzgmij,bzjgmp->bzigmp", seen, added)

    until = (
        torch.unflatten(left.until, 2, (groups, -1)).movedim(4, 2).unsqueeze(-1)
    )  # [b, z, q, g, m, 1]
    ended = torch.einsum("bzjgmp,bzjgk->bzgmpk", added * until, into)
    carried = torch.unflatten(left.chunks, 1, (groups, -1))  # [b, g, m, z, z]
    states = torch.einsum("bgmyz,bzgmpk->bygmpk", carried, ended)  # before each chunk
    since = torch.unflatten(left.since, 2, (groups, -1)).movedim(4, 2).unsqueeze(-1)
    y = y + torch.einsum("bzigk,bzgmpk->bzigmp", out_of, states) * since
    y = y.flatten(1, 2)[:, :length] + x.float() * d.view(groups, -1, 1)
    return y.to(x.dtype)
