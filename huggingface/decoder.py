"""What most decoders have in common: fields that go by Llama's names, parts and tensors."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from .fields import Fields
from .plan import Part
from .tensors import Row, rows

ATTENTION = {"full_attention": 0, "sliding_attention": 1}  # as `window_attn_skip_freq` counts

SILU = {"silu": "swiglu", "swish": "swiglu"}


def sizes(f: Fields, *, ffn: str = "intermediate_size", head_dim: bool = True) -> dict[str, Any]:
    """The size of the model. ``head_dim``: the family has the field of this name."""
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    groups = f.optional_integer("num_key_value_heads") or heads
    channels = (f.optional_integer("head_dim") if head_dim else None) or hidden // heads
    found = {
        "num_layers": f.integer("num_hidden_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
    }
    if groups != heads:
        found["num_query_groups"] = groups
    if channels * heads != hidden:
        found["kv_channels"] = channels
    found["ffn_hidden_size"] = f.integer(ffn)
    found["vocab_size"] = f.integer("vocab_size")
    found["max_position_embeddings"] = f.integer("max_position_embeddings")
    return found


def common(f: Fields, *, epsilon: str = "rms_norm_eps", dropout: str = "") -> dict[str, Any]:
    """Epsilon, dropout, ties and the width of the initial values, where not the templates' own."""
    found: dict[str, Any] = {"layernorm_epsilon": f.number(epsilon)}
    if f.number("attention_dropout"):
        found["attention_dropout"] = f.number("attention_dropout")
    if dropout and f.number(dropout):
        found["hidden_dropout"] = f.number(dropout)
    if f.flag("tie_word_embeddings"):
        found["untie_embeddings_and_output_weights"] = False
    if f.number("initializer_range") != 0.02:
        found["init_method_std"] = f.number("initializer_range")
    return found


def windows(size: int | None, windowed: Sequence[int]) -> dict[str, Any]:
    """Sliding windows of ``size`` in the layers that ``windowed`` has a 1 for."""
    if size is None or not any(windowed):
        return {}
    found: dict[str, Any] = {"window_size": size}
    for every in range(2, len(windowed) + 1):
        if list(windowed) == [int((i + 1) % every != 0) for i in range(len(windowed))]:
            return found | {"window_attn_skip_freq": every}
    return found if all(windowed) else found | {"window_attn_skip_freq": tuple(windowed)}


def tied(
    config: dict[str, Any],
    head: str = "lm_head.weight",
    table: str = "model.embed_tokens.weight",
) -> dict[str, str]:
    """The second name of a tied table."""
    return {} if config.get("untie_embeddings_and_output_weights", True) else {head: table}


def biases(*, qkv: bool, out: bool, mlp: bool) -> dict[str, Any]:
    """The fields of TransformerConfig that say which linear layers have a bias."""
    if qkv and out and mlp:
        return {"add_bias_linear": True}
    named = {"add_qkv_bias": qkv, "attention_output_bias": out, "mlp_bias": mlp}
    return {name: True for name, has_one in named.items() if has_one}


def dropouts(f: Fields, hidden: str, embedding: str | None) -> dict[str, Any]:
    """Dropout behind each half of a layer, and of the embedding (None: it has none)."""
    rate = f.number(hidden)
    first = f.number(embedding) if embedding else 0.0
    found = {"hidden_dropout": rate} if rate else {}
    return found | ({} if first == rate else {"embedding_dropout": first})


def layer(
    norm: str,
    mlp: str = "MLP",
    *,
    qk_norm: str | None = None,
    before: bool = True,
    after: bool = False,
    shared: bool = False,
) -> Part:
    """A layer with norms ``before`` each half, ``after`` each, or both.

    ``shared``: attention and MLP, side by side, have one norm. ``qk_norm``: that of q and k.
    """
    first, last = Part(norm if before else "IdentityOp"), Part(norm)
    qk = {"q_layernorm": Part(qk_norm), "k_layernorm": Part(qk_norm)} if qk_norm else {}
    children = {"input_layernorm": first, "self_attention": Part("SelfAttention", qk)}
    if after:
        children["post_self_attn_layernorm"] = last
    if not shared:
        children["pre_mlp_layernorm"] = first
    children["mlp"] = Part(mlp)
    if after:
        children["post_mlp_layernorm"] = last
    return Part("TransformerLayer", children)


