"""The hashes of what a page is made from, computed from files alone: nothing is imported.

*spec* is the text of the spec's file and of what its imports reach outside site-packages, with the
`--set` overrides. *library* is what decides how a given spec is printed: the templates, the
compiler, the runtime files that the page imports from, and the versions of installed packages that
the spec's files import. The library errs on the side of too much: where a change there did not
change the page, `specc check` finds that out by compiling and says "fresh" with a note.
"""

from __future__ import annotations

import ast
import inspect
from collections.abc import Iterable, Iterator, Sequence
from importlib.metadata import packages_distributions, version
from importlib.util import find_spec
from pathlib import Path

from .header import digest
from .imports import is_installed, reached_files

# These drive the command line and have no say in what a page's body is.
COMMAND_LINE = frozenset(
    {"check.py", "cli.py", "diagnostics.py", "fingerprint.py", "header.py", "write.py"}
)


def spec_hash(file: Path, overrides: Sequence[str]) -> str:
    """The hash of a spec file, the local files that it imports, and the overrides."""
    parts = [f"{name}\n{_text(path)}" for name, path in sorted(_spec_files(file).items())]
    return digest("\0".join([*parts, *overrides]))


def library_hash(file: Path, body: str) -> str:
    """The hash of what turned the spec in `file` into the page with this `body`."""
    parts = [f"{path.name}\n{_normalised(path, comments=True)}" for path in _template_files()]
    for path in [*_compiler_files(), *_runtime_files(body)]:
        parts.append(f"{path.name}\n{_normalised(path, comments=False)}")
    return digest("\0".join([*parts, *_installed_versions(file)]))


def unseen_classes(classes: Iterable[type], file: Path) -> list[type]:
    """Classes folded into the page whose source neither hash covers.

    They were imported by a computed name, so `specc check` cannot see that they changed.
    """
    covered = {path.resolve() for path in _spec_files(file).values()}
    covered.update(path.resolve() for path in [*_template_files(), *_package("runtime")])
    unseen = []
    for cls in classes:
        source = Path(inspect.getsourcefile(cls) or "").resolve()
        if source not in covered and not is_installed(source):
            unseen.append(cls)
    return unseen


def _spec_files(file: Path) -> dict[str, Path]:
    return reached_files(file).files if file.suffix == ".py" else {file.name: file}


def _installed_versions(file: Path) -> list[str]:
    packages = reached_files(file).installed if file.suffix == ".py" else set()
    if not packages:
        return []
    distributions = packages_distributions()  # reads every installed package's list: 0.1 s
    names = {name for package in packages for name in distributions.get(package, ())}
    return sorted(f"{name}=={version(name)}" for name in names)


def _package(name: str) -> list[Path]:
    """The source files of one of specc's three folders, wherever it is installed."""
    found = find_spec(f"specc.{name}")
    assert found is not None and found.origin is not None
    folder = Path(found.origin).parent
    return sorted([*folder.rglob("*.py"), *folder.rglob("*.j2")])


def _template_files() -> list[Path]:
    return _package("templates")


def _compiler_files() -> list[Path]:
    return [path for path in _package("compiler") if path.name not in COMMAND_LINE]


def _runtime_files(body: str) -> list[Path]:
    """The runtime's files that define what a page imports; all of them if one is not found.

    The defaults of their constructors decide which arguments a page leaves out.
    """
    files = {path.stem: path for path in _package("runtime")}
    homes = dict(_exports(files["__init__"]))
    used = {homes.get(name, name) for name in _runtime_names(body)}
    if not used <= files.keys():
        return list(files.values())
    return sorted(files[stem] for stem in used)


def _exports(init: Path) -> Iterator[tuple[str, str]]:
    for node in ast.parse(init.read_bytes()).body:
        if isinstance(node, ast.ImportFrom) and node.module:
            stem = node.module.rpartition(".")[2]
            yield from ((alias.asname or alias.name, stem) for alias in node.names)


def _runtime_names(body: str) -> Iterator[str]:
    """Names that a page imports from `specc.runtime`, and `x` for each `specc.runtime.x`."""
    try:
        tree = ast.parse(body)
    except SyntaxError:
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
