"""A page in bfloat16 under FSDP on one rank equals the same without FSDP, bit for bit.

Without FSDP, the two gradients of a tied weight would meet in float32: there, a step rounds their
sum as FSDP does.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layout_step import Alone, Case, assert_within, run_all


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("page", ["llama", "learned", "rotary"])
def test_page(
    ranks: Callable[..., list[Any]], alone: Callable[..., Alone], page: str, accumulation: int
) -> None:
    one = alone(page, torch.bfloat16, accumulation)
    case = Case(fsdp=True, accumulation=accumulation)
    assert_within(ranks(1, run_all, one.text, [case], one.file, torch.bfloat16), 0.0)
