"""Where the value of a config field comes from: `--set`, a line of the spec, or a default."""

from __future__ import annotations

import ast
import dataclasses
import inspect
import re
from pathlib import Path
from typing import Any

from ..facts import Facts
from ..pipeline import Translated
from ..target import YAML
from ..unread import config_numbers, set_fields
from ..value import Fields, float_text
from .answer import FieldFact, Place
from .shown import place, shown
from .statements import statements_of


class FieldFacts:
    """The config fields of one compile."""

    def __init__(self, traced: Translated, overrides: tuple[str, ...]) -> None:
        self._facts: Facts = traced.facts
        self._known: dict[tuple[int, str], FieldFact] = {}
        self._numbers = config_numbers(traced.facts)
        self._overridden = {
            name: override for override in overrides if (name := _field_set_by(override))
        }

    def of(self, fields: Fields) -> tuple[FieldFact, ...]:
        """What is to be said of the fields that an answer reads, by name."""
        numbers = {(self._numbers[i], n) for i, n in fields if i in self._numbers}
        return tuple(self.named(name, number) for number, name in sorted(numbers))

    def numbers(self, fields: Fields) -> set[int]:
        """The numbers of the configs that these fields are of."""
        return {self._numbers[i] for i, _ in fields if i in self._numbers}

    def named(self, name: str, number: int = 0) -> FieldFact:
        """The same of one field of a config, by the config's number."""
        if (number, name) not in self._known:
            config = self._facts.kinds.configs[number]
            fact = FieldFact(name, _text(getattr(config, name)), self._origin(config, name))
            self._known[number, name] = fact
        return self._known[number, name]

    def names(self, number: int = 0) -> set[str]:
        """The fields of a config."""
        configs = self._facts.kinds.configs
        return {f.name for f in dataclasses.fields(configs[number])} if configs else set()

    def definition(self, name: str, number: int = 0) -> Place | None:
        """The line of the config's class that states the field."""
        for cls in type(self._facts.kinds.configs[number]).__mro__:
            file = inspect.getsourcefile(cls) if name in inspect.get_annotations(cls) else None
            if file is None:
                continue
            text = Path(file).read_text(encoding="utf-8")
            for node in ast.walk(ast.parse(text)):
                if isinstance(node, ast.ClassDef) and node.name == cls.__name__:
                    for item in node.body:
                        if isinstance(item, ast.AnnAssign) and ast.unparse(item.target) == name:
                            last = item.end_lineno or item.lineno
                            return place(
                                file,
                                text.splitlines(),
                                item.lineno,
                                last,
                                cls.__name__,
                                [item.lineno],
                            )
        return None

    def _origin(self, config: Any, name: str) -> str:
        if name in self._overridden:
            return f"--set {self._overridden[name]}"
        required = {f.name for f in dataclasses.fields(config)} - {
            f.name for f in dataclasses.fields(config) if _has_default(f)
        }
        if name not in set_fields(config) | required:
            return f"the default of {type(config).__name__}"
        span = getattr(config, "_span", None)
        if span is None:
            at = self._call_line(type(config).__name__, name)
            return "set by the spec" if at is None else f"set in {at}"
        return f"set in {shown(span.file)}:{_keyword_line(span.file, span.line, name)}"

    def _call_line(self, cls: str, name: str) -> str | None:
        """The line of a keyword of the one call of a class that has it, in the file of the spec:
        for a config that does not note where it was made."""
        root = self._facts.recording.of(self._facts.recording.root)
        if root is None or root.span is None or Path(root.span.file).suffix in YAML:
            return None
        lines = [
            keyword.value.lineno
            for node in ast.walk(statements_of(root.span.file).tree)
            if isinstance(node, ast.Call) and ast.unparse(node.func).rpartition(".")[2] == cls
            for keyword in node.keywords
            if keyword.arg == name
        ]
        return f"{shown(root.span.file)}:{lines[0]}" if len(lines) == 1 else None


def _has_default(f: dataclasses.Field[Any]) -> bool:
    return f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING


def _field_set_by(override: str) -> str:
    match = re.fullmatch(r"config\.(\w+)=.*", override, re.DOTALL)
    return match[1] if match else ""


def _keyword_line(file: str, line: int, name: str) -> int:
    """The line of an argument of the call at `line`, or of a key below it; `line` itself where the
    value came by another way (a `**`, a `replace`).
    """
    text = Path(file).read_text(encoding="utf-8", errors="surrogateescape")
    if Path(file).suffix in YAML:
        below = enumerate(text.splitlines()[line - 1 :], line)
        return next((n for n, t in below if re.match(rf"\s*{name}\s*:", t)), line)
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.Call) and node.lineno <= line <= (node.end_lineno or 0):
            for keyword in node.keywords:
                if keyword.arg == name:
                    return keyword.value.lineno
    return line


def _text(value: Any) -> str:
    return float_text(value) if isinstance(value, float) else repr(value)
