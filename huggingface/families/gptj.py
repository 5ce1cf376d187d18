"""GPT-J: attention and MLP side by side, with one norm for both; pairs of channels turn."""

from __future__ import annotations

from typing import Any

from ..decoder import OURS, dropouts, layer, tied
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 50400,
    "n_positions": 2048,
    "n_embd": 4096,
    "n_layer": 28,
    "n_head": 16,
    "rotary_dim": 64,
    "n_inner": None,
    "activation_function": "gelu_new",
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
    "layer_norm_epsilon": 1e-5,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
}
_GELU = {"gelu_new": "gelu_tanh", "gelu_pytorch_tanh": "gelu_tanh", "gelu": "gelu"}
_LAYER = "transformer.h.*."
_ATTENTION, _OURS = f"{_LAYER}attn.", f"{OURS}self_attention."
ROWS = rows(
    [
        ("transformer.wte.weight", "embedding.word_embeddings.weight"),
        ("transformer.ln_f.weight+bias", "decoder.final_layernorm.weight+bias"),
        ("lm_head.weight+bias", "output_layer.weight+bias"),
        (f"{_LAYER}ln_1.weight+bias", f"{OURS}input_layernorm.weight+bias"),
        (f"{_ATTENTION}{{q,k,v}}_proj.weight", f"{_OURS}linear_qkv.weight", "rows by group"),
        (f"{_ATTENTION}out_proj.weight", f"{_OURS}linear_proj.weight"),
        (f"{_LAYER}mlp.fc_in.weight+bias", f"{OURS}mlp.linear_fc1.weight+bias"),
        (f"{_LAYER}mlp.fc_out.weight+bias", f"{OURS}mlp.linear_fc2.weight+bias"),
    ]
)


def read(f: Fields) -> Plan:
    hidden, heads = f.integer("n_embd"), f.integer("n_head")
    config: dict[str, Any] = {
        "num_layers": f.integer("n_layer"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("n_positions"),
        "position_embedding_type": "rope",
        "rotary_interleaved": True,
    }
    if f.optional_integer("n_inner") not in (None, 4 * hidden):
        config["ffn_hidden_size"] = f.integer("n_inner")
    turned = f.integer("rotary_dim")
    if turned * heads != hidden:
        config["rotary_percent"] = turned * heads / hidden
    config["activation"] = f.choice("activation_function", _GELU)
    config |= {"parallel_attention_mlp": True, "parallel_shared_layernorm": True}
    config |= {"mlp_bias": True, "output_layer_bias": True}
    config["layernorm_epsilon"] = f.number("layer_norm_epsilon")
    config |= dropouts(f, "resid_pdrop", "embd_pdrop")
    if f.number("attn_pdrop"):
        config["attention_dropout"] = f.number("attn_pdrop")
    f.must_be("tie_word_embeddings", False)
    if f.number("initializer_range") != 0.02:
        config["init_method_std"] = f.number("initializer_range")
    f.must_be("rotary", True)
    f.must_be("scale_attn_weights", True)
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm", shared=True),
        rows=ROWS,
        tied=tied(config),
        ignored=("transformer.h.*.attn.bias", "transformer.h.*.attn.masked_bias"),
    )


FAMILY = Family("gptj", "GPT-J", ("GPTJForCausalLM",), DEFAULTS, read, limits="tied embeddings")
