"""What is refused in a class is told with the spec that builds it, and what is refused in a spec
with the call that asks for it."""

from __future__ import annotations

import linecache
from typing import Any

import pytest
import torch
from hostile.parts import Options
from torch import Tensor, nn

from specc.compiler.errors import CompileError
from specc.compiler.pipeline import compile_spec
from specc.templates import ModuleSpec, build_module
from specc.templates.diagnostic import Diagnostic, Span


class Hides(nn.Module):
    def __init__(self, config: Options) -> None:
        super().__init__()
        setattr(self, "scale", config.scale)  # noqa: B010

    def forward(self, x: Tensor) -> Tensor:
        return x


class Owns(nn.Module):
    def __init__(self, config: Options, submodules: Any) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


class Makes(nn.Module):
    """Builds its child itself, without a spec."""

    def __init__(self, config: Options) -> None:
        super().__init__()
        self.child = Hides(config)

    def forward(self, x: Tensor) -> Tensor:
        return self.child(x)


class Scaled(nn.Module):
    def __init__(self, config: Options, scale: Any) -> None:
        super().__init__()
        self.scale = scale

    def forward(self, x: Tensor) -> Tensor:
        return x * self.scale


def refused(spec: ModuleSpec) -> Diagnostic:
    with pytest.raises(CompileError) as caught:
        compile_spec(spec, validate=False)
    (diagnostic,) = caught.value.diagnostics
    return diagnostic


def marked(span: Span | None) -> str:
    assert span is not None
    return linecache.getline(span.file, span.line)[span.column - 1 : span.end_column - 1]


def test_a_line_of_a_class_comes_with_its_spec() -> None:
    child = ModuleSpec(Hides)
    told = refused(ModuleSpec(Owns, {"config": Options()}, {"child": child}))
    assert told.code == "SP305" and marked(told.span).startswith("setattr(self, ")
    assert [(marked(s), label) for s, label in told.also] == [
        ("ModuleSpec(Hides)", "this spec builds it")
    ]


def test_a_class_that_no_spec_names_comes_with_that_of_its_owner() -> None:
    told = refused(ModuleSpec(Makes, {"config": Options()}))
    assert told.code == "SP305"
    assert marked(told.also[0][0]).startswith("ModuleSpec(Makes")


def test_a_line_of_a_spec_comes_with_the_call_that_asks_for_it() -> None:
    child = ModuleSpec(Scaled, {"scale": torch.ones(1)})
    told = refused(ModuleSpec(Owns, {"config": Options()}, {"child": child}))
    assert told.code == "SP315" and marked(told.span).startswith("ModuleSpec(Scaled")
    assert [(marked(s), label) for s, label in told.also] == [
        ('build_module(submodules["child"], config)', "`Scaled` is built here")
    ]


def test_the_root_is_asked_for_by_nobody() -> None:
    told = refused(ModuleSpec(Scaled, {"config": Options(), "scale": torch.ones(1)}))
    assert told.code == "SP315" and told.also == ()
