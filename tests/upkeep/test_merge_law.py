"""Two hundred hand edits, merged with pages of other configurations.

Either the merge reports a conflict, and both sides stand in the result; or the merged page is the
one that is compiled now, with the edit.
"""

from __future__ import annotations

import ast
import functools
import random
import sys
from collections import Counter
from pathlib import Path

import pytest
from hand_edits import EDITS, Edit

sys.path.insert(0, str(Path(__file__).parents[1] / "compiler"))
from configurations import OPTIONS, spec_of

from specc.compiler.pipeline import compile_spec
from specc.compiler.upkeep.three_way import merge_bodies
from specc.compiler.upkeep.three_way_names import lost_names
from specc.compiler.upkeep.three_way_text import marked

CASES = 200


def families(seed: int) -> list[list[str]]:
    """Pages of three drawn configurations, each with two that differ in up to three options."""
    draw = random.Random(seed)
    found: list[list[str]] = []
    for _ in range(3):
        start = {name: draw.choice(values) for name, values in OPTIONS.items()}
        pages = [body_of(start)]
        while len(pages) < 3:
            changed = draw.sample(sorted(OPTIONS), draw.randint(1, 3))
            body = body_of(start | {name: draw.choice(OPTIONS[name]) for name in changed})
            pages += [body] if body not in pages else []
        found.append(pages)
    return found


def body_of(drawn: dict[str, object]) -> str:
    return compile_spec(spec_of(drawn), validate=False).body


def edited(body: str, case: int, draw: random.Random) -> list[Edit]:
    """One edit for most cases, of each kind in turn; every fourth case has three."""
    kinds = [EDITS[(case + n) % len(EDITS)] for n in range(3 if case % 4 == 3 else 1)]
    edits: list[Edit] = []
    for number, kind in enumerate(kinds):
        edits.append(kind(edits[-1].body if edits else body, draw, case + 1000 * number))
    return edits


def test_a_merge_has_the_edit_and_the_change_or_reports_a_conflict() -> None:
    pages = families(seed=1)
    outcomes: Counter[str] = Counter()
    wrong: list[str] = []
    for case in range(CASES):
        draw = random.Random(case)
        base, new = draw.sample(draw.choice(pages), 2)
        edits = edited(base, case, draw)
        yours = edits[-1].body
        pieces = merge_bodies(yours, base, new)
        text, conflicts = marked(pieces)
        if not all(edit.trace in text for edit in edits):
            wrong.append(f"case {case}: an edit is lost")
        if conflicts:
            outcomes["conflict"] += 1
            if lines_lost(text, base, new):
                wrong.append(f"case {case}: lines of the regenerated page are lost")
        elif lost_names(text, yours, new):
            outcomes["a name is lost"] += 1
        elif not is_new_with(text, edits, new):
            wrong.append(f"case {case}: not the regenerated page with the edit")
        else:
            outcomes["merged"] += 1
    assert wrong == []
    # Most edits touch lines that the change does not. Deterministic but for the version of git.
    assert outcomes["merged"] > 0.75 * CASES
    assert outcomes["conflict"] > 0


def lines_lost(text: str, base: str, new: str) -> set[str]:
    added = {*new.splitlines()} - {*base.splitlines()}
    imported = {*text.splitlines()} | {line for line in added if "import" in line}
    return added - imported


def is_new_with(text: str, edits: list[Edit], new: str) -> bool:
    tree: ast.AST = ast.parse(text)
    for edit in reversed(edits):
        assert isinstance(tree, ast.Module)
        tree = edit.undo(tree)
    return ast.dump(tree) == dumped(new)


@functools.cache
def dumped(text: str) -> str:
    return ast.dump(ast.parse(text))


@pytest.mark.parametrize("kind", EDITS)
def test_an_edit_that_is_taken_back_leaves_the_page(kind: object) -> None:
    """The test's own tools: an edit changes the page, and its `undo` is one."""
    assert callable(kind)
    body = (Path(__file__).parents[2] / "generated_examples/small.py").read_text(encoding="utf-8")
    edit = kind(body, random.Random(0), 7)
    assert edit.body != body
    assert edit.trace in edit.body
    assert edit.trace not in body
    assert is_new_with(edit.body, [edit], body)
