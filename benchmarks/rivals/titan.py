"""torchtitan 0.2.2's own Llama 3, compiled as it compiles, on one GPU.

On one device torchtitan mixes precision by autocast (``distributed.utils.maybe_enable_amp``): its
fastest setting here. Model, compile, loss, optimizer and clipping are the installed package's;
data loader, schedule and logging are left out.
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version
from types import SimpleNamespace
from typing import Any

import torch
from timing import BETAS, CLIP, LEARNING_RATE, ROTARY_BASE, WEIGHT_DECAY, Shape
from torch import Tensor


def build(shape: Shape, device: str) -> Callable[[int, Tensor], Tensor]:
    """A training step on token ids [b, s + 1], which returns the loss."""
    from torchtitan.components.loss import build_cross_entropy_loss
    from torchtitan.components.optimizer import OptimizersContainer
    from torchtitan.config.job_config import Compile
    from torchtitan.distributed.utils import clip_grad_norm_
    from torchtitan.models.llama3 import Transformer, TransformerModelArgs
    from torchtitan.models.llama3.infra.parallelize import apply_compile

    arguments = TransformerModelArgs(
        dim=shape.hidden,
        n_layers=shape.layers,
        n_heads=shape.heads,
        n_kv_heads=shape.groups,
        vocab_size=shape.vocab,
        max_seq_len=shape.length,
        rope_theta=ROTARY_BASE,
        # Its width is 2/3 of 4 * dim, times the multiplier, rounded up to a multiple: this one.
        multiple_of=shape.ffn,
        ffn_dim_multiplier=0.5 * shape.ffn / int(8 * shape.hidden / 3),
        attn_type="sdpa",
        attn_mask_type="causal",
    )
    with torch.device("meta"):
        model = Transformer(arguments)
    compiling = Compile(enable=True)
    apply_compile(model, compiling)
    model.to_empty(device=device)
    torch.manual_seed(0)
    with torch.no_grad():
        model.init_weights(buffer_device=torch.device(device))
    model.train()
    job: Any = SimpleNamespace(compile=compiling)
    loss_of = build_cross_entropy_loss(job)
    settings = {"lr": LEARNING_RATE, "betas": BETAS, "weight_decay": WEIGHT_DECAY, "fused": True}
    optimizers = OptimizersContainer([model], torch.optim.AdamW, settings)
    parameters = list(model.parameters())

    def step(number: int, ids: Tensor) -> Tensor:
        ids = ids.to(device, non_blocking=True)
        labels = ids[:, 1:].contiguous()
        optimizers.zero_grad()
        with torch.autocast(device, torch.bfloat16):
            logits = model(ids[:, :-1].contiguous())
            loss = loss_of(logits, labels) / labels.numel()
        del logits
        loss.backward()
        clip_grad_norm_(parameters, CLIP, foreach=True)
        optimizers.step()
        return loss

    return step


def versions() -> str:
    return f"torchtitan {version('torchtitan')}"
