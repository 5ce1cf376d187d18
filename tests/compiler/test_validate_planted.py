"""Changes planted in a page, as a mistake of the compiler's would be: each is caught.

A mistake would be in the page of the small copy too, so the change is made in both.
"""

from __future__ import annotations

import functools
from collections.abc import Callable
from dataclasses import dataclass

import pytest
import validated_models as models

from specc.compiler.pipeline import translate
from specc.compiler.validate import ValidationError, validate_page
from specc.compiler.validate.numbers import compare_numbers
from specc.compiler.validate.page_module import page_module
from specc.runtime import Mesh
from specc.templates.prepare import Prepared, prepare
from specc.templates.spec import PreparedSpec, construct


@dataclass(frozen=True)
class Planted:
    """A change of one place (`all_places`: of each) in the page of a model; what it is called.

    `numeric` says that the comparison of numbers finds it without the structural one.
    """

    model: str
    old: str
    new: str
    code: str
    says: str
    numeric: bool = True
    all_places: bool = False

    def __call__(self, text: str) -> str:
        assert text.count(self.old) >= 1, f"the page has no {self.old!r}"
        return text.replace(self.old, self.new, -1 if self.all_places else 1)


ROW = "init_std=config.init_method_std / (2 * config.num_layers) ** 0.5,\n"
LAYER = "decoder.layers.0"

