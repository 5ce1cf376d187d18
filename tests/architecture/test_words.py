"""Parts and facts in the words of the field."""

from __future__ import annotations

from typing import Any

import pytest

from specc.compiler.architecture.tree import Part, indices_text
from specc.compiler.architecture.words import HEADLINE, headline, number, phrase, words

ATTENTION = {"heads": 32, "groups": 8, "head_dim": 128, "causal": True}


def part(kind: str, facts: dict[str, Any], times: int = 0) -> Part:
    return Part("name", kind, "Class", tuple(facts.items()), indices=tuple(range(times)))


@pytest.mark.parametrize(
    "kind, facts, said",
    [
        ("attention", ATTENTION, "GQA 32/8 heads of 128"),
        ("attention", ATTENTION | {"groups": 32}, "MHA 32 heads of 128"),
        ("attention", ATTENTION | {"groups": 1}, "MQA 32/1 heads of 128"),
        ("attention", ATTENTION | {"value_dim": 64}, "GQA 32/8 heads of 128, values of 64"),
        ("attention", ATTENTION | {"causal": False}, "GQA 32/8 heads of 128, not causal"),
        (
            "attention",
            ATTENTION | {"window": 4096, "rotary": ("base=10000.0",), "softcap": 50.0},
            "GQA 32/8 heads of 128, window 4096, rotary base 10,000, soft cap 50",
        ),
        ("attention", ATTENTION | {"sinks": "learned"}, "GQA 32/8 heads of 128, sinks"),
        ("attention", ATTENTION | {"sinks": "zero"}, "GQA 32/8 heads of 128, a sink of zero"),
        ("attention", {}, "attention"),
        ("mlp", {"activation": "SwiGLU", "size": 14336}, "SwiGLU 14336"),
        ("mlp", {"size": 64}, "64"),
        ("norm", {"type": "RMSNorm", "size": 64, "epsilon": 1e-5}, "RMSNorm"),
        ("norm", {"type": "RMSNorm", "epsilon": 1e-6}, "RMSNorm, epsilon 1e-6"),
        ("norm", {"type": "RMSNorm", "zero_centered": True}, "RMSNorm (1 + weight)"),
        ("linear", {"in": 4, "out": 12, "bias": True, "init": "normal 0.02"}, "4 → 12, bias"),
        ("embedding", {"vocabulary": 50257, "size": 768}, "vocabulary 50257 × 768"),
        ("embedding", {"positions": 1024, "size": 768}, "positions 1024 × 768"),
        ("output", {"vocabulary": 9, "size": 4, "tied": True}, "4 → vocabulary 9, tied"),
        ("dropout", {"p": 0.1}, "dropout 0.1"),
        ("activation", {"type": "GELU"}, "GELU"),
        ("model", {"hidden": 64, "vocabulary": 9, "loss": "per_token"}, "hidden 64, vocabulary 9"),
        ("module", {}, ""),
    ],
)
def test_a_part_is_one_short_phrase(kind: str, facts: dict[str, Any], said: str) -> None:
    assert words(part(kind, facts)) == said


def test_layers_are_counted() -> None:
    assert words(part("layer", {}, 32)) == "32 layers"
    assert words(part("layer", {})) == ""


@pytest.mark.parametrize(
    "name, value, said",
    [
        ("window", None, "full attention"),
        ("softcap", None, "no soft cap"),
        ("sinks", None, "no sinks"),
        ("rotary", None, "no rotary positions"),
        ("rotary", (), "rotary"),
        ("rotary", ("base=1000000.0", "dim=32"), "rotary base 1,000,000 on 32 channels"),
        ("rotary", ("base=500.0", "pairs=interleaved"), "rotary base 500, interleaved"),
        (
            "rotary",
            ("base=500000.0", "scaling=llama3", "factor=8.0", "low_freq_factor=1.0"),
            "rotary base 500,000, llama3 scaling (factor 8, low freq factor 1)",
        ),
        ("scale", 0.0625, "scores by 0.0625"),
        ("scale", None, "scores by 1/√d"),
        ("bias", False, "no bias"),
        ("bias", True, "bias"),
        ("epsilon", 1e-12, "epsilon 1e-12"),
        ("init", "normal 0.02", "starts as normal 0.02"),
        ("init gain", "1", "`gain` starts as 1"),
        ("calls", None, "called once"),
        ("cut weight", 1, "`weight` cut by columns"),
        ("cut weight", None, "`weight` whole on every rank"),
        ("tied weight", "wte.weight", "`weight` is `wte.weight`"),
        ("frozen", None, "trained"),
        ("made_up", None, "no made up"),
    ],
)
def test_a_fact_and_its_absence_have_words(name: str, value: Any, said: str) -> None:
    assert phrase("attention", name, value) == said


def test_a_headline_says_the_facts_that_it_names_and_words_say_them_once() -> None:
    facts = ATTENTION | {"window": 4}
    assert set(HEADLINE["attention"]) >= {"heads", "groups", "head_dim"}
    assert words(part("attention", facts)).startswith(headline(part("attention", facts)) + ", ")
    other = part("attention", {n: v for n, v in facts.items() if n in HEADLINE["attention"]})
    assert headline(other) == words(other)


@pytest.mark.parametrize(
    "value, said", [(500000.0, "500,000"), (50.0, "50"), (0.02, "0.02"), (1e-5, "1e-5"), (7, "7")]
)
def test_numbers_are_written_as_readers_do(value: float, said: str) -> None:
    assert number(value) == said


@pytest.mark.parametrize(
    "indices, said",
    [
        ((0,), "0"),
        (tuple(range(32)), "0..31"),
        ((0, 2, 4), "0..4:2"),
        ((5, 11, 17, 23), "5..23:6"),
        ((0, 3, 4, 5, 9), "0,3..5,9"),
    ],
)
def test_places_in_a_list_are_short(indices: tuple[int, ...], said: str) -> None:
    assert indices_text(indices) == said
