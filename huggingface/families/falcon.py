"""Falcon: attention and MLP side by side, few key/value heads."""

from __future__ import annotations

from typing import Any

from ..decoder import OURS, biases, layer, tied
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 65024,
    "hidden_size": 4544,
    "num_hidden_layers": 32,
    "num_attention_heads": 71,
    "num_ln_in_parallel_attn": None,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "hidden_dropout": 0.0,
    "attention_dropout": 0.0,
    "num_kv_heads": None,
    "alibi": False,
    "new_decoder_architecture": False,
    "multi_query": True,
    "parallel_attn": True,
    "bias": False,
    "max_position_embeddings": 2048,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "ffn_hidden_size": None,
    "activation": "gelu",
    "tie_word_embeddings": True,
}
_LAYER = "transformer.h.*."
_GELU = {"gelu": "gelu", "gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh"}


def read(f: Fields) -> Plan:
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    new, parallel = f.flag("new_decoder_architecture"), f.flag("parallel_attn")
    config: dict[str, Any] = {
        "num_layers": f.integer("num_hidden_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
    }
    if new:
        groups = f.optional_integer("num_kv_heads") or heads
    else:
        groups = 1 if f.flag("multi_query") else heads
    f.harmless("multi_query", "num_kv_heads")  # the one that this architecture does not ask for
    if groups != heads:
        config["num_query_groups"] = groups
    if f.optional_integer("ffn_hidden_size") not in (None, 4 * hidden):
        config["ffn_hidden_size"] = f.integer("ffn_hidden_size")
    config["vocab_size"] = f.integer("vocab_size")
    config["max_position_embeddings"] = f.integer("max_position_embeddings")
    # Older names of the same, which some files have beside the newer ones.
    f.must_be("n_layer", config["num_layers"])
    f.must_be("n_head", heads)
    f.must_be("n_embed", hidden)
    f.must_be("alibi", False, why="biases by distance (alibi) are not supported")
    config |= rope(f)
    config["activation"] = f.choice("activation", _GELU)
    norms = f.optional_integer("num_ln_in_parallel_attn") or (2 if new else 1)
    if new and not parallel:
        f.refuse("parallel_attn", "with `new_decoder_architecture` it has to be true")
    if norms == 2 and not new:
        f.refuse("num_ln_in_parallel_attn", "2 needs `new_decoder_architecture`")
    if parallel:
        config["parallel_attention_mlp"] = True
    shared = parallel and norms == 1
    if shared:
        config["parallel_shared_layernorm"] = True
    config["layernorm_epsilon"] = f.number("layer_norm_epsilon")
    f.must_be("hidden_dropout", 0.0, 0)
    f.must_be("attention_dropout", 0.0, 0)
    f.must_be("apply_residual_connection_post_layernorm", False)
    bias = f.flag("bias")
    config |= biases(qkv=bias, out=bias, mlp=bias)
    if f.flag("tie_word_embeddings"):
        config["untie_embeddings_and_output_weights"] = False
    if f.number("initializer_range") != 0.02:
        config["init_method_std"] = f.number("initializer_range")
    linear = "weight+bias" if bias else "weight"
    ours = f"{OURS}self_attention."
    first = "ln_attn" if norms == 2 else "input_layernorm"
    norm_rows = [(f"{_LAYER}{first}.weight+bias", f"{OURS}input_layernorm.weight+bias")]
    if not shared:
        second = "ln_mlp" if norms == 2 else "post_attention_layernorm"
        norm_rows.append((f"{_LAYER}{second}.weight+bias", f"{OURS}pre_mlp_layernorm.weight+bias"))
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm", shared=shared),
        rows=rows(
            [
                ("transformer.word_embeddings.weight", "embedding.word_embeddings.weight"),
                ("transformer.ln_f.weight+bias", "decoder.final_layernorm.weight+bias"),
                ("lm_head.weight", "output_layer.weight"),
                *norm_rows,
                # Group by group, as ours are.
                (f"{_LAYER}self_attention.query_key_value.{linear}", f"{ours}linear_qkv.{linear}"),
                (f"{_LAYER}self_attention.dense.{linear}", f"{ours}linear_proj.{linear}"),
                (f"{_LAYER}mlp.dense_h_to_4h.{linear}", f"{OURS}mlp.linear_fc1.{linear}"),
                (f"{_LAYER}mlp.dense_4h_to_h.{linear}", f"{OURS}mlp.linear_fc2.{linear}"),
            ]
        ),
        tied=tied(config, "lm_head.weight", "transformer.word_embeddings.weight"),
        ignored=("transformer.h.*.self_attention.rotary_emb.inv_freq",),
    )


FAMILY = Family(
    "falcon", "Falcon", ("FalconForCausalLM",), DEFAULTS, read, limits="`alibi`, dropout"
)
