"""GPT-2."""

from __future__ import annotations

from typing import Any

from ..decoder import OURS, layer, tied
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 50257,
    "n_positions": 1024,
    "n_embd": 768,
    "n_layer": 12,
    "n_head": 12,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.1,
    "embd_pdrop": 0.1,
    "attn_pdrop": 0.1,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "scale_attn_weights": True,
    "scale_attn_by_inverse_layer_idx": False,
    "reorder_and_upcast_attn": False,
    "tie_word_embeddings": True,
}
_ACTIVATIONS = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_LAYER = "transformer.h.*."
_FUSED = "transposed, stacked rows by group"  # Conv1D: inputs by outputs
ROWS = rows(
    [
        ("transformer.wte.weight", "embedding.word_embeddings.weight"),
        ("transformer.wpe.weight", "embedding.position_embeddings.weight"),
        ("transformer.ln_f.weight+bias", "decoder.final_layernorm.weight+bias"),
        ("lm_head.weight", "output_layer.weight"),
        (f"{_LAYER}ln_1.weight+bias", f"{OURS}input_layernorm.weight+bias"),
        (f"{_LAYER}ln_2.weight+bias", f"{OURS}pre_mlp_layernorm.weight+bias"),
        (f"{_LAYER}attn.c_attn.weight", f"{OURS}self_attention.linear_qkv.weight", _FUSED),
        (
            f"{_LAYER}attn.c_attn.bias",
            f"{OURS}self_attention.linear_qkv.bias",
            "stacked rows by group",
        ),
        (f"{_LAYER}attn.c_proj.weight", f"{OURS}self_attention.linear_proj.weight", "transposed"),
        (f"{_LAYER}attn.c_proj.bias", f"{OURS}self_attention.linear_proj.bias"),
        (f"{_LAYER}mlp.c_fc.weight", f"{OURS}mlp.linear_fc1.weight", "transposed"),
        (f"{_LAYER}mlp.c_fc.bias", f"{OURS}mlp.linear_fc1.bias"),
        (f"{_LAYER}mlp.c_proj.weight", f"{OURS}mlp.linear_fc2.weight", "transposed"),
        (f"{_LAYER}mlp.c_proj.bias", f"{OURS}mlp.linear_fc2.bias"),
    ]
)


def read(f: Fields) -> Plan:
    config: dict[str, Any] = {
        "num_layers": f.integer("n_layer"),
        "hidden_size": f.integer("n_embd"),
        "num_attention_heads": f.integer("n_head"),
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("n_positions"),
    }
    f.must_be("n_ctx", config["max_position_embeddings"])
    inner = f.optional_integer("n_inner")
    if inner not in (None, 4 * config["hidden_size"]):
        config["ffn_hidden_size"] = inner
    config["activation"] = f.choice("activation_function", _ACTIVATIONS)
    config["add_bias_linear"] = True
    config["layernorm_epsilon"] = f.number("layer_norm_epsilon")
    if f.number("resid_pdrop") != f.number("embd_pdrop"):
        f.refuse("embd_pdrop", f"it has to be `resid_pdrop`, {f.number('resid_pdrop')}")
    if f.number("resid_pdrop"):
        config["hidden_dropout"] = f.number("resid_pdrop")
    if f.number("attn_pdrop"):
        config["attention_dropout"] = f.number("attn_pdrop")
    if f.flag("tie_word_embeddings"):
        config["untie_embeddings_and_output_weights"] = False
    if f.number("initializer_range") != 0.02:
        config["init_method_std"] = f.number("initializer_range")
    f.must_be("scale_attn_weights", True)
    f.must_be("scale_attn_by_inverse_layer_idx", False)
    f.harmless("reorder_and_upcast_attn")  # the same in float32, and how it runs in half precision
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm"),
        rows=ROWS,
        tied=tied(config, "lm_head.weight", "transformer.wte.weight"),
        ignored=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
    )


FAMILY = Family(
    "gpt2",
    "GPT-2",
    ("GPT2LMHeadModel",),
    DEFAULTS,
    read,
    limits="`scale_attn_by_inverse_layer_idx`",
)
