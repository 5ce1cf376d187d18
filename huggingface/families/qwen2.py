"""Qwen 1.5, 2 and 2.5: Llama with biases on q, k and v."""

from __future__ import annotations

from typing import Any

from ..decoder import (
    ATTENTION,
    IGNORED,
    NORMS,
    OUTER,
    SILU,
    attention_rows,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
    windows,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope

DEFAULTS = {
    "vocab_size": 151936,
    "hidden_size": 4096,
    "intermediate_size": 22016,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "use_sliding_window": False,
    "sliding_window": 4096,
    "max_window_layers": 28,
    "layer_types": None,
    "attention_dropout": 0.0,
}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    config["add_qkv_bias"] = True
    config |= window_layers(f, config["num_layers"])
    f.must_be("use_mrope", False)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(*OUTER, *NORMS, *attention_rows(qkv_bias=True), *gated_mlp_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


def window_layers(f: Fields, count: int) -> dict[str, Any]:
    """Windows from layer `max_window_layers` on, or where `layer_types` says so."""
    used, size = f.flag("use_sliding_window"), f.optional_integer("sliding_window")
    first = f.count("max_window_layers")
    kinds = f.names("layer_types", ATTENTION, count)
    if not used:
        size = None
    if kinds is None:
        return windows(size, [int(i >= first) for i in range(count)])
    if size is None and "sliding_attention" in kinds:
        f.refuse("layer_types", "there is no `sliding_window` in use for a sliding_attention")
    return windows(size, [ATTENTION[kind] for kind in kinds])


FAMILY = Family("qwen2", "Qwen 2", ("Qwen2ForCausalLM",), DEFAULTS, read)
