"""Mixtral 8x7B: a decoder whose layers have eight experts, of which each token goes to two."""

from specc.templates import (
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    MoELayer,
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
    vocab_size=32000,
    max_position_embeddings=32768,
    position_embedding_type="rope",
    rotary_base=1000000,
    activation="swiglu",
    num_moe_experts=8,
    moe_router_topk=2,
    moe_aux_loss_coeff=0.02,
)

layer = ModuleSpec(
    TransformerLayer,
    submodules={
        "input_layernorm": ModuleSpec(RMSNorm),
        "self_attention": ModuleSpec(SelfAttention),
        "pre_mlp_layernorm": ModuleSpec(RMSNorm),
        "mlp": ModuleSpec(MoELayer),
    },
)

mixtral = ModuleSpec(
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
