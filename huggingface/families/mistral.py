"""Mistral: Llama with sliding windows."""

from __future__ import annotations

from ..decoder import (
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
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "sliding_window": 4096,
    "attention_dropout": 0.0,
}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    window = f.optional_integer("sliding_window")
    config |= windows(window, [1] * config["num_layers"])
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(*OUTER, *NORMS, *attention_rows(), *gated_mlp_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family("mistral", "Mistral", ("MistralForCausalLM",), DEFAULTS, read)
