"""Which of the runtime's modules a page needs, found in their text: nothing is imported."""

from __future__ import annotations

import ast
import importlib.util
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

PACKAGE = "specc.runtime"
PROGRAMS = ("train", "sample", "tokenize", "verify")  # `python -m specc.runtime.NAME`


@dataclass(frozen=True)
class RuntimeFiles:
    """The runtime's folder as texts and the imports between them."""

    folder: Path

    @classmethod
    def installed(cls) -> RuntimeFiles:
        """Those of the specc that runs."""
        found = importlib.util.find_spec(PACKAGE)
        assert found is not None and found.origin is not None
        return cls(Path(found.origin).parent)

    def text(self, module: str) -> str:
        return (self.folder / f"{module}.py").read_text(encoding="utf-8")

    @cached_property
    def modules(self) -> frozenset[str]:
        return frozenset(p.stem for p in self.folder.glob("*.py") if p.stem != "__init__")

    @cached_property
    def homes(self) -> dict[str, str]:
        """The module that defines each name of the package."""
        return {
            alias.asname or alias.name: node.module
            for node in ast.walk(ast.parse(self.text("__init__")))
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module
            for alias in node.names
        }

    def closure(self, wanted: Iterable[str]) -> frozenset[str]:
        """These modules and all that they import, also inside functions and for types alone: a
        type checker reads those too."""
        found: set[str] = set()
        pending = set(wanted)
        while pending:
            module = pending.pop()
            found.add(module)
            pending |= self._imports(module) - found
        return frozenset(found)

    def exports(self, modules: frozenset[str]) -> str:
        """The package's `__init__` for these modules: every name that one of them defines."""
        text = self.text("__init__")
        if modules >= set(self.homes.values()):
            return text
        tree = ast.parse(text)
        kept = [
            node
            for node in tree.body
            if isinstance(node, ast.ImportFrom) and node.level == 1 and node.module in modules
        ]
        docstring = ast.get_source_segment(text, tree.body[0])
        names = sorted(name for name, home in self.homes.items() if home in modules)
        imports = [ast.get_source_segment(text, node) for node in kept]
        listed = "".join(f'    "{name}",\n' for name in names)
        return f"{docstring}\n\n" + "\n".join(map(str, imports)) + f"\n\n__all__ = [\n{listed}]\n"

    def _imports(self, module: str) -> set[str]:
        found: set[str] = set()
        for node in ast.walk(ast.parse(self.text(module))):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                found |= {node.module} if node.module else {alias.name for alias in node.names}
        return found & self.modules
