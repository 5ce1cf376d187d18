"""Source: each file parsed once, with its classes, functions, constants and imports indexed."""

from __future__ import annotations

import ast
import functools
import inspect
import os
import sys
import sysconfig
from pathlib import Path
from types import FunctionType, ModuleType
from typing import TYPE_CHECKING

import libcst as cst

from specc.templates.diagnostic import Span

from . import tree

if TYPE_CHECKING:
    from .record import Place

Statement = cst.SimpleStatementLine


class SourceFile:
    """One parsed file; `calls` finds the node of a call from its place in the text."""

    def __init__(self, path: str) -> None:
        self.path = path
        self.text = Path(path).read_text(encoding="utf-8")
        self.module = cst.parse_module(self.text)
        self.classes: dict[str, cst.ClassDef] = {}
        self.functions: dict[str, cst.FunctionDef] = {}
        self.constants: dict[str, Statement] = {}
        self.imports: dict[str, str] = {}  # name bound -> the statement that binds it alone
        for statement in self.module.body:
            self._index(statement)

    def _index(self, statement: cst.CSTNode) -> None:
        if isinstance(statement, cst.ClassDef):
            self.classes[statement.name.value] = statement
        elif isinstance(statement, cst.FunctionDef):
            self.functions[statement.name.value] = statement
        elif isinstance(statement, cst.SimpleStatementLine):
            for small in statement.body:
                if isinstance(small, (cst.Import, cst.ImportFrom)):
                    self.imports.update(_imports(small))
                elif isinstance(small, (cst.Assign, cst.AnnAssign)):
                    for name in tree.stored_names(small):
                        self.constants[name] = statement
        elif isinstance(statement, (cst.If, cst.Try)):
            # A guarded import (`if TYPE_CHECKING`, try/except) binds its name like any other.
            for item in tree.walk(statement):
                if isinstance(item, (cst.Import, cst.ImportFrom)):
                    self.imports.update(_imports(item))

    def column(self, line: int, offset: int) -> int:
        """A column in characters, as libcst counts, for one of `ast`'s, in bytes of UTF-8."""
        if self.text.isascii():
            return offset
        text = self.text.splitlines()[line - 1]
        return len(text.encode()[:offset].decode(errors="ignore"))

    @functools.cached_property
    def calls(self) -> dict[tuple[int, int, int, int], cst.Call]:
        """Calls by (line, column, end line, end column), matched to the nodes by their order.

        libcst's own positions cost twenty times as much as `ast`'s; both trees list the calls of a
        file in the same order, an outer call before those inside it.
        """
        nodes = [n for n in _outside_strings(self.module) if isinstance(n, cst.Call)]
        places = sorted(
            (n.lineno, n.col_offset, -(n.end_lineno or 0), -(n.end_col_offset or 0))
            for n in _ast_outside_strings(ast.parse(self.text))
            if isinstance(n, ast.Call)
        )
        assert len(nodes) == len(places), f"{self.path}: {len(nodes)} calls against {len(places)}"
        return {(a, b, -c, -d): n for (a, b, c, d), n in zip(places, nodes, strict=True)}

    @functools.cached_property
    def _lines(self) -> dict[int, int]:
        """The line of every node, by its id: that of the nearest statement or call around it."""
        places = [n.lineno for n in _statements(ast.parse(self.text))]
        statements = [n for n in tree.walk(self.module) if isinstance(n, _STATEMENTS)]
        if len(places) != len(statements):
            return {}
        starts = {id(n): line for n, line in zip(statements, places, strict=True)}
        for node in tree.walk(self.module):
            if isinstance(node, cst.SimpleStatementLine):
                starts[id(node)] = starts[id(node.body[0])]
        starts |= {id(node): place[0] for place, node in self.calls.items()}
        found: dict[int, int] = {}
        stack: list[tuple[cst.CSTNode, int]] = [(self.module, 1)]
        while stack:
            node, line = stack.pop()
            line = found[id(node)] = starts.get(id(node), line)
            stack.extend((part, line) for part in tree.parts(node))
        return found

    def span(self, node: cst.CSTNode) -> Span | None:
        """The line that a node stands in, for a diagnostic: that of its first part where it was
        rebuilt.
        """
        for item in tree.walk(node):
            line = self._lines.get(id(item))
            if line is not None:
                text = self.text.splitlines()[line - 1].rstrip()
                return Span(self.path, line, len(text) - len(text.lstrip()) + 1, len(text) + 1)
        return None


