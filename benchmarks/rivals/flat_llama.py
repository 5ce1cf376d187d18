"""A Llama written flat, by hand, for one GPU: what a page is up against.

float32 masters under autocast to bf16, each layer and the head with its loss compiled, causal
attention by the kernel that PyTorch chooses, fused AdamW over all parameters, clipping.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
import torch.nn.functional as F
from timing import (
    BETAS,
    CLIP,
    INIT_STD,
    LEARNING_RATE,
    NORM_EPSILON,
    ROTARY_BASE,
    WEIGHT_DECAY,
    Shape,
)
from torch import Tensor, nn


class Layer(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.shape = shape
        heads = shape.heads + 2 * shape.groups
        self.norm1 = nn.RMSNorm(shape.hidden, eps=NORM_EPSILON)
        self.qkv = nn.Linear(shape.hidden, heads * shape.head_dim, bias=False)
        self.proj = nn.Linear(shape.heads * shape.head_dim, shape.hidden, bias=False)
        self.norm2 = nn.RMSNorm(shape.hidden, eps=NORM_EPSILON)
        self.gate_up = nn.Linear(shape.hidden, 2 * shape.ffn, bias=False)
        self.down = nn.Linear(shape.ffn, shape.hidden, bias=False)

    def forward(self, x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        n, g = self.shape.heads, self.shape.groups
        qkv = self.qkv(self.norm1(x)).unflatten(-1, (n + 2 * g, self.shape.head_dim))
        q, k, v = qkv.transpose(1, 2).split((n, g, g), dim=1)
        q, k = turn(q, cos, sin), turn(k, cos, sin)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=n != g)
        x = x + self.proj(y.transpose(1, 2).flatten(2))
        gate, up = self.gate_up(self.norm2(x)).chunk(2, -1)
        return x + self.down(F.silu(gate) * up)


def turn(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """Rotary positions on x [b, n, s, d]."""
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1).to(x.dtype)


def head_loss(x: Tensor, weight: Tensor, labels: Tensor) -> Tensor:
    logits = F.linear(x, weight).float()
    return F.cross_entropy(logits.flatten(0, 1), labels.flatten())


class Llama(nn.Module):
    def __init__(self, shape: Shape) -> None:
        super().__init__()
        self.embedding = nn.Embedding(shape.vocab, shape.hidden)
        self.layers = nn.ModuleList(Layer(shape) for _ in range(shape.layers))
        self.norm = nn.RMSNorm(shape.hidden, eps=NORM_EPSILON)
        self.head = nn.Linear(shape.hidden, shape.vocab, bias=False)
        self.loss = torch.compile(head_loss)

    def forward(self, ids: Tensor, labels: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
        x = self.embedding(ids)
        for layer in self.layers:
            x = layer(x, cos, sin)
        return self.loss(self.norm(x), self.head.weight, labels)


def build(shape: Shape, device: str) -> Callable[[int, Tensor], Tensor]:
    """A training step on token ids [b, s + 1], which returns the loss."""
    torch.manual_seed(0)
    with torch.device(device):
        model = Llama(shape)
        for parameter in model.parameters():
            if parameter.dim() > 1:
                nn.init.normal_(parameter, std=INIT_STD)
        channels = torch.arange(0, shape.head_dim, 2).float() / shape.head_dim
        angles = torch.outer(torch.arange(shape.length).float(), ROTARY_BASE**-channels)
    cos, sin = angles.cos(), angles.sin()
    for layer in model.layers:
        layer.compile(fullgraph=True)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=LEARNING_RATE, betas=BETAS, weight_decay=WEIGHT_DECAY, fused=True
    )

    def step(number: int, ids: Tensor) -> Tensor:
        ids = ids.to(device, non_blocking=True)
        with torch.autocast(device, torch.bfloat16):
            loss = model(ids[:, :-1], ids[:, 1:], cos, sin)
        loss.backward()
        nn.utils.clip_grad_norm_(model.parameters(), CLIP, foreach=True)
        optimizer.step()
        optimizer.zero_grad()
        return loss

    return step


def versions() -> str:
    return f"torch {torch.__version__}"
