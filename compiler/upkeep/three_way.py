"""`specc compile --merge`: a page that was edited by hand, and what its spec gives now, as one."""

from __future__ import annotations

import ast
import re
import shlex
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnostics import fail, parse_error, shown_path
from ..header import digest, split_page
from ..write import read_page, write_page
from .conflict_markers import first_marker
from .three_way_base import Base, find_base
from .three_way_imports import merge_imports, split_imports
from .three_way_names import lost_names
from .three_way_text import Conflict, Piece, lines_of, marked, merge_texts

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic


@dataclass(frozen=True)
class Merged:
    """What a merge came to.

    `written` is the page, or with `conflicts` the file beside it that holds the result. `notes` are
    to be told as warnings. `base` is where the text before the edits was found, "" where there were
    none.
    """

    page: Path
    written: Path
    changed: bool
    base: str
    conflicts: tuple[Diagnostic, ...] = ()
    notes: tuple[Diagnostic, ...] = ()

    def render(self) -> str:
        """The outcome in a line."""
        page, written = shown_path(self.page), shown_path(self.written)
        if self.conflicts:
            count = len(self.conflicts)
            many = "a conflict" if count == 1 else f"{count} conflicts"
            return (
                f"{written}: {many}; {page} is as it was. Resolve it there, then "
                f"`{shlex.join(['mv', written, page])}`"
            )
        if not self.base:
            return f"{'wrote' if self.changed else 'unchanged:'} {page}: it had no edits to merge"
        return f"{'merged' if self.changed else 'unchanged:'} {page}: edits kept, since {self.base}"


def merge_page(page: Path, regenerated: str) -> Merged:
    """Bring the file `page` up to `regenerated`, the whole text of the page that its spec gives
    now, and keep what was edited by hand.

    The result has the header of `regenerated`: the hash of the body in it is that of the text that
    was compiled, so that the page still counts as edited, and the next merge finds its base. Where
    both sides changed the same lines, or where lines that merged name what is no more, the page
    stays as it is, and the result goes to `NAME.py.merge` beside it, with markers.

    Raises `SpecError`, and writes nothing: SP602 where the file is no page, SP607 where its header
    cannot be read, SP670 without a base, SP671 where a result with conflicts waits already, SP672
    where the page itself holds markers or is no Python, SP678 without git.
    """
    new = split_page(regenerated)
    assert new is not None
    if not page.exists():
        return Merged(page, page, write_page(page, regenerated), "")
    text = read_page(page)
    waiting = page.with_name(f"{page.name}.merge")
    parsed = split_page(text)
    if parsed is None or parsed[1] == new[1] or digest(parsed[1]) == parsed[0].body:
        _refuse_waiting(waiting, page, None)
        # Without edits, or without a header: as `specc compile` writes or refuses.
        return Merged(page, page, write_page(page, regenerated), "")
    header, yours = parsed
    _refuse_nonsense(page, text)
    base = find_base(page, header, new[1])
    pieces = merge_bodies(yours, base.body, new[1])
    body, starts = marked(pieces)
    merged = new[0].render() + body
    conflicts = _conflicts(pieces, starts, merged, text, regenerated, waiting)
    _refuse_waiting(waiting, page, merged if conflicts else None)
    written = waiting if conflicts else page
    changed = write_page(written, merged, force=True)
    return Merged(page, written, changed, base.found, conflicts, _notes(base, page))


def merge_bodies(yours: str, base: str, new: str) -> list[Piece]:
    """The three bodies of a page as one: settled lines, and conflicts."""
    sides = [split_imports(text) for text in (yours, base, new)]
    mine, old, theirs = sides
    if mine is None or old is None or theirs is None:
        return merge_texts(yours, base, new)
    before = merge_texts(mine.before, old.before, theirs.before)
    after = merge_texts(mine.after, old.after, theirs.after)
    words = _words([*before, *after])
    imports = merge_imports(mine, old, theirs, words.__contains__)
    if imports is None:
        return merge_texts(yours, base, new)
    return [*before, *lines_of(imports), *after]


def _words(pieces: Sequence[Piece]) -> set[str]:
    """Every word of a text, of all sides where it is open."""
    lines: list[str] = []
    for piece in pieces:
        lines += [piece] if isinstance(piece, str) else [*piece.yours, *piece.new]
    return {word for line in lines for word in re.findall(r"\w+", line.partition("#")[0])}


def _refuse_nonsense(page: Path, text: str) -> None:
    marker = first_marker(text)
    if marker is not None:
        fail(
            "SP672",
            f"`{shown_path(page)}` holds the markers of an earlier merge, from line {marker} on",
            help="resolve them first",
        )
    try:
        ast.parse(text)
    except (SyntaxError, ValueError) as error:  # ValueError: zero bytes, bytes that are no UTF-8
        at = parse_error(error)
        fail(
            "SP672",
            f"`{shown_path(page)}` is no Python, so its edits cannot be merged: {at}",
            help="mend that first",
        )


def _refuse_waiting(waiting: Path, page: Path, merged: str | None) -> None:
    if waiting.exists() and (merged is None or read_page(waiting) != merged):
        fail(
            "SP671",
            f"`{shown_path(waiting)}` holds the result of an earlier merge, with conflicts",
            help=f"resolve them and move it over `{shown_path(page)}`, or delete it",
        )


def _conflicts(
    pieces: Sequence[Piece], starts: list[int], merged: str, yours: str, new: str, file: Path
) -> tuple[Diagnostic, ...]:
    """A diagnostic for each open conflict; without one, for each name that the merge lost."""
    above = merged.count("\n") - marked(pieces)[0].count("\n")
    open_ones = [piece for piece in pieces if isinstance(piece, Conflict)]
    if open_ones:
        return tuple(
            _at(
                file, above + start, "SP673", _both_changed(piece), "keep either, or what both mean"
            )
            for start, piece in zip(starts, open_ones, strict=True)
        )
    try:
        lost = lost_names(merged, yours, new)
    except SyntaxError as error:
        message = f"the lines of both sides together are no Python: {error.msg}"
        return (_at(file, error.lineno or 1, "SP674", message, "mend the line"),)
    return tuple(
        _at(
            file,
            line,
            "SP674",
            f"`{name}` is used here, and the page has no such thing any more",
            "write the line with what the page has now",
        )
        for line, name in lost
    )


def _both_changed(conflict: Conflict) -> str:
    if not conflict.base:
        return "both you and the regenerated page added lines here"
    count = len(conflict.base)
    lines = "this line" if count == 1 else f"these {count} lines"
    return f"both you and the regenerated page changed {lines}"


def _at(file: Path, line: int, code: str, message: str, help: str) -> Diagnostic:
    from specc.templates.diagnostic import Diagnostic, Span

    return Diagnostic(code, message, span=Span(str(file), line, 1, 2), help=help)


def _notes(base: Base, page: Path) -> tuple[Diagnostic, ...]:
    if base.exact:
        return ()
    from specc.templates.diagnostic import Diagnostic

    note = Diagnostic(
        "SP675",
        f"`{shown_path(page)}` is merged from an older text than the one that was edited: the last "
        f"generated one in git, {base.found}",
        help="what was compiled since may be taken for your edits: read the diff",
    )
    return (note,)
