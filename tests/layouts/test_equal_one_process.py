"""A page at every layout of tp, sequence parallel, dp and accumulation equals one process.

The same initial values bit for bit; loss, outputs, every gradient before and after clipping and
their norm to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from layout_pages import PAGES
from layout_step import Alone, Case, assert_within, run_all


def cases(tp: int, dp: int, sequence_parallel: bool) -> list[Case]:
    """FSDP wherever there is data parallel, and also over one rank."""
    return [
        Case(tp, sequence_parallel, fsdp, accumulation)
        for fsdp in ((True,) if dp > 1 else (False, True) if tp < 4 else (False,))
        for accumulation in (1, 4)
    ]


LAYOUTS = [  # tp, dp, sequence parallel
    (1, 1, False),
    (1, 2, False),
    (2, 1, False),
    (2, 1, True),
    (2, 2, False),
    (2, 2, True),
    (4, 1, False),
    (4, 1, True),
]


@pytest.mark.parametrize(("tp", "dp", "sequence_parallel"), LAYOUTS)
@pytest.mark.parametrize("page", PAGES)
def test_page(
    ranks: Callable[..., list[Any]],
    alone: Callable[..., Alone],
    page: str,
    tp: int,
    dp: int,
    sequence_parallel: bool,
) -> None:
    one = alone(page)
    results = ranks(tp * dp, run_all, one.text, cases(tp, dp, sequence_parallel), one.file)
    assert_within(results, 1e-5)
