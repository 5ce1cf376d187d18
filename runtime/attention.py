"""Scaled dot-product attention with the options that decoders use, at every layout."""

from __future__ import annotations

import torch
import torch.nn.functional as F
from torch import Tensor
from torch.utils.checkpoint import checkpoint

from .attention_blockwise import blockwise
from .attention_choice import Options, choose
from .attention_decoding import attend_kept, keep_keys
from .attention_masked import fused, masked
from .context_parallel import heads_for_places, places_for_heads
from .draws import common_key
from .mesh import Mesh
from .positions import Positions
from .standalone import STANDALONE


def attention(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    mesh: Mesh,
    *,
    causal: bool = True,
    window: int | None = None,
    softcap: float | None = None,
    sinks: Tensor | None = None,
    dropout: float = 0.0,
    scale: float | None = None,
    mask: Tensor | None = None,
) -> Tensor:
    """softmax(q k^T * scale) v of q [b, s, n, d] and k, v [b, s, g, d].

    These are the heads and places of this rank. Query head i attends over key/value head
    i // (n / g). Where ``positions`` know documents, a place sees its own only.

    - ``causal``: a place sees itself and those before it.
    - ``window``: a place sees at most so many places back, itself included.
    - ``softcap``: scores become softcap * tanh(score / softcap) (Gemma 2, arXiv 2408.00118).
    - ``sinks`` [n]: one more logit per head takes part in the softmax and is dropped (gpt-oss).
    - ``dropout``: the probability to use now (0.0 in eval). In one process torch's kernels draw;
      at tp or cp above 1 one number comes from torch's generator, and each weight's draw is a hash
      of it and of sequence, head and places: no layout above 1 changes it.
    - ``scale``: 1 / sqrt(d) where None.
    - ``mask``: bool, broadcastable to [b, n, s, s], True where a query may NOT attend a key;
      it adds to the rest. Not with cp above 1.

    A place that may attend nothing gets zeros. tp needs no collective: heads are whole on a rank.
    Over cp a rank holds its zigzag places, and the mesh's ``cp_comm_type`` says what is exchanged;
    "kv" is k and v in one message, of b * s * g * (d of k + d of v) elements in q's dtype:

    ============  =======================  =========================  ============================
    cp > 1        all_gather               p2p                        a2a
    ============  =======================  =========================  ============================
    forward       all-gather of kv         cp - 1 times kv to the     all-to-all of q and kv,
                                           next rank                  all-to-all of y
    backward      all-gather of kv,        cp - 1 times kv, cp times  the same, of the gradients,
                  reduce-scatter of its    its gradient to the next   y's first
                  gradient                 rank
    attends       q [b, s, n, d] to        q [b, s, n, d] to k, v     q [b, s cp, n / cp, d] to
                  k, v [b, s cp, g, d]     [b, s, g, d], cp times     k, v [b, s cp, g' / cp, d]
    saved         q, k, v, y of this       the same                   what it attends, its y and
                  rank, lse [b, n, s]                                 lse (one process's kernels)
    requires      nothing                  nothing                    cp divides n
    ============  =======================  =========================  ============================

    lse is the float32 log-sum-exp of a query's scores; g' = lcm(g, cp): k and v are repeated where
    cp does not divide g. Gradients are summed over cp in the dtype of k. The ring's exchanges run
    beside the computation; what the mask hides is not computed.

    ``attention_choice`` says which kernel runs. On a GPU scores stay in memory only with softcap,
    mask, dropout, a window in packed documents under p2p, or another dtype than bf16 and fp16.
    Under the mesh's ``recompute_core_attn`` all this, exchanges included, runs once more in the
    backward, and q, k, v are what is saved.

    Raises ValueError for shapes that do not fit and options out of range, TypeError for a mask
    that is not bool, NotImplementedError for a mask with cp above 1.
    """
    _check(q, k, v, positions, mesh, window, softcap, sinks, mask)
    if sinks is not None:
        # In q's dtype first, as FSDP would hand it over.
        sinks = sinks.to(q.dtype).float()
    hashed = dropout > 0 and mesh.tp.size * mesh.cp.size > 1
    key = common_key(q.device) if hashed else None
    options = Options(
        causal,
        window,
        softcap,
        dropout,
        q.shape[-1] ** -0.5 if scale is None else scale,
        mesh.tp.rank * q.shape[2],
    )
    if not mesh.recompute_core_attn:
        return _attend(q, k, v, sinks, positions, mesh, options, mask, key)

    def again(q: Tensor, k: Tensor, v: Tensor, sinks: Tensor | None) -> Tensor:
        return _attend(q, k, v, sinks, positions, mesh, options, mask, key)

    # Only torch's own draws need the generator's state once more.
    draws = dropout > 0 and not hashed
    y: Tensor = checkpoint(again, q, k, v, sinks, use_reentrant=False, preserve_rng_state=draws)
    return y


