"""A GPT-2 of the width of a 70B: biases, layer norm, learned positions, dropout, tied tables."""

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    LayerNorm,
    ModuleSpec,
    OutputLayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

config = TransformerConfig(
    num_layers=80,
    hidden_size=8192,
    num_attention_heads=64,
    vocab_size=50257,
    max_position_embeddings=8192,
    position_embedding_type="learned_absolute",
    activation="gelu_tanh",
    add_bias_linear=True,
    hidden_dropout=0.1,
    untie_embeddings_and_output_weights=False,
)

norm = ModuleSpec(LayerNorm)

layer = ModuleSpec(
    TransformerLayer,
    submodules={
        "input_layernorm": norm,
        "self_attention": ModuleSpec(SelfAttention),
        "pre_mlp_layernorm": norm,
        "mlp": ModuleSpec(MLP),
    },
)

gpt = ModuleSpec(
    GPTModel,
    params={"config": config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock,
            params={"layer_spec": layer},
            submodules={"final_layernorm": norm},
        ),
        "output_layer": ModuleSpec(OutputLayer),
    },
)
