"""Read a spec: import the user's file and find the spec in it, or read YAML."""

from __future__ import annotations

import contextlib
import dataclasses
import importlib
import importlib.util
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType

from specc.templates.diagnostic import suggestion
from specc.templates.spec import ModuleSpec

from .diagnostics import fail, shown_path
from .fingerprint import spec_hash
from .imports import is_installed, module_name
from .spec_parts import walk
from .target import Target
from .yaml_spec import read_yaml_spec

HERE = Path(__file__).parent


@dataclass(frozen=True)
class LoadedSpec:
    """A spec and where it came from; the target has the spec's name filled in."""

    spec: ModuleSpec
    target: Target


@dataclass
class _Imported:
    """What the last import of a user's file left in this process."""

    key: tuple[Path, str]  # the file, and the hash of it and of what it imports
    module: ModuleType
    modules: list[str]  # names of the local modules that it added to sys.modules
    folders: list[str]  # what it added to sys.path


_last: _Imported | None = None


def load_spec(target: Target) -> LoadedSpec:
    """The spec at `target`. What the user's file prints goes to stderr.

    Without a name it is the file's root spec: the one that no other spec of the file refers to.

    Raises `SpecError`: SP620 where the file has no spec, SP621 several roots, SP622 where it has
    nothing of the name, SP623 where that is no spec, SP624 where a `specc` of the user's hides the
    package, and SP63x for YAML. What the user's file raises comes through with a note.
    """
    if target.is_yaml:
        return LoadedSpec(read_yaml_spec(target.file), target)
    namespace = vars(_import(target))
    name = target.name or _root_name(namespace, target.file)
    if name not in namespace:
        specs = _specs(namespace)
        fail(
            "SP622",
            f"`{shown_path(target.file)}` has nothing called `{name}`",
            help=suggestion(name, specs, "the file"),
        )
    spec = namespace[name]
    if not isinstance(spec, ModuleSpec):
        fail(
            "SP623",
            f"`{name}` in `{shown_path(target.file)}` is a `{type(spec).__name__}`, "
            "and a spec is a `ModuleSpec`",
            help=(
                "bind what it returns to a name, and give that"
                if callable(spec)
                else suggestion(name, _specs(namespace), "the file")
            ),
        )
    return LoadedSpec(spec, dataclasses.replace(target, name=name))


def forget_last() -> None:
    """Drop the last spec's local modules: the next one may have another `layers.py`."""
    global _last
    if _last is not None:
        _undo(_last.modules, _last.folders)
        _last = None


def local_modules() -> dict[str, Path]:
    """The user's modules that the last spec brought into this process, with their files."""
    modules = {name: sys.modules.get(name) for name in (_last.modules if _last else ())}
    return {
        name: Path(module.__file__).resolve()
        for name, module in modules.items()
        if module is not None and module.__file__
    }


def _specs(namespace: dict[str, object]) -> dict[str, ModuleSpec]:
    """A module's specs by name; of several names for one spec, the first."""
    specs: dict[str, ModuleSpec] = {}
    for name, value in namespace.items():
        if isinstance(value, ModuleSpec) and all(value is not other for other in specs.values()):
            specs[name] = value
    return specs


def _root_name(namespace: dict[str, object], file: Path) -> str:
    specs = _specs(namespace)
    below = {id(part) for spec in specs.values() for _, part in walk(spec)}
    roots = [name for name, spec in specs.items() if id(spec) not in below]
    shown = shown_path(file)
    if not roots:
        fail(
            "SP620",
            f"`{shown}` has no ModuleSpec among its names",
            help="bind the model's spec to a name at the top level of the file",
        )
    if len(roots) > 1:
        names = ", ".join(f"`{name}`" for name in roots)
        fail(
            "SP621",
            f"`{shown}` has {len(roots)} specs that no other refers to: {names}",
            help=f"say which: {shown}:{roots[-1]}",
        )
    return roots[0]


def _import(target: Target) -> ModuleType:
    """Import the target's file, or hand it out again if nothing of it has changed."""
    global _last
    key = (target.file.resolve(), spec_hash(target.file, ()))
    if _last is not None and _last.key == key:
        return _last.module
    forget_last()
    if target.module is not None:
        name, folders = target.module, [Path.cwd()]
    else:
        root, name = module_name(target.file)
        folders = list(dict.fromkeys([target.file.resolve().parent, root]))
    for folder in folders:
        _refuse_hiding(folder)
    before = set(sys.modules)
    added = [str(folder) for folder in folders if str(folder) not in sys.path]
    sys.path[:0] = added
    try:
        with _as_a_guest(target.file):
            if target.module is not None:
                module = importlib.import_module(name)
            else:
                module = _import_file(name, target.file)
    except BaseException:
        _undo(_new_modules(before), added)
        raise
    _last = _Imported(key, module, _new_modules(before), added)
    return module


def _import_file(name: str, file: Path) -> ModuleType:
    """Import `file` as `name`, or under another name where Python has a module called that."""
    known = sys.modules.get(name)
    if known is not None and known.__file__ and Path(known.__file__).samefile(file):
        return known
    if known is not None or name.partition(".")[0] in sys.stdlib_module_names:
        name = f"_specc_{name.replace('.', '_')}"
    elif "." in name:
        return importlib.import_module(name)
    spec = importlib.util.spec_from_file_location(name, file.resolve())
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module  # before it runs: a file it imports may import it in turn
    spec.loader.exec_module(module)
    return module


@contextlib.contextmanager
def _as_a_guest(file: Path) -> Iterator[None]:
    """The user's file runs here: its prints leave stdout alone, and it leaves no bytecode.

    An exception gets a note and keeps its own words.
    """
    writes, sys.dont_write_bytecode = sys.dont_write_bytecode, True
    try:
        with contextlib.redirect_stdout(sys.stderr):
            yield
    except Exception as error:
        error.add_note(f"while importing the spec's file {shown_path(file)}")
        raise
    except SystemExit as error:
        raise RuntimeError(
            f"{shown_path(file)} ended the program (exit code {error.code}) when it was imported; "
            "put what only a script does under `if __name__ == '__main__':`"
        ) from error
    finally:
        sys.dont_write_bytecode = writes


def _new_modules(before: set[str]) -> list[str]:
    return [name for name, m in sys.modules.items() if name not in before and _is_local(m)]


def _undo(modules: list[str], folders: list[str]) -> None:
    for name in modules:
        sys.modules.pop(name, None)
    for folder in folders:
        with contextlib.suppress(ValueError):
            sys.path.remove(folder)
    importlib.invalidate_caches()


def _is_local(module: ModuleType) -> bool:
    file = getattr(module, "__file__", None)
    if not file or module.__name__.partition(".")[0] in {
        "specc",
        "torch",
        *sys.stdlib_module_names,
    }:
        return False
    return not is_installed(Path(file))


def _refuse_hiding(folder: Path) -> None:
    """A `specc` beside the user's file would be found before the package, in part or in whole."""
    package = folder / "specc"
    if (package / "compiler").exists() and (package / "compiler").samefile(HERE):
        return  # the clone that this very specc is installed from
    parts = ("__init__.py", "runtime", "templates", "huggingface", "compiler")
    for hiding in (folder / "specc.py", *(package / part for part in parts)):
        if hiding.exists():
            found = hiding if hiding.suffix == ".py" and hiding.parent == folder else package
            fail(
                "SP624",
                f"`{shown_path(found)}` hides the package `specc` from your spec's imports",
                help="rename it, or move the spec to another folder",
            )