PLANTED = {
    "an epsilon": Planted(
        "llama",
        "RMSNorm(config.hidden_size, config.layernorm_epsilon)",
        "RMSNorm(config.hidden_size, 1e-6)",
        "SP501",
        "`eps` of `decoder.layers.0.input_layernorm`",
    ),
    "an epsilon in the config": Planted(
        "llama",
        "layernorm_epsilon: float = 1e-5",
        "layernorm_epsilon: float = 1e-6",
        "SP501",
        "eps",
    ),
    "an order of addition": Planted(
        "options",
        "x = x + self.self_attention_dropout(",
        "x = x * 1.0 + self.self_attention_dropout(",
        "SP503",
        f"`{LAYER}`",
        numeric=False,  # the same number
    ),
    "the sides of an addition": Planted(
        "llama",
        "return x + self.mlp(self.pre_mlp_layernorm(x))",
        "return self.mlp(self.pre_mlp_layernorm(x)) + x",
        "SP503",
        "aten.add",
        numeric=False,
    ),
    "an initial value": Planted(
        "llama", ROW, "init_std=config.init_method_std,\n", "SP502", "self_attention.linear_proj"
    ),
    "an initial value of a plain parameter": Planted(
        "counting",
        "torch.ones(config.hidden_size) * 0.5",
        "torch.ones(config.hidden_size) * 0.25",
        "SP502",
        "first value of `scale`",
    ),
    "a fill of a plain layer": Planted(
        "counting", "std=0.1", "std=0.2", "SP502", "first value of `head.weight`"
    ),
    "a buffer": Planted(
        "counting", "torch.linspace(0.0,", "torch.linspace(0.5,", "SP502", "`shift`"
    ),
    "a dropped bias": Planted(
        "options", "bias=True,\n            unit=unit", "unit=unit", "SP501", "linear_qkv.bias"
    ),
    "an added bias": Planted(
        "llama",
        "mesh,\n            unit=unit",
        "mesh, bias=True,\n            unit=unit",
        "SP501",
        "linear_qkv.bias",
    ),
    "q and k norms swapped": Planted(
        "options",
        "q, k = self.q_layernorm(q), self.k_layernorm(k)",
        "q, k = self.k_layernorm(q), self.q_layernorm(k)",
        "SP503",
        f"`{LAYER}.self_attention`, train step 1",
    ),
    "a scale of attention": Planted(
        "llama", "causal=True)", "causal=True, scale=0.1)", "SP503", f"`{LAYER}.self_attention`"
    ),
    "causality": Planted("llama", "causal=True)", "causal=False)", "SP503", "self_attention"),
    "another activation": Planted(
        "llama", "F.silu(gate)", "F.gelu(gate)", "SP503", f"`{LAYER}.mlp`"
    ),
    "gelu by tanh": Planted(
        "options",
        "F.gelu(self.linear_fc1(x))",
        'F.gelu(self.linear_fc1(x), approximate="tanh")',
        "SP503",
        "aten.gelu",
    ),
    "gate and up swapped": Planted(
        "llama", "F.silu(gate) * up", "F.silu(up) * gate", "SP503", f"`{LAYER}.mlp`"
    ),
    "a dropout left out": Planted(
        "options", "return self.embedding_dropout(x, positions)", "return x", "SP503", "embedding"
    ),
    "a dropout's module left out": Planted(
        "options",
        "        self.embedding_dropout = Dropout(config.hidden_dropout, mesh)\n",
        "        self.embedding_dropout = lambda x, positions: x\n",
        "SP501",
        "embedding_dropout",
        numeric=True,
    ),
    "attention dropout in eval too": Planted(
        "options",
        "self.config.attention_dropout if self.training else 0.0",
        "self.config.attention_dropout",
        "SP503",
        "eval",
    ),
    "a dropout's probability": Planted(
        "options",
        "self.mlp_dropout = Dropout(config.hidden_dropout, mesh)",
        "self.mlp_dropout = Dropout(0.2, mesh)",
        "SP501",
        "`p` of `decoder.layers.0.mlp_dropout`",
    ),
    "a layer's number": Planted(
        "options", "layer_number=i + 1", "layer_number=i", "SP503", "self_attention"
    ),
    "a number in the config": Planted(
        "llama",
        "ffn_hidden_size: int = 8192",
        "ffn_hidden_size: int = 8200",
        "SP501",
        "`decoder.layers.0.mlp.linear_fc1.weight`",
        numeric=False,  # shrunk along
    ),
    "a renamed parameter": Planted(
        "llama",
        "self.linear_fc1",
        "self.linear_in",
        "SP501",
        "has no `decoder.layers.0.mlp.linear_fc1.weight`",
        all_places=True,
    ),
    "modules in another order": Planted(
        "llama",
        "        self.input_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)\n"
        "        self.self_attention = SelfAttention(config, mesh)\n",
        "        self.self_attention = SelfAttention(config, mesh)\n"
        "        self.input_layernorm = RMSNorm(config.hidden_size, config.layernorm_epsilon)\n",
        "SP501",
        "another order",
        numeric=False,
    ),
    "a tie left out": Planted(
        "options",
        "        self.output_layer.weight = self.embedding.word_embeddings.weight\n",
        "",
        "SP501",
        "`output_layer.weight` is tied to",
    ),
    "another type": Planted(
        "llama",
        "return self.final_layernorm(x)",
        "return self.final_layernorm(x).bfloat16()",
        "SP503",
        "torch.bfloat16",
    ),
    "the last norm left out": Planted(
        "llama", "return self.final_layernorm(x)", "return x", "SP503", "pow"
    ),
    "one parameter more": Planted(
        "counting",
        "        self.calls = 0\n",
        "        self.calls = 0\n        self.extra = nn.Parameter(torch.zeros(3))\n",
        "SP501",
        "has `extra`",
    ),
    "a residual from the wrong tensor": Planted(
        "llama",
        "        x = x + self.self_attention(self.input_layernorm(x), positions, rotary)\n",
        "        x = self.input_layernorm(x)\n"
        "        x = x + self.self_attention(x, positions, rotary)\n",
        "SP503",
        f"`{LAYER}`",
    ),
    "another rotary base": Planted(
        "llama", "rotary_base: float = 500000.0", "rotary_base: float = 10000.0", "SP503", "10000.0"
    ),
    "another rotary part": Planted(
        "options", "rotary_percent: float = 0.5", "rotary_percent: float = 1.0", "SP503", "arange"
    ),
    "a rotary table turned": Planted(
        "llama",
        "apply_rotary(k, *rotary)",
        "apply_rotary(k, *rotary[::-1])",
        "SP503",
        "self_attention",
    ),
    "another window": Planted(
        "options",
        "window_size: int = 20",
        "window_size: int = 21",
        "SP503",
        "21",
        numeric=False,
    ),
    "a window left out": Planted(
        "options", "window=self.window,", "window=None,", "SP503", "self_attention"
    ),
    "another soft cap": Planted(
        "sinks", "softcapping: float = 20.0", "softcapping: float = 30.0", "SP503", "30.0"
    ),
    "another pattern of windows": Planted(
        "sinks",
        "(1, 1, 0, 1)",
        "(1, 0, 1, 1)",
        "SP503",
        "decoder.layers.1",
        numeric=False,
    ),
    "the second call": Planted(
        "counting", "if self.calls > 1:", "if self.calls > 9:", "SP503", "train step 2"
    ),
    "eval alone": Planted("counting", "x = x * 2.0", "x = x * 3.0", "SP503", "eval without labels"),
    "labels alone": Planted(
        "llama",
        "return self.output_layer(x)",
        "return self.output_layer(x * 2)",
        "SP503",
        "eval without labels",
    ),
    "a mean over all labels": Planted(
        "mean_loss", "ignore_index=-100", "ignore_index=-101", "SP503", "-101"
    ),
    "a cut between heads": Planted(
        "llama",
        "            unit=unit,\n",
        "",
        "SP501",
        "`unit` that `ColumnParallelLinear`",
        numeric=False,  # it only shows in several processes
    ),
    "a gather left out": Planted(
        "mean_loss",
        "            gather_output=True,\n",
        "",
        "SP501",
        "`gather_output`",
        numeric=False,
    ),
    "columns for rows": Planted(
        "llama",
        "self.linear_fc2 = RowParallelLinear(",
        "self.linear_fc2 = ColumnParallelLinear(",
        "SP501",
        "global shape of `decoder.layers.0.mlp.linear_fc2.weight`",
        numeric=False,
    ),
    "a layer less": Planted(
        "llama",
        "range(config.num_layers)",
        "range(config.num_layers - 1)",
        "SP501",
        "decoder.layers.15",
    ),
    "another name of an argument": Planted(
        "mean_loss",
        "input_ids: Tensor, labels",
        "tokens: Tensor, input_ids=None, labels",
        "SP501",
        "signature",
    ),
    "a layer of the middle in the loop": Planted(
        "deep", "if i == 7:", "if i == 8:", "SP503", "train step 1: operation"
    ),
    "the second call of a layer in the loop": Planted(
        "deep", "if self.calls < 2:", "if self.calls < 3:", "SP503", "`layers.0`, train step 2"
    ),
    "a layer of the middle": Planted(
        "deep",
        "Half(config, 0.5) for _ in range(config.depth)",
        "Half(config, 0.5 if i != 7 else 0.25) for i in range(config.depth)",
        "SP503",
        "`layers.7`, train step 1",
    ),
    "a name that is not there": Planted(
        "llama", "F.silu(gate)", "F.silu(gat)", "SP505", "NameError: name 'gat' is not defined"
    ),
    "a page that can't be imported": Planted(
        "llama", "from dataclasses import dataclass", "", "SP505", "NameError"
    ),
    "a gradient that is stopped": Planted(
        "llama",
        "F.silu(gate) * up",
        "F.silu(gate) * up.detach()",
        "SP503",
        "train step 1, after forward",
    ),
}


