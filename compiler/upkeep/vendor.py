"""`specc eject --vendor DIR`: a folder with a page and just the runtime modules that it needs.

The folder is a package, `DIR.llama` for `llama.py`, that needs torch and no specc. Each file that
is written opens with a line that says where it is from and what hash it had: so a later run brings
it up to date, and never touches a file that a person wrote or changed.
"""

from __future__ import annotations

import keyword
import re
import sys
from dataclasses import dataclass
from importlib.metadata import distribution
from pathlib import Path

from ..diagnostics import fail, shown_path
from ..header import digest, specc_version
from ..write import read_page
from .vendor_page import vendored_page
from .vendor_runtime import PACKAGE, PROGRAMS, RuntimeFiles

# The license asks for a word in each file that was changed. A page is its author's.
LICENSED = ", Apache License 2.0 (see LICENSE)"
_MARK = re.compile(r"# From specc \S+ by `specc eject --vendor`.*, sha256 ([0-9a-f]{8})\n")


@dataclass(frozen=True)
class Vendored:
    """The page in its folder, all files of the folder that are ours, and those written anew."""

    page: Path
    files: tuple[Path, ...]
    written: tuple[Path, ...]


def vendor(page: Path, folder: Path, *, with_train: bool = False) -> Vendored:
    """Copy `page` and its runtime into `folder`, which is made where it is not there.

    With `with_train` the programs come along: `python -m DIR.runtime.train DIR/llama.py ...`. A
    folder may hold several pages: modules that an earlier one brought stay and are renewed.

    Raises `SpecError`, and writes nothing: SP695 where folder or page have a name that no package
    can have, SP696 where a file would be lost, SP697 where the page imports what cannot come along.
    """
    name = _package_name(folder, page)
    runtime = RuntimeFiles.installed()
    ours = vendored_page(page, read_page(page), runtime)
    earlier = {p.stem for p in (folder / "runtime").glob("*.py") if _is_untouched(p)}
    programs = PROGRAMS if with_train else ()
    modules = runtime.closure({*ours.modules, *programs, *(earlier & runtime.modules)})
    texts = {
        folder / "runtime" / "__init__.py": runtime.exports(modules),
        **{folder / "runtime" / f"{m}.py": runtime.text(m) for m in sorted(modules)},
    }
    files = {
        folder / "__init__.py": _marked(f'"""{name}: models and the runtime that they need."""\n'),
        folder / page.name: _marked(ours.text),
        **{path: _marked(_renamed(text, name), LICENSED) for path, text in texts.items()},
        folder / "LICENSE": _license(),
    }
    _refuse_to_lose(files, folder)
    return _write(files, folder / page.name)


def _package_name(folder: Path, page: Path) -> str:
    name, module = folder.resolve().name, page.stem
    taken = {*sys.stdlib_module_names, "torch", "specc"}
    if not name.isidentifier() or keyword.iskeyword(name) or name in taken:
        fail(
            "SP695",
            f"a folder `{name}` cannot be imported as a package of its own",
            help="give a name like `my_llama`: letters, digits and `_`, and no module of Python's",
        )
    if not module.isidentifier() or keyword.iskeyword(module) or module in ("runtime", "__init__"):
        fail(
            "SP695",
            f"a page `{page.name}` cannot be imported as a module of the folder",
            help="rename it: letters, digits and `_`, and not `runtime.py`, which the folder has",
        )
    return name


def _renamed(text: str, package: str) -> str:
    """A file of the runtime that speaks of itself as the package that it now is."""
    return text.replace(PACKAGE, f"{package}.runtime")


def _marked(text: str, license: str = "") -> str:
    """The text under a line that says who wrote it, and with which hash."""
    mark = f"# From specc {specc_version()} by `specc eject --vendor`{license}"
    return f"{mark}, sha256 {digest(text)}\n{text}"


def _is_untouched(path: Path) -> bool:
    """Whether the file is as an earlier run left it."""
    if not path.is_file():
        return False
    text = read_page(path)
    mark = _MARK.match(text)
    return mark is not None and digest(text[mark.end() :]) == mark[1]


def _refuse_to_lose(files: dict[Path, str], folder: Path) -> None:
    there = [path for path in files if path.exists()]
    lost = [p for p in there if not _is_untouched(p) and not _holds(p, files[p])]
    if folder.exists() and not folder.is_dir():
        lost = [folder]
    if lost:
        names = ", ".join(f"`{shown_path(path)}`" for path in lost)
        fail(
            "SP696",
            f"{names} would be overwritten, and specc did not write it as it is",
            help="name another folder, or move what you changed out of the way",
        )


def _holds(path: Path, text: str) -> bool:
    return path.is_file() and read_page(path) == text


def _write(files: dict[Path, str], page: Path) -> Vendored:
    written = []
    for path, text in files.items():
        path.parent.mkdir(parents=True, exist_ok=True)
        if not _holds(path, text):
            path.write_text(text, encoding="utf-8", errors="surrogateescape", newline="\n")
            written.append(path)
    return Vendored(page, tuple(files), tuple(written))


def _license() -> str:
    """The text of specc's license: beside the packages in a clone, else among the installed."""
    beside = RuntimeFiles.installed().folder.parent / "LICENSE"
    if beside.is_file():
        return beside.read_text(encoding="utf-8")
    found = next(f for f in distribution("specc").files or () if f.name == "LICENSE")
    return found.read_text(encoding="utf-8")
