"""MiniMax-M2: experts chosen by a sigmoid with a bias, q and k normed over all heads."""

from __future__ import annotations

from ..decoder import IGNORED, NORMS, OUTER, SILU, attention_rows, common, layer, sizes, tied
from ..experts import expert_rows
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope

DEFAULTS = {
    "attention_dropout": 0.0,
    "initializer_range": 0.02,
    "rope_scaling": None,
    "tie_word_embeddings": False,
}


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    head_dim = config.get("kv_channels", config["hidden_size"] // config["num_attention_heads"])
    if f.integer("rotary_dim") != head_dim:
        config["rotary_percent"] = f.integer("rotary_dim") / head_dim
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    f.must_be("attn_type_list", [1] * config["num_layers"], why="1 is full attention, for all")
    f.must_be("use_qk_norm", True)
    f.must_be("qk_norm_type", "per_layer")
    f.must_be("scoring_func", "sigmoid")
    f.must_be("use_routing_bias", True)
    f.must_be("shared_intermediate_size", 0)
    # Heads for further tokens, beside the model.
    f.harmless("use_mtp", "num_mtp_modules", "mtp_transformer_layers")
    config |= {
        "qk_layernorm": True,
        "num_moe_experts": f.integer("num_local_experts"),
        "moe_router_topk": f.integer("num_experts_per_tok"),
        "moe_router_score_function": "sigmoid",
        "moe_router_enable_expert_bias": True,
    }
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", "MoELayer", qk_norm="HeadsRMSNorm"),
        rows=(
            *OUTER,
            *NORMS,
            *attention_rows(qk_norm=True),
            *expert_rows(
                "block_sparse_moe.",
                bias="e_score_correction_bias",
                bias_in_router=False,
                names=("w1", "w3", "w2"),
            ),
        ),
        tied=tied(config),
        ignored=(*IGNORED, f"model.layers.{config['num_layers']}."),
    )


FAMILY = Family(
    "minimax_m2", "MiniMax-M2", ("MiniMaxM2ForCausalLM",), DEFAULTS, read, in_transformers=False
)
