"""Phi 1 and 2: attention and MLP side by side, with one norm for both."""

from __future__ import annotations

from ..decoder import LAYER, OURS, common, dropouts, layer, sizes, tied
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 51200,
    "hidden_size": 2048,
    "intermediate_size": 8192,
    "num_hidden_layers": 24,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attention_dropout": 0.0,
    "hidden_act": "gelu_new",
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "partial_rotary_factor": 0.5,
    "qk_layernorm": False,
}
_GELU = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}


def read(f: Fields) -> Plan:
    config = sizes(f, head_dim=False) | rope(f)
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", _GELU)
    config |= {"parallel_attention_mlp": True, "parallel_shared_layernorm": True}
    config |= common(f, epsilon="layer_norm_eps") | dropouts(f, "resid_pdrop", "embd_pdrop")
    config |= {"add_bias_linear": True, "output_layer_bias": True}
    f.must_be("qk_layernorm", False)
    attention = f"{LAYER}self_attn."
    ours = f"{OURS}self_attention."
    by_group = "rows by group"
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm", shared=True),
        rows=rows(
            [
                ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
                ("model.final_layernorm.weight+bias", "decoder.final_layernorm.weight+bias"),
                ("lm_head.weight+bias", "output_layer.weight+bias"),
                (f"{LAYER}input_layernorm.weight+bias", f"{OURS}input_layernorm.weight+bias"),
                (
                    f"{attention}{{q,k,v}}_proj.weight+bias",
                    f"{ours}linear_qkv.weight+bias",
                    by_group,
                ),
                (f"{attention}dense.weight+bias", f"{ours}linear_proj.weight+bias"),
                (f"{LAYER}mlp.fc1.weight+bias", f"{OURS}mlp.linear_fc1.weight+bias"),
                (f"{LAYER}mlp.fc2.weight+bias", f"{OURS}mlp.linear_fc2.weight+bias"),
            ]
        ),
        tied=tied(config),
        ignored=("model.layers.*.self_attn.rotary_emb.inv_freq",),
    )


FAMILY = Family("phi", "Phi", ("PhiForCausalLM",), DEFAULTS, read, limits="`qk_layernorm`")
