"""From the tree that a user wrote to the one that is built: checked, completed, one dialect.

The user's objects are not touched. What is completed, and what is understood in another way than
it is written, is said in notes; mistakes are collected, and raised together.
"""

from __future__ import annotations

import dataclasses
import inspect
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from torch import nn

from .attention import SelfAttention
from .block import TransformerBlock
from .class_checks import check_class, check_missing
from .config import ModelParallelConfig
from .diagnostic import Diagnostic, Span, SpecError, suggestion
from .embedding import LanguageModelEmbedding
from .findings import Findings, described, ordered
from .hybrid import HybridStack
from .hybrid_layers import AttentionLayer
from .layer import TransformerLayer
from .multi_latent_attention import MLASelfAttention
from .nodes import as_spec, is_pair, may_be_node, submodules_class, target_of
from .norm import LayerNorm, RMSNorm
from .rotary import RotaryPositionalEmbedding
from .rotary_objects import Handed, apply_rotary_objects
from .spans import slot_span
from .spec import (
    ModuleSpec,
    Node,
    PreparedSpec,
    accepts,
    constructor_parameters,
    is_config,
)

NORMS: dict[str, type[nn.Module]] = {"LayerNorm": LayerNorm, "RMSNorm": RMSNorm}


@dataclass(frozen=True)
class Prepared:
    """A tree that can be built.

    `reads` are the config fields that completing the tree has read: they count as read, though no
    class reads them.
    """

    spec: PreparedSpec
    notes: tuple[Diagnostic, ...] = ()
    reads: frozenset[str] = frozenset()


def prepare(
    spec: Node,
    *,
    config: ModelParallelConfig | None = None,
    passed: tuple[int, frozenset[str]] = (0, frozenset()),
) -> Prepared:
    """The tree under `spec`, ready to build.

    `config` holds for the nodes that have none above them; `passed` says what the caller will pass
    to the root's constructor: how many arguments in order, and the names of the others. Raises
    SpecError with all mistakes that are found.
    """
    work = _Preparation()
    root = work.node(spec, _Place("", None, config, ()))
    if root is not None and not work.errors:
        if not passed[0]:
            check_missing(root, passed[1], work)
        apply_rotary_objects(work.handed, work)
        _note_numbers(work)
    if work.errors or root is None:
        raise SpecError(ordered(work.errors))
    return Prepared(root, ordered(work.notes), frozenset(work.reads))


@dataclass(frozen=True)
class _Place:
    """Where in the tree a node stands: what is above it, as far as it matters below."""

    path: str
    span: Span | None
    config: Any
    above: tuple[int, ...]  # ids of the user's specs, to find a cycle
    parents: tuple[PreparedSpec, ...] = ()
    numbered: bool = False  # the parent passes `layer_number`
    injected: bool = False  # handed built: the parent passes nothing

    def below(self, name: str, parent: PreparedSpec, **changes: Any) -> _Place:
        path = f"{self.path}.{name}" if self.path and not name.startswith("[") else self.path + name
        return dataclasses.replace(
            self,
            path=path,
            span=parent.span,
            config=parent.config_in_force,
            parents=(*self.parents, parent),
            **{"numbered": False, "injected": False, **changes},
        )


