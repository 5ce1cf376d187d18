"""One file for each family: what its config means, and where its tensors go."""

from __future__ import annotations

from ..plan import Family
from . import (
    cohere,
    deepseek,
    falcon,
    gemma,
    glm4,
    glm4_moe,
    gpt2,
    gpt_neox,
    gpt_oss,
    gptj,
    llama,
    mamba_hybrids,
    minimax,
    mistral,
    mixtral,
    olmo2,
    phi,
    phi3,
    qwen2,
    qwen3,
    qwen3_next,
    qwen_moe,
    remote,
    stablelm,
    starcoder2,
)

_ALL: tuple[Family, ...] = (
    gpt2.FAMILY,
    gptj.FAMILY,
    gpt_neox.FAMILY,
    *llama.FAMILIES,
    mistral.FAMILY,
    mixtral.FAMILY,
    qwen2.FAMILY,
    qwen_moe.QWEN2_MOE,
    qwen3.FAMILY,
    qwen_moe.QWEN3_MOE,
    *gemma.FAMILIES,
    phi.FAMILY,
    phi3.FAMILY,
    *olmo2.FAMILIES,
    cohere.FAMILY,
    starcoder2.FAMILY,
    *glm4.FAMILIES,
    glm4_moe.FAMILY,
    stablelm.FAMILY,
    falcon.FAMILY,
    gpt_oss.FAMILY,
    *deepseek.FAMILIES,
    minimax.FAMILY,
    qwen3_next.FAMILY,
    *mamba_hybrids.FAMILIES,
    *remote.FAMILIES,
)
FAMILIES = {family.model_type: family for family in _ALL}
"""By the `model_type` of a config.json."""
