"""FLOPs: against torch's own counter, against papers, and attended pairs against a mask."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any
from unittest.mock import patch

import hand_written_pages
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from published_models import number
from torch.utils.flop_counter import FlopCounterMode

from specc.compiler.architecture import flops
from specc.compiler.architecture.calls import AttentionCall, Form, Operation
from specc.compiler.architecture.figures import figures
from specc.compiler.architecture.run import Run, run_page

LLAMA = Path(__file__).parents[2] / "generated_examples" / "llama.py"
ATTENTION = AttentionCall("", "attention", 4, 2, 16, 24, 64, 64)


@given(length=st.integers(1, 40), window=st.integers(1, 50) | st.none(), causal=st.booleans())
def test_attended_pairs_are_those_of_the_mask(
    length: int, window: int | None, causal: bool
) -> None:
    back = torch.arange(length)[:, None] - torch.arange(length)
    seen = torch.ones(length, length, dtype=torch.bool)
    if causal:
        seen &= back >= 0
    if window is not None:
        seen &= back < window
    call = replace(ATTENTION, causal=causal, window=window)
    assert flops.attended_pairs(call, length) == int(seen.sum())


def test_an_attention_has_two_products() -> None:
    """Of 4 heads, 16 channels of keys and 24 of values, 10 pairs of 4 places."""
    assert flops.attention_flops(ATTENTION, 4) == 2 * 4 * (16 + 24) * 10


def counted(run: Run, *, backward: bool) -> int:
    """By torch, which multiplies all pairs of an attention."""
    ids = torch.zeros((1, run.length), dtype=torch.int64, device="meta")
    with FlopCounterMode(display=False) as counter:
        logits = run.model(ids)
        if backward:
            logits.sum().backward()
    return counter.get_total_flops()


def every_pair(call: AttentionCall, length: int) -> int:
    return length * length


@pytest.mark.parametrize("backward", [False, True])
def test_a_page_multiplies_what_torch_counts(backward: bool) -> None:
    run = run_page(LLAMA.read_text(encoding="utf-8"), "llama", length=512)
    with patch.object(flops, "attended_pairs", every_pair):
        ours = total(run)
    assert ours * run.length * (3 if backward else 1) == counted(run, backward=backward)


@pytest.mark.parametrize("name", ["by_products", "linear", "experts", "convolution"])
def test_what_a_user_wrote_counts_as_it_runs(name: str) -> None:
    run = run_page(getattr(hand_written_pages, name)(), name, length=64)
    assert run.places != run.length  # so that the sizes of what ran are put right
    assert total(run) * run.length == counted(run, backward=False)


def total(run: Run) -> Fraction:
    return sum(flops.forward_flops(run, lambda operation: "other").values(), Fraction())


def test_products_of_attention_by_hand_are_scores() -> None:
    found = by_name(run_page(hand_written_pages.by_products(), "by hand", length=64))
    # 3 layers, 48 channels in all, every one of 64 places, two products.
    assert found["flops.forward.scores"].value == 3 * 2 * 2 * 48 * 64


@pytest.mark.parametrize("weights", [False, True])
def test_torchs_multi_head_attention_projects(weights: bool) -> None:
    page = hand_written_pages.multi_head(weights=weights)
    found = by_name(run_page(page, "multi-head", length=64))
    # 3 layers of 48 channels: three projections in, one out, for each place.
    assert found["flops.forward.projections"].value == 3 * 2 * 4 * 48 * 48
    # A mask is a tensor: all pairs count.
    assert found["flops.forward.scores"].value == 3 * 2 * 2 * 48 * 64


def test_strides_over_places_are_refused() -> None:
    page = hand_written_pages.convolution().replace("padding=3", "padding=3, stride=2")
    page = page.replace("return self.mix(x.mT)", "return self.mix(x.mT).repeat(1, 1, 2)")
    run = run_page(page, "strides", length=64)
    note = by_name(run)["flops.forward"].note
    assert note == "layers.0.mix runs a convolution with strides over places, which is not counted"


def by_name(run: Run) -> dict[str, Any]:
    return {figure.name: figure for figure in figures(run)}


def test_a_product_without_a_formula_is_refused() -> None:
    half = Form((8, 8), torch.bfloat16)
    scaled = Operation("layers.0", "aten._scaled_mm.default", (half, half), (half,), None)
    with pytest.raises(flops.NotCountedError, match=r"layers\.0 runs aten\._scaled_mm"):
        flops.product_flops(scaled)


@pytest.mark.parametrize(("delta", "products"), [(False, 2), (True, 3)])
def test_recurrences_count_by_their_products_with_a_state(delta: bool, products: int) -> None:
    """6 heads with states of 5 by 8, at any length; projections 48 to 74 and 48 to 48."""
    text = hand_written_pages.states(delta=delta)
    for length in (64, 150):  # neither divides a chunk
        found = {f.name: f for f in figures(run_page(text, "a page", length=length))}
        mixers = found["flops.forward.mixers"].value
        assert mixers == 3 * 2 * (48 * 74 + 48 * 48 + products * 6 * 5 * 8)


def test_deepseek_v3_takes_the_papers_flops() -> None:
    """arXiv 2505.09343, table 2: 250 GFLOPs a token in training, at 4,096 places."""
    assert number("deepseek_v3", "flops.training") == pytest.approx(250e9, rel=0.005)


def test_llama_3_405b_took_the_papers_flops() -> None:
    """arXiv 2407.21783, section 3.2.1: 3.8e25 FLOPs for 15.6T tokens, which is 6 for each parameter
    and token. Ours are 3.6 % more: attention at 8,192 places adds 4.2 %, and the embedding, whose
    lookup is no product, takes 0.5 % off."""
    assert number("llama3_405b", "flops.training") * 15.6e12 == pytest.approx(3.8e25, rel=0.05)


def test_gpt2_small_takes_megatrons_formula() -> None:
    """arXiv 2104.04473, section 5.1: 96 B s l h^2 (1 + s / 6h + V / 16 l h), of which layers' part
    is 4 forwards (one of recompute) and the logits' 3; every pair counts in it."""
    layers, hidden, vocabulary, length = 12, 768, 50257, 1024
    linear = number("gpt2_small", "flops.forward.projections") + number(
        "gpt2_small", "flops.forward.mlp"
    )
    assert linear == 96 * layers * hidden**2 / 4
    scores = Fraction(number("gpt2_small", "flops.forward.scores"))
    assert scores * length / ((length + 1) / 2) == 96 * layers * hidden * length / 6 / 4
    assert number("gpt2_small", "flops.forward.output") == 96 * hidden * vocabulary / 16 / 3


def test_a_window_leaves_what_it_hides_out() -> None:
    """Mistral 7B: 32 heads of 128; of 32,768 places 4096 see 1 to 4096, the others 4096."""
    pairs = 4096 * 4097 // 2 + (32768 - 4096) * 4096
    expected = Fraction(32 * 2 * 32 * (128 + 128) * pairs, 32768)
    assert number("mistral_7b", "flops.forward.scores") == round(expected)
