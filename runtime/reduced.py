"""Small copies: a config's numbers shrunk so that what they decide stays as it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

VOCABULARY = 97  # a prime: nothing divides it by luck
WINDOW = 5
LENGTH = 16  # positions of a sequence
LAYERS = 2
GROUPS, GROUP_SIZE = 2, 8
MIXER_HEADS = 2  # in a group
EXPERTS = 8
# Every so-manieth layer is of another kind.
_EVERY = ("window_attn_skip_freq", "moe_layer_freq")
_PATTERN = "hybrid_layer_pattern"  # a symbol for each layer
_EXPERT_WIDTHS = ("moe_ffn_hidden_size", "moe_shared_expert_intermediate_size")
_LATENTS = ("q_lora_rank", "kv_lora_rank")
_LATENT_HEADS = ("qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim")
# Channels of a head: the first that all configs take.
HEAD_SIZES = (8, 16, 32, 40, 64, 80, 128, 256)


def small(
    configs: Sequence[Any], *, layers: bool, parts: int = 1, least: int = LAYERS
) -> list[Any]:
    """The configs with every size shrunk; the same sizes shrink alike.

    - query heads per key/value head stay as many (up to 8); key/value heads become two at most, or
      as many as ``parts`` and their number have in common, so that whatever of tp x cp up to
      ``parts`` divides them still does;
    - a head keeps 8 channels at least, of which the same part is rotated;
    - latent attention's heads shrink alike, to 8 channels of positions, its latents as the width;
    - the width stays heads times channels where it was, else stays on its side of it;
    - a mixer's groups become as few, with two heads each, of 8 channels;
    - experts become 8, or 4 groups of 4, and a token goes to half of them at most;
    - layers stay as many as a pattern over them needs, and ``least`` where there are so many;
      ``layers`` False keeps them all;
    - the vocabulary is 97, a window 5, a sequence 16.

    Raises ValueError where no size of a head is taken by all of the configs.
    """
    error: Exception | None = None
    for channels in HEAD_SIZES:
        try:
            return [
                dataclasses.replace(c, **changes)
                for c, changes in zip(
                    configs, _changes(configs, channels, layers and least, parts), strict=True
                )
            ]
        except Exception as refused:  # a config's own rules
            error = error or refused
    raise ValueError(f"no small config is accepted: {error}")


def narrow_only(configs: Sequence[Any], *, layers: bool, least: int = LAYERS) -> list[Any]:
    """The configs with fewer layers, tokens and places; every width as it is."""
    return [dataclasses.replace(c, **_depth(c, layers and least)) for c in configs]


def shallow(config: Any) -> Any:
    """The config with fewer layers; everything else as it is."""
    return dataclasses.replace(config, **_layers(config, LAYERS))


def _changes(
    configs: Sequence[Any], channels: int, layers: int, parts: int
) -> Iterator[dict[str, Any]]:
    widths: dict[int, int] = {}
    for config in configs:  # a width that several configs have must suit the heads of each
        hidden = getattr(config, "hidden_size", None)
        if isinstance(hidden, int):
            heads = _heads(config, parts)[0]
            widths[hidden] = math.lcm(widths.get(hidden, 1), heads * channels)
    for config in configs:
        yield _depth(config, layers) | _width(config, widths, channels, parts)


def _width(config: Any, widths: dict[int, int], channels: int, parts: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    hidden = getattr(config, "hidden_size", None)
    if not isinstance(hidden, int):
        return {}
    own = widths[hidden]
    heads, groups = _heads(config, parts)
    if _has(config, "num_attention_heads"):
        found["num_attention_heads"] = heads
    if _has(config, "num_query_groups"):
        found["num_query_groups"] = groups
    if _has(config, "kv_channels"):
        found["kv_channels"] = channels
        across = config.kv_channels * config.num_attention_heads
        if across != hidden:  # one config alone decides: others with this width have the same rule
            own = own + 16 if across < hidden else own - 8
            widths[hidden] = own
    found["hidden_size"] = own
    for name in ("ffn_hidden_size", *_EXPERT_WIDTHS):
        if _has(config, name):
            across = round(getattr(config, name) * own / hidden / 8) * 8
            found[name] = max(8, min(4 * own, across))
    return found | _latents(config, own / hidden) | _experts(config) | _mixers(config, parts)


def _latents(config: Any, share: float) -> dict[str, int]:
    """Of latent attention: parts of a head as large against its positions as they were."""
    found: dict[str, int] = {}
    if not getattr(config, "multi_latent_attention", True):
        return found  # whatever the fields say, nothing reads them
    positions = getattr(config, "qk_pos_emb_head_dim", None)
    if isinstance(positions, int) and positions > 8:
        for name in _LATENT_HEADS:
            if _has(config, name):
                found[name] = max(8, round(getattr(config, name) * 8 / positions / 8) * 8)
    for name in _LATENTS:
        if _has(config, name):
            found[name] = min(
                getattr(config, name), max(8, round(getattr(config, name) * share / 8) * 8)
            )
    return found


def _experts(config: Any) -> dict[str, int]:
    """As many groups and experts of each as a choice among them needs, powers of two where they
    were; a token goes to some and not to all."""
    if not _has(config, "num_moe_experts"):
        return {}
    groups = getattr(config, "moe_router_num_groups", None) or 1
    new_groups = min(groups, 4)
    each = min(config.num_moe_experts // groups, EXPERTS if groups == 1 else EXPERTS // 2)
    found = {"num_moe_experts": new_groups * each}
    kept = getattr(config, "moe_router_group_topk", None)
    if groups > 1 and isinstance(kept, int):
        found["moe_router_num_groups"] = new_groups
        kept = found["moe_router_group_topk"] = min(kept, max(1, new_groups // 2))
    if _has(config, "moe_router_topk"):
        most = (kept or new_groups) * each // 2
        found["moe_router_topk"] = min(config.moe_router_topk, max(1, most))
    return found


def _mixers(config: Any, parts: int) -> dict[str, int]:
    """Of state spaces and linear attention: groups as of attention, of two heads at most."""
    kinds = getattr(config, _PATTERN, None) or ""  # nothing else reads their fields
    found: dict[str, int] = {}
    if "M" in kinds and _has(config, "mamba_num_groups"):
        groups = found["mamba_num_groups"] = _groups(config.mamba_num_groups, parts)
        if _has(config, "mamba_num_heads"):
            each = config.mamba_num_heads // config.mamba_num_groups
            found["mamba_num_heads"] = groups * min(each, MIXER_HEADS)
        found |= {"mamba_head_dim": HEAD_SIZES[0], "mamba_state_dim": HEAD_SIZES[0]}
    if "G" in kinds and _has(config, "linear_num_key_heads"):
        groups = found["linear_num_key_heads"] = _groups(config.linear_num_key_heads, parts)
        each = config.linear_num_value_heads // config.linear_num_key_heads
        found["linear_num_value_heads"] = groups * min(each, MIXER_HEADS)
        found |= {"linear_key_head_dim": HEAD_SIZES[0], "linear_value_head_dim": HEAD_SIZES[0]}
    return found


def _groups(count: int, parts: int) -> int:
    """As many as are common to their number and ``parts``, or a few."""
    common = math.gcd(count, parts)
    return common if common > 1 else min(count, GROUPS)


def _heads(config: Any, parts: int) -> tuple[int, int]:
    """Query heads and key/value heads of the small copy."""
    heads = getattr(config, "num_attention_heads", 1)
    groups = getattr(config, "num_query_groups", None) or heads
    new_groups = _groups(groups, parts)
    return new_groups * min(heads // groups, GROUP_SIZE), new_groups


def _depth(config: Any, layers: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, most in (
        ("vocab_size", VOCABULARY),
        ("window_size", WINDOW),
        ("max_position_embeddings", LENGTH),
    ):
        if _has(config, name):
            found[name] = min(getattr(config, name), most)
    return found | (_layers(config, layers) if layers else {})


def _layers(config: Any, least: int) -> dict[str, Any]:
    """As few layers as show each that a pattern over them has, and ``least``."""
    least = max(LAYERS, least)
    if not _has(config, "num_layers"):
        return {}
    count = config.num_layers
    values = {f.name: getattr(config, f.name) for f in dataclasses.fields(config)}
    patterns = {
        name: value
        for name, value in values.items()
        if (isinstance(value, tuple) and len(value) == count) or (name == _PATTERN and value)
    }
    every = max((v for n in _EVERY if isinstance(v := values.get(n), int)), default=0)
    if patterns:
        layers = list(zip(*patterns.values(), strict=True))
        kept = min(count, max([least, *(layers.index(layer) + 1 for layer in layers)]))
        return {"num_layers": kept} | {n: v[:kept] for n, v in patterns.items()}
    if least < every <= count:
        return {"num_layers": every}
    return {"num_layers": min(count, least)}


def _has(config: Any, name: str) -> bool:
    return isinstance(getattr(config, name, None), int)
