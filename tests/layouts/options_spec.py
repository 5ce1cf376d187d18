"""Decoders that have, between them, the options of the templates that know of a layout."""

import dataclasses

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    OutputLayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

# Learned positions, biases, q/k norms, sinks, a gate, a window by layer, dropout, tied embeddings.
learned_config = TransformerConfig(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=8,
    vocab_size=131,
    max_position_embeddings=16,
    ffn_hidden_size=96,
    position_embedding_type="learned_absolute",
    activation="geglu",
    add_bias_linear=True,
    qk_layernorm=True,
    attention_output_gate=True,
    softmax_type="learnable",
    window_size=4,
    window_attn_skip_freq=(1, 0),
    hidden_dropout=0.2,
    untie_embeddings_and_output_weights=False,
    init_method_std=0.1,
)

# Grouped queries, partly rotated, and what goes with them in other families of models.
rotary_config = TransformerConfig(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=8,
    num_query_groups=4,
    kv_channels=16,
    vocab_size=131,
    max_position_embeddings=16,
    ffn_hidden_size=96,
    position_embedding_type="rope",
    rotary_percent=0.5,
    rotary_interleaved=True,
    rope_scaling="llama3",
    rope_scaling_factor=4.0,
    rope_scaling_original_max_position_embeddings=8,
    activation="squared_relu",
    normalization="RMSNorm",
    layernorm_zero_centered_gamma=True,
    add_qkv_bias=True,
    qk_layernorm=True,
    attention_output_gate=True,
    attn_logit_softcapping=20.0,
    softmax_type="off-by-one",
    softmax_scale=0.3,
    window_size=5,
    window_attn_skip_freq=2,
    hidden_dropout=0.1,
    init_method_std=0.1,
)

# GPT-2's shape: biases, learned positions, tied embeddings.
gpt2_config = TransformerConfig(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=8,
    vocab_size=131,
    max_position_embeddings=16,
    position_embedding_type="learned_absolute",
    activation="gelu_tanh",
    add_bias_linear=True,
    hidden_dropout=0.1,
    untie_embeddings_and_output_weights=False,
    init_method_std=0.1,
)

# gpt-oss's attention, with Qwen 3's q/k norms: windows by layer, learned sinks, grouped queries.
sinks_config = TransformerConfig(
    num_layers=2,
    hidden_size=64,
    num_attention_heads=8,
    num_query_groups=4,
    vocab_size=131,
    max_position_embeddings=16,
    ffn_hidden_size=96,
    position_embedding_type="rope",
    activation="swiglu",
    normalization="RMSNorm",
    add_qkv_bias=True,
    qk_layernorm=True,
    softmax_type="learnable",
    window_size=5,
    window_attn_skip_freq=2,
    init_method_std=0.1,
)

layer = ModuleSpec(
    TransformerLayer,
    submodules={"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)},
)

learned = ModuleSpec(
    GPTModel,
    params={"config": learned_config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": layer}),
        "output_layer": ModuleSpec(OutputLayer),
    },
)

rotary = dataclasses.replace(learned, params={"config": rotary_config})
gpt2 = dataclasses.replace(learned, params={"config": gpt2_config})
sinks = dataclasses.replace(learned, params={"config": sinks_config})
