"""Steps that only hand things through, and steps that do not."""

from __future__ import annotations

from dataclasses import replace

import pytest

from specc.compiler.architecture.tree import Part
from specc.compiler.render.plumbing import same_stream

CHILDREN = tuple(
    Part(name, kind, name)
    for name, kind in [("attn", "attention"), ("norm", "norm"), ("drop", "dropout")]
)


def part(text: str) -> Part:
    return Part("layer", "layer", "Layer", operations=tuple(text.split("\n")), children=CHILDREN)


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return attn(norm(x))", "return attn(norm(x), positions, rotary)"),
        ("return attn(x)", "r = rotary_tables(positions)\nreturn attn(x, r)"),
        ("return x + attn(x)", "a = attn(x)\nreturn x + a"),
        ("return x + attn(x)", "a = drop(attn(x, (1, 2)), positions)\nb = x + a\nreturn b"),
        ("return (norm(x) + attn(x)) * 2", "a = norm(x) + attn(x)\nreturn a * 2"),
        ("a = norm(x)\nreturn a * a", "b = norm(x)\nreturn b * b"),
        # One name bound in two blocks, needed by neither stream.
        (
            "return attn(x)\nwith labels:\n    return norm(x)",
            "p = of(x)\nreturn attn(x, p)\nwith labels:\n    p = of(x)\n    return norm(x, p)",
        ),
    ],
)
def test_handing_through_is_no_difference(before: str, after: str) -> None:
    assert same_stream(part(before), part(after))
    assert same_stream(part(after), part(before))


@pytest.mark.parametrize(
    ("before", "after"),
    [
        ("return x + attn(norm(x))", "return x + norm(attn(x))"),
        ("return x + attn(norm(x))", "return attn(norm(x))"),
        ("return x + attn(norm(x))", "return x + 0.5 * attn(norm(x))"),
        # In parallel, not one after the other.
        ("a = x + attn(x)\nreturn a + norm(a)", "a = x + attn(x)\nreturn a + norm(x)"),
        # Not a child's argument: a function's.
        ("return softmax(x, 1)", "return softmax(x, 2)"),
        # A product of a sum is not the sum of a product.
        ("a = x + y\nreturn 2 * a", "return 2 * x + y"),
        ("a = norm(x) + attn(x)\nreturn a * 2", "return norm(x) + attn(x) * 2"),
        ("return self.attn(x, 1)", "return self.attn(x, 2)"),
    ],
)
def test_another_stream_is_one(before: str, after: str) -> None:
    assert not same_stream(part(before), part(after))


def test_a_dropped_child_that_is_no_dropout_counts() -> None:
    one, other = part("return drop(norm(x))"), part("return drop(x)")
    assert not same_stream(one, other)
    unknown = replace(part("return drop(x)"), children=CHILDREN[:2])
    assert not same_stream(unknown, part("return x"))


def test_a_dropout_that_both_call_counts_where_it_stands() -> None:
    assert not same_stream(part("return drop(attn(x))"), part("return attn(drop(x))"))
