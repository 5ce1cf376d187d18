"""`--set config.field=value`."""

import functools
import linecache
from dataclasses import dataclass, field
from typing import Any, Literal

import pytest
import torch
from torch import nn

from specc.compiler.overrides import apply_overrides
from specc.compiler.values import describe, parse_as, parse_items
from specc.templates import ModuleSpec, RotaryPositionalEmbedding, TransformerConfig
from specc.templates.diagnostic import Diagnostic, SpecError


def config(**fields: Any) -> TransformerConfig:
    numbers = {"num_layers": 2, "hidden_size": 32, "num_attention_heads": 4, "vocab_size": 64}
    return TransformerConfig(**{**numbers, "max_position_embeddings": 16, **fields})


def mistakes(spec: ModuleSpec, *overrides: str) -> tuple[Diagnostic, ...]:
    with pytest.raises(SpecError) as caught:
        apply_overrides(spec, overrides)
    return caught.value.diagnostics


def test_every_config_of_the_tree_is_replaced_and_the_rest_shared() -> None:
    @dataclass
    class Children:
        norm: Any = None

    shared, other = config(), config(hidden_size=64)
    child = ModuleSpec(nn.Linear, {"config": shared}, metainfo={"of": "the user"})
    spec = ModuleSpec(
        nn.Module,
        params={
            "config": shared,
            "layer_spec": child,
            "layers": [child, ModuleSpec(nn.Linear, {"config": other})],
            "make": functools.partial(nn.Linear, config=shared),
        },
        submodules=Children(norm=child),
    )
    new, warnings = apply_overrides(spec, ["config.num_layers=5", "config.rotary_base=5e5"])
    assert warnings == [] and spec.params["config"] is shared and shared.num_layers == 2
    params = new.params
    assert params["config"].num_layers == 5 and params["config"].rotary_base == 500000.0
    assert params["layers"][1].params["config"].hidden_size == 64
    assert params["layers"][1].params["config"].num_layers == 5
    assert params["make"].keywords["config"] is params["config"]
    assert params["layers"][0] is params["layer_spec"] is new.submodules.norm
    assert params["layer_spec"].params["config"] is params["config"]
    assert (new.span, params["layer_spec"].metainfo) == (spec.span, child.metainfo)


def test_values_that_only_hold_together_are_set_together() -> None:
    spec = ModuleSpec(nn.Module, {"config": config(num_query_groups=2)})
    new, _ = apply_overrides(spec, ["config.num_attention_heads=5", "config.num_query_groups=5",
                                    "config.hidden_size=40"])  # fmt: skip
    assert new.params["config"].num_query_groups == 5


def test_without_overrides_the_spec_is_handed_back() -> None:
    spec = ModuleSpec(nn.Module, {})
    assert apply_overrides(spec, ()) == (spec, [])


def test_rotary_object_follows_the_config_it_was_made_from() -> None:
    shared = config()
    rotary = RotaryPositionalEmbedding(config=shared, rotary_percent=0.5)
    spec = ModuleSpec(nn.Module, {"config": shared, "rotary_pos_emb": rotary})
    new, _ = apply_overrides(spec, ["config.rotary_base=5e5", "config.rotary_percent=0.25"])
    assert new.params["rotary_pos_emb"].fields["rotary_base"] == 500000.0
    assert new.params["rotary_pos_emb"].fields["rotary_percent"] == 0.5
    assert rotary.fields["rotary_base"] == 10000.0


def test_number_in_params_that_equals_the_old_value_warns() -> None:
    inner = ModuleSpec(nn.Linear, {"num_layers": 2, "layer_number": 1, "flag": True})
    spec = ModuleSpec(nn.Module, {"config": config()}, {"decoder": inner})
    _, (warning,) = apply_overrides(spec, ["config.num_layers=4", "config.hidden_size=32"])
    assert (warning.code, warning.path) == ("SP643", "decoder")
    span = warning.span
    assert span is not None
    marked = linecache.getline(span.file, span.line)[span.column - 1 : span.end_column - 1]
    assert marked == '"num_layers": 2'
    assert warning.message == (
        "`num_layers=2` in the params of `Linear` equals the config.num_layers that was, "
        "and `--set config.num_layers` does not change it"
    )


