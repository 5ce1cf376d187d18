"""Small sizes: a config's numbers shrunk so that what they decide stays as it is."""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Iterator, Sequence
from typing import Any

VOCABULARY = 97  # a prime: nothing divides it by luck
WINDOW = 5
LAYERS = 2
GROUPS, GROUP_SIZE = 2, 8
# Channels of a head: the first that all configs take.
HEAD_SIZES = (8, 16, 32, 40, 64, 80, 128, 256)


def small(configs: Sequence[Any], *, layers: bool) -> list[Any]:
    """The configs with every size shrunk; the same sizes shrink alike.

    - query heads per key/value head stay as many (up to 8), key/value heads become two at most;
    - a head keeps 8 channels at least, of which the same part is rotated;
    - the width stays heads times channels where it was, else stays on its side of it;
    - layers stay as many as a pattern over them needs; `layers` False keeps them all;
    - the vocabulary is 97, a window 5.

    Raises ValueError where no size of a head is taken by all of the configs.
    """
    error: Exception | None = None
    for channels in HEAD_SIZES:
        try:
            return [
                dataclasses.replace(c, **changes)
                for c, changes in zip(configs, _changes(configs, channels, layers), strict=True)
            ]
        except Exception as refused:  # a config's own rules
            error = error or refused
    raise ValueError(f"no small config is accepted: {error}")


def narrow_only(configs: Sequence[Any], *, layers: bool) -> list[Any]:
    """The configs with fewer layers, tokens and places; every width as it is."""
    return [dataclasses.replace(c, **_depth(c, layers)) for c in configs]


def _changes(configs: Sequence[Any], channels: int, layers: bool) -> Iterator[dict[str, Any]]:
    widths: dict[int, int] = {}
    for config in configs:  # a width that several configs have must suit the heads of each
        hidden = getattr(config, "hidden_size", None)
        if isinstance(hidden, int):
            widths[hidden] = math.lcm(widths.get(hidden, 1), _heads(config)[0] * channels)
    for config in configs:
        yield _depth(config, layers) | _width(config, widths, channels)


def _width(config: Any, widths: dict[int, int], channels: int) -> dict[str, Any]:
    found: dict[str, Any] = {}
    hidden = getattr(config, "hidden_size", None)
    if not isinstance(hidden, int):
        return {}
    own = widths[hidden]
    heads, groups = _heads(config)
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
    if _has(config, "ffn_hidden_size"):
        across = round(config.ffn_hidden_size * own / hidden / 8) * 8
        found["ffn_hidden_size"] = max(8, min(4 * own, across))
    return found


def _heads(config: Any) -> tuple[int, int]:
    """Query heads and key/value heads of the small copy."""
    heads = getattr(config, "num_attention_heads", 1)
    groups = getattr(config, "num_query_groups", None) or heads
    new_groups = min(groups, GROUPS)
    return new_groups * min(heads // groups, GROUP_SIZE), new_groups


def _depth(config: Any, layers: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, most in (("vocab_size", VOCABULARY), ("window_size", WINDOW)):
        if _has(config, name):
            found[name] = min(getattr(config, name), most)
    if _has(config, "max_position_embeddings"):
        found["max_position_embeddings"] = min(config.max_position_embeddings, 16)
    if layers and _has(config, "num_layers"):
        count = config.num_layers
        pattern = getattr(config, "window_attn_skip_freq", None)
        if isinstance(pattern, tuple):
            kept = max((pattern.index(v) + 1 for v in set(pattern)), default=1)
            kept = min(count, max(LAYERS, kept))
            found |= {"num_layers": kept, "window_attn_skip_freq": pattern[:kept]}
        elif isinstance(pattern, int) and LAYERS < pattern <= count:
            found["num_layers"] = pattern
        else:
            found["num_layers"] = min(count, LAYERS)
    return found


def _has(config: Any, name: str) -> bool:
    return isinstance(getattr(config, name, None), int)
