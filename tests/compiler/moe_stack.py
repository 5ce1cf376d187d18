"""A small decoder of dense layers and layers of experts."""

from __future__ import annotations

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    MoELayer,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)


def stack(has_experts: list[int]) -> ModuleSpec:
    """``has_experts``: 1 or 0 for each layer."""
    config = TransformerConfig(
        num_layers=len(has_experts),
        hidden_size=16,
        num_attention_heads=2,
        ffn_hidden_size=32,
        vocab_size=64,
        max_position_embeddings=16,
        position_embedding_type="rope",
        num_moe_experts=4,
        moe_layer_freq=has_experts,
    )
    norm = ModuleSpec(RMSNorm)

    def layer(mlp: type) -> ModuleSpec:
        return ModuleSpec(
            TransformerLayer,
            submodules={
                "input_layernorm": norm,
                "self_attention": ModuleSpec(SelfAttention),
                "pre_mlp_layernorm": norm,
                "mlp": ModuleSpec(mlp),
            },
        )

    decoder = ModuleSpec(
        TransformerBlock,
        params={"layer_spec": layer(MLP), "moe_layer_spec": layer(MoELayer)},
        submodules={"final_layernorm": norm},
    )
    children = {
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": decoder,
        "output_layer": ModuleSpec(OutputLayer),
    }
    return ModuleSpec(GPTModel, params={"config": config}, submodules=children)
