"""The tutorial's whole GPT, as a user copies it: it runs, it compiles, and its page is its model.

Each of its traps has a test by its letter.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from equality import assert_page_equals_spec, load_page, run, token_inputs
from torch import nn

from specc.compiler.cli import main
from specc.compiler.header import split_page
from specc.compiler.load import forget_last, load_spec
from specc.compiler.pipeline import Compiled, compile_spec
from specc.compiler.target import parse_target
from specc.runtime import Mesh
from specc.templates import (
    MLP,
    GPTModel,
    IdentityOp,
    LanguageModelEmbedding,
    LayerNorm,
    MegatronModule,
    ModelParallelConfig,
    ModuleSpec,
    OutputLayer,
    RotaryPositionalEmbedding,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
    TransformerLayerSubmodules,
    prepare,
)

EXAMPLE = Path(__file__).parents[2] / "generated_examples" / "diy_gpt_spec.py"
PAGE = EXAMPLE.with_name("diy_gpt.py")
REDUCED = {
    "num_layers": 2,
    "hidden_size": 48,
    "num_attention_heads": 4,
    "seq_length": 32,
    "vocab_size": 211,
}


@pytest.fixture(scope="module")
def example() -> Iterator[ModuleType]:
    """The file as it stands, of 162 million parameters: it builds and trains on being imported."""
    load_spec(parse_target(f"{EXAMPLE.name}:diy_simple_gpt_spec", EXAMPLE.parent))
    yield sys.modules["diy_gpt_spec"]
    forget_last()


@pytest.fixture
def reduced(tmp_path: Path) -> Path:
    """The file with smaller numbers at its top."""
    text = EXAMPLE.read_text(encoding="utf-8")
    for name, value in REDUCED.items():
        text, count = re.subn(rf"^{name} = \d+", f"{name} = {value}", text, flags=re.MULTILINE)
        assert count == 1, name
    file = tmp_path / "diy_gpt_spec.py"
    file.write_text(text, encoding="utf-8")
    return file


# ---------------------------------------------------------------- at its full size


def test_it_runs_as_it_stands(example: ModuleType) -> None:
    assert tuple(example.logits.shape) == (2, 15, 50257)
    assert example.loss.item() == pytest.approx(torch.tensor(50257.0).log().item(), abs=0.5)
    rows = example.logits.flatten(0, 1)
    assert torch.equal(example.loss, F.cross_entropy(rows, example.labels.flatten()))


def test_its_page_gives_the_same_logits_and_loss(example: ModuleType) -> None:
    """On the very tokens that the file drew; the page is the committed one."""
    parsed = split_page(PAGE.read_text(encoding="utf-8"))
    assert parsed is not None
    page = load_page(parsed[1], "diy_gpt_page")
    model = page.build_model(Mesh.single())
    ours, theirs = model.state_dict(), example.model.state_dict()
    assert list(ours) == list(theirs)
    assert all(torch.equal(ours[name], theirs[name]) for name in theirs)
    loss, logits = model(input_ids=example.input_ids, labels=example.labels)
    assert torch.equal(logits, example.logits)
    assert torch.equal(loss, example.loss)
    assert page.LOSS == "local_mean"


# ---------------------------------------------------------------- at a smaller size


def test_two_steps_and_an_evaluation_are_the_same_bit_for_bit(reduced: Path) -> None:
    spec = load_spec(parse_target(f"{reduced.name}:diy_simple_gpt_spec", reduced.parent)).spec
    text = assert_page_equals_spec(spec, token_inputs(REDUCED["vocab_size"], batch=3, length=17))
    assert "class DiySimpleGPTModel(nn.Module):" in text


# ---------------------------------------------------------------- its traps


SIZES: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 32,
    "num_attention_heads": 4,
    "vocab_size": 61,
    "max_position_embeddings": 16,
}


def gpt(config: TransformerConfig, layer: Any = None, **embedding: Any) -> ModuleSpec:
    """A model in the tutorial's dialect, which names no norms."""
    children = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    spec = ModuleSpec(TransformerLayer, submodules=layer or children)
    return ModuleSpec(
        GPTModel,
        params={"config": config},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding, params=embedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": spec}),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )


def compiled(spec: ModuleSpec) -> Compiled:
    return compile_spec(spec, validate=False)


def test_trap_a_norms_that_are_not_named_are_the_config_s(example: ModuleType) -> None:
    decoder = example.model.decoder
    assert isinstance(decoder.final_layernorm, LayerNorm)
    assert isinstance(decoder.layers[0].input_layernorm, LayerNorm)
    body = compiled(gpt(TransformerConfig(**SIZES, normalization="RMSNorm"))).body
    assert body.count("= RMSNorm(") == 3 and "LayerNorm(" not in body


def test_trap_a_an_identity_says_that_there_is_no_norm() -> None:
    children = {"self_attention": SelfAttention, "mlp": MLP, "pre_mlp_layernorm": IdentityOp}
    body = compiled(gpt(TransformerConfig(**SIZES), children)).body
    assert "x + self.mlp(x)" in body and "self.input_layernorm(x)" in body


def test_trap_a_in_megatron_s_dialect_an_absent_norm_is_none() -> None:
    children = TransformerLayerSubmodules(self_attention=SelfAttention, mlp=MLP)
    body = compiled(gpt(TransformerConfig(**SIZES), children)).body
    assert "x + self.mlp(x)" in body and "input_layernorm" not in body


def test_trap_b_a_rotary_object_makes_every_attention_rotary(example: ModuleType) -> None:
    decoder = example.model.decoder
    assert decoder.config.position_embedding_type == "rope"
    assert example.model.embeddings.position_embeddings is None
    note = next(n for n in prepare(example.diy_simple_gpt_spec).notes if n.code == "SP190")
    assert note.span is not None and note.span.file == example.__file__
    text = PAGE.read_text(encoding="utf-8")
    block = text.partition("class TransformerBlock")[2].partition("\nclass ")[0]
    assert "rotary = rotary_tables(positions, " in block  # in plain sight
    assert "apply_rotary(q, *rotary)" in text


def test_trap_b_without_a_rotary_object_positions_are_learned_and_nothing_turns() -> None:
    body = compiled(gpt(TransformerConfig(**SIZES))).body
    assert "rotary" not in body and "PositionEmbedding(" in body
    rotary = RotaryPositionalEmbedding(rotary_base=50.0)
    body = compiled(gpt(TransformerConfig(**SIZES), rotary_pos_emb=rotary)).body
    assert "apply_rotary" in body and "rotary_base: float = 50.0" in body
    assert "PositionEmbedding(" not in body


def test_trap_c_the_block_numbers_its_layers(example: ModuleType) -> None:
    notes = prepare(example.diy_simple_gpt_spec).notes
    note = next(n for n in notes if n.code == "SP191")
    assert note.span is not None and note.span.file == example.__file__
    one = {"layer_number": 1}
    children = {"self_attention": ModuleSpec(SelfAttention, params=one), "mlp": MLP}
    config = TransformerConfig(**SIZES, window_size=3, window_attn_skip_freq=2)
    model = gpt(config, children).build_module()
    assert [layer.self_attention.window for layer in model.decoder.layers] == [3, None]
    assert_page_equals_spec(gpt(config, children), token_inputs(61))


def test_trap_d_labels_that_are_a_slice_cannot_be_viewed() -> None:
    labels = torch.zeros(2, 16, dtype=torch.long)[:, 1:]
    with pytest.raises(RuntimeError, match="view size is not compatible"):
        labels.view(-1)
    for file in (EXAMPLE, PAGE):
        text = file.read_text(encoding="utf-8")
        assert "labels.view" not in text
        lines = [line.strip() for line in text.splitlines()]
        (at,) = (i for i, line in enumerate(lines) if line.startswith("labels.reshape(-1),"))
        assert lines[at - 1] == "# Not view, which raises: `input_ids[:, 1:]` is not contiguous."


def test_trap_e_its_logits_are_whole_and_those_of_gpt_model_are_not() -> None:
    text = PAGE.read_text(encoding="utf-8")
    assert "gather_output=True" in text and 'LOSS = "local_mean"' in text
    body = compiled(gpt(TransformerConfig(**SIZES))).body
    assert "gather_output" not in body and 'LOSS = "per_token"' in body


def test_trap_f_a_forward_on_import_does_not_disturb_the_compiler(
    reduced: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(reduced.parent)
    with pytest.raises(SystemExit) as ended:
        main(["compile", reduced.name])
    forget_last()
    out, err = capfd.readouterr()
    assert ended.value.code == 0, err
    assert re.fullmatch(r"wrote diy_gpt\.py: \d+ lines, [\d,]+ parameters, validated\n", out)
    assert "logits shape: torch.Size([2, 16, 211])\nloss: " in err
    assert "note[SP190]" in err and "note[SP191]" in err


class Outer(MegatronModule):
    """Plain parts of the user's own beside a child that the tutorial's dialect builds before it."""

    def __init__(self, config: ModelParallelConfig, child: MegatronModule) -> None:
        super().__init__(config=config)
        self.before = nn.Linear(8, 8)
        self.child = child
        self.gain = nn.Parameter(torch.randn(8) * 2)

    def forward(self, input_ids: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        x = F.one_hot(input_ids, 8).float()
        return (self.child(self.before(x)) * self.gain).sum(-1)


class Inner(MegatronModule):
    def __init__(self, config: ModelParallelConfig) -> None:
        super().__init__(config=config)
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x + self.second(self.first(x).relu())


def test_trap_g_initial_values_do_not_depend_on_the_order_of_building() -> None:
    spec = ModuleSpec(Outer, {"config": TransformerConfig(**SIZES)}, {"child": ModuleSpec(Inner)})
    inputs = {"input_ids": torch.arange(6).reshape(2, 3)}
    body = compiled(spec).body
    assert "self.child = Inner()" in body  # inside its parent, after `before`
    page = load_page(body)
    seen = run(page.build_model(Mesh.single(), seed=3), inputs)
    expected = run(spec.build_module(seed=3), inputs)
    assert list(seen) == list(expected)
    assert all(torch.equal(seen[name], expected[name]) for name in expected)
    alone = ModuleSpec(Inner, {"config": TransformerConfig(**SIZES)}).build_module(seed=3)
    assert not torch.equal(alone.first.weight, alone.second.weight)
