"""Key/value caches, saved activations, weights per rank: against formulas, papers, real ranks."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import hand_written_pages
import pytest
import torch
from published_models import figures_of, number, run
from read_pages import architecture, part

from specc.compiler.architecture.figure import Figure
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.figures_ranks import rank_figures
from specc.compiler.architecture.figures_saved import measured
from specc.compiler.architecture.rank_weights import Cut, RankWeights, rank_weights
from specc.compiler.architecture.run import run_page
from specc.compiler.architecture.words import words
from specc.runtime import Mesh
from specc.runtime.data_parallel import shard
from specc.runtime.layouts import Degrees, parse_layouts
from specc.runtime.memory import saved_activations, saved_once
from specc.runtime.model_shape import ModelShape
from specc.runtime.page import load_page
from specc.runtime.parameters import canonical_parameters, local_tensor
from specc.runtime.peak_memory import moments
from specc.runtime.pipeline_cut import Stages
from specc.runtime.pipeline_schedules import seats
from specc.runtime.workload import Workload

LLAMA = Path(__file__).parents[2] / "generated_examples" / "llama.py"
KIB = 1024


def by_name(text: str, **options: Any) -> dict[str, Figure]:
    return {f.name: f for f in figures(run_page(text, "a page", length=64), **options)}


# --- key/value cache


def test_a_cache_has_keys_and_values_of_each_group() -> None:
    """Llama 3 405B: 126 layers, 8 groups of 128, keys and values, two bytes each."""
    assert number("llama3_405b", "kv_cache.token") == 126 * 8 * 2 * 128 * 2
    sequence = number("llama3_405b", "kv_cache.sequence")
    assert sequence == 8192 * number("llama3_405b", "kv_cache.token")


def test_mistrals_window_makes_its_cache_an_eighth() -> None:
    """arXiv 2310.06825, section 2, rolling buffer cache: at 32k tokens 8 times less memory."""
    sequence = number("mistral_7b", "kv_cache.sequence")
    assert sequence * 8 == number("mistral_7b", "kv_cache.token") * 32768
    assert "4,096 in a window" in figures_of("mistral_7b")["kv_cache.sequence"].note


def test_layers_with_and_without_a_window() -> None:
    """gpt-oss: every other of 24 layers keeps 128 places; 8 groups of 64."""
    layer = 8 * 2 * 64 * 2
    expected = 12 * layer * 128 + 12 * layer * 131072
    assert number("gpt_oss_20b", "kv_cache.sequence") == expected


def test_latents_are_kept_in_place_of_keys_and_values() -> None:
    """DeepSeek-V2 (arXiv 2405.04434), table 1: d_c + d_h^R numbers for each layer and token."""
    assert by_name(hand_written_pages.latents())["kv_cache.token"].value == 3 * (10 + 6) * 2
    read_as = architecture(hand_written_pages.latents())
    said = words(part(read_as, "layers[0..2]"))
    assert said == (
        "MLA 4 heads of 16, values of 8, from a latent of 10 and 6 shared channels, "
        "queries from one of 20"
    )


def test_deepseeks_cache_is_the_published_one() -> None:
    """arXiv 2505.09343, table 1: 70.272 KB a token, and 516.096 KB of Llama 3.1 405B."""
    assert number("deepseek_v3", "kv_cache.token") == 70_272
    assert number("llama3_405b", "kv_cache.token") == 516_096


@pytest.mark.parametrize("delta", [False, True])
def test_recurrences_keep_a_state(delta: bool) -> None:
    """Of 6 heads 5 by 8 in float32, and 3 places of 68 channels that go into the convolution."""
    found = by_name(hand_written_pages.states(delta=delta))
    assert found["state.sequence"].value == 3 * (4 * 6 * 5 * 8 + 2 * 3 * 68)
    assert found["kv_cache.token"].value == found["kv_cache.sequence"].value == 0
    said = words(part(architecture(hand_written_pages.states(delta=delta)), "layers[0..2]"))
    mamba, net = "6 heads of 8, states of 5 in 2 groups", "6 heads of 8, 2 keys of 5"
    of = f"gated delta net {net}" if delta else f"Mamba-2 {mamba}"
    assert said == f"{of}, convolution 4"


def test_a_cache_in_another_type() -> None:
    text = hand_written_pages.by_torch()
    assert by_name(text)["kv_cache.token"].value == 3 * 2 * 48 * 2
    assert by_name(text, dtype=torch.float32)["kv_cache.token"].value == 3 * 2 * 48 * 4


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("by_products", "layers.0 computes attention by matrix products"),
        ("linear", "layers.0 computes attention by matrix products"),
        ("running_sums", "no attention was seen"),
    ],
)
def test_where_nothing_says_what_is_kept_there_is_no_number(name: str, why: str) -> None:
    found = by_name(getattr(hand_written_pages, name)())
    for figure in ("kv_cache.token", "kv_cache.sequence"):
        assert found[figure].value is None
        assert why in found[figure].note


# --- saved activations


@pytest.mark.parametrize("name", ["gpt2_small", "mistral_7b"])
def test_layers_save_what_the_runtimes_formula_says(name: str) -> None:
    one = run(name)
    work = Workload(Degrees(zero=3), one.length)
    shape = ModelShape.of(one.model)
    saved = measured(one, torch.bfloat16)
    assert set(saved.layers) == {saved_activations(shape, work)}
    assert len(saved.layers) == shape.layers
    if not shape.positions:  # learned ones: that is the embedding's dropout, outside the layers
        assert saved.shared == saved_once(shape, work)


def test_a_gpt_saves_34_s_b_h_of_a_layer() -> None:
    """Korthikanti et al., arXiv 2205.05198, section 4.1: 34 bytes for each place and channel, of
    which no mask of attention's is left with flash attention (there 5 a s / h more). Ours keeps
    float32 statistics beside: the log-sum-exp of 12 heads, mean and deviation in two norms."""
    assert number("gpt2_small", "saved.layer") == 34 * 768 + 4 * 12 + 4 * 2 * 2


def test_scores_that_stay_in_memory_are_counted() -> None:
    """Gemma's soft cap has no kernel. Of each of 16 heads and pair of places the layer keeps tanh's
    and the softmax's result in float32 and the weights in bf16, and of each pair a mask's byte."""
    first, second, third = (
        measured(run("gemma2_9b", length), torch.bfloat16).layers[0] for length in (64, 128, 192)
    )
    assert third - 2 * second + first == 2 * 64**2 * (16 * (4 + 4 + 2) + 1)


def test_a_layer_that_stands_for_others_has_what_they_have() -> None:
    """Each layer ends in a ReLU, whose result the next layer's linear layer keeps as well."""
    text = hand_written_pages.by_torch().replace("x = x + layer(x)", "x = layer(x)")
    one = run_page(text.replace(".flatten(2))\n", ".flatten(2)).relu()\n"), "relu", length=64)
    assert one.stands_for
    each = measured(replace(one, stands_for={}), torch.bfloat16)
    assert measured(one, torch.bfloat16) == each
    assert each.layers[0] == each.layers[1] + 2 * 64 * 48 == each.layers[2] + 2 * 64 * 48


