"""What a merge makes of touching changes, of fields, of imports; and what it leaves open."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from specc.compiler.upkeep.conflict_markers import first_marker
from specc.compiler.upkeep.three_way import merge_bodies
from specc.compiler.upkeep.three_way_names import lost_names
from specc.compiler.upkeep.three_way_text import marked, merge_texts


def lines(text: str) -> str:
    return "".join(f"{word}\n" for word in text.split())


MERGED = [
    # yours, base, new, merged
    ("a b c d", "a b c d", "a B c d", "a B c d"),
    ("A b c d", "a b c d", "a b c D", "A b c D"),
    ("a B c d", "a b c d", "a b C d", "a B C d"),  # they touch: git calls it a conflict
    ("a x b c", "a b c", "a B c", "a x B c"),
    ("a b x c", "a b c", "a B c", "a B x c"),
    ("a B c", "a b c", "a B C", "a B C"),
    ("a b x c d", "a b c d", "a B C d", "a B x C d"),  # a line for a line
    ("a x b", "a b", "a x b y", "a x b y"),
    ("a c", "a b c", "a b c d", "a c d"),
    ("a b", "a b", "", ""),
]


@pytest.mark.parametrize(("yours", "base", "new", "merged"), MERGED)
def test_lines_are_merged(yours: str, base: str, new: str, merged: str) -> None:
    for mine, theirs in ((yours, new), (new, yours)):
        text, conflicts = marked(merge_texts(lines(mine), lines(base), lines(theirs)))
        assert (text, conflicts) == (lines(merged), [])


CONFLICTS = [
    ("a X c", "a b c", "a Y c"),
    ("a x b", "a b", "a y b"),  # which comes first?
    ("a b x c", "a b c", "a c"),  # what it was added to is gone
    ("a b x c d", "a b c d", "a E d"),
]


@pytest.mark.parametrize(("yours", "base", "new"), CONFLICTS)
def test_what_nobody_can_know_is_a_conflict(yours: str, base: str, new: str) -> None:
    for mine, theirs in ((yours, new), (new, yours)):
        text, conflicts = marked(merge_texts(lines(mine), lines(base), lines(theirs)))
        assert len(conflicts) == 1
        assert {*lines(mine).split(), *lines(theirs).split()} <= {*text.split()}
        assert first_marker(text) == conflicts[0]


TEXTS = st.lists(st.sampled_from("abc"), max_size=6).map(lambda letters: lines(" ".join(letters)))


@settings(max_examples=60, deadline=None, derandomize=True)
@given(TEXTS, TEXTS, TEXTS)
def test_sides_are_alike_and_a_side_without_a_change_has_no_say(
    yours: str, base: str, new: str
) -> None:
    assert marked(merge_texts(yours, base, base)) == (yours, [])
    assert marked(merge_texts(base, base, new)) == (new, [])
    assert marked(merge_texts(new, base, new)) == (new, [])
    text, conflicts = marked(merge_texts(yours, base, new))
    swapped, same = marked(merge_texts(new, base, yours))
    assert len(conflicts) == len(same)
    if not conflicts:
        assert text == swapped


def test_conflict_is_as_small_as_it_can_be() -> None:
    text, conflicts = marked(merge_texts(lines("a p X q b"), lines("a b"), lines("a p Y q b")))
    assert text == ("a\np\n<<<<<<< yours\nX\n||||||| base\n=======\nY\n>>>>>>> regenerated\nq\nb\n")
    assert conflicts == [3]


def test_last_line_without_an_end_is_kept() -> None:
    assert marked(merge_texts("a\nb", "a\n", "A\n"))[0] == "A\nb\n"
    assert marked(merge_texts("a\nb\x0cc\n", "a\n", "A\n"))[0] == "A\nb\x0cc\n"


CONFIG = """class Config:
    hidden_size: int = 64
    num_layers: int = 2  # of them
    vocab_size: int = 31
