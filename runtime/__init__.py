"""specc.runtime: what a page imports. Needs torch and nothing else."""

from typing import TYPE_CHECKING, Any

from .attention import attention
from .collectives import all_gather, all_reduce, all_to_all, reduce_scatter
from .dropout import Dropout, set_dropout_step
from .embedding import PositionEmbedding, VocabParallelEmbedding
from .gradients import clip_gradients, sum_replicated_gradients
from .linear import ColumnParallelLinear, RowParallelLinear
from .loss import cross_entropy, linear_cross_entropy, local_loss
from .materialize import materialize
from .mesh import Axis, Mesh
from .norm import LayerNorm, RMSNorm
from .parameters import (
    Constant,
    LocalPart,
    Normal,
    ParameterRecord,
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

if TYPE_CHECKING:
    from .data_parallel import accumulate, shard


def __getattr__(name: str) -> Any:
    # FSDP takes 0.7 s to import, and a page that is compiled or built has no use for it.
    if name in ("accumulate", "shard"):
        from . import data_parallel

        return getattr(data_parallel, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


__all__ = [
    "Axis",
    "ColumnParallelLinear",
    "Constant",
    "Dropout",
    "LayerNorm",
    "LinearScaling",
    "Llama3Scaling",
    "LocalPart",
    "Mesh",
    "Normal",
    "ParameterRecord",
    "PositionEmbedding",
    "Positions",
    "RMSNorm",
    "RowParallelLinear",
    "VocabParallelEmbedding",
    "YarnScaling",
    "accumulate",
    "all_gather",
    "all_reduce",
    "all_to_all",
    "apply_rotary",
    "attention",
    "clip_gradients",
    "cross_entropy",
    "declare",
    "full_tensors",
    "linear_cross_entropy",
    "load_full_tensors",
    "local_loss",
    "local_part",
    "materialize",
    "parameter_table",
    "reduce_scatter",
    "rotary_tables",
    "set_dropout_step",
    "shard",
    "sum_replicated_gradients",
]
