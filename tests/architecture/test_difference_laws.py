"""Laws of a difference: empty iff the pages say the same, and the same from both sides."""

from __future__ import annotations

import ast
import functools
import itertools
import re
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))

from configurations import OPTIONS, options, spec_of
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from specc.compiler.architecture.align import align
from specc.compiler.architecture.compare import compare
from specc.compiler.architecture.difference import Change
from specc.compiler.architecture.read import read
from specc.compiler.architecture.repeats import collapsed
from specc.compiler.architecture.run import run_page
from specc.compiler.architecture.step_lines import step_lines
from specc.compiler.architecture.tree import Architecture, Part
from specc.compiler.pipeline import compile_spec
from specc.templates.diagnostic import SpecError

_pages: dict[str, str | None] = {}


def page(drawn: dict[str, Any]) -> str | None:
    """The page's body, None where the options do not go together."""
    key = repr(drawn)
    if key not in _pages:
        try:
            _pages[key] = compile_spec(spec_of(drawn), validate=False).body
        except SpecError:
            _pages[key] = None
    return _pages[key]


@functools.cache
def architecture(text: str) -> Architecture:
    return read(run_page(text, "drawn"))


@functools.cache
def said(text: str) -> str:
    """A page without docstrings, comments, formatting and names of classes; found from its text
    alone."""
    tree = ast.parse(text)
    tree.body = [n for n in tree.body if not isinstance(n, (ast.Import, ast.ImportFrom))]
    classes = [n for n in tree.body if isinstance(n, ast.ClassDef)]
    names = {cls.name: f"Class{number}" for number, cls in enumerate(classes)}
    for node in ast.walk(tree):
        if isinstance(node, ast.ClassDef):
            node.name = names[node.name]
        elif isinstance(node, ast.Name):
            node.id = names.get(node.id, node.id)
        documented = isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef))
        if documented and ast.get_docstring(node, clean=False) is not None:
            node.body = node.body[1:]
    return ast.dump(tree)


def seen(change: Change, *, swapped: bool = False) -> Any:
    """A change as data, its children in an order of their own; from the other side if asked for."""
    kinds = {"added": "removed", "removed": "added"}
    signs = {"+": "-", "-": "+"}
    sides = [p and (p.name, p.indices, p.kind) for p in (change.before, change.after)]
    facts = [(f.name, f.before, f.after) for f in change.facts]
    steps = sorted(change.steps)
    kind: str = change.kind
    if swapped:
        kind, sides = kinds.get(kind, kind), sides[::-1]
        facts = [(name, after, before) for name, before, after in facts]
        steps = sorted(signs.get(line[0], line[0]) + line[1:] for line in change.steps)
    children = sorted((seen(c, swapped=swapped) for c in change.children), key=repr)
    return kind, sides, facts, steps, children


def pairs() -> st.SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
    """Two configurations that differ in a few options at most."""

    def other(drawn: dict[str, Any]) -> st.SearchStrategy[tuple[dict[str, Any], dict[str, Any]]]:
        names = st.lists(st.sampled_from(list(OPTIONS)), max_size=2, unique=True)
        changed = names.flatmap(
            lambda chosen: st.fixed_dictionaries({n: st.sampled_from(OPTIONS[n]) for n in chosen})
        )
        return changed.map(lambda changes: (drawn, drawn | changes))

    return options().flatmap(other)


def check(one: str, two: str) -> None:
    difference = compare(architecture(one), architecture(two))
    assert difference.empty == (said(one) == said(two))
    reverse = compare(architecture(two), architecture(one))
    assert seen(reverse.root) == seen(difference.root, swapped=True)
    swapped = [(f.name, f.after, f.before) for f in difference.config]
    assert [(f.name, f.before, f.after) for f in reverse.config] == swapped


QUIET = {
    "deadline": None,
    "database": None,
    "derandomize": True,
    "suppress_health_check": list(HealthCheck),
}


@functools.cache
def pool() -> list[str]:
    """Pages of a few configurations, of neighbours of theirs, and the first ones with other names
    of classes."""
    found: list[str] = []

    @settings(max_examples=3, **QUIET)
    @given(pairs())
    def draw(pair: Any) -> None:
        found.extend(text for drawn in pair if (text := page(drawn)) is not None)

    draw()
    renamed = [re.sub(r"\b(TransformerLayer|MLP|SelfAttention)\b", r"Our\1", t) for t in found[:3]]
    return list(dict.fromkeys([*found, *renamed]))


def test_a_difference_is_empty_iff_the_pages_say_the_same() -> None:
    texts = pool()
    same = 0
    for one, two in itertools.combinations_with_replacement(texts, 2):
        check(one, two)
        same += said(one) == said(two)
    assert same > len(texts)  # pages of other words that say the same were among them


@pytest.mark.more_configurations
@settings(max_examples=300, **QUIET)
@given(pairs())
def test_the_same_of_many_more_pairs(pair: Any) -> None:
    one, two = (page(drawn) for drawn in pair)
    assume(one is not None and two is not None)
    assert one is not None and two is not None
    check(one, two)


def stack(kinds: str) -> tuple[Part, ...]:
    """Layers of a list, equal where their letters are."""
    layers = [
        Part("layers", "layer", "Layer", (("letter", letter),), indices=(index,))
        for index, letter in enumerate(kinds)
    ]
    return collapsed(layers)


def model(kinds: str) -> Architecture:
    return Architecture("m", Part("m", "model", "M", children=stack(kinds)))


stacks = st.text("abc", min_size=0, max_size=9)


@given(stacks, stacks)
def test_every_layer_of_two_stacks_is_in_one_pair(before: str, after: str) -> None:
    pairs = align(stack(before), stack(after))
    for side, kinds in enumerate((before, after)):
        places = [i for pair in pairs if (part := pair[side]) is not None for i in part.indices]
        assert sorted(places) == list(range(len(kinds)))


@given(stacks, stacks)
def test_two_stacks_differ_unless_they_are_equal_and_alike_from_both_sides(
    before: str, after: str
) -> None:
    one, two = model(before), model(after)
    difference = compare(one, two)
    assert difference.empty == (before == after)
    assert seen(compare(two, one).root) == seen(difference.root, swapped=True)


lines = st.lists(st.sampled_from("abcdefgh"), max_size=12)


@given(lines, lines)
def test_lines_of_steps_are_the_same_from_both_sides(before: list[str], after: list[str]) -> None:
    signs = {"+": "-", "-": "+", " ": " ", "@": "@"}
    forth, back = step_lines(before, after), step_lines(after, before)
    assert sorted(back) == sorted(signs[line[0]] + line[1:] for line in forth)
    assert [line[1:] for line in forth if line[0] == "-"] == _not_in(before, forth, "-")
    assert bool(forth) == (before != after)


def _not_in(lines: list[str], shown: tuple[str, ...], sign: str) -> list[str]:
    """What is left of the lines where those shown with the sign are taken, in their order."""
    wanted = [line[1:] for line in shown if line[0] == sign]
    rest = iter(lines)
    return [line for line in wanted if line in rest]