"""


def test_fields_are_merged_by_name() -> None:
    yours = CONFIG.replace("64", "128").replace("    vocab", "    mine: int = 7\n    vocab")
    new = CONFIG.replace("= 2  # of them", "= 3").replace(
        "    vocab", "    ours: float = 1.0\n    vocab"
    )
    text, conflicts = marked(merge_texts(yours, CONFIG, new))
    assert conflicts == []
    assert text.splitlines() == [
        "class Config:", "    hidden_size: int = 128", "    num_layers: int = 3",
        "    mine: int = 7", "    ours: float = 1.0", "    vocab_size: int = 31",
    ]  # fmt: skip


def test_field_that_both_changed_is_the_only_conflict() -> None:
    yours = CONFIG.replace("64", "128").replace("= 31", "= 33")
    new = CONFIG.replace("64", "256").replace("= 2 ", "= 3 ")
    text, conflicts = marked(merge_texts(yours, CONFIG, new))
    assert conflicts == [2]
    assert text.splitlines()[1:8] == [
        "<<<<<<< yours", "    hidden_size: int = 128", "||||||| base", "    hidden_size: int = 64",
        "=======", "    hidden_size: int = 256", ">>>>>>> regenerated",
    ]  # fmt: skip
    assert text.splitlines()[8:] == [
        "    num_layers: int = 3  # of them",
        "    vocab_size: int = 33",
    ]


def page(imports: str, code: str = "x = nn, RMSNorm") -> str:
    return f'"""A page."""\n\n{imports}\n\n{code}\n'


BASE = "from torch import nn\n\nfrom specc.runtime import RMSNorm"
IMPORTS = [
    # Both add to one line.
    (
        BASE.replace("nn", "Tensor, nn"),
        BASE.replace("nn", "nn, ones"),
        "from torch import Tensor, nn, ones\n\nfrom specc.runtime import RMSNorm",
    ),
    # A new package, and a line that both make longer than a line may be.
    (
        f"import math\n\n{BASE}, Mesh, Positions, attention",
        f"{BASE}, ColumnParallelLinear, RowParallelLinear",
        "import math\n\nfrom torch import nn\n\nfrom specc.runtime import (\n"
        "    ColumnParallelLinear,\n    Mesh,\n    Positions,\n    RMSNorm,\n"
        "    RowParallelLinear,\n    attention,\n)",
    ),
    # One that both take away.
    (BASE.split("\n")[0], f"import os\n{BASE.split(chr(10))[0]}", None),
]  # fmt: skip


@pytest.mark.parametrize(("yours", "new", "merged"), IMPORTS)
def test_imports_are_a_set(yours: str, new: str, merged: str | None) -> None:
    code = "x = nn"
    text, conflicts = marked(merge_bodies(page(yours, code), page(BASE, code), page(new, code)))
    assert conflicts == []
    assert text == page(merged if merged is not None else new, code)


def test_import_that_an_edit_still_uses_stays() -> None:
    """The regenerated page has no use for it, and the line that a person wrote has."""
    yours = page(BASE, "x = nn, RMSNorm\n\n\n\n\ny = RMSNorm")
    new = page("from torch import nn", "x = nn")
    text, conflicts = marked(merge_bodies(yours, page(BASE), new))
    assert conflicts == []
    assert text == page(BASE, "x = nn\n\n\n\n\ny = RMSNorm")


def test_import_that_only_the_regenerated_page_uses_stays() -> None:
    yours = page("from torch import nn", "x = nn")
    new = page(BASE, "x = nn, RMSNorm\n\n\n\n\ny = RMSNorm")
    text, conflicts = marked(merge_bodies(yours, page(BASE), new))
    assert conflicts == []
    assert text == page(BASE, "x = nn\n\n\n\n\ny = RMSNorm")


@pytest.mark.parametrize("mine", ["import os as nn", "from torch import nn  # mine"])
def test_imports_that_are_no_set_are_lines(mine: str) -> None:
    yours = page(BASE.replace("from torch import nn", mine))
    new = page(BASE.replace("from torch import nn", "from torch import fx as nn"))
    text, conflicts = marked(merge_bodies(yours, page(BASE), new))
    assert len(conflicts) == 1
    assert mine in text


CLASS = """import torch


class Layer:
    size: int = 2

    def __init__(self, width):
        self.width = width

    def forward(self, x):
        y = torch.sin(x)
        return y + self.width
"""


@pytest.mark.parametrize(
    ("old", "new", "lost"),
    [
        ("width = width", "breadth = width", [(12, "self.width")]),
        ("y = torch", "z = torch", [(12, "y")]),
        ("import torch", "import torch as t", [(11, "torch")]),
        ("return y + self.width", "return y + len(unknown.width)", [(12, "unknown")]),
        ("size", "sizes", []),
        ("import torch\n", "from __future__ import annotations\nimport torch\n", []),
    ],
)
def test_names_that_mean_nothing_any_more(old: str, new: str, lost: list[tuple[int, str]]) -> None:
    assert lost_names(CLASS.replace(old, new, 1), CLASS, "import torch\n") == lost
    assert lost_names(CLASS, CLASS, "import torch\n") == []


def test_what_an_edit_took_from_the_regenerated_page_is_lost_too() -> None:
    merged = CLASS.replace("width = width", "breadth = width", 1)
    yours = merged.replace("y + self.width", "y")
    assert lost_names(merged, yours, CLASS) == [(12, "self.width")]
    elsewhere = CLASS.replace("        self.width = width\n", "        pass\n")
    assert lost_names(elsewhere, CLASS, elsewhere) == []  # a base class has it


def test_only_a_newline_ends_a_line() -> None:
    odd = page("from torch import nn\n").replace("nn, RMSNorm", "nn, 'a\x0cb\u2028c'")
    mine = odd.replace("import nn\n", "import Tensor, nn\n").replace("x = nn", "x = Tensor, nn")
    assert marked(merge_bodies('"""\x0c\u2028"""\n' + mine, odd, odd + "y = 1\n"))[0] == (
        '"""\x0c\u2028"""\n' + mine + "y = 1\n"
    )
