"""Numbers as a reader wants them: a change with its sign, a size in four digits, per cent."""

from __future__ import annotations

from ..architecture.figure import Unit

_PREFIXES: dict[str, tuple[tuple[float, str], ...]] = {
    "": ((1e12, " T"), (1e9, " B"), (1e6, " M")),
    "FLOPs": ((1e15, " PFLOP"), (1e12, " TFLOP"), (1e9, " GFLOP"), (1e6, " MFLOP")),
    "bytes": ((2.0**40, " TiB"), (2.0**30, " GiB"), (2.0**20, " MiB"), (2.0**10, " KiB")),
}
_BARE: dict[str, str] = {"": "", "FLOPs": " FLOP", "bytes": " bytes"}


def signed(change: int) -> str:
    """`+1,024`, `-1,024`, `0`."""
    return f"{change:+,}" if change else "0"


def short(value: int, unit: Unit = "") -> str:
    """`8.030 B`, `16.06 GFLOP`, `128 KiB`: four digits, and no zeros after a whole number.

    Parameters count in thousands of thousands, bytes in 1024s, as the field does.
    """
    for size, prefix in _PREFIXES[unit]:
        digits = f"{abs(value) / size:.4g}"
        if float(digits) >= 1:  # once rounded: 999,999,999 is a billion
            scaled = value / size
            if scaled == int(scaled):
                return f"{int(scaled):,}{prefix}"
            decimals = max(0, 4 - len(str(int(float(digits)))))
            return f"{scaled:,.{decimals}f}{prefix}"
    return f"{value:,}{_BARE[unit]}"


def percent(before: int, after: int) -> str:
    """The change from one to the other: `+42.6 %`, `same`; from nothing, `new`.

    What is not nothing is never shown as `+0.0 %`.
    """
    if before == after:
        return "same"
    if before == 0:
        return "new"
    change = 100 * (after - before) / before
    if abs(change) >= 1000:
        return f"x {after / before:,.1f}"
    if abs(change) < 0.05:
        return "+<0.1 %" if change > 0 else "-<0.1 %"
    return f"{change:+.1f} %"
