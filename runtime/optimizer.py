"""AdamW over a model, and the learning rate of a step."""

from __future__ import annotations

import math
from dataclasses import dataclass

import torch
from torch import nn

from .adamw import AdamW

# What AdamW keeps for each parameter, of the parameter's own shape and layout.
STATES = ("exp_avg", "exp_avg_sq")


@dataclass(frozen=True)
class Schedule:
    """Linear warmup over ``warmup`` steps, then a cosine from ``lr`` to ``min_lr`` at ``steps``."""

    lr: float
    min_lr: float
    warmup: int
    steps: int

    def __call__(self, step: int) -> float:
        """The rate of step ``step``, counted from 0; the first is not 0, the last is min_lr."""
        if step < self.warmup:
            return self.lr * (step + 1) / self.warmup
        done = min(1.0, (step + 1 - self.warmup) / max(1, self.steps - self.warmup))
        return self.min_lr + (self.lr - self.min_lr) * 0.5 * (1 + math.cos(math.pi * done))


def adamw(
    model: nn.Module,
    *,
    lr: float,
    betas: tuple[float, float],
    weight_decay: float,
    eps: float = 1e-8,
    compiled: bool = False,
) -> AdamW:
    """AdamW (arXiv 1711.05101), fused. Matrices decay; norms, biases and other vectors do not.

    Its state is there from the start (zeros), so that a checkpoint can be loaded into it.
    """
    parameters = [p for p in model.parameters() if p.requires_grad]  # a tied one comes once
    matrices = [p for p in parameters if p.dim() > 1]
    vectors = [p for p in parameters if p.dim() < 2]
    optimizer = AdamW(
        [
            {"params": matrices, "weight_decay": weight_decay},
            {"params": vectors, "weight_decay": 0.0},
        ],
        lr=lr,
        betas=betas,
        eps=eps,
        compiled=compiled,
    )
    for parameter in parameters:
        optimizer.state[parameter] = {
            # Fused AdamW counts on the device of the parameter, in float32.
            "step": torch.zeros((), dtype=torch.float32, device=parameter.device),
            **{
                name: torch.zeros_like(parameter, memory_format=torch.preserve_format)
                for name in STATES
            },
        }
    return optimizer


def set_rate(optimizer: torch.optim.Optimizer, rate: float) -> None:
    """Give every group the rate of the step that comes."""
    for group in optimizer.param_groups:
        group["lr"] = rate


def set_step_count(optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Say how many steps the states have seen (AdamW corrects their bias by it)."""
    for state in optimizer.state.values():
        state["step"].fill_(float(steps))
