"""The lines of code that differ, and how a page puts them beside each other."""

from __future__ import annotations

import random

from hypothesis import given, settings
from hypothesis import strategies as st

from specc.compiler.render.code_lines import CodeBlock, code_lines
from specc.compiler.render.html_code import code_views

PAGE = '''"""A model."""

import torch

LOSS = "per_token"


# What it is made of.
@dataclass(frozen=True)
class Config:
    size: int = 8  # wide
    layers: int = 2


class MLP(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.first = Linear(config.size, 4 * config.size)
        self.second = Linear(4 * config.size, config.size)

    def forward(self, x):
        return self.second(gelu(self.first(x)))


class Layer(nn.Module):
    def forward(self, x):
        return x + self.mlp(self.norm(x))


def build_model(config):
    return Layer(config)
'''


def test_equal_texts() -> None:
    assert code_lines(PAGE, PAGE) == ()


def test_changed_line_with_its_words() -> None:
    (block,) = code_lines(PAGE, PAGE.replace("size: int = 8 ", "size: int = 16 "))
    assert block.name == "class Config"
    old, new = (line for line in block.lines if line.sign in "+-")
    assert (old.sign, old.before, old.after) == ("-", 11, None)
    assert (new.sign, new.before, new.after) == ("+", None, 11)
    assert [old.text[a:b] for a, b in old.marks] == ["8"]
    assert [new.text[a:b] for a, b in new.marks] == ["16"]


def test_numbers_are_of_the_file() -> None:
    (block,) = code_lines(PAGE, PAGE.replace("8 ", "9 "), before_start=4, after_start=3)
    assert [line.before for line in block.lines if line.sign == "-"] == [14]
    assert [line.after for line in block.lines if line.sign == "+"] == [13]


def test_blocks_stand_in_the_order_of_the_page() -> None:
    """A class that is gone stands where it stood, a new one where it stands."""
    first, second = PAGE.index("class MLP"), PAGE.index("class Layer")
    new = PAGE[:first] + PAGE[second:].replace("x + ", "2 * x + ") + "\n\nclass New:\n    pass\n"
    names = [block.name for block in code_lines(PAGE, new)]
    assert names == ["class MLP", "class Layer", "class New"]


def test_renamed_class_is_one_block() -> None:
    (block,) = code_lines(PAGE, PAGE.replace("class MLP", "class FeedForward"))
    assert block.name == "class MLP → class FeedForward"
    assert sum(line.sign in "+-" for line in block.lines) == 2


def test_moved_class_is_no_change() -> None:
    """Order is not what a reader looks for; the architecture says what runs."""
    first, second, third = (PAGE.index(w) for w in ("class MLP", "class Layer", "def build"))
    moved = PAGE[:first] + PAGE[second:third] + PAGE[first:second] + PAGE[third:]
    assert code_lines(PAGE, moved) == ()


def test_no_python_is_compared_whole() -> None:
    """<<<<<<< of a merge, say."""
    names = {block.name for block in code_lines("class A(:\n    x\n", "class A(:\n    y\n")}
    assert names == {"page"}


def test_gap_between_far_lines() -> None:
    body = "\n".join(f"    a{i} = {i}" for i in range(30))
    old = f"class A:\n{body}\n"
    (block,) = code_lines(old, old.replace("a2 ", "b2 ").replace("a27 ", "b27 "))
    assert [line.sign for line in block.lines].count("@") == 1


def _edited(seed: int) -> str:
    """The page with some lines changed, gone, and new."""
    rng = random.Random(seed)
    lines = PAGE.splitlines()
    for _ in range(rng.randint(1, 8)):
        place = rng.randrange(len(lines))
        lines[place : place + rng.randint(0, 2)] = rng.choice(
            [[], ["    new = 1"], [lines[place] + "  # more"], ["class Other:", "    pass"]]
        )
    return "\n".join(lines) + "\n"


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6), st.integers(0, 10**6))
def test_lines_are_those_of_the_texts(first: int, second: int) -> None:
    """Each with its number and its text; those without a like are shown, and marks lie in them."""
    old, new = _edited(first).splitlines(), _edited(second).splitlines()
    blocks = code_lines("\n".join(old), "\n".join(new))
    for line in (line for block in blocks for line in block.lines):
        assert line.before is None or old[line.before - 1] == line.text
        assert line.after is None or new[line.after - 1] == line.text
        assert all(0 <= a < b <= len(line.text) for a, b in line.marks)
    gone = {line.text for block in blocks for line in block.lines if line.sign == "-"}
    come = {line.text for block in blocks for line in block.lines if line.sign == "+"}
    assert {line for line in old if line.strip() and line not in new} <= gone
    assert {line for line in new if line.strip() and line not in old} <= come


@settings(max_examples=60, deadline=None)
@given(st.integers(0, 10**6))
def test_sides_have_all_lines(seed: int) -> None:
    """What a page shows beside each other is what the blocks hold, in their order."""
    blocks = code_lines(PAGE, _edited(seed))
    for block, view in zip(blocks, code_views(blocks), strict=True):
        left = [pair.before for pair in view.pairs if pair.before]
        right = [pair.after for pair in view.pairs if pair.after]
        assert [side.number for side in left] == _numbers(block, "-")
        assert [side.number for side in right] == _numbers(block, "+")
        texts = {line.before: line.text for line in block.lines if line.before}
        for side in left:
            assert "".join(text for text, _ in side.pieces) == texts[side.number]
        assert view.added == sum(line.sign == "+" for line in block.lines)


def _numbers(block: CodeBlock, sign: str) -> list[int | None]:
    shown = [line for line in block.lines if line.sign in (" ", sign)]
    return [line.before if sign == "-" else line.after for line in shown]


def test_likes_stand_beside_each_other() -> None:
    """A changed line beside its new self, though a line was added above it."""
    new = PAGE.replace("    size: int = 8  # wide", "    depth: str\n    size: int = 16  # wide")
    (view,) = code_views(code_lines(PAGE, new))
    (pair,) = (p for p in view.pairs if p.before and p.before.sign == "-")
    assert pair.after is not None
    assert pair.after.pieces[1] == ("16", True)
