"""A small Llama over bytes: trains on a laptop in a few minutes."""

from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    OutputLayer,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)

config = TransformerConfig(
    num_layers=4,
    hidden_size=128,
    num_attention_heads=4,
    num_query_groups=2,
    ffn_hidden_size=320,
    vocab_size=256,  # bytes
    max_position_embeddings=128,
    position_embedding_type="rope",
    activation="swiglu",
    qk_layernorm=True,
    untie_embeddings_and_output_weights=False,
)

norm = ModuleSpec(RMSNorm)

layer = ModuleSpec(
    TransformerLayer,
    submodules={
        "input_layernorm": norm,
        "self_attention": ModuleSpec(
            SelfAttention, submodules={"q_layernorm": norm, "k_layernorm": norm}
        ),
        "pre_mlp_layernorm": norm,
        "mlp": ModuleSpec(MLP),
    },
)

small = ModuleSpec(
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
