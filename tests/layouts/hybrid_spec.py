"""A hybrid stack, small: every kind of layer, experts among them."""

from specc.templates import (
    MLP,
    AttentionLayer,
    GatedDeltaNet,
    GatedDeltaNetLayer,
    HybridModel,
    HybridStack,
    MambaLayer,
    MambaMixer,
    MLPLayer,
    ModuleSpec,
    MoELayer,
    SelfAttention,
    TransformerConfig,
)

config = TransformerConfig(
    num_layers=6,
    hybrid_layer_pattern="M-G*ME",
    hidden_size=32,
    num_attention_heads=8,
    num_query_groups=4,
    mamba_num_heads=8,
    mamba_head_dim=8,
    mamba_num_groups=4,
    mamba_state_dim=6,
    linear_num_key_heads=4,
    linear_num_value_heads=8,
    linear_key_head_dim=10,
    linear_value_head_dim=8,
    ffn_hidden_size=48,
    vocab_size=131,
    max_position_embeddings=16,
    position_embedding_type="rope",
    activation="squared_relu",
    normalization="RMSNorm",
    init_method_std=0.1,
    num_moe_experts=8,
    moe_ffn_hidden_size=24,
    moe_router_topk=2,
    moe_aux_loss_coeff=0.5,
)

hybrid = ModuleSpec(
    HybridModel,
    params={"config": config},
    submodules={
        "decoder": ModuleSpec(
            HybridStack,
            submodules={
                "mamba_layer": ModuleSpec(MambaLayer, submodules={"mixer": MambaMixer}),
                "gdn_layer": ModuleSpec(GatedDeltaNetLayer, submodules={"mixer": GatedDeltaNet}),
                "attention_layer": ModuleSpec(
                    AttentionLayer, submodules={"self_attention": SelfAttention}
                ),
                "mlp_layer": ModuleSpec(MLPLayer, submodules={"mlp": MLP}),
                "moe_layer": ModuleSpec(MLPLayer, submodules={"mlp": MoELayer}),
            },
        )
    },
)
