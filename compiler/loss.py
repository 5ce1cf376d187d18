"""Loss: what a model's forward returns where labels are given, found by calling it on the meta device."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn


def loss_kind(root: nn.Module) -> str | None:
    """"per_token" for [b, s], "local_mean" for a scalar or a tuple that starts with one; None for anything else.

    A model whose forward does not take `input_ids` and `labels` has no loss that the trainer knows.
    """
    parameters = inspect.signature(type(root).forward).parameters
    if "input_ids" not in parameters or "labels" not in parameters:
        return None
    ids = torch.zeros(2, 8, dtype=torch.long, device="meta")
    with torch.no_grad():
        result: Any = root.eval()(input_ids=ids, labels=ids)
    root.train()
    first = result[0] if isinstance(result, tuple) and result else result
    if isinstance(first, Tensor) and first.shape == ids.shape and first is result:
        return "per_token"
    if isinstance(first, Tensor) and first.shape == ():
        return "local_mean"
    return None
