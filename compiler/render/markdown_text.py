"""Text that Markdown shows as it stands."""

from __future__ import annotations

import re

_SPECIAL = re.compile(r"([\\`*_\[\]<>#|~&!])")

_BAR = re.compile(r"(\\*)\|")


def escaped(text: str) -> str:
    """Words outside of code: nothing in them is markup."""
    return _SPECIAL.sub(r"\\\1", " ".join(text.split()))


def code(text: str, *, in_table: bool = False) -> str:
    """A text in a code span, whatever back quotes are in it; in a cell of a table a bar is escaped,
    which GitHub takes back before it reads the span.
    """
    text = " ".join(text.split()) or " "
    if in_table:
        text = _BAR.sub(lambda found: found[1] * 2 + "\\|", text)
    if "`" not in text:
        return f"`{text}`"
    quotes = "`" * (_longest(text) + 1)
    return f"{quotes} {text} {quotes}"


def fenced(text: str, language: str) -> str:
    """Lines in a fence that no line of theirs can close."""
    fence = "`" * max(3, _longest(text) + 1)
    return f"{fence}{language}\n{text}{fence}\n"


def _longest(text: str) -> int:
    """The longest run of back quotes."""
    return max((len(run) for run in re.findall("`+", text)), default=0)
