"""Qwen3-30B-A3B, 30,532,122,624 parameters.

Qwen team, "Qwen3 Technical Report" (arXiv 2505.09388), table 2: 48 layers, 32 heads over 4
key/value heads, 128 experts of which 8 are activated; section 2: no shared experts, and the load
balancing loss of the global batch. Model card of Qwen/Qwen3-30B-A3B: 30.5B parameters in total,
3.3B activated, 29.9B non-embedding. config.json: hidden_size 2048, moe_intermediate_size 768,
head_dim 128, vocab_size 151936, max_position_embeddings 40960, rope_theta 1000000.0, rms_norm_eps
1e-06, norm_topk_prob true, router_aux_loss_coef 0.001, initializer_range 0.02,
tie_word_embeddings false.
"""

from published_parts import decoder

from specc.templates import MoELayer, TransformerConfig

config = TransformerConfig(
    num_layers=48,
    hidden_size=2048,
    num_attention_heads=32,
    num_query_groups=4,
    kv_channels=128,
    moe_ffn_hidden_size=768,
    vocab_size=151936,
    max_position_embeddings=40960,
    position_embedding_type="rope",
    rotary_base=1000000.0,
    activation="swiglu",
    layernorm_epsilon=1e-6,
    qk_layernorm=True,
    num_moe_experts=128,
    moe_router_topk=8,
    moe_router_load_balancing_type="global_aux_loss",
    moe_aux_loss_coeff=0.001,
)

qwen3_30b_a3b = decoder(config, mlp=MoELayer)