def _attend(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    positions: Positions,
    mesh: Mesh,
    options: Options,
    mask: Tensor | None,
    key: Tensor | None,
) -> Tensor:
    """``attention`` behind its checks, with sinks in float32 and the draws' key."""
    if not STANDALONE and positions.decoding is not None:
        kept = keep_keys(k, v, positions.decoding, options, mask)
        if positions.decoding.length:
            return attend_kept(q, *kept, sinks, positions.places, options)
    if mesh.cp.size == 1:
        return _whole(q, k, v, sinks, positions, mesh, options, mask, key)
    if mesh.cp_comm_type == "a2a":
        q, k, v = heads_for_places(q, k, v, mesh.cp)
        options = options._replace(first_head=options.first_head + mesh.cp.rank * q.shape[2])
        if sinks is not None:
            sinks = sinks.chunk(mesh.cp.size)[mesh.cp.rank]
        places = torch.arange(q.shape[1], device=q.device)
        every = Positions(places, places, positions.starts, positions.documents)
        return places_for_heads(_whole(q, k, v, sinks, every, mesh, options, None, key), mesh.cp)
    comm = mesh.cp_comm_type
    documents = positions.starts is not None
    kernel = choose(
        q.device,
        q.dtype,
        q.shape[-1],
        options,
        value_dim=v.shape[-1],
        documents=documents,
        comm=comm,
    )
    return _in_blocks(q, k, v, sinks, positions, mesh, options, key, kernel, comm)


def _whole(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    positions: Positions,
    mesh: Mesh,
    options: Options,
    mask: Tensor | None,
    key: Tensor | None,
) -> Tensor:
    """Every place of the sequence is here, with some of the heads."""
    kernel = choose(
        q.device,
        q.dtype,
        q.shape[-1],
        options,
        value_dim=v.shape[-1],
        sinks=sinks is not None,
        documents=positions.starts is not None,
        mask=mask is not None,
        hashed=key is not None,
    )
    if kernel == "sdpa":
        return fused(q, k, v, options)
    if kernel == "masked":
        return masked(q, k, v, sinks, positions, options, mask, key)
    return _in_blocks(q, k, v, sinks, positions, mesh, options, key, kernel, None)


def _in_blocks(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    sinks: Tensor | None,
    positions: Positions,
    mesh: Mesh,
    options: Options,
    key: Tensor | None,
    kernel: str,
    comm: str | None,
) -> Tensor:
    """``blockwise``; where its kernel wants values as wide as keys, zeros fill narrower ones up."""
    missing = q.shape[-1] - v.shape[-1]
    if kernel == "explicit" or missing == 0:
        return blockwise(q, k, v, sinks, positions, options, key, kernel, comm, mesh.cp)
    wide = F.pad(v, (0, missing))
    y = blockwise(q, k, wide, sinks, positions, options, key, kernel, comm, mesh.cp)
    return y[..., : v.shape[-1]]


def _check(
    q: Tensor,
    k: Tensor,
    v: Tensor,
    positions: Positions,
    mesh: Mesh,
    window: int | None,
    softcap: float | None,
    sinks: Tensor | None,
    mask: Tensor | None,
) -> None:
    b, s, n, d = q.shape
    g = k.shape[2]
    if k.shape != (b, s, g, d) or v.shape[:3] != (b, s, g) or n % g:
        raise ValueError(
            f"q {list(q.shape)}, k {list(k.shape)} and v {list(v.shape)} do not fit: they have to "
            f"be [b, s, n, d], [b, s, g, d] and [b, s, g, d] with g dividing n"
        )
    if positions.places.shape[0] != s:
        raise ValueError(f"{positions.places.shape[0]} positions were given for a sequence of {s}")
    starts = positions.starts
    if starts is not None and starts.shape != (b, s * mesh.cp.size):
        raise ValueError(
            f"positions.starts has shape {list(starts.shape)}; for q {list(q.shape)} at "
            f"cp={mesh.cp.size} it has to be {[b, s * mesh.cp.size]}: whole sequences"
        )
    if starts is not None and positions.documents is None and q.is_cuda:
        raise ValueError(
            "positions have starts and no documents, whose bounds a GPU's kernels read: make them "
            "with Positions.of(input_ids, mesh, starts)"
        )
    if window is not None and window < 1:
        raise ValueError(f"window={window} has to be 1 at least: a place sees itself")
    if softcap is not None and softcap <= 0:
        raise ValueError(f"softcap={softcap} has to be above 0; None means no cap")
    if sinks is not None and sinks.shape != (n,):
        raise ValueError(f"sinks has shape {list(sinks.shape)}, and this rank has {n} heads")
    if mask is None:
        return
    if mesh.cp.size > 1:
        raise NotImplementedError(
            f"a mask tensor says which of a whole sequence's places are barred, and at "
            f"cp={mesh.cp.size} no rank holds a whole sequence: use causal, window and packed "
            "documents, which work under every cp_comm_type, or cp=1"
        )
    if mask.dtype != torch.bool:
        raise TypeError(f"mask is {mask.dtype}; it has to be bool, True where attention is barred")
    fits = mask.dim() <= 4 and all(
        have in (1, want) for have, want in zip(reversed(mask.shape), (s, s, n, b), strict=False)
    )
    if not fits:
        raise ValueError(f"mask {list(mask.shape)} does not broadcast to {[b, n, s, s]}")
