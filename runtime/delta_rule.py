"""The gated delta rule, in chunks (arXiv 2412.06464)."""

from __future__ import annotations

import torch
from torch import Tensor

from .chunk_decay import chunked, decays
from .chunk_states import before_chunks
from .mixer_kernels import delta_kernel, delta_rule_by_kernel
from .positions import Positions
from .standalone import STANDALONE
from .whole_sequence import refuse_decoding

_CHUNK = 64


def gated_delta_rule(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    log_decay: Tensor,
    beta: Tensor,
    positions: Positions,
) -> Tensor:
    """Each head's state maps keys to values; a place corrects what its key maps to, and reads.

        S[i] = S' + k[i] (beta[i] (v[i] - S'^T k[i]))^T,    S' = exp(log_decay[i]) S[i - 1]
        y[i] = S[i]^T q[i] / sqrt(channels of a key)

    q, k [b, s, g, d]; v [b, s, g, m, e]: m heads share a query and a key; log_decay (at most 0) and
    beta (in 0 .. 1) [b, s, g, m]. Queries and keys are brought to length 1 first. -> y as v. The
    state is zero where a document begins.

    Computed in float32, in chunks of 64 places: within one, the corrections of all places are the
    solution of a triangular system; the chunks follow one another. No collective runs: places are
    all there (under cp, see ``whole_sequence``). With `flash-linear-attention` installed, on a GPU,
    by its kernel. Saved by the plain form: several of [b, s, g * m, 64] in float32, and a state for
    each chunk.
    """
    if not STANDALONE:
        refuse_decoding(positions)
    q, k = _unit(q.float()), _unit(k.float())
    if not STANDALONE and delta_kernel(v.device):
        return delta_rule_by_kernel(q, k, v, log_decay, beta, positions.starts)
    length, groups, dtype = v.shape[1], v.shape[2], v.dtype
    size = min(_CHUNK, length)
    left = decays(log_decay.float().flatten(2), size, positions.starts)
    between = torch.unflatten(left.between, 2, (groups, -1))  # [b, z, g, m, q, q]
    since = torch.unflatten(left.since, 2, (groups, -1)).unsqueeze(-1)  # [b, z, g, m, q, 1]
    until = torch.unflatten(left.until, 2, (groups, -1)).unsqueeze(-1)
    whole = torch.unflatten(left.whole, 2, (groups, -1))[..., None, None]  # [b, z, g, m, 1, 1]
    # [b, z, g, 1, q, d], and for each head [b, z, g, m, q, ..]
    q = chunked(q * q.shape[-1] ** -0.5, size).movedim(2, 3).unsqueeze(3)
    k = chunked(k, size).movedim(2, 3).unsqueeze(3)
    v = chunked(v.float(), size).movedim(2, 4)
    beta = chunked(beta.float(), size).movedim(2, 4).unsqueeze(-1)

    # What a place corrects depends on the corrections before it: (1 + known) u = beta v.
    known = (beta * (k @ k.mT) * between).tril(-1)
    wanted = torch.cat((beta * v, beta * since * k), -1)
    solved = torch.linalg.solve_triangular(known, wanted, upper=False, unitriangular=True)
    values, keys = solved.split((v.shape[-1], k.shape[-1]), -1)

    # A chunk makes of the state before it: turned @ state + added.
    kept = (until * k).mT  # [b, z, g, m, d, q]
    turned = whole * torch.eye(k.shape[-1], device=k.device) - kept @ keys
    states = before_chunks(turned, kept @ values)  # [b, z, g, m, d, e]
    y: Tensor = (since * q) @ states + (q @ k.mT * between) @ (values - keys @ states)
    y = y.movedim(4, 2).flatten(1, 2)[:, :length]  # of [b, z, g, m, q, e]
    return y.to(dtype)


def _unit(x: Tensor) -> Tensor:
    return x * (x.square().sum(-1, keepdim=True) + 1e-6).rsqrt()
