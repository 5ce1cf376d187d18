"""`specc compile page.py`: a page that was read back is written as it stands, byte for byte."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from specc.templates.diagnostic import Diagnostic

from ..diagnostics import fail, shown_path
from ..write import write_page
from .page_numbers import set_numbers
from .read_back import read_back
from .source import Source


@dataclass(frozen=True)
class Written:
    """What was done, in a line, and what else is to be said."""

    said: str
    notes: tuple[Diagnostic, ...]


def rewrite(
    page: Source, output: Path | None, overrides: Sequence[str], *, run: bool, force: bool
) -> Written:
    """Check a page and write it to `output`, or to where it is; without `run` it is not run.

    `overrides`, which `page` has in its text already, change the numbers of its configs: the
    header stays, so `specc check` calls the page edited by hand, which it is.

    Raises `SpecError`: SP618 where a page at a revision is to be written nowhere, what `read_back`
    and `write_page` raise.
    """
    path = output or page.path
    if path is None:
        fail(
            "SP618",
            f"`{page.name}` is a page of the past, and it is not said where to write it",
            help="name a file with -o",
        )
    checked = read_back(page, run=run)
    text = page.page_text
    if page.path is not None:  # its line ends, and whatever else reading would make alike
        raw = page.path.read_bytes().decode("utf-8", errors="surrogateescape")
        text = set_numbers(raw, overrides) if overrides else raw
    in_place = page.path is not None and path.resolve() == page.path.resolve()
    if in_place and not overrides:
        changed = False
    else:
        # In place nothing is lost: what is written is what was there, with other numbers.
        changed = write_page(path, text, force=force or in_place)
    parts = [f"{text.count(chr(10))} lines"]
    if checked.parameters is not None:
        parts.append(f"{checked.parameters:,} parameters")
    parts.append("as it stands" if not overrides else "as it stands but for the numbers set")
    said = f"{'wrote' if changed else 'unchanged:'} {shown_path(path)}: {', '.join(parts)}"
    return Written(said, _notes(page, overrides))


def _notes(page: Source, overrides: Sequence[str]) -> tuple[Diagnostic, ...]:
    if not overrides:
        return ()
    note = Diagnostic(
        "SP663",
        f"the numbers of `{page.name}` were set in its Config alone: its docstring and its header "
        "still speak of those that it was compiled with",
        help=f"`specc compile {page.origin.split(' --set ')[0] or 'SPEC'} --set ...` compiles all "
        "of it anew",
    )
    return (note,)
