"""Places in source files that a diagnostic speaks of, found in the text: a name inside a call, a
parameter of a constructor, a slot of a dataclass, the call by which a parent asks for a child.

All of them are read when something is wrong, never in a build that goes well.
"""

from __future__ import annotations

import ast
import functools
import inspect
import linecache
import re
from collections.abc import Callable, Iterator
from types import FrameType
from typing import Any

from .diagnostic import Span, call_span

_NAMED = re.compile(r"`(\w+)`")


def narrowed(span: Span | None, message: str, path: str = "") -> Span | None:
    """The part of the call at `span` that the message speaks of, or `span` where there is none.

    It is the first name in backticks that is a keyword of the call or a key of a dict in it; or
    the last name of `path`, where what is wrong stands under that name. Calls inside it are left
    alone: they have places of their own.
    """
    if span is None:
        return None
    call = _call_at(span)
    if call is None:
        return span
    names = [*_NAMED.findall(message), path.rpartition(".")[2]]
    entries = dict(_entries(call))
    for name in names:
        if name in entries:
            return _span(span.file, *entries[name])
    return span


def parameter_span(function: Callable[..., Any], name: str) -> Span | None:
    """Where a function, or a class's constructor, has its parameter of this name."""
    target = inspect.unwrap(function.__init__ if isinstance(function, type) else function)  # type: ignore[misc]
    code = getattr(target, "__code__", None)
    if code is None:
        return None
    for node in ast.walk(_parsed(code.co_filename) or ast.Module([], [])):
        if isinstance(node, ast.FunctionDef) and code.co_firstlineno in _first_lines(node):
            arguments = node.args
            for arg in (*arguments.posonlyargs, *arguments.args, *arguments.kwonlyargs):
                if arg.arg == name:
                    return _span(code.co_filename, arg, arg)
    return None


def slot_span(cls: type, name: str) -> Span | None:
    """Where a dataclass has its field of this name."""
    for owner in cls.__mro__:
        try:
            file = inspect.getsourcefile(owner)
        except TypeError:
            continue  # a builtin
        for node in ast.walk(_parsed(file) or ast.Module([], []) if file else ast.Module([], [])):
            if isinstance(node, ast.ClassDef) and node.name == owner.__name__:
                for field in node.body:
                    if isinstance(field, ast.AnnAssign) and ast.unparse(field.target) == name:
                        return _span(str(file), field, field)
    return None


def asking_span(frame: FrameType | None, machinery: str) -> Span | None:
    """The call by which a parent's constructor asked for the child that is being built.

    `frame` is one of the build's, `machinery` their file. None at the root: nobody asks for it.
    """
    names = []
    while frame is not None and frame.f_code.co_filename == machinery:
        names.append(frame.f_code.co_name)
        frame = frame.f_back
    if "construct" in names or "_build_root" in names:
        return None
    return call_span(frame, frozenset({machinery}), width=len("build_module"))


def _call_at(span: Span) -> ast.Call | None:
    for node in ast.walk(_parsed(span.file) or ast.Module([], [])):
        if isinstance(node, ast.Call) and (node.lineno, node.col_offset) == (
            span.line,
            span.column - 1,
        ):
            return node
    return None


def _entries(call: ast.Call) -> Iterator[tuple[str, tuple[ast.AST, ast.AST]]]:
    """Names given in a call: its keywords, and the keys of dicts in it that no other call makes."""
    for keyword in call.keywords:
        if keyword.arg is not None:
            yield keyword.arg, (keyword, keyword)
    pending: list[ast.AST] = [*call.args, *(keyword.value for keyword in call.keywords)]
    while pending:
        node = pending.pop()
        if isinstance(node, ast.Dict):
            for key, value in zip(node.keys, node.values, strict=True):
                if isinstance(key, ast.Constant) and isinstance(key.value, str):
                    yield key.value, (key, value if isinstance(value, ast.Constant) else key)
        elif isinstance(node, ast.Call):
            continue
        pending += ast.iter_child_nodes(node)


def _span(file: str, first: Any, last: Any) -> Span:
    """From the start of one node to the end of another, or of the first one's line."""
    line = linecache.getline(file, first.lineno).rstrip("\n")
    column = len(line.encode()[: first.col_offset].decode())
    end = last.end_col_offset if last.end_lineno == first.lineno else len(line.encode())
    return Span(file, first.lineno, column + 1, len(line.encode()[:end].decode()) + 1)


def _first_lines(node: ast.FunctionDef) -> set[int]:
    return {node.lineno, *(d.lineno for d in node.decorator_list)}


def _parsed(file: str) -> ast.Module | None:
    linecache.checkcache(file)
    return _parsed_text("".join(linecache.getlines(file)))


@functools.lru_cache(maxsize=16)
def _parsed_text(text: str) -> ast.Module | None:
    try:
        return ast.parse(text) if text else None
    except (SyntaxError, ValueError):
        return None  # YAML
