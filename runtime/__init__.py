"""specc.runtime: what a page imports. Needs torch and nothing else."""

from typing import TYPE_CHECKING, Any

from .attention import attention
from .causal_conv import CausalConv1d
from .collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from .delta_rule import gated_delta_rule
from .dropout import Dropout, set_dropout_step
from .embedding import PositionEmbedding, VocabParallelEmbedding
from .expert_linear import GroupedColumnParallelLinear, GroupedRowParallelLinear
from .gated_norm import GatedRMSNorm
from .gradients import clip_gradients, sum_replicated_gradients
from .grouped import grouped_linear
from .head_parameter import head_parameter
from .heads_norm import HeadsRMSNorm
from .linear import ColumnParallelLinear, Linear, RowParallelLinear, gather_positions
from .loss import cross_entropy, linear_cross_entropy, local_loss
from .materialize import materialize
from .mesh import Axis, Mesh
from .micro_batch import Turn, begin_micro_batch
from .moe_capacity import expert_capacity, within_capacity
from .moe_dispatch import all_tokens, combine, dispatch, own_tokens
from .moe_jitter import Jitter
from .moe_losses import AuxLoss, GlobalAuxLoss, SequenceAuxLoss, ZLoss
from .moe_router import ExpertLoad, finish_step
from .moe_routing import group_limited_topk, normalized, router_logits
from .multi_token import MultiTokenLoss, next_labels, tokens_ahead
from .norm import LayerNorm, RMSNorm
from .parameters import (
    Constant,
    LocalPart,
    Normal,
    ParameterRecord,
    Uniform,
    declare,
    full_tensors,
    load_full_tensors,
    local_part,
    parameter_table,
)
from .positions import Positions
from .rotary import (
    LinearScaling,
    Llama3Scaling,
    YarnScaling,
    apply_rotary,
    rotary_tables,
)
from .ssd import ssd
from .vocab_parallel import softcap
from .whole_sequence import own_places, whole_sequence

if TYPE_CHECKING:
    from .data_parallel import accumulate, shard


def __getattr__(name: str) -> Any:
    # FSDP takes 0.7 s to import, and a page that is compiled or built has no use for it.
    if name in ("accumulate", "shard"):
        from . import data_parallel

        return getattr(data_parallel, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "AuxLoss",
    "Axis",
    "CausalConv1d",
    "ColumnParallelLinear",
    "Constant",
    "Dropout",
    "ExpertLoad",
    "GatedRMSNorm",
    "GlobalAuxLoss",
    "GroupedColumnParallelLinear",
    "GroupedRowParallelLinear",
    "HeadsRMSNorm",
    "Jitter",
    "LayerNorm",
    "Linear",
    "LinearScaling",
    "Llama3Scaling",
    "LocalPart",
    "Mesh",
    "MultiTokenLoss",
    "Normal",
    "ParameterRecord",
    "PositionEmbedding",
    "Positions",
    "RMSNorm",
    "RowParallelLinear",
    "SequenceAuxLoss",
    "Turn",
    "Uniform",
    "VocabParallelEmbedding",
    "YarnScaling",
    "ZLoss",
    "accumulate",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "all_tokens",
    "apply_rotary",
    "attention",
    "begin_micro_batch",
    "clip_gradients",
    "combine",
    "cross_entropy",
    "declare",
    "dispatch",
    "expert_capacity",
    "finish_step",
    "full_tensors",
    "gated_delta_rule",
    "gather_positions",
    "group_limited_topk",
    "grouped_linear",
    "head_parameter",
    "linear_cross_entropy",
    "load_full_tensors",
    "local_loss",
    "local_part",
    "materialize",
    "next_labels",
    "normalized",
    "own_places",
    "own_tokens",
    "parameter_table",
    "reduce_scatter",
    "rotary_tables",
    "router_logits",
    "set_dropout_step",
    "shard",
    "softcap",
    "ssd",
    "sum_replicated_gradients",
    "tokens_ahead",
    "whole_sequence",
    "within_capacity",
]
