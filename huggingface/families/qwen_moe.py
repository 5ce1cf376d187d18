"""Qwen 2 and Qwen 3 with experts; those of Qwen 2 beside a shared one with a gate."""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    NORMS,
    OUTER,
    SILU,
    attention_rows,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
    windows,
)
from ..experts import (
    expert_rows,
    layer_frequency,
    router_losses,
    shared_rows,
    softmax_router,
    sparse_layers,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import Row
from . import qwen2

SHARED = {
    "decoder_sparse_step": 1,
    "mlp_only_layers": None,
    "norm_topk_prob": False,
    "router_aux_loss_coef": 0.001,
    "num_hidden_layers": 24,
    "hidden_size": 2048,
}
QWEN2 = (
    qwen2.DEFAULTS
    | SHARED
    | {
        "intermediate_size": 5632,
        "num_attention_heads": 16,
        "num_key_value_heads": 16,
        "moe_intermediate_size": 1408,
        "shared_expert_intermediate_size": 5632,
        "num_experts_per_tok": 4,
        "num_experts": 60,
        "qkv_bias": True,
    }
)
QWEN3 = (
    qwen2.DEFAULTS
    | SHARED
    | {
        "intermediate_size": 6144,
        "num_attention_heads": 32,
        "num_key_value_heads": 4,
        "moe_intermediate_size": 768,
        "num_experts_per_tok": 8,
        "num_experts": 128,
        "attention_bias": False,
    }
)


def read_qwen2(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    bias = f.flag("qkv_bias")
    config |= {"add_qkv_bias": True} if bias else {}
    shared: dict[str, Any] = {
        "moe_shared_expert_intermediate_size": f.integer("shared_expert_intermediate_size"),
        "moe_shared_expert_gate": True,
    }
    rows = (*attention_rows(qkv_bias=bias), *shared_rows("shared_expert", "shared_expert_gate"))
    return _plan(f, config, shared, rows, qk_norm=False)


def read_qwen3(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    f.must_be("attention_bias", False)
    config["qk_layernorm"] = True
    return _plan(f, config, {}, attention_rows(qk_norm=True), qk_norm=True)


def _plan(
    f: Fields, config: dict[str, Any], shared: dict[str, Any], rows: tuple[Row, ...], qk_norm: bool
) -> Plan:
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    # Unlike the models without experts, these have a window in every layer or in none.
    size = f.optional_integer("sliding_window") if f.flag("use_sliding_window") else None
    f.harmless("sliding_window", "max_window_layers")
    f.must_be("layer_types", None)
    config |= windows(size, [1] * config["num_layers"])
    config["num_moe_experts"] = f.integer("num_experts")
    config["moe_ffn_hidden_size"] = f.integer("moe_intermediate_size")
    config |= softmax_router(f) | router_losses(f) | shared
    sparse = sparse_layers(f, config)
    config |= layer_frequency(sparse)
    if all(sparse):  # the width of the layers without experts, of which there are none
        del config["ffn_hidden_size"]
    norm = "RMSNorm" if qk_norm else None
    experts = layer("RMSNorm", "MoELayer", qk_norm=norm)
    dense = layer("RMSNorm", qk_norm=norm)
    mlp = () if all(sparse) else gated_mlp_rows()
    return Plan(
        config,
        Part("RMSNorm"),
        experts if all(sparse) else dense,
        rows=(*OUTER, *NORMS, *rows, *mlp, *expert_rows()),
        moe_layer=None if all(sparse) else experts,
        tied=tied(config),
        ignored=IGNORED,
    )


QWEN2_MOE = Family("qwen2_moe", "Qwen 2 MoE", ("Qwen2MoeForCausalLM",), QWEN2, read_qwen2)
QWEN3_MOE = Family("qwen3_moe", "Qwen 3 MoE", ("Qwen3MoeForCausalLM",), QWEN3, read_qwen3)
