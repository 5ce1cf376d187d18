"""gpt-oss: sinks, windows in every second layer, experts with a clamped gate and biases."""

from __future__ import annotations

from ..decoder import (
    ATTENTION,
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    attention_rows,
    common,
    layer,
    sizes,
    tied,
    windows,
)
from ..experts import router_losses
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "num_hidden_layers": 36,
    "num_local_experts": 128,
    "vocab_size": 201088,
    "hidden_size": 2880,
    "intermediate_size": 2880,
    "head_dim": 64,
    "num_attention_heads": 64,
    "num_key_value_heads": 8,
    "sliding_window": 128,
    "rope_theta": 150000.0,
    "tie_word_embeddings": False,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "max_position_embeddings": 131072,
    "rms_norm_eps": 1e-5,
    "rope_scaling": {
        "rope_type": "yarn",
        "factor": 32.0,
        "beta_fast": 32.0,
        "beta_slow": 1.0,
        "truncate": False,
        "original_max_position_embeddings": 4096,
    },
    "attention_dropout": 0.0,
    "num_experts_per_tok": 4,
    "router_aux_loss_coef": 0.9,
    "layer_types": None,
}
_EXPERTS, _OURS = f"{LAYER}mlp.experts.", f"{OURS}mlp.experts."
ROWS = rows(
    [
        (f"{LAYER}self_attn.sinks", f"{OURS}self_attention.softmax_offset"),
        (f"{LAYER}mlp.router.weight+bias", f"{OURS}mlp.router.weight+bias"),
        # Gate and up alternate here too, as columns.
        (f"{_EXPERTS}gate_up_proj[#]", f"{_OURS}linear_fc1.weight", "transposed"),
        (f"{_EXPERTS}gate_up_proj_bias[#]", f"{_OURS}linear_fc1.bias"),
        (f"{_EXPERTS}down_proj[#]", f"{_OURS}linear_fc2.weight", "transposed"),
        (f"{_EXPERTS}down_proj_bias[#]", f"{_OURS}linear_fc2.bias"),
    ]
)


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    f.must_be("hidden_act", "silu")
    # Fixed in the family's own class; some files say it too.
    f.must_be("swiglu_limit", 7.0)
    config |= {
        "activation": "quick_geglu",
        "activation_func_clamp_value": 7.0,
        "glu_linear_offset": 1.0,
        "add_bias_linear": True,
        "softmax_type": "learnable",
    }
    f.must_be("attention_bias", True)
    config |= common(f)
    kinds = f.names("layer_types", ATTENTION, config["num_layers"])
    windowed = [1 - i % 2 for i in range(config["num_layers"])]
    if kinds is not None:
        windowed = [ATTENTION[kind] for kind in kinds]
    config |= windows(f.optional_integer("sliding_window"), windowed)
    config["num_moe_experts"] = f.integer("num_local_experts")
    config["moe_router_topk"] = f.integer("num_experts_per_tok")
    f.must_be("experts_per_token", config["moe_router_topk"])
    config |= router_losses(f)
    f.harmless("initial_context_length")  # rope_scaling says it again
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm", "MoELayer"),
        rows=(*OUTER, *NORMS, *attention_rows(qkv_bias=True, out_bias=True), *ROWS),
        tied=tied(config),
        ignored=IGNORED,
    )


FAMILY = Family("gpt_oss", "gpt-oss", ("GptOssForCausalLM",), DEFAULTS, read)
