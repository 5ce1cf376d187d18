"""Pages that no template made: attention written out or from latents, experts, a mixer without."""

from __future__ import annotations

_MODEL = '''"""A small model by hand."""

import torch
import torch.nn.functional as F
from torch import Tensor, nn

WIDTH, HEADS, VOCABULARY = 48, 4, 101


{layer}

class Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(VOCABULARY, WIDTH)
        self.layers = nn.ModuleList([Layer() for _ in range(3)])
        self.head = nn.Linear(WIDTH, VOCABULARY, bias=False)
        self.unread = nn.Parameter(torch.zeros(7))

    def forward(self, input_ids: Tensor) -> Tensor:
        x = self.table(input_ids)
        for layer in self.layers:
            x = x + layer(x)
        return self.head(x)


def build_model(mesh: object, *, seed: int = 0, device: str = "cpu") -> Model:
    with torch.device(device):
        return Model()
'''

_ATTENTION = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.qkv = nn.Linear(WIDTH, 3 * WIDTH)
        self.out = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        q, k, v = self.qkv(x).unflatten(-1, (3, HEADS, -1)).transpose(1, 3).unbind(2)
        {attend}
        return self.out(y.transpose(1, 2).flatten(2))

"""

_LATENTS = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.q_down = nn.Linear(WIDTH, 20, bias=False)
        self.q_norm = nn.RMSNorm(20)
        self.q_up = nn.Linear(20, HEADS * 16, bias=False)
        self.kv_down = nn.Linear(WIDTH, 10 + 6, bias=False)
        self.kv_norm = nn.RMSNorm(10)
        self.kv_up = nn.Linear(10, HEADS * (10 + 8), bias=False)
        self.out = nn.Linear(HEADS * 8, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        q = self.q_up(self.q_norm(self.q_down(x))).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        latent, shared = self.kv_down(x).split((10, 6), -1)
        kv = self.kv_up(self.kv_norm(latent)).unflatten(-1, (HEADS, -1)).transpose(1, 2)
        k, v = kv.split((10, 8), -1)
        k = torch.cat((k, shared.unsqueeze(1).expand(-1, HEADS, -1, -1)), -1)
        y = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        return self.out(y.transpose(1, 2).flatten(2))

"""

_EXPERTS = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.router = nn.Linear(WIDTH, 4)
        self.experts = nn.ModuleList([nn.Linear(WIDTH, WIDTH) for _ in range(4)])

    def forward(self, x: Tensor) -> Tensor:
        weight, chosen = self.router(x).softmax(-1).topk(2, -1)
        share = torch.zeros_like(self.router(x)).scatter(-1, chosen, weight)
        return sum(share[..., i : i + 1] * e(x) for i, e in enumerate(self.experts))

"""

_SUMS = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Linear(WIDTH, WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.cumsum(1))

"""

_CONVOLUTION = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.Conv1d(WIDTH, WIDTH, 4, padding=3, groups=WIDTH)

    def forward(self, x: Tensor) -> Tensor:
        return self.mix(x.mT)[..., : x.shape[1]].mT

"""

_STATES = """from specc.runtime import CausalConv1d, Mesh, Positions, gated_delta_rule, ssd


class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.into = nn.Linear(WIDTH, 2 * 3 * 8 + 2 * 2 * 5 + 6, bias=False)
        self.conv = CausalConv1d(2, 2 * (3 * 8 + 2 * 5), 4, Mesh.single())
        self.out = nn.Linear(2 * 3 * 8, WIDTH, bias=False)

    def forward(self, x: Tensor) -> Tensor:
        positions = Positions.of_hidden(x, Mesh.single())
        xbc, dt = self.into(x).split((2 * (3 * 8 + 2 * 5), 6), -1)
        xbc = self.conv(xbc.unflatten(-1, (2, -1)), positions)
        v, b, c = xbc.split((3 * 8, 5, 5), -1)
        v, dt = v.unflatten(-1, (3, 8)), dt.unflatten(-1, (2, 3)).sigmoid()
        y = {recurrence}
        return self.out(y.flatten(2))

"""
_SSD = "ssd(v, dt, -torch.ones(6, device=x.device), b, c, v.new_zeros(6), positions, Mesh.single())"
_DELTA = "gated_delta_rule(b, c, v, -dt, dt, positions)"

_MULTI_HEAD = """class Layer(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.mix = nn.MultiheadAttention(WIDTH, HEADS, batch_first=True)

    def forward(self, x: Tensor) -> Tensor:
        barred = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        return self.mix(x, x, x, attn_mask=barred, need_weights={weights})[0]

"""

_PRODUCTS = """scores = q @ k.transpose(-1, -2)
        barred = torch.ones(x.shape[1], x.shape[1], dtype=torch.bool, device=x.device).triu(1)
        y = scores.masked_fill(barred, float("-inf")).softmax(-1) @ v"""
_STATE = """y = q.softmax(-1) @ (k.softmax(-2).transpose(-1, -2) @ v)  # linear, over all places"""
_TORCH = "y = F.scaled_dot_product_attention(q, k, v, is_causal=True)"


def by_products() -> str:
    """softmax(q k^T) v, written out."""
    return _MODEL.format(layer=_ATTENTION.format(attend=_PRODUCTS))


def linear() -> str:
    """q (k^T v): keys and values meet over all places."""
    return _MODEL.format(layer=_ATTENTION.format(attend=_STATE))


def by_torch() -> str:
    """torch's own attention."""
    return _MODEL.format(layer=_ATTENTION.format(attend=_TORCH))


def latents() -> str:
    """DeepSeek's: keys and values from 10 channels, and 6 that all heads share."""
    return _MODEL.format(layer=_LATENTS)


def experts() -> str:
    """Two of four experts, each computed for every token."""
    return _MODEL.format(layer=_EXPERTS)


def states(*, delta: bool) -> str:
    """Mamba-2's state space, or the gated delta rule: 6 heads of 8, 2 groups, states of 5."""
    return _MODEL.format(layer=_STATES.format(recurrence=_DELTA if delta else _SSD))


def running_sums() -> str:
    """Places meet in a running sum."""
    return _MODEL.format(layer=_SUMS)


def convolution() -> str:
    """Each channel's last four places, padded: 3 places more come out than go in."""
    return _MODEL.format(layer=_CONVOLUTION)


def multi_head(*, weights: bool) -> str:
    """torch's module, which projects by itself; with `weights` it multiplies matrices."""
    return _MODEL.format(layer=_MULTI_HEAD.format(weights=weights))
