"""`HEAD~3:models/llama.py`: a file as it stood at a revision, in the notation of git."""

from __future__ import annotations

import difflib
import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import NoReturn

from ..diagnostics import fail
from ..target import YAML, split_name
from .git import Repository, repository


@dataclass(frozen=True)
class Revised:
    """A place at a revision: a path from the top folder, or a module's name; and a spec's name."""

    revision: str
    place: str
    name: str | None

    @property
    def is_module(self) -> bool:
        return _suffix(self.place) is None


def parse_revision(text: str) -> Revised | None:
    """`REV:FILE[:NAME]` or `REV:package.module:NAME`; None for every other text.

    The revision ends at the first colon outside braces: `HEAD@{12:00}:llama.py`. What follows it
    has to be a file's name or a module and a name, and no absolute path: `C:/models/llama.py` and
    `package.module:NAME` are no revisions.
    """
    match = re.match(r"((?:[^:{}]|\{[^}]*\})+):", text)
    if match is None:
        return None
    revision, rest = match[1], text[match.end() :]
    if not rest or rest[0] in "/\\":
        return None
    place, name = split_name(rest)
    if _suffix(place) is None and not (name and all(p.isidentifier() for p in place.split("."))):
        return None
    return Revised(revision, place, name)


@dataclass(frozen=True)
class Found:
    """A revision's commit, and the file at it: a path from the top folder."""

    repository: Repository
    commit: str
    inside: str  # where the current folder is, from the top folder: "" or "models/"
    path: str | None  # None for a module, which is looked for by its name
    text: str | None


def find(revised: Revised, folder: Path) -> Found:
    """Look a place up in the repository of `folder`.

    As for git, a path is from the top folder; one that begins with `./` or `../` is from `folder`.

    Raises `SpecError`: SP612 where there is no repository, SP613 where it has no such revision,
    SP614 where the revision has no such file.
    """
    found = repository(folder)
    commit = found.commit(revised.revision)
    inside = os.path.relpath(folder.resolve(), found.top.resolve())
    inside = "" if inside == "." else f"{Path(inside).as_posix()}/"
    if revised.is_module:
        return Found(found, commit, inside, None, None)
    relative = revised.place.startswith(("./", "../"))
    path = posixpath.normpath((inside if relative else "") + revised.place)
    text = found.text(commit, path)
    if text is None:
        _no_such_path(revised, path, inside, found.files(commit))
    return Found(found, commit, inside, path, text)


def refuse_module(revised: Revised) -> NoReturn:
    """Raise `SpecError`, SP614, for a module that only the working tree or Python's path has."""
    _refuse(
        f"there is no module `{revised.place}` at `{revised.revision}`",
        "it is looked for from the current folder, as of then; "
        f"`{revised.revision}:FILE.py:{revised.name}` names a file",
    )


def _refuse(message: str, help: str) -> NoReturn:
    fail("SP614", message, help=help)


def _no_such_path(revised: Revised, path: str, inside: str, files: list[str]) -> NoReturn:
    from_here = posixpath.normpath(inside + revised.place)
    outer = next((file for file in files if path.startswith(f"{file}/")), None)
    if outer is not None:
        help = f"`{outer}` is a repository of its own, a submodule: start specc in it"
    elif from_here in files:
        help = f"did you mean `{revised.revision}:./{revised.place}`? A path is from the top folder"
    else:
        name = PurePosixPath(path).name
        known = [f for f in files if _suffix(f) is not None]
        near = [f for f in known if PurePosixPath(f).name == name]
        near = near or difflib.get_close_matches(path, known, n=1)
        help = (
            f"did you mean `{revised.revision}:{near[0]}`?"
            if near
            else f"`git ls-tree -r --name-only {revised.revision}` lists the files that there were"
        )
    _refuse(f"there is no file `{path}` at `{revised.revision}`", help)


def _suffix(place: str) -> str | None:
    suffix = PurePosixPath(place).suffix
    return suffix if suffix == ".py" or suffix in YAML else None