@dataclass
class _Preparation(Findings):
    handed: list[Handed] = field(default_factory=list)
    numbers: list[tuple[PreparedSpec, Any]] = field(default_factory=list)
    done: dict[tuple[int, ...], tuple[Any, PreparedSpec | None, int]] = field(default_factory=dict)

    # --- a node, of any kind

    def node(self, node: Node, place: _Place) -> PreparedSpec | None:
        """The prepared node; None where it is none, or where a mistake was found."""
        if node is None or isinstance(node, PreparedSpec):
            return node
        key = (id(node), id(place.config), int(place.numbered), int(place.injected))
        if key in self.done:  # the same spec at several places is one kind of module
            _, done, depth = self.done[key]
            self.handed += [
                dataclasses.replace(h, parents=(*place.parents, *h.parents[depth:]))
                for h in self.handed
                if done is not None and (h.node is done or done in h.parents)
            ]
            return done
        if id(node) in place.above:
            self.error(
                "SP108",
                "a spec stands under itself",
                dataclasses.replace(place, span=getattr(node, "span", None) or place.span),
                "make a new ModuleSpec for the inner place",
            )
            return None
        spec = as_spec(node, place, self)
        if spec is None:
            return None
        place = dataclasses.replace(
            place, above=(*place.above, id(node)), span=spec.span or place.span
        )
        prepared = self._prepared(spec, place)
        # The node is held, so that its id stays its own.
        self.done[key] = (node, prepared, len(place.parents))
        return prepared

    def _prepared(self, spec: ModuleSpec, place: _Place) -> PreparedSpec | None:
        target = target_of(spec.module, place, self)
        if target is None:
            return None
        out = PreparedSpec(
            target, {}, None, dict(spec.metainfo), span=place.span, path=place.path, origin=spec
        )
        if not isinstance(target, type):
            if spec.params or spec.submodules:
                self.error(
                    "SP109",
                    f"function `{target.__name__}` is handed on as it is, and its spec has params "
                    "or submodules",
                    place,
                    "leave them out, or use functools.partial",
                )
            return out
        if not self._params_are_named(spec, place):
            return None
        params = dict(spec.params)
        self._check_config(out, params, place)
        out.config_in_force = params.get("config", place.config)
        if not place.parents and place.config is not None:
            out.config_in_force = params["config"] = place.config  # the caller passes it
        parameters = constructor_parameters(target)
        self._take_traps(out, params, parameters, place)
        out.params = params
        children = self._children(spec, out, parameters, place)
        if children is None:
            return None
        self._check_params(out, parameters)
        for name, value in params.items():
            params[name] = self._param(name, value, out, place)
        self._sort_children(out, children, parameters, place)
        check_class(out, place.injected, self)
        if place.injected:
            check_missing(out, frozenset(), self)
        return out

    # --- params

    def _params_are_named(self, spec: ModuleSpec, place: _Place) -> bool:
        if isinstance(spec.params, Mapping) and all(isinstance(k, str) for k in spec.params):
            return True
        self.error(
            "SP109",
            f"params is {described(spec.params)}",
            place,
            'give a dict of constructor arguments by name, as {"config": config}',
        )
        return False

    def _check_config(self, out: PreparedSpec, params: dict[str, Any], place: _Place) -> None:
        config = params.get("config")
        ours = out.module.__module__.startswith(__package__ or "specc.templates")
        if config is None:
            params.pop("config", None)
        elif isinstance(config, Mapping):
            self.error(
                "SP118",
                "`config` is a dict",
                place,
                "write TransformerConfig(**config)",
            )
        elif isinstance(config, type) or (ours and not is_config(config)):
            self.error(
                "SP118",
                f"`config` is {described(config)}",
                place,
                "give an instance of TransformerConfig",
            )

    def _take_traps(
        self,
        out: PreparedSpec,
        params: dict[str, Any],
        parameters: Mapping[str, inspect.Parameter],
        place: _Place,
    ) -> None:
        """Takes from params what is understood in another way than it is written."""
        for key, value in list(params.items()):
            if isinstance(value, RotaryPositionalEmbedding) and key not in parameters:
                del params[key]
                if issubclass(out.module, LanguageModelEmbedding):
                    self.handed.append(Handed(out, key, value, place.parents))
                else:
                    self.error(
                        "SP106",
                        f"`{out.module.__name__}` has no parameter `{key}`",
                        place,
                        "hand a RotaryPositionalEmbedding to the embedding, or set "
                        'position_embedding_type="rope" in the config',
                    )
        if place.numbered and "layer_number" in params:
            self.numbers.append((out, params.pop("layer_number")))
        attends = issubclass(out.module, SelfAttention | MLASelfAttention)
        if attends and "attn_mask_type" not in parameters:
            kind = params.pop("attn_mask_type", "causal")
            if getattr(kind, "name", kind) != "causal":
                self.error(
                    "SP117",
                    f"`attn_mask_type` is {kind!r}, and `{out.module.__name__}` is causal",
                    place,
                    "leave it out, or use an attention class of your own",
                )

    def _check_params(self, out: PreparedSpec, parameters: Mapping[str, inspect.Parameter]) -> None:
        for name in sorted(out.params):
            if name == "config" or accepts(parameters, name):
                continue
            known = [n for n in parameters if n not in ("mesh", "submodules", "config")]
            self.error(
                "SP106",
                f"`{out.module.__name__}` has no parameter `{name}`",
                out,
                suggestion(name, known, "its constructor"),
            )

    def _param(self, name: str, value: Any, out: PreparedSpec, place: _Place) -> Any:
        """A param, with the specs in it prepared."""
        plural, single = name.endswith("_specs"), name.endswith("_spec")
        numbered = issubclass(out.module, TransformerBlock)
        if isinstance(value, ModuleSpec) or (single and value is not None):
            return self.node(value, place.below(name, out, numbered=numbered))
        if not isinstance(value, list | tuple) or is_pair(value):
            return value
        if plural or any(isinstance(v, ModuleSpec) for v in value):
            return self._list(name, value, out, place, numbered)
        return value

    def _list(
        self, name: str, nodes: Iterable[Node], out: PreparedSpec, place: _Place, numbered: bool
    ) -> list[PreparedSpec | None]:
        return [
            self.node(node, place.below(f"{name}[{i}]", out, numbered=numbered))
            for i, node in enumerate(nodes)
        ]

    # --- children

    def _children(
        self,
        spec: ModuleSpec,
        out: PreparedSpec,
        parameters: Mapping[str, inspect.Parameter],
        place: _Place,
    ) -> dict[str, Node] | Any:
        """What the spec names as children: a dict, or the dataclass; None where it is neither."""
        children = spec.submodules
        if children is None:
            return {}
        if dataclasses.is_dataclass(children) and not isinstance(children, type | ModuleSpec):
            return children
        if isinstance(children, Mapping) and all(isinstance(k, str) for k in children):
            found = dict(children)
            for name in [n for n in found if n.endswith(("_spec", "_specs")) and n in parameters]:
                out.params.setdefault(name, found.pop(name))  # a spec that is handed unbuilt
            return found
        self.error(
            "SP107",
            f"submodules is {described(children)}",
            place,
            f"give a dict of children by name, or the dataclass that `{out.module.__name__}` takes",
        )
        return None

    def _sort_children(
        self,
        out: PreparedSpec,
        children: Any,
        parameters: Mapping[str, inspect.Parameter],
        place: _Place,
    ) -> None:
        """Children that the constructor has parameters for are handed built, the rest as specs."""
        expected = submodules_class(out.module) if "submodules" in parameters else None
        if not isinstance(children, dict):
            if "submodules" in parameters:
                self._keep_dataclass(out, children, expected, place)
                return
            children = {f.name: getattr(children, f.name) for f in dataclasses.fields(children)}
        rest: dict[str, Node] = {}
        for name, child in children.items():
            if name in out.params:
                self.error(
                    "SP120",
                    f"child `{name}` is given twice, in params and in submodules",
                    place,
                    "leave one of them out",
                )
            elif name in parameters and name not in ("config", "mesh", "submodules"):
                built = self._child(name, child, out, place, injected=True)
                if built is not None:
                    out.children[name] = built
            else:
                rest[name] = child
        if expected is not None:
            self._fill(out, rest, expected, place)
        elif "submodules" in parameters:
            required = parameters["submodules"].default is inspect.Parameter.empty
            if rest or required:
                out.submodules = {n: self._child(n, c, out, place) for n, c in rest.items()}
        else:
            known = [n for n in parameters if n not in ("config", "mesh")]
            for name in rest:
                self._unknown_child(out, name, known, place)

    def _child(
        self, name: str, child: Node, out: PreparedSpec, place: _Place, *, injected: bool = False
    ) -> Any:
        layer = issubclass(out.module, TransformerLayer | AttentionLayer | HybridStack)
        below = place.below(name, out, injected=injected, numbered=layer)
        if isinstance(child, list | tuple) and not is_pair(child):
            return self._list(name, child, out, place, issubclass(out.module, TransformerBlock))
        return self.node(child, below)

    def _keep_dataclass(
        self, out: PreparedSpec, children: Any, expected: type | None, place: _Place
    ) -> None:
        if expected is not None and not isinstance(children, expected):
            self.error(
                "SP124",
                f"`{out.module.__name__}` takes `{expected.__name__}`, and submodules is "
                f"{described(children)}",
                place,
                f"write submodules={expected.__name__}(...)",
            )
            return
        found = {}
        for f in dataclasses.fields(children):
            value = getattr(children, f.name)
            if may_be_node(value):
                value = self._child(f.name, value, out, place)
            found[f.name] = value
        out.submodules = dataclasses.replace(children, **found)

    def _fill(
        self, out: PreparedSpec, named: dict[str, Node], expected: type, place: _Place
    ) -> None:
        """The dataclass that the constructor takes, from a dict and the slots' defaults."""
        fields = dataclasses.fields(expected)
        names = {f.metadata.get("alias", f.name): f for f in fields} | {f.name: f for f in fields}
        for name in named:
            if name not in names:
                injected = [n for n in constructor_parameters(out.module) if n not in _NO_CHILD]
                self._unknown_child(out, name, [*_shown_names(fields), *injected], place)
        found: dict[str, Any] = {}
        for f in fields:
            keys = [k for k in (f.metadata.get("alias"), f.name) if k in named]
            if len(keys) == 2:
                self.error(
                    "SP120",
                    f"`{keys[0]}` and `{keys[1]}` are one child, and both are given",
                    place,
                    "leave one of them out",
                )
            elif keys:
                found[f.name] = self._child(keys[0], named[keys[0]], out, place)
            else:
                found[f.name] = self._unnamed(f, out, place)
        if not self.errors:
            out.submodules = expected(**found)

    def _unnamed(self, f: dataclasses.Field[Any], out: PreparedSpec, place: _Place) -> Any:
        """What stands in a slot that a dict leaves out."""
        name, rule = f.metadata.get("alias", f.name), f.metadata.get("unnamed")
        if rule == "norm":
            return self._norm(name, out, place)
        if rule == "qk_norm":
            if not is_config(out.config_in_force):
                return None
            self.reads.add("qk_layernorm")
            return self._norm(name, out, place) if out.config_in_force.qk_layernorm else None
        default = _default(f)
        if rule == "required" or default is dataclasses.MISSING:
            self.error(
                "SP102",
                f"`{out.module.__name__}` needs a child `{name}`",
                place,
                f"add `{name}` to submodules; IdentityOp says that there is none",
                also=_slot(out, f.name),
            )
            return None
        return self._child(name, default, out, place) if may_be_node(default) else default

    def _norm(self, name: str, out: PreparedSpec, place: _Place) -> PreparedSpec | None:
        config = out.config_in_force
        if not is_config(config):
            if any(error.code == "SP118" for error in self.errors):
                return None  # the config is there, and wrong
            self.error(
                "SP113",
                f"`{out.module.__name__}` names no `{name}`, and no config says which norm it is",
                place,
                f"name `{name}`, or give this node or one above it a config",
                also=_slot(out, name),
            )
            return None
        self.reads.add("normalization")
        return self.node(NORMS[config.normalization], place.below(name, out))

    def _unknown_child(
        self, out: PreparedSpec, name: str, known: Iterable[str], place: _Place
    ) -> None:
        self.error(
            "SP101",
            f"`{out.module.__name__}` has no child `{name}`",
            place,
            suggestion(name, known, "it"),
        )


def _slot(out: PreparedSpec, name: str) -> tuple[tuple[Span, str], ...]:
    """Where the class says that it has such a child, for a diagnostic's `also`."""
    children = submodules_class(out.module)
    span = slot_span(children, name) if children is not None else None
    return ((span, f"`{out.module.__name__}` asks for it"),) if span else ()


_NO_CHILD = frozenset(
    {
        "config",
        "mesh",
        "submodules",
        "layer_number",
        "layer_spec",
        "layer_specs",
        "moe_layer_spec",
        "num_layers",
    }
)


def _note_numbers(work: _Preparation) -> None:
    if not work.numbers:
        return
    (first, _), *others = work.numbers
    also = tuple((node.span, "and here") for node, _ in others if node.span is not None)
    work.note(
        "SP191",
        "`layer_number` in a spec is left out: one spec stands for many layers",
        first,
        "`TransformerBlock` numbers its layers from 1",
        also=also,
    )


def _default(f: dataclasses.Field[Any]) -> Any:
    return f.default if f.default_factory is dataclasses.MISSING else f.default_factory()


def _shown_names(fields: Iterable[dataclasses.Field[Any]]) -> list[str]:
    return [f.metadata.get("alias", f.name) for f in fields]
