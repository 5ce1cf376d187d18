"""Mixtral 8x7B v0.1, 46,702,792,704 parameters.

Jiang et al., "Mixtral of Experts" (arXiv 2401.04088), table 1: dim 4096, n_layers 32, head_dim 128,
hidden_dim 14336, n_heads 32, n_kv_heads 8, context_len 32768, vocab_size 32000, num_experts 8,
top_k_experts 2; section 1: 47B parameters, of which a token uses 13B. config.json of
mistralai/Mixtral-8x7B-v0.1: rope_theta 1000000.0, rms_norm_eps 1e-05, sliding_window null,
router_aux_loss_coef 0.02, initializer_range 0.02, tie_word_embeddings false.
"""

from published_parts import decoder

from specc.templates import MoELayer, TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    ffn_hidden_size=14336,
    vocab_size=32000,
    max_position_embeddings=32768,
    position_embedding_type="rope",
    rotary_base=1000000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
    num_moe_experts=8,
    moe_router_topk=2,
    moe_aux_loss_coeff=0.02,
)

mixtral_8x7b = decoder(config, mlp=MoELayer)
