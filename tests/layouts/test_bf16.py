"""A page in bfloat16 under FSDP on one rank equals the same without FSDP, bit for bit."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
import torch
from layout_step import Alone, assert_within, run_all

from specc.runtime.layouts import Degrees
from specc.runtime.one_step import Case


@pytest.mark.parametrize("accumulation", [1, 4])
@pytest.mark.parametrize("page", ["llama", "learned", "rotary"])
def test_page(
    ranks: Callable[..., list[Any]], alone: Callable[..., Alone], page: str, accumulation: int
) -> None:
    one = alone(page, torch.bfloat16, accumulation)
    case = Case(Degrees(zero=3), accumulation)
    assert_within(ranks(1, run_all, [one], [case], torch.bfloat16), 0.0)
