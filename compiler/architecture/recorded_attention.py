"""An attention call from the arguments of the function that computes it."""

from __future__ import annotations

import dataclasses
from typing import Any

import torch.nn.functional as F
from torch import Tensor, nn

from .calls import AttentionCall


def of_runtime(
    name: str, given: dict[str, Any], path: str, names: dict[int, str]
) -> AttentionCall | None:
    """Of the runtime's `attention`, by the names of its parameters: q [b, s, n, d]."""
    if name != "attention":
        return None
    q, k, v = given["q"], given["k"], given["v"]
    return AttentionCall(
        path,
        name,
        heads=q.shape[2],
        groups=k.shape[2],
        head_dim=q.shape[3],
        value_dim=v.shape[3],
        places=q.shape[1],
        key_places=k.shape[1],
        causal=given.get("causal", True),
        window=given.get("window"),
        softcap=given.get("softcap"),
        sinks=_sinks(given.get("sinks"), names),
        scale=given.get("scale"),
        dropout=given.get("dropout", 0.0),
        masked=given.get("mask") is not None,
    )


def _sinks(sinks: Tensor | None, names: dict[int, str]) -> str | None:
    if sinks is None:
        return None
    # A parameter is learned, in whatever dtype it is handed over; all else is a constant.
    learned = isinstance(sinks, nn.Parameter) or id(sinks) in names or sinks.requires_grad
    return "learned" if learned else "zero"


def of_torch(func: Any, args: Any, kwargs: Any, path: str) -> AttentionCall | None:
    """Of torch's fused attention: q [.., n, s, d]; and of its multi-head attention, q [s, b, h]."""
    if func is F.multi_head_attention_forward:
        return _multi_head(args, kwargs, path)
    if func is not F.scaled_dot_product_attention:
        return None
    names = ("query", "key", "value", "attn_mask", "dropout_p", "is_causal", "scale", "enable_gqa")
    given = dict(zip(names, args, strict=False)) | kwargs
    q, k, v = given["query"], given["key"], given["value"]
    masked = given.get("attn_mask") is not None
    return AttentionCall(
        path,
        "scaled_dot_product_attention",
        heads=q.shape[-3] if q.dim() > 2 else 1,
        groups=k.shape[-3] if k.dim() > 2 else 1,
        head_dim=q.shape[-1],
        value_dim=v.shape[-1],
        places=q.shape[-2],
        key_places=k.shape[-2],
        causal=True if given.get("is_causal") else None if masked else False,
        scale=given.get("scale"),
        dropout=given.get("dropout_p", 0.0),
        masked=masked,
    )


def _multi_head(args: Any, kwargs: Any, path: str) -> AttentionCall:
    # Inside, and here, the sequence comes first, whatever `batch_first` says.
    names = ("query", "key", "value", "embed_dim_to_check", "num_heads")
    given = dict(zip(names, args, strict=False)) | kwargs
    heads, width = given["num_heads"], given["embed_dim_to_check"]
    masked = given.get("attn_mask") is not None
    causal = True if given.get("is_causal") else None if masked else False
    return AttentionCall(
        path,
        "multi_head_attention_forward",
        heads=heads,
        groups=heads,
        head_dim=width // heads,
        value_dim=width // heads,
        places=given["query"].shape[0],
        key_places=given["key"].shape[0],
        causal=causal,
        dropout=kwargs.get("dropout_p", 0.0),
        masked=masked,
    )


def rotary_words(given: dict[str, Any]) -> tuple[str, ...]:
    """What the runtime's `rotary_tables` was given, a word for each: "base=10000.0"."""
    found = [f"base={given['base']!r}", f"dim={given['dim']}"]
    if given.get("interleaved"):
        found.append("pairs=interleaved")
    scaling = given.get("scaling")
    if scaling is not None:
        found.append(f"scaling={type(scaling).__name__.removesuffix('Scaling').lower()}")
        for field in dataclasses.fields(scaling):
            value = getattr(scaling, field.name)
            if value != field.default:
                found.append(f"{field.name}={value!r}")
    return tuple(found)
