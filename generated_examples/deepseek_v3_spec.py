"""DeepSeek-V3: latent attention, 256 experts of which a token goes to 8, one token predicted ahead.

DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), sections 2 and 4.2, and config.json
of deepseek-ai/DeepSeek-V3. Sequences are those of pretraining, 4096; YaRN reaches 163,840.
"""

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    MLASelfAttention,
    ModuleSpec,
    MoELayer,
    MultiTokenPredictionBlock,
    MultiTokenPredictionLayer,
    OutputLayer,
    RMSNorm,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

config = TransformerConfig(
    num_layers=61,
    hidden_size=7168,
    num_attention_heads=128,
    ffn_hidden_size=18432,
    vocab_size=129280,
    max_position_embeddings=4096,
    position_embedding_type="rope",
    rotary_base=10000,
    rotary_interleaved=True,
    rope_scaling="yarn",
    rope_scaling_factor=40,
    rope_scaling_original_max_position_embeddings=4096,
    yarn_mscale=1.0,
    yarn_mscale_all_dim=1.0,
    activation="swiglu",
    layernorm_epsilon=1e-6,
    init_method_std=0.006,
    multi_latent_attention=True,
    q_lora_rank=1536,
    kv_lora_rank=512,
    qk_head_dim=128,
    qk_pos_emb_head_dim=64,
    v_head_dim=128,
    qk_layernorm=True,
    num_moe_experts=256,
    moe_layer_freq=[0] * 3 + [1] * 58,
    moe_ffn_hidden_size=2048,
    moe_router_topk=8,
    moe_router_score_function="sigmoid",
    moe_router_num_groups=8,
    moe_router_group_topk=4,
    moe_router_topk_scaling_factor=2.5,
    moe_router_enable_expert_bias=True,
    moe_router_bias_update_rate=0.001,
    moe_router_load_balancing_type="seq_aux_loss",
    moe_aux_loss_coeff=0.0001,
    moe_shared_expert_intermediate_size=2048,
    mtp_num_layers=1,
    mtp_loss_scaling_factor=0.3,  # of the first 10T tokens; 0.1 after
)

norm = ModuleSpec(RMSNorm)


def layer(mlp: type) -> ModuleSpec:
    latents = {"q_layernorm": norm, "kv_layernorm": norm}
    return ModuleSpec(
        TransformerLayer,
        submodules={
            "input_layernorm": norm,
            "self_attention": ModuleSpec(MLASelfAttention, submodules=latents),
            "pre_mlp_layernorm": norm,
            "mlp": ModuleSpec(mlp),
        },
    )


further = ModuleSpec(
    MultiTokenPredictionLayer,
    submodules={
        "enorm": norm,
        "hnorm": norm,
        "transformer_layer": layer(MoELayer),
        "layer_norm": norm,
    },
)

deepseek_v3 = ModuleSpec(
    GPTModel,
    params={"config": config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock,
            params={"layer_spec": layer(MLP), "moe_layer_spec": layer(MoELayer)},
            submodules={"final_layernorm": norm},
        ),
        "output_layer": ModuleSpec(OutputLayer),
        "mtp": ModuleSpec(MultiTokenPredictionBlock, params={"layer_spec": further}),
    },
)
