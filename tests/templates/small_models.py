"""Small models for tests, by spec."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    OutputLayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

VOCABULARY, LENGTH = 61, 12


def config(**changed: Any) -> TransformerConfig:
    fields: dict[str, Any] = {
        "num_layers": 2,
        "hidden_size": 32,
        "num_attention_heads": 4,
        "vocab_size": VOCABULARY,
        "max_position_embeddings": 16,
    }
    return TransformerConfig(**(fields | changed))


def gpt_spec(config: TransformerConfig) -> ModuleSpec:
    """The seed's dialect; norms are left to the config."""
    layer = ModuleSpec(
        TransformerLayer,
        submodules={"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)},
    )
    return ModuleSpec(
        GPTModel,
        params={"config": config},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": layer}),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )


def tokens(batch: int = 2, length: int = LENGTH, vocabulary: int = VOCABULARY) -> Tensor:
    """[batch, length + 1]: inputs and, shifted, labels."""
    generator = torch.Generator().manual_seed(7)
    return torch.randint(0, vocabulary, (batch, length + 1), generator=generator)
