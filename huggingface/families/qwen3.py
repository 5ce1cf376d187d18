"""Qwen 3: a norm over the channels of each query and key head."""

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
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from . import qwen2

DEFAULTS = qwen2.DEFAULTS | {"head_dim": 128, "attention_bias": False}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    f.must_be("attention_bias", False)
    config["qk_layernorm"] = True
    config |= qwen2.window_layers(f, config["num_layers"])
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", qk_norm="RMSNorm"),
        rows=(*OUTER, *NORMS, *attention_rows(qk_norm=True), *gated_mlp_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family("qwen3", "Qwen 3", ("Qwen3ForCausalLM",), DEFAULTS, read, limits="`attention_bias`")
