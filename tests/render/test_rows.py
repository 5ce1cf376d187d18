"""Which lines a difference and a model are shown in."""

from __future__ import annotations

from hand_made import decoder

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.tree import Architecture
from specc.compiler.render.row_numbers import row_parameters
from specc.compiler.render.rows import Row, diff_rows


def told(rows: tuple[Row, ...]) -> list[str]:
    lines = []
    for row in rows:
        said = "; ".join(phrase.text() for phrase in row.phrases)
        name = "  " * row.depth + row.name
        lines.append(f"{row.sign} {name} | {said} | {row_parameters(row)}".rstrip(" |"))
    return lines


def lines(before: Architecture, after: Architecture, *, everything: bool = False) -> list[str]:
    return told(diff_rows(compare(before, after), everything=everything))


def test_nothing_is_shown_of_what_is_the_same() -> None:
    assert lines(decoder(), decoder()) == []
    everything = lines(decoder(), decoder(), everything=True)
    assert len(everything) == len(list(decoder().root.walk()))
    assert all(line.startswith("  ") for line in everything)


def test_one_fact_is_one_line_with_the_whole_path() -> None:
    assert lines(decoder(), decoder(attention=(("window", 16),)))[1:] == [
        "~   decoder.layers[0..3].self_attention | full attention → window 16"
    ]


def test_a_width_is_said_once() -> None:
    assert lines(decoder(hidden=64, ffn=256), decoder(hidden=128, ffn=512)) == [
        "~ model | hidden 64 → 128 | +648,768",
        "~   decoder.layers[0..3] | GQA | +130",
    ]
