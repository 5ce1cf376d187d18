"""Hybrid stacks: what a page says of the pattern, how many parameters models have, mistakes."""

from __future__ import annotations

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest
import torch
from equality import load_page

from specc.compiler.load import load_spec
from specc.compiler.pipeline import compile_spec
from specc.compiler.target import parse_target
from specc.runtime import Mesh
from specc.templates import (
    MLP,
    AttentionLayer,
    ConfigError,
    GatedDeltaNet,
    GatedDeltaNetLayer,
    HybridModel,
    HybridStack,
    MambaLayer,
    MambaMixer,
    MLPLayer,
    ModuleSpec,
    MoELayer,
    SelfAttention,
    SpecError,
    TransformerConfig,
    construct,
    prepare,
)

EXAMPLES = Path(__file__).parents[2] / "generated_examples"
LAYERS: dict[str, ModuleSpec] = {
    "mamba_layer": ModuleSpec(MambaLayer, submodules={"mixer": MambaMixer}),
    "gdn_layer": ModuleSpec(GatedDeltaNetLayer, submodules={"mixer": GatedDeltaNet}),
    "attention_layer": ModuleSpec(AttentionLayer, submodules={"self_attention": SelfAttention}),
    "mlp_layer": ModuleSpec(MLPLayer, submodules={"mlp": MLP}),
    "moe_layer": ModuleSpec(MLPLayer, submodules={"mlp": MoELayer}),
}
SMALL: dict[str, Any] = {
    "hidden_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 61,
    "max_position_embeddings": 16,
    "position_embedding_type": "rope",
}
QWEN3_NEXT: dict[str, Any] = {
    "pattern": "GEGEGE*E" * 12,
    "hidden_size": 2048,
    "num_attention_heads": 16,
    "num_query_groups": 2,
    "kv_channels": 256,
    "attention_output_gate": True,
    "qk_layernorm": True,
    "normalization": "RMSNorm",
    "layernorm_zero_centered_gamma": True,
    "layernorm_epsilon": 1e-6,
    "position_embedding_type": "rope",
    "rotary_base": 1e7,
    "rotary_percent": 0.25,
    "activation": "swiglu",
    "vocab_size": 151936,
    "max_position_embeddings": 262144,
    "num_moe_experts": 512,
    "moe_router_topk": 10,
    "moe_ffn_hidden_size": 512,
    "moe_shared_expert_intermediate_size": 512,
    "moe_shared_expert_gate": True,
}
NEMOTRON_H_56B: dict[str, Any] = {
    "hybrid_layer_pattern": "M-M-M-M*-" + "M-M-M-M-M*-" * 9 + "M-M-M-M-M-",
    "num_layers": 118,
    "hidden_size": 8192,
    "num_attention_heads": 64,
    "ffn_hidden_size": 32768,
    "mamba_num_heads": 256,
    "mamba_state_dim": 256,
}


def spec(pattern: str, *, without: str = "", **fields: Any) -> ModuleSpec:
    fields = {"num_layers": len(pattern), "hybrid_layer_pattern": pattern} | fields
    config = TransformerConfig(**SMALL | fields)
    layers = {name: layer for name, layer in LAYERS.items() if name != without}
    decoder = ModuleSpec(HybridStack, submodules=layers)
    return ModuleSpec(HybridModel, params={"config": config}, submodules={"decoder": decoder})


def stack(page: str) -> str:
    """The constructor of the stack, as it stands on a page."""
    found = re.search(r"class HybridStack.*?self\.final_layernorm", page, re.DOTALL)
    assert found is not None
    return found[0]


def parameters(of: ModuleSpec) -> int:
    with torch.device("meta"):
        model = construct(prepare(of).spec, Mesh.single())
    return sum(p.numel() for p in model.parameters())


