"""StarCoder 2: layer norms, biases everywhere, an MLP without a gate."""

from __future__ import annotations

from ..decoder import (
    LAYER,
    OURS,
    attention_rows,
    biases,
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

DEFAULTS = {
    "vocab_size": 49152,
    "hidden_size": 3072,
    "intermediate_size": 12288,
    "num_hidden_layers": 30,
    "num_attention_heads": 24,
    "num_key_value_heads": 2,
    "hidden_act": "gelu_pytorch_tanh",
    "max_position_embeddings": 4096,
    "initializer_range": 0.018042,
    "norm_epsilon": 1e-5,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "sliding_window": None,
    "attention_dropout": 0.0,
    "residual_dropout": 0.0,
    "embedding_dropout": 0.0,
    "use_bias": True,
}
_GELU = {"gelu_pytorch_tanh": "gelu_tanh", "gelu_new": "gelu_tanh", "gelu": "gelu"}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", _GELU)
    config |= common(f, epsilon="norm_epsilon")
    config |= dropouts(f, "residual_dropout", "embedding_dropout")
    bias = f.flag("use_bias")
    config |= biases(qkv=bias, out=bias, mlp=bias)
    config |= windows(f.optional_integer("sliding_window"), [1] * config["num_layers"])
    linear = "weight+bias" if bias else "weight"
    after = "post_attention_layernorm"
    return Plan(
        config,
        Part("LayerNorm"),
        layer("LayerNorm"),
        rows=(
            *rows(
                [
                    ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
                    ("model.norm.weight+bias", "decoder.final_layernorm.weight+bias"),
                    ("lm_head.weight", "output_layer.weight"),
                    (f"{LAYER}input_layernorm.weight+bias", f"{OURS}input_layernorm.weight+bias"),
                    (f"{LAYER}{after}.weight+bias", f"{OURS}pre_mlp_layernorm.weight+bias"),
                    (f"{LAYER}mlp.c_fc.{linear}", f"{OURS}mlp.linear_fc1.{linear}"),
                    (f"{LAYER}mlp.c_proj.{linear}", f"{OURS}mlp.linear_fc2.{linear}"),
                ]
            ),
            *attention_rows(qkv_bias=bias, out_bias=bias),
        ),
        tied=tied(config),
        ignored=("model.layers.*.self_attn.rotary_emb.inv_freq",),
    )


FAMILY = Family("starcoder2", "StarCoder 2", ("Starcoder2ForCausalLM",), DEFAULTS, read)
