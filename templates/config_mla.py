"""Which fields go with latent attention."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelParallelConfig


def latent_mistakes(config: ModelParallelConfig) -> Iterator[tuple[str, str]]:
    """What does not fit among the fields of latent attention, each with what would."""
    if not config.multi_latent_attention:
        return
    if config.position_embedding_type != "rope":
        yield (
            "`multi_latent_attention` rotates channels of their own, and "
            f"`position_embedding_type` is {config.position_embedding_type!r}",
            'set `position_embedding_type="rope"`',
        )
    if config.qk_pos_emb_head_dim % 2:
        yield (
            f"`qk_pos_emb_head_dim` is {config.qk_pos_emb_head_dim}, and positions turn channels "
            "in pairs",
            "make it even",
        )
    if config.softmax_scale is not None and config.yarn_mscale_all_dim > 0.0:
        yield (
            "`softmax_scale` is set, and so is `yarn_mscale_all_dim`, which makes one",
            "leave one of them out",
        )
