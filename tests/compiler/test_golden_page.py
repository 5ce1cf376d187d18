"""The pages of `generated_examples`: what their specs give, byte for byte, and how they look.

`pytest --update-golden tests/compiler/test_golden_page.py` writes them anew, like `specc compile`.
"""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import black
import pytest
import torch
from equality import load_page
from test_imports import PAGES, run_without_the_compiler

from specc.compiler.generate import generate
from specc.compiler.header import split_page
from specc.compiler.load import load_spec
from specc.compiler.page import BLACK
from specc.compiler.target import parse_target
from specc.compiler.upkeep.check import check_page
from specc.runtime import Mesh

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "generated_examples"
GOLDEN = EXAMPLES / "llama.py"
# Those that scale to any number of layers, and all.
SCALED = (GOLDEN, *(EXAMPLES / f"{name}.py" for name in ("small", "mixtral", "llama3_8b")))
FROM_TEMPLATES = (*SCALED, EXAMPLES / "deepseek_v3.py", EXAMPLES / "nemotron_h.py")
FROM_A_USER = EXAMPLES / "diy_gpt.py"

every_page = pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)


def body_of(page: Path) -> str:
    parsed = split_page(page.read_text(encoding="utf-8"))
    assert parsed is not None
    return parsed[1]


def test_these_are_the_pages() -> None:
    assert set(PAGES) == {*FROM_TEMPLATES, FROM_A_USER}


def test_the_golden_spec_gives_the_golden_page(pytestconfig: pytest.Config) -> None:
    target = parse_target("llama_spec.py:llama", EXAMPLES)
    generated = generate(target, validate=False)
    if pytestconfig.getoption("--update-golden"):
        GOLDEN.write_text(generated.page(GOLDEN), encoding="utf-8")
    assert generated.compiled.body == body_of(GOLDEN)


@every_page
def test_a_page_is_fresh(page: Path, pytestconfig: pytest.Config) -> None:
    verdict = check_page(page)
    if pytestconfig.getoption("--update-golden") and (not verdict.fresh or verdict.causes):
        header, _ = split_page(page.read_text(encoding="utf-8")) or pytest.fail("no header")
        target = parse_target(header.origin, EXAMPLES)
        generated = generate(target, header.overrides, validate=False)
        page.write_text(generated.page(page), encoding="utf-8")
        verdict = check_page(page)
    assert verdict.fresh, f"{verdict.render()}\n{verdict.diff}"


# ---------------------------------------------------------------- what it says


@every_page
def test_a_page_says_nothing_of_the_spec(page: Path) -> None:
    text = body_of(page)
    words = ("ModuleSpec", "build_module", "submodules", "layer_spec", "specc.templates")
    assert [word for word in (*words, "IdentityOp") if word in text] == []


def test_no_template_page_has_a_branch_but_on_labels() -> None:
    for page in FROM_TEMPLATES:
        branches = re.findall(r"^ *(?:el)?if .*", body_of(page), re.MULTILINE)
        assert [line.strip() for line in branches] == [
            "if not self.mesh.last_stage:",  # of the stack, and of the whole model
            "if not self.mesh.last_stage:",
            "if labels is None:",
            # Further tokens are predicted in training alone.
            *(["if not self.training:"] if page.stem == "deepseek_v3" else []),
        ]


@every_page
def test_a_page_imports_names_from_three_places(page: Path) -> None:
    lines = re.findall(r"^(?:from (\S+) import|import (\S+))", body_of(page), re.MULTILINE)
    roots = {(origin or module).partition(".")[0] for origin, module in lines}
    assert roots <= {"torch", "specc", *sys.stdlib_module_names}
    assert {origin for origin, _ in lines if origin.startswith("specc")} == {"specc.runtime"}


def test_the_golden_page_stands_in_order_and_keeps_its_names() -> None:
    text = body_of(GOLDEN)
    assert re.findall(r"^class (\w+)", text, re.MULTILINE) == [
        "Config", "LanguageModelEmbedding", "SelfAttention", "MLP", "TransformerLayer",
        "TransformerBlock", "GPTModel",
    ]  # fmt: skip
    assert len(text.splitlines()) < 200


def test_the_golden_page_has_the_names_of_the_spec_s_model() -> None:
    spec = load_spec(parse_target("llama_spec.py:llama", EXAMPLES)).spec
    page = load_page(body_of(GOLDEN))
    mine = page.build_model(Mesh.single(), device="meta").state_dict()
    theirs = spec.build_module(device="meta").state_dict()
    assert [(n, t.shape) for n, t in mine.items()] == [(n, t.shape) for n, t in theirs.items()]
    assert "decoder.layers.15.self_attention.linear_qkv.weight" in mine


