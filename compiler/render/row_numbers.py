"""The column of parameters."""

from __future__ import annotations

from .numbers import signed
from .row import Row


def row_parameters(row: Row) -> str:
    """`8,192`, of a difference `+1,024`; `each` behind it where the line stands for several
    modules; empty where nothing changed, or there is nothing to count.
    """
    compared = row.change is not None or row.sign != " "
    if row.parameters is None or (compared and not row.parameters):
        return ""
    count = signed(row.parameters) if compared else f"{row.parameters:,}"
    return f"{count} each" if row.times > 1 else count
