"""The JSON forms: their fields, and that they have all that is known."""

from __future__ import annotations

import json
from typing import Any, get_type_hints

import pytest
from hand_made import comparison, decoder, model, norm

from specc.compiler.render import json_fields
from specc.compiler.render.code_lines import code_lines
from specc.compiler.render.json_form import json_diff, json_show


@pytest.fixture(scope="module")
def told() -> Any:
    after = decoder(
        hidden=128,
        layers=6,
        attention=(("window", 16),),
        attention_children=(norm("q_norm", 32),),
        config=(("max_position_embeddings", 1024),),
        name="large",
    )
    code = code_lines("class A:\n    x = 1\n", "class A:\n    x = 2\n")
    return json.loads(json_diff(comparison(decoder(), after, code)))


def check(value: Any, type: Any) -> None:
    """A value has the fields of its type, in order, and each is what it says."""
    fields = get_type_hints(type)
    assert [*value] == [*fields]
    for name, of in fields.items():
        text = str(of)
        for known in vars(json_fields).values():
            if isinstance(known, type_of_dict) and known.__name__ in text and value[name]:
                for item in value[name] if text.startswith("list") else [value[name]]:
                    check(item, known)


type_of_dict = type(json_fields.DiffJson)


def test_fields_are_those_of_the_schema(told: Any) -> None:
    check(told, json_fields.DiffJson)
    check(json.loads(json_show(model(decoder()))), json_fields.ShowJson)


def test_edits_have_paths_of_both_sides(told: Any) -> None:
    edits = {edit["path"]: edit for edit in told["edits"]}
    attention = edits["decoder.layers[0..5].self_attention"]
    assert attention["kind"] == "changed"
    assert attention["before"]["path"] == "decoder.layers[0..3].self_attention"
    assert (attention["before"]["times"], attention["after"]["times"]) == (4, 6)
    assert {"name": "window", "before": None, "after": 16} in attention["facts"]
    added = edits["decoder.layers[0..5].self_attention.q_norm"]
    assert (added["kind"], added["before"], added["after"]["words"]) == ("added", None, "RMSNorm")


def test_what_follows_from_other_edits_is_marked(told: Any) -> None:
    edits = {edit["path"]: edit for edit in told["edits"]}
    assert edits["decoder.final_layernorm"]["follows"] == ["size"]
    assert edits[""]["follows"] == []


def test_the_rest_of_a_difference(told: Any) -> None:
    assert told["schema_version"] == json_fields.SCHEMA_VERSION
    assert told["same"] is False
    assert told["before"] == {"name": "small", "origin": "small_spec.py"}
    assert told["config"] == [{"name": "max_position_embeddings", "before": 512, "after": 1024}]
    assert [figure["name"] for figure in told["figures"]] == ["parameters", "kv_cache.token"]
    assert [line["sign"] for line in told["code"][0]["lines"]] == [" ", "-", "+"]


def test_the_same_has_no_edits_and_all_of_them_where_everything_is_asked_for() -> None:
    same = comparison(decoder(), decoder())
    told = json.loads(json_diff(same))
    assert told["same"] is True and told["edits"] == []
    parts = len(list(decoder().root.walk()))
    assert len(json.loads(json_diff(same, everything=True))["edits"]) == parts


def test_a_model_is_its_whole_tree() -> None:
    told = json.loads(json_show(model(decoder())))
    found: list[str] = []

    def walk(part: Any) -> int:
        found.append(part["path"])
        own = sum(
            1 if weight["tied_to"] else _product(weight["shape"]) for weight in part["weights"]
        )
        below = sum(walk(child) * max(1, len(child["indices"])) for child in part["children"])
        assert part["parameters"] == own + below
        return part["parameters"]

    walk(told["tree"])
    assert found == [path for path, _, _ in decoder().root.walk()]


def _product(shape: list[int]) -> int:
    count = 1
    for size in shape:
        count *= size
    return count
