"""Qwen3-Next: a gated delta net in three of four layers, attention with a gate, experts.

A layer of theirs is two of a hybrid stack: what mixes tokens, and what works on each.
"""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    LAYER,
    OUTER,
    SILU,
    attention_rows,
    common,
    gated_mlp_rows,
    sizes,
    tied,
)
from ..experts import expert_rows, router_losses, shared_rows, softmax_router, sparse_layers
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows

DEFAULTS = {
    "vocab_size": 151936,
    "hidden_size": 2048,
    "intermediate_size": 5632,
    "num_hidden_layers": 48,
    "num_attention_heads": 16,
    "num_key_value_heads": 2,
    "hidden_act": "silu",
    "max_position_embeddings": 32768,
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-6,
    "tie_word_embeddings": False,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "partial_rotary_factor": 0.25,
    "attention_bias": False,
    "attention_dropout": 0.0,
    "head_dim": 256,
    "linear_conv_kernel_dim": 4,
    "linear_key_head_dim": 128,
    "linear_value_head_dim": 128,
    "linear_num_key_heads": 16,
    "linear_num_value_heads": 32,
    "decoder_sparse_step": 1,
    "moe_intermediate_size": 512,
    "shared_expert_intermediate_size": 512,
    "num_experts_per_tok": 10,
    "num_experts": 512,
    "norm_topk_prob": True,
    "router_aux_loss_coef": 0.001,
    "mlp_only_layers": [],
    "layer_types": None,
    "full_attention_interval": 4,
}
_KINDS = {"linear_attention": "G", "full_attention": "*"}
_FIRST, _SECOND = "decoder.layers.(2*).", "decoder.layers.(2*+1)."
_LINEAR = ("linear_conv_kernel_dim", "linear_key_head_dim", "linear_value_head_dim",
           "linear_num_key_heads", "linear_num_value_heads")  # fmt: skip
_NET = f"{LAYER}linear_attn."


def read(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    count = config["num_layers"]
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    f.must_be("attention_bias", False)
    f.must_be("use_sliding_window", False)
    config |= {
        "layernorm_zero_centered_gamma": True,
        "qk_layernorm": True,
        "attention_output_gate": True,
    }
    config |= {name: f.integer(name) for name in _LINEAR}
    config["num_moe_experts"] = f.integer("num_experts")
    config["moe_ffn_hidden_size"] = f.integer("moe_intermediate_size")
    config |= softmax_router(f) | router_losses(f)
    config |= {
        "moe_shared_expert_intermediate_size": f.integer("shared_expert_intermediate_size"),
        "moe_shared_expert_gate": True,
    }
    sparse = sparse_layers(f, config)
    kinds = f.names("layer_types", _KINDS, count)
    every = f.integer("full_attention_interval")
    mixers = [_KINDS[kind] for kind in kinds or ()] or [
        "G" if (i + 1) % every else "*" for i in range(count)
    ]
    halves = zip(mixers, ("E" if has_experts else "-" for has_experts in sparse), strict=True)
    pattern = "".join(mixer + mlp for mixer, mlp in halves)
    if all(sparse):
        del config["ffn_hidden_size"]
    config = {"num_layers": 2 * count, "hybrid_layer_pattern": pattern} | {
        name: value for name, value in config.items() if name != "num_layers"
    }
    return Plan(
        config,
        Part("RMSNorm"),
        None,
        rows=_rows(pattern),
        tied=tied(config),
        ignored=(*IGNORED, "mtp."),
        stack=_stack(pattern),
        mixer=_numbers(config),
    )


def _stack(pattern: str) -> dict[str, Part]:
    norm = Part("RMSNorm")
    attention = Part("SelfAttention", {"q_layernorm": norm, "k_layernorm": norm})
    layers = {
        "gdn_layer": ("G", "GatedDeltaNetLayer", {"norm": norm, "mixer": Part("GatedDeltaNet")}),
        "attention_layer": (
            "*",
            "AttentionLayer",
            {"input_layernorm": norm, "self_attention": attention},
        ),
        "mlp_layer": ("-", "MLPLayer", {"pre_mlp_layernorm": norm, "mlp": Part("MLP")}),
        "moe_layer": ("E", "MLPLayer", {"pre_mlp_layernorm": norm, "mlp": Part("MoELayer")}),
    }
    return {
        slot: Part(module, children)
        for slot, (symbol, module, children) in layers.items()
        if symbol in pattern
    }


def _numbers(config: dict[str, Any]) -> dict[str, Any]:
    groups, values = config["linear_num_key_heads"], config["linear_num_value_heads"]
    key = config["linear_key_head_dim"]
    width, heads = config["linear_value_head_dim"] * (values // groups), values // groups
    return {
        "mixer_groups": groups,
        "in_parts": (2 * key + 2 * width, 2 * heads),
        "conv_parts": (key, key, width),
    }


def _rows(pattern: str) -> Any:
    net = f"{_FIRST}mixer."
    found = [
        *OUTER,
        *rows(
            [
                (f"{LAYER}input_layernorm.weight", f"{_FIRST}norm.weight"),
                (f"{LAYER}post_attention_layernorm.weight", f"{_SECOND}pre_mlp_layernorm.weight"),
                (
                    f"{_NET}in_proj_{{qkvz,ba}}.weight",
                    f"{net}in_proj.weight",
                    "mixer's rows by group",
                ),
                (f"{_NET}conv1d.weight", f"{net}conv1d.weight", "convolution by group"),
                (f"{_NET}dt_bias", f"{net}dt_bias"),
                (f"{_NET}A_log", f"{net}A_log"),
                (f"{_NET}norm.weight", f"{net}out_norm.weight"),
                (f"{_NET}out_proj.weight", f"{net}out_proj.weight"),
            ]
        ),
    ]
    if "*" in pattern:
        layout = "query and gate rows by group"
        found += rows([(f"{LAYER}input_layernorm.weight", f"{_FIRST}input_layernorm.weight")])
        found += attention_rows(ours=f"{_FIRST}self_attention.", qk_norm=True, layout=layout)
    if "-" in pattern:
        found += gated_mlp_rows(ours=f"{_SECOND}mlp.")
    if "E" in pattern:
        found += expert_rows(layer=_SECOND)
        found += shared_rows("shared_expert", "shared_expert_gate", layer=_SECOND)
    return tuple(found)


FAMILY = Family(
    "qwen3_next",
    "Qwen3-Next",
    ("Qwen3NextForCausalLM",),
    DEFAULTS,
    read,
    limits="the heads for further tokens",
)
