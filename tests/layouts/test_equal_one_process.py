"""A page at every layout of tp, sequence parallel, dp and accumulation equals one process.

The same initial values bit for bit; loss, outputs, every gradient before and after clipping and
their norm to float32 rounding.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from layout_pages import PAGES
from layout_step import Case, run_all

ROUNDING = 1e-5

SEQUENCE_PARALLEL = (False, True)


def cases(tp: int, dp: int) -> list[Case]:
    """FSDP wherever there is data parallel, and on one rank, as in bfloat16."""
    return [
        Case(tp, sequence_parallel, fsdp, accumulation)
        for sequence_parallel in ((False, True) if tp > 1 else (False,))
        for fsdp in ((True,) if dp > 1 or tp == 1 else (False,))
        for accumulation in (1, 4)
    ]


def assert_rounding(results: list[dict[str, dict[str, float]]]) -> None:
    wrong = [
        f"rank {rank}, {case}: {name} differs by {difference:.1e}"
        for rank, result in enumerate(results)
        for case, found in result.items()
        for name, difference in found.items()
        if not difference <= ROUNDING
    ]
    assert not wrong, f"{len(wrong)} tensors:\n" + "\n".join(wrong[:40])


@pytest.mark.parametrize(("tp", "dp"), [(1, 1), (1, 2), (2, 1), (2, 2), (4, 1)])
@pytest.mark.parametrize("page", PAGES)
def test_page(
    ranks: Callable[..., list[Any]], alone: Callable[..., Any], page: str, tp: int, dp: int
) -> None:
    one = alone(page)
    results = ranks(tp * dp, run_all, one.text, cases(tp, dp), one.file)
    assert_rounding(results)
