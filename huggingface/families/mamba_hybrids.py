"""Bamba and Nemotron-H: Mamba-2, a little attention, MLPs or experts."""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    LAYER,
    SILU,
    attention_rows,
    common,
    gated_mlp_rows,
    plain_mlp_rows,
    sizes,
    tied,
)
from ..experts import sigmoid_router
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import Row, rows

BAMBA = {
    "vocab_size": 128000,
    "tie_word_embeddings": False,
    "hidden_size": 4096,
    "intermediate_size": 14336,
    "num_hidden_layers": 32,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "hidden_act": "silu",
    "initializer_range": 0.02,
    "rms_norm_eps": 1e-5,
    "max_position_embeddings": 262144,
    "attention_dropout": 0.0,
    "attn_layer_indices": None,
    "mamba_n_heads": 128,
    "mamba_d_head": "auto",
    "mamba_n_groups": 1,
    "mamba_d_state": 256,
    "mamba_d_conv": 4,
    "mamba_expand": 2,
    "mamba_conv_bias": True,
    "mamba_proj_bias": False,
    "z_loss_coefficient": 0.0,
    "rope_theta": 10000.0,
    "rope_scaling": None,
    "partial_rotary_factor": 0.5,
}
NEMOTRON_H = {
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "tie_word_embeddings": False,
    "head_dim": None,
    "attention_head_dim": None,
    "mlp_bias": False,
    "attention_bias": False,
    "mamba_proj_bias": False,
    "use_bias": False,
}
_FIRST, _SECOND = "decoder.layers.(2*).", "decoder.layers.(2*+1)."
_BACKBONE, _OURS = "backbone.layers.*.", "decoder.layers.*."
_NORM = Part("RMSNorm")
_STACK = {
    "M": ("mamba_layer", Part("MambaLayer", {"norm": _NORM, "mixer": Part("MambaMixer")})),
    "*": (
        "attention_layer",
        Part("AttentionLayer", {"input_layernorm": _NORM, "self_attention": Part("SelfAttention")}),
    ),
    "-": ("mlp_layer", Part("MLPLayer", {"pre_mlp_layernorm": _NORM, "mlp": Part("MLP")})),
    "E": ("moe_layer", Part("MLPLayer", {"pre_mlp_layernorm": _NORM, "mlp": Part("MoELayer")})),
}