def test_mistakes_come_together() -> None:
    spec = ModuleSpec(nn.Module, {"config": config()})
    found = mistakes(
        spec, "num_layers=4", "config.num_layer=4", "config.num_layers=four", "config.bf16"
    )
    assert [(d.code, d.message, d.help) for d in found] == [
        ("SP640", "`--set num_layers=4` is not an assignment to a config field",
         "write --set config.num_layers=4"),
        ("SP641", "`--set config.num_layer=4`: no config has a field `num_layer`",
         "did you mean `num_layers`?"),
        ("SP642", "`--set config.num_layers=four`: `num_layers` takes a whole number, not `four`",
         "it is 2 in the spec"),
        ("SP640", "`--set config.bf16` is not an assignment to a config field",
         "write --set config.FIELD=VALUE"),
    ]  # fmt: skip


def test_spec_without_config_and_hidden_field() -> None:
    (found,) = mistakes(ModuleSpec(nn.Module), "config.num_layers=4")
    assert found.help == "no params hold a `config`"
    spec = ModuleSpec(nn.Module, {"config": config()})
    assert mistakes(spec, "config._set_fields=a")[0].code == "SP641"


def test_value_that_the_config_refuses_is_its_own_error() -> None:
    spec = ModuleSpec(nn.Module, {"config": config()})
    (found,) = mistakes(spec, "config.num_layers=0")
    assert "num_layers" in found.message
    assert (found.span, found.note) == (None, "with --set config.num_layers=0")


@pytest.mark.parametrize(
    ("annotation", "text", "value"),
    [
        (int, "1_000", 1000),
        (float, "1e-5", 1e-5),
        (bool, "False", False),
        (str, "4", "4"),
        (int | None, "none", None),
        (str | None, "rope", "rope"),
        (str | None, "None", None),
        (int | float, "4", 4),
        (float | int, "4.5", 4.5),
        (Literal["a", 2], "2", 2),
        (torch.dtype | None, "bfloat16", torch.bfloat16),
        (tuple[int, ...], "1,0, 1", (1, 0, 1)),
        (int | tuple[int, ...] | None, "(1, 0)", (1, 0)),
        (tuple[int, float], "1,2", (1, 2.0)),
        (list[int], "[1, 2]", [1, 2]),
    ],
)
def test_text_is_read_by_the_annotation(annotation: Any, text: str, value: Any) -> None:
    read = parse_as(annotation, text)
    assert read == value and type(read) is type(value)


@pytest.mark.parametrize(
    ("annotation", "text", "takes"),
    [
        (int, "1.5", "a whole number"),
        (int | None, "x", "a whole number or None"),
        (bool, "1", "true or false"),
        (Literal["a", "b"], "c", "one of `a`, `b`"),
        (tuple[int, ...], "a,b", "several, with commas, each a whole number"),
        (tuple[int, float], "1", "several, with commas: a whole number, a number"),
        (torch.dtype, "bf15", "a torch dtype such as bfloat16"),
        (type(field), "x", "a function, which only a Python spec can give"),
    ],
)
def test_other_text_is_told_what_would_be_right(annotation: Any, text: str, takes: str) -> None:
    with pytest.raises(ValueError) as caught:
        parse_as(annotation, text)
    assert str(caught.value) == takes == describe(annotation)


def test_items_are_read_by_the_annotation() -> None:
    assert parse_items(int | tuple[int, ...] | None, ["1", "0"]) == (1, 0)
    with pytest.raises(ValueError, match="a whole number"):
        parse_items(int, ["1"])
