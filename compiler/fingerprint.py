"""The hashes of what a page is made from, computed from files alone: nothing is imported.

*spec* is the text of the spec's file and of what its imports reach outside site-packages, with the
`--set` overrides and the spec's name. *library* is what decides how a given spec is printed: the
templates, the compiler, the runtime files that the page imports from, and the versions of installed
packages that the spec's files import. The library errs on the side of too much: where a change
there did not change the page, `specc check` finds that out by compiling and says "fresh" with a
note.
"""

from __future__ import annotations

import ast
import functools
import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from .header import digest
from .imports import Reached, is_installed, reached_files

# Of the files directly in compiler/, those that have no say in what a page's body is. Folders in it
# have none either: they compare, explain, draw and look after pages that were made.
COMMAND_LINE = frozenset(
    {"cli.py", "diagnostics.py", "fingerprint.py", "header.py", "report.py", "write.py"}
)


class Fingerprints:
    """The hashes as the files are now. What pages share (the library, a spec) is read once, so one
    of these is for one run."""

    def __init__(self) -> None:
        self._reached: dict[Path, Reached] = {}
        self._runtime: dict[Path, str] = {}

    def spec(self, file: Path, overrides: Sequence[str], name: str | None = None) -> str:
        """The hash of a spec file and the local files that it imports, of the overrides, and of the
        spec's name in the file."""
        files = self.spec_files(file)
        parts = [f"{name}\n{_text(path)}" for name, path in sorted(files.items())]
        return digest("\0".join([*parts, *overrides, name or ""]))

    def library(self, file: Path | None, body: str) -> str:
        """The hash of what turned the spec in `file` into the page with this `body`; without a
        file, of a spec that imports no installed package."""
        runtime = [self._of_runtime(path) for path in self._runtime_files(body)]
        return digest("\0".join([self._templates_and_compiler, *runtime, *self._versions(file)]))

    def spec_files(self, file: Path) -> Mapping[str, Path]:
        """The files that the spec's hash covers, by module name."""
        return self._reach(file).files if file.suffix == ".py" else {file.name: file}

    def _reach(self, file: Path) -> Reached:
        if file not in self._reached:
            self._reached[file] = reached_files(file)
        return self._reached[file]

    @functools.cached_property
    def _templates_and_compiler(self) -> str:
        templates = [f"{path.name}\n{_normalised(path, comments=True)}" for path in _templates()]
        compiler = [f"{path.name}\n{_normalised(path, comments=False)}" for path in _compiler()]
        return digest("\0".join([*templates, *compiler]))

    def _of_runtime(self, path: Path) -> str:
        if path not in self._runtime:
            self._runtime[path] = digest(f"{path.name}\n{_normalised(path, comments=False)}")
        return self._runtime[path]

    def _runtime_files(self, body: str) -> list[Path]:
        """The runtime's files that define what a page imports; all of them if one is not found.

        The defaults of their constructors decide which arguments a page leaves out.
        """
        files, homes = self._homes
        used = {homes.get(name, name) for name in _runtime_names(body)}
        if not used <= files.keys():
            return list(files.values())
        return sorted(files[stem] for stem in used)

    @functools.cached_property
    def _homes(self) -> tuple[dict[str, Path], dict[str, str]]:
        """The runtime's files by stem, and the stem of the file that each exported name is of."""
        files = {path.stem: path for path in _runtime()}
        return files, dict(_exports(files["__init__"]))

    def _versions(self, file: Path | None) -> list[str]:
        packages = self._reach(file).installed if file and file.suffix == ".py" else set()
        if not packages:
            return []
        names = {name for package in packages for name in self._distributions.get(package, ())}
        return sorted(f"{name}=={version(name)}" for name in names)

    @functools.cached_property
    def _distributions(self) -> Mapping[str, list[str]]:
        return packages_distributions()  # reads every installed package's list: 0.1 s


def spec_hash(file: Path, overrides: Sequence[str], name: str | None = None) -> str:
    """As `Fingerprints.spec`, for one page."""
    return Fingerprints().spec(file, overrides, name)


def library_hash(file: Path, body: str) -> str:
    """As `Fingerprints.library`, for one page."""
    return Fingerprints().library(file, body)


def unseen_classes(classes: Iterable[type], file: Path) -> list[type]:
    """Classes folded into the page whose source neither hash covers.

    They were imported by a computed name, so `specc check` cannot see that they changed.
    """
    covered = {path.resolve() for path in Fingerprints().spec_files(file).values()}
    covered.update(path.resolve() for path in [*_templates(), *_runtime()])
    unseen = []
    for cls in classes:
        source = Path(inspect.getsourcefile(cls) or "").resolve()
        if source not in covered and not is_installed(source):
            unseen.append(cls)
    return unseen


def _folder(name: str) -> Path:
    """One of specc's three folders, wherever it is installed."""
    found = find_spec(f"specc.{name}")
    assert found is not None and found.origin is not None
    return Path(found.origin).parent


def _templates() -> list[Path]:
    folder = _folder("templates")
    return sorted([*folder.rglob("*.py"), *folder.rglob("*.j2")])


def _compiler() -> list[Path]:
    files = sorted(_folder("compiler").glob("*.py"))
    return [path for path in files if path.name not in COMMAND_LINE]


def _runtime() -> list[Path]:
    return sorted(_folder("runtime").rglob("*.py"))


def _exports(init: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(init.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            stem = node.module.rpartition(".")[2]
            yield from ((alias.asname or alias.name, stem) for alias in node.names)


def _runtime_names(body: str) -> Iterator[str]:
    """Names that a page imports from `specc.runtime`, and `x` for each `specc.runtime.x`."""
    try:
        tree = ast.parse(body)
    except (SyntaxError, ValueError):
        return  # edited by hand into nonsense: its body hash says so
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module == "specc.runtime":
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and (node.module or "").startswith("specc.runtime."):
            yield (node.module or "").split(".")[2]


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="surrogateescape")


def _normalised(path: Path, *, comments: bool) -> str:
    """A file without blank lines, trailing blanks and, unless they are kept, lines of comment.

    The comments of a template stand on the page, so there they count.
    """
    lines = [line.rstrip() for line in _text(path).splitlines()]
    return "\n".join(
        line for line in lines if line and (comments or not line.lstrip().startswith("#"))
    )
