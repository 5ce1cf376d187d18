"""`--set` on a page: other numbers in the literals of its configs, everything else as it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ..diagnostics import fail, parse_error

CODE = "SP617"
_FORM = re.compile(r"config\.(\w+)=(.*)", re.DOTALL)
_READERS = {"int": int, "float": float}
_TAKES = {"int": "a whole number", "float": "a number"}


@dataclass(frozen=True)
class _Field:
    """One field of a config class, with the place of its value in the page's text."""

    name: str
    annotation: str
    value: ast.expr


def set_numbers(text: str, overrides: Sequence[str]) -> str:
    """The page with each `config.FIELD=VALUE` written into every config class that states it.

    As for a spec, all of them are set before anything is asked of the numbers; what the page's own
    `Config` asserts of them is found when the page runs.

    Raises `SpecError`, SP617: for another form, where no config of the page has the field, where
    the value is no number of its type, and where the field holds none: what is no number was a
    choice, and the page is what that choice left.
    """
    fields = list(_fields(text))
    changes: dict[tuple[int, int], tuple[_Field, str]] = {}
    for override in overrides:
        match = _FORM.fullmatch(override)
        if match is None:
            fail(
                CODE,
                f"`--set {override}` is not an assignment to a config field",
                help="write --set config.FIELD=NUMBER",
            )
        name, value = match.groups()
        having = [field for field in fields if field.name == name]
        if not having:
            from specc.templates.diagnostic import suggestion

            fail(
                CODE,
                f"`--set {override}`: no config of the page has a field `{name}`",
                help=suggestion(name, {field.name for field in fields}, "the page's config"),
            )
        for field in having:
            place = (field.value.lineno, field.value.col_offset)
            changes[place] = (field, _number(field, value, override))
    return _written(text, changes)


def _fields(text: str) -> Iterator[_Field]:
    """The fields of the top-level dataclasses of a page."""
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        at = parse_error(error)
        fail("SP660", f"the page is no Python: {at}", help="put that right before numbers are set")
    for node in tree.body:
        if isinstance(node, ast.ClassDef) and any(map(_is_dataclass, node.decorator_list)):
            for item in node.body:
                if not isinstance(item, ast.AnnAssign) or item.value is None:
                    continue
                if isinstance(item.target, ast.Name):
                    yield _Field(item.target.id, ast.unparse(item.annotation), item.value)


def _is_dataclass(decorator: ast.expr) -> bool:
    called = decorator.func if isinstance(decorator, ast.Call) else decorator
    return ast.unparse(called).rpartition(".")[2] == "dataclass"


def _number(field: _Field, value: str, override: str) -> str:
    """A number as it is written on the page."""
    read = _READERS.get(field.annotation)
    now = ast.unparse(field.value)
    if read is None:
        fail(
            CODE,
            f"`--set {override}`: `{field.name}` is `{now}` on the page, and only numbers of a "
            "page can be set",
            help="its spec can be compiled with any value: `specc compile SPEC --set ...`",
        )
    try:
        number = read(value.strip())
    except ValueError:
        takes = _TAKES[field.annotation]
        fail(
            CODE,
            f"`--set {override}`: `{field.name}` takes {takes}, not `{value}`",
            help=f"it is {now} on the page",
        )
    from ..value import float_text

    return float_text(number) if isinstance(number, float) else str(number)


def _written(text: str, changes: dict[tuple[int, int], tuple[_Field, str]]) -> str:
    """The text with the values at these places exchanged; `ast` counts columns in UTF-8."""
    lines = text.encode("utf-8", errors="surrogateescape").splitlines(keepends=True)
    for (line, column), (field, value) in sorted(changes.items(), reverse=True):
        last, end = field.value.end_lineno, field.value.end_col_offset
        assert last is not None and end is not None
        lines[line - 1 : last] = [lines[line - 1][:column] + value.encode() + lines[last - 1][end:]]
    return b"".join(lines).decode("utf-8", errors="surrogateescape")
