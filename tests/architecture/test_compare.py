"""What differs between two pages, and nothing else."""

from __future__ import annotations

import re
from typing import Any

import black
import pytest
from read_pages import NANO, architecture, edited, example

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.difference import Change, Difference

SMALL = "small"
LAYER = ("    return x + self.mlp(", "    return x + 0.5 * self.mlp(")


def difference(before: str, after: str) -> Difference:
    return compare(architecture(before), architecture(after))


def small(*edits: tuple[str, str]) -> Difference:
    """How the small example differs once it is edited."""
    return difference(example(SMALL), edited(example(SMALL), *edits))


def changed(of: Difference) -> list[Change]:
    return [change for change in of.root.walk() if change.kind != "same"]


def facts(change: Change) -> list[tuple[str, Any, Any]]:
    return [(fact.name, fact.before, fact.after) for fact in change.facts]


def told(of: Difference) -> dict[str, list[tuple[str, Any, Any]]]:
    """The facts that changed, by path; of what came or went the kind of change."""
    return {change.path: facts(change) or [(change.kind, None, None)] for change in changed(of)}


@pytest.mark.parametrize("page", [SMALL, "diy_gpt", "llama"])
def test_names_and_formatting_are_no_difference(page: str) -> None:
    text = example(page)
    names = re.findall(r"^class (\w+)\(nn.Module\)", text, re.MULTILINE)
    other = re.sub(rf"\b({'|'.join(names)})\b", r"Other\1", text)
    other = re.sub(r"\b(qkv|gate|up|x)\b(?! of)", r"\1_", other)
    other = re.sub(r"  # .*", "", other)
    other = black.format_str(other, mode=black.Mode(line_length=60, magic_trailing_comma=False))
    assert other != text
    assert difference(text, other).empty


def test_an_edit_of_a_forward_shows_its_steps() -> None:
    (change,) = changed(small(LAYER))
    assert change.path == "decoder.layers[0..3]"
    assert change.steps == (
        " a = x + self_attention(input_layernorm(x), positions, rotary)",
        "-return a + mlp(pre_mlp_layernorm(a))",
        "+return a + 0.5 * mlp(pre_mlp_layernorm(a))",
    )
    assert facts(change) == [
        (
            "forward",
            "return a + mlp(pre_mlp_layernorm(a))",
            "return a + 0.5 * mlp(pre_mlp_layernorm(a))",
        )
    ]


def test_more_layers_are_one_change() -> None:
    of = difference(
        edited(example(SMALL), ("num_layers: int = 4", "num_layers: int = 8")),
        edited(example(SMALL), ("num_layers: int = 4", "num_layers: int = 20")),
    )
    assert told(of) == {"decoder.layers[0..19]": [("layers", 8, 20)]}
    assert of.config == ()


WINDOWS = (
    (
        "def __init__(self, config: Config, mesh: Mesh) -> None:\n"
        "        super().__init__()\n"
        "        self.input_layernorm",
        "def __init__(self, config: Config, mesh: Mesh, window: int | None) -> None:\n"
        "        super().__init__()\n"
        "        self.window = window\n"
        "        self.input_layernorm",
    ),
    ("self.self_attention = SelfAttention(config, mesh)",
     "self.self_attention = SelfAttention(config, mesh)\n"
     "        self.self_attention.window = window"),
    ("causal=True)", "causal=True, window=self.window)"),
    (
        "[TransformerLayer(config, mesh) for _ in range(config.num_layers)]",
        "[TransformerLayer(config, mesh, (16, None)[i % 2]) for i in range(config.num_layers)]",
    ),
)  # fmt: skip


def test_a_pattern_lines_up_with_a_stack_of_one_kind() -> None:
    # Layers that stay as they are do not show; half of them have gained a window.
    assert told(small(*WINDOWS)) == {
        "decoder.layers[0,2].self_attention": [("window", None, 16)],
    }
    kept = [c for c in small(*WINDOWS).root.walk() if c.path == "decoder.layers[1,3]"]
    assert [c.before and c.before.segment for c in kept] == ["layers[1,3]"]


