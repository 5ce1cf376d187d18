"""Which fields of experts go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelParallelConfig


def expert_mistakes(config: ModelParallelConfig) -> Iterator[tuple[str, str]]:
    """What does not fit among the fields of experts, each with what would: nothing without any."""
    experts, topk = config.num_moe_experts, config.moe_router_topk
    if experts is None:
        return
    if topk > experts:
        yield (
            f"`moe_router_topk` is {topk} and `num_moe_experts` is {experts}",
            "a token goes to as many experts as there are at most",
        )
    softmax = config.moe_router_score_function == "softmax"
    if softmax and topk == 1 and not config.moe_router_pre_softmax:
        yield (
            "`moe_router_topk` is 1, and a softmax over one chosen expert is always 1",
            "set `moe_router_pre_softmax`, for a softmax over all experts",
        )
    if config.moe_router_enable_expert_bias and softmax:
        yield (
            "`moe_router_enable_expert_bias` is set, and the scores are a softmax",
            'set `moe_router_score_function="sigmoid"`, or leave the bias out',
        )
    yield from _groups(config, experts, topk)
    frequency = config.moe_layer_freq
    if isinstance(frequency, tuple) and (
        len(frequency) != config.num_layers or any(entry not in (0, 1) for entry in frequency)
    ):
        yield (
            f"`moe_layer_freq` is {frequency} and `num_layers` is {config.num_layers}",
            "give one entry for each layer: 1 for experts, 0 for none",
        )
    if config.moe_pad_expert_input_to_capacity and config.moe_expert_capacity_factor is None:
        yield (
            "`moe_pad_expert_input_to_capacity` is set, and experts have no capacity",
            "set `moe_expert_capacity_factor`",
        )
    if config.moe_apply_probs_on_input and topk > 1:
        yield (
            f"`moe_apply_probs_on_input` is set, and `moe_router_topk` is {topk}",
            "with several experts for a token, leave it out",
        )
    if config.moe_shared_expert_gate and config.moe_shared_expert_intermediate_size is None:
        yield (
            "`moe_shared_expert_gate` is set, and there is no shared expert",
            "set `moe_shared_expert_intermediate_size`, its width",
        )
    if config.moe_router_load_balancing_type == "none" and config.moe_aux_loss_coeff > 0.0:
        yield (
            f"`moe_aux_loss_coeff` is {config.moe_aux_loss_coeff} and "
            '`moe_router_load_balancing_type` is "none"',
            "leave the coefficient out, or name a loss",
        )


def _groups(config: ModelParallelConfig, experts: int, topk: int) -> Iterator[tuple[str, str]]:
    groups, taken = config.moe_router_num_groups, config.moe_router_group_topk
    if (groups is None) != (taken is None):
        yield (
            f"`moe_router_num_groups` is {groups} and `moe_router_group_topk` is {taken}",
            "set both or none",
        )
    elif groups is not None and taken is not None and _unfit(experts, groups, taken, topk):
        yield (
            f"{experts} experts in {groups} groups, of which a token sees {taken}, and "
            f"`moe_router_topk`={topk} do not fit",
            "groups divide the experts; `moe_router_group_topk` divides `moe_router_topk`, and its "
            "groups have as many experts",
        )


def _unfit(experts: int, groups: int, taken: int, topk: int) -> bool:
    seen = taken * (experts // groups)
    return bool(experts % groups or taken > groups or topk % taken or topk > seen)
