"""Places that a diagnostic points at: a name in a call, a parameter, a slot, the parent's call."""

from __future__ import annotations

import linecache
from pathlib import Path
from typing import Any

import pytest
from torch import Tensor, nn

from specc.templates import MLP, MLPSubmodules, ModuleSpec, SpecError, build_module
from specc.templates.diagnostic import Span
from specc.templates.spans import narrowed, parameter_span, slot_span

SOURCE = """\
größe = call("x", first=1, second=dict(inner=2), **more)
other = call(
    Class,
    {"one": 1, "two": call({"deep": 3})},
    submodules={
        "three": other,
        "four": [1,
            2],
    },
)
not_ours = 3
"""


@pytest.fixture
def file(tmp_path: Path) -> str:
    path = tmp_path / "spec.py"
    path.write_text(SOURCE, encoding="utf-8")
    return str(path)


def marked(span: Span | None) -> str:
    assert span is not None
    return linecache.getline(span.file, span.line)[span.column - 1 : span.end_column - 1]


def first(file: str) -> Span:
    # Python counts bytes: `größe = ` is 10 of them.
    return Span(file, 1, 11, 20)


def second(file: str) -> Span:
    return Span(file, 2, 9, 13)


def test_the_first_name_that_the_call_has_is_marked(file: str) -> None:
    assert marked(narrowed(first(file), "`Class` has no `first`")) == "first=1"
    assert marked(narrowed(second(file), "`two` is wrong")) == '"two"'
    assert marked(narrowed(second(file), "`one` is wrong")) == '"one": 1'
    assert marked(narrowed(second(file), "`three`")) == '"three"'


def test_the_last_name_of_a_path_counts_where_no_other_is_found(file: str) -> None:
    assert marked(narrowed(second(file), "a list stands here", "decoder.four")) == '"four"'
    assert marked(narrowed(second(file), "`one` is wrong", "decoder.four")) == '"one": 1'


def test_names_in_calls_inside_are_not_this_call_s(file: str) -> None:
    for message in ("`deep`", "`inner`", "`more`", "`nowhere`", "no name at all"):
        assert narrowed(second(file), message) == second(file)


def test_what_is_no_call_or_no_python_stays_as_it_is(file: str, tmp_path: Path) -> None:
    elsewhere = Span(file, 11, 12, 13)
    assert narrowed(elsewhere, "`first`") == elsewhere
    assert narrowed(None, "`first`") is None
    yaml = tmp_path / "spec.yaml"
    yaml.write_text("module: [a\n")
    for path in (str(yaml), "<stdin>"):
        assert narrowed(Span(path, 1, 1, 5), "`module`") == Span(path, 1, 1, 5)


def test_a_file_that_changed_is_read_anew(file: str) -> None:
    narrowed(second(file), "`one`")
    Path(file).write_text('\nother = call({"uno": 1})  # a word, so that the size differs\n')
    assert marked(narrowed(second(file), "`uno`")) == '"uno": 1'


def takes(first: int, *, second: int = 2) -> None: ...


class Wide(nn.Module):
    def __init__(self, width: int, factor: int) -> None:
        super().__init__()

    def forward(self, x: Tensor) -> Tensor:
        return x


def test_a_parameter_and_a_slot_are_found_where_they_are_written() -> None:
    assert marked(parameter_span(takes, "second")) == "second: int"
    assert marked(parameter_span(Wide, "factor")) == "factor: int"
    assert parameter_span(takes, "third") is None
    assert parameter_span(nn.Module, "nothing") is None
    assert parameter_span(print, "sep") is None
    assert marked(slot_span(MLPSubmodules, "linear_fc1")).startswith("linear_fc1: ")
    assert slot_span(MLPSubmodules, "linear_fc9") is None
    assert slot_span(int, "real") is None


class Asks(nn.Module):
    def __init__(self, submodules: Any) -> None:
        super().__init__()
        self.child = build_module(submodules["child"], width=3)


class Handed(nn.Module):
    def __init__(self, child: nn.Module) -> None:
        super().__init__()


def test_the_call_that_asked_for_a_child_is_told() -> None:
    with pytest.raises(SpecError) as caught:
        ModuleSpec(Asks, submodules={"child": ModuleSpec(Wide)}).build_module()
    (told,) = caught.value.diagnostics
    assert told.code == "SP119"
    assert [(marked(span), label) for span, label in told.also] == [
        ("factor: int", "needed by `Wide`"),
        ('build_module(submodules["child"], width=3)', "asked for here"),
    ]


def test_nobody_asks_for_the_root_or_for_a_child_that_is_handed_built() -> None:
    for spec in (ModuleSpec(Wide), ModuleSpec(Handed, submodules={"child": ModuleSpec(Wide)})):
        with pytest.raises(SpecError) as caught:
            spec.build_module()
        labels = [label for d in caught.value.diagnostics for _, label in d.also]
        assert set(labels) == {"needed by `Wide`"}


def test_a_template_s_line_is_told_too() -> None:
    class Dense(nn.Module):
        def __init__(self, rows: int, columns: int, mesh: object) -> None:
            super().__init__()

    from small_models import config

    with pytest.raises(SpecError) as caught:
        ModuleSpec(MLP, {"config": config()}, {"linear_fc1": ModuleSpec(Dense)}).build_module()
    for told in caught.value.diagnostics:
        assert [label for _, label in told.also] == ["asked for here"]
        assert told.also[0][0].file.endswith("mlp.py")
