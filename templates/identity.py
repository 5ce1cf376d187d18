"""What stands in a slot that holds nothing."""

from __future__ import annotations

from typing import Any

from torch import nn


class IdentityOp(nn.Module):
    """Returns its first argument; takes any constructor arguments. A page leaves it out."""

    def __init__(self, *args: object, **kwargs: object) -> None:
        super().__init__()

    def forward(self, x: Any, *args: object, **kwargs: object) -> Any:
        return x


class IdentityFuncOp(IdentityOp):
    """Returns a function that returns its first argument: for slots that are called twice."""

    def forward(self, *args: object, **kwargs: object) -> Any:
        return super().forward
