"""The documentation's table of families is the code's; defaults are those of transformers."""

from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest
import transformers

from specc.huggingface.families import FAMILIES
from specc.huggingface.read import read_config

ROOT = Path(__file__).parents[2]
SCRIPT = ROOT / "scripts" / "huggingface_table.py"


def test_the_table_of_families_is_the_code_s() -> None:
    """`python scripts/huggingface_table.py` writes it."""
    spec = importlib.util.spec_from_file_location("huggingface_table", SCRIPT)
    assert spec is not None and spec.loader is not None
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    text = (ROOT / "docs" / "huggingface.md").read_text()
    assert "\n".join(script.families()) in text


# Where the class's own defaults are no model: an odd number of channels turns, or none is given.
NEEDED = {"deepseek_v2": {"num_experts_per_tok": 6}, "glm4_moe": {"num_attention_heads": 32}}


@pytest.mark.parametrize("kind", [k for k, family in FAMILIES.items() if family.in_transformers])
def test_what_a_file_leaves_out_is_what_the_class_has(kind: str) -> None:
    """A config with next to nothing in it reads as the full dump of the same."""
    needed = NEEDED.get(kind, {})
    name = {"kimi_k2": "deepseek_v3"}.get(kind, kind)
    whole = json.loads(transformers.CONFIG_MAPPING[name](**needed).to_json_string(use_diff=False))
    classes = {"model_type": kind, "architectures": list(FAMILIES[kind].architectures)}
    bare = read_config(classes | needed).plan
    full = read_config(whole | classes).plan
    assert bare.config == full.config
    assert bare.rows == full.rows
