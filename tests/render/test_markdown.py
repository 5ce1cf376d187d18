"""The pull-request comment: tables that hold, and a length that GitHub takes."""

from __future__ import annotations

import re

import pytest
from hand_made import comparison, decoder, model

from specc.compiler.render.code_lines import code_lines
from specc.compiler.render.markdown import LIMIT, markdown_diff, markdown_show
from specc.compiler.render.model import Comparison


def wide(count: int, step: int) -> str:
    """A page of so many classes."""
    return "\n".join(f"class C{n}:\n    value = {n * step}\n" for n in range(count))


@pytest.fixture(scope="module")
def changed() -> Comparison:
    after = decoder(layers=6, attention=(("window", 16), ("softcap", 50.0)), name="a|`b`")
    return comparison(decoder(), after, code_lines(wide(3, 1), wide(3, 2)))


def test_a_difference(changed: Comparison) -> None:
    text = markdown_diff(changed)
    assert text.startswith("### `small` → `` a|`b` ``\n\n12 of 14")
    assert (
        "| ~ | &emsp;&emsp;`self_attention` | no soft cap<br>full attention "
        "| soft cap 50<br>window 16 |  |\n"
    ) in text
    assert "| ~ | &emsp;`decoder.layers[0..5]` | 4 layers | 6 layers |  |\n" in text
    assert "<summary>Code: +2 -2 lines</summary>" in text
    assert "```diff\n@@ -4 +4 @@ class C1\n" in text


def test_every_line_of_a_table_has_the_cells_of_its_heading(changed: Comparison) -> None:
    for text in (markdown_diff(changed), markdown_show(model(changed.after.architecture))):
        for table in re.findall(r"(?:^\|.*\|\n)+", text, re.MULTILINE):
            counts = {
                len(re.findall(r"\|", re.sub(r"\\.", "", line))) for line in table.splitlines()
            }
            assert len(counts) == 1, table


def test_the_same_architecture_says_no_more_than_that() -> None:
    assert markdown_diff(comparison(decoder(), decoder(name="other"))) == (
        "### `small` → `other`\n\nthe same architecture\n"
    )


@pytest.mark.parametrize("limit", [LIMIT, 20_000, 4_000])
def test_a_comment_is_no_longer_than_the_limit_and_says_what_it_leaves_out(limit: int) -> None:
    many = comparison(decoder(), decoder(ffn=512), code_lines(wide(3000, 1), wide(3000, 2)))
    text = markdown_diff(many, limit=limit)
    assert len(text) <= limit
    shown = text.count("\n@@ ")
    left = re.search(r"(\d+) of 2999 places in the code, with (\d+) changed lines, did not", text)
    assert left is not None
    assert int(left[1]) == 2999 - shown and int(left[2]) == 2 * (2999 - shown)
    assert text.endswith("\n</details>\n")
    assert text.count("```") == 2 * bool(shown)


def test_a_tree_that_is_too_long_is_cut_at_a_line() -> None:
    text = markdown_diff(comparison(decoder(), decoder()), everything=True, limit=1_000)
    assert len(text) <= 1_000
    left = re.search(r"^(\d+) more lines did not fit", text, re.MULTILINE)
    assert left is not None
    rows = len(re.findall(r"^\|  \| ", text, re.MULTILINE))
    assert rows + int(left[1]) == len(list(decoder().root.walk()))


def test_one_model() -> None:
    text = markdown_show(model(decoder()))
    assert "| &emsp;&emsp;`layers[0..3]` | 4 layers | 61,568 each |\n" in text
    assert "| parameters | 374,336 |  |\n" in text