# Llama's names, which most decoders share. (theirs, ours, layout)
LAYER, OURS = "model.layers.*.", "decoder.layers.*."
OUTER = rows(
    [
        ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
        ("model.norm.weight", "decoder.final_layernorm.weight"),
        ("lm_head.weight", "output_layer.weight"),
    ]
)
NORMS = rows(
    [
        (f"{LAYER}input_layernorm.weight", f"{OURS}input_layernorm.weight"),
        (f"{LAYER}post_attention_layernorm.weight", f"{OURS}pre_mlp_layernorm.weight"),
    ]
)
SANDWICH = rows(
    [
        (f"{LAYER}input_layernorm.weight", f"{OURS}input_layernorm.weight"),
        (f"{LAYER}post_attention_layernorm.weight", f"{OURS}post_self_attn_layernorm.weight"),
        (f"{LAYER}pre_feedforward_layernorm.weight", f"{OURS}pre_mlp_layernorm.weight"),
        (f"{LAYER}post_feedforward_layernorm.weight", f"{OURS}post_mlp_layernorm.weight"),
    ]
)
IGNORED = ("model.layers.*.self_attn.rotary_emb.inv_freq", "model.rotary_emb.inv_freq")


def attention_rows(
    theirs: str = f"{LAYER}self_attn.",
    ours: str = f"{OURS}self_attention.",
    *,
    qkv_bias: bool = False,
    out_bias: bool = False,
    qk_norm: bool = False,
    layout: str = "rows by group",
) -> tuple[Row, ...]:
    """Attention with a projection each for q, k and v."""
    kinds = [("weight", True, True), ("bias", qkv_bias, out_bias)]
    found: list[tuple[str, ...]] = []
    for kind, qkv, out in kinds:
        if qkv:
            found.append((f"{theirs}{{q,k,v}}_proj.{kind}", f"{ours}linear_qkv.{kind}", layout))
        if out:
            found.append((f"{theirs}o_proj.{kind}", f"{ours}linear_proj.{kind}"))
    if qk_norm:
        found += [(f"{theirs}{x}_norm.weight", f"{ours}{x}_layernorm.weight") for x in "qk"]
    return rows(found)


def plain_mlp_rows(
    theirs: str, ours: str, *, names: tuple[str, str] = ("up_proj", "down_proj"), bias: bool = False
) -> tuple[Row, ...]:
    """An MLP without a gate; with `#` in ``theirs``, the experts of a layer."""
    kinds = ("weight", "bias") if bias else ("weight",)
    return rows(
        (f"{theirs}{name}.{kind}", f"{ours}linear_fc{i}.{kind}")
        for kind in kinds
        for i, name in enumerate(names, 1)
    )


def gated_mlp_rows(
    theirs: str = f"{LAYER}mlp.",
    ours: str = f"{OURS}mlp.",
    *,
    names: tuple[str, str, str] = ("gate_proj", "up_proj", "down_proj"),
    bias: bool = False,
) -> tuple[Row, ...]:
    """An MLP with a gate; with `#` in ``theirs``, the experts of a layer."""
    gate, up, down = names
    found: list[tuple[str, ...]] = []
    for kind in ("weight", "bias") if bias else ("weight",):
        both = f"{theirs}{{{gate},{up}}}.{kind}"
        found.append((both, f"{ours}linear_fc1.{kind}", "rows alternate"))
        found.append((f"{theirs}{down}.{kind}", f"{ours}linear_fc2.{kind}"))
    return rows(found)