def test_a_longer_pattern_lines_up_with_a_shorter_stack() -> None:
    longer = ("num_layers: int = 4", "num_layers: int = 10")
    assert told(small(*WINDOWS, longer)) == {
        "decoder.layers[0..8:2]": [("layers", 2, 5)],
        "decoder.layers[0..8:2].self_attention": [("window", None, 16)],
        "decoder.layers[1..9:2]": [("layers", 2, 5)],
    }
    # The pattern goes on behind the end of the shorter stack.
    deep = edited(example(SMALL), longer)
    assert told(difference(deep, edited(example(SMALL), *WINDOWS))) == {
        "decoder.layers[0,2]": [("layers", 5, 2)],
        "decoder.layers[0,2].self_attention": [("window", None, 16)],
        "decoder.layers[1,3]": [("layers", 5, 2)],
    }
    both = edited(example(SMALL), *WINDOWS)
    assert told(difference(both, edited(both, longer))) == {
        "decoder.layers[0..8:2]": [("layers", 2, 5)],
        "decoder.layers[1..9:2]": [("layers", 2, 5)],
    }


def test_what_is_taken_away_and_what_comes() -> None:
    without = (
        ("        self.q_layernorm = RMSNorm(config.head_dim, config.layernorm_epsilon)\n", ""),
        ("        self.k_layernorm = RMSNorm(config.head_dim, config.layernorm_epsilon)\n", ""),
        ("        q, k = self.q_layernorm(q), self.k_layernorm(k)\n", ""),
    )
    of = small(*without)
    gone = [(c.kind, c.path) for c in changed(of) if c.kind != "changed"]
    at = "decoder.layers[0..3].self_attention"
    assert gone == [("removed", f"{at}.q_layernorm"), ("removed", f"{at}.k_layernorm")]
    back = compare(of.after, of.before)
    come = [(c.kind, c.path) for c in changed(back) if c.kind != "changed"]
    assert come == [("added", f"{at}.q_layernorm"), ("added", f"{at}.k_layernorm")]


def test_another_kind_of_part_replaces_the_one_before() -> None:
    of = small(("self.mlp = MLP(config, mesh)", "self.mlp = RMSNorm(config.hidden_size)"))
    (change,) = [c for c in changed(of) if c.path.endswith(".mlp")]
    assert (change.kind, change.before and change.before.kind) == ("replaced", "mlp")
    assert change.children == () and change.after is not None and change.after.kind == "norm"


def test_what_only_wraps_another_is_that_other() -> None:
    of = difference(example("diy_gpt"), example("small"))
    (change,) = [c for c in of.root.walk() if c.path == "output_layer"]
    assert change.kind == "changed" and facts(change)[:4] == [
        ("name", "output_layer.linear", "output_layer"),
        ("vocabulary", 50257, 256),
        ("size", 768, 128),
        ("tied", None, True),
    ]
    (change,) = [c for c in of.root.walk() if c.path == "embedding"]
    assert facts(change) == [("name", "embeddings", "embedding")]
    back = [c for c in compare(of.after, of.before).root.walk() if c.before and c.after]
    assert [c.path for c in back if c.before and c.before.kind == "output"] == [
        "output_layer.linear"
    ]


def test_a_new_name_is_a_change_of_name() -> None:
    assert told(small(("self.mlp", "self.feed_forward"), ("self.layers", "self.blocks"))) == {
        "decoder.blocks[0..3].feed_forward": [("name", "mlp", "feed_forward")],
        "decoder.blocks[0..3]": [
            ("name", "layers", "blocks"),
            (
                "forward",
                "return a + mlp(pre_mlp_layernorm(a))",
                "return a + feed_forward(pre_mlp_layernorm(a))",
            ),
        ],
        "decoder": [
            (
                "forward",
                "return final_layernorm(layers(x, positions, rotary))",
                "return final_layernorm(blocks(x, positions, rotary))",
            )
        ],
    }


