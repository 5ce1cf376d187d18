"""A few words about a part, and how they changed."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Phrase:
    """What is (`before` None), what was (`after` None), or how it changed."""

    before: str | None
    after: str | None

    def pieces(self) -> tuple[str, str, str, str]:
        """What both sides begin with, the rest of what was, of what is, and what both end with:
        ("GQA", "32/8", "64/8", "heads of 128").

        Both begin alike only where they are as long: `GELU (tanh) 3072 → GELU 16384` would else
        read as if both were the one in brackets.
        """
        before, after = (self.before or "").split(" "), (self.after or "").split(" ")
        # A word is left for each side, so that both stand there.
        room = min(len(before), len(after)) - 1
        lead = _common(before, after, room) if len(before) == len(after) else 0
        trail = _common(before[::-1], after[::-1], room - lead)
        was, now = (" ".join(side[lead : len(side) - trail]) for side in (before, after))
        return " ".join(after[:lead]), was, now, " ".join(after[len(after) - trail :])

    def text(self, arrow: str = "→") -> str:
        """`GQA 32/8 → 64/8 heads of 128`."""
        if self.before is None or self.after is None:
            return self.before or self.after or ""
        lead, before, after, trail = self.pieces()
        return " ".join(piece for piece in (lead, before, arrow, after, trail) if piece)


def _common(first: list[str], second: list[str], most: int) -> int:
    """How many words two lists begin with in common."""
    count = 0
    while count < most and first[count] == second[count]:
        count += 1
    return count
