"""Nemotron-H 8B: Mamba-2, MLPs and a little attention, each a layer of its own."""

from specc.templates import (
    MLP,
    AttentionLayer,
    HybridModel,
    HybridStack,
    LanguageModelEmbedding,
    MambaLayer,
    MambaMixer,
    MLPLayer,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerConfig,
)

config = TransformerConfig(
    num_layers=52,
    # M: Mamba-2, *: attention, -: MLP
    hybrid_layer_pattern="M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M*-M-M-M-M-M-",
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    kv_channels=128,
    mamba_num_heads=128,
    mamba_head_dim=64,
    mamba_num_groups=8,
    mamba_state_dim=128,
    ffn_hidden_size=21504,
    activation="squared_relu",
    vocab_size=131072,
    max_position_embeddings=8192,
    position_embedding_type="none",
)

nemotron_h = ModuleSpec(
    HybridModel,
    params={"config": config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            HybridStack,
            submodules={
                "mamba_layer": ModuleSpec(
                    MambaLayer,
                    submodules={"norm": ModuleSpec(RMSNorm), "mixer": ModuleSpec(MambaMixer)},
                ),
                "attention_layer": ModuleSpec(
                    AttentionLayer,
                    submodules={
                        "input_layernorm": ModuleSpec(RMSNorm),
                        "self_attention": ModuleSpec(SelfAttention),
                    },
                ),
                "mlp_layer": ModuleSpec(
                    MLPLayer,
                    submodules={"pre_mlp_layernorm": ModuleSpec(RMSNorm), "mlp": ModuleSpec(MLP)},
                ),
                "final_layernorm": ModuleSpec(RMSNorm),
            },
        ),
        "output_layer": ModuleSpec(OutputLayer),
    },
)
