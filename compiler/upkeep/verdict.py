"""What `specc check` says of a page, and every cause that it tells apart."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Literal

from ..diagnostics import shown_path

# A record of the header that does not hold any more.
SPEC = "spec changed"
LIBRARY = "library changed"
FORMATTER = "formatter changed"
EDITED = "edited by hand"
# The header itself: its hash of a body that is right is wrong, or it is no header any more.
HEADER = "header edited by hand"
UNREADABLE = "header cannot be read"
# The page is not what a person made of it yet.
CONFLICT = "conflict markers"
# Its spec gives no page.
GONE = "spec gone"
OVERRIDE = "override no longer valid"
BROKEN = "spec does not compile"
# Which packages a spec imports is not known without it.
LIBRARY_OR_PACKAGE = "library changed, or the spec imported an installed package"
UNRECORDED = "something changed that the header does not record"


@dataclass(frozen=True)
class Verdict:
    """What a page is: fresh, stale, or not to be decided since its spec gives no page.

    `causes` are those for which it is not fresh, or for which the header of a fresh one is behind.
    `diff` goes from a stale page to what it should be. `error` says why the spec gives no page.
    """

    page: Path
    state: Literal["fresh", "stale", "unknown"]
    causes: tuple[str, ...] = ()
    diff: str = ""
    error: Exception | None = field(default=None, compare=False)

    @property
    def fresh(self) -> bool:
        return self.state == "fresh"

    def render(self) -> str:
        """The verdict in one line."""
        page, causes = shown_path(self.page), ", ".join(self.causes)
        if self.state == "stale":
            return f"{page}: stale: {causes}"
        if self.state == "unknown":
            return f"{page}: cannot be checked: {causes}"
        return f"{page}: fresh{f' ({self.note})' if self.causes else ''}"

    @property
    def note(self) -> str:
        """What is to be said of a fresh page whose header is behind."""
        return (
            f"{', '.join(self.causes)}, and the page is the same; "
            "`specc compile` brings its header up to date"
        )

    @property
    def line(self) -> int:
        """The first line of the page that the diff changes; 1 without a diff."""
        lines = self.diff.splitlines()[3:]
        if not lines:
            return 1
        start = int(self.diff.splitlines()[2].split()[1].lstrip("-").split(",")[0])
        unchanged = next(i for i, line in enumerate(lines) if not line.startswith(" "))
        return max(1, start + unchanged)
