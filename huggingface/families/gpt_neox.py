"""GPT-NeoX and Pythia: attention and MLP side by side, each with a norm of its own."""

from __future__ import annotations

from typing import Any

from ..decoder import OURS, biases, common, layer, tied
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 50432,
    "hidden_size": 6144,
    "num_hidden_layers": 44,
    "num_attention_heads": 64,
    "intermediate_size": 24576,
    "hidden_act": "gelu",
    "rotary_pct": 0.25,
    "rotary_emb_base": 10000,
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "layer_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "use_parallel_residual": True,
    "rope_scaling": None,
    "attention_bias": True,
}
# gelu_fast is GELU by its tanh formula, with other digits of the same root.
_ACTIVATIONS = {
    "gelu": "gelu",
    "gelu_fast": "gelu_tanh",
    "gelu_new": "gelu_tanh",
    "gelu_pytorch_tanh": "gelu_tanh",
}
_LAYER = "gpt_neox.layers.*."


def read(f: Fields) -> Plan:
    hidden = f.integer("hidden_size")
    config: dict[str, Any] = {
        "num_layers": f.integer("num_hidden_layers"),
        "hidden_size": hidden,
        "num_attention_heads": f.integer("num_attention_heads"),
        "ffn_hidden_size": f.integer("intermediate_size"),
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("max_position_embeddings"),
    }
    if config["ffn_hidden_size"] == 4 * hidden:
        del config["ffn_hidden_size"]
    config |= rope(f, base="rotary_emb_base")
    # What transformers writes again under newer names.
    f.must_be("rope_theta", f.number("rotary_emb_base"))
    f.must_be("partial_rotary_factor", f.number("rotary_pct"))
    if f.number("rotary_pct") != 1:
        config["rotary_percent"] = f.number("rotary_pct")
    config["activation"] = f.choice("hidden_act", _ACTIVATIONS)
    if f.flag("use_parallel_residual"):
        config["parallel_attention_mlp"] = True
    config |= common(f, epsilon="layer_norm_eps", dropout="hidden_dropout")
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=bias, mlp=True)
    f.must_be("attention_probs_dropout_prob", 0)
    f.must_be("hidden_dropout_prob", 0)
    attention = "weight+bias" if bias else "weight"
    ours = f"{OURS}self_attention."
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm"),
        rows=rows(
            [
                ("gpt_neox.embed_in.weight", "embedding.word_embeddings.weight"),
                ("gpt_neox.final_layer_norm.weight+bias", "decoder.final_layernorm.weight+bias"),
                ("embed_out.weight", "output_layer.weight"),
                (f"{_LAYER}input_layernorm.weight+bias", f"{OURS}input_layernorm.weight+bias"),
                (
                    f"{_LAYER}post_attention_layernorm.weight+bias",
                    f"{OURS}pre_mlp_layernorm.weight+bias",
                ),
                # Head by head, as ours are.
                (f"{_LAYER}attention.query_key_value.{attention}", f"{ours}linear_qkv.{attention}"),
                (f"{_LAYER}attention.dense.{attention}", f"{ours}linear_proj.{attention}"),
                (f"{_LAYER}mlp.dense_h_to_4h.weight+bias", f"{OURS}mlp.linear_fc1.weight+bias"),
                (f"{_LAYER}mlp.dense_4h_to_h.weight+bias", f"{OURS}mlp.linear_fc2.weight+bias"),
            ]
        ),
        tied=tied(config, "embed_out.weight", "gpt_neox.embed_in.weight"),
        ignored=(
            "gpt_neox.layers.*.attention.bias",
            "gpt_neox.layers.*.attention.masked_bias",
            "gpt_neox.layers.*.attention.rotary_emb.inv_freq",
        ),
    )


FAMILY = Family("gpt_neox", "GPT-NeoX", ("GPTNeoXForCausalLM",), DEFAULTS, read)