def read_bamba(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    count, hidden = config.pop("num_layers"), config["hidden_size"]
    if f.number("partial_rotary_factor") != 1:
        config["rotary_percent"] = f.number("partial_rotary_factor")
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    f.must_be("z_loss_coefficient", 0.0, 0)
    indices = f.raw("attn_layer_indices") or []
    if not isinstance(indices, list) or not all(type(i) is int and 0 <= i < count for i in indices):
        f.refuse("attn_layer_indices", f"it has to be a list of layers below {count}")
    pattern = "".join(("*" if i in indices else "M") + "-" for i in range(count))
    heads, width = f.integer("mamba_n_heads"), f.integer("mamba_expand") * hidden
    if f.raw("mamba_d_head") not in ("auto", width // heads):
        f.refuse("mamba_d_head", f"with `mamba_expand` it has to be {width // heads}")
    f.must_be("mamba_n_groups", 1, why="its norm goes over all groups, ours over each")
    config |= _mamba(f, heads, width // heads, 1, "mamba_d_state", "mamba_d_conv")
    f.must_be("mamba_conv_bias", True)
    for name in ("mamba_proj_bias", "attention_bias", "mlp_bias"):
        f.must_be(name, False)
    f.harmless("mamba_chunk_size")  # how it is computed
    f.must_be("layers_block_type", None)
    mixer = f"{LAYER}mamba."
    return _plan(
        config,
        pattern,
        rows=(
            *rows(
                [
                    ("model.embed_tokens.weight", "embedding.word_embeddings.weight"),
                    ("model.final_layernorm.weight", "decoder.final_layernorm.weight"),
                    ("lm_head.weight", "output_layer.weight"),
                    (f"{LAYER}input_layernorm.weight", f"{_FIRST}norm.weight"),
                    (f"{LAYER}input_layernorm.weight", f"{_FIRST}input_layernorm.weight"),
                    (f"{LAYER}pre_ff_layernorm.weight", f"{_SECOND}pre_mlp_layernorm.weight"),
                ]
            ),
            *_mamba_rows(mixer, f"{_FIRST}mixer."),
            *attention_rows(ours=f"{_FIRST}self_attention."),
            *gated_mlp_rows(f"{LAYER}feed_forward.", f"{_SECOND}mlp."),
        ),
        tied=tied(config),
    )


def read_nemotron_h(f: Fields) -> Plan:
    f.must_be("moe_latent_size", None, why="experts of a narrow latent are not supported")
    pattern = f.raw("hybrid_override_pattern")
    if not isinstance(pattern, str) or not set(pattern) <= set(_STACK):
        f.refuse("hybrid_override_pattern", f"it has to be a text of {', '.join(_STACK)}")
    channels = "attention_head_dim" if f.raw("head_dim") is None else "head_dim"
    heads = f.integer("num_attention_heads")
    config: dict[str, Any] = {
        "hidden_size": f.integer("hidden_size"),
        "num_attention_heads": heads,
        "num_query_groups": f.integer("num_key_value_heads"),
        "kv_channels": f.integer(channels),
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("max_position_embeddings"),
        "position_embedding_type": "none",
    }
    f.harmless("rope_theta", "partial_rotary_factor")  # its attention has no positions
    f.must_be("num_hidden_layers", len(pattern))
    if "-" in pattern:
        config["ffn_hidden_size"] = f.integer("intermediate_size")
    f.harmless("intermediate_size")
    config["activation"] = f.choice("mlp_hidden_act", {"relu2": "squared_relu"})
    config |= common(f, epsilon="layer_norm_epsilon", dropout="hidden_dropout")
    f.must_be("rms_norm_eps", config["layernorm_epsilon"])
    f.must_be("norm_eps", config["layernorm_epsilon"])
    config |= _mamba(
        f,
        f.integer("mamba_num_heads"),
        f.integer("mamba_head_dim"),
        f.integer("n_groups"),
        "ssm_state_size",
        "conv_kernel",
    )
    for name in ("attention_bias", "mlp_bias", "mamba_proj_bias", "use_bias", "residual_in_fp32"):
        f.must_be(name, False)
    f.must_be("use_conv_bias", True)
    f.must_be("mamba_hidden_act", "silu")
    f.must_be("sliding_window", None)
    # How it is computed, and what its constructor draws.
    f.harmless("chunk_size", "use_mamba_kernels", "mamba_ssm_cache_dtype", "expand")
    f.harmless("time_step_min", "time_step_max", "time_step_floor", "time_step_rank")
    f.harmless("rescale_prenorm_residual")
    limit = f.raw("time_step_limit")
    if limit is not None and not (limit[0] == 0 and limit[1] >= 1e30):
        f.refuse("time_step_limit", "a limit of the steps is not supported")
    experts: tuple[Row, ...] = ()
    if "E" in pattern:
        config |= _experts(f)
        experts = _expert_rows()
    mixer = f"{_BACKBONE}mixer."
    norms = ("norm", "input_layernorm", "pre_mlp_layernorm")
    return _plan(
        config,
        pattern,
        rows=(
            *rows(
                [
                    ("backbone.embeddings.weight", "embedding.word_embeddings.weight"),
                    ("backbone.norm_f.weight", "decoder.final_layernorm.weight"),
                    ("lm_head.weight", "output_layer.weight"),
                    *((f"{_BACKBONE}norm.weight", f"{_OURS}{name}.weight") for name in norms),
                ]
            ),
            *_mamba_rows(mixer, f"{_OURS}mixer."),
            *attention_rows(mixer, f"{_OURS}self_attention."),
            *(plain_mlp_rows(mixer, f"{_OURS}mlp.") if "-" in pattern else ()),
            *experts,
        ),
        tied=tied(config, table="backbone.embeddings.weight"),
    )


def _mamba(
    f: Fields, heads: int, head_dim: int, groups: int, state: str, kernel: str
) -> dict[str, Any]:
    f.must_be(kernel, 4)
    return {
        "mamba_num_heads": heads,
        "mamba_head_dim": head_dim,
        "mamba_num_groups": groups,
        "mamba_state_dim": f.integer(state),
    }


def _experts(f: Fields) -> dict[str, Any]:
    width = f.integer("moe_intermediate_size")
    found: dict[str, Any] = {
        "num_moe_experts": f.integer("n_routed_experts"),
        "moe_ffn_hidden_size": width,
    }
    if f.count("n_shared_experts"):
        # The width of all of them together, for one.
        f.must_be("n_shared_experts", 1)
        shared = f.integer("moe_shared_expert_intermediate_size")
        found["moe_shared_expert_intermediate_size"] = shared
    f.harmless("moe_shared_expert_overlap")
    return found | sigmoid_router(f)


def _expert_rows() -> tuple[Row, ...]:
    theirs, ours = f"{_BACKBONE}mixer.", f"{_OURS}mlp."
    return (
        *rows(
            [
                (f"{theirs}gate.weight", f"{ours}router.weight"),
                (f"{theirs}gate.e_score_correction_bias", f"{ours}router.expert_bias"),
            ]
        ),
        *plain_mlp_rows(f"{theirs}experts.#.", f"{ours}experts."),
        *plain_mlp_rows(f"{theirs}shared_experts.", f"{ours}shared_experts."),
    )


def _mamba_rows(theirs: str, ours: str) -> tuple[Row, ...]:
    conv = "convolution by group"
    return rows(
        [
            (f"{theirs}in_proj.weight", f"{ours}in_proj.weight", "mixer's stacked rows by group"),
            (f"{theirs}conv1d.weight", f"{ours}conv1d.weight", conv),
            (f"{theirs}conv1d.bias", f"{ours}conv1d.bias", conv),
            *((f"{theirs}{name}", f"{ours}{name}") for name in ("dt_bias", "A_log", "D")),
            (f"{theirs}norm.weight", f"{ours}norm.weight"),
            (f"{theirs}out_proj.weight", f"{ours}out_proj.weight"),
        ]
    )


def _plan(
    config: dict[str, Any], pattern: str, *, rows: tuple[Row, ...], tied: dict[str, str]
) -> Plan:
    groups, heads = config["mamba_num_groups"], config["mamba_num_heads"]
    width, state = heads // groups * config["mamba_head_dim"], config["mamba_state_dim"]
    return Plan(
        {"num_layers": len(pattern), "hybrid_layer_pattern": pattern} | config,
        _NORM,
        None,
        rows=rows,
        tied=tied,
        ignored=(*IGNORED, "mtp."),
        stack={slot: part for symbol, (slot, part) in _STACK.items() if symbol in pattern},
        mixer={
            "mixer_groups": groups,
            "in_parts": (width, width, state, state, heads // groups),
            "conv_parts": (width, state, state),
        },
    )


FAMILIES = (
    Family(
        "bamba", "Bamba", ("BambaForCausalLM",), BAMBA, read_bamba, limits="`mamba_n_groups` over 1"
    ),
    Family(
        "nemotron_h",
        "Nemotron-H",
        ("NemotronHForCausalLM",),
        NEMOTRON_H,
        read_nemotron_h,
        limits="`moe_latent_size`, patterns as lists",
        in_transformers=False,
    ),
)
