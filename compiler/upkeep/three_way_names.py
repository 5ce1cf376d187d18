"""Names that a merge left without what they stood for.

Lines that merge cleanly may still not fit: a hand-written line reads `self.group_size`, and the
page that is compiled now has no such thing any more.
"""

from __future__ import annotations

import ast
import builtins
import symtable
from collections.abc import Iterator


def lost_names(merged: str, yours: str, new: str) -> list[tuple[int, str]]:
    """Lines of the merged page, each with a name on it that means nothing any more.

    A name of Python's that no scope binds, or an attribute that either side stored or defined and
    the merged one does not. What is missing on either side already is not a loss.
    """
    known = {*_unbound(yours), *_unbound(new)}
    unbound = {name for name in _unbound(merged) if name not in known}
    lost = {
        name
        for side, other in ((yours, new), (new, yours))
        for name in _attributes(side) - _attributes(merged)
        if name not in _undefined(other)
    }
    return sorted({*_places(merged, unbound, lost)}) if unbound or lost else []


def _places(text: str, names: set[str], attributes: set[str]) -> Iterator[tuple[int, str]]:
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Name) and node.id in names:
            yield node.lineno, node.id
        elif isinstance(node, ast.Attribute) and node.attr in attributes:
            yield node.end_lineno or node.lineno, ast.unparse(node)


def _unbound(text: str) -> set[str]:
    """Names that are read as globals, and that neither the module nor Python has."""
    top = symtable.symtable(text, "<page>", "exec")
    bound = {symbol.get_name() for symbol in top.get_symbols() if _is_bound(symbol)}
    return {name for name in _globals(top) if name not in bound and not hasattr(builtins, name)}


def _is_bound(symbol: symtable.Symbol) -> bool:
    return symbol.is_assigned() or symbol.is_imported() or symbol.is_namespace()


def _globals(scope: symtable.SymbolTable) -> Iterator[str]:
    is_top = scope.get_type() == "module"
    for symbol in scope.get_symbols():
        if symbol.is_referenced() and (symbol.is_global() or is_top):
            yield symbol.get_name()
    for inner in scope.get_children():
        yield from _globals(inner)


def _undefined(text: str) -> set[str]:
    """Attributes that a page reads and has from elsewhere."""
    nodes = ast.walk(ast.parse(text))
    return {node.attr for node in nodes if isinstance(node, ast.Attribute)} - _attributes(text)


def _attributes(text: str) -> set[str]:
    """What a page's objects have by its own doing: attributes stored, fields, methods."""
    found: set[str] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Store):
            found.add(node.attr)
        elif isinstance(node, ast.ClassDef):
            for item in node.body:
                if isinstance(item, ast.FunctionDef):
                    found.add(item.name)
                elif isinstance(item, ast.AnnAssign) and isinstance(item.target, ast.Name):
                    found.add(item.target.id)
                elif isinstance(item, ast.Assign):
                    found |= {t.id for t in item.targets if isinstance(t, ast.Name)}
    return found
