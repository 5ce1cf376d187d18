"""Pages that are made to stand alone: the examples, and shapes of known families, all small."""

from __future__ import annotations

import functools
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from configurations import OPTIONS, at_work, config_of, spec_of
from pairs import covering

from specc.compiler.header import split_page
from specc.compiler.pipeline import compile_spec
from specc.compiler.standalone import standalone_page

EXAMPLES = Path(__file__).parents[2] / "generated_examples"

# Sizes at which an example runs.
SIZES: dict[str, dict[str, Any]] = {
    "llama": {
        "num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_query_groups": 2,
        "ffn_hidden_size": 48, "vocab_size": 131,
    },
    "small": {
        "num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "num_query_groups": 2,
        "ffn_hidden_size": 48,
    },
    "diy_gpt": {"hidden_size": 32, "num_attention_heads": 4, "vocab_size": 131},
    "nemotron_h": {
        "num_layers": 4, "hybrid_layer_pattern": "M-*-", "hidden_size": 32,
        "num_attention_heads": 4, "num_query_groups": 2, "kv_channels": 8, "ffn_hidden_size": 48,
        "vocab_size": 131, "mamba_state_dim": 8, "mamba_head_dim": 8, "mamba_num_groups": 2,
        "mamba_num_heads": 4,
    },
}  # fmt: skip

# What a family has besides the defaults of the templates, in the names of `configurations.OPTIONS`.
PLAIN: dict[str, Any] = {name: values[0] for name, values in OPTIONS.items()} | {"num_layers": 2}
FAMILIES: dict[str, dict[str, Any]] = {
    "gpt2": {
        "activation": "gelu_tanh", "bias": "add_bias_linear", "hidden_dropout": 0.2,
        "attention_dropout": 0.2,
    },
    "gemma": {
        "heads": (4, 2), "position": "rope", "kv_channels": 16, "activation": "geglu_tanh",
        "norm": "RMSNorm", "zero_centered": True, "qk_layernorm": True, "window": (4, 2),
        "softcap": 20.0, "scale": 0.3,
    },
    "sinks": {
        "heads": (4, 2), "position": "rope", "scaling": "yarn", "activation": "swiglu",
        "norm": "RMSNorm", "bias": "add_qkv_bias", "window": (4, "pattern"),
        "softmax": "learnable", "untied": True,
    },
    "gate": {
        "position": "rope", "rotary": {"rotary_interleaved": True}, "scaling": "llama3",
        "activation": "squared_relu", "softmax": "off-by-one", "gate": True, "untied": True,
        "stack": "two kinds", "dialect": "dataclass",
    },
}  # fmt: skip

ALWAYS, MORE = 1, 10  # random configurations


@dataclass(frozen=True)
class Case:
    """A page, the fields of its config in which the run differs, and the page that stands alone."""

    name: str
    page: str
    sizes: dict[str, Any]
    text: str


@functools.cache
def case(name: str) -> Case:
    """The case of an example, of a family, or `random N`; made once a process."""
    if name in SIZES:
        parsed = split_page((EXAMPLES / f"{name}.py").read_text(encoding="utf-8"))
        assert parsed is not None
        page, sizes = parsed[1], SIZES[name]
    else:
        drawn = PLAIN | FAMILIES[name] if name in FAMILIES else rows()[int(name.split()[1])]
        page, sizes = compile_spec(spec_of(drawn), validate=False).body, {}
    return Case(name, page, sizes, standalone_page(page, f"{name}.py", validate=False))


@functools.cache
def rows() -> list[dict[str, Any]]:
    """Configurations of which the first hold as many pairs of option values as they can."""
    found = covering(OPTIONS, at_work)
    for row in found:
        config_of(row)
    return found
