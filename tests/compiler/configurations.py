"""Random configurations of the templates: every option of every module, drawn by hypothesis."""

from __future__ import annotations

from typing import Any

from hypothesis import strategies as st

from specc.templates import (
    MLP,
    GPTModel,
    IdentityOp,
    LanguageModelEmbedding,
    LayerNorm,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

VOCAB = 31
LENGTH = 12

# Each option and the values that it is drawn from: the table of pairs is over these.
OPTIONS: dict[str, tuple[Any, ...]] = {
    "num_layers": (1, 2, 3),
    "heads": ((4, None), (4, 2), (4, 1), (2, 2)),  # query heads and key/value heads
    "kv_channels": (None, 16),
    "ffn_hidden_size": (None, 24),
    "position": ("learned_absolute", "rope", "none", None),
    "rotary": ({}, {"rotary_percent": 0.5}, {"rotary_interleaved": True}, {"rotary_base": 500.0}),
    "scaling": (None, "linear", "llama3", "yarn"),
    "activation": ("gelu", "gelu_tanh", "swiglu", "geglu", "geglu_tanh", "squared_relu"),
    "norm": ("LayerNorm", "RMSNorm", "named", "identity"),
    "zero_centered": (False, True),
    "bias": (None, "add_bias_linear", "add_qkv_bias"),
    "qk_layernorm": (False, True),
    "window": (None, 4, (4, 2), (4, "pattern")),
    "softcap": (None, 20.0),
    "softmax": (None, "off-by-one", "learnable"),
    "scale": (None, 0.3),
    "gate": (False, True),
    "hidden_dropout": (0.0, 0.2),
    "attention_dropout": (0.0, 0.2),
    "untied": (False, True),
}


def options() -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: st.sampled_from(values) for name, values in OPTIONS.items()})


def config_of(drawn: dict[str, Any]) -> TransformerConfig:
    heads, groups = drawn["heads"]
    fields: dict[str, Any] = {
        "num_layers": drawn["num_layers"],
        "hidden_size": 32,
        "num_attention_heads": heads,
        "vocab_size": VOCAB,
        "max_position_embeddings": 16,
        "activation": drawn["activation"],
        "hidden_dropout": drawn["hidden_dropout"],
        "attention_dropout": drawn["attention_dropout"],
        "init_method_std": 0.2,
        "attention_output_gate": drawn["gate"],
        "untie_embeddings_and_output_weights": drawn["untied"],
    }
    optional = {
        "num_query_groups": groups,
        "kv_channels": drawn["kv_channels"],
        "ffn_hidden_size": drawn["ffn_hidden_size"],
        "position_embedding_type": drawn["position"],
        "attn_logit_softcapping": drawn["softcap"],
        "softmax_scale": drawn["scale"],
        "softmax_type": drawn["softmax"],
    }
    fields |= {name: value for name, value in optional.items() if value is not None}
    if drawn["position"] == "rope":
        fields |= drawn["rotary"]
        if drawn["scaling"] is not None:
            fields |= {"rope_scaling": drawn["scaling"], "rope_scaling_factor": 4.0}
        if drawn["scaling"] in ("llama3", "yarn"):
            fields["rope_scaling_original_max_position_embeddings"] = 8
    if drawn["norm"] in ("LayerNorm", "RMSNorm"):
        fields["normalization"] = drawn["norm"]
    if drawn["norm"] != "identity":
        fields["layernorm_epsilon"] = 1e-3  # a field that nothing reads is refused
    if drawn["norm"] != "identity" and drawn["zero_centered"]:
        fields["layernorm_zero_centered_gamma"] = True
    if drawn["bias"] is not None:
        fields[drawn["bias"]] = True
    if drawn["qk_layernorm"]:
        fields["qk_layernorm"] = True
    window = drawn["window"]
    if isinstance(window, tuple):
        skip = window[1] if window[1] != "pattern" else tuple(i % 2 for i in range(drawn["num_layers"]))
        fields |= {"window_size": window[0], "window_attn_skip_freq": skip}
    elif window is not None:
        fields["window_size"] = window
    return TransformerConfig(**fields)


def spec_of(drawn: dict[str, Any]) -> ModuleSpec:
    """A GPTModel with every drawn option; norms by the config, by name, or left out."""
    layer: dict[str, Any] = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    block: dict[str, Any] = {}
    if drawn["norm"] == "named":
        layer |= {"input_layernorm": ModuleSpec(RMSNorm), "pre_mlp_layernorm": ModuleSpec(LayerNorm)}
        block["final_layernorm"] = ModuleSpec(RMSNorm)
    elif drawn["norm"] == "identity":
        layer |= {"input_layernorm": IdentityOp, "pre_mlp_layernorm": ModuleSpec(IdentityOp)}
        block["final_layernorm"] = IdentityOp
        if drawn["qk_layernorm"]:
            norms = {"q_layernorm": ModuleSpec(RMSNorm), "k_layernorm": ModuleSpec(LayerNorm)}
            layer["self_attention"] = ModuleSpec(SelfAttention, submodules=norms)
    return ModuleSpec(
        GPTModel,
        params={"config": config_of(drawn)},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(
                TransformerBlock,
                params={"layer_spec": ModuleSpec(TransformerLayer, submodules=layer)},
                submodules=block,
            ),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )
