"""DeepSeek-V3's shape, small: latent attention, a dense layer, groups of experts, a shared one,
and two tokens predicted beyond the next one."""

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    MLASelfAttention,
    ModuleSpec,
    MoELayer,
    MultiTokenPredictionBlock,
    MultiTokenPredictionLayer,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

config = TransformerConfig(
    num_layers=4,
    hidden_size=32,
    num_attention_heads=4,
    ffn_hidden_size=48,
    vocab_size=131,
    max_position_embeddings=16,
    position_embedding_type="rope",
    rotary_interleaved=True,
    rope_scaling="yarn",
    rope_scaling_factor=4,
    rope_scaling_original_max_position_embeddings=8,
    yarn_mscale_all_dim=1.0,
    activation="swiglu",
    normalization="RMSNorm",
    init_method_std=0.1,
    multi_latent_attention=True,
    q_lora_rank=20,
    kv_lora_rank=12,
    qk_head_dim=8,
    qk_pos_emb_head_dim=4,
    v_head_dim=6,
    qk_layernorm=True,
    num_moe_experts=8,
    moe_layer_freq=[0, 1, 1, 1],
    moe_ffn_hidden_size=24,
    moe_router_topk=4,
    moe_router_score_function="sigmoid",
    moe_router_num_groups=4,
    moe_router_group_topk=2,
    moe_router_topk_scaling_factor=2.5,
    moe_router_enable_expert_bias=True,
    moe_router_bias_update_rate=0.01,
    moe_router_load_balancing_type="seq_aux_loss",
    moe_aux_loss_coeff=0.01,
    moe_shared_expert_intermediate_size=24,
    mtp_num_layers=2,
    mtp_loss_scaling_factor=0.5,
)


def layer(mlp: type) -> ModuleSpec:
    return ModuleSpec(
        TransformerLayer,
        submodules={"self_attention": ModuleSpec(MLASelfAttention), "mlp": ModuleSpec(mlp)},
    )


further = ModuleSpec(
    MultiTokenPredictionLayer, submodules={"transformer_layer": layer(MoELayer)}
)
deepseek = ModuleSpec(
    GPTModel,
    params={"config": config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock,
            params={"layer_spec": layer(MLP), "moe_layer_spec": layer(MoELayer)},
        ),
        "mtp": ModuleSpec(MultiTokenPredictionBlock, params={"layer_spec": further}),
    },
)
