"""Architectures made by hand, for drawings and pages: what a page's reader would find in models."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise

from specc.compiler.architecture.tree import Architecture, Edge, Part, Value, Weight

HIDDEN = ("b", "s", "4096")


def norm(name: str, hidden: int = 4096) -> Part:
    facts = (("type", "RMSNorm"), ("epsilon", 1e-5))
    return Part(name, "norm", "RMSNorm", facts=facts, weights=(Weight("weight", (hidden,)),))


def linear(name: str, into: int, out: int, cut: int | None = None, kind: str = "linear") -> Part:
    label = {0: "ColumnParallelLinear", 1: "RowParallelLinear", None: "Linear"}[cut]
    facts: tuple[tuple[str, Value], ...] = (("in", into), ("out", out), ("bias", False))
    if kind == "output":
        facts = (("vocabulary", out), ("size", into))
    return Part(name, kind, label, facts=facts, weights=(Weight("weight", (out, into), cut),))


def attention(hidden: int = 4096, heads: int = 32, groups: int = 8, **facts: Value) -> Part:
    size = hidden // heads
    said: dict[str, Value] = {"heads": heads, "groups": groups, "head_dim": size, "causal": True}
    said["rotary"] = ("base=500000",)
    return Part(
        "self_attention",
        "attention",
        "SelfAttention",
        facts=tuple({**said, **facts}.items()),
        children=(
            linear("linear_qkv", hidden, (heads + 2 * groups) * size, 0),
            linear("linear_proj", heads * size, hidden, 1),
        ),
    )


def mlp(hidden: int = 4096, size: int = 14336) -> Part:
    return Part(
        "mlp",
        "mlp",
        "MLP",
        facts=(("activation", "SwiGLU"), ("size", size)),
        children=(linear("linear_fc1", hidden, 2 * size, 0), linear("linear_fc2", size, hidden, 1)),
    )


def experts(hidden: int = 4096, size: int = 14336, *, capacity: float | None = None) -> Part:
    """Mixtral's, and a shared one."""
    shape = ("b", "s", str(hidden))
    scores: tuple[tuple[str, Value], ...] = (("scores", "softmax of the chosen"), ("topk", 2))
    if capacity is not None:
        scores += (("capacity", capacity), ("drops", "probs"))
    loss = (("type", "load balancing loss"), ("coefficient", 0.02))
    of_mlp: tuple[tuple[str, Value], ...] = (("activation", "SwiGLU"), ("size", size))
    grouped = tuple(
        Part(name, "linear", "Grouped", weights=(Weight("weight", (8, *rows), cut),))
        for name, rows, cut in (
            ("linear_fc1", (2 * size, hidden), 0),
            ("linear_fc2", (hidden, size), 1),
        )
    )
    router = Part(
        "router",
        "router",
        "TopKRouter",
        facts=scores,
        weights=(Weight("weight", (8, hidden)),),
        children=(Part("aux_loss", "router part", "AuxLoss", facts=loss),),
    )
    inner = Part("experts", "mlp", "GroupedMLP", facts=(("experts", 8), *of_mlp), children=grouped)
    ends = (("", "router"), ("", "experts"), ("", "shared_experts"), ("router", "experts"))
    return Part(
        "mlp",
        "moe",
        "MoELayer",
        facts=(("experts", 8), ("topk", 2), *of_mlp),
        children=(router, inner, replace(mlp(hidden, 1024), name="shared_experts")),
        edges=(
            *(Edge(a, b, shape) for a, b in ends),
            Edge("experts", "", shape),
            Edge("shared_experts", "", shape),
        ),
    )


def mixer(hidden: int = 4096) -> Part:
    """Nemotron-H's Mamba-2."""
    facts: tuple[tuple[str, Value], ...] = (("type", "Mamba-2"), ("heads", 128), ("groups", 8))
    facts += (("key_dim", 128), ("value_dim", 64), ("convolution", 4))
    short = (("channels", 10240), ("kernel", 4), ("bias", True))
    return Part(
        "mixer",
        "mixer",
        "MambaMixer",
        facts=facts,
        children=(
            linear("in_proj", hidden, 18560, 0),
            Part("conv1d", "convolution", "CausalConv1d", facts=short),
            norm("norm", 8192),
            linear("out_proj", 8192, hidden, 1),
        ),
    )


