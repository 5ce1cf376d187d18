"""The markers that a merge leaves in a text where both sides changed the same lines."""

from __future__ import annotations

import re

# All three: a line of a docstring may look like one of them.
_CONFLICT = re.compile(
    r"^<{7}(?: [^\n]*)?\n(?:[^\n]*\n)*?={7}\n(?:[^\n]*\n)*?>{7}(?: |$)", re.MULTILINE
)


def first_marker(text: str) -> int | None:
    """The number of the line on which the first conflict begins; None where there is none."""
    found = _CONFLICT.search(text)
    return text.count("\n", 0, found.start()) + 1 if found else None
