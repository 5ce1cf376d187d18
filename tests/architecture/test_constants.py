"""What a page computes before its forward runs, and how its layers are called, is compared."""

from __future__ import annotations

from typing import Any

import hand_written_pages
import pytest
from read_pages import NANO, TORCH, architecture, edited, example, part

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.run import run_page

BUFFER = "        self.dropout = nn.Dropout(0.1)\n"
ROTARY = edited(
    NANO,
    (BUFFER, BUFFER + "        f = 1 / 10000.0 ** (torch.arange(0, 32, 2) / 32)\n"
     "        self.register_buffer('f', f)\n"),
    ("        scores = (q", "        q = q * self.f.repeat(2)\n        scores = (q"),
)  # fmt: skip
PLAIN = edited(ROTARY, ("self.register_buffer('f', f)", "self.f = f"))
SCALE = edited(
    NANO,
    ("class Attention", "SCALE = torch.linspace(0, 1, 64)\n\n\nclass Attention"),
    ("self.c_proj(y)", "self.c_proj(y * SCALE.to(y.device))"),
)
LEAKY = edited(NANO, ("nn.GELU()", "nn.LeakyReLU(0.01)"))
GAIN = edited(NANO, ("torch.ones(width)", "torch.linspace(0, 1, width)"))
ATTENTION = "transformer.h[0..3].attn"


def changed(one: str, two: str) -> dict[str, set[str]]:
    """The names of the facts that differ, by path; the same from the other side."""
    forth, back = (compare(*map(architecture, pair)) for pair in ((one, two), (two, one)))
    found = [
        {c.path: {f.name for f in c.facts} for c in d.root.walk() if c.facts} for d in (forth, back)
    ]
    assert found[0] == found[1]
    return found[0]


@pytest.mark.parametrize("more", [(), (("vocab: int = 100", "vocab: int = 101"),)])
@pytest.mark.parametrize(
    "text, edit, path, fact",
    [
        (ROTARY, ("10000.0", "500000.0"), ATTENTION, "buffer f"),
        (PLAIN, ("10000.0", "500000.0"), ATTENTION, "forward"),
        (SCALE, ("linspace(0, 1", "linspace(0, 2"), ATTENTION, "forward"),
        (NANO, ("torch.tril(", "torch.triu("), ATTENTION, "buffer bias"),
        (NANO, ("config.block_size))", "config.block_size), 1)"), ATTENTION, "buffer bias"),
        (NANO, ("math.sqrt(k.size(-1))", "math.sqrt(c)"), ATTENTION, "scale"),
        (LEAKY, ("(0.01)", "(0.2)"), "transformer.h[0..3].mlp.1", "negative_slope"),
        (GAIN, ("linspace(0, 1", "linspace(0, 2"), "transformer.h[0..3].ln_2", "init gain"),
        (NANO, ("torch.ones(width)", "torch.ones(width, dtype=torch.bfloat16)"),
         "transformer.h[0..3].ln_2", "dtype gain"),
        (NANO, ("        self.lm_head =",
                "        nn.init.trunc_normal_(self.transformer.h[1].mlp[2].weight)\n"
                "        self.lm_head ="), "transformer.h[1].mlp.2", "init"),
        (NANO, ("        self.lm_head =",
                "        nn.init.orthogonal_(self.transformer.h[1].mlp[2].weight)\n"
                "        self.lm_head ="), "transformer.h[1].mlp.2", "init"),
    ],
)  # fmt: skip
def test_a_constant_is_compared_beside_other_changes(
    text: str, edit: tuple[str, str], path: str, fact: str, more: tuple[Any, ...]
) -> None:
    assert fact in changed(text, edited(text, edit, *more))[path]


def test_sizes_are_no_other_computation() -> None:
    other = edited(ROTARY, ("block_size: int = 48", "block_size: int = 64"))
    assert ATTENTION not in changed(ROTARY, other)


LOOP = "        for layer in self.layers:\n            x = layer(x, positions, rotary)\n"


