"""Files as an answer names them: specc's own by package, the user's as one would type them."""

from __future__ import annotations

import sys
from collections.abc import Iterable, Sequence
from pathlib import Path

from ..diagnostics import shown_path
from .answer import Place

_PACKAGES = ("specc.templates", "specc.runtime", "specc.compiler")


def shown(file: str) -> str:
    """`specc/templates/mlp.py`, a path below the current folder, or one below site-packages: never
    an absolute path where there is another way to say it.
    """
    path = Path(file)
    for name in _PACKAGES:
        origin = getattr(sys.modules.get(name), "__file__", None)
        folder = Path(origin).parent if origin else None
        if folder is not None and path.is_relative_to(folder):
            return f"{name.replace('.', '/')}/{path.relative_to(folder).as_posix()}"
    for folder in path.parents:
        if folder.name in ("site-packages", "dist-packages"):
            return path.relative_to(folder).as_posix()
    return shown_path(path)


def place(
    file: str, lines: Sequence[str], first: int, last: int, inside: str, marked: Iterable[int]
) -> Place:
    """Lines `first` to `last` of a file, whose text is `lines`; `marked` are those to look at."""
    numbers = sorted({n for n in marked if first <= n <= last} or {first})
    return Place(shown(file), first, last, inside, tuple((n, lines[n - 1]) for n in numbers))