_STATEMENTS = (cst.BaseSmallStatement, cst.BaseCompoundStatement)


def _statements(node: ast.AST) -> list[ast.stmt]:
    """Every statement, an outer one before those inside it, in the order of the source."""
    found = [node] if isinstance(node, ast.stmt) else []
    return found + [s for child in ast.iter_child_nodes(node) for s in _statements(child)]


def _outside_strings(node: cst.CSTNode) -> list[cst.CSTNode]:
    """Every node but those in f-strings, whose positions `ast` gets wrong before Python 3.12."""
    out: list[cst.CSTNode] = []
    stack = [node]
    while stack:
        top = stack.pop()
        out.append(top)
        if not isinstance(top, cst.FormattedString):
            stack.extend(reversed(list(tree.parts(top))))
    return out


def _ast_outside_strings(node: ast.AST) -> list[ast.AST]:
    out: list[ast.AST] = []
    stack = [node]
    while stack:
        top = stack.pop()
        out.append(top)
        if not isinstance(top, ast.JoinedStr):
            stack.extend(ast.iter_child_nodes(top))
    return out


def _imports(node: cst.Import | cst.ImportFrom) -> dict[str, str]:
    found: dict[str, str] = {}
    if isinstance(node.names, cst.ImportStar):
        return found
    for alias in node.names:
        name = tree.code(alias.name)
        bound = tree.code(alias.asname.name) if alias.asname else name
        shown = f"{name} as {bound}" if alias.asname else name
        if isinstance(node, cst.Import):
            found[bound.split(".")[0]] = f"import {shown}"
        else:
            dots = "." * len(node.relative)
            module = tree.code(node.module) if node.module is not None else ""
            found[bound] = f"from {dots}{module} import {shown}"
    return found


@functools.lru_cache(maxsize=256)
def _parsed(path: str, changed: int, size: int) -> SourceFile:
    """A file as it stood at that change: many specs are compiled from the same templates."""
    return SourceFile(path)


class Sources:
    """The files of one compile, each parsed at its first use."""

    def __init__(self) -> None:
        self._files: dict[str, SourceFile] = {}

    def file(self, path: str) -> SourceFile:
        if path not in self._files:
            stat = os.stat(path)
            self._files[path] = _parsed(path, stat.st_mtime_ns, stat.st_size)
        return self._files[path]

    def files(self) -> list[SourceFile]:
        """Those that this compile has parsed so far."""
        return list(self._files.values())

    def of(self, thing: type | FunctionType) -> SourceFile | None:
        path = path_of(thing)
        return None if path is None else self.file(path)

    def class_def(self, cls: type) -> cst.ClassDef | None:
        file = self.of(cls)
        return None if file is None or "." in cls.__qualname__ else file.classes.get(cls.__name__)

    def span(self, node: cst.CSTNode, *owners: type) -> Span | None:
        """The line of a node in the file of one of these classes."""
        for owner in owners:
            file = self.of(owner)
            found = None if file is None else file.span(node)
            if found is not None:
                return found
        return None

    def call(self, place: Place) -> cst.Call | None:
        file = self.file(place.file)
        return file.calls.get((place.line, place.column, place.end_line, place.end_column))


def path_of(thing: type | FunctionType) -> str | None:
    module = sys.modules.get(thing.__module__)
    path = getattr(module, "__file__", None)
    if path is None:
        try:
            path = inspect.getsourcefile(thing)
        except TypeError:
            return None
    return path if path is not None and path.endswith(".py") else None


_LIBRARIES = tuple(
    {str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")}
)


def is_foldable_module(name: str) -> bool:
    """Whether the classes of this module are written out on the page: the user's own and
    specc.templates'.

    torch, specc.runtime, the standard library and what is installed are imported by the page
    instead.
    """
    if is_ours(name):
        return name.startswith("specc.templates")
    if name.partition(".")[0] in ("torch", "builtins"):
        return False
    # By its file, not by its name: a user may call a file `code.py`, and load another of that name.
    module: ModuleType | None = sys.modules.get(name)
    path = getattr(module, "__file__", None)
    return path is not None and not _is_installed(path)


@functools.cache
def _is_installed(path: str) -> bool:
    return str(Path(path).resolve()).startswith(_LIBRARIES)


def is_ours(module: str) -> bool:
    """Whether a module is a part of specc."""
    return module.startswith("specc.")


def is_foldable(cls: type) -> bool:
    return is_foldable_module(cls.__module__)
