"""Specs written as YAML."""

from pathlib import Path

import pytest

from specc.compiler.load import load_spec
from specc.compiler.target import Target
from specc.templates import (
    MLP,
    GPTModel,
    ModuleSpec,
    RMSNorm,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
)
from specc.templates.diagnostic import Diagnostic, Span, SpecError

CONFIG = """
config:
  num_layers: 2
  hidden_size: 32
  num_attention_heads: 4
  vocab_size: 64
  max_position_embeddings: 16
  layernorm_epsilon: 1e-6          # a text in YAML 1.1
  rotary_base: 500_000
  position_embedding_type: rope
  window_size: 8
  window_attn_skip_freq: [1, 0]
  qk_layernorm: true
  params_dtype: bfloat16
"""

TREE = """
module: GPTModel
submodules:
  embedding: LanguageModelEmbedding
  decoder:
    module: TransformerBlock
    params:
      layer_spec: &layer
        module: TransformerLayer
        submodules:
          input_layernorm: RMSNorm
          self_attention: {module: SelfAttention, submodules: {}}
          mlp: {module: MLP, params: }
      extra: [*layer, 1, 1.5, 1e3, no, "1", null, true, {a: b}]
  output_layer: {module: OutputLayer}
"""


def read(tmp_path: Path, text: str) -> ModuleSpec:
    file = tmp_path / "tiny.yaml"
    file.write_text(text)
    return load_spec(Target(file)).spec


def mistakes(tmp_path: Path, text: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        read(tmp_path, text)
    return caught.value.diagnostics


def test_tree(tmp_path: Path) -> None:
    spec = read(tmp_path, CONFIG + TREE)
    assert spec.module is GPTModel and list(spec.params) == ["config"]
    decoder = spec.submodules["decoder"]
    layer = decoder.params["layer_spec"]
    assert (decoder.module, layer.module) == (TransformerBlock, TransformerLayer)
    names = {name: child.module for name, child in layer.submodules.items()}
    assert names == {"input_layernorm": RMSNorm, "self_attention": SelfAttention, "mlp": MLP}
    first, *rest = decoder.params["extra"]
    assert first is layer
    assert rest == [1, 1.5, 1000.0, "no", "1", None, True, {"a": "b"}]


def test_config_is_read_by_its_fields(tmp_path: Path) -> None:
    import torch

    config = read(tmp_path, CONFIG + TREE).params["config"]
    assert config == TransformerConfig(
        num_layers=2,
        hidden_size=32,
        num_attention_heads=4,
        vocab_size=64,
        max_position_embeddings=16,
        layernorm_epsilon=1e-6,
        rotary_base=500000.0,
        position_embedding_type="rope",
        window_size=8,
        window_attn_skip_freq=(1, 0),
        qk_layernorm=True,
        params_dtype=torch.bfloat16,
    )


def test_places_are_lines_of_the_file(tmp_path: Path) -> None:
    spec = read(tmp_path, CONFIG + TREE)
    text = (CONFIG + TREE).splitlines()
    line = text.index("    module: TransformerBlock") + 1
    assert spec.submodules["decoder"].span == Span(str(tmp_path / "tiny.yaml"), line, 13, 29)


def test_spec_without_config_is_read(tmp_path: Path) -> None:
    assert read(tmp_path, "module: MLP\n").params == {}


BAD = [
    ("", "SP634", 1, "the file is empty", None),
    ("module: [", "SP630", 1, "this is not YAML", None),
    ("- module: MLP\n", "SP634", 1, "a mapping is needed here", "write `key: value`"),
    ("params: {}\n", "SP631", 1, "this spec has no `module`", None),
    ("module: MLP\nmodul: a\n", "SP631", 2, "a spec has no key `modul`", "did you mean `module`?"),
    ("module: SelfAttenton", "SP632", 1, "specc.templates has no class", "did you mean `SelfAtte"),
    ("module: TransformerConfig", "SP632", 1, "specc.templates has no class `Transf", "did you"),
    ("module: os.system", "SP632", 1, "`os.system` is not the name of a class", "write the spec"),
    ("module: {a: b}", "SP634", 1, "`module` is the name of a class", None),
    ("module: MLP\nparams: 3\n", "SP634", 2, "a mapping is needed here", "write `key: value`"),
    ("module: MLP\nmodule: MLP\n", "SP634", 2, "`module` stands here twice", "leave one out"),
    ("module: MLP\nparams: {[1]: 2}\n", "SP634", 2, "a key is a name", None),
    ("module: MLP\nparams:\n  <<: {a: b}\n", "SP634", 3, "merge keys", "name the whole node"),
    ("module: MLP\nparams: {config: {}}\n", "SP631", 2, "`config` cannot stand in params", "a YA"),
    ("module: MLP\nparams: !!python/object/apply:os.system [ls]\n", "SP634", 2, "the tag `!!p", ""),
]  # fmt: skip


@pytest.mark.parametrize(("text", "code", "line", "message", "help"), BAD)
def test_mistake(
    tmp_path: Path, text: str, code: str, line: int, message: str, help: str | None
) -> None:
    found = mistakes(tmp_path, text)[0]
    assert (found.code, found.span.line if found.span else None) == (code, line)
    assert found.message.startswith(message)
    assert (found.help or "").startswith(help or "")


@pytest.mark.parametrize(
    "text",
    [
        "module: MLP\nsubmodules:\n  a: &a\n    module: MLP\n    submodules: {b: *a}\n",
        "module: MLP\n\nsubmodules: &a\n  b: {module: MLP, submodules: *a}\n",
        "module: MLP\nparams:\n  x: &a [1, *a]\n",
    ],
)
def test_alias_inside_itself_ends(tmp_path: Path, text: str) -> None:
    (found,) = mistakes(tmp_path, text)
    assert found.message == "an alias stands inside the node that it names"
    assert found.code == "SP634" and found.span


def test_mistakes_of_a_file_come_together(tmp_path: Path) -> None:
    text = CONFIG + "  num_layer: 3\n  bf16: maybe\n  qk_layernrm: [1]\nmodule: GPTModl\n"
    found = mistakes(tmp_path, text)
    assert [(d.code, d.message, d.help) for d in found] == [
        ("SP632", "specc.templates has no class `GPTModl`", "did you mean `GPTModel`?"),
        ("SP633", "`TransformerConfig` has no field `num_layer`", "did you mean `num_layers`?"),
        ("SP633", "`bf16` takes true or false", "give what it takes"),
        (
            "SP633",
            "`TransformerConfig` has no field `qk_layernrm`",
            "did you mean `qk_layernorm`?",
        ),
    ]
    lines = (text).splitlines()
    assert [lines[d.span.line - 1].split()[0] for d in found if d.span] == [
        "module:", "num_layer:", "bf16:", "qk_layernrm:",
    ]  # fmt: skip


def test_what_the_config_refuses_is_shown_at_its_field(tmp_path: Path) -> None:
    text = CONFIG.replace("hidden_size: 32", "hidden_size: -1") + "module: MLP\n"
    found = mistakes(tmp_path, text)
    assert any(
        d.span and text.splitlines()[d.span.line - 1].strip() == "hidden_size: -1" for d in found
    )


def test_missing_fields_of_the_config_are_told(tmp_path: Path) -> None:
    found = mistakes(tmp_path, "config: {num_layers: 2}\nmodule: MLP\n")
    assert "hidden_size" in " ".join(d.message for d in found)
