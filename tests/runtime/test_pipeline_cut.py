"""What stays of a model on each stage."""

from __future__ import annotations

import pytest
import torch
from torch import Tensor, nn

from specc.runtime import Mesh, materialize, parameter_table
from specc.runtime.data_parallel import layers
from specc.runtime.pipeline_cut import CutPlaces, Stages, keep_stage
from specc.runtime.stage_models import StageModels, stage_models
from specc.runtime.stage_parts import PAGE_LAYERS, held_parameter, stage_parts

PLACES = CutPlaces(("body.layers", "more.layers"), ("table", "scale"), ("head", "more", "table"))


class _Body(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4) for _ in range(5)])
        self.register_buffer("turn", torch.ones(2))


class _More(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.layers = nn.ModuleList([nn.Linear(4, 4)])


class _Model(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.table = nn.Embedding(7, 4)
        self.scale = nn.Parameter(torch.ones(4))
        self.body = _Body()
        self.head = nn.Linear(4, 7, bias=False)
        self.more = _More()
        self.head.weight = self.table.weight

    def forward(self, x: Tensor) -> Tensor:
        return self.table(x) * self.scale


def _stage(
    stage: int,
    count: int = 3,
    places: CutPlaces = PLACES,
    shares: tuple[int, ...] | None = (2, 2, 1),
    seats: tuple[int, ...] | None = None,
) -> nn.Module:
    mesh = Mesh.single().at_stage(stage, count)
    stages = Stages(seats or tuple(range(count)), shares)
    return materialize(_Model, mesh, wrap=lambda model: keep_stage(model, places, stages, mesh))


def test_a_stage_has_its_own_names_and_values() -> None:
    whole = materialize(_Model, Mesh.single())
    names = [
        {"table.weight", "scale", "body.layers.0", "body.layers.1"},
        {"body.layers.2", "body.layers.3"},
        {"table.weight", "head.weight", "body.layers.4", "more.layers.0"},
    ]
    for stage, wanted in enumerate(names):
        model = _stage(stage)
        found = dict(model.named_parameters(remove_duplicate=False))
        assert {name.removesuffix(".bias").removesuffix(".weight") for name in found} == {
            name.removesuffix(".weight") for name in wanted
        }
        assert all(torch.equal(found[name], whole.get_parameter(name)) for name in found)
        assert torch.equal(model.body.turn, torch.ones(2))
        parts = stage_parts(model)
        assert parts is not None
        assert parts.table == parameter_table(whole)
        assert parts.holders["table.weight"] == (0, 2)
        assert parts.holders["body.layers.3.bias"] == (1,)


def test_what_is_absent_is_not_there_at_all() -> None:
    model = _stage(1)
    assert not hasattr(model, "table") and not hasattr(model, "scale")
    with pytest.raises(AttributeError, match="table"):
        model(torch.zeros(1, dtype=torch.int64))
    assert [name for name, _ in model.body.layers.named_children()] == ["2", "3"]


def test_a_tied_parameter_keeps_its_canonical_name_where_its_place_is_gone() -> None:
    places = CutPlaces(("body.layers",), ("table", "scale"), ("head", "more"))
    model = _stage(2, places=places)
    assert not hasattr(model, "table")
    assert parameter_table(model)["table.weight"].tied_to is None
    assert held_parameter(model, "table.weight") is model.head.weight
    whole = materialize(_Model, Mesh.single())
    assert torch.equal(model.head.weight, whole.table.weight)


def test_units_are_the_elements_that_a_page_names() -> None:
    model = _stage(2)
    model.__dict__[PAGE_LAYERS] = ("body.layers", "more.layers", "gone.layers")
    assert layers(model) == [*model.body.layers, *model.more.layers]


def test_stages_of_one_rank_are_one_model() -> None:
    seats = (0, 1, 0)
    first, last = _stage(0, seats=seats), _stage(2, seats=seats)
    both = StageModels([first, last])
    assert stage_models(both) == (first, last) and stage_models(first) == (first,)
    names = [name for name, _ in both.named_parameters()]
    assert len(names) == len(set(names)) == 2 + 2 * 2 + 2 + 2
    assert both.get_parameter("head.weight") is first.table.weight
    assert [(a is first.table.weight, b is last.table.weight) for a, b in both.twins()] == [
        (True, True)
    ]
    assert "body.turn" in both.state_dict()
    with pytest.raises(AttributeError, match=r"body\.layers\.2"):
        both.get_parameter("body.layers.2.weight")
    with pytest.raises(NotImplementedError, match=r"Pipeline\.step"):
        both()


def test_layers_are_shared_out_by_cost() -> None:
    """A layer has 20 entries, and the last stage a head of 28 and a layer of its own besides."""
    found = [len(_stage(stage, shares=None).body.layers) for stage in range(3)]
    assert found == [2, 2, 1]
    assert [len(_stage(stage, count=2, shares=None).body.layers) for stage in range(2)] == [4, 1]


@pytest.mark.parametrize(
    ("places", "sentence"),
    [
        (CutPlaces(("body.layers",), ("table",), ("head", "more")), "scale belongs to no stage"),
        (CutPlaces(("body",), ("table", "scale"), ("head", "more")), "body, which is no nn.Module"),
        (CutPlaces(("body.layers",), ("tabel", "scale"), ("head", "more")), "names tabel"),
    ],
)
def test_places_that_are_none_are_refused(places: CutPlaces, sentence: str) -> None:
    with pytest.raises(ValueError, match=sentence):
        _stage(0, places=places)


def test_a_parameter_of_two_stages_in_the_middle_is_refused() -> None:
    def build() -> nn.Module:
        model = _Model()
        model.body.layers[2] = model.body.layers[1]
        return model

    mesh = Mesh.single().at_stage(1, 3)
    with pytest.raises(ValueError, match=r"body\.layers\.1\.weight is one of stages 0, 1"):
        materialize(
            build,
            mesh,
            wrap=lambda model: keep_stage(model, PLACES, Stages((0, 1, 2), (2, 2, 1)), mesh),
        )