def test_tables_that_layers_share_count_once() -> None:
    saved = measured(run_page(LLAMA.read_text(encoding="utf-8"), "llama", length=64), torch.float16)
    assert saved.shared == 2 * 4 * 64 * 64  # cos and sin, float32, 64 channels of 64 places
    assert saved.total == sum(saved.layers) + saved.shared


def test_no_number_for_what_is_not_measured() -> None:
    found = by_name(hand_written_pages.by_torch(), dtype=torch.float32)
    assert found["saved.layer"].value is None
    assert "not for float32" in found["saved.layer"].note


# --- weights per rank

NUMBERS = {
    "num_layers": 2,
    "hidden_size": 64,
    "num_attention_heads": 8,
    "num_query_groups": 4,
    "ffn_hidden_size": 96,
    "vocab_size": 131,  # no degree divides it
}


MOE = {**NUMBERS, "num_moe_experts": 6, "num_layers": 4}


def on_this_rank(name: str, layout: str) -> int:
    """Entries that a launched rank holds."""
    (degrees,) = parse_layouts(layout)
    page, mesh = load_page(LLAMA.with_name(name)), degrees.mesh()

    def held(mesh: Mesh, stages: Stages | None) -> int:
        model = page.build(
            mesh,
            page.config(MOE if name == "mixtral.py" else NUMBERS),
            wrap=lambda model: (
                shard(model, mesh, dtype=torch.float32, zero=degrees.stage)
                if degrees.zero
                else None
            ),
            stages=stages,
        )
        return sum(local_tensor(p).numel() for _, _, p in canonical_parameters(model))

    if degrees.pp == 1:
        return held(mesh, None)
    where = seats(degrees.schedule, degrees.pp)
    own = [stage for stage, rank in enumerate(where) if rank == mesh.pp.rank]
    return sum(held(mesh.at_stage(stage, len(where)), Stages(where)) for stage in own)


