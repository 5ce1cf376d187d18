"""Families whose model is code beside the weights, not in transformers: Llama's, renamed.

EXAONE 3, InternLM 2, XVERSE, MiMo, the first Qwen, ChatGLM 2 and GLM-4 of 2024 in its own form.
"""

from __future__ import annotations

from typing import Any

from ..decoder import (
    IGNORED,
    LAYER,
    NORMS,
    OURS,
    OUTER,
    SILU,
    attention_rows,
    biases,
    common,
    gated_mlp_rows,
    layer,
    sizes,
    tied,
)
from ..fields import Fields
from ..plan import Family, Part, Plan
from ..rope import rope
from ..tensors import rows
from . import llama, qwen2

EXAONE = {
    "activation_function": "silu",
    "attention_dropout": 0.0,
    "embed_dropout": 0.0,
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-5,
    "rope_scaling": None,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "num_key_value_heads": None,
}
INTERNLM2 = llama.DEFAULTS | {"bias": True, "tie_word_embeddings": False}
XVERSE = llama.DEFAULTS | {"max_tokenizer_truncation": None}
QWEN = {
    "initializer_range": 0.02,
    "layer_norm_epsilon": 1e-6,
    "attn_dropout_prob": 0.0,
    "emb_dropout_prob": 0.0,
    "rotary_pct": 1.0,
    "rotary_emb_base": 10000,
    "tie_word_embeddings": False,
}
CHATGLM = {
    "attention_dropout": 0.0,
    "hidden_dropout": 0.0,
    "layernorm_epsilon": 1e-5,
    "rope_ratio": 1,
    "tie_word_embeddings": False,
    "add_qkv_bias": False,
    "add_bias_linear": False,
}
MIMO = qwen2.DEFAULTS | {"head_dim": None, "attention_bias": True}
_H = "transformer.h.*."
_ENCODER = "transformer.encoder.layers.*."
_ATTENTION = f"{OURS}self_attention."


def read_exaone(f: Fields) -> Plan:
    # Llama's fields, two of them by other names.
    f.values.setdefault("num_hidden_layers", f.raw("num_layers"))
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("activation_function", SILU)
    config |= common(f, epsilon="layer_norm_epsilon")
    f.must_be("embed_dropout", 0.0, 0)
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(
            *rows(
                [
                    ("transformer.wte.weight", "embedding.word_embeddings.weight"),
                    ("transformer.ln_f.weight", "decoder.final_layernorm.weight"),
                    ("lm_head.weight", "output_layer.weight"),
                    (f"{_H}ln_1.weight", f"{OURS}input_layernorm.weight"),
                    (f"{_H}ln_2.weight", f"{OURS}pre_mlp_layernorm.weight"),
                    (
                        f"{_H}attn.attention.{{q,k,v}}_proj.weight",
                        f"{_ATTENTION}linear_qkv.weight",
                        "rows by group",
                    ),
                    (f"{_H}attn.attention.out_proj.weight", f"{_ATTENTION}linear_proj.weight"),
                ]
            ),
            *gated_mlp_rows(f"{_H}mlp.", names=("c_fc_0", "c_fc_1", "c_proj")),
        ),
        tied=tied(config, table="transformer.wte.weight"),
        ignored=("transformer.h.*.attn.attention.rotary.inv_freq", "transformer.rotary.inv_freq"),
    )


def read_internlm2(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    bias = f.flag("bias")
    config |= biases(qkv=bias, out=bias, mlp=False)
    linear = "weight+bias" if bias else "weight"
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(
            *rows(
                [
                    ("model.tok_embeddings.weight", "embedding.word_embeddings.weight"),
                    ("model.norm.weight", "decoder.final_layernorm.weight"),
                    ("output.weight", "output_layer.weight"),
                    (f"{LAYER}attention_norm.weight", f"{OURS}input_layernorm.weight"),
                    (f"{LAYER}ffn_norm.weight", f"{OURS}pre_mlp_layernorm.weight"),
                    # Group by group, as ours are.
                    (f"{LAYER}attention.wqkv.{linear}", f"{_ATTENTION}linear_qkv.{linear}"),
                    (f"{LAYER}attention.wo.{linear}", f"{_ATTENTION}linear_proj.{linear}"),
                ]
            ),
            *gated_mlp_rows(f"{LAYER}feed_forward.", names=("w1", "w3", "w2")),
        ),
        tied=tied(config, "output.weight", "model.tok_embeddings.weight"),
        ignored=("model.layers.*.attention.rotary_emb.inv_freq",),
    )


