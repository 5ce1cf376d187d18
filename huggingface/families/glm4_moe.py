"""GLM-4.5: dense first layers, then experts chosen by a sigmoid with a bias, and shared ones."""

from __future__ import annotations

from ..decoder import (
    IGNORED,
    NORMS,
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
from ..experts import expert_rows, first_dense, shared_rows, sigmoid_router
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope

DEFAULTS = {
    "vocab_size": 151552,
    "hidden_size": 4096,
    "intermediate_size": 10944,
    "num_hidden_layers": 46,
    "num_attention_heads": 96,
    "partial_rotary_factor": 0.5,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "max_position_embeddings": 131072,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "moe_intermediate_size": 1408,
    "num_experts_per_tok": 8,
    "n_shared_experts": 1,
    "n_routed_experts": 128,
    "routed_scaling_factor": 1.0,
    "n_group": 1,
    "topk_group": 1,
    "first_k_dense_replace": 1,
    "norm_topk_prob": True,
    "use_qk_norm": False,
}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    bias, qk_norm = f.flag("attention_bias"), f.flag("use_qk_norm")
    config |= biases(qkv=bias, out=False, mlp=False)
    if qk_norm:
        config["qk_layernorm"] = True
    config["num_moe_experts"] = f.integer("n_routed_experts")
    config["moe_ffn_hidden_size"] = f.integer("moe_intermediate_size")
    shared = f.count("n_shared_experts")
    if shared:
        config["moe_shared_expert_intermediate_size"] = shared * config["moe_ffn_hidden_size"]
    config |= sigmoid_router(f)
    dense = f.count("first_k_dense_replace")
    config |= first_dense(config, dense)
    # A head for the tokens after the next, which transformers leaves out as well.
    f.harmless("num_nextn_predict_layers")
    norm = "RMSNorm" if qk_norm else None
    experts = layer("RMSNorm", "MoELayer", qk_norm=norm)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", qk_norm=norm) if dense else experts,
        rows=(
            *OUTER,
            *NORMS,
            *attention_rows(qkv_bias=bias, qk_norm=qk_norm),
            *(gated_mlp_rows() if dense else ()),
            *expert_rows(bias="e_score_correction_bias"),
            *(shared_rows("shared_experts") if shared else ()),
        ),
        moe_layer=experts if dense else None,
        tied=tied(config),
        ignored=(*IGNORED, f"model.layers.{config['num_layers']}."),
    )


FAMILY = Family(
    "glm4_moe",
    "GLM-4 MoE",
    ("Glm4MoeForCausalLM",),
    DEFAULTS,
    read,
    limits="`norm_topk_prob` false; the heads for further tokens",
)
