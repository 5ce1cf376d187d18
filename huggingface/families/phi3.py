"""Phi-3: Llama with q, k, v and gate, up in one matrix each."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    SILU,
    common,
    dropouts,
    layer,
    sizes,
    tied,
    windows,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows
from .glm4 import FUSED_MLP

DEFAULTS = {
    "vocab_size": 32064,
    "hidden_size": 3072,
    "intermediate_size": 8192,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attention_dropout": 0.0,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "original_max_position_embeddings": 4096,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "partial_rotary_factor": 1.0,
    "sliding_window": None,
}
_ATTENTION = rows(
    [
        (
            f"{LAYER}self_attn.qkv_proj.weight",
            f"{OURS}self_attention.linear_qkv.weight",
            "stacked rows by group",
        ),
        (f"{LAYER}self_attn.o_proj.weight", f"{OURS}self_attention.linear_proj.weight"),
    ]
)


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    f.harmless("original_max_position_embeddings")  # what a scaling counts from, if there is one
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f) | dropouts(f, "resid_pdrop", None)
    f.harmless("embd_pdrop")  # transformers' model has no dropout of the embedding
    f.must_be("attention_bias", False)
    config |= windows(f.optional_integer("sliding_window"), [1] * config["num_layers"])
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(*OUTER, *NORMS, *_ATTENTION, *FUSED_MLP),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family(
    "phi3", "Phi-3", ("Phi3ForCausalLM",), DEFAULTS, read, limits="`rope_scaling` longrope"
)
