"""Which lines a difference and a model are shown in."""

from __future__ import annotations

from dataclasses import replace

from hand_made import decoder, layers_of, norm, with_layers
from hypothesis import given
from hypothesis import strategies as st

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.tree import Architecture, Part
from specc.compiler.render.model_rows import show_rows
from specc.compiler.render.row import Row
from specc.compiler.render.row_numbers import row_parameters
from specc.compiler.render.rows import diff_rows, more_parameters
from specc.compiler.render.runs import MOST_RUNS
from specc.compiler.render.summary import summary


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


def test_one_fact_is_one_line_with_its_whole_path() -> None:
    assert lines(decoder(), decoder(attention=(("window", 16),)))[1:] == [
        "~   decoder.layers[0..3].self_attention | full attention → window 16"
    ]


def test_a_width_is_said_once() -> None:
    before, after = decoder(hidden=64, ffn=256), decoder(hidden=128, ffn=512)
    assert lines(before, after) == [
        "~ model | hidden 64 → 128 | +865,856",
        "    decoder.layers[0..3] | 4 layers | +184,448 each",
        "~     self_attention | GQA 4/2 heads of 16 → 32 | +36,864",
        "~     mlp | SwiGLU 256 → 512 | +147,456",
    ]
    assert summary(compare(before, after)).text() == (
        "3 of 14 parts are the same, 9 differ only in size"
    )
    everything = lines(before, after, everything=True)
    assert "~       input_layernorm | size 64 → 128 | +64" in everything
    assert "~         linear_fc1 | 64 to 512 → 128 to 1024 | +98,304" in everything


def test_a_size_that_follows_from_nothing_is_said() -> None:
    odd = replace(norm("input_layernorm", 48))
    changed = with_layers(decoder(), lambda layer: (odd, *layer.children[1:]))
    assert lines(decoder(), changed)[1:] == [
        "~   decoder.layers[0..3].input_layernorm | size 64 → 48 | -16 each"
    ]


def test_neighbours_that_differ_alike_share_a_line() -> None:
    norms = (norm("q_layernorm", 16), norm("k_layernorm", 16))
    after = decoder(attention_children=norms)
    assert lines(decoder(), after)[1:] == [
        "    decoder.layers[0..3].self_attention | GQA 4/2 heads of 16 | +32 each",
        "+     q_layernorm, k_layernorm | RMSNorm | +32",
    ]
    (row,) = (row for row in diff_rows(compare(decoder(), after)) if row.sign == "+")
    assert [path.rpartition(".")[2] for path in row.paths] == ["q_layernorm", "k_layernorm"]


def test_layers_that_differ_alike_are_one_tree_and_what_only_some_have_stands_apart() -> None:
    windows = layers_of(decoder(attention=(("window", 16), ("softcap", 50.0))), range(0, 4, 2))
    full = layers_of(decoder(attention=(("softcap", 50.0),)), range(1, 4, 2))
    after = with_layers(decoder(), None, (*windows, *full))
    assert lines(decoder(), after)[1:] == [
        "    decoder.layers[0..3] | 4 layers",
        "~     self_attention | no soft cap → soft cap 50",
        "~     self_attention [0,2] | full attention → window 16",
    ]
    assert told(show_rows(after))[4:7] == [
        "      layers[0..3] | 4 layers | 61,568 each",
        "        input_layernorm | RMSNorm | 64",
        "        self_attention [0,2] | GQA 4/2 heads of 16, window 16, soft cap 50 | 12,288",
    ]


def test_many_unlike_layers_are_each_a_tree() -> None:
    def unlike(more: int) -> Architecture:
        layers = [layers_of(decoder(ffn=64 + 16 * n + more), [n]) for n in range(MOST_RUNS + 1)]
        return with_layers(decoder(), None, tuple(layer for (layer,) in layers))

    found = lines(unlike(0), unlike(8))
    assert found[0].startswith("  model | ")
    assert [line.split(" | ")[0].strip("~ ") for line in found[2:]] == [
        f"layers[{n}].mlp" for n in range(MOST_RUNS + 1)
    ]


def test_a_number_of_layers_and_of_the_config() -> None:
    before, after = decoder(), decoder(layers=6, config=(("max_position_embeddings", 1024),))
    assert lines(before, after) == [
        "  model | hidden 64, vocabulary 1000 | +123,136",
        "~   decoder.layers[0..5] | 4 → 6 layers",
        "~   config.max_position_embeddings | 512 → 1024",
    ]
    assert lines(before, replace(before, config=(), numbers=()))[-1] == (
        "-   config.max_position_embeddings | 512"
    )


def test_what_is_below_an_added_part_is_shown_where_everything_is() -> None:
    def without_mlp(layer: Part) -> tuple[Part, ...]:
        return layer.children[:-1]

    less = with_layers(decoder(), without_mlp)
    assert lines(less, decoder())[-1] == (
        "+   decoder.layers[0..3].mlp | SwiGLU 256 | +49,152 each"
    )
    everything = lines(decoder(), less, everything=True)
    assert "-       mlp | SwiGLU 256 | -49,152" in everything
    assert "-         linear_fc1 | 64 → 512 | -32,768" in everything


def test_steps_are_shown_where_nothing_else_says_how_a_part_differs() -> None:
    before = decoder(mlp_steps=("return linear_fc2(linear_fc1(x))",))
    after = decoder(mlp_steps=("return 2.0 * linear_fc2(linear_fc1(x))",))
    (row,) = (row for row in diff_rows(compare(before, after)) if row.steps)
    assert row.steps == (
        "-return linear_fc2(linear_fc1(x))",
        "+return 2.0 * linear_fc2(linear_fc1(x))",
    )
    wider = decoder(ffn=512, mlp_steps=("return 2.0 * linear_fc2(linear_fc1(x))",))
    rows = diff_rows(compare(before, wider))
    assert not any(row.steps for row in rows)
    assert told(rows)[-1].split(" | ")[1] == "SwiGLU 256 → 512; forward: +1 -1 steps"


def test_a_forward_that_differs_in_what_no_step_shows_is_said() -> None:
    before, after = decoder(), decoder()
    hidden = with_layers(
        after, lambda layer: (*layer.children[:3], replace(layer.children[3], exact="other"))
    )
    assert lines(before, hidden)[1:] == [
        "~   decoder.layers[0..3].mlp | forward: differs in what its steps do not show "
        "(an attribute, a buffer)"
    ]


def test_what_is_not_known_is_not_said() -> None:
    """A dropout without its fact."""
    one, other = (
        Part("drop", "dropout", "Dropout", facts, operations=("return dropout(x)",))
        for facts in ((("p", 0.1),), ())
    )
    before, after = (
        with_layers(decoder(), lambda layer, drop=drop: (*layer.children, drop))
        for drop in (one, other)
    )
    assert not any("None" in line for line in lines(before, after))


@given(st.sampled_from([64, 128]), st.sampled_from([2, 4]), st.integers(1, 6), st.booleans())
def test_a_difference_is_never_shown_as_nothing(
    hidden: int, groups: int, layers: int, window: bool
) -> None:
    before = decoder()
    facts = (("window", 16),) if window else ()
    after = decoder(hidden=hidden, groups=groups, layers=layers, attention=facts)
    difference = compare(before, after)
    rows = diff_rows(difference)
    assert bool(rows) is not difference.empty
    assert difference.empty or any(not row.quiet for row in rows)
    if rows:
        assert rows[0].parameters == more_parameters(difference.root)
        assert rows[0].parameters == after.root.parameters - before.root.parameters