def hybrid(pattern: str = "M-M-M*-M") -> Architecture:
    """Layers of one part each, in this order."""
    one = layer((0,))
    first, attends, second, feeds = one.children
    kinds = {"M": (first, mixer()), "*": (first, attends), "-": (second, feeds)}
    layers = []
    for symbol, (before, inner) in kinds.items():
        ends = ("", before.name, inner.name, "")
        edges = [Edge(a, b, ("b", "s", "4096")) for a, b in pairwise(ends)]
        edges.append(Edge("", inner.name, ("b", "s", "4096"), residual=True))
        places = tuple(i for i, other in enumerate(pattern) if other == symbol)
        part = replace(one, indices=places, children=(before, inner), edges=tuple(edges))
        layers.append(part)
    return model(layers, "hybrid")


def layer(
    indices: Sequence[int],
    *,
    hidden: int = 4096,
    size: int = 14336,
    label: str = "",
    **facts: Value,
) -> Part:
    shape = ("b", "s", str(hidden))
    names = ("input_layernorm", "self_attention", "pre_mlp_layernorm", "mlp")
    ends = ("", *names, "")
    edges = [Edge(a, b, shape) for a, b in pairwise(ends)]
    edges.append(Edge("", "self_attention", shape, residual=True))
    edges.append(Edge("self_attention", "mlp", shape, residual=True))
    return Part(
        "layers",
        "layer",
        label or "TransformerLayer",
        indices=tuple(indices),
        children=(
            norm("input_layernorm", hidden),
            attention(hidden, **facts),
            norm("pre_mlp_layernorm", hidden),
            mlp(hidden, size),
        ),
        edges=tuple(edges),
    )


def decoder(layers: Sequence[Part], hidden: int = 4096) -> Part:
    shape = ("b", "s", str(hidden))
    ends = ("", *(part.segment for part in layers), "final_layernorm", "")
    return Part(
        "decoder",
        "module",
        "TransformerBlock",
        children=(*layers, norm("final_layernorm", hidden)),
        edges=tuple(Edge(a, b, shape) for a, b in pairwise(ends)),
    )


def model(layers: Sequence[Part], name: str = "llama", *, hidden: int = 4096) -> Architecture:
    vocabulary = 128256
    shape = ("b", "s", str(hidden))
    table = Part(
        "word_embeddings",
        "embedding",
        "VocabParallelEmbedding",
        facts=(("vocabulary", vocabulary), ("size", hidden)),
        weights=(Weight("weight", (vocabulary, hidden), 0),),
    )
    inner = (Edge("", "word_embeddings", ("b", "s")), Edge("word_embeddings", "", shape))
    root = Part(
        "GPTModel",
        "model",
        "GPTModel",
        facts=(("hidden", hidden), ("vocabulary", vocabulary)),
        children=(
            Part("embedding", "module", "LanguageModelEmbedding", children=(table,), edges=inner),
            decoder(layers, hidden),
            linear("output_layer", hidden, vocabulary, 0, "output"),
        ),
        edges=(
            Edge("", "embedding", ("b", "s")),
            Edge("embedding", "decoder", shape),
            Edge("decoder", "output_layer", shape),
            Edge("output_layer", "", ("b", "s", str(vocabulary))),
        ),
    )
    return Architecture(name, root, config=(("max_position_embeddings", 8192),))


def llama(layers: int = 32) -> Architecture:
    return model([layer(range(layers))])


def patterned(layers: int = 26, every: int = 6) -> Architecture:
    """Gemma-3-like: a window in all layers but every sixth."""
    whole = [i for i in range(layers) if i % every == every - 1]
    local = [i for i in range(layers) if i % every != every - 1]
    return model([layer(local, window=1024), layer(whole)], "gemma3")


