"""The options of an attention, and which kernel computes it.

The choice depends on device and options alone, never on values. Rates are of one H200 with torch
2.11 and bf16: docs/runtime.md has the table.
"""

from __future__ import annotations

from typing import NamedTuple

import torch

from .mesh import Mesh
from .standalone import STANDALONE


class Options(NamedTuple):
    """What ``attention`` was asked for, tensors apart; ``first_head``: this rank's, of all."""

    causal: bool = True
    window: int | None = None
    softcap: float | None = None
    dropout: float = 0.0
    scale: float = 1.0
    first_head: int = 0


_NAMES = {
    "sdpa": "F.scaled_dot_product_attention, by the kernel that torch picks",
    "masked": "matrix products under a mask, the scores of all places in memory",
    "explicit": "matrix products, the scores of a block in memory",
    "cudnn": "cuDNN, block by block",
    "flash": "flash attention 2",
}


def choose(
    device: torch.device,
    dtype: torch.dtype,
    head_dim: int,
    options: Options,
    *,
    value_dim: int | None = None,
    sinks: bool = False,
    documents: bool = False,
    mask: bool = False,
    hashed: bool = False,
    comm: str | None = None,
) -> str:
    """One of "sdpa", "masked" (whole sequences), "cudnn", "flash", "explicit" (blocks of them).

    ``hashed``: dropout is not the kernel's own. ``comm``: the exchange over cp; None in one process
    and within "a2a", where a rank attends whole sequences.
    """
    plain = options.window is None and options.softcap is None
    ring = comm == "p2p"
    fast = (
        not STANDALONE
        and device.type == "cuda"
        and dtype in (torch.bfloat16, torch.float16)
        and (value_dim is None or value_dim <= head_dim)  # narrower ones are filled up
        and head_dim % 8 == 0
        and head_dim <= 256
        and options.softcap is None
        and options.dropout == 0
        and not mask
        # Flash aligns a window to the ends of a document's parts in a block: both must end there.
        and not (documents and options.window is not None and (ring or not options.causal))
    )
    if comm is None:
        if plain and not (sinks or documents or mask or hashed):
            return "sdpa"  # torch takes cuDNN: 622 TFLOP/s forward, 315 for flash
        if not fast:
            return "masked"
    if not fast:
        return "explicit"
    # cuDNN knows neither windows nor documents here, nor wide heads, and its backward is not
    # deterministic; flash's is, where torch.use_deterministic_algorithms asks for it.
    if (
        plain
        and not documents
        and head_dim <= 128
        and not torch.are_deterministic_algorithms_enabled()
    ):
        return "cudnn"
    return "flash"


def kernel_name(
    device: torch.device | str,
    mesh: Mesh,
    options: Options | None = None,
    *,
    head_dim: int = 128,
    sinks: bool = False,
    documents: bool = False,
    mask: bool = False,
) -> str:
    """The kernel that ``attention`` takes, in words for a log."""
    options = options or Options()
    comm = mesh.cp_comm_type if mesh.cp.size > 1 and mesh.cp_comm_type != "a2a" else None
    kernel = choose(
        torch.device(device),
        mesh.dtype,
        head_dim,
        options,
        sinks=sinks,
        documents=documents,
        mask=mask,
        hashed=options.dropout > 0 and mesh.tp.size * mesh.cp.size > 1,
        comm=comm,
    )
    if kernel == "sdpa" and torch.device(device).type == "cuda" and mesh.dtype != torch.float32:
        return f"{_NAMES[kernel]}: cuDNN on Hopper"
    return _NAMES[kernel]
