"""DeepSeek-V2 and V3, Kimi K2, Moonlight: latent attention, dense first layers, experts.

Without the heads for further tokens that V3's files hold behind the last layer: transformers leaves
them out too.
"""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    SILU,
    common,
    gated_mlp_rows,
    tied,
)
from ..experts import expert_rows, first_dense, shared_rows, sigmoid_router
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import Row, rows

_SHARED = {
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "kv_lora_rank": 512,
    "q_lora_rank": 1536,
    "qk_nope_head_dim": 128,
    "qk_rope_head_dim": 64,
    "v_head_dim": 128,
    "moe_layer_freq": 1,
}
V2 = _SHARED | {
    "vocab_size": 32000,
    "hidden_size": 4096,
    "intermediate_size": 11008,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": None,
    "max_position_embeddings": 2048,
    "mlp_bias": False,
    "aux_loss_alpha": 0.001,
    "seq_aux": True,
    "first_k_dense_replace": 0,
    "n_group": None,
    "n_routed_experts": 64,
    "n_shared_experts": 2,
    "routed_scaling_factor": 1.0,
    "topk_group": None,
    "topk_method": "greedy",
    "num_experts_per_tok": None,
    "norm_topk_prob": False,
    "moe_intermediate_size": 1407,
}
V3 = _SHARED | {
    "vocab_size": 129280,
    "hidden_size": 7168,
    "intermediate_size": 18432,
    "moe_intermediate_size": 2048,
    "num_hidden_layers": 61,
    "num_attention_heads": 128,
    "num_key_value_heads": 128,
    "n_shared_experts": 1,
    "n_routed_experts": 256,
    "routed_scaling_factor": 2.5,
    "n_group": 8,
    "topk_group": 4,
    "num_experts_per_tok": 8,
    "first_k_dense_replace": 3,
    "norm_topk_prob": True,
    "max_position_embeddings": 4096,
    "rope_interleave": True,
}
_LATENT_EPSILON = 1e-6  # fixed in the family's own class, whatever rms_norm_eps says


def read_v2(f: Fields) -> Plan:
    config = _attention(f) | {"rotary_interleaved": True}
    f.must_be("mlp_bias", False)
    config |= _experts(f)
    topk = f.integer("num_experts_per_tok")
    config |= {"moe_router_topk": topk, "moe_router_pre_softmax": True}
    f.must_be("norm_topk_prob", False)
    f.must_be("scoring_func", "softmax")
    if f.choice("topk_method", {"greedy": "", "group_limited_greedy": "groups"}):
        groups, seen = f.integer("n_group"), f.integer("topk_group")
        if groups > 1 and seen != topk:
            f.refuse("topk_group", "a group counts as much as its best expert here, which is "
                     f"supported where it is `num_experts_per_tok`, {topk}")  # fmt: skip
        if groups > 1:
            config |= {"moe_router_num_groups": groups, "moe_router_group_topk": seen}
    f.harmless("n_group", "topk_group")  # a greedy choice has no groups
    if f.number("routed_scaling_factor") != 1:
        config["moe_router_topk_scaling_factor"] = f.number("routed_scaling_factor")
    return _plan(f, config, bias=None)


def read_v3(f: Fields) -> Plan:
    config = _attention(f)
    if f.flag("rope_interleave"):
        config["rotary_interleaved"] = True
    config |= _experts(f) | sigmoid_router(f)
    f.harmless("num_nextn_predict_layers")
    return _plan(f, config, bias="e_score_correction_bias")


def _attention(f: Fields) -> dict[str, Any]:
    heads, theirs = f.integer("num_attention_heads"), f.optional_integer("num_key_value_heads")
    if theirs not in (None, heads):
        f.refuse("num_key_value_heads", f"latent attention has as many as queries, {heads}")
    config: dict[str, Any] = {
        "num_layers": f.integer("num_hidden_layers"),
        "hidden_size": f.integer("hidden_size"),
        "num_attention_heads": heads,
        "ffn_hidden_size": f.integer("intermediate_size"),
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("max_position_embeddings"),
    }
    config |= rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    f.must_be("attention_bias", False)
    config |= {
        "multi_latent_attention": True,
        "kv_lora_rank": f.integer("kv_lora_rank"),
        "qk_head_dim": f.integer("qk_nope_head_dim"),
        "qk_pos_emb_head_dim": f.integer("qk_rope_head_dim"),
        "v_head_dim": f.integer("v_head_dim"),
        "qk_layernorm": True,
    }
    if f.optional_integer("q_lora_rank") is not None:
        config["q_lora_rank"] = f.integer("q_lora_rank")
    if config["layernorm_epsilon"] != _LATENT_EPSILON:
        config["latent_layernorm_epsilon"] = _LATENT_EPSILON
    # What transformers writes again under other names.
    both = config["qk_head_dim"] + config["qk_pos_emb_head_dim"]
    f.must_be("qk_head_dim", both)
    f.must_be("head_dim", config["qk_pos_emb_head_dim"])
    return config


