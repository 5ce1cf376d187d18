"""The tree that most published decoders share: a norm before attention, a norm before the MLP."""

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


def decoder(
    config: TransformerConfig,
    *,
    norm: type = RMSNorm,
    attention: ModuleSpec | None = None,
    layer: ModuleSpec | None = None,
    moe_layer: ModuleSpec | None = None,
    mlp: type = MLP,
    embedding: type = LanguageModelEmbedding,
) -> ModuleSpec:
    """The spec of a decoder-only model. `layer` takes the place of the whole layer, and
    `moe_layer` is that of the layers with experts where only some have them.
    """
    norms = ModuleSpec(norm)
    if attention is None:
        children = {"q_layernorm": norms, "k_layernorm": norms} if config.qk_layernorm else {}
        attention = ModuleSpec(SelfAttention, submodules=children)
    if layer is None:
        layer = ModuleSpec(
            TransformerLayer,
            submodules={
                "input_layernorm": norms,
                "self_attention": attention,
                "pre_mlp_layernorm": norms,
                "mlp": ModuleSpec(mlp),
            },
        )
    return ModuleSpec(
        GPTModel,
        params={"config": config},
        submodules={
            "embedding": ModuleSpec(embedding),
            "decoder": ModuleSpec(
                TransformerBlock,
                params={"layer_spec": layer} | ({"moe_layer_spec": moe_layer} if moe_layer else {}),
                submodules={"final_layernorm": norms},
            ),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )
