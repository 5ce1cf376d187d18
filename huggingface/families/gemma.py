"""Gemma 1 to 3 (text): norms whose weight is 1 + w, a scaled embedding.

The second has soft caps, the third norms of q and k and a rotary base of its own for windows.
"""

from __future__ import annotations

from typing import Any

from ..decoder import (
    ATTENTION,
    IGNORED,
    NORMS,
    OUTER,
    SANDWICH,
    attention_rows,
    biases,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
    windows,
)
from ..fields import Fields
from ..plan import Family, Part, Plan, Written
from ..rope import rope

DEFAULTS = {
    "vocab_size": 256000,
    "hidden_size": 3072,
    "intermediate_size": 24576,
    "num_hidden_layers": 28,
    "num_attention_heads": 16,
    "num_key_value_heads": 16,
    "head_dim": 256,
    "hidden_act": "gelu_pytorch_tanh",
    "hidden_activation": None,
    "max_position_embeddings": 8192,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": True,
    "rope_theta": 10000.0,
    "attention_bias": False,
    "attention_dropout": 0.0,
}
GEMMA2 = {
    **{name: value for name, value in DEFAULTS.items() if name != "hidden_act"},
    "hidden_size": 2304,
    "intermediate_size": 9216,
    "num_hidden_layers": 26,
    "num_attention_heads": 8,
    "num_key_value_heads": 4,
    "hidden_activation": "gelu_pytorch_tanh",
    "query_pre_attn_scalar": 256,
    "sliding_window": 4096,
    "layer_types": None,
    "final_logit_softcapping": 30.0,
    "attn_logit_softcapping": 50.0,
}
GEMMA3 = GEMMA2 | {
    "vocab_size": 262208,
    "max_position_embeddings": 131072,
    "rope_theta": 1000000.0,
    "rope_scaling": None,
    "rope_local_base_freq": 10000.0,
    "final_logit_softcapping": None,
    "attn_logit_softcapping": None,
    "use_bidirectional_attention": False,
    "sliding_window_pattern": 6,
}
_GEGLU = {"gelu_pytorch_tanh": "geglu_tanh", "gelu": "geglu", "gelu_new": "geglu_tanh"}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    # The first files said "gelu" and meant the tanh formula, which the model was trained with.
    if f.raw("hidden_activation") is None and f.raw("hidden_act") == "gelu":
        config["activation"] = "geglu_tanh"
    else:
        asked = "hidden_act" if f.raw("hidden_activation") is None else "hidden_activation"
        config["activation"] = f.choice(asked, _GEGLU)
    bias = _shared(f, config)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(
            *OUTER,
            *NORMS,
            *attention_rows(qkv_bias=bias, out_bias=bias),
            *gated_mlp_rows(),
        ),
        tied=tied(config),
        ignored=IGNORED,
    )


def read_gemma2(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    return _sandwich(f, config, 2, qk_norm=False)


def read_gemma3(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    local = f.number("rope_local_base_freq")
    if local != f.number("rope_theta") or "rope_scaling" in config:  # which is of the other one
        config["rotary_base_local"] = local
    f.must_be("use_bidirectional_attention", False)
    every = f.integer("sliding_window_pattern")
    f.harmless("_sliding_window_pattern")  # what transformers writes for itself
    return _sandwich(f, config, every, qk_norm=True)


def _sandwich(f: Fields, config: dict[str, Any], every: int, *, qk_norm: bool) -> Plan:
    config["activation"] = f.choice("hidden_activation", _GEGLU)
    f.harmless("hidden_act")  # beside hidden_activation, which is what is read
    bias = _shared(f, config)
    if qk_norm:
        config["qk_layernorm"] = True
    config["softmax_scale"] = root(f, "query_pre_attn_scalar")
    for name in ("attn_logit_softcapping", "final_logit_softcapping"):
        if f.optional_number(name) is not None:
            config[name] = f.number(name)
    windowed = window_layers(f, config["num_layers"], every)
    config |= windows(f.optional_integer("sliding_window"), windowed)
    if "window_size" not in config:
        config.pop("rotary_base_local", None)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", after=True, qk_norm="RMSNorm" if qk_norm else None),
        rows=(
            *OUTER,
            *SANDWICH,
            *attention_rows(qkv_bias=bias, out_bias=bias, qk_norm=qk_norm),
            *gated_mlp_rows(),
        ),
        tied=tied(config),
        ignored=IGNORED,
    )


def window_layers(f: Fields, count: int, every: int) -> list[int]:
    """A 1 for each layer with a window: by `layer_types`, else all but each ``every``-th."""
    kinds = f.names("layer_types", ATTENTION, count)
    if kinds is None:
        return [int((i + 1) % every != 0) for i in range(count)]
    return [ATTENTION[kind] for kind in kinds]


def root(f: Fields, name: str) -> Written:
    """1 / sqrt of a field, as a spec would have it."""
    value = f.number(name)
    return Written(value**-0.5, f"{value:g}**-0.5")


def _shared(f: Fields, config: dict[str, Any]) -> bool:
    config["layernorm_zero_centered_gamma"] = True
    config |= common(f)
    hidden = config["hidden_size"]
    config["embedding_multiplier"] = Written(hidden**0.5, f"{hidden}**0.5")
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=bias, mlp=False)
    return bias


FAMILIES = (
    Family("gemma", "Gemma", ("GemmaForCausalLM",), DEFAULTS, read),
    Family("gemma2", "Gemma 2", ("Gemma2ForCausalLM",), GEMMA2, read_gemma2),
    Family("gemma3_text", "Gemma 3", ("Gemma3ForCausalLM",), GEMMA3, read_gemma3),
)
