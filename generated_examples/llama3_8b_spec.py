"""Meta-Llama-3-8B, from its Hugging Face config."""

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
    num_layers=32,
    hidden_size=4096,
    num_attention_heads=32,
    num_query_groups=8,
    ffn_hidden_size=14336,
    vocab_size=128256,
    max_position_embeddings=8192,
    position_embedding_type="rope",
    rotary_base=500000,
    activation="swiglu",
    layernorm_epsilon=1e-5,
)

layer = ModuleSpec(
    TransformerLayer,
    submodules={
        "input_layernorm": ModuleSpec(RMSNorm),
        "self_attention": ModuleSpec(SelfAttention),
        "pre_mlp_layernorm": ModuleSpec(RMSNorm),
        "mlp": ModuleSpec(MLP),
    },
)

llama = ModuleSpec(
    GPTModel,
    params={"config": config},
    submodules={
        "embedding": ModuleSpec(LanguageModelEmbedding),
        "decoder": ModuleSpec(
            TransformerBlock,
            params={"layer_spec": layer},
            submodules={"final_layernorm": ModuleSpec(RMSNorm)},
        ),
        "output_layer": ModuleSpec(OutputLayer),
    },
)
