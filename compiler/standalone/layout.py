"""Layout: the folded program as the text of one file, read from top to bottom."""

from __future__ import annotations

from typing import Any

import black
import libcst as cst

from .. import tree
from ..header import specc_version
from ..long_comments import lift_long_comments
from ..names import Needs
from ..page import BLACK, import_groups
from .program import Program
from .unread import names_read


def laid_out(program: Program, name: str) -> str:
    """The page's text: a line that says what it was made from, and the definitions in order."""
    statements = {n: _definition(s) for n, s in program.statements.items()}
    order = _order(program)
    groups = import_groups(_needs(program, statements, order))
    head = f"# Standalone, made by specc {specc_version()} from {name}: it needs torch alone.\n"
    parts = [f'{head}"""{program.docstring}"""' if program.docstring else head.rstrip("\n")]
    parts.append("\n\n".join("\n".join(group) for group in groups))
    parts += [tree.code(statements[n]).strip("\n") for n in order]
    return black.format_str("\n\n".join(parts) + "\n", mode=BLACK)


def _order(program: Program) -> list[str]:
    """The page's definitions in its order; each of the runtime's before all that names it.

    A config stays first, and what stands between it and the first class.
    """
    classes = [
        n
        for n, s in program.statements.items()
        if n not in program.ours and not (program.is_record(n) or not _defines(s))
    ]
    first = [n for n in program.statements if n not in program.ours and n not in classes]
    before = [n for n in first if list(program.statements).index(n) < _index(program, classes)]
    after = [n for n in first if n not in before]
    out: list[str] = []

    def place(name: str) -> None:
        if name in out:
            return
        node = program.statements[name]
        for used in _in_text_order(node):
            if used in program.ours and used != name:
                place(used)
        out.append(name)

    ours = [n for n in program.statements if n in program.ours]
    for name in before:
        place(name)
    for kind in (cst.ClassDef, cst.FunctionDef, object):
        for page_name in classes:
            for used in _in_text_order(program.statements[page_name]):
                if used in ours and isinstance(program.statements[used], kind):
                    place(used)
    for name in [*ours, *classes, *after]:
        place(name)
    return out


def _index(program: Program, classes: list[str]) -> int:
    names = list(program.statements)
    return min((names.index(n) for n in classes), default=len(names))


def _defines(statement: Any) -> bool:
    return isinstance(statement, (cst.FunctionDef, cst.ClassDef))


def _in_text_order(node: cst.CSTNode) -> list[str]:
    names = names_read(node)
    found = [i.value for i in tree.walk(node) if isinstance(i, cst.Name) and i.value in names]
    return list(dict.fromkeys(found))


def _needs(program: Program, statements: dict[str, Any], order: list[str]) -> Needs:
    read = {n for s in statements.values() for n in names_read(s)}
    imports = {n: line for n, line in program.imports.items() if n in read}
    return Needs(imports, future=_needs_future(program, order))


def _needs_future(program: Program, order: list[str]) -> bool:
    """Whether an annotation names what is defined later, or the class that it stands in."""
    for position, name in enumerate(order):
        later = set(order[position:])
        for item in tree.walk(program.statements[name]):
            if not isinstance(item, cst.Annotation):
                continue
            if later & {n.value for n in tree.walk(item) if isinstance(n, cst.Name)}:
                return True
    return False


def _definition(node: Any) -> Any:
    """A definition as it is printed: no line breaks of the source's, no parentheses too many."""
    node = _without_breaks(node)
    if isinstance(node, (cst.FunctionDef, cst.ClassDef)):
        kept = [line for line in node.leading_lines if line.comment is not None]
        return lift_long_comments(node.with_changes(leading_lines=kept), 0)
    return node.with_changes(leading_lines=[x for x in node.leading_lines if x.comment is not None])


def _without_breaks(node: Any) -> Any:
    if isinstance(node, (cst.Assign, cst.Return, cst.AnnAssign, cst.Element)):
        value = node.value
        if value is not None and not isinstance(value, cst.Tuple):
            node = node.with_changes(value=tree.bare(value))
    if isinstance(node, (cst.If, cst.IfExp)):
        node = node.with_changes(test=tree.bare(node.test))
    return tree.rebuild(node, _without_breaks)
