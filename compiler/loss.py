"""Loss: what a model's forward returns where labels are given, found by calling it on meta."""

from __future__ import annotations

import inspect
from typing import Any

import torch
from torch import Tensor, nn

from specc.templates.diagnostic import Diagnostic

from .errors import span_of_class
from .record import users_line


def loss_kind(root: nn.Module, notes: list[Diagnostic]) -> str | None:
    """ "per_token" for [b, s], "local_mean" for a scalar or a tuple that starts with one, else
    None.

    A model whose forward does not take `input_ids` and `labels` has no loss that the trainer knows;
    one that can't run without values is noted.
    """
    parameters = inspect.signature(type(root).forward).parameters
    if "input_ids" not in parameters or "labels" not in parameters:
        return None
    ids = torch.zeros(2, 8, dtype=torch.long, device="meta")
    try:
        with torch.no_grad():
            result: Any = root.eval()(input_ids=ids, labels=ids)
    except Exception as error:  # a user's forward may do anything; the page is sound without LOSS
        reason = str(error).partition("\n")[0] or type(error).__name__
        notes.append(
            Diagnostic(
                "SP410",
                f"the page states no LOSS: the model does not run without values ({reason})",
                span=users_line(error) or span_of_class(type(root)),
                help="train it at dp 1 without accumulation, on the scalar that it returns",
            )
        )
        return None
    finally:
        root.train()
    first = result[0] if isinstance(result, tuple) and result else result
    if isinstance(first, Tensor) and first.shape == ids.shape and first is result:
        return "per_token"
    if isinstance(first, Tensor) and first.shape == ():
        return "local_mean"
    return None
