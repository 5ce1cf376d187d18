"""The numbers of a page's config that no part of the tree shows."""

from __future__ import annotations

import dataclasses
from typing import Any

from .changed_facts import changed_facts
from .difference import Change, FactChange
from .tree import Part, Value

# Fields of the templates' configs that show as facts, sizes or layers wherever they are read.
SHOWN = {
    *("num_layers", "hidden_size", "num_attention_heads", "num_query_groups", "kv_channels"),
    *("ffn_hidden_size", "vocab_size", "rotary_base", "rotary_percent", "layernorm_epsilon"),
    *(
        "init_method_std",
        "hidden_dropout",
        "attention_dropout",
        "window_size",
        "softmax_scale",
        "window_attn_skip_freq",
    ),
    *("attn_logit_softcapping", "rope_scaling_factor", "rope_scaling_low_freq_factor"),
    *("yarn_beta_fast", "yarn_beta_slow", "yarn_mscale", "yarn_mscale_all_dim"),
    *("rope_scaling_high_freq_factor", "rope_scaling_original_max_position_embeddings"),
    # Of experts and their routers.
    *("num_moe_experts", "moe_router_topk", "moe_layer_freq", "moe_ffn_hidden_size"),
    *("moe_shared_expert_intermediate_size", "moe_aux_loss_coeff", "moe_z_loss_coeff"),
    *("moe_router_num_groups", "moe_router_group_topk", "moe_router_topk_scaling_factor"),
    *("moe_router_bias_update_rate", "moe_input_jitter_eps", "moe_expert_capacity_factor"),
    # Of latent attention and of tokens predicted ahead.
    *("q_lora_rank", "kv_lora_rank", "qk_head_dim", "qk_pos_emb_head_dim", "v_head_dim"),
    *("mtp_num_layers", "mtp_loss_scaling_factor"),
    # Of recurrent mixers.
    *("mamba_state_dim", "mamba_head_dim", "mamba_num_groups", "mamba_num_heads"),
    *("linear_key_head_dim", "linear_value_head_dim", "linear_conv_kernel_dim"),
    *("linear_num_key_heads", "linear_num_value_heads"),
}


def config_numbers(config: Any, root: Part) -> tuple[tuple[str, Value], ...]:
    """Those fields of which no part of the tree says anything, as far as can be told."""
    told = {value for _, _, part in root.walk() for _, value in part.facts}
    told |= {part.times for _, _, part in root.walk()}
    return tuple(
        (name, value)
        for name, value in all_numbers(config)
        if name not in SHOWN and (isinstance(value, bool) or value in (0, 1) or value not in told)
    )


def config_changes(
    before: tuple[tuple[str, Value], ...], after: tuple[tuple[str, Value], ...], root: Change
) -> tuple[FactChange, ...]:
    """The fields that differ, of two configs with all their fields, apart from those that the
    difference of the parts tells.

    A field is told by a fact that changes from the same value to the same value. Where the parts
    do not differ at all, every field counts.
    """
    changes = tuple(changed_facts(before, after))
    if root.empty:
        return changes
    told = {(f.before, f.after) for change in root.walk() for f in change.facts}
    return tuple(
        change
        for change in changes
        if change.name not in SHOWN and (change.before, change.after) not in told
    )


def all_numbers(config: Any) -> tuple[tuple[str, Value], ...]:
    """By the fields' names, in their order."""
    found: list[tuple[str, Value]] = []
    if config is None:
        return ()
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if _is_plain(value):
            found.append((field.name, tuple(value) if isinstance(value, list) else value))
    return tuple(found)


def _is_plain(value: Any) -> bool:
    if isinstance(value, (tuple, list)):
        return all(type(v) is type(value[0]) and _is_plain(v) for v in value)
    return value is None or isinstance(value, (bool, int, float, str))
