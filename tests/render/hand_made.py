"""Architectures made by hand, as `read` makes them, small enough to see through."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.tree import Architecture, Part, Value, Weight
from specc.compiler.render.code_lines import CodeBlock
from specc.compiler.render.model import Comparison, Model

Facts = tuple[tuple[str, Value], ...]


def linear(name: str, inputs: int, outputs: int) -> Part:
    return Part(
        name,
        "linear",
        "ColumnParallelLinear",
        (("in", inputs), ("out", outputs), ("bias", False)),
        (Weight("weight", (outputs, inputs), 0),),
        ("return linear(x, weight)",),
    )


def norm(name: str, size: int, type: str = "RMSNorm") -> Part:
    facts: Facts = (("type", type), ("size", size), ("epsilon", 1e-5))
    return Part(
        name, "norm", type, facts, (Weight("weight", (size,)),), (f"return {type.lower()}(x)",)
    )


def decoder(
    *,
    layers: int = 4,
    hidden: int = 64,
    heads: int = 4,
    groups: int = 2,
    ffn: int = 256,
    vocabulary: int = 1000,
    norms: str = "RMSNorm",
    attention: Facts = (),
    attention_children: tuple[Part, ...] = (),
    config: Facts = (("max_position_embeddings", 512),),
    mlp_steps: tuple[str, ...] = ("return linear_fc2(linear_fc1(x))",),
    name: str = "small",
) -> Architecture:
    """A decoder with attention and an MLP in each layer."""
    width = hidden // heads
    attending = Part(
        "self_attention",
        "attention",
        "SelfAttention",
        (("heads", heads), ("groups", groups), ("head_dim", width), ("causal", True), *attention),
        operations=("return linear_proj(attention(linear_qkv(x)))",),
        children=(
            linear("linear_qkv", hidden, (heads + 2 * groups) * width),
            *attention_children,
            linear("linear_proj", heads * width, hidden),
        ),
    )
    mlp = Part(
        "mlp",
        "mlp",
        "MLP",
        (("activation", "SwiGLU"), ("size", ffn)),
        operations=mlp_steps,
        children=(linear("linear_fc1", hidden, 2 * ffn), linear("linear_fc2", ffn, hidden)),
    )
    layer = Part(
        "layers",
        "layer",
        "TransformerLayer",
        operations=(
            "a = x + self_attention(input_layernorm(x))",
            "return a + mlp(pre_mlp_layernorm(a))",
        ),
        indices=tuple(range(layers)),
        children=(
            norm("input_layernorm", hidden, norms),
            attending,
            norm("pre_mlp_layernorm", hidden, norms),
            mlp,
        ),
    )
    words = Part(
        "word_embeddings",
        "embedding",
        "VocabParallelEmbedding",
        (("vocabulary", vocabulary), ("size", hidden)),
        (Weight("weight", (vocabulary, hidden), 0),),
        ("return embedding(x, weight)",),
    )
    root = Part(
        "GPTModel",
        "model",
        "GPTModel",
        (("hidden", hidden), ("vocabulary", vocabulary)),
        children=(
            Part("embedding", "module", "LanguageModelEmbedding", children=(words,)),
            Part(
                "decoder",
                "layers",
                "TransformerBlock",
                children=(layer, norm("final_layernorm", hidden, norms)),
            ),
            replace(
                linear("output_layer", hidden, vocabulary),
                kind="output",
                facts=(("size", hidden), ("vocabulary", vocabulary)),
            ),
        ),
    )
    return Architecture(name, root, config, numbers=config)


def comparison(
    before: Architecture, after: Architecture, code: tuple[CodeBlock, ...] = ()
) -> Comparison:
    """With the one figure that every architecture has."""
    return Comparison(model(before), model(after), compare(before, after), code)


def model(architecture: Architecture) -> Model:
    figures = (
        Figure("parameters", "parameters", architecture.root.parameters),
        Figure("kv_cache.token", "KV cache per token", 256, "bytes", 1, "in bfloat16"),
    )
    return Model(architecture.name, f"{architecture.name}_spec.py", architecture, figures)


def layers_of(architecture: Architecture, indices: Iterable[int]) -> tuple[Part, ...]:
    """The layers of a decoder, standing for these of the list."""
    (layer,) = (part for _, _, part in architecture.root.walk() if part.kind == "layer")
    return (replace(layer, indices=tuple(indices)),)


def with_layers(
    architecture: Architecture,
    children: Callable[[Part], tuple[Part, ...]] | None,
    layers: tuple[Part, ...] = (),
) -> Architecture:
    """With other children in each layer, or with other layers."""

    def put(part: Part) -> tuple[Part, ...]:
        if part.kind == "layer":
            return layers if children is None else (replace(part, children=children(part)),)
        below = tuple(new for child in part.children for new in put(child))
        return (replace(part, children=below),)

    (root,) = put(architecture.root)
    return replace(architecture, root=root)
