"""`specc eject`: a page without its header is its user's."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..diagnostics import fail, shown_path
from ..header import CLAIM, Header, digest, split_page
from ..write import read_page, write_page
from .conflict_markers import first_marker


@dataclass(frozen=True)
class Ejected:
    """A page that was handed over, what its header said, and whether it had been edited."""

    page: Path
    header: Header
    edited: bool

    def render(self) -> str:
        """What was done, in a line."""
        edits = ", with the edits made by hand" if self.edited else ""
        return (
            f"ejected {shown_path(self.page)}{edits}: it came from {self.header.origin}, is yours "
            "now, and no command of specc's writes to it"
        )


def eject(page: Path) -> Ejected:
    """Take the header off a page; not a character below it changes.

    No word of specc is left in its place: a checkpoint knows its page by the hash of its text,
    which for a page without edits is the hash that the header had.

    Raises `SpecError`, and writes nothing: SP676 where there is no header, SP607 where it cannot be
    read, SP608 where the page holds the markers of a merge.
    """
    text = read_page(page)
    _refuse_markers(page, text)
    parsed = split_page(text)
    if parsed is None:
        _refuse_without_header(page, text)
    header, body = parsed
    write_page(page, body, force=True)
    return Ejected(page, header, digest(body) != header.body)


def eject_standalone(page: Path, output: Path, *, force: bool = False) -> bool:
    """Write a page's model to `output` as a file that needs torch alone; True if that changed it.
    The page stays as it is, and may be any page, with a header or without.

    Raises `SpecError`: SP608 as `eject`, SP677 where `output` would be lost, SP603 where it has no
    folder, and what `standalone_page` does.
    """
    from ..standalone import standalone_page

    if output.exists() and output.samefile(page):
        fail(
            "SP677",
            f"`{shown_path(output)}` is the page itself, and the page stays as it is",
            help="name another file with -o",
        )
    text = read_page(page)
    _refuse_markers(page, text)
    standalone = standalone_page(text, page.name)
    if output.exists() and not force and read_page(output) != standalone:
        fail(
            "SP677",
            f"`{shown_path(output)}` is there already, with another text",
            help="name another file with -o, or overwrite it with --force",
        )
    return write_page(output, standalone, force=True)


def _refuse_markers(page: Path, text: str) -> None:
    marker = first_marker(text)
    if marker is not None:
        fail(
            "SP608",
            f"`{shown_path(page)}` holds the markers of a merge, from line {marker} on",
            help="resolve them first",
        )


def _refuse_without_header(page: Path, text: str) -> NoReturn:
    if CLAIM.match(text):
        fail(
            "SP607",
            f"the header of `{shown_path(page)}` was edited, and cannot be read any more",
            help="its first lines are comments: delete them, and the page is yours",
        )
    fail(
        "SP676",
        f"`{shown_path(page)}` has no header of specc's: it is yours already",
        help="`--standalone` and `--vendor` take a page without one",
    )
