"""Llama 1 to 3.x and what is saved as such (Yi, TinyLlama); Seed-OSS, Granite."""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    NORMS,
    OUTER,
    SILU,
    attention_rows,
    biases,
    common,
    dropouts,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
)
from ..fields import Fields
from ..plan import Family, Part, Plan, Written
from ..rope import rope

DEFAULTS = {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "head_dim": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "mlp_bias": False,
}
SEED_OSS = DEFAULTS | {
    "vocab_size": 155136,
    "intermediate_size": 27648,
    "num_hidden_layers": 64,
    "num_attention_heads": 80,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "max_position_embeddings": 524288,
    "attention_bias": True,
    "attention_out_bias": False,
    "attention_dropout": 0.1,
    "residual_dropout": 0.1,
}
GRANITE = {name: value for name, value in DEFAULTS.items() if name != "head_dim"} | {
    "embedding_multiplier": 1.0,
    "logits_scaling": 1.0,
    "residual_multiplier": 1.0,
    "attention_multiplier": 1.0,
}


def read(f: Fields) -> Plan:
    return plan(f, sizes(f), out=f.flag("attention_bias"))


def read_seed_oss(f: Fields) -> Plan:
    config = sizes(f) | dropouts(f, "residual_dropout", None)
    return plan(f, config, out=f.flag("attention_out_bias"))


def read_granite(f: Fields) -> Plan:
    config = sizes(f)
    config["softmax_scale"] = f.number("attention_multiplier")
    for name in ("embedding_multiplier", "residual_multiplier"):
        if f.number(name) != 1:
            config[name] = f.number(name)
    scaling = f.number("logits_scaling")
    if scaling != 1:
        config["logits_multiplier"] = Written(1 / scaling, f"1 / {scaling:g}")
    return plan(f, config, out=f.flag("attention_bias"))


def plan(f: Fields, config: dict[str, Any], *, out: bool) -> Plan:
    """Llama's layers; ``out``: attention's output projection has a bias."""
    config |= rope(f)
    config["activation"] = f.choice("hidden_act", SILU | {"gelu": "geglu"})
    config |= common(f)
    qkv, mlp = f.flag("attention_bias"), f.flag("mlp_bias")
    config |= biases(qkv=qkv, out=out, mlp=mlp)
    attention = attention_rows(qkv_bias=qkv, out_bias=out)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(*OUTER, *NORMS, *attention, *gated_mlp_rows(bias=mlp)),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILIES = (
    Family("llama", "Llama", ("LlamaForCausalLM",), DEFAULTS, read),
    Family("seed_oss", "Seed-OSS", ("SeedOssForCausalLM",), SEED_OSS, read_seed_oss),
    Family("granite", "Granite", ("GraniteForCausalLM",), GRANITE, read_granite),
)