def test_two_sizes_of_one_architecture_differ_in_their_numbers() -> None:
    target = parse_target("llama_spec.py:llama", EXAMPLES)
    other = generate(target, ("config.num_layers=2", "config.hidden_size=64"), validate=False)
    lines = zip(other.compiled.body.splitlines(), body_of(GOLDEN).splitlines(), strict=True)
    assert [mine.strip() for mine, theirs in lines if mine != theirs][-2:] == [
        "num_layers: int = 2",
        "hidden_size: int = 64",
    ]


# ---------------------------------------------------------------- that it runs


def test_pages_train_a_step_without_the_compiler_s_packages() -> None:
    run_without_the_compiler(f"""
import dataclasses, sys
sys.path.insert(0, {str(EXAMPLES)!r})
import torch
torch.set_num_threads(1)
from specc.runtime import Mesh
for name in {[page.stem for page in PAGES]!r}:
    page = __import__(name)
    sizes = dict(num_layers=2, hidden_size=32, num_attention_heads=4, num_query_groups=2,
                 ffn_hidden_size=48, vocab_size=61, max_position_embeddings=16,
                 num_moe_experts=16, moe_ffn_hidden_size=8, q_lora_rank=16, kv_lora_rank=16,
                 qk_head_dim=8, qk_pos_emb_head_dim=4, v_head_dim=8, hybrid_layer_pattern="M*-",
                 mamba_num_heads=4, mamba_head_dim=8, mamba_num_groups=2, mamba_state_dim=8)
    fields = {{f.name for f in dataclasses.fields(page.Config)}}
    config = page.Config(**{{n: v for n, v in sizes.items() if n in fields}})
    model = page.build_model(Mesh.single(), config)
    ids = torch.randint(61, (2, 9), generator=torch.Generator().manual_seed(0))
    output = model(input_ids=ids[:, :-1], labels=ids[:, 1:])
    loss = output if page.LOSS == "per_token" else output[0]
    loss.mean().backward()
    assert abs(loss.mean().item() - 4.1) < 0.5, loss
    assert all(p.grad.abs().sum() > 0 for p in model.parameters() if p.requires_grad)
    assert model(input_ids=ids[:, :-1]).shape == (2, 8, 61)
missing = {{m for m in ("libcst", "black", "jinja2", "specc.templates", "specc.compiler")}}
assert not missing & sys.modules.keys()
""")


@pytest.mark.parametrize("page", SCALED, ids=lambda page: page.stem)
def test_a_page_scales_by_its_config_alone(page: Path) -> None:
    module = load_page(body_of(page))
    config = module.Config(num_layers=3, hidden_size=32, num_attention_heads=4, vocab_size=61)
    model = module.build_model(Mesh.single(), config, device="meta")
    assert len(model.decoder.layers) == 3
    assert model.embedding.word_embeddings.weight.shape == (61, 32)


def test_initial_values_do_not_depend_on_the_number_of_layers() -> None:
    page = load_page(body_of(EXAMPLES / "small.py"))
    one, two = (page.build_model(Mesh.single(), page.Config(num_layers=n)) for n in (1, 2))
    name = "decoder.layers.0.self_attention.linear_qkv.weight"
    assert torch.equal(one.state_dict()[name], two.state_dict()[name])


# ---------------------------------------------------------------- style and types


@every_page
def test_black_leaves_a_page_as_it_is(page: Path) -> None:
    text = page.read_text(encoding="utf-8")
    assert black.format_str(text, mode=BLACK) == text
    assert BLACK.line_length == 100


@pytest.mark.parametrize("rules", ["default", "the project's"])
def test_ruff_finds_nothing_in_the_pages(rules: str) -> None:
    ours = "lint.isort.known-first-party=['specc']"  # imports stand in groups, specc's the last
    isolated = ["--isolated", "--config", ours] if rules == "default" else []
    done = run_module("ruff", "check", "--no-cache", *isolated, *map(str, PAGES))
    assert done.returncode == 0, done.stdout


def test_mypy_finds_nothing_in_the_pages_but_what_a_user_s_class_has() -> None:
    """Strict, apart from warn_return_any: pyproject.toml says that for the pages."""
    arguments = ["--no-error-summary", "--follow-imports", "silent", "--output", "json"]
    done = run_module("mypy", *arguments, *map(str, PAGES))
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert not done.stderr
    errors = [error for error in found if error["severity"] == "error"]
    assert {error["file"] for error in errors} <= {str(FROM_A_USER.relative_to(ROOT))}
    # As in its spec: no return type, and None for a parameter that is said to be a tensor.
    assert {error["code"] for error in errors} <= {"no-untyped-def", "assignment"}
    lines = FROM_A_USER.read_text(encoding="utf-8").splitlines()
    start = next(i for i, line in enumerate(lines) if line.startswith("class DiySimpleGPTModel"))
    assert all(error["line"] > start for error in errors)


def run_module(name: str, *arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", name, *arguments]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
