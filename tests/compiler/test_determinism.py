"""The same spec gives the same bytes: whatever the hash seed, and wherever specc is started."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).parents[2] / "generated_examples"

# Each name of this model's options is met in sets and dicts: pattern, windows, two configs, biases.
MIXED = """
from specc.templates import *

config = TransformerConfig(
    num_layers=4, hidden_size=32, num_attention_heads=4, num_query_groups=2, vocab_size=61,
    max_position_embeddings=16, position_embedding_type="rope", rope_scaling="linear",
    rope_scaling_factor=2.0, window_size=4, window_attn_skip_freq=2, qk_layernorm=True,
    add_bias_linear=True, attention_dropout=0.1, hidden_dropout=0.1, softmax_type="learnable",
)
wide = TransformerConfig(
    num_layers=4, hidden_size=32, num_attention_heads=4, vocab_size=61, max_position_embeddings=16,
    ffn_hidden_size=96, activation="geglu",
)

def layer(**children):
    named = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    return ModuleSpec(TransformerLayer, submodules=named | children)

wider = layer(mlp=ModuleSpec(MLP, {"config": wide}))
layers = [layer(), wider, layer(pre_mlp_layernorm=IdentityOp)]
decoder = ModuleSpec(TransformerBlock, params={"layer_specs": [*layers, layers[0]]})
parts = {"embedding": ModuleSpec(LanguageModelEmbedding), "decoder": decoder}
model = ModuleSpec(GPTModel, params={"config": config}, submodules=parts)
"""

# One process for all: importing torch and the compiler costs more than a page.
COMPILE = """
import sys
from specc.compiler.cli import main
for spec in sys.argv[1:]:
    try:
        main(["compile", spec, "--no-validate"])
    except SystemExit as ended:
        assert not ended.code, spec
"""


def compiled(folder: Path, start: Path, seed: str) -> dict[str, str]:
    """The pages of a copy of the specs in `folder`, made by a process that starts in `start`."""
    folder.mkdir(parents=True)
    for name in ("llama_spec.py", "small_spec.py"):
        shutil.copy(EXAMPLES / name, folder)
    text = (EXAMPLES / "diy_gpt_spec.py").read_text(encoding="utf-8")
    model, _, _ = text.partition("# 用 ModuleSpec 构建真正的模型实例")  # its forward is slow
    (folder / "diy_gpt_spec.py").write_text(model, encoding="utf-8")
    (folder / "mixed_spec.py").write_text(MIXED, encoding="utf-8")
    start.mkdir(parents=True, exist_ok=True)
    specs = [os.path.relpath(file, start) for file in sorted(folder.glob("*_spec.py"))]
    specs = [f"{spec}:model" if "mixed" in spec else spec for spec in specs]
    done = subprocess.run(
        [sys.executable, "-c", COMPILE, *specs],
        cwd=start,
        env={**os.environ, "PYTHONHASHSEED": seed},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    pages = {file.name: file.read_text(encoding="utf-8") for file in folder.glob("*.py")}
    return {name: text for name, text in pages.items() if not name.endswith("_spec.py")}


@pytest.fixture(scope="module")
def first(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    folder = tmp_path_factory.mktemp("first") / "specs"
    return compiled(folder, folder, seed="1")


def test_all_pages_are_made(first: dict[str, str]) -> None:
    assert sorted(first) == ["diy_gpt.py", "llama.py", "mixed.py", "small.py"]
    assert "for i, kind in enumerate(" in first["mixed.py"]
    assert "Config(" in first["mixed.py"].partition("class GPTModel")[0]


@pytest.mark.parametrize(
    ("seed", "start"), [("2", "specs"), ("777", "elsewhere/deep")], ids=["same folder", "another"]
)
def test_another_hash_seed_and_folder_give_the_same_bytes(
    seed: str, start: str, first: dict[str, str], tmp_path: Path
) -> None:
    """Header included: where it tells the origin, it is relative to the page."""
    assert compiled(tmp_path / "specs", tmp_path / start, seed) == first


def test_a_page_of_the_clone_is_these_bytes_too(first: dict[str, str]) -> None:
    for name in ("llama.py", "small.py"):
        committed = (EXAMPLES / name).read_text(encoding="utf-8").splitlines()
        assert first[name].splitlines()[2:] == committed[2:]


def test_nothing_in_a_page_tells_when_or_where_it_was_made(first: dict[str, str]) -> None:
    for text in first.values():
        assert "/tmp" not in text and str(Path.home()) not in text
        assert "202" not in text.splitlines()[0]
