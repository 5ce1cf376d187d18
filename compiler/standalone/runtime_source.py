"""The runtime's source: what each of its files defines, and what a name in one stands for."""

from __future__ import annotations

import functools
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import libcst as cst

from .. import tree
from .program import Home

PACKAGE = "specc.runtime"


@dataclass
class RuntimeFile:
    """One file of the runtime. `outside` has an import line for each name of another package."""

    module: str
    definitions: dict[str, Any] = field(default_factory=dict)
    homes: dict[str, Home] = field(default_factory=dict)
    outside: dict[str, str] = field(default_factory=dict)


@functools.cache
def runtime_file(module: str) -> RuntimeFile:
    """The file `module` of the runtime; "__init__" has what a page imports."""
    found = find_spec(PACKAGE)
    assert found is not None and found.origin is not None
    path = Path(found.origin).parent / f"{module}.py"
    file = RuntimeFile(module)
    if not path.is_file():
        return file
    for statement in cst.parse_module(path.read_text(encoding="utf-8")).body:
        _note(statement, file)
    return file


def home_of(module: str, name: str) -> Home | None:
    """Where the runtime defines what a file of it calls `name`; None for what it does not."""
    seen = set()
    while (module, name) not in seen:
        seen.add((module, name))
        file = runtime_file(module)
        if name in file.definitions:
            return Home(module, name)
        home = file.homes.get(name)
        if home is None:
            return None
        module, name = home.module, home.name
    return None


def _note(statement: Any, file: RuntimeFile) -> None:
    if isinstance(statement, (cst.FunctionDef, cst.ClassDef)):
        file.definitions[statement.name.value] = statement
    elif isinstance(statement, cst.If):  # of TYPE_CHECKING: annotations name what it imports
        for inner in tree.body_of(statement):
            _note(inner, file)
    elif isinstance(statement, cst.SimpleStatementLine):
        for small in statement.body:
            if isinstance(small, cst.ImportFrom):
                _note_import_from(small, file)
            elif isinstance(small, cst.Import):
                for alias in small.names:
                    name = alias.evaluated_alias or (tree.dotted(alias.name) or "").split(".")[0]
                    file.outside[name] = tree.code(cst.Import([_bare(alias)]))
            elif isinstance(small, (cst.Assign, cst.AnnAssign)):
                for name in tree.stored_names(small):
                    file.definitions[name] = statement


def _note_import_from(node: cst.ImportFrom, file: RuntimeFile) -> None:
    if isinstance(node.names, cst.ImportStar):
        return
    source = tree.dotted(node.module) if node.module is not None else None
    for alias in node.names:
        original = tree.dotted(alias.name) or ""
        local = alias.evaluated_alias or original
        if node.relative:
            file.homes[local] = Home(source, original) if source else Home(original, "")
        else:
            shown = original if local == original else f"{original} as {local}"
            file.outside[local] = f"from {source} import {shown}"


def _bare(alias: cst.ImportAlias) -> cst.ImportAlias:
    return alias.with_changes(comma=cst.MaybeSentinel.DEFAULT)
