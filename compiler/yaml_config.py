"""The `config:` of a YAML spec as a `TransformerConfig`."""

from __future__ import annotations

import dataclasses
from pathlib import Path
from typing import Any, get_type_hints

import yaml

from specc.templates import TransformerConfig
from specc.templates.diagnostic import SpecError, suggestion

from .values import describe, parse_as, parse_items
from .yaml_nodes import Mistakes, pairs, place


def read_config(node: yaml.Node, mistakes: Mistakes) -> TransformerConfig | None:
    """The config with the given fields, each read by its annotation.

    Unknown fields and values of another type are added to `mistakes` (SP633), and so is what the
    config itself refuses, at the field that it names.
    """
    before = len(mistakes.found)
    hints = get_type_hints(TransformerConfig)
    names = [field.name for field in dataclasses.fields(TransformerConfig) if field.name[0] != "_"]
    values: dict[str, Any] = {}
    entries = pairs(node, mistakes)
    for name, (key, value) in entries.items():
        if name not in names:
            help = suggestion(name, names, "it")
            mistakes.add("SP633", f"`TransformerConfig` has no field `{name}`", key, help)
            continue
        try:
            values[name] = _value(hints[name], value)
        except ValueError as error:
            mistakes.add("SP633", f"`{name}` takes {error}", value, "give what it takes")
    if len(mistakes.found) > before:
        return None
    try:
        return TransformerConfig(**values, _span=place(node, Path(mistakes.file)))
    except SpecError as error:
        for diagnostic in error.diagnostics:
            at = _field_node(diagnostic.message, entries, node)
            mistakes.found.append(
                dataclasses.replace(diagnostic, span=place(at, Path(mistakes.file)))
            )
        return None


def _value(annotation: Any, node: yaml.Node) -> Any:
    if isinstance(node, yaml.ScalarNode):
        return parse_as(annotation, node.value)
    if isinstance(node, yaml.SequenceNode):
        items = [item.value for item in node.value if isinstance(item, yaml.ScalarNode)]
        return parse_items(annotation, items)
    raise ValueError(describe(annotation))


def _field_node(message: str, entries: Any, node: yaml.Node) -> yaml.Node:
    """The key of the first field that a message names."""
    named = [(message.find(name), key) for name, (key, _) in entries.items() if name in message]
    return min(named, key=lambda found: found[0])[1] if named else node
