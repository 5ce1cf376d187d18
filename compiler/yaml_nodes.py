"""YAML nodes with their places, and the mistakes found in them."""

from __future__ import annotations

from pathlib import Path

import yaml

from specc.templates.diagnostic import Diagnostic, Span, SpecError

PLAIN_TAGS = frozenset(f"tag:yaml.org,2002:{kind}" for kind in ("str", "seq", "map"))

Entries = dict[str, tuple[yaml.Node, yaml.Node]]


class Mistakes:
    """What is wrong in one file, gathered so that all of it is shown together."""

    def __init__(self, file: Path) -> None:
        self.file = file
        self.found: list[Diagnostic] = []

    def add(self, code: str, message: str, node: yaml.Node, help: str | None = None) -> None:
        mistake = Diagnostic(code, message, span=place(node, self.file), help=help)
        if mistake not in self.found:  # an alias is read where it stands and where it is used
            self.found.append(mistake)

    def raise_any(self) -> None:
        if self.found:
            raise SpecError(self.found)


def place(node: yaml.Node, file: Path) -> Span:
    """Where a node stands; of a node of several lines, where it starts."""
    start, end = node.start_mark, node.end_mark
    column = start.column + 1
    end_column = end.column + 1 if start.line == end.line else column + 1
    return Span(str(file), start.line + 1, column, end_column)


def pairs(node: yaml.Node, mistakes: Mistakes) -> Entries:
    """A mapping's keys and values by name; an empty node is an empty mapping."""
    if isinstance(node, yaml.ScalarNode) and node.value in ("", "~", "null") and not node.style:
        return {}
    if not isinstance(node, yaml.MappingNode):
        mistakes.add("SP634", "a mapping is needed here", node, "write `key: value`")
        return {}
    entries: Entries = {}
    for key, value in node.value:
        if not isinstance(key, yaml.ScalarNode):
            mistakes.add("SP634", "a key is a name", key, "write a name before the colon")
        elif key.value in entries:
            mistakes.add("SP634", f"`{key.value}` stands here twice", key, "leave one out")
        elif key.value == "<<":
            mistakes.add("SP634", "merge keys (`<<`) are not read", key, "name the whole node")
        else:
            entries[key.value] = (key, value)
    return entries


def refuse_tags_and_loops(root: yaml.Node, mistakes: Mistakes) -> None:
    """Note every explicit tag (`!!python/...` would be code, the others say nothing new), and
    raise where a node contains itself by an alias."""
    seen: set[int] = set()
    above: set[int] = set()

    def visit(node: yaml.Node) -> None:
        if id(node) in above:
            help = "write out what is meant there"
            mistakes.add("SP634", "an alias stands inside the node that it names", node, help)
            mistakes.raise_any()
        if id(node) in seen:
            return
        seen.add(id(node))
        if node.tag not in PLAIN_TAGS:
            tag = node.tag.replace("tag:yaml.org,2002:", "!!")
            mistakes.add("SP634", f"the tag `{tag}` is not read", node, "leave it out")
        above.add(id(node))
        for child in _children(node):
            visit(child)
        above.discard(id(node))

    visit(root)


def _children(node: yaml.Node) -> list[yaml.Node]:
    if isinstance(node, yaml.SequenceNode):
        return list(node.value)
    if isinstance(node, yaml.MappingNode):
        return [part for pair in node.value for part in pair]
    return []
