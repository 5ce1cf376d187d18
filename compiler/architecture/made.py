"""What constructors compute: a digest of the operations that a tensor's values come from."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

import torch
from torch import Tensor

from ..validate.op_log import Call, OpLog, Ref, history


def made_digest(calls: Sequence[Call]) -> str:
    """Of the operations and their numbers; shapes are left out, since the model's sizes tell them.

    Short, for a reader to see that two differ.
    """
    said = [(call.op, [_numbers(value) for value in call.args]) for call in calls]
    return hashlib.blake2b(repr(said).encode(), digest_size=3).hexdigest()


def tensor_digest(log: OpLog, tensor: Tensor) -> str | None:
    """Of a tensor that a constructor of the model made, or that was there before: by its values.

    None where nothing is known of it: it was made on the meta device by something else.
    """
    if torch._C._functorch.is_functorch_wrapped_tensor(tensor):
        return None  # inside of `torch.vmap`
    if isinstance(log.source(tensor), int):
        return made_digest(history(log, tensor))
    if tensor.is_meta:
        return None
    values = tensor.detach().cpu().contiguous().flatten().tolist()
    return hashlib.blake2b(repr((tensor.dtype, values)).encode(), digest_size=3).hexdigest()


def _numbers(value: Any) -> Any:
    """Arguments without shapes: tensors by where they come from, sizes not at all."""
    if isinstance(value, Ref):
        return ("tensor", value.source, value.dtype, value.offset)
    if isinstance(value, tuple):
        if value and all(type(v) is int for v in value):
            return "sizes"
        return tuple(_numbers(v) for v in value)
    return value
