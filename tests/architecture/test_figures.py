"""The list of figures: counts of parameters against model cards, and what has no number."""

from __future__ import annotations

from itertools import pairwise

import hand_written_pages
import pytest
from published_models import figures_of, number, run

from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.run import run_page
from specc.runtime.layouts import parse_layouts

COUNTS = ("parameters", "parameters.embedding", "parameters.output", "parameters.rest")


@pytest.mark.parametrize(
    ("name", "total", "embedding", "output", "rest"),
    [
        # openai-community/gpt2: tables of tokens and positions, tied.
        ("gpt2_small", 124_439_808, 38_597_376 + 786_432, 0, 85_056_000),
        # arXiv 2408.00118, table 2: 8,324,201,984 non-embedding parameters; tied.
        ("gemma2_9b", 9_241_705_984, 917_504_000, 0, 8_324_201_984),
        # The card of Qwen/Qwen2.5-7B: 7.61B, 6.53B non-embedding; two tables.
        ("qwen25_7b", 7_615_616_512, 544_997_376, 544_997_376, 6_525_621_760),
        ("mistral_7b", 7_241_732_096, 131_072_000, 131_072_000, 6_979_588_096),
    ],
)
def test_parameters_are_where_the_cards_say(
    name: str, total: int, embedding: int, output: int, rest: int
) -> None:
    assert tuple(number(name, figure) for figure in COUNTS) == (total, embedding, output, rest)
    assert number(name, "parameters.active") == total


def test_a_tied_output_layer_says_so() -> None:
    assert figures_of("gpt2_small")["parameters.output"].note == "is the embedding"
    assert figures_of("mistral_7b")["parameters.output"].note == ""


@pytest.mark.parametrize("name", ["gpt2_small", "gemma2_9b", "gpt_oss_20b"])
def test_shares_add_up_and_training_is_three_forwards(name: str) -> None:
    found = figures_of(name)
    shares = [f.value or 0 for f in found.values() if f.name.startswith("flops.forward.")]
    whole = number(name, "flops.forward")
    assert len(shares) == 4 and all(shares)
    assert abs(sum(shares) - whole) <= 2  # each is rounded
    assert abs(3 * whole - number(name, "flops.training")) <= 2


def by_name(text: str) -> dict[str, Figure]:
    return {f.name: f for f in figures(run_page(text, "a page", length=64))}


def test_a_users_output_layer_is_what_gives_the_logits() -> None:
    found = by_name(hand_written_pages.by_torch())
    assert found["parameters.output"].value == 48 * 101
    assert found["flops.forward.output"].value == 2 * 48 * 101


def test_what_no_step_reads_is_not_active() -> None:
    found = by_name(hand_written_pages.by_torch())
    assert found["parameters"].value == (found["parameters.active"].value or 0) + 7


def test_which_experts_run_is_not_known() -> None:
    found = by_name(hand_written_pages.experts())
    active = found["parameters.active"]
    assert active.value is None
    assert active.note == "which ones a token uses is not known: aten.topk.default in layers.0"


def test_names_are_the_same_for_every_model_and_levels_nest() -> None:
    lists = [figures(run(name)) for name in ("gpt2_small", "gpt_oss_20b")]
    assert [f.name for f in lists[0]] == [f.name for f in lists[1]]
    for found in lists:
        names = [f.name for f in found]
        assert len(set(names)) == len(names)
        levels = [0, *(f.level for f in found)]
        assert all(after <= before + 1 for before, after in pairwise(levels))


def test_a_layout_that_cannot_be_has_the_layers_own_reason() -> None:
    layouts = parse_layouts("tp8, dp4")
    found = {f.name: f for f in figures(run("gpt2_small"), layouts=layouts)}
    refused = found["weights.tp8.parameters"]
    assert refused.value is None
    assert refused.note.startswith("tp=8 does not divide 12 output units")
    held = found["weights.dp4.parameters"].value
    # 4 divides neither the 50,257 rows of the table of tokens nor a rank's own share of all.
    assert held is not None and held > 124_439_808 // 4
    assert found["weights.dp4.bytes"].value == 4 * held


def test_a_page_for_one_process_has_no_ranks() -> None:
    text = hand_written_pages.by_torch().replace("mesh: object, *, ", "")
    one = run_page(text, "a page", length=64)
    found = {f.name: f for f in figures(one, layouts=parse_layouts("dp2"))}
    assert found["weights.dp2.bytes"].value is None
    assert "takes no mesh" in found["weights.dp2.bytes"].note
