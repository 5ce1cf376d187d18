"""OLMo 2, whose norms stand behind each half; OLMoE. Both norm q and k over all heads."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    SILU,
    attention_rows,
    biases,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
)
from ..experts import expert_rows, router_losses, softmax_router
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 50304,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "hidden_act": "silu",
    "max_position_embeddings": 2048,
    "initializer_range": 0.02,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "rms_norm_eps": 1e-5,
}
OLMOE = DEFAULTS | {
    "hidden_size": 2048,
    "intermediate_size": 2048,
    "num_hidden_layers": 16,
    "num_attention_heads": 16,
    "max_position_embeddings": 4096,
    "clip_qkv": None,
    "num_experts_per_tok": 8,
    "num_experts": 64,
    "router_aux_loss_coef": 0.01,
    "norm_topk_prob": False,
}
_BEHIND = rows(
    [
        (f"{LAYER}post_attention_layernorm.weight", f"{OURS}post_self_attn_layernorm.weight"),
        (f"{LAYER}post_feedforward_layernorm.weight", f"{OURS}post_mlp_layernorm.weight"),
    ]
)


def read(f: Fields) -> Plan:
    config = sizes(f, head_dim=False) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    config["qk_layernorm"] = True
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=bias, mlp=False)
    attention = attention_rows(qkv_bias=bias, out_bias=bias, qk_norm=True)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", qk_norm="HeadsRMSNorm", before=False, after=True),
        rows=(*OUTER, *_BEHIND, *attention, *gated_mlp_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


def read_olmoe(f: Fields) -> Plan:
    config = sizes(f, head_dim=False) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    config["qk_layernorm"] = True
    f.must_be("attention_bias", False)
    if f.optional_number("clip_qkv") is not None:
        config["clip_qkv"] = f.number("clip_qkv")
    config["num_moe_experts"] = f.integer("num_experts")
    config |= softmax_router(f) | router_losses(f)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", "MoELayer", qk_norm="HeadsRMSNorm"),
        rows=(*OUTER, *NORMS, *attention_rows(qk_norm=True), *expert_rows()),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILIES = (
    Family("olmo2", "OLMo 2", ("Olmo2ForCausalLM",), DEFAULTS, read),
    Family("olmoe", "OLMoE", ("OlmoeForCausalLM",), OLMOE, read_olmoe),
)
