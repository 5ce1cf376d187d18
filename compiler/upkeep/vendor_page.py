"""The page of a vendored folder: which runtime names it imports, and its text with them at home."""

from __future__ import annotations

import ast
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import fail, parse_error, shown_path
from ..header import split_page
from .three_way_text import lines_of
from .vendor_runtime import PACKAGE, RuntimeFiles


@dataclass(frozen=True)
class VendoredPage:
    """A page's text with relative imports, and the runtime modules that it names."""

    text: str
    modules: frozenset[str]


def vendored_page(page: Path, text: str, runtime: RuntimeFiles) -> VendoredPage:
    """The page without its header, its `from specc.runtime import` made `from .runtime import`.

    Raises `SpecError`: SP697 where the page does not parse, or imports of specc other than names
    of the runtime.
    """
    parsed = split_page(text)
    body = parsed[1] if parsed else text
    above = text.count("\n") - body.count("\n")  # lines of the header
    try:
        tree = ast.parse(text)
    except (SyntaxError, ValueError) as error:
        at = parse_error(error)
        fail(
            "SP697",
            f"`{shown_path(page)}` is not Python: {at}",
            help="compile it again, or put right what was edited",
        )
    lines = lines_of(text)
    modules: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import) and any(_of_specc(alias.name) for alias in node.names):
            _refuse(page, lines[node.lineno - 1], node.lineno)
        if not isinstance(node, ast.ImportFrom) or not _of_specc(node.module or ""):
            continue
        home = (node.module or "").removeprefix(PACKAGE).removeprefix(".")
        for alias in node.names:
            module = home or runtime.homes.get(alias.name) or alias.name
            if not (node.module or "").startswith(PACKAGE) or module not in runtime.modules:
                _refuse(page, lines[node.lineno - 1], node.lineno)
            modules.add(module)
        line = lines[node.lineno - 1]
        start = len(line.encode()[: node.col_offset].decode())
        lines[node.lineno - 1] = line[:start] + line[start:].replace(PACKAGE, ".runtime", 1)
    return VendoredPage("".join(lines[above:]), frozenset(modules))


def _of_specc(module: str) -> bool:
    return module.partition(".")[0] == "specc"


def _refuse(page: Path, line: str, number: int) -> None:
    from specc.templates.diagnostic import Diagnostic, Span, SpecError

    start = len(line) - len(line.lstrip()) + 1
    raise SpecError(
        (
            Diagnostic(
                "SP697",
                f"`{line.strip()}` imports what a folder of its own cannot hold",
                span=Span(str(page), number, start, len(line.rstrip()) + 1),
                help="import names from `specc.runtime`, as `from specc.runtime import Mesh`",
            ),
        )
    )