def test_the_pattern_is_the_configs_and_the_page_has_a_table_of_its_kinds() -> None:
    page = compile_spec(spec("*-*E-E", num_moe_experts=4), validate=False).body
    text = stack(page)
    assert 'kinds = {"*": AttentionLayer, "-": MLPLayer, "E": MoEMLPLayer}' in text
    assert "[kinds[symbol](config, mesh) for symbol in config.hybrid_layer_pattern]" in text
    assert 'hybrid_layer_pattern: str = "*-*E-E"  # the layers, a symbol for each' in page


def test_the_page_goes_by_the_pattern_that_it_is_given() -> None:
    page = load_page(compile_spec(spec("*-*-"), validate=False).body)
    other = dataclasses.replace(page.Config(), num_layers=3, hybrid_layer_pattern="--*")
    layers = page.build_model(Mesh.single(), other).decoder.layers
    names = [type(layer).__name__ for layer in layers]
    assert names == ["MLPLayer", "MLPLayer", "AttentionLayer"]


def test_what_goes_by_the_layers_number_is_told_it() -> None:
    windows = {"window_size": 4, "window_attn_skip_freq": [1, 0, 0, 0]}
    compiled = compile_spec(spec("*-*-", **windows))
    assert "for i, symbol in enumerate(config.hybrid_layer_pattern)" in stack(compiled.body)


def test_a_long_pattern_stands_on_several_lines() -> None:
    page = compile_spec(spec(**QWEN3_NEXT), validate=False).body
    assert 'kinds = {"G": GatedDeltaNetLayer, "*": AttentionLayer, "E": MLPLayer}' in stack(page)
    assert '    hybrid_layer_pattern: str = (\n        "GEGEGE*E' in page
    assert max(map(len, page.splitlines())) <= 100


@pytest.mark.parametrize(
    ("of", "count"),
    [
        # Qwen/Qwen3-Next-80B-A3B-Instruct and nvidia/Nemotron-H-56B-Base-8K, as published.
        (spec(**QWEN3_NEXT), 79_674_391_296),
        ("nemotron_h", 8_100_852_736),
        ("nemotron_h_56b", 56_324_350_464),
    ],
    ids=["qwen3_next", "nemotron_h_8b", "nemotron_h_56b"],
)
def test_parameters_of_published_models(of: ModuleSpec | str, count: int) -> None:
    if isinstance(of, str):
        found = load_spec(parse_target("nemotron_h_spec.py:nemotron_h", EXAMPLES)).spec
        config = found.params["config"]
        if of.endswith("56b"):
            config = dataclasses.replace(config, **NEMOTRON_H_56B)
        of = ModuleSpec(found.module, params={"config": config}, submodules=found.submodules)
    assert parameters(of) == count


def test_a_symbol_without_a_layer_is_told() -> None:
    with pytest.raises(SpecError) as told:
        prepare(spec("*-E", without="moe_layer", num_moe_experts=4))
    (found,) = told.value.diagnostics
    assert (found.code, found.help) == ("SP134", "add `moe_layer` to submodules")
    with pytest.raises(SpecError, match="the config does not set it"):
        prepare(spec("*-", hybrid_layer_pattern=None))


@pytest.mark.parametrize(
    ("pattern", "fields", "message", "help"),
    [
        ("*-|*-", {}, "has '|'", "chosen at launch"),
        ("*x", {}, "has 'x'", "`M`, `G`, `*`, `+`, `-`, `E`"),
        ("*-*", {"num_layers": 2}, "has 3 symbols", "num_layers=3"),
        ("*E", {}, "`num_moe_experts` is None", "set `num_moe_experts`"),
        ("*-", {"mtp_num_layers": 1}, "`mtp_num_layers` are set", "leave one of them out"),
    ],
)
def test_patterns_that_no_stack_has(
    pattern: str, fields: dict[str, Any], message: str, help: str
) -> None:
    with pytest.raises(ConfigError) as told:
        spec(pattern, **fields)
    (found,) = told.value.diagnostics
    assert found.code == "SP167"
    assert message in found.message and help in (found.help or "")
