"""A spec written as YAML, which runs no code.

    config: {num_layers: 4, hidden_size: 256, num_attention_heads: 8, vocab_size: 256}
    module: GPTModel
    submodules:
      embedding: LanguageModelEmbedding        # short for {module: LanguageModelEmbedding}
      decoder:
        module: TransformerBlock
        params:
          layer_spec: {module: TransformerLayer, submodules: {...}}

`module` names a class of `specc.templates`; one `config` at the top holds for the whole tree. The
scalars of `params` are those of YAML 1.2 (`yes` is a text, `1e-5` a number), the values of `config`
are read by the fields' types. An alias (`*layer`) is the same spec again.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import yaml
from torch import nn

from specc import templates
from specc.templates.diagnostic import Diagnostic, Span, SpecError, suggestion
from specc.templates.spec import ModuleSpec

from .yaml_config import read_config
from .yaml_nodes import Mistakes, pairs, place, refuse_tags_and_loops

_INTEGER = re.compile(r"[-+]?[0-9]+")
_FLOAT = re.compile(r"[-+]?(\.[0-9]+|[0-9]+(\.[0-9]*)?)([eE][-+]?[0-9]+)?")
_WORDS: dict[str, Any] = {
    **dict.fromkeys(("", "~", "null", "Null", "NULL"), None),
    **dict.fromkeys(("true", "True", "TRUE"), True),
    **dict.fromkeys(("false", "False", "FALSE"), False),
}


def read_yaml_spec(file: Path) -> ModuleSpec:
    """The spec in a YAML file; its nodes' places are lines of that file.

    Raises `SpecError` with all that is wrong: SP630 not YAML, SP631 a key that a node does not
    have, SP632 a class that specc.templates does not have, SP633 a config field that there is not
    or that takes another value, SP634 the wrong kind of node.
    """
    text = file.read_text(encoding="utf-8")
    try:
        root = yaml.compose(text, Loader=yaml.BaseLoader)
    except yaml.MarkedYAMLError as error:
        mark = error.problem_mark or error.context_mark
        span = Span(str(file), mark.line + 1, mark.column + 1, mark.column + 2) if mark else None
        message = f"this is not YAML: {error.problem or error.context}"
        help = "check the brackets, quotes and indentation before this place"
        raise SpecError((Diagnostic("SP630", message, span=span, help=help),)) from None
    if root is None:
        message = "the file is empty, and a spec has a `module`"
        raise SpecError((Diagnostic("SP634", message, span=Span(str(file), 1, 1, 2)),))
    mistakes = Mistakes(file)
    refuse_tags_and_loops(root, mistakes)
    spec = _Reader(mistakes).root(root)
    mistakes.raise_any()
    return spec


class _Reader:
    def __init__(self, mistakes: Mistakes) -> None:
        self.mistakes = mistakes
        self.specs: dict[int, ModuleSpec] = {}  # by node: an alias is the node that it names
        self.classes = {
            name: value
            for name, value in vars(templates).items()
            if isinstance(value, type) and issubclass(value, nn.Module) and name[0] != "_"
        }

    def root(self, node: yaml.Node) -> ModuleSpec:
        entries = pairs(node, self.mistakes)
        spec = self.spec(node, ("config", "module", "params", "submodules"))
        if "config" in entries:
            spec.params["config"] = read_config(entries["config"][1], self.mistakes)
        return spec

    def spec(
        self, node: yaml.Node, keys: tuple[str, ...] = ("module", "params", "submodules")
    ) -> ModuleSpec:
        if id(node) in self.specs:
            return self.specs[id(node)]
        self.specs[id(node)] = made = self._spec(node, keys)
        return made

    def _spec(self, node: yaml.Node, keys: tuple[str, ...]) -> ModuleSpec:
        if isinstance(node, yaml.ScalarNode):  # a bare class name
            return self._made(self._class(node), {}, None, node)
        entries = pairs(node, self.mistakes)
        for name, (key, _) in entries.items():
            if name not in keys:
                help = suggestion(name, keys, "a spec")
                if name == "config":
                    help = "a YAML spec has one config, at the top of the file"
                self.mistakes.add("SP631", f"a spec has no key `{name}`", key, help)
        if "module" not in entries:
            help = "name a class of specc.templates, as `module: MLP`"
            self.mistakes.add("SP631", "this spec has no `module`", node, help)
            return self._made(nn.Module, {}, None, node)
        module = entries["module"][1]
        params = self._mapping(entries, "params", self._value)
        if "config" in params:
            key = pairs(entries["params"][1], self.mistakes)["config"][0]
            help = "a YAML spec has one config, at the top of the file"
            self.mistakes.add("SP631", "`config` cannot stand in params", key, help)
        submodules = self._mapping(entries, "submodules", self.spec)
        return self._made(self._class(module), params, submodules or None, module)

    def _mapping(self, entries: Any, name: str, read: Any) -> dict[str, Any]:
        if name not in entries:
            return {}
        found = pairs(entries[name][1], self.mistakes)
        return {key: read(value) for key, (_, value) in found.items()}

    def _value(self, node: yaml.Node) -> Any:
        """A value in params: a nested spec where it has a `module`."""
        if isinstance(node, yaml.SequenceNode):
            return [self._value(item) for item in node.value]
        if isinstance(node, yaml.MappingNode):
            entries = pairs(node, self.mistakes)
            if "module" in entries:
                return self.spec(node)
            return {name: self._value(value) for name, (_, value) in entries.items()}
        assert isinstance(node, yaml.ScalarNode)  # the third kind of three
        return scalar(node)

    def _class(self, node: yaml.Node) -> type[nn.Module]:
        name = node.value if isinstance(node, yaml.ScalarNode) else None
        if name in self.classes:
            return self.classes[name]
        if name is None:
            help = "write a name, as `module: MLP`"
            self.mistakes.add("SP634", "`module` is the name of a class", node, help)
        elif not name.isidentifier():
            self.mistakes.add(
                "SP632",
                f"`{name}` is not the name of a class of specc.templates, "
                "and a YAML spec runs no other code",
                node,
                "write the spec in Python to use a class of yours",
            )
        else:
            help = suggestion(name, self.classes, "specc.templates")
            self.mistakes.add("SP632", f"specc.templates has no class `{name}`", node, help)
        return nn.Module

    def _made(self, module: Any, params: Any, submodules: Any, node: yaml.Node) -> ModuleSpec:
        span = place(node, self.mistakes.file)
        return ModuleSpec(module, params=params, submodules=submodules, span=span)


def scalar(node: yaml.ScalarNode) -> Any:
    """A scalar's value by YAML 1.2's core schema; what stands in quotes is text."""
    text: str = node.value
    if node.style is not None:
        return text
    if text in _WORDS:
        return _WORDS[text]
    if _INTEGER.fullmatch(text):
        return int(text)
    return float(text) if _FLOAT.fullmatch(text) else text
