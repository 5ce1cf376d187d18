"""GPT-2 small, 124,439,808 parameters.

Radford et al., "Language Models are Unsupervised Multitask Learners" (2019): table 2 has 12 layers
of 768; section 2.2 a vocabulary of 50,257 and 1024 places; section 2.3 the norm before each half
and after the last layer, and weights of residual projections scaled by 1 / sqrt(residual layers).
config.json of openai-community/gpt2: n_layer 12, n_embd 768, n_head 12, n_positions 1024,
vocab_size 50257, activation_function gelu_new (GELU by tanh), layer_norm_epsilon 1e-05,
embd_pdrop, resid_pdrop and attn_pdrop 0.1, initializer_range 0.02. n_inner is not set: 4 * n_embd.
Biases everywhere; the output layer is the embedding (modeling_gpt2.py of transformers).
"""

from published_parts import decoder

from specc.templates import LayerNorm, TransformerConfig

config = TransformerConfig(
    num_layers=12,
    hidden_size=768,
    num_attention_heads=12,
    vocab_size=50257,
    max_position_embeddings=1024,
    position_embedding_type="learned_absolute",
    activation="gelu_tanh",
    layernorm_epsilon=1e-5,
    add_bias_linear=True,
    hidden_dropout=0.1,
    attention_dropout=0.1,
    untie_embeddings_and_output_weights=False,
)

gpt2_small = decoder(config, norm=LayerNorm)
