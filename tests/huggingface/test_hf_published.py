"""Configs as they are published: read, or refused by the field that asks for too much.

published.jsonl has 108 of them, each with its model and, where it is known, the number of
parameters on the model's page. Some were written by hand or by old versions of transformers.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from imported_models import spec_of

from specc.huggingface.read import read_config
from specc.huggingface.spec_text import spec_text
from specc.runtime.refusal import Refusal

LINES = (Path(__file__).parent / "published.jsonl").read_text().splitlines()
MODELS: dict[str, Any] = {line["model"]: line for line in map(json.loads, LINES)}

REFUSED = {
    "BAAI/bge-large-en": "type_vocab_size",
    "FacebookAI/roberta-base": "type_vocab_size",
    "MiniMaxAI/MiniMax-M3": "sparse_attention_config",
    "Qwen/Qwen2.5-VL-7B-Instruct": "vision_config",
    "Qwen/Qwen3-VL-2B-Instruct": "vision_config",
    "Qwen/Qwen3-VL-30B-A3B-Instruct": "vision_config",
    "Qwen/Qwen3-VL-4B-Instruct": "vision_config",
    "Qwen/Qwen3-VL-8B-Instruct": "vision_config",
    "Qwen/Qwen3.5-122B-A10B": "vision_config",
    "Qwen/Qwen3.5-27B": "vision_config",
    "Qwen/Qwen3.5-35B-A3B": "vision_config",
    "XiaomiMiMo/MiMo-V2-Flash": "attention_value_scale",
    "baichuan-inc/Baichuan2-7B-Chat": "z_loss_weight",
    "databricks/dbrx-base": "attn_config",
    "deepseek-ai/DeepSeek-V3.2": "index_topk",
    "deepseek-ai/DeepSeek-V4-Flash": "index_topk",
    "google-t5/t5-large": "is_encoder_decoder",
    "google-t5/t5-small": "is_encoder_decoder",
    "google/flan-t5-base": "is_encoder_decoder",
    "google/flan-t5-large": "is_encoder_decoder",
    "google/gemma-3-27b-it": "vision_config",
    "google/gemma-4-26B-A4B": "vision_config",
    "google/vit-huge-patch14-224-in21k": "image_size",
    "google/vit-large-patch32-224-in21k": "image_size",
    "inclusionAI/Ling-plus-base": "norm_head",
    "meta-llama/Llama-4-Maverick-17B-128E-Instruct-FP8": "vision_config",
    "meta-llama/Llama-4-Scout-17B-16E-Instruct": "vision_config",
    "microsoft/Phi-3-mini-128k-instruct": "rope_scaling",
    "microsoft/Phi-3-small-8k-instruct": "blocksparse_block_size",
    "microsoft/Phi-3.5-MoE-instruct": "input_jitter_noise",
    "moonshotai/Kimi-K2.5": "vision_config",
    "moonshotai/Kimi-K3": "vision_config",
    "mosaicml/mpt-7b": "attn_config",
    "nvidia/Llama-3_3-Nemotron-Super-49B-v1": "block_configs",
    "nvidia/NVIDIA-Nemotron-3-Ultra-550B-A55B-BF16": "moe_latent_size",
    "openbmb/MiniCPM3-4B": "scale_depth",
    "openbmb/MiniCPM4-8B": "scale_depth",
    "stepfun-ai/Step-3.7-Flash": "share_expert_dim",
    "tencent/Hunyuan-A13B-Instruct": "use_mixed_mlp_moe",
    "zai-org/GLM-5": "index_topk",
    "zai-org/GLM-5.2": "index_topk",
}
# The others with --more-configurations.
COUNTED = (
    "THUDM/chatglm2-6b",
    "google/gemma-3-1b-it",
    "openai-community/gpt2",
    "openai/gpt-oss-120b",
    "microsoft/phi-2",
)


def test_each_is_read_or_refused_by_its_field() -> None:
    for name, line in MODELS.items():
        try:
            read_config(line["config"])
        except Refusal as refusal:
            assert f"`{REFUSED[name]}` is " in str(refusal), (name, str(refusal))
        else:
            assert name not in REFUSED, name


def test_the_published_number_of_parameters(request: pytest.FixtureRequest) -> None:
    many = request.config.getoption("--more-configurations")
    for name in (name for name in MODELS if name not in REFUSED) if many else COUNTED:
        plan = read_config(MODELS[name]["config"]).plan
        model = spec_of(spec_text(plan, "model", "A model.")).build_module(device="meta")
        count = sum(parameter.numel() for parameter in model.parameters())
        assert MODELS[name]["parameters"] in (count, None), name
