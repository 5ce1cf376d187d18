"""StarCoder2 3B, 3,030,371,328 parameters: GPT-2's halves with rotary positions and few groups.

Lozhkov et al., "StarCoder 2 and The Stack v2" (arXiv 2402.19173), section 6 and its table of
architectures: 30 layers of 3072, 24 heads over 2 key/value heads, vocabulary 49,152, a window of
4096 in 16,384 places. config.json of bigcode/starcoder2-3b: intermediate_size 12288, hidden_act
gelu_pytorch_tanh, norm_type layer_norm, norm_epsilon 1e-05, use_bias true, rope_theta
999999.4420358813, initializer_range 0.018042, embedding_dropout, residual_dropout and
attention_dropout 0.1; the output layer is the embedding.
"""

from published_parts import decoder

from specc.templates import LayerNorm, TransformerConfig

config = TransformerConfig(
    num_layers=30,
    hidden_size=3072,
    num_attention_heads=24,
    num_query_groups=2,
    ffn_hidden_size=12288,
    vocab_size=49152,
    max_position_embeddings=16384,
    position_embedding_type="rope",
    rotary_base=999999.4420358813,
    activation="gelu_tanh",
    layernorm_epsilon=1e-5,
    add_bias_linear=True,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    window_size=4096,
    init_method_std=0.018042,
    untie_embeddings_and_output_weights=False,
)

starcoder2_3b = decoder(config, norm=LayerNorm)
