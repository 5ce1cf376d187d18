"""What the command line calls SPEC: where a spec is read from, found without importing it."""

from __future__ import annotations

import difflib
import os
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from .diagnostics import fail, shown_path
from .imports import find_module

FORMS = "FILE.py, FILE.py:NAME, FILE.yaml or package.module:NAME"
YAML = frozenset({".yaml", ".yml"})


@dataclass(frozen=True)
class Target:
    """A spec's file, the module name that it was asked for by (if it was) and the spec's name."""

    file: Path
    module: str | None = None
    name: str | None = None

    @property
    def is_yaml(self) -> bool:
        return self.file.suffix in YAML

    def origin(self, folder: Path) -> str:
        """The target as a page in `folder` names it: no absolute path."""
        if self.module is not None:
            return f"{self.module}:{self.name}"
        file = Path(os.path.relpath(self.file.resolve(), folder.resolve())).as_posix()
        return f"{file}:{self.name}" if self.name else file

    def default_page(self) -> Path:
        """Where the page goes without -o: `llama.py` for `llama_spec.py`, else `NAME_page.py`.

        It stands beside the spec; in the current folder for a `package.module`.
        """
        stem = self.file.stem
        folder = self.file.parent if self.module is None else Path()
        if stem.endswith("_spec") and stem != "_spec":
            return folder / f"{stem.removesuffix('_spec')}.py"
        return folder / f"{self.name or stem}_page.py"


def parse_target(text: str, folder: Path | None = None) -> Target:
    """The target that `text` names, files relative to `folder` (the current one if left out).

    Raises `SpecError`: SP610 where the text has none of the forms, SP611 where there is no such
    file or module.
    """
    place, name = split_name(text)
    file = (folder or Path()) / place
    if file.suffix == ".py" or file.suffix in YAML:
        return file_target(file, name)
    if name is None or not all(part.isidentifier() for part in place.split(".")):
        with_suffix = file.parent / f"{file.name}.py"
        help = f"did you mean `{place}.py`?" if with_suffix.is_file() else f"give {FORMS}"
        fail("SP610", f"`{text}` does not say where a spec is", help=help)
    found = find_module(place, [Path.cwd()])
    if found is None:
        fail(
            "SP611",
            f"there is no module `{place}` in this folder or on Python's path",
            help=f"give {FORMS}",
        )
    return Target(found, place, name)


def file_target(file: Path, name: str | None) -> Target:
    """The spec of a name in a file.

    Raises `SpecError`: SP611 where there is no such file, SP610 where its spec has no name.
    """
    if not file.is_file():
        refuse_missing(file)
    if name and file.suffix in YAML:
        one = f"`{shown_path(file)}` has one spec, without a name"
        fail("SP610", one, help=f"leave `:{name}` out")
    return Target(file, None, name)


def refuse_missing(file: Path) -> NoReturn:
    """Raise `SpecError`, SP611, for a file that is not there."""
    fail("SP611", f"there is no file `{shown_path(file)}`", help=_neighbours(file))


def recorded_target(origin: str, page: Path) -> Target:
    """Where the spec of a page is, which its header calls `origin`.

    Raises `SpecError`: SP604 where there is no such spec any more.
    """
    try:
        return parse_target(origin, page.resolve().parent)
    except Exception as error:
        if not hasattr(error, "diagnostics"):
            raise
        fail(
            "SP604",
            f"`{shown_path(page)}` says that it comes from `{origin}`, and there is no such spec",
            help="compile it again from where the spec is now",
        )


def _neighbours(file: Path) -> str:
    """Help for a file that is not there: the one whose name is nearest, or where to look."""
    known = [p.name for p in file.parent.glob("*") if p.suffix == file.suffix]
    close = difflib.get_close_matches(file.name, known, n=1)
    if close:
        return f"did you mean `{shown_path(file.parent / close[0])}`?"
    return "paths are relative to the folder that specc is started in"


def split_name(text: str) -> tuple[str, str | None]:
    """A place, and the name of a spec in it where one is given."""
    place, colon, name = text.rpartition(":")
    return (place, name) if colon and name.isidentifier() else (text, None)
