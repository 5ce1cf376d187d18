"""Which source files a spec's file reaches by its imports, found without running any of them."""

from __future__ import annotations

import ast
import sys
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

# Not a spec's own text: specc is hashed as the library, torch is an environment.
OUTSIDE = frozenset({"specc", "torch"})


@dataclass
class Reached:
    """Local source files by module name, and the installed packages that they import."""

    files: dict[str, Path] = field(default_factory=dict)
    installed: set[str] = field(default_factory=set)


def module_name(file: Path) -> tuple[Path, str]:
    """The folder to put on `sys.path` and the name to import a file by.

    A file in a package (its folder has an `__init__.py`) is imported as the package's, so that its
    relative imports work; any other file by its stem.
    """
    file = file.resolve()
    root, parts = file.parent, [] if file.name == "__init__.py" else [file.stem]
    while (root / "__init__.py").is_file():
        parts.insert(0, root.name)
        root = root.parent
    return root, ".".join(parts)


def find_module(name: str, folders: Sequence[Path] = ()) -> Path | None:
    """The source file of a module, looked for in `folders` and then as `import` would.

    Only the names on the way are looked up; nothing is imported.
    """
    *_, found = [None, *_find_each(name, folders)]
    return _source(found) if found is not None and found.name == name else None


def reached_files(file: Path) -> Reached:
    """All that `file` imports, directly or not, outside the standard library and site-packages.

    Import statements anywhere in a file count, whether or not they would run, and so do
    `("package.module", "Name")` pairs. A module that is imported by a computed name is not seen.
    """
    root, name = module_name(file)
    folders = list(dict.fromkeys([file.resolve().parent, root]))
    reached = Reached({name: file.resolve()})
    pending = [(name, file.resolve())]
    while pending:
        current, path = pending.pop()
        for wanted in _imported_names(current, path):
            for found in _find_each(wanted, folders):
                source = _source(found)
                if is_installed(source):
                    reached.installed.add(found.name.partition(".")[0])
                    break
                if source is not None and found.name not in reached.files:
                    reached.files[found.name] = source
                    pending.append((found.name, source))
    return reached


def is_installed(path: Path | None) -> bool:
    return path is not None and not {"site-packages", "dist-packages"}.isdisjoint(path.parts)


def _imported_names(module: str, path: Path) -> Iterator[str]:
    """Module names that a file may import. `from a import b` gives `a` and `a.b`."""
    try:
        tree = ast.parse(path.read_bytes())
    except (SyntaxError, ValueError):
        return  # importing it will say so, with the line; its text is hashed all the same
    package = module if path.name == "__init__.py" else module.rpartition(".")[0]
    for node in ast.walk(tree):
        match node:
            case ast.Import():
                yield from (alias.name for alias in node.names)
            case ast.ImportFrom():
                base = _absolute(package, node.module, node.level)
                if base:
                    yield base
                    yield from (f"{base}.{alias.name}" for alias in node.names if alias.name != "*")
            case ast.Tuple(elts=[ast.Constant(value=str() as name), ast.Constant(value=str())]):
                if all(part.isidentifier() for part in name.split(".")):
                    yield name


def _absolute(package: str, module: str | None, level: int) -> str:
    if level == 0:
        return module or ""
    parts = package.split(".") if package else []
    kept = parts[: len(parts) - (level - 1)]
    return ".".join([*kept, *([module] if module else [])])


def _find_each(name: str, folders: Sequence[Path]) -> Iterator[ModuleSpec]:
    """The module specs of `a`, `a.b` and `a.b.c`, as far as they exist and are not built in."""
    parts = name.split(".")
    if parts[0] in OUTSIDE:
        return
    found = PathFinder.find_spec(parts[0], [str(folder) for folder in folders])
    if found is None or found.origin is None:  # not there, or a folder that is no package
        if parts[0] in sys.stdlib_module_names:
            return
        found = _find_top(parts[0]) or found
    for count in range(1, len(parts) + 1):
        if found is None:
            return
        yield found
        if found.submodule_search_locations is None or count == len(parts):
            return
        inside = list(found.submodule_search_locations)
        found = PathFinder.find_spec(".".join(parts[: count + 1]), inside)


def _find_top(name: str) -> ModuleSpec | None:
    """As `importlib.util.find_spec`, which would answer from `sys.modules` first."""
    for finder in sys.meta_path:
        found = finder.find_spec(name, None)
        if found is not None:
            return found
    return None


def _source(found: ModuleSpec) -> Path | None:
    if found.origin is None or not found.has_location:
        return None
    path = Path(found.origin)
    return path if path.suffix == ".py" or is_installed(path) else None
