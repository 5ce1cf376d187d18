"""What no template can express yet, by the field of a config that asks for it."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

BEYOND: dict[str, str] = {
    "vision_config": "a model with a vision tower is no text decoder",
    "image_size": "a model of images is no text decoder",
    "is_encoder_decoder": "a model with an encoder is no text decoder",
    "type_vocab_size": "an encoder of BERT's kind is no text decoder",
    "index_topk": "attention to tokens that an indexer chooses is not supported",
    "sparse_attention_config": "sparse attention is not supported",
    "compress_ratios": "attention to compressed tokens is not supported",
    "block_configs": "layers that each have a shape of their own are not supported",
    "blocksparse_block_size": "attention to blocks of tokens is not supported",
    "attention_value_scale": "a scale of the values is not supported",
    "norm_head": "an output layer that normalises its weight is not supported",
    "z_loss_weight": "Baichuan 2's output layer normalises its weight, which is not supported",
    "attn_config": "attention described by a config of its own (DBRX, MPT) is not supported",
    "input_jitter_noise": "a sparse mixer as router is not supported",
    "use_mixed_mlp_moe": "a norm of q and k behind their rotation is not supported",
    "scale_depth": "a scaling of positions by `longrope` is not supported",
    "share_expert_dim": "Step's experts and heads by kind of layer are not supported",
}
"""Looked at in this order, for families that specc does not know."""


def beyond(values: Mapping[str, Any]) -> tuple[str, str] | None:
    """The field that asks for what is not there, and why it is refused; None where none does."""
    for name, why in BEYOND.items():
        value = values.get(name)
        if value is not None and value is not False:
            return name, why
    return None
