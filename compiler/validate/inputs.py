"""Inputs: what both models are called with, made from the signature of the root's forward."""

from __future__ import annotations

import inspect
from dataclasses import dataclass
from typing import Any

import torch
from torch import Tensor, nn

BATCH, LENGTH = 2, 12
IGNORED = -100


@dataclass(frozen=True)
class Inputs:
    """Keyword arguments for training, and the calls to make in eval mode, by name."""

    train: dict[str, Tensor]
    evals: dict[str, dict[str, Tensor]]


def refusal(root: nn.Module) -> str | None:
    """Why no input can be made for this root, or None where one can."""
    parameters = signature(root)
    name = type(root).__name__
    if "input_ids" not in parameters:
        return f"`{name}.forward` takes ({', '.join(parameters)}) and no `input_ids`"
    needed = [n for n, required in parameters.items() if required]
    unknown = [n for n in needed if n not in ("input_ids", "labels")]
    if unknown:
        return f"`{name}.forward` needs {', '.join(unknown)}, which have no default"
    return None


def signature(root: nn.Module) -> dict[str, bool]:
    """The parameters of the root's forward; whether each has to be passed."""
    found = list(inspect.signature(type(root).forward).parameters.values())[1:]
    variable = (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    return {p.name: p.default is inspect.Parameter.empty and p.kind not in variable for p in found}


def make_inputs(root: nn.Module, configs: list[Any], device: str) -> Inputs:
    """Tokens [b, s] and, where forward takes them, labels of which some are -100.

    Raises ValueError where `refusal` says why not.
    """
    why = refusal(root)
    if why is not None:
        raise ValueError(why)
    parameters = signature(root)
    longest = [getattr(c, "max_position_embeddings", None) for c in configs]
    length = min([LENGTH, *(n for n in longest if isinstance(n, int))])
    generator = torch.Generator().manual_seed(0)
    tokens = torch.randint(0, _vocabulary(root, configs), (BATCH, length + 1), generator=generator)
    ids = {"input_ids": tokens[:, :-1].contiguous().to(device)}
    labels = tokens[:, 1:].clone()
    labels[0, : length // 4] = IGNORED
    labels[1, length // 2] = IGNORED
    both = ids | {"labels": labels.to(device)}
    if "labels" not in parameters:
        return Inputs(ids, {"eval": ids})
    if parameters["labels"]:
        return Inputs(both, {"eval": both})
    return Inputs(both, {"eval without labels": ids, "eval": both})


def _vocabulary(root: nn.Module, configs: list[Any]) -> int:
    """How many tokens there are: what the configs say, else the smallest table."""
    sizes = [getattr(c, "vocab_size", None) for c in configs]
    known = [n for n in sizes if isinstance(n, int)]
    if not known:
        tables = [getattr(m, "num_embeddings", None) for m in root.modules()]
        known = [n for n in tables if isinstance(n, int)]
    return min(known, default=2)


def differentiated(output: Any) -> Tensor:
    """The scalar to call backward on: a loss summed, or another output weighted place by place.

    Of a tuple the first part counts, as for the trainer. The plain sum of an output can have a
    gradient of zero (after a softmax or a norm), so what is no loss is weighted.
    Raises TypeError where there is no tensor of floats.
    """
    first = output[0] if isinstance(output, (tuple, list)) and output else output
    if not isinstance(first, Tensor) or not first.is_floating_point():
        raise TypeError(f"forward returns {type(first).__name__}, which has no gradient")
    if first.dim() < 3:
        return first.float().sum()
    weights = torch.arange(first.numel(), device=first.device).view_as(first)
    return (first.float() * (weights * 0.618034).cos()).sum()


def tensors(output: Any) -> list[Tensor]:
    """The tensors of a forward's output, in order."""
    if isinstance(output, Tensor):
        return [output]
    if isinstance(output, dict):
        return [t for value in output.values() for t in tensors(value)]
    if isinstance(output, (tuple, list)):
        return [t for value in output for t in tensors(value)]
    return []
