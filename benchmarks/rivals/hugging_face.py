"""Hugging Face transformers' LlamaForCausalLM on one GPU.

float32 masters under autocast to bf16, PyTorch's attention, fused AdamW, clipping. Not compiled:
that is slower here (27,300 tokens/s against 29,300, and 31,000 with Liger's kernels).
"""

from __future__ import annotations

from collections.abc import Callable
from importlib.metadata import version

import torch
from timing import BETAS, CLIP, LEARNING_RATE, NORM_EPSILON, ROTARY_BASE, WEIGHT_DECAY, Shape
from torch import Tensor, nn


def build(shape: Shape, device: str) -> Callable[[int, Tensor], Tensor]:
    """A training step on token ids [b, s + 1], which returns the loss."""
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=shape.hidden,
        num_hidden_layers=shape.layers,
        num_attention_heads=shape.heads,
        num_key_value_heads=shape.groups,
        intermediate_size=shape.ffn,
        vocab_size=shape.vocab,
        max_position_embeddings=shape.length,
        rope_theta=ROTARY_BASE,
        rms_norm_eps=NORM_EPSILON,
        tie_word_embeddings=False,
        use_cache=False,
        attn_implementation="sdpa",
    )
    torch.manual_seed(0)
    with torch.device(device):
        model = LlamaForCausalLM(config).float()
    model.train()
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )

    def step(number: int, ids: Tensor) -> Tensor:
        ids = ids[:, :-1].contiguous().to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = model(input_ids=ids, labels=ids, use_cache=False).loss  # it shifts by itself
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def versions() -> str:
    return f"transformers {version('transformers')}"
