"""StableLM: layer norms, a gated MLP, a part of each head rotated."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    LAYER,
    OURS,
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
    "vocab_size": 50304,
    "intermediate_size": 6912,
    "hidden_size": 2560,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 32,
    "hidden_act": "silu",
    "max_position_embeddings": 4096,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_theta": 10000,
    "rope_scaling": None,
    "use_qkv_bias": False,
    "qk_layernorm": False,
    "use_parallel_residual": False,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "partial_rotary_factor": 0.25,
}


def read(f: Fields) -> Plan:
    config = sizes(f, head_dim=False) | rope(f)
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    shared = f.flag("use_parallel_residual")
    if shared:
        config |= {"parallel_attention_mlp": True, "parallel_shared_layernorm": True}
    config |= common(f, epsilon="layer_norm_eps")
    bias = f.flag("use_qkv_bias")
    config |= biases(qkv=bias, out=False, mlp=False)
    f.must_be("qk_layernorm", False, why="a norm of q and k with weights of each head is missing")
    f.must_be("hidden_dropout", 0.0, 0, why="it would be of the MLP alone")
    norms = [
        ("model.norm.weight+bias", "decoder.final_layernorm.weight+bias"),
        (f"{LAYER}input_layernorm.weight+bias", f"{OURS}input_layernorm.weight+bias"),
    ]
    if not shared:
        after = f"{LAYER}post_attention_layernorm.weight+bias"
        norms.append((after, f"{OURS}pre_mlp_layernorm.weight+bias"))
    outer = [
        ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
        ("lm_head.weight", "output_layer.weight"),
    ]
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm", shared=shared),
        rows=(*rows(outer), *rows(norms), *attention_rows(qkv_bias=bias), *gated_mlp_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family(
    "stablelm",
    "StableLM",
    ("StableLmForCausalLM",),
    DEFAULTS,
    read,
    limits="`qk_layernorm`, `hidden_dropout`",
)
