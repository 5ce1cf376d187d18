"""Put a page on disk: atomically, only if it changed, and never over a person's edits."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from .diagnostics import fail, shown_path
from .header import CLAIM, digest, split_page


def write_page(path: Path, text: str, *, force: bool = False) -> bool:
    """Write `text` to `path`; True if the file was not there or was different.

    Raises `SpecError`: SP601 where the page was edited by hand since it was generated, SP602 where
    the file is no page of specc, SP607 where its header cannot be read, SP603 where the folder does
    not exist. `force` overwrites all but the last.
    """
    path = _place(path)
    existing = read_page(path) if path.exists() else None
    if existing == text:
        return False
    if existing is not None and not force:
        _refuse_to_lose(path, existing, text)
    _replace(path, text)
    return True


def write_file(path: Path, text: str) -> None:
    """Write what may be written over: a drawing, a report.

    Raises `SpecError`: SP603 where the folder does not exist.
    """
    _replace(_place(path), text)


def _place(path: Path) -> Path:
    """Where a path leads: a link stays a link, and what it points to is replaced."""
    path = path.resolve()
    if not path.parent.is_dir():
        fail(
            "SP603",
            f"there is no folder `{shown_path(path.parent)}` to write `{path.name}` to",
            help="make it, or name another place",
        )
    return path


def read_page(path: Path) -> str:
    """A page's text, with the line ends that it was written with whatever git made of them."""
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _refuse_to_lose(path: Path, existing: str, text: str) -> None:
    """Stop unless `existing` is just what specc wrote, or what it would write now."""
    page = split_page(existing)
    if page is None:
        if CLAIM.match(existing):
            fail(
                "SP607",
                f"the header of `{shown_path(path)}` was edited, and cannot be read any more",
                help="restore its first lines, write elsewhere with -o, or lose the edits with "
                "--force",
            )
        if existing.strip():
            fail(
                "SP602",
                f"`{shown_path(path)}` was not written by specc: it has no header",
                help="name another place with -o, or overwrite it with --force",
            )
        return
    header, body = page
    new = split_page(text)
    if digest(body) != header.body and (new is None or new[1] != body):
        fail(
            "SP601",
            f"`{shown_path(path)}` was edited by hand since it was generated: its text has the "
            f"hash {digest(body)} and its header says {header.body}",
            help="`specc check` shows the edits; keep them with --merge, write elsewhere with -o, "
            "or lose them with --force",
        )


def _replace(path: Path, text: str) -> None:
    """Readers see the old file or the new one, whole, also if this process dies in between."""
    mode = path.stat().st_mode & 0o777 if path.exists() else 0o666 & ~_umask()
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with open(handle, "w", encoding="utf-8", errors="surrogateescape", newline="\n") as file:
            file.write(text)
        os.chmod(temporary, mode)
        os.replace(temporary, path)
    except BaseException:
        os.unlink(temporary)
        raise


def _umask() -> int:
    mask = os.umask(0)  # reading it takes setting it
    os.umask(mask)
    return mask
