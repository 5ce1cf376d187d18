"""A rotary object handed to an embedding: what its author means is rotary attention.

The embedding has no use for it, and the decoder is called without it. So every attention under the
nearest parent that both share turns rotary, by its config.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from .attention import SelfAttention
from .block import TransformerBlock
from .config import ModelParallelConfig
from .diagnostic import SpecError
from .findings import Findings
from .hybrid import HybridStack
from .multi_latent_attention import MLASelfAttention
from .nodes import tree
from .rotary import RotaryPositionalEmbedding
from .spec import PreparedSpec, is_config


@dataclass(frozen=True)
class Handed:
    """A rotary object that an embedding was handed."""

    node: PreparedSpec
    key: str
    value: RotaryPositionalEmbedding
    parents: tuple[PreparedSpec, ...]


def apply_rotary_objects(handed: Iterable[Handed], found: Findings) -> None:
    """Makes attention rotary under the nearest parent that it shares with the embedding."""
    scopes: dict[int, tuple[PreparedSpec, Handed]] = {}
    for rotary in handed:
        scope = _shared_parent(rotary)
        first = scopes.setdefault(id(scope), (scope, rotary))[1]
        if first.value.fields != rotary.value.fields:
            found.error(
                "SP123",
                f"`{rotary.key}` says other rotary positions than the one at {first.node.path}",
                rotary.node,
                "hand both embeddings the same RotaryPositionalEmbedding",
            )
    for scope, rotary in scopes.values():
        _make_rotary(found, scope, rotary)


def _shared_parent(rotary: Handed) -> PreparedSpec:
    for parent in reversed(rotary.parents):
        if any(_attends(node) for node in tree(parent)):
            return parent
    return rotary.parents[0] if rotary.parents else rotary.node


def _attends(node: PreparedSpec) -> bool:
    return isinstance(node.module, type) and issubclass(
        node.module, SelfAttention | MLASelfAttention | TransformerBlock | HybridStack
    )


def _make_rotary(found: Findings, scope: PreparedSpec, rotary: Handed) -> None:
    changed: dict[int, Any] = {}
    if is_config(scope.config_in_force):
        scope.params["config"] = scope.config_in_force
    for node in tree(scope):
        config = node.config_in_force
        if not is_config(config):
            continue
        if id(config) not in changed:
            changed[id(config)] = _rotary_config(found, config, node, rotary)
        node.config_in_force = changed[id(config)]
        if "config" in node.params:
            node.params["config"] = node.config_in_force
    base = rotary.value.fields.get("rotary_base", getattr(scope.config_in_force, "rotary_base", 0))
    under = f"everything under `{scope.module.__name__}`"
    found.note(
        "SP190",
        f"`{rotary.key}` makes attention rotary, base {base:g}",
        rotary.node,
        f"it holds for {under}; TransformerBlock makes the tables, once for all layers",
    )


def _rotary_config(
    found: Findings, config: ModelParallelConfig, node: PreparedSpec, rotary: Handed
) -> ModelParallelConfig:
    also = ((rotary.value.span, "rotary positions"),) if rotary.value.span else ()
    kind = config.position_embedding_type
    if kind is not None and kind != "rope":
        found.error(
            "SP111",
            f"the config says position_embedding_type={kind!r}, and the embedding is handed "
            "rotary positions",
            rotary.node,
            f'leave `{rotary.key}` out, or say position_embedding_type="rope"',
            also=also,
        )
        return config
    for name, value in rotary.value.fields.items():
        if name in config._set_fields and getattr(config, name) != value:
            found.error(
                "SP112",
                f"`{name}` is {getattr(config, name)!r} in the config and {value!r} in "
                f"`{rotary.key}`",
                rotary.node,
                "say it once, or the same twice",
                also=also,
            )
            return config
    channels = rotary.value.kv_channels
    if channels is not None and channels != config.head_dim:
        found.error(
            "SP112",
            f"`{rotary.key}` is for heads of {channels} channels, and they have {config.head_dim}",
            rotary.node,
            "leave `kv_channels` to the config",
            also=also,
        )
        return config
    chosen = config._set_fields | rotary.value.set_fields | {"position_embedding_type"}
    try:
        return dataclasses.replace(
            config,
            position_embedding_type="rope",
            **rotary.value.fields,
            _set_fields=chosen,
        )
    except SpecError as error:
        node = rotary.node
        for d in error.diagnostics:
            found.errors.append(dataclasses.replace(d, path=node.path, span=node.span))
        return config