def test_layers_from_the_last_to_the_first() -> None:
    small = example("small")
    other = edited(small, ("in self.layers:", "in reversed(self.layers):"))
    assert changed(small, other) == {"decoder": {"forward"}}
    (step,) = [o for o in part(architecture(other), "decoder").operations if "layers" in o]
    assert "from the last to the first" in step


def test_a_layer_that_is_not_called() -> None:
    small = example("small")
    other = edited(small, ("in self.layers:", "in self.layers[:-1]:"))
    assert part(architecture(other), "decoder.layers[3]").fact("calls") == 0
    assert "calls" in changed(small, other)["decoder.layers[3]"]


def test_layers_that_are_given_other_rotary_tables() -> None:
    """As in Gemma 3: one base for windows, one for full attention."""
    text = edited(
        example("small"),
        (LOOP, "        local = rotary_tables(positions, self.config.head_dim, 10.0)\n"
         "        for number, layer in enumerate(self.layers):\n"
         "            x = layer(x, positions, rotary if number % 2 else local)\n"),
    )  # fmt: skip
    bases = {
        path: one.fact("rotary")
        for path, _, one in architecture(text).root.walk()
        if one.kind == "attention"
    }
    assert bases == {
        "decoder.layers[0,2].self_attention": ("base=10.0",),
        "decoder.layers[1,3].self_attention": ("base=10000.0",),
    }


def test_a_tensor_that_the_first_layer_is_given_twice() -> None:
    text = edited(
        example("small"),
        (LOOP, "        first = x\n        for layer in self.layers:\n"
         "            x = layer(x, positions, rotary, first)\n"),
        ("rotary: tuple[Tensor, Tensor]) -> Tensor:\n        x = x +",
         "rotary: tuple[Tensor, Tensor], first: Tensor) -> Tensor:\n        x = x +"),
        ("self.mlp(self.pre_mlp_layernorm(x))", "self.mlp(self.pre_mlp_layernorm(x + first))"),
    )  # fmt: skip
    other = edited(text, ("pre_mlp_layernorm(x + first)", "pre_mlp_layernorm(x + x)"))
    assert changed(text, other) == {"decoder.layers[0..3]": {"forward"}}


WEIGHT_NORM = edited(
    NANO,
    ("self.c_proj = nn.Linear(config.n_embd, config.n_embd)",
     "self.c_proj = torch.nn.utils.parametrizations.weight_norm(nn.Linear(64, 64))"),
)  # fmt: skip
STACK = edited(
    NANO,
    ("class Model(", "class Stack(nn.ModuleList):\n    def __init__(self, layers):\n"
     "        super().__init__(layers)\n        self.scale = nn.Parameter(torch.ones(64))\n\n"
     "    def forward(self, x):\n        for layer in self:\n"
     "            x = x * self.scale + layer(x)\n        return x\n\n\nclass Model("),
    ("nn.Sequential(*[Block(config) for _ in range(config.n_layer)])",
     "Stack([Block(config) for _ in range(config.n_layer)])"),
)  # fmt: skip


@pytest.mark.parametrize(
    "text",
    [NANO, TORCH, WEIGHT_NORM, STACK, example("small"), example("diy_gpt"),
     hand_written_pages.experts()],
    ids=["nano", "torch", "weight_norm", "stack", "small", "diy_gpt", "experts"],
)  # fmt: skip
def test_the_tree_has_the_parameters_of_the_figures(text: str) -> None:
    found = {figure.name: figure.value for figure in figures(run_page(text, "page"))}
    assert architecture(text).root.parameters == found["parameters"]


def test_a_line_has_the_parentheses_that_it_needs() -> None:
    text = edited(
        NANO, ("scores = scores.masked_fill(", "d = torch.arange(t)[:, None] - torch.arange(t)\n"
        "        scores = scores.masked_fill((d >= 0) & (d < 8), 0.0)\n"
        "        scores = scores.masked_fill("),
    )  # fmt: skip
    assert any(
        "(d >= 0) & (d < 8)" in line.replace("e", "d").replace("f", "d")
        for line in part(architecture(text), ATTENTION).operations
    )
