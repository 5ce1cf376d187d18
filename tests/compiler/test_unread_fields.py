"""A config field that is set and read by nothing is refused: silent flags cost people training
runs."""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any

import pytest
from torch import Tensor, nn

from specc.compiler.errors import CompileError
from specc.compiler.overrides import apply_overrides
from specc.compiler.pipeline import compile_spec
from specc.templates import (
    MLP,
    GPTModel,
    LanguageModelEmbedding,
    ModuleSpec,
    OutputLayer,
    SelfAttention,
    TransformerBlock,
    TransformerConfig,
    TransformerLayer,
    build_module,
)
from specc.templates.config import LAUNCH_FIELDS
from specc.templates.diagnostic import Diagnostic

SIZES: dict[str, Any] = {
    "num_layers": 2,
    "hidden_size": 8,
    "num_attention_heads": 2,
    "vocab_size": 11,
    "max_position_embeddings": 16,
}


def gpt(config: TransformerConfig) -> ModuleSpec:
    children = {"self_attention": ModuleSpec(SelfAttention), "mlp": ModuleSpec(MLP)}
    layer = ModuleSpec(TransformerLayer, submodules=children)
    return ModuleSpec(
        GPTModel,
        params={"config": config},
        submodules={
            "embedding": ModuleSpec(LanguageModelEmbedding),
            "decoder": ModuleSpec(TransformerBlock, params={"layer_spec": layer}),
            "output_layer": ModuleSpec(OutputLayer),
        },
    )


def unread(spec: ModuleSpec) -> list[str]:
    """The fields that are refused; none where the spec compiles."""
    try:
        compile_spec(spec, validate=False)
    except CompileError as error:
        assert {d.code for d in error.diagnostics} == {"SP201"}, error
        names = [d.message.split("`")[1] for d in error.diagnostics]
        for diagnostic in error.diagnostics:
            assert diagnostic.help and diagnostic.help.startswith("leave `")
        return names
    return []


def notes(spec: ModuleSpec) -> list[Diagnostic]:
    return list(compile_spec(spec, validate=False).notes)


# -------------------------------------------------------------------- set


@pytest.mark.parametrize(
    ("fields", "refused"),
    [
        ({}, []),  # the sizes have to be given, and are no choice
        ({"rotary_base": 500.0}, ["rotary_base"]),  # learned positions
        ({"rotary_base": 500.0, "position_embedding_type": "rope"}, []),
        ({"rotary_base": 10000.0}, ["rotary_base"]),  # set to its default is set
        (
            {"rotary_percent": 0.5, "rotary_interleaved": True, "activation": "swiglu"},
            ["rotary_interleaved", "rotary_percent"],  # all of them at once
        ),
        ({"hidden_dropout": 0.0}, []),  # asked, in a test that was folded
        ({"attn_logit_softcapping": 20.0}, []),  # read in forward alone
        ({"init_method_std": 0.1}, []),  # read in constructors alone
        ({"kv_channels": 8}, []),  # read by a property
        ({"normalization": "RMSNorm"}, []),  # read where the spec is completed, by no class
    ],
)
def test_set_and_read_by_nothing(fields: dict[str, Any], refused: list[str]) -> None:
    assert unread(gpt(TransformerConfig(**SIZES, **fields))) == refused


def test_the_line_of_the_config_is_named() -> None:
    config = TransformerConfig(**SIZES, rotary_base=500.0)  # this line
    with pytest.raises(CompileError) as caught:
        compile_spec(gpt(config), validate=False)
    span = caught.value.diagnostics[0].span
    assert span is not None and span.file == __file__
    with open(__file__, encoding="utf-8") as file:
        assert "# this line" in file.readlines()[span.line - 1]


def test_replace_carries_what_was_set() -> None:
    base = TransformerConfig(**SIZES, rotary_base=500.0)
    assert unread(gpt(dataclasses.replace(base, activation="swiglu"))) == ["rotary_base"]
    assert unread(gpt(dataclasses.replace(base, position_embedding_type="rope"))) == []
    plain = TransformerConfig(**SIZES)
    assert unread(gpt(dataclasses.replace(plain, rotary_base=500.0))) == ["rotary_base"]


def test_overrides_set_too() -> None:
    spec = gpt(TransformerConfig(**SIZES))
    changed, _ = apply_overrides(spec, ["config.rotary_base=500.0"])
    assert unread(changed) == ["rotary_base"]
    changed, _ = apply_overrides(
        spec, ["config.rotary_base=500.0", "config.position_embedding_type=rope"]
    )
    assert unread(changed) == []


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("tensor_model_parallel_size", 2),
        ("sequence_parallel", True),
        ("bf16", True),
        ("recompute_granularity", "full"),
    ],
)
def test_launch_fields_are_accepted_and_said(name: str, value: Any) -> None:
    assert name in LAUNCH_FIELDS
    found = notes(gpt(TransformerConfig(**SIZES, **{name: value})))
    said = [n for n in found if n.code == "SP204"]
    assert len(said) == 1
    assert f"`{name}` is chosen at launch" in said[0].message


