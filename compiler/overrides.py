"""`--set config.num_layers=4`: the same spec with other numbers in its configs."""

from __future__ import annotations

import copy
import dataclasses
import functools
import re
from collections.abc import Sequence
from typing import Any, get_type_hints

from specc.templates.diagnostic import Diagnostic, SpecError, suggestion
from specc.templates.rotary import RotaryPositionalEmbedding
from specc.templates.spans import narrowed
from specc.templates.spec import ModuleSpec

from .spec_parts import walk
from .values import parse_as

_FORM = re.compile(r"config\.(\w+)=(.*)", re.DOTALL)


def apply_overrides(
    spec: ModuleSpec, overrides: Sequence[str]
) -> tuple[ModuleSpec, list[Diagnostic]]:
    """A copy of the tree with each `config.field=value` set in every config, and warnings.

    All overrides of a config are set at once, so that a combination need only hold at the end. A
    warning (SP643) says where params hold a number that equals the old value: it stays.

    Raises `SpecError`: SP640 for another form, SP641 where no config has the field, SP642 where the
    value is not of the field's type; and what the config raises on the values.
    """
    if not overrides:
        return spec, []
    configs = _configs(spec)
    errors: list[Diagnostic] = []
    changes: dict[int, dict[str, Any]] = {id(config): {} for config in configs}
    for override in overrides:
        try:
            _read(override, configs, changes)
        except _Mistake as mistake:
            errors.append(mistake.diagnostic)
    if errors:
        raise SpecError(errors)
    changed = {
        name: (getattr(config, name), value)
        for config in reversed(configs)
        for name, value in changes[id(config)].items()
        if value != getattr(config, name)
    }
    exchanged = {
        id(config): _replaced(config, changes[id(config)])
        for config in configs
        if changes[id(config)]
    }
    return _Rebuilder(exchanged, changed)(spec), _equal_literals(spec, changed)


class _Mistake(Exception):
    def __init__(self, code: str, message: str, help: str | None = None) -> None:
        self.diagnostic = Diagnostic(code, message, help=help)


def _configs(spec: ModuleSpec) -> list[Any]:
    """The tree's configs: dataclass instances that stand under the name `config`."""
    return [
        value
        for path, value in walk(spec)
        if path.rpartition(".")[2] == "config"
        and dataclasses.is_dataclass(value)
        and not isinstance(value, type)
    ]


def _read(override: str, configs: Sequence[Any], changes: dict[int, dict[str, Any]]) -> None:
    """Note one override in the changes of every config that has the field."""
    match = _FORM.fullmatch(override)
    if match is None:
        bare = re.fullmatch(r"(\w+)=.*", override, re.DOTALL)
        help = f"write --set config.{override}" if bare else "write --set config.FIELD=VALUE"
        raise _Mistake("SP640", f"`--set {override}` is not an assignment to a config field", help)
    name, text = match.groups()
    fields = {id(config): _settable(config) for config in configs}
    if not any(name in names for names in fields.values()):
        known = {field for names in fields.values() for field in names}
        help = suggestion(name, known, "the config") if known else "no params hold a `config`"
        raise _Mistake("SP641", f"`--set {override}`: no config has a field `{name}`", help)
    for config in configs:
        if name not in fields[id(config)]:
            continue
        try:
            changes[id(config)][name] = parse_as(get_type_hints(type(config))[name], text)
        except ValueError as error:
            help = f"it is {getattr(config, name)!r} in the spec"
            raise _Mistake(
                "SP642", f"`--set {override}`: `{name}` takes {error}, not `{text}`", help
            ) from None


def _replaced(config: Any, changes: dict[str, Any]) -> Any:
    """The config with the changes; what it refuses is told of the command line."""
    try:
        return dataclasses.replace(config, **changes)
    except SpecError as error:
        note = "with " + ", ".join(f"--set config.{n}={value}" for n, value in changes.items())
        raise SpecError(
            dataclasses.replace(diagnostic, span=None, note=note)
            for diagnostic in error.diagnostics
        ) from None


def _settable(config: Any) -> list[str]:
    return [field.name for field in dataclasses.fields(config) if field.name[0] != "_"]


def _equal_literals(spec: ModuleSpec, changed: dict[str, tuple[Any, Any]]) -> list[Diagnostic]:
    """Warnings for the numbers in params that equal what a changed field was."""
    nodes = [("", spec), *((p, part) for p, part in walk(spec) if isinstance(part, ModuleSpec))]
    return [
        Diagnostic(
            "SP643",
            f"`{key}={value!r}` in the params of `{node_name(node)}` equals the "
            f"config.{name} that was, and `--set config.{name}` does not change it",
            path,
            narrowed(node.span, f"`{key}`"),
            help=f"leave `{key}` out where the class reads `config.{name}` itself, or change it in "
            "the spec",
        )
        for path, node in nodes
        for key, value in (node.params or {}).items()
        for name, (before, _) in changed.items()
        if type(value) in (int, float) and type(value) is type(before) and value == before
    ]


def node_name(node: ModuleSpec) -> str:
    module = node.module
    return module[1] if isinstance(module, tuple) else getattr(module, "__name__", str(module))


class _Rebuilder:
    """Copies a tree with some objects exchanged; what is shared stays shared."""

    def __init__(self, exchanged: dict[int, Any], changed: dict[str, tuple[Any, Any]]) -> None:
        self.done = exchanged
        self.changed = changed

    def __call__(self, value: Any) -> Any:
        if id(value) not in self.done:
            self.done[id(value)] = self._copy(value)
        return self.done[id(value)]

    def _copy(self, value: Any) -> Any:
        if isinstance(value, RotaryPositionalEmbedding):
            return self._rotary(value)
        if isinstance(value, functools.partial):
            args = [self(arg) for arg in value.args]
            return functools.partial(value.func, *args, **self(value.keywords))
        if type(value) is dict:
            return {key: self(item) for key, item in value.items()}
        if type(value) in (list, tuple):
            return type(value)(self(item) for item in value)
        if not dataclasses.is_dataclass(value) or isinstance(value, type):
            return value
        # A spec, or a dataclass of submodules: a plain copy keeps what is no argument of its
        # constructor, such as the place in the user's file.
        parts = {field.name: getattr(value, field.name) for field in dataclasses.fields(value)}
        new = {name: self(part) for name, part in parts.items()}
        if all(new[name] is part for name, part in parts.items()):
            return value
        copied = copy.copy(value)
        for name, part in new.items():
            object.__setattr__(copied, name, part)
        return copied

    def _rotary(self, value: RotaryPositionalEmbedding) -> RotaryPositionalEmbedding:
        """The object took its numbers from a config when it was made: those follow the config."""
        copied = copy.copy(value)
        copied.fields = {
            name: self.changed[name][1] if (name, number) in self._old() else number
            for name, number in value.fields.items()
        }
        return copied

    def _old(self) -> list[tuple[str, Any]]:
        return [(name, before) for name, (before, _) in self.changed.items()]
