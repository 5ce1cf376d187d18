"""The pages of a repository: files that open as a page does."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path

from ..header import CLAIM
from .git_answers import ask_git

_LONGEST_CLAIM = 4000  # characters that the pattern may have to look at: a license, and a header


def find_pages(paths: Sequence[Path] = ()) -> list[Path]:
    """The pages among `paths`, each once, sorted; without paths, of the whole git work tree.

    A file counts as it is, page or not: who names it wants to hear of it. Of a folder, the pages
    count that git tracks, and those that it neither tracks nor ignores; outside git, all but those
    in hidden folders and in environments. A page that is reached by a link counts once.
    """
    named = [path for path in paths if not path.is_dir()]
    folders = [path for path in paths if path.is_dir()] if paths else [_top(Path.cwd())]
    found = [path for folder in folders for path in _python_files(folder) if _is_page(path)]
    return sorted(_once([*named, *found]))


def _once(paths: Iterable[Path]) -> Iterator[Path]:
    """Files that are no links go first, so that a page has its own name where it has two."""
    seen: set[Path] = set()
    for path in sorted(paths, key=Path.is_symlink):
        real = path.resolve()
        if real not in seen:
            seen.add(real)
            yield path


def _top(folder: Path) -> Path:
    """The top of the git work tree that holds a folder, as seen from it; else the folder."""
    answer = ask_git(folder, "rev-parse", "--show-cdup")
    return folder if answer is None else folder / os.fsdecode(answer.rstrip(b"\n"))


def _python_files(folder: Path) -> Iterator[Path]:
    listed = ask_git(
        folder, "ls-files", "-z", "--cached", "--others", "--exclude-standard", "--", "*.py"
    )
    if listed is None:
        yield from _walk(folder)
    else:
        # A file in conflict is listed once for each side.
        names = dict.fromkeys(os.fsdecode(name) for name in listed.split(b"\0") if name)
        yield from (folder / name for name in names)


def _walk(folder: Path) -> Iterator[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not _is_skipped(Path(root, name))]
        yield from (Path(root, name) for name in files if name.endswith(".py"))


def _is_skipped(folder: Path) -> bool:
    return (
        folder.name.startswith(".")
        or folder.name in ("__pycache__", "node_modules", "site-packages")
        or (folder / "pyvenv.cfg").is_file()
        or (folder / "conda-meta").is_dir()
    )


def _is_page(path: Path) -> bool:
    try:
        with open(path, encoding="utf-8", errors="replace") as file:
            return CLAIM.match(file.read(_LONGEST_CLAIM)) is not None
    except OSError:
        return False  # listed by git and deleted since, or a link to nowhere
