"""The imports of a page, merged three ways as what they are: a set of names."""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from .three_way_text import lines_of


@dataclass(frozen=True)
class Split:
    """A page's body before, in and after the block of its imports."""

    before: str
    imports: str
    after: str

    @property
    def names(self) -> dict[str, str]:
        """A line for each imported name (`from torch import nn`), by the name that it binds."""
        lines: dict[str, str] = {}
        for node in ast.parse(self.imports).body:
            source = "" if isinstance(node, ast.Import) else f"from {_source(node)} "
            assert isinstance(node, ast.Import | ast.ImportFrom)
            for alias in node.names:
                bound = alias.asname or (alias.name if source else alias.name.partition(".")[0])
                shown = f"{alias.name} as {alias.asname}" if alias.asname else alias.name
                line = f"{source}import {shown}"
                # `import torch.a` and `import torch.b` bind one name and are two imports.
                lines[bound if source or alias.asname else line] = line
        return lines


def split_imports(body: str) -> Split | None:
    """None where imports and other things stand among each other: a comment, a `try`."""
    lines = lines_of(body)
    nodes = ast.parse(body).body
    at = [n for n, node in enumerate(nodes) if isinstance(node, ast.Import | ast.ImportFrom)]
    if not at or at[-1] - at[0] != len(at) - 1:
        return None
    start, end = nodes[at[0]].lineno - 1, nodes[at[-1]].end_lineno
    block = "".join(lines[start:end])
    if "#" in block or ";" in block or any(a.name == "*" for n in at for a in _aliases(nodes[n])):
        return None
    return Split("".join(lines[:start]), block, "".join(lines[end:]))


def merge_imports(
    yours: Split, base: Split, new: Split, is_used: Callable[[str], bool]
) -> str | None:
    """The block of imports with what both sides added, without what either took away.

    A name that was taken away on one side and is still used on the other stays: `is_used` says so
    of the merged page. None where both import different things by one name.
    """
    mine, old, theirs = yours.names, base.names, new.names
    merged: dict[str, str] = {}
    for name in {**theirs, **mine}:
        line = _line(mine.get(name), old.get(name), theirs.get(name))
        if line is None and is_used(name.removeprefix("import ").partition(".")[0]):
            line = theirs.get(name) or mine.get(name)
        if line == "":
            return None
        if line is not None:
            merged[name] = line
    for side in (new, yours):
        if set(side.names.values()) == set(merged.values()):
            return side.imports
    return _written(merged.values())


def _line(mine: str | None, old: str | None, theirs: str | None) -> str | None:
    """The line that the two sides come to; "" where they come to two."""
    if mine in (theirs, old):
        return theirs
    if theirs == old:
        return mine
    return "" if mine and theirs else None


def _written(lines: Iterable[str]) -> str:
    """Sorted, grouped and formatted as a page's imports are."""
    import black

    from ..names import Needs
    from ..page import BLACK, import_groups

    future = "from __future__ import annotations"
    imports = {line: line for line in lines if line != future}
    needs = Needs(imports=imports, future=future in set(lines))
    text = "\n\n".join("\n".join(group) for group in import_groups(needs))
    return black.format_str(text, mode=BLACK)


def _source(node: ast.stmt) -> str:
    assert isinstance(node, ast.ImportFrom)
    return "." * node.level + (node.module or "")


def _aliases(node: ast.stmt) -> list[ast.alias]:
    return node.names if isinstance(node, ast.Import | ast.ImportFrom) else []
