"""Random configurations of the templates: every option of every module, drawn by hypothesis."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from drawn_classes import Bottleneck, MeanLossModel
from hypothesis import strategies as st

from specc.templates import (
    MLP,
    GPTModel,
    GPTModelSubmodules,
    IdentityOp,
    LanguageModelEmbedding,
    LayerNorm,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    SelfAttentionSubmodules,
    TransformerBlock,
    TransformerBlockSubmodules,
    TransformerConfig,
    TransformerLanguageModelOutputLayer,
    TransformerLayer,
    TransformerLayerSubmodules,
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
    "stack": ("one spec", "a list", "two kinds", "two configs"),
    "dialect": ("dict", "dataclass"),
    "root": ("GPTModel", "a user's"),
}


def options() -> st.SearchStrategy[dict[str, Any]]:
    values = {name: st.sampled_from(values) for name, values in OPTIONS.items()}
    return st.fixed_dictionaries(values)


def at_work(drawn: dict[str, Any]) -> set[str]:
    """The drawn options that make a difference beside the others; what is not drawn yet might."""
    names = set(drawn)
    if drawn.get("position", "rope") != "rope":
        names -= {"rotary", "scaling"}
    if drawn.get("norm") == "identity" and drawn.get("qk_layernorm", True) is False:
        names -= {"zero_centered"}
    if drawn.get("root", "GPTModel") != "GPTModel":
        names -= {"untied"}  # its model does not know of ties
    return names


def config_of(drawn: dict[str, Any]) -> TransformerConfig:
    """The config with the drawn options: a field that nothing would read is left out."""
    heads, groups = drawn["heads"]
    working = at_work(drawn)
    fields: dict[str, Any] = {
        "num_layers": drawn["num_layers"],
        "hidden_size": 32,
        "num_attention_heads": heads,
        "vocab_size": VOCAB,
        "max_position_embeddings": 16,
        "hidden_dropout": drawn["hidden_dropout"],
        "attention_dropout": drawn["attention_dropout"],
        "init_method_std": 0.2,
        "attention_output_gate": drawn["gate"],
        "activation": drawn["activation"],
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
    if "untied" in working:
        fields["untie_embeddings_and_output_weights"] = drawn["untied"]
    if "rotary" in working:
        fields |= drawn["rotary"]
        if drawn["scaling"] is not None:
            fields |= {"rope_scaling": drawn["scaling"], "rope_scaling_factor": 4.0}
        if drawn["scaling"] in ("llama3", "yarn"):
            fields["rope_scaling_original_max_position_embeddings"] = 8
    if "zero_centered" in working:
        fields |= {
            "layernorm_epsilon": 1e-3,
            "layernorm_zero_centered_gamma": drawn["zero_centered"],
        }
    if drawn["norm"] in ("LayerNorm", "RMSNorm") and drawn["dialect"] == "dict":
        fields["normalization"] = drawn["norm"]
    if drawn["bias"] is not None:
        fields[drawn["bias"]] = True
    if drawn["qk_layernorm"]:
        fields["qk_layernorm"] = True
    window = drawn["window"]
    if isinstance(window, tuple):
        size, skip = window
        if skip == "pattern":
            skip = tuple(i % 2 for i in range(drawn["num_layers"]))
        fields |= {"window_size": size, "window_attn_skip_freq": skip}
    elif window is not None:
        fields["window_size"] = window
    return TransformerConfig(**fields)


def spec_of(drawn: dict[str, Any]) -> ModuleSpec:
    """A model with every drawn option, in the drawn dialect."""
    config = config_of(drawn)
    attention, layer, block = _norms(drawn)
    by_dataclass = drawn["dialect"] == "dataclass"

    def children(kind: type, named: dict[str, Any]) -> Any:
        return kind(**named) if by_dataclass else named

    layer["self_attention"] = ModuleSpec(
        SelfAttention, submodules=children(SelfAttentionSubmodules, attention) or None
    )
    layer["mlp"] = ModuleSpec(MLP)
    one = ModuleSpec(TransformerLayer, submodules=children(TransformerLayerSubmodules, layer))
    if drawn["stack"] == "two configs":
        mlp = ModuleSpec(MLP, {"config": replace(config, ffn_hidden_size=40, activation="swiglu")})
    else:
        mlp = ModuleSpec(Bottleneck)
    layer = {**layer, "mlp": mlp}
    other = ModuleSpec(TransformerLayer, submodules=children(TransformerLayerSubmodules, layer))

    count = drawn["num_layers"]
    if drawn["stack"] == "one spec":
        params = {"layer_spec": one}
    elif drawn["stack"] == "a list":
        params = {"layer_specs": [one] * count}
    else:
        params = {"layer_specs": [one, other, one][:count]}
    if by_dataclass:
        specs = params.pop("layer_specs", None)
        if specs is not None:
            block["layer_specs"] = specs
        if "final_layernorm" in block:
            block["layer_norm"] = block.pop("final_layernorm")
    ours = drawn["root"] == "GPTModel"
    parts = {
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock, params, children(TransformerBlockSubmodules, block) or None
        ),
        "output_layer": ModuleSpec(OutputLayer if ours else TransformerLanguageModelOutputLayer),
    }
    if ours:
        parts = children(GPTModelSubmodules, parts)
    return ModuleSpec(GPTModel if ours else MeanLossModel, {"config": config}, parts)


def _norms(drawn: dict[str, Any]) -> tuple[dict[str, Any], dict[str, Any], dict[str, Any]]:
    """The norms that the spec names, under attention, layer and block: by the config (in a dict
    they are left out, in a dataclass that would mean none), of two kinds, or none."""
    names = ("q_layernorm", "input_layernorm", "pre_mlp_layernorm", "final_layernorm")
    if drawn["norm"] == "named":
        kinds = [LayerNorm, ModuleSpec(RMSNorm), ModuleSpec(LayerNorm), RMSNorm]
    elif drawn["norm"] == "identity":
        kinds = [RMSNorm, IdentityOp, ModuleSpec(IdentityOp), IdentityOp]
    elif drawn["dialect"] == "dict":
        return {}, {}, {}
    else:
        kinds = [LayerNorm if drawn["norm"] == "LayerNorm" else RMSNorm] * 4
    of_heads, first, second, last = kinds
    attention = {"q_layernorm": of_heads, "k_layernorm": ModuleSpec(LayerNorm)}
    layer = dict(zip(names[1:3], (first, second), strict=True))
    return attention if drawn["qk_layernorm"] else {}, layer, {names[3]: last}
