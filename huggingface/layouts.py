"""How one of our tensors is laid out beside Hugging Face's: each way with its inverse.

Ours: the rows of q, k and v go group by group, those of gate and up alternate, and experts are
stacked, so that any degree of tensor and expert parallel cuts a block.
"""

# Tensor.unflatten and Tensor.split have no types.
# mypy: disable-error-code="no-untyped-call"

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Numbers:
    """What a layout needs to know of the attention's shape, and of a mixer's.

    ``mixer_groups``: groups of heads that share keys; ``in_parts`` and ``conv_parts``: rows that a
    group has of each part of the first projection and of the convolution.
    """

    heads: int
    groups: int
    head_dim: int
    mixer_groups: int = 1
    in_parts: tuple[int, ...] = ()
    conv_parts: tuple[int, ...] = ()


@dataclass(frozen=True)
class Layout:
    """``ours(parts, numbers)`` and ``theirs(tensor, numbers)`` are each other's inverse.

    Both only move entries, so nothing is rounded. They work on meta tensors too, which says
    which shapes are expected.
    """

    ours: Callable[[Sequence[Tensor], Numbers], Tensor]
    theirs: Callable[[Tensor, Numbers], list[Tensor]]


def _by_group(parts: Sequence[Tensor], n: Numbers) -> Tensor:
    """q [n d, ...], k, v [g d, ...] -> [g (n/g + 2) d, ...]"""
    grouped = [part.unflatten(0, (n.groups, -1, n.head_dim)) for part in parts]
    return torch.cat(grouped, 1).flatten(0, 2)


def _from_groups(tensor: Tensor, n: Numbers) -> list[Tensor]:
    per = n.heads // n.groups
    rows = tensor.unflatten(0, (n.groups, per + 2, n.head_dim))
    return [part.flatten(0, 2) for part in rows.split((per, 1, 1), 1)]


def _split(tensor: Tensor, n: Numbers) -> list[Tensor]:
    """[q | k | v] rows, all of q first."""
    q, kv = n.heads * n.head_dim, n.groups * n.head_dim
    return list(tensor.split((q, kv, kv), 0))


def _gated_by_group(parts: Sequence[Tensor], n: Numbers) -> Tensor:
    """q's rows hold each head's query and then its gate."""
    q = parts[0].unflatten(0, (n.groups, -1, 2, n.head_dim)).transpose(1, 2).flatten(1, 2)
    kv = [part.unflatten(0, (n.groups, -1, n.head_dim)) for part in parts[1:]]
    return torch.cat([q, *kv], 1).flatten(0, 2)


def _gated_from_groups(tensor: Tensor, n: Numbers) -> list[Tensor]:
    per = n.heads // n.groups
    rows = tensor.unflatten(0, (n.groups, 2 * per + 2, n.head_dim))
    q, k, v = rows.split((2 * per, 1, 1), 1)
    q = q.unflatten(1, (2, per)).transpose(1, 2).flatten(0, 3)
    return [q, k.flatten(0, 2), v.flatten(0, 2)]


def _mixer_rows(parts: Sequence[Tensor], n: Numbers) -> Tensor:
    """Each part's rows go group by group; so they do together."""
    grouped = [part.unflatten(0, (n.mixer_groups, -1)) for part in parts]
    return torch.cat(grouped, 1).flatten(0, 1)


def _from_mixer_rows(tensor: Tensor, n: Numbers, widths: Sequence[int]) -> list[Tensor]:
    rows = tensor.unflatten(0, (n.mixer_groups, -1))
    return [part.flatten(0, 1) for part in rows.split(tuple(widths), 1)]


def _stacked(tensor: Tensor, n: Numbers, widths: Sequence[int]) -> Tensor:
    return _mixer_rows(tensor.split([n.mixer_groups * width for width in widths], 0), n)


def _alternate(parts: Sequence[Tensor], n: Numbers) -> Tensor:
    return torch.stack(tuple(parts), 1).flatten(0, 1)


def _from_alternating(tensor: Tensor, n: Numbers) -> list[Tensor]:
    return list(tensor.unflatten(0, (-1, 2)).unbind(1))


def _transposed(tensor: Tensor) -> Tensor:
    return tensor.transpose(-1, -2)


LAYOUTS: dict[str, Layout] = {
    "same": Layout(lambda parts, n: parts[0], lambda tensor, n: [tensor]),
    "transposed": Layout(
        lambda parts, n: _transposed(parts[0]), lambda tensor, n: [_transposed(tensor)]
    ),
    "rows by group": Layout(_by_group, _from_groups),
    "query and gate rows by group": Layout(_gated_by_group, _gated_from_groups),
    "stacked rows by group": Layout(
        lambda parts, n: _by_group(_split(parts[0], n), n),
        lambda tensor, n: [torch.cat(_from_groups(tensor, n))],
    ),
    "transposed, stacked rows by group": Layout(
        lambda parts, n: _by_group(_split(_transposed(parts[0]), n), n),
        lambda tensor, n: [_transposed(torch.cat(_from_groups(tensor, n)))],
    ),
    "mixer's rows by group": Layout(
        _mixer_rows, lambda tensor, n: _from_mixer_rows(tensor, n, n.in_parts)
    ),
    "mixer's stacked rows by group": Layout(
        lambda parts, n: _stacked(parts[0], n, n.in_parts),
        lambda tensor, n: [torch.cat(_from_mixer_rows(tensor, n, n.in_parts))],
    ),
    "convolution by group": Layout(
        lambda parts, n: _stacked(parts[0], n, n.conv_parts),
        lambda tensor, n: [torch.cat(_from_mixer_rows(tensor, n, n.conv_parts))],
    ),
    "rows alternate": Layout(_alternate, _from_alternating),
    "stacked rows alternate": Layout(
        lambda parts, n: _alternate(parts[0].chunk(2, 0), n),
        lambda tensor, n: [torch.cat(_from_alternating(tensor, n))],
    ),
}
