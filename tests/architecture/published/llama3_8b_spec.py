"""Llama 3 8B, 8,030,261,248 parameters.

Grattafiori et al., "The Llama 3 Herd of Models" (arXiv 2407.21783), table 3: 32 layers of 4096, FFN
14,336, 32 heads over 8 key/value heads, SwiGLU, vocabulary 128,000 (128,256 with the special
tokens), rotary base 500,000; section 3.4: a context of 8,192 in the first stage. config.json of
meta-llama/Meta-Llama-3-8B: vocab_size 128256, max_position_embeddings 8192, rms_norm_eps 1e-05,
initializer_range 0.02, tie_word_embeddings false.
"""

from published_parts import decoder

from specc.templates import TransformerConfig

config = TransformerConfig(
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    ffn_hidden_size=14336,
    vocab_size=128256,
    max_position_embeddings=8192,
    position_embedding_type="rope",
    rotary_base=500000.0,
    activation="swiglu",
    layernorm_epsilon=1e-5,
)

llama3_8b = decoder(config)