def _experts(f: Fields) -> dict[str, Any]:
    width = f.integer("moe_intermediate_size")
    config: dict[str, Any] = {
        "num_moe_experts": f.integer("n_routed_experts"),
        "moe_ffn_hidden_size": width,
    }
    shared = f.raw("n_shared_experts")
    if shared:
        config["moe_shared_expert_intermediate_size"] = f.integer("n_shared_experts") * width
    f.must_be("moe_layer_freq", 1)
    f.harmless("ep_size")  # how a cluster shared the experts out
    if f.raw("aux_loss_alpha"):
        config["moe_aux_loss_coeff"] = f.number("aux_loss_alpha")
        if f.raw("seq_aux"):
            config["moe_router_load_balancing_type"] = "seq_aux_loss"
    f.harmless("seq_aux")  # of a loss that is left out
    return config


def _plan(f: Fields, config: dict[str, Any], *, bias: str | None) -> Plan:
    dense = f.count("first_k_dense_replace")
    config |= first_dense(config, dense)
    shared = "moe_shared_expert_intermediate_size" in config
    experts = _layer("MoELayer", config)
    return Plan(
        config,
        Part("RMSNorm"),
        _layer("MLP", config) if dense else experts,
        rows=(
            *OUTER,
            *NORMS,
            *_attention_rows(config),
            *(gated_mlp_rows() if dense else ()),
            *expert_rows(bias=bias),
            *(shared_rows("shared_experts") if shared else ()),
        ),
        moe_layer=experts if dense else None,
        tied=tied(config),
        ignored=(*IGNORED, f"model.layers.{config['num_layers']}."),
    )


def _layer(mlp: str, config: dict[str, Any]) -> Part:
    norm = Part("RMSNorm")
    latents = {"q_layernorm": norm} if "q_lora_rank" in config else {}
    return Part(
        "TransformerLayer",
        {
            "input_layernorm": norm,
            "self_attention": Part("MLASelfAttention", latents | {"kv_layernorm": norm}),
            "pre_mlp_layernorm": norm,
            "mlp": Part(mlp),
        },
    )


def _attention_rows(config: dict[str, Any]) -> tuple[Row, ...]:
    names = {
        "kv_a_proj_with_mqa": "linear_kv_down_proj",
        "kv_a_layernorm": "kv_layernorm",
        "kv_b_proj": "linear_kv_up_proj",  # head by head, as ours is
        "o_proj": "linear_proj",
    }
    if "q_lora_rank" in config:
        names |= {
            "q_a_proj": "linear_q_down_proj",
            "q_a_layernorm": "q_layernorm",
            "q_b_proj": "linear_q_up_proj",
        }
    else:
        names["q_proj"] = "linear_q_proj"
    return rows(
        (f"{LAYER}self_attn.{theirs}.weight", f"{OURS}self_attention.{ours}.weight")
        for theirs, ours in names.items()
    )


_GROUPS = "`topk_method` group_limited_greedy, unless `topk_group` is `num_experts_per_tok`"
_HEADS = "the heads for further tokens"
FAMILIES = (
    Family("deepseek_v2", "DeepSeek-V2", ("DeepseekV2ForCausalLM",), V2, read_v2, limits=_GROUPS),
    Family("deepseek_v3", "DeepSeek-V3", ("DeepseekV3ForCausalLM",), V3, read_v3, limits=_HEADS),
    Family("kimi_k2", "Kimi K2", ("DeepseekV3ForCausalLM",), V3, read_v3, limits=_HEADS),
)
