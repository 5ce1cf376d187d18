"""The routers that are compared with Megatron-Core's: fields that both configs call the same."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import torch

EXPERTS, VOCABULARY, LENGTH = 8, 61, 12
SIZES: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "num_query_groups": 2,
    "ffn_hidden_size": 48,
    "moe_ffn_hidden_size": 24,
}
NONE = {"moe_router_load_balancing_type": "none"}
DEEPSEEK = {
    "moe_router_score_function": "sigmoid",
    "moe_router_topk": 4,
    "moe_router_num_groups": 4,
    "moe_router_group_topk": 2,
    "moe_router_topk_scaling_factor": 2.5,
    "moe_router_enable_expert_bias": True,
    "moe_aux_loss_coeff": 0.5,
    "moe_router_load_balancing_type": "seq_aux_loss",
}
ROUTERS: dict[str, dict[str, Any]] = {
    "mixtral": NONE,
    "aux loss": {"moe_aux_loss_coeff": 0.5},
    "global aux loss": {
        "moe_aux_loss_coeff": 0.5,
        "moe_router_load_balancing_type": "global_aux_loss",
    },
    "z-loss": NONE | {"moe_z_loss_coeff": 0.3},
    "softmax first": {
        "moe_router_pre_softmax": True,
        "moe_aux_loss_coeff": 0.5,
        "moe_router_load_balancing_type": "seq_aux_loss",
    },
    "deepseek": DEEPSEEK,
    "capacity": NONE | {"moe_expert_capacity_factor": 0.75},
    "padded": NONE | {"moe_expert_capacity_factor": 0.75, "moe_pad_expert_input_to_capacity": True},
    "top 1 on the input": NONE
    | {"moe_router_topk": 1, "moe_router_pre_softmax": True, "moe_apply_probs_on_input": True},
    "shared": NONE | {"moe_shared_expert_intermediate_size": 40},
    "shared, gated": NONE
    | {"moe_shared_expert_intermediate_size": 40, "moe_shared_expert_gate": True},
}
# Those that are compared in float64 too: what both programs compute, without their rounding.
EXACT = ("mixtral", "aux loss", "softmax first", "deepseek", "shared, gated")


@contextmanager
def doubles() -> Iterator[None]:
    """What casts to float32 casts to float64."""
    before = torch.Tensor.float
    torch.Tensor.float = torch.Tensor.double  # type: ignore[method-assign, assignment]
    try:
        yield
    finally:
        torch.Tensor.float = before  # type: ignore[method-assign]
