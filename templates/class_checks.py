"""What single classes ask of their spec, beyond what their constructors say."""

from __future__ import annotations

import dataclasses
from typing import Any

from .attention import SelfAttention
from .block import TransformerBlock
from .config_hybrid import LAYER_SLOTS
from .findings import Findings
from .hybrid import HybridStack
from .identity import IdentityOp
from .multi_latent_attention import MLASelfAttention
from .multi_token_prediction import MultiTokenPredictionBlock
from .spec import (
    PreparedSpec,
    constructor_parameters,
    is_config,
    missing_diagnostic,
    missing_parameters,
)


def check_class(node: PreparedSpec, injected: bool, found: Findings) -> None:
    """`injected`: the node is handed to its parent built, so nothing tells it its number."""
    if issubclass(node.module, TransformerBlock):
        _check_layers(node, found)
    if issubclass(node.module, HybridStack):
        _check_pattern(node, found)
    if issubclass(node.module, MultiTokenPredictionBlock):
        _check_depths(node, found)
    if issubclass(node.module, SelfAttention | MLASelfAttention):
        _check_attention(node, injected, found)


def check_missing(node: PreparedSpec, passed: frozenset[str], found: Findings) -> None:
    """For a node whose builder passes nothing but `passed`: is every parameter given?"""
    if not isinstance(node.module, type):
        return
    given = {"mesh", *passed, *node.params, *node.children}
    if node.config_in_force is not None:
        given.add("config")
    if node.submodules is not None:
        given.add("submodules")
    parameters = constructor_parameters(node.module)
    for name in missing_parameters(parameters, frozenset(given)):
        found.errors.append(missing_diagnostic(node, name))


def _check_layers(node: PreparedSpec, found: Findings) -> None:
    """One of the three ways to say which layers there are, as the constructor takes them."""
    named = getattr(node.submodules, "layer_specs", None)
    if not _deal_out_experts(node, found):
        return
    ways = {
        "layer_spec in params": node.params.get("layer_spec"),
        "layer_specs in params": node.params.get("layer_specs"),
        "layer_specs in submodules": named,
    }
    given = [way for way, value in ways.items() if value is not None]
    if len(given) != 1:
        if found.errors and not given:
            return  # the spec that was given is itself wrong
        found.error(
            "SP114",
            f"`{node.module.__name__}` needs its layers once, and they are given "
            f"{'by ' + ' and by '.join(given) if given else 'nowhere'}",
            node,
            "give `layer_spec`, one spec for all layers, or `layer_specs`, one for each",
        )
        return
    specs = node.params.get("layer_specs") if named is None else named
    if named is not None and node.submodules is not None:
        node.submodules = dataclasses.replace(node.submodules, layer_specs=None)
    config, count = node.config_in_force, node.params.get("num_layers")
    if count is not None and (type(count) is not int or count < 1):
        found.error("SP126", f"`num_layers` is {count!r}", node, "give a whole number above 0")
        return
    if specs is None:
        return
    wanted = count or (config.num_layers if is_config(config) else None)
    if wanted is not None and len(specs) != wanted:
        found.error(
            "SP115",
            f"`layer_specs` has {len(specs)} specs, and there are to be {wanted} layers",
            node,
            "give one spec for each layer, or change `num_layers`",
        )
        return
    if len(specs) > 0 and all(_same(spec, specs[0]) for spec in specs):
        node.params.pop("layer_specs", None)
        node.params["layer_spec"] = specs[0]
    else:
        node.params["layer_specs"] = specs
        node.params.pop("num_layers", None)


def _deal_out_experts(node: PreparedSpec, found: Findings) -> bool:
    """`layer_spec` and `moe_layer_spec` as one spec for each layer; False after a mistake."""
    config, experts = node.config_in_force, node.params.pop("moe_layer_spec", None)
    if experts is None:
        return True
    dense = node.params.pop("layer_spec", None)
    if not is_config(config) or config.num_moe_experts is None:
        found.error(
            "SP130",
            f"`{node.module.__name__}` is given `moe_layer_spec`, and the config has no experts",
            node,
            "set `num_moe_experts` in the config, or leave `moe_layer_spec` out",
        )
        return False
    found.reads.add("moe_layer_freq")
    count = node.params.get("num_layers") or config.num_layers
    pattern = [config.is_moe_layer(index) for index in range(count)]
    if dense is None and not all(pattern):
        found.error(
            "SP131",
            f"`moe_layer_freq` leaves {pattern.count(False)} of {count} layers without experts, "
            "and no `layer_spec` says what they are",
            node,
            "give `layer_spec` beside `moe_layer_spec`, or set moe_layer_freq=1",
        )
        return False
    node.params["layer_specs"] = [experts if has_experts else dense for has_experts in pattern]
    return True


