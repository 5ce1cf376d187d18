"""Of layers of one kind one runs; that says what running them all would."""

from __future__ import annotations

from collections import Counter

import pytest
import torch
import validated_models as models
from torch import Tensor, nn

from specc.compiler.pipeline import compile_spec
from specc.compiler.validate.build import build_theirs
from specc.compiler.validate.inputs import make_inputs
from specc.compiler.validate.layers import kinds
from specc.compiler.validate.operations import run_on_meta
from specc.templates import GPTModel, ModuleSpec, TransformerBlock
from specc.templates.prepare import prepare


def ran(spec: ModuleSpec) -> Counter[str]:
    """How often each operation was logged."""
    prepared = prepare(spec).spec
    first, second = build_theirs(prepared).root, build_theirs(prepared).root
    log = run_on_meta(first, make_inputs(first, [], "meta"), kinds(first, second), {})
    return Counter(call.op for call in log.calls)


def test_each_kind_runs_once_a_phase_and_the_others_are_one_call() -> None:
    few = ran(models.gpt(num_layers=2))
    many = ran(models.gpt(num_layers=20))
    # Two train steps and two calls in eval mode; in both steps also backwards.
    assert many["layer"] == 4 * 19 and few["layer"] == 4
    assert many["layer's backward"] == 2 * 19
    del few["layer"], many["layer"], few["layer's backward"], many["layer's backward"]
    assert few == many


def test_what_a_layer_is_passed_and_does_not_read_is_no_difference() -> None:
    layer = ModuleSpec(models.DeafLayer)
    block = ModuleSpec(TransformerBlock, params={"layer_spec": layer})
    spec = ModuleSpec(
        GPTModel, params={"config": models.config(num_layers=3)}, submodules={"decoder": block}
    )
    compiled = compile_spec(spec)  # the page passes x alone
    assert not [note for note in compiled.notes if note.code.startswith("SP5")]
    assert "x = layer(x)" in compiled.body


def test_layers_with_and_without_a_window_are_two_kinds() -> None:
    seen = ran(models.gpt(num_layers=6, window_size=8, window_attn_skip_freq=3))
    assert seen["layer"] == 4 * 4


class Layer(nn.Module):
    def __init__(self, **attributes: object) -> None:
        super().__init__()
        self.linear = nn.Linear(4, 4, device="meta")
        for name, value in attributes.items():
            setattr(self, name, value)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({"scale": 1}, {"scale": 1.0}),
        ({"flag": True}, {"flag": 1}),
        ({"window": None}, {"window": 4}),
        ({"sizes": [1, 2]}, {"sizes": [1, 3]}),
        ({"store": {"a": 1}}, {"store": {"a": 2}}),
        ({"thing": object()}, {"thing": object()}),  # what may differ is taken to differ
        ({"inner": nn.ReLU()}, {"inner": nn.GELU()}),
        ({"extra": nn.Parameter(torch.zeros(2))}, {"extra": nn.Parameter(torch.zeros(3))}),
    ],
)
def test_layers_that_differ_are_of_two_kinds(
    one: dict[str, object], other: dict[str, object]
) -> None:
    pair = nn.Sequential(Layer(**one), Layer(**other))
    same = nn.Sequential(Layer(**one), Layer(**one))
    assert kinds(pair, pair) == {}
    assert kinds(same, pair) == {}  # the page and the spec's model have to agree
    assert kinds(pair, same) == {}
    assert kinds(same, same) == {"0": 0, "1": 0}