@pytest.mark.parametrize(
    "layout",
    ["tp2 sp dp2", "dp4 zero1", "cp2:p2p dp2 replicate2", "tp4", "pp2 dp2", "tp2 pp2:zbv"],
)
def test_the_fullest_of_real_ranks_holds_as_much(
    ranks: Callable[..., list[int]], layout: str
) -> None:
    name = "mixtral.py" if "zbv" in layout else "llama.py"
    check_against_ranks(ranks, name, layout)


@pytest.mark.parametrize("layout", ["ep2 dp4", "tp2 ep2 etp1 dp2", "pp2 ep2 dp2"])
def test_experts_are_shared_as_real_ranks_share_them(
    ranks: Callable[..., list[int]], layout: str
) -> None:
    check_against_ranks(ranks, "mixtral.py", layout)


def check_against_ranks(ranks: Callable[..., list[int]], name: str, layout: str) -> None:
    (degrees,) = parse_layouts(layout)
    held = max(ranks(degrees.size, on_this_rank, name, layout))
    numbers = MOE if name == "mixtral.py" else NUMBERS
    found = weights(degrees, numbers, name)
    assert (found.parameters, found.bytes) == (held, 4 * held)
    assert len(found.stages) == (degrees.stages if degrees.pp > 1 else 0)
    assert sum(stage.layers for stage in found.stages) in (0, numbers["num_layers"])


def weights(
    degrees: Degrees, numbers: dict[str, int] = NUMBERS, name: str = "llama.py"
) -> RankWeights:
    page = load_page(LLAMA.with_name(name))
    config = page.config(numbers)
    cut = Cut(page.check_stages())
    return rank_weights(lambda mesh: page.build(mesh, config, device="meta"), degrees, cut)


def test_a_page_without_places_for_stages_has_its_own_sentence() -> None:
    text = (LLAMA).read_text(encoding="utf-8").replace("FIRST_STAGE =", 'NO_STAGES = "why not" #')
    (found,) = figures_at(text, "pp2")
    assert found.value is None and found.note == "why not"
    (found,) = figures_at(LLAMA.read_text(encoding="utf-8"), "pp32")
    assert found.note == "32 stages share out 16 layers, and each needs one at least"


def figures_at(text: str, layout: str) -> list[Figure]:
    layouts = parse_layouts(layout)
    found = rank_figures(run_page(text, "a page", length=64), layouts)
    return [figure for figure in found if figure.name == f"weights.{layouts[0]}.parameters"]


@pytest.mark.parametrize(
    "layout", ["tp8 sp dp4", "tp2 cp2:a2a dp64 replicate4", "dp3 zero2", "tp4"]
)
def test_a_rank_holds_what_the_runtimes_formula_says(layout: str) -> None:
    (degrees,) = parse_layouts(layout)
    page = load_page(LLAMA)
    shape = ModelShape.of(page.build(Mesh.single(), page.config(), device="meta"))
    first, *_ = moments(shape, Workload(degrees, 8192))
    assert weights(degrees, {}).bytes == first.parameters