def mixtral() -> Architecture:
    """Experts in the place of each MLP."""
    one = layer(range(32))
    return model([replace(one, children=(*one.children[:-1], experts()))], "mixtral")


def changed_llama() -> Architecture:
    """More layers, a window, another MLP."""
    return model([layer(range(40), size=11008, window=4096)], "longer")


def unlike(layers: int = 1000, *, first: int = 1024) -> Architecture:
    """Each layer of another size."""
    return model([layer([i], size=first + i) for i in range(layers)], "unlike")


def scattered(layers: int = 1000) -> Architecture:
    """Two kinds of layers in an order without a pattern."""
    plain = [i for i in range(layers) if not _odd(i)]
    odd = [i for i in range(layers) if _odd(i)]
    lone = Part("layers", "layer", "Mixer", indices=tuple(odd), children=(mlp(),))
    return model([layer(plain), lone], "scattered")


def _odd(index: int) -> bool:
    return math.sin(index * index) > 0.4


def nested() -> Architecture:
    """A user's model: no attention known, blocks in blocks, parallel branches, a skip."""
    shape = ("b", "s", "256")
    names = ("query", "key", "value")
    edges = [Edge("", name, shape) for name in names]
    edges += [Edge(name, "mix", shape) for name in names] + [Edge("mix", "", shape)]
    inner = Part(
        "attend",
        "module",
        "MyAttention",
        children=(*(linear(name, 256, 256) for name in names), linear("mix", 256, 256)),
        edges=tuple(edges),
    )
    block = Part(
        "blocks",
        "module",
        "Block",
        indices=(0, 1),
        children=(
            inner,
            Part("act", "activation", "GELU", facts=(("type", "GELU"),)),
            linear("out", 256, 256),
        ),
        edges=(
            Edge("", "attend", shape),
            Edge("attend", "act", shape),
            Edge("act", "out", shape),
            Edge("out", "", shape),
            Edge("", "out", shape, residual=True),
        ),
    )
    head = Part(
        "head", "module", "Sequential", children=(linear("0", 256, 512), linear("2", 512, 100))
    )
    root = Part(
        "Net",
        "model",
        "Net",
        weights=(Weight("scale", (256,)),),
        children=(linear("stem", 100, 256), block, norm("norm", 256), head),
        edges=(
            Edge("", "stem", ("b", "s", "100")),
            Edge("stem", "blocks[0..1]", shape),
            Edge("blocks[0..1]", "norm", shape),
            Edge("norm", "head", shape),
            Edge("stem", "head", shape),
            Edge("head", "", ("b", "s", "100")),
        ),
    )
    return Architecture("net", root)


def many_parts(parts: int = 300) -> Architecture:
    """So many attributes of one module, each linked to the next and to the last."""
    names = [f"step_{i}" for i in range(parts)]
    edges = [Edge(a, b, ("b", "8")) for a, b in pairwise(["", *names, ""])]
    edges += [Edge(name, names[-1], ("b", "8")) for name in names[:-2]]
    children = tuple(linear(name, 8, 8) for name in names)
    return Architecture("many", Part("Net", "model", "Net", children=children, edges=tuple(edges)))


HOSTILE = (
    "</title><script>alert(1)</script><img src=x onerror=alert(2)> & \"q\" 'a' ]]> \x00\u202e 名"
)


def hostile() -> Architecture:
    """Names, classes and facts that would leave their place if nobody escaped them."""
    child = Part(
        HOSTILE, "module", HOSTILE, facts=((HOSTILE, HOSTILE),), weights=(Weight(HOSTILE, (3, 5)),)
    )
    lone = Part(
        "layers", "mlp", HOSTILE, facts=(("activation", HOSTILE), ("size", 3)), indices=(0, 1)
    )
    edges = (Edge("", HOSTILE, (HOSTILE,)), Edge(HOSTILE, "layers[0..1]", ("b",)))
    root = Part(HOSTILE, "model", HOSTILE, children=(child, lone), edges=edges)
    return Architecture(HOSTILE, root, config=((HOSTILE, HOSTILE),), notes=(HOSTILE,))
