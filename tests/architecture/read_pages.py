"""Pages to read: by hand, in the style of the user's own tutorials, and edits of the examples'."""

from __future__ import annotations

import functools
from pathlib import Path

from specc.compiler.architecture.read import read
from specc.compiler.architecture.run import run_page
from specc.compiler.architecture.tree import Architecture, Part
from specc.compiler.architecture.words import words

EXAMPLES = Path(__file__).parents[2] / "generated_examples"


@functools.cache
def example(name: str) -> str:
    """The text of a generated example."""
    return (EXAMPLES / f"{name}.py").read_text(encoding="utf-8")


def edited(text: str, *edits: tuple[str, str]) -> str:
    """A page with some of its text replaced; each piece has to be there."""
    for old, new in edits:
        assert old in text, f"the page has no {old!r}"
        text = text.replace(old, new)
    return text


@functools.cache
def architecture(text: str, name: str = "page") -> Architecture:
    return read(run_page(text, name))


def part(of: Architecture, path: str) -> Part:
    return next(part for at, _, part in of.root.walk() if at == path)


def shown(of: Architecture) -> str:
    """An architecture as a text: a line for each part, its steps below it, then what flows."""
    lines = [f"{name} = {value}" for name, value in of.config]
    for path, times, one in of.root.walk():
        pad = "  " * (path.count(".") + bool(path))
        count = f"{one.parameters:,}" + (f" x {times}" if times > 1 else "")
        first = [f"{pad}{one.segment} <{one.kind}>", words(one), count]
        first += [f"{n}: {v}" for n, v in one.facts if n.split()[0] in ("init", "frozen", "calls")]
        first += [f"{w.name} is {w.tied_to}" for w in one.weights if w.tied_to]
        lines.append(" | ".join(filter(None, first)))
        lines += [f"{pad}    {line}" for line in one.operations]
        for edge in one.edges:
            arrow = "+>" if edge.residual else "->"
            ends = f"{edge.source or 'in'} {arrow} {edge.target or 'out'}"
            lines.append(f"{pad}    : {ends} [{' '.join(edge.shape)}]")
    return "\n".join(lines) + "\n"


NANO = '''"""After the tutorial: attention written out, modules in a dict, a Sequential."""

import math
from dataclasses import dataclass

import torch
import torch.nn.functional as F
from torch import nn


@dataclass
class Config:
    n_layer: int = 4
    n_head: int = 2
    n_embd: int = 64
    block_size: int = 48
    vocab: int = 100


class Attention(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.n_head = config.n_head
        self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)
        self.c_proj = nn.Linear(config.n_embd, config.n_embd)
        self.dropout = nn.Dropout(0.1)
        mask = torch.tril(torch.ones(config.block_size, config.block_size))
        self.register_buffer("bias", mask.view(1, 1, config.block_size, config.block_size))

    def forward(self, x):
        b, t, c = x.size()
        q, k, v = self.c_attn(x).split(c, dim=2)
        q = q.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)
        scores = (q @ k.transpose(-2, -1)) * (1.0 / math.sqrt(k.size(-1)))
        scores = scores.masked_fill(self.bias[:, :, :t, :t] == 0, float("-inf"))
        weights = self.dropout(F.softmax(scores, dim=-1))
        y = (weights @ v).transpose(1, 2).contiguous().view(b, t, c)
        return self.c_proj(y)


class Norm(nn.Module):
    def __init__(self, width):
        super().__init__()
        self.gain = nn.Parameter(torch.ones(width))

    def forward(self, x):
        return x * torch.rsqrt(x.float().pow(2).mean(-1, keepdim=True) + 1e-6) * self.gain


class Block(nn.Module):
    def __init__(self, config):
        super().__init__()
        width = config.n_embd
        self.ln_1 = nn.LayerNorm(width)
        self.attn = Attention(config)
        self.ln_2 = Norm(width)
        self.mlp = nn.Sequential(
            nn.Linear(width, 4 * width), nn.GELU(), nn.Linear(4 * width, width), nn.Dropout(0.1)
        )

    def forward(self, x):
        x = x + self.attn(self.ln_1(x))
        x += 0.5 * self.mlp(self.ln_2(x))
        return x


class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.transformer = nn.ModuleDict(
            dict(
                wte=nn.Embedding(config.vocab, config.n_embd),
                wpe=nn.Embedding(config.block_size, config.n_embd),
                h=nn.Sequential(*[Block(config) for _ in range(config.n_layer)]),
                ln_f=nn.LayerNorm(config.n_embd),
            )
        )
        self.lm_head = nn.Linear(config.n_embd, config.vocab, bias=False)
        self.transformer.wte.weight = self.lm_head.weight

    def forward(self, input_ids, labels=None):
        places = torch.arange(0, input_ids.size(1), device=input_ids.device)
        x = self.transformer.wte(input_ids) + self.transformer.wpe(places)
        x = self.transformer.ln_f(self.transformer.h(x))
        logits = self.lm_head(x)
        if labels is None:
            return logits
        return F.cross_entropy(logits.flatten(0, 1), labels.flatten()), logits


def build_model(mesh=None, config=Config(), *, seed=0, device="cpu"):
    with torch.device(device):
        return Model(config)
'''

# A user's layer that is given other things in every second place, and states handed on.
TORCH = '''"""torch's own layers of attention, one layer three times over, and a frozen table."""

import torch
from torch import nn


class Layer(nn.Module):
    def __init__(self):
        super().__init__()
        self.norm = nn.RMSNorm(32, eps=1e-6)
        self.attention = nn.MultiheadAttention(32, 4, batch_first=True)

    def forward(self, x, mask):
        y, _ = self.attention(x, x, x, attn_mask=mask, need_weights=False)
        return self.norm(x + y)


class Model(nn.Module):
    def __init__(self):
        super().__init__()
        self.table = nn.Embedding(50, 32)
        self.table.weight.requires_grad_(False)
        self.layer = Layer()
        self.head = nn.Linear(32, 50)

    def forward(self, input_ids):
        x = self.table(input_ids)
        places = input_ids.shape[1]
        mask = torch.ones(places, places, dtype=torch.bool).triu(1)
        for _ in range(3):
            x = self.layer(x, mask)
        return self.head(x)


def build_model(mesh, *, seed=0):
    return Model()
'''
