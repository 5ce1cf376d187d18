"""Unread: a field that the user set and that nothing reads would be a silent flag, and is
refused."""

from __future__ import annotations

import dataclasses
from typing import Any

from specc.templates.config import LAUNCH_FIELDS, TRAINER_FIELDS
from specc.templates.diagnostic import Diagnostic
from specc.templates.spans import narrowed

from . import tree
from .errors import CompileError
from .facts import Facts
from .kinds import Kind
from .residual import Residual
from .value import Unknown, config_read


def note_reads(residuals: dict[Kind, Residual], facts: Facts) -> None:
    """Note what the text reads of each config, before classes of the same text become one."""
    for residual in residuals.values():
        for node in residual.text():
            for item in tree.walk(node):
                found = facts.config_reads.get(id(item))
                if found is not None:
                    facts.text_reads |= {(index, found[1]) for index in found[0]}


def refuse_unread(facts: Facts) -> None:
    """Raise a CompileError with every field that was set and that nothing reads; note those of the
    launch."""
    index_of = config_numbers(facts)
    read: dict[int, set[str]] = {index: set() for index in range(len(facts.kinds.configs))}
    for identity, name in facts.used_fields:
        if identity in index_of:
            read[index_of[identity]].add(name)
    for index, name in facts.text_reads:
        read[index] |= _fields_of(facts.kinds.configs[index], name)
    errors: dict[str, Diagnostic] = {}
    launch: dict[str, Diagnostic] = {}
    for config in facts.kinds.configs:
        known = facts.read_by_spec | TRAINER_FIELDS
        known |= {n for name in facts.read_by_name for n in _fields_of(config, name)}
        for name in sorted(set_fields(config) - known):
            if name in LAUNCH_FIELDS:
                launch.setdefault(name, _chosen_at_launch(name, config))
            elif not any(
                name in read[i] and _same(config, other, name)
                for i, other in enumerate(facts.kinds.configs)
            ):
                errors.setdefault(name, _unread(name, config))
    if errors:
        raise CompileError(tuple(errors.values()))
    facts.notes.extend(launch.values())


def _same(config: Any, other: Any, name: str) -> bool:
    """Whether another config of the tree says the same: `replace` carries what was set, and what is
    read of either is read."""
    return hasattr(other, name) and bool(getattr(config, name) == getattr(other, name))


def config_numbers(facts: Facts) -> dict[int, int]:
    """The number of each config object; equal ones have one number."""
    found = {id(config): index for index, config in enumerate(facts.kinds.configs)}
    for built in facts.recording.built.values():
        for value in built.arguments.values():
            if dataclasses.is_dataclass(value) and not isinstance(value, type):
                for index, config in enumerate(facts.kinds.configs):
                    if type(config) is type(value) and config == value:
                        found[id(value)] = index
    return found


def _fields_of(config: Any, name: str) -> set[str]:
    """What reading a field or a property reads: of a property, the path that it takes."""
    try:
        return {read for _, read in config_read(config, name).fields}
    except Unknown:  # a property that asks the machine: any of its paths may be taken
        static = getattr(type(config), name, None)
        code = getattr(getattr(static, "fget", None), "__code__", None)
        return {str(name) for name in code.co_names} if code is not None else set()
    except Exception:  # it raises for this config; whoever reads it will see
        return set()


def set_fields(config: Any) -> set[str]:
    """The fields that the user chose. One without a default had to be given, and is no choice."""
    optional = {f.name for f in dataclasses.fields(config) if _has_default(f) and f.init}
    chosen: frozenset[str] | None = getattr(config, "_set_fields", None)
    if chosen is not None:
        return optional & chosen
    # A config of the user's own does not say what it was passed: what differs from the default was.
    return {
        f.name
        for f in dataclasses.fields(config)
        if f.name in optional and getattr(config, f.name) != _default(f)
    }


def _has_default(f: dataclasses.Field[Any]) -> bool:
    return f.default is not dataclasses.MISSING or f.default_factory is not dataclasses.MISSING


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _unread(name: str, config: Any) -> Diagnostic:
    message = f"the config sets `{name}`, and nothing in this model reads it"
    return Diagnostic(
        "SP201",
        message,
        "config",
        narrowed(getattr(config, "_span", None), message),
        help=f"leave `{name}` out, or use the module or the option that it belongs to",
    )


def _chosen_at_launch(name: str, config: Any) -> Diagnostic:
    message = f"`{name}` is chosen at launch; the page does not hold it"
    return Diagnostic(
        "SP204",
        message,
        "config",
        narrowed(getattr(config, "_span", None), message),
        help="give it to `specc train`",
    )