def _check_pattern(node: PreparedSpec, found: Findings) -> None:
    """Has every symbol of the config's pattern a layer?"""
    config, name = node.config_in_force, node.module.__name__
    if not is_config(config):
        return  # the constructor misses it
    if config.hybrid_layer_pattern is None:
        found.error(
            "SP134",
            f"`{name}` goes by `hybrid_layer_pattern`, and the config does not set it",
            node,
            'set it in the config, a symbol for each layer, as hybrid_layer_pattern="M-M-*-"',
        )
        return
    for symbol in dict.fromkeys(config.hybrid_layer_pattern):
        slot = LAYER_SLOTS[symbol]
        if getattr(node.submodules, slot, None) is None and not found.errors:
            found.error(
                "SP134",
                f"`hybrid_layer_pattern` has {symbol!r}, and `{name}` has no `{slot}`",
                node,
                f"add `{slot}` to submodules",
            )


def _check_depths(node: PreparedSpec, found: Findings) -> None:
    """How many further tokens are predicted?"""
    config = node.config_in_force
    if is_config(config) and config.mtp_num_layers is None:
        found.error(
            "SP135",
            f"`{node.module.__name__}` goes by `mtp_num_layers`, and the config does not set it",
            node,
            "set it in the config: how many tokens beyond the next one are predicted",
        )


def _check_attention(node: PreparedSpec, injected: bool, found: Findings) -> None:
    config, children = node.config_in_force, node.submodules
    if not is_config(config):
        return
    found.reads.add("qk_layernorm")
    if config.multi_latent_attention:
        found.reads.add("multi_latent_attention")
    latent = issubclass(node.module, MLASelfAttention)
    if config.position_embedding_type == "rope" and config.multi_latent_attention != latent:
        found.error(
            "SP133",
            f"`{node.module.__name__}` stands in the spec, and the config says "
            f"multi_latent_attention={config.multi_latent_attention}",
            node,
            f"set multi_latent_attention={latent}, which says how many channels are rotated, or "
            f"use {'SelfAttention' if latent else 'MLASelfAttention'}",
        )
    if not latent:
        norms = ["q_layernorm", "k_layernorm"]
    elif config.q_lora_rank is None:
        norms = ["kv_layernorm"]  # queries have no latent
    else:
        norms = ["q_layernorm", "kv_layernorm"]
    for name in norms:
        norm = getattr(children, name, None)
        absent = norm is None or norm.module is IdentityOp
        if config.qk_layernorm and norm is None and children is not None:
            found.error(
                "SP116",
                f"the config sets `qk_layernorm`, and submodules names no `{name}`",
                node,
                f"name `{name}`, or say IdentityOp",
            )
        if not config.qk_layernorm and not absent:
            found.error(
                "SP116",
                f"submodules names `{name}`, and the config does not set `qk_layernorm`",
                node,
                "set qk_layernorm=True in the config",
            )
    if latent:
        return
    alone = injected and "layer_number" not in node.params
    if config.window_attn_skip_freq is not None and alone:
        found.error(
            "SP121",
            "`window_attn_skip_freq` goes by the number of the layer, and nothing passes "
            f"`{node.module.__name__}` its number",
            node,
            "let a TransformerLayer build it, or put `layer_number` in its params",
        )


def _same(one: Any, other: Any) -> bool:
    """Whether two parts of a spec describe the same: a list may make each layer's spec anew."""
    if one is other:
        return True
    if type(one) is not type(other):
        return False
    if isinstance(one, PreparedSpec):
        parts = ("module", "params", "submodules", "children", "config_in_force")
        return all(_same(getattr(one, p), getattr(other, p)) for p in parts)
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(_same(v, other[k]) for k, v in one.items())
    if isinstance(one, list | tuple):
        return len(one) == len(other) and all(map(_same, one, other))
    if dataclasses.is_dataclass(one) and not is_config(one):
        names = [f.name for f in dataclasses.fields(one)]
        return all(_same(getattr(one, n), getattr(other, n)) for n in names)
    return (one == other) is True
