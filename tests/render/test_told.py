"""What a difference leaves out since another of its lines says it."""

from __future__ import annotations

from dataclasses import replace

from hand_made import decoder, linear, norm, with_layers

from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.difference import Change, FactChange
from specc.compiler.architecture.tree import Architecture, Part, Value, Weight
from specc.compiler.render.rows import diff_rows
from specc.compiler.render.told import restated


def said(before: Architecture, after: Architecture) -> dict[str, list[str]]:
    rows = diff_rows(compare(before, after))
    return {row.name: [phrase.text() for phrase in row.phrases] for row in rows if not row.quiet}


def starting(part: Part, law: str) -> Part:
    """With parameters that start so, where it has any."""
    facts = (*part.facts, ("init", law)) if part.weights else part.facts
    children = tuple(starting(child, law) for child in part.children)
    return replace(part, facts=facts, children=children)


def started(law: str, deep: str) -> Architecture:
    """A decoder whose second projection of the MLP starts in its own way."""

    def children(layer: Part) -> tuple[Part, ...]:
        *others, mlp = layer.children
        first, second = mlp.children
        mlp = replace(mlp, children=(first, replace(second, facts=(*second.facts, ("init", deep)))))
        return (*(starting(other, law) for other in others), mlp)

    return with_layers(replace(decoder(), root=decoder().root), children)


def test_another_initial_law_is_said_once() -> None:
    before = started("normal 0.02", "normal 0.02/√(2·layers)")
    after = started("normal 0.006", "normal 0.006/√(2·layers)")
    assert said(before, after) == {
        "decoder.layers[0..3].input_layernorm": [
            "starts as normal 0.02 → 0.006",
            "4 other parts do so too",
        ]
    }


def test_a_law_that_one_part_alone_has_says_so() -> None:
    """The same line, and no others that do so too: the two are told apart."""
    whole = decoder()
    name = "input_layernorm"

    def only(law: str) -> Architecture:
        return with_layers(
            whole,
            lambda layer: tuple(
                starting(child, law) if child.name == name else child for child in layer.children
            ),
        )

    told = said(only("normal 0.02"), only("normal 0.006"))
    assert [*told.values()] == [["starts as normal 0.02 → 0.006"]]


def test_a_law_of_its_own_is_said() -> None:
    before = started("normal 0.02", "normal 0.02/√(2·layers)")
    after = started("normal 0.006", "normal 0.02")
    told = said(before, after)
    assert told["mlp.linear_fc2"] == ["starts as normal 0.02/√(2·layers) → 0.02"]


def change(kind: str, before: dict[str, Value], after: dict[str, Value], *names: str) -> Change:
    """A change of these facts, with these changes of weights beside them."""
    parts = [
        Part("part", kind, "Part", tuple(facts.items()), (Weight("weight", (4,)),))
        for facts in (before, after)
    ]
    facts = tuple(
        FactChange(name, before.get(name), after.get(name))
        for name in {**before, **after}
        if before.get(name) != after.get(name)
    )
    weights = tuple(FactChange(name, None, (4,)) for name in names)
    return Change("changed", "part", *parts, facts + weights)


def test_a_bias_is_a_fact_and_a_weight() -> None:
    found = change("linear", {"bias": False}, {"bias": True}, "weight bias")
    assert restated(found) == {"weight bias"}
    assert restated(change("linear", {}, {}, "weight bias")) == set()


def test_sinks_are_a_weight_for_each_head() -> None:
    sinks = {"heads": 4, "sinks": "learned"}
    assert restated(change("attention", {"heads": 4}, sinks, "weight offset")) == {"weight offset"}
    other = {"heads": 8, "sinks": "learned"}
    assert restated(change("attention", {"heads": 8}, other, "weight offset")) == set()
    assert restated(change("attention", {"heads": 4}, {"heads": 4}, "weight offset")) == set()


def test_how_a_parameter_starts_that_was_not_there_is_no_news() -> None:
    found = change("linear", {}, {"init bias": "0", "init": "normal 1"}, "weight bias")
    assert restated(found) == {"init bias"}
    tied = change("output", {"init": "normal 1"}, {"tied": "embedding.weight"})
    assert restated(tied) == {"init"}


def test_gate_and_up_are_one_product() -> None:
    """The first projection has twice the width of a gated MLP, and once that of another."""

    def ungated(layer: Part) -> tuple[Part, ...]:
        *others, mlp = layer.children
        children = (linear("linear_fc1", 64, 256), mlp.children[1])
        facts = (("activation", "GELU"), ("size", 256))
        return (*others, replace(mlp, facts=facts, children=children))

    assert said(decoder(), with_layers(decoder(), ungated)) == {
        "decoder.layers[0..3].mlp": ["SwiGLU → GELU 256"]
    }


def test_a_norm_that_is_not_as_wide_as_the_model_is_said() -> None:
    def narrow(layer: Part) -> tuple[Part, ...]:
        return (norm("input_layernorm", 100), *layer.children[1:])

    told = said(decoder(), with_layers(decoder(hidden=128), narrow))
    assert told["input_layernorm"] == ["size 64 → 100"]


def test_a_weight_with_another_number_of_dimensions_is_said() -> None:
    flat, square = (
        Part("part", "norm", "Part", (("size", 4),), (Weight("weight", shape),))
        for shape in ((4,), (4, 4))
    )
    fact = FactChange("weight weight", (4,), (4, 4))
    assert restated(Change("changed", "part", flat, square, (fact,))) == set()
