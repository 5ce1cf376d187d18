"""Which fields go with the prediction of further tokens."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelParallelConfig


def further_token_mistakes(config: ModelParallelConfig) -> Iterator[tuple[str, str]]:
    """What does not fit to `mtp_num_layers`, each with what would."""
    if config.mtp_num_layers is None:
        return
    if config.position_embedding_type not in ("rope", "none"):
        yield (
            "positions are learned, and `mtp_num_layers` is set: a further token's place would "
            "be added to its embedding a second time",
            'set `position_embedding_type="rope"` or "none"',
        )
    for name in ("final_logit_softcapping", "logits_multiplier"):
        if getattr(config, name) is not None:
            yield (
                f"`{name}` and `mtp_num_layers` are set, and further tokens are predicted by the "
                "output layer as it is",
                "leave one of them out",
            )
