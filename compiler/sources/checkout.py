"""A spec at a revision runs in a folder of its own, with the files that it imports as of then."""

from __future__ import annotations

import contextlib
import dataclasses
import linecache
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING

from ..diagnostics import fail
from .revision import Found

if TYPE_CHECKING:
    from specc.templates.diagnostic import Diagnostic, Span


@contextlib.contextmanager
def checked_out(found: Found, revision: str) -> Iterator[Path]:
    """A temporary folder with all files of the commit, while the block runs.

    The block runs in the folder that stands for the current one, and imports of what lies in the
    repository find it as of then. What is said of a file in there is said of `REVISION:FILE`.

    Raises `SpecError`: SP615 where the block imported a file of the working tree all the same.
    """
    from ..load import forget_last, local_modules

    with tempfile.TemporaryDirectory(prefix="specc-") as name:
        folder = Path(name).resolve()
        tree = folder / "tree"
        found.repository.check_out(found.commit, folder)
        here = tree / found.inside
        forget_last()  # of the working tree: it may hold a module of the same name
        try:
            with (
                contextlib.chdir(here if here.is_dir() else tree),
                _paths_as_of_then(found.repository.top, tree),
                _told_of_the_revision(tree, revision),
            ):
                yield tree
                _refuse_working_tree(local_modules(), found.repository.top, revision)
        finally:
            forget_last()


@contextlib.contextmanager
def _paths_as_of_then(top: Path, tree: Path) -> Iterator[None]:
    """What Python's path has of the repository (a `src` that is installed to be edited), as of then
    and first.
    """
    before = list(sys.path)
    inside = [Path(p).resolve() for p in before if p and Path(p).resolve().is_relative_to(top)]
    then = [tree / path.relative_to(top) for path in inside]
    sys.path[:0] = [str(path) for path in then if path.is_dir()]
    try:
        yield
    finally:
        sys.path[:] = before


def _refuse_working_tree(modules: dict[str, Path], top: Path, revision: str) -> None:
    for name, file in sorted(modules.items()):
        if file.is_relative_to(top):
            fail(
                "SP615",
                f"at `{revision}` the spec imports `{name}`, which Python finds in the working "
                f"tree, as of now: `{file.relative_to(top).as_posix()}`",
                help="import it from the spec's own folder or package, or check the revision out "
                "elsewhere (`git worktree add`) and give the file there",
            )


@contextlib.contextmanager
def _told_of_the_revision(tree: Path, revision: str) -> Iterator[None]:
    """Errors outlive the folder: they speak of the revision, and keep the lines that they show."""
    try:
        yield
    except Exception as error:
        if hasattr(error, "diagnostics"):
            told = tuple(_told(diagnostic, tree, revision) for diagnostic in error.diagnostics)
            raise type(error)(told) from None
        for file in [name for name in linecache.cache if name.startswith(str(tree))]:
            _keep_lines(file, file)
        error.add_note(f"at the revision {revision}, which was checked out into {tree}")
        raise


def _told(diagnostic: Diagnostic, tree: Path, revision: str) -> Diagnostic:
    def of_then(text: str) -> str:
        return text.replace(f"{tree}/", f"{revision}:")

    def moved(span: Span) -> Span:
        file = Path(span.file).resolve()
        if not file.is_relative_to(tree):
            return span
        shown = f"{revision}:{file.relative_to(tree).as_posix()}"
        _keep_lines(str(file), shown)
        return dataclasses.replace(span, file=shown)

    note = diagnostic.note or (None if diagnostic.span else f"at the revision `{revision}`")
    return dataclasses.replace(
        diagnostic,
        message=of_then(diagnostic.message),
        note=of_then(note) if note else None,
        help=of_then(diagnostic.help) if diagnostic.help else None,
        span=moved(diagnostic.span) if diagnostic.span else None,
        also=tuple((moved(span), label) for span, label in diagnostic.also),
    )


def _keep_lines(file: str, shown: str) -> None:
    """Have `linecache` show a file's lines under a name, for good: without a time of change it asks
    for no file.
    """
    lines = linecache.getlines(file)
    linecache.cache[shown] = (sum(map(len, lines)), None, lines, shown)
