"""DeepSeek-V3 without its layer that predicts a further token, 671,026,404,352 parameters and the
14,848 biases of its routers.

DeepSeek-AI, "DeepSeek-V3 Technical Report" (arXiv 2412.19437), section 4.2: 61 layers of 7168, 128
heads of 128, KV compression 512, query compression 1536, 64 decoupled channels, experts in all
layers but the first three, 1 shared and 256 routed ones of 2048, 8 of them in at most 4 groups
activated; 671B parameters, of which 37B are activated; sequences of 4K; bias update speed 0.001,
alpha 0.0001; deviation 0.006. config.json of deepseek-ai/DeepSeek-V3: intermediate_size 18432,
first_k_dense_replace 3, n_group 8, routed_scaling_factor 2.5, scoring_func sigmoid, rope_theta
10000, rope_scaling yarn by 40 with mscale 1.0 and mscale_all_dim 1.0, rms_norm_eps 1e-06,
vocab_size 129280.
"""

from published_parts import decoder

from specc.templates import (
    MLP,
    MLASelfAttention,
    ModuleSpec,
    MoELayer,
    RMSNorm,
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
    rotary_base=10000.0,
    rope_scaling="yarn",
    rope_scaling_factor=40.0,
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
    moe_layer_freq=(0,) * 3 + (1,) * 58,
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
)


def layer(mlp: type) -> ModuleSpec:
    norm = ModuleSpec(RMSNorm)
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


deepseek_v3 = decoder(config, layer=layer(MLP), moe_layer=layer(MoELayer))
