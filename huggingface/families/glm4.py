"""GLM-4 of 2024 (`glm`) and of 2025 (`glm4`, with norms behind each half too)."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    SILU,
    attention_rows,
    biases,
    common,
    layer,
    sizes,
    tied,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 13696,
    "num_hidden_layers": 40,
    "num_attention_heads": 32,
    "num_key_value_heads": 2,
    "partial_rotary_factor": 0.5,
    "head_dim": 128,
    "hidden_act": "silu",
    "attention_dropout": 0.0,
    "max_position_embeddings": 131072,
    "initializer_range": 0.02,
    "rms_norm_eps": 1.5625e-07,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "attention_bias": True,
}
FUSED_MLP = rows(
    [
        (
            f"{LAYER}mlp.gate_up_proj.weight",
            f"{OURS}mlp.linear_fc1.weight",
            "stacked rows alternate",
        ),
        (f"{LAYER}mlp.down_proj.weight", f"{OURS}mlp.linear_fc2.weight"),
    ]
)
_BEHIND = rows(
    [
        (f"{LAYER}post_self_attn_layernorm.weight", f"{OURS}post_self_attn_layernorm.weight"),
        (f"{LAYER}post_mlp_layernorm.weight", f"{OURS}post_mlp_layernorm.weight"),
    ]
)


def read(f: Fields) -> Plan:
    return _plan(f, after=False)


def read_glm4(f: Fields) -> Plan:
    return _plan(f, after=True)


def _plan(f: Fields, *, after: bool) -> Plan:
    config = sizes(f) | rope(f) | {"rotary_interleaved": True}
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=False, mlp=False)
    behind = _BEHIND if after else ()
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", after=after),
        rows=(*OUTER, *NORMS, *behind, *attention_rows(qkv_bias=bias), *FUSED_MLP),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILIES = (
    Family("glm", "GLM", ("GlmForCausalLM",), DEFAULTS, read),
    Family("glm4", "GLM-4", ("Glm4ForCausalLM",), DEFAULTS, read_glm4),
)
