"""Which fields go with a rotary base of the layers that have a window."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelParallelConfig


def local_base_mistakes(config: ModelParallelConfig) -> Iterator[tuple[str, str]]:
    """What does not fit to `rotary_base_local`, each with what would."""
    if config.rotary_base_local is None:
        return
    if config.position_embedding_type != "rope" or config.window_size is None:
        yield (
            "`rotary_base_local` is the base of layers with a window, and there are no rotary "
            "positions or no windows",
            'set `position_embedding_type="rope"` and `window_size`, or leave it out',
        )
    for name in ("mtp_num_layers", "hybrid_layer_pattern"):
        if getattr(config, name) is not None:
            yield (
                f"`rotary_base_local` and `{name}` are set, and only TransformerBlock has a table "
                "for each base",
                "leave one of them out",
            )
    if config.multi_latent_attention:
        yield (
            "`rotary_base_local` is set, and latent attention has no windows",
            "leave it out",
        )
