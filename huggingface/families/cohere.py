"""Cohere's Command-R: attention and MLP side by side, layer norms without a bias."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    LAYER,
    OURS,
    OUTER,
    SILU,
    attention_rows,
    biases,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 256000,
    "hidden_size": 8192,
    "intermediate_size": 22528,
    "logit_scale": 0.0625,
    "num_hidden_layers": 40,
    "num_attention_heads": 64,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "max_position_embeddings": 8192,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "use_qk_norm": False,
}


def read(f: Fields) -> Plan:
    config = sizes(f, head_dim=False) | rope(f) | {"rotary_interleaved": True}
    config["activation"] = f.choice("hidden_act", SILU)
    config |= {"parallel_attention_mlp": True, "parallel_shared_layernorm": True}
    config |= common(f, epsilon="layer_norm_eps") | {"layernorm_bias": False}
    config["logits_multiplier"] = f.number("logit_scale")
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=bias, mlp=False)
    f.must_be("use_qk_norm", False, why="a norm of q and k with weights of each head is missing")
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm", shared=True),
        rows=(
            *OUTER,
            *rows([(f"{LAYER}input_layernorm.weight", f"{OURS}input_layernorm.weight")]),
            *attention_rows(qkv_bias=bias, out_bias=bias),
            *gated_mlp_rows(),
        ),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family("cohere", "Cohere", ("CohereForCausalLM",), DEFAULTS, read, limits="`use_qk_norm`")