# -------------------------------------------------------------------- read


@dataclass(frozen=True, kw_only=True)
class Config(TransformerConfig):
    """Fields that are read in ways of their own."""

    extra: float = 1.0
    other: float = 2.0
    flag: bool = False
    checked: float = 3.0

    def __post_init__(self) -> None:
        super().__post_init__()
        assert self.checked > 0.0  # no reader of the model

    @property
    def chosen(self) -> float:
        if self.flag:
            return self.extra
        return self.other

    @property
    def through(self) -> float:
        return self.chosen * 2


class Model(nn.Module):
    """A model of one layer; what it asks of its config is a class below."""

    def __init__(self, config: Config) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x)


class InForward(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.extra


class InTest(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) if self.config.flag else self.linear(x) * 2


class Untaken(Model):
    def forward(self, x: Tensor) -> Tensor:
        if self.config.flag:
            return self.linear(x) * self.config.extra
        return self.linear(x) * self.config.other


class ByProperty(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.through


class ByHelper(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * scale_of(self.config)


def scale_of(config: Config) -> float:
    return config.extra


class ByString(Model):
    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * getattr(self.config, "extra")  # noqa: B009


class Dropped(Model):
    """Reads into an attribute that nothing reads."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.extra = config.extra
        if config.flag:
            self.linear.scale = self.extra


@pytest.mark.parametrize(
    ("model", "fields", "refused"),
    [
        (Model, {"extra": 2.0}, ["extra"]),
        (InForward, {"extra": 2.0}, []),
        (InForward, {"extra": 2.0, "other": 3.0}, ["other"]),
        (InTest, {"flag": False}, []),  # the test is gone from the page; its answer is there
        (Untaken, {"other": 3.0}, []),
        (Untaken, {"extra": 3.0}, ["extra"]),  # a branch that is not taken reads nothing
        (Untaken, {"flag": True, "extra": 3.0}, []),
        (ByProperty, {"other": 3.0}, []),
        (ByProperty, {"extra": 3.0}, ["extra"]),  # a property counts for the path that it takes
        (ByProperty, {"flag": True, "extra": 3.0}, []),
        (ByProperty, {"flag": False}, []),
        (ByHelper, {"extra": 3.0}, []),
        (ByHelper, {"other": 3.0}, ["other"]),
        (ByString, {"extra": 3.0}, []),
        (Model, {"checked": 5.0}, ["checked"]),  # __post_init__ does not count
        (Dropped, {"extra": 3.0}, ["extra"]),  # nor does what folding left unread
    ],
)
def test_what_counts_as_reading(
    model: type[nn.Module], fields: dict[str, Any], refused: list[str]
) -> None:
    spec = ModuleSpec(model, params={"config": Config(**SIZES, **fields)})
    assert unread(spec) == refused


# -------------------------------------------------------------------- two configs


class Owner(Model):
    """Hands its own config to no child: the child's spec has one."""

    def __init__(self, config: Config, submodules: Any) -> None:
        super().__init__(config)
        self.child = build_module(submodules["child"])

    def forward(self, x: Tensor) -> Tensor:
        return self.child(self.linear(x))


def two(own: Config, childs: Config) -> ModuleSpec:
    child = ModuleSpec(InForward, params={"config": childs})
    return ModuleSpec(Owner, params={"config": own}, submodules={"child": child})


def test_each_config_of_a_tree_is_read_by_itself() -> None:
    plain = Config(**SIZES)
    assert unread(two(plain, Config(**SIZES, extra=4.0))) == []
    assert unread(two(Config(**SIZES, extra=4.0), plain)) == ["extra"]
    assert unread(two(plain, Config(**SIZES, other=4.0))) == ["other"]
    # What `replace` carries to the child's config, and the child reads, is read.
    own = Config(**SIZES, extra=4.0)
    assert unread(two(own, dataclasses.replace(own, other=2.5, checked=3.5))) == [
        "checked",
        "other",
    ]
    assert unread(two(own, dataclasses.replace(own, extra=5.0))) == ["extra"]


@dataclass(frozen=True)
class Plain:
    """A config of the user's own, which does not say what it was passed."""

    width: int
    extra: float = 1.0
    other: float = 2.0


class PlainModel(nn.Module):
    def __init__(self, config: Plain) -> None:
        super().__init__()
        self.config = config
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, x: Tensor) -> Tensor:
        return self.linear(x) * self.config.extra


@pytest.mark.parametrize(
    ("fields", "refused"),
    [({}, []), ({"extra": 3.0}, []), ({"other": 3.0}, ["other"]), ({"other": 2.0}, [])],
)
def test_a_config_of_the_users_own(fields: dict[str, Any], refused: list[str]) -> None:
    assert unread(ModuleSpec(PlainModel, params={"config": Plain(8, **fields)})) == refused