@functools.cache
def prepared(model: str) -> Prepared:
    return prepare(getattr(models, model)())


def compiled(model: str, spec: PreparedSpec) -> str:
    return translate(lambda: construct(spec, Mesh.single()), prepared(model).reads).body


@functools.cache
def text_of(model: str) -> str:
    return compiled(model, prepared(model).spec)


_small: dict[str, str] = {}


def small_text(model: str) -> Callable[[PreparedSpec], str]:
    """The page of the first copy of a model: the same for each change that is planted."""

    def recompile(spec: PreparedSpec) -> str:
        if model not in _small:
            _small[model] = compiled(model, spec)
        return _small[model]

    return recompile


@pytest.mark.parametrize("name", PLANTED)
def test_a_planted_change_is_caught(name: str) -> None:
    planted = PLANTED[name]
    recompile = small_text(planted.model)
    with pytest.raises(ValidationError) as error:
        validate_page(
            prepared(planted.model).spec,
            planted(text_of(planted.model)),
            lambda spec: planted(recompile(spec)),
        )
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code == planted.code, diagnostic
    assert planted.says in diagnostic.message, diagnostic
    assert diagnostic.help is not None


@pytest.mark.parametrize("name", [n for n, planted in PLANTED.items() if planted.numeric])
def test_the_numbers_alone_catch_it_too(name: str) -> None:
    planted = PLANTED[name]
    recompile, text = small_text(planted.model), planted(text_of(planted.model))
    with pytest.raises(ValidationError) as error, page_module(text) as page:
        compare_numbers(
            prepared(planted.model).spec, text, page, lambda spec: planted(recompile(spec))
        )
    (diagnostic,) = error.value.diagnostics
    assert diagnostic.code in ("SP504", "SP505")


def numeric_message(name: str) -> str:
    planted = PLANTED[name]
    recompile, text = small_text(planted.model), planted(text_of(planted.model))
    with pytest.raises(ValidationError) as error, page_module(text) as page:
        compare_numbers(
            prepared(planted.model).spec, text, page, lambda spec: planted(recompile(spec))
        )
    return str(error.value)


def test_the_first_module_that_differs_is_named() -> None:
    said = numeric_message("another activation")
    assert "the output of `decoder.layers.0.mlp.linear_fc2` in train step 1 is another" in said
    assert "compared on a copy with num_layers=2" in said


def test_a_difference_of_gradients_alone_names_the_parameter() -> None:
    said = numeric_message("a gradient that is stopped")
    assert "the gradient in train step 1 of `" in said


def test_a_dead_assignment_is_no_difference() -> None:
    """A page leaves out what nothing reads, even where it computes something."""
    text = text_of("llama")
    line = "        gate, up = self.linear_fc1"
    assert (
        validate_page(
            prepared("llama").spec,
            text.replace(line, f"        unused = x * 2\n{line}"),
            small_text("llama"),
        )
        == ()
    )