def read_xverse(f: Fields) -> Plan:
    f.harmless("max_tokenizer_truncation")
    return llama.read(f)


def read_mimo(f: Fields) -> Plan:
    config = sizes(f) | rope(f)
    config["activation"] = f.choice("hidden_act", SILU)
    config |= common(f)
    bias = f.flag("attention_bias")
    config |= biases(qkv=bias, out=False, mlp=False)
    config |= qwen2.window_layers(f, config["num_layers"])
    f.must_be("use_mrope", False)
    f.harmless("num_nextn_predict_layers")  # heads beside the model, for faster sampling
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(*OUTER, *NORMS, *attention_rows(qkv_bias=bias), *gated_mlp_rows()),
        tied=tied(config),
        ignored=(*IGNORED, "model.mtp_layers."),
    )


def read_qwen(f: Fields) -> Plan:
    hidden, heads, width = (
        f.integer(name) for name in ("hidden_size", "num_attention_heads", "intermediate_size")
    )
    f.must_be("kv_channels", hidden // heads)
    f.must_be("rotary_pct", 1.0, 1)
    f.must_be("no_bias", True)
    f.must_be("scale_attn_weights", True)
    for name in ("attn_dropout_prob", "emb_dropout_prob"):
        f.must_be(name, 0.0, 0)
    # Beyond the length that the model was trained with: what is asked of positions there.
    f.harmless("use_dynamic_ntk", "use_logn_attn", "max_position_embeddings")
    f.harmless("bf16", "fp16", "fp32")
    config: dict[str, Any] = {
        "num_layers": f.integer("num_hidden_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
        "ffn_hidden_size": width // 2,  # of gate and up together in the file
        "vocab_size": f.integer("vocab_size"),
        "max_position_embeddings": f.integer("seq_length"),
    }
    config |= rope(f, base="rotary_emb_base")
    f.must_be("rope_theta", f.number("rotary_emb_base"))
    config |= {"activation": "swiglu", "add_qkv_bias": True}
    config["layernorm_epsilon"] = f.number("layer_norm_epsilon")
    f.must_be("tie_word_embeddings", False)
    if f.number("initializer_range") != 0.02:
        config["init_method_std"] = f.number("initializer_range")
    fused = "stacked rows by group"
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=(
            *rows(
                [
                    ("transformer.wte.weight", "embedding.word_embeddings.weight"),
                    ("transformer.ln_f.weight", "decoder.final_layernorm.weight"),
                    ("lm_head.weight", "output_layer.weight"),
                    (f"{_H}ln_1.weight", f"{OURS}input_layernorm.weight"),
                    (f"{_H}ln_2.weight", f"{OURS}pre_mlp_layernorm.weight"),
                    (f"{_H}attn.c_attn.weight+bias", f"{_ATTENTION}linear_qkv.weight+bias", fused),
                    (f"{_H}attn.c_proj.weight", f"{_ATTENTION}linear_proj.weight"),
                ]
            ),
            *gated_mlp_rows(f"{_H}mlp.", names=("w2", "w1", "c_proj")),
        ),
        ignored=("transformer.h.*.attn.masked_bias", "transformer.rotary_emb.inv_freq"),
    )


def read_chatglm(f: Fields) -> Plan:
    hidden, heads = f.integer("hidden_size"), f.integer("num_attention_heads")
    config: dict[str, Any] = {
        "num_layers": f.integer("num_layers"),
        "hidden_size": hidden,
        "num_attention_heads": heads,
    }
    if f.flag("multi_query_attention"):
        config["num_query_groups"] = f.integer("multi_query_group_num")
    f.harmless("multi_query_group_num")
    if f.integer("kv_channels") * heads != hidden:
        config["kv_channels"] = f.integer("kv_channels")
    config |= {
        "ffn_hidden_size": f.integer("ffn_hidden_size"),
        "vocab_size": f.integer("padded_vocab_size"),
        "max_position_embeddings": f.integer("seq_length"),
        "position_embedding_type": "rope",
    }
    f.must_be("vocab_size", config["vocab_size"])
    f.must_be("num_hidden_layers", config["num_layers"])
    ratio = f.number("rope_ratio")
    if ratio != 1:
        config["rotary_base"] = 10000 * ratio
    config |= {"rotary_percent": 0.5, "rotary_interleaved": True, "activation": "swiglu"}
    config["layernorm_epsilon"] = f.number("layernorm_epsilon")
    for name, value in {
        "add_bias_linear": False,
        "apply_residual_connection_post_layernorm": False,
        "fp32_residual_connection": False,
        "post_layer_norm": True,
        "rmsnorm": True,
        "original_rope": True,
        "tie_word_embeddings": False,
    }.items():
        f.must_be(name, value)
    f.harmless("apply_query_key_layer_scaling", "attention_softmax_in_fp32", "bias_dropout_fusion")
    if f.number("attention_dropout"):
        config["attention_dropout"] = f.number("attention_dropout")
    if f.number("hidden_dropout"):
        config |= {"hidden_dropout": f.number("hidden_dropout"), "embedding_dropout": 0.0}
    bias = f.flag("add_qkv_bias")
    config |= biases(qkv=bias, out=False, mlp=False)
    qkv = "weight+bias" if bias else "weight"
    fused = "stacked rows by group"
    after = "post_attention_layernorm"
    return Plan(
        config,
        Part("RMSNorm"),
        layer("RMSNorm"),
        rows=rows(
            [
                (
                    "transformer.embedding.word_embeddings.weight",
                    "embedding.word_embeddings.weight",
                ),
                (
                    "transformer.encoder.final_layernorm.weight",
                    "decoder.final_layernorm.weight",
                ),
                ("transformer.output_layer.weight", "output_layer.weight"),
                (f"{_ENCODER}input_layernorm.weight", f"{OURS}input_layernorm.weight"),
                (f"{_ENCODER}{after}.weight", f"{OURS}pre_mlp_layernorm.weight"),
                (
                    f"{_ENCODER}self_attention.query_key_value.{qkv}",
                    f"{_ATTENTION}linear_qkv.{qkv}",
                    fused,
                ),
                (f"{_ENCODER}self_attention.dense.weight", f"{_ATTENTION}linear_proj.weight"),
                (
                    f"{_ENCODER}mlp.dense_h_to_4h.weight",
                    f"{OURS}mlp.linear_fc1.weight",
                    "stacked rows alternate",
                ),
                (f"{_ENCODER}mlp.dense_4h_to_h.weight", f"{OURS}mlp.linear_fc2.weight"),
            ]
        ),
        ignored=("transformer.rotary_pos_emb.inv_freq",),
    )


CHATGLM_CLASSES = ("ChatGLMModel", "ChatGLMForConditionalGeneration")
FAMILIES = (
    Family(
        "exaone", "EXAONE 3", ("ExaoneForCausalLM",), EXAONE, read_exaone, in_transformers=False
    ),
    Family(
        "internlm2",
        "InternLM 2",
        ("InternLM2ForCausalLM",),
        INTERNLM2,
        read_internlm2,
        in_transformers=False,
    ),
    Family("xverse", "XVERSE", ("XverseForCausalLM",), XVERSE, read_xverse, in_transformers=False),
    Family("mimo", "MiMo", ("MiMoForCausalLM",), MIMO, read_mimo, in_transformers=False),
    Family("qwen", "Qwen", ("QWenLMHeadModel",), QWEN, read_qwen, in_transformers=False),
    Family("chatglm", "ChatGLM", CHATGLM_CLASSES, CHATGLM, read_chatglm, in_transformers=False),
)
