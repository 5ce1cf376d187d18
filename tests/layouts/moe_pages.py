"""Pages with experts, small, one for each kind of router: Mixtral's and DeepSeek-V3's, with other
fields."""

from __future__ import annotations

from functools import cache
from pathlib import Path
from typing import Any

from specc.compiler.generate import generate
from specc.compiler.target import parse_target

HERE = Path(__file__).parent
EXAMPLES = HERE.parents[1] / "generated_examples"
SIZES: dict[str, Any] = {
    "num_layers": 4,
    "hidden_size": 32,
    "num_attention_heads": 8,
    "num_query_groups": 4,
    "ffn_hidden_size": 48,
    "vocab_size": 131,
    "max_position_embeddings": 16,
    "num_moe_experts": 8,
    "init_method_std": 0.1,
    "moe_aux_loss_coeff": 0.5,
}
SIGMOID: dict[str, Any] = {
    "moe_router_score_function": "sigmoid",
    "moe_router_enable_expert_bias": True,
    "moe_router_bias_update_rate": 0.01,
    "moe_router_load_balancing_type": "seq_aux_loss",
}
GROUPS: dict[str, Any] = {
    "moe_router_topk": 4,
    "moe_router_num_groups": 4,
    "moe_router_group_topk": 2,
    "moe_router_topk_scaling_factor": 2.5,
}
CAPACITY: dict[str, Any] = {"moe_expert_capacity_factor": 0.75}
KINDS: dict[str, dict[str, Any]] = {
    "mixtral": {},
    "softmax_first": {
        "moe_router_pre_softmax": True,
        "moe_router_load_balancing_type": "seq_aux_loss",
        "moe_z_loss_coeff": 0.3,
        "moe_input_jitter_eps": 0.1,
    },
    "global_balance": {"moe_router_load_balancing_type": "global_aux_loss"},
    "sigmoid": SIGMOID | {"moe_shared_expert_intermediate_size": 40},
    "groups": SIGMOID | GROUPS,
    "groups_capacity": SIGMOID | GROUPS | CAPACITY,
    "capacity": CAPACITY,
    "capacity_by_position": SIGMOID | CAPACITY | {"moe_token_drop_policy": "position"},
    "padded": SIGMOID | CAPACITY | {"moe_pad_expert_input_to_capacity": True},
    "one_on_the_input": {
        "moe_router_topk": 1,
        "moe_router_pre_softmax": True,
        "moe_apply_probs_on_input": True,
    },
    "shared_gated": {
        "moe_router_dtype": "fp64",
        "moe_shared_expert_intermediate_size": 40,
        "moe_shared_expert_gate": True,
    },
}

DEEPSEEK: dict[str, dict[str, Any]] = {"deepseek": {}, "deepseek_capacity": CAPACITY}


@cache
def compiled(kind: str) -> str:
    """The text of the page."""
    fields = DEEPSEEK[kind] if kind in DEEPSEEK else SIZES | KINDS[kind]
    overrides = [f"config.{name}={value}" for name, value in fields.items()]
    target = (
        parse_target("deepseek_spec.py:deepseek", HERE)
        if kind in DEEPSEEK
        else parse_target("mixtral_spec.py", EXAMPLES)
    )
    return generate(target, overrides, validate=False).compiled.body
