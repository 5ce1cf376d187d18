"""Pages are read as a person who reads papers would say what they are."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest
from read_pages import NANO, TORCH, architecture, edited, example, part, shown

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))

from configurations import OPTIONS, spec_of

from specc.compiler.architecture.read import read
from specc.compiler.architecture.run import run_page
from specc.compiler.architecture.tree import Edge
from specc.compiler.pipeline import compile_spec
from specc.templates.diagnostic import SpecError

GOLDEN = Path(__file__).parent / "golden"


def drawn(**options: Any) -> str:
    """A page of the templates with these options, the first value of each elsewhere."""
    plain = {name: values[0] for name, values in OPTIONS.items()}
    return compile_spec(spec_of(plain | options), validate=False).body


# Like Gemma 2: a window in every second layer, soft caps, norms on queries and keys.
GEMMA = {
    "num_layers": 3,
    "heads": (4, 2),
    "position": "rope",
    "scaling": "yarn",
    "activation": "geglu_tanh",
    "norm": "RMSNorm",
    "zero_centered": True,
    "qk_layernorm": True,
    "window": (4, 2),
    "softcap": 20.0,
    "scale": 0.3,
}
# Like GPT-2, with what others added: dropout, biases, a learned sink, a gate.
GPT2 = {
    "num_layers": 2,
    "activation": "gelu_tanh",
    "bias": "add_bias_linear",
    "softmax": "learnable",
    "gate": True,
    "hidden_dropout": 0.2,
    "attention_dropout": 0.2,
}
PAGES = {
    "small": lambda: example("small"),
    "diy_gpt": lambda: example("diy_gpt"),
    "gemma": lambda: drawn(**GEMMA),
    "gpt2": lambda: drawn(**GPT2),
    "mixtral": lambda: example("mixtral"),
    "nano": lambda: NANO,
    "torch": lambda: TORCH,
}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reads_well(name: str, request: pytest.FixtureRequest) -> None:
    text = shown(architecture(PAGES[name](), name))
    file = GOLDEN / f"read_{name}.txt"
    if request.config.getoption("--update-golden"):
        file.write_text(text, encoding="utf-8")
    assert text == file.read_text(encoding="utf-8")


def test_a_part_counts_the_parameters_of_the_model() -> None:
    for text in (example("llama"), NANO, TORCH):
        run = run_page(text, "page")
        counts = {id(p): p.numel() for p in run.model.parameters()}
        assert read(run).root.parameters == sum(counts.values())


def test_a_deep_model_runs_one_layer_of_a_kind() -> None:
    deep = edited(example("small"), ("num_layers: int = 4", "num_layers: int = 24"))
    one, other = run_page(example("small"), "4 layers"), run_page(deep, "24 layers")
    assert len(one.operations) == len(other.operations)
    assert len(other.stands_for) == 23
    assert other.times("decoder.layers.0.mlp") == 24
    assert other.ran("decoder.layers.7.mlp") == "decoder.layers.0.mlp"
    layers = part(read(other), "decoder.layers[0..23]")
    assert layers.times == 24 and layers.parameters == 172352


def test_a_layer_that_is_given_another_shape_runs_itself() -> None:
    run = run_page(
        edited(
            example("small"),
            ("        for layer in self.layers:\n            x = layer(x, positions, rotary)\n",
             "        for layer in self.layers[:2]:\n            x = layer(x, positions, rotary)\n"
             "        x, whole = x[:, :16].contiguous(), x\n"
             "        positions = Positions.of_hidden(x, Mesh.single())\n"
             "        rotary = rotary_tables(positions, self.config.head_dim, 10000.0)\n"
             "        for layer in self.layers[2:]:\n            x = layer(x, positions, rotary)\n"
             "        x = whole + x.mean(1, keepdim=True)\n"),
        ),
        "page",
    )  # fmt: skip
    assert run.stands_for == {
        "decoder.layers.1": "decoder.layers.0",
        "decoder.layers.3": "decoder.layers.2",
    }


def test_a_layer_that_starts_otherwise_is_another_part() -> None:
    # nn.init makes no attribute of the layer differ: the law of its values alone tells.
    text = edited(
        NANO,
        ("        self.lm_head =", "        nn.init.zeros_(self.transformer.h[2].mlp[2].weight)\n"
         "        self.lm_head ="),
    )  # fmt: skip
    of = architecture(text)
    assert part(of, "transformer.h[0..1,3].mlp.2").fact("init") == "uniform ±1/√in"
    assert part(of, "transformer.h[2].mlp.2").fact("init") == "0"


def test_layers_that_are_one_module_are_tied() -> None:
    text = edited(
        example("small"),
        (
            "[TransformerLayer(config, mesh) for _ in range(config.num_layers)]",
            "[TransformerLayer(config, mesh)] * config.num_layers",
        ),
    )
    layer = part(architecture(text), "decoder.layers[0]")
    same = part(architecture(text), "decoder.layers[1..3]")
    assert layer.parameters == 172352 and same.parameters == 0
    weight = part(architecture(text), "decoder.layers[1..3].mlp.linear_fc1").weights[0]
    assert weight.tied_to == "decoder.layers.0.mlp.linear_fc1.weight"


@pytest.mark.parametrize(
    "call, causal",
    [
        ("F.scaled_dot_product_attention(q, k, v, is_causal=True)", True),
        ("F.scaled_dot_product_attention(q, k, v, attn_mask=self.bias[0, 0, :t, :t] > 0)", True),
        ("F.scaled_dot_product_attention(q, k, v)", False),
        ("F.scaled_dot_product_attention(q, k, v, attn_mask=x.new_zeros(t, t))", None),
        ("(q @ k.mT + torch.ones(t, t).triu(1) * -1e9).softmax(-1) @ v", True),
        ("(q @ k.mT).softmax(-1) @ v", False),
        ("(30.0 * torch.tanh(q @ k.mT / 30.0)).softmax(-1) @ v", False),
    ],
)
def test_attention_by_hand_is_attention(call: str, causal: bool | None) -> None:
    before, _, rest = NANO.partition("        scores = (q")
    after = rest.partition("        return self.c_proj(y)")[2]
    y = f"        y = ({call}).transpose(1, 2).contiguous().view(b, t, c)\n"
    attention = part(
        architecture(f"{before}{y}        return self.c_proj(y){after}"), "transformer.h[0..3].attn"
    )
    assert attention.kind == "attention"
    assert [attention.fact(n) for n in ("heads", "groups", "head_dim")] == [2, 2, 32]
    assert attention.fact("causal") is causal
    assert attention.fact("softcap") == (30.0 if "tanh" in call else None)


def test_keys_that_serve_a_group_by_hand() -> None:
    text = edited(
        NANO,
        ("self.c_attn = nn.Linear(config.n_embd, 3 * config.n_embd)",
         "self.c_attn = nn.Linear(config.n_embd, 2 * config.n_embd)"),
        (".split(c, dim=2)", ".split((c, c // 2, c // 2), dim=2)"),
        ("k = k.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)",
         "k = k.view(b, t, 1, -1).transpose(1, 2).repeat_interleave(2, 1)"),
        ("v = v.view(b, t, self.n_head, c // self.n_head).transpose(1, 2)",
         "v = v.view(b, t, 1, -1).transpose(1, 2).repeat_interleave(2, 1)"),
    )  # fmt: skip
    attention = part(architecture(text), "transformer.h[0..3].attn")
    assert (attention.fact("heads"), attention.fact("groups")) == (2, 1)


PARALLEL = (
    "        return x + self.mlp(self.pre_mlp_layernorm(x))",
    "        return x + self.mlp(self.pre_mlp_layernorm(first))",
)


def test_edges_go_round_what_a_sum_adds_to() -> None:
    edges = part(architecture(example("small")), "decoder.layers[0..3]").edges
    shape = ("b", "s", "128")
    assert [edge for edge in edges if edge.residual] == [
        Edge("", "self_attention", shape, True),
        Edge("self_attention", "mlp", shape, True),
    ]
    text = edited(
        example("small"),
        ("        x = x + self.self_attention(", "        first = x\n"
         "        x = x + self.self_attention("),
        PARALLEL,
    )  # fmt: skip
    edges = part(architecture(text), "decoder.layers[0..3]").edges
    assert [(e.source, e.target) for e in edges if e.residual] == [("", "self_attention")]
    into_end = [e.source for e in edges if e.target == ""]
    assert into_end == ["self_attention", "mlp"]


REFUSED = [
    ("SP644", ("class MLP", "class MLP:"), "invalid syntax"),
    ("SP644", ("def build_model", "def built"), "it has no `build_model`"),
    ("SP645", ("self.mesh = mesh", "self.mesh = mesh.nothing"), "cannot be built"),
    ("SP645", ("return materialize(", "return str; materialize("), "gives a type, and no module"),
    ("SP646", ("        input_ids: Tensor,", "        tokens: Tensor,"), "no `input_ids`"),
    ("SP646", ("input_ids: Tensor,", "input_ids: Tensor, more: Tensor,"), "needs more"),
    (
        "SP647",
        ("return x + self.mlp", "return x.sum().item() + self.mlp"),
        "does not run on the meta device",
    ),
]


@pytest.mark.parametrize("code, edit, words", REFUSED)
def test_what_cannot_be_run_is_refused(code: str, edit: tuple[str, str], words: str) -> None:
    text = example("small")
    text = edited(text, edit)
    with pytest.raises(SpecError, match=words) as raised:
        run_page(text, "models/mine.py")
    (diagnostic,) = raised.value.diagnostics
    assert diagnostic.code == code and "models/mine.py" in diagnostic.message and diagnostic.help
    if words.endswith(("built", "device")):  # the line of the page that raises is said
        lines = [n for n, line in enumerate(text.splitlines(), 1) if edit[1] in line]
        assert f"(line {lines[-1]})" in diagnostic.message


def test_a_run_leaves_nothing_behind() -> None:
    from specc.runtime import Positions

    before = vars(Positions)["of"]
    run = run_page(example("small"), "small")
    assert vars(Positions)["of"] is before
    assert not any("forward" in vars(module) for module in run.model.modules())


def test_a_length_divides_no_size_and_comes_back_in_no_shape() -> None:
    run = run_page(example("llama"), "llama", length=2048)
    assert (run.length, run.places) == (2048, 2039)
    shapes = {d for op in run.operations for form in op.outputs for d in form.shape}
    assert run.places in shapes and 2048 in shapes  # the latter is the width alone


def test_a_model_that_takes_some_lengths_only_is_run_at_its_own() -> None:
    text = edited(
        NANO, ("        places = torch.arange(", "        assert input_ids.size(1) % 16 == 0\n"
        "        places = torch.arange("),
    )  # fmt: skip
    assert run_page(text, "page").places == 48


NUMBERED = (
    ("[TransformerLayer(config, mesh) for _ in", "[TransformerLayer(config, mesh, i) for i in"),
    (
        "def __init__(self, config: Config, mesh: Mesh) -> None:\n"
        "        super().__init__()\n"
        "        self.input_layernorm",
        "def __init__(self, config: Config, mesh: Mesh, number: int) -> None:\n"
        "        super().__init__()\n"
        "        self.number = number\n"
        "        self.input_layernorm",
    ),
)


def test_a_number_that_nothing_reads_makes_no_other_layer() -> None:
    run = run_page(edited(example("small"), *NUMBERED), "page")
    assert len(run.stands_for) == 3
    assert [run.model.get_submodule(f"decoder.layers.{i}").number for i in range(4)] == [0, 1, 2, 3]


@pytest.mark.parametrize("number", ["self.number", 'getattr(self, "number")'])
def test_layers_whose_number_is_read_run_each(number: str) -> None:
    scaled = ("return x + self.mlp(", f"return x + (1 + {number} % 2) * self.mlp(")
    run = run_page(edited(example("small"), *NUMBERED, scaled), "page")
    assert run.stands_for == {}
    layers = [part.segment for _, _, part in read(run).root.walk() if part.kind == "layer"]
    assert layers == ["layers[0,2]", "layers[1,3]"]
