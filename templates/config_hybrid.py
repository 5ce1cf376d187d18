"""Which fields of a hybrid stack go together."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .config import ModelParallelConfig

LAYER_SLOTS = {
    "M": "mamba_layer",
    "G": "gdn_layer",
    "*": "attention_layer",
    "+": "mla_layer",
    "-": "mlp_layer",
    "E": "moe_layer",
}
"""The symbols of a pattern, Megatron-Core's, each with the child of HybridStack that it names."""

_ELSEWHERE = {  # symbols of Megatron-Core's that are none here, and what to do about it
    "|": "leave it out: a pipeline's stages are chosen at launch, by `--layers-per-stage`",
    "/": "leave it out: further tokens are not predicted by a hybrid stack",
    "D": "sparse attention is not there; attention is `*`, and with latents `+`",
}


def hybrid_mistakes(config: ModelParallelConfig) -> Iterator[tuple[str, str]]:
    """What does not fit to `hybrid_layer_pattern`, each with what would."""
    pattern = config.hybrid_layer_pattern
    if pattern is None:
        return
    known = ", ".join(f"`{symbol}`" for symbol in LAYER_SLOTS)
    for symbol in dict.fromkeys(pattern):
        if symbol not in LAYER_SLOTS:
            yield (
                f"`hybrid_layer_pattern` has {symbol!r}, which is no kind of layer",
                _ELSEWHERE.get(symbol, f"a layer is one of {known}"),
            )
    if len(pattern) != config.num_layers:
        yield (
            f"`hybrid_layer_pattern` has {len(pattern)} symbols and `num_layers` is "
            f"{config.num_layers}",
            f"every symbol is a layer: set num_layers={len(pattern)}",
        )
    if "E" in pattern and config.num_moe_experts is None:
        yield (
            "`hybrid_layer_pattern` has layers of experts, and `num_moe_experts` is None",
            "set `num_moe_experts`, or write `-` for an MLP",
        )
    if config.mtp_num_layers is not None:
        yield (
            "`hybrid_layer_pattern` and `mtp_num_layers` are set",
            "leave one of them out: further tokens are not predicted by a hybrid stack",
        )