@pytest.mark.parametrize(
    "edit, path, fact",
    [
        (("rotary_base: float = 10000.0", "rotary_base: float = 5e5"),
         "decoder.layers[0..3].self_attention",
         ("rotary", ("base=10000.0",), ("base=500000.0",))),
        (("layernorm_epsilon: float = 1e-5", "layernorm_epsilon: float = 1e-6"),
         "decoder.final_layernorm",
         ("epsilon", 1e-5, 1e-6)),
        (("F.silu(", "F.gelu("), "decoder.layers[0..3].mlp", ("activation", "SwiGLU", "GEGLU")),
        (("causal=True)", "causal=True, softcap=50.0)"),
         "decoder.layers[0..3].self_attention",
         ("softcap", None, 50.0)),
        (("causal=True)", "causal=False)"),
         "decoder.layers[0..3].self_attention",
         ("causal", True, False)),
        (("init_method_std: float = 0.02", "init_method_std: float = 0.01"),
         "embedding.word_embeddings",
         ("init", "normal 0.02", "normal 0.01")),
        (("        self.output_layer.weight = self.embedding.word_embeddings.weight\n", ""),
         "output_layer",
         ("tied", True, None)),
        (("self.linear_fc2 = RowParallelLinear", "self.linear_fc2 = ColumnParallelLinear"),
         "decoder.layers[0..3].mlp.linear_fc2",
         ("cut weight", 1, 0)),
        (('LOSS = "per_token"', 'LOSS = "local_mean"'), "", ("loss", "per_token", "local_mean")),
    ],
)  # fmt: skip
def test_a_fact_changes(edit: tuple[str, str], path: str, fact: tuple[str, Any, Any]) -> None:
    assert fact in told(small(edit))[path]


@pytest.mark.parametrize("product", ["gate * gate.sigmoid()", "torch.sigmoid(gate) * gate"])
def test_a_silu_that_is_written_out_is_one(product: str) -> None:
    of = small(("F.silu(gate)", product), ("import torch.nn", "import torch\nimport torch.nn"))
    assert "activation" not in {name for found in told(of).values() for name, *_ in found}


def test_a_loss_is_a_difference_though_logits_are_the_same() -> None:
    of = small(("labels, self.mesh)", "labels.clamp(min=0), self.mesh)"))
    (change,) = changed(of)
    assert change.path == "" and "clamp" in str(facts(change))


def test_what_happens_in_training_alone_is_a_difference() -> None:
    of = small((LAYER[0], "    x = x * 2 if self.training else x\n    " + LAYER[0]))
    (change,) = changed(of)
    assert [line for line in change.steps if line.startswith("+in eval")] == ["+in eval mode:"]


def test_a_size_that_nothing_else_tells_shows_by_itself() -> None:
    turned = "        v = torch.cat((v[:, :, 1:], v[:, :, :1]), 2)\n        scores = (q"
    text = edited(NANO, ("        scores = (q", turned))
    other = edited(text, ("v[:, :, 1:], v[:, :, :1]", "v[:, :, 2:], v[:, :, :2]"))
    (change,) = changed(difference(text, other))
    assert change.path == "transformer.h[0..3].attn"
    ((name, before, after),) = facts(change)
    assert name == "forward" and "1:" in before and "2:" in after and change.steps


def test_a_number_of_the_config_that_no_part_shows() -> None:
    of = small(("max_position_embeddings: int = 128", "max_position_embeddings: int = 256"))
    assert of.root.empty and not of.empty
    assert [(f.name, f.before, f.after) for f in of.config] == [
        ("max_position_embeddings", 128, 256)
    ]
    # Those that parts show are said there, and once.
    of = difference(NANO, edited(NANO, ("n_layer: int = 4", "n_layer: int = 6")))
    assert told(of) == {"transformer.h[0..5]": [("layers", 4, 6)]} and of.config == ()
    # A field that nothing reads is a difference of the pages all the same.
    unread = (
        "    vocab_size: int = 256\n",
        "    vocab_size: int = 256\n    window_size: int = {}\n",
    )
    pages = [edited(example(SMALL), (unread[0], unread[1].format(n))) for n in (4, 8)]
    assert [f.name for f in difference(*pages).config] == ["window_size"]


def test_all_parts_stand_in_a_difference() -> None:
    of = small(LAYER)
    paths = [change.path for change in of.root.walk()]
    assert paths == [path for path, _, _ in of.after.root.walk()]
