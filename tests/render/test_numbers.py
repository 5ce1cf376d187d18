"""Numbers, figures and short phrases as a reader sees them."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from specc.compiler.architecture.figure import Figure, Unit
from specc.compiler.render.figure_rows import figure_rows, lone_rows, merged
from specc.compiler.render.numbers import percent, short, signed
from specc.compiler.render.phrases import Phrase


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (0, "", "0"),
        (999_949, "", "999,949"),
        (8_030_261_248, "", "8.030 B"),
        (405_465_088, "", "405.5 M"),
        (2_000_000, "", "2 M"),
        (1_023, "bytes", "1,023 bytes"),
        (131_072, "bytes", "128 KiB"),
        (227_593_216, "bytes", "217.0 MiB"),
        (719_585_280, "FLOPs", "719.6 MFLOP"),
        (16_060_522_496, "FLOPs", "16.06 GFLOP"),
        (-1_500_000, "", "-1.500 M"),
        (999_999_999, "", "1.000 B"),  # rounded up it is the next size, not a fifth digit
        (2**20 - 1, "bytes", "1.000 MiB"),
    ],
)
def test_a_size_has_four_digits(value: int, unit: Unit, text: str) -> None:
    assert short(value, unit) == text


@given(st.integers(-(10**16), 10**16), st.sampled_from(["", "FLOPs", "bytes"]))
def test_a_short_size_is_near_and_has_the_sign(value: int, unit: Unit) -> None:
    number, _, prefix = short(value, unit).partition(" ")
    step = 1024.0 if unit == "bytes" else 1000.0
    power = {"": 0, "B": 3, "bytes": 0, "M": 2, "T": 4, "FLOP": 0}
    power |= {"KiB": 1, "MiB": 2, "GiB": 3, "TiB": 4, "MFLOP": 2, "GFLOP": 3, "TFLOP": 4}
    power |= {"PFLOP": 5}
    # Four digits: half of one in the last place of 1.000.
    assert float(number.replace(",", "")) * step ** power[prefix] == pytest.approx(value, rel=5e-4)


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        (5, 5, "same"),
        (0, 0, "same"),
        (0, 7, "new"),
        (227_593_216, 324_576_768, "+42.6 %"),
        (98_304, 24_576, "-75.0 %"),
        (100_000, 100_001, "+<0.1 %"),
        (100_001, 100_000, "-<0.1 %"),
        (10, 0, "-100.0 %"),
        (10, 500, "x 50.0"),
    ],
)
def test_a_change_in_per_cent(before: int, after: int, text: str) -> None:
    assert percent(before, after) == text


def test_signed_counts() -> None:
    assert [signed(n) for n in (1024, -131_072, 0)] == ["+1,024", "-131,072", "0"]


@pytest.mark.parametrize(
    ("before", "after", "text"),
    [
        ("GQA 32/8 heads of 128", "GQA 64/8 heads of 128", "GQA 32/8 → 64/8 heads of 128"),
        ("MHA 32 heads of 64", "GQA 32/8 heads of 64", "MHA 32 → GQA 32/8 heads of 64"),
        ("32 layers", "80 layers", "32 → 80 layers"),
        ("hidden 4096", "hidden 8192", "hidden 4096 → 8192"),
        ("LayerNorm", "RMSNorm", "LayerNorm → RMSNorm"),
        ("no window", "window 4096", "no window → window 4096"),
        ("bias", "no bias", "bias → no bias"),
        ("a b a", "a", "a b a → a"),
        (None, "RMSNorm", "RMSNorm"),
        ("RMSNorm", None, "RMSNorm"),
    ],
)
def test_a_phrase_says_what_both_sides_share_once(
    before: str | None, after: str | None, text: str
) -> None:
    assert Phrase(before, after).text() == text


_words = st.lists(st.sampled_from(["a", "b", "c"]), min_size=1, max_size=5).map(" ".join)


@given(_words, _words)
def test_both_sides_can_be_read_from_the_pieces(before: str, after: str) -> None:
    lead, was, now, trail = Phrase(before, after).pieces()
    assert was and now
    for side, own in ((before, was), (after, now)):
        assert " ".join(piece for piece in (lead, own, trail) if piece) == side


@given(
    st.lists(st.integers(0, 9), unique=True, max_size=6),
    st.lists(st.integers(0, 9), unique=True, max_size=6),
)
def test_names_of_both_sides_stand_once_in_the_order_of_the_second(
    first: list[int], second: list[int]
) -> None:
    names = merged([f"{n}" for n in first], [f"{n}" for n in second])
    assert sorted(names) == sorted({f"{n}" for n in first} | {f"{n}" for n in second})
    assert [name for name in names if int(name) in second] == [f"{n}" for n in second]


def test_figures_side_by_side() -> None:
    before = [
        Figure("parameters", "parameters", 1000),
        Figure("kv", "KV cache", 131_072, "bytes", 1, "bf16, at 8192 tokens"),
        Figure("old", "what was", 5),
    ]
    after = [
        Figure("parameters", "parameters", 2000),
        Figure("kv", "KV cache", 65_536, "bytes", 1, "bf16, at 4096 tokens"),
        Figure("unknown", "what is not known", None, note="it has no layers"),
    ]
    note = "bf16; before: at 8192 tokens; after: at 4096 tokens"
    told = [(r.label, r.before, r.after, r.change, r.note) for r in figure_rows(before, after)]
    assert told == [
        ("parameters", "1,000", "2,000", "+100.0 %", ""),
        ("KV cache", "128 KiB", "64 KiB", "-50.0 %", note),
        ("what was", "5", "-", "", ""),
        ("what is not known", "-", "-", "", "it has no layers"),
    ]
    assert next((r.before, r.after, r.change) for r in lone_rows(before)) == ("", "1,000", "")
