"""`specc compile --merge`: where the base comes from, what is written, what refused."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest

from specc.compiler.header import digest, split_page
from specc.compiler.target import parse_target
from specc.compiler.upkeep.check import check_page
from specc.compiler.upkeep.three_way import Merged, merge_page
from specc.compiler.upkeep.verdict import CONFLICT, EDITED
from specc.compiler.write import write_page
from specc.templates.diagnostic import SpecError

PAGE = "lines = 'far'\nfrom_each = 'other'\nwidth = {width}\nso_that = 'edits'\nstay = 'apart'\n"


@pytest.fixture
def page(folder: Path, pipeline: Any) -> Path:
    """A page of several lines, edited by hand."""
    pipeline.style = PAGE
    path = folder / "tiny.py"
    write_page(path, compiled(path))
    return path


def compiled(path: Path, *overrides: str) -> str:
    from specc.compiler.generate import generate

    return generate(parse_target("tiny_spec.py"), overrides).page(path)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def git(*arguments: str) -> None:
    who = ["-c", "user.name=a", "-c", "user.email=a@b", "-c", "commit.gpgsign=false"]
    subprocess.run(["git", *who, *arguments], check=True, capture_output=True)


def commit() -> None:
    git("add", "--all")
    git("commit", "--quiet", "-m", "x")


def body_of(path: Path) -> str:
    parsed = split_page(path.read_text())
    assert parsed is not None
    return parsed[1]


def refused(page: Path, regenerated: str) -> str:
    before = {p: p.read_bytes() for p in page.parent.iterdir() if p.is_file()}
    with pytest.raises(SpecError) as caught:
        merge_page(page, regenerated)
    assert {p: p.read_bytes() for p in page.parent.iterdir() if p.is_file()} == before
    (diagnostic,) = caught.value.diagnostics
    return f"{diagnostic.code} {diagnostic.message}"


def test_without_edits_the_page_is_written(page: Path) -> None:
    new = compiled(page, "config.hidden_size=64")
    merged = merge_page(page, new)
    assert merged == Merged(page, page, True, "")
    assert merged.render() == "wrote tiny.py: it had no edits to merge"
    assert page.read_text() == new
    assert merge_page(page, new).render() == "unchanged: tiny.py: it had no edits to merge"
    other = page.with_name("other.py")
    assert merge_page(other, new).changed
    assert other.read_text() == new


def test_edit_and_change_are_both_there(page: Path) -> None:
    edit(page, "'far'", "'near'")
    new = compiled(page, "config.hidden_size=64")
    merged = merge_page(page, new)
    assert merged.conflicts == () == merged.notes
    assert merged.render() == "merged tiny.py: edits kept, since what its header records"
    assert body_of(page) == '"""A page."""\n' + PAGE.replace("far", "near").format(width=64)


def test_merged_page_counts_as_edited_and_has_its_base(page: Path) -> None:
    """Its header is that of the page that was compiled: so another merge finds its way."""
    edit(page, "'far'", "'near'")
    new = compiled(page, "config.hidden_size=64")
    merge_page(page, new)
    header, body = split_page(page.read_text()) or pytest.fail("no header")
    assert header.render() + "x" == new[: len(header.render())] + "x"
    assert header.body != digest(body)
    assert check_page(page).causes == (EDITED,)
    merge_page(page, compiled(page, "config.hidden_size=128"))
    assert body_of(page) == '"""A page."""\n' + PAGE.replace("far", "near").format(width=128)


def test_merge_with_what_was_compiled_changes_nothing(page: Path) -> None:
    edit(page, "'far'", "'near'")
    before = page.read_text()
    merged = merge_page(page, compiled(page))
    assert merged.render() == "unchanged: tiny.py: edits kept, since what is compiled now"
    assert page.read_text() == before


def test_edit_that_is_what_is_compiled_is_none_any_more(page: Path) -> None:
    edit(page, "width = 32", "width = 64")
    new = compiled(page, "config.hidden_size=64")
    assert merge_page(page, new).base == ""
    assert page.read_text() == new
    assert check_page(page).render() == "tiny.py: fresh"


def test_conflict_is_written_beside_the_page(page: Path) -> None:
    edit(page, "width = 32", "width = 33")
    before = page.read_text()
    merged = merge_page(page, compiled(page, "config.hidden_size=64"))
    assert merged.render() == (
        "tiny.py.merge: a conflict; tiny.py is as it was. Resolve it there, then "
        "`mv tiny.py.merge tiny.py`"
    )
    assert page.read_text() == before
    (conflict,) = merged.conflicts
    assert conflict.code == "SP673"
    assert conflict.message == "both you and the regenerated page changed this line"
    assert conflict.span is not None
    lines = merged.written.read_text().splitlines()
    assert lines[conflict.span.line - 1 :] == [
        "<<<<<<< yours", "width = 33", "||||||| base", "width = 32", "=======", "width = 64",
        ">>>>>>> regenerated", "so_that = 'edits'", "stay = 'apart'",
    ]  # fmt: skip


def test_result_with_conflicts_is_no_page_yet(page: Path) -> None:
    edit(page, "width = 32", "width = 33")
    new = compiled(page, "config.hidden_size=64")
    merged = merge_page(page, new)
    assert merge_page(page, new) == Merged(
        page, merged.written, False, merged.base, merged.conflicts
    )
    other = compiled(page, "config.hidden_size=128")
    assert refused(page, other) == (
        "SP671 `tiny.py.merge` holds the result of an earlier merge, with conflicts"
    )
    merged.written.replace(page)  # unresolved
    assert check_page(page).causes[-1] == CONFLICT
    assert not check_page(page).fresh
    assert refused(page, other).startswith(
        "SP672 `tiny.py` holds the markers of an earlier merge, from line 6 on"
    )
    text = page.read_text()
    start, end = text.index("<<<<<<<"), text.index("so_that")
    page.write_text(f"{text[:start]}width = 65\n{text[end:]}")
    assert check_page(page).causes == (EDITED,)
    assert merge_page(page, other).conflicts != ()


def test_name_that_the_merge_loses_is_a_conflict(page: Path, pipeline: Any) -> None:
    edit(page, "lines = 'far'\n", "lines = 'far'\nmine = stay\n")
    pipeline.style = PAGE.replace("stay", "remain")
    # The library has changed: the base is in git's history alone.
    before = page.read_text()
    page.write_text(before.replace("mine = stay\n", ""))
    git("init", "--quiet")
    commit()
    page.write_text(before)
    merged = merge_page(page, compiled(page))
    (conflict,) = merged.conflicts
    assert (conflict.code, conflict.message) == (
        "SP674", "`stay` is used here, and the page has no such thing any more"
    )  # fmt: skip
    assert conflict.span is not None
    assert merged.written.read_text().splitlines()[conflict.span.line - 1] == "mine = stay"
    assert page.read_text() == before


def test_base_from_the_page_s_history(page: Path, pipeline: Any) -> None:
    git("init", "--quiet")
    commit()
    edit(page, "'far'", "'near'")
    commit()
    git("mv", "tiny.py", "little.py")
    page = page.with_name("little.py")
    commit()
    pipeline.style = PAGE.replace("'apart'", "'close'")  # another library
    merged = merge_page(page, compiled(page))
    assert merged.base.startswith("the commit ")
    assert merged.conflicts == () == merged.notes
    assert body_of(page) == '"""A page."""\n' + PAGE.replace("far", "near").replace(
        "apart", "close"
    ).format(width=32)


def test_base_behind_a_merge_of_branches(page: Path, pipeline: Any) -> None:
    """A merge commit that changed the page is in its history like any other."""
    git("init", "--quiet", "--initial-branch=main")
    commit()
    git("switch", "--quiet", "-c", "other")
    edit(page, "'edits'", "'all'")
    commit()
    git("switch", "--quiet", "main")
    edit(page, "'far'", "'near'")
    commit()
    git("merge", "--quiet", "--no-edit", "other")
    pipeline.style = PAGE.replace("'apart'", "'close'")
    merged = merge_page(page, compiled(page))
    assert merged.base.startswith("the commit ")
    assert merged.conflicts == () == merged.notes
    for word in ("near", "all", "close"):
        assert f"'{word}'" in body_of(page)


def test_base_from_the_spec_s_history(page: Path) -> None:
    """After a merge the generated text was in no file: the spec of then gives it."""
    git("init", "--quiet")
    edit(page, "'far'", "'near'")
    merge_page(page, compiled(page))
    commit()
    (page.parent / "sizes.py").write_text("WIDTH = 48\n")
    merged = merge_page(page, compiled(page))
    assert merged.base.startswith("its spec at the commit ")
    assert "near" in body_of(page)
    assert "width = 48" in body_of(page)


def test_older_text_has_to_do_and_is_told(page: Path, pipeline: Any) -> None:
    git("init", "--quiet")
    commit()
    pipeline.style = PAGE.replace("'apart'", "'close'")
    write_page(page, compiled(page))
    edit(page, "'far'", "'near'")
    pipeline.style = PAGE.replace("'apart'", "'closer'").replace("'edits'", "'all'")
    merged = merge_page(page, compiled(page, "config.hidden_size=64"))
    (note,) = merged.notes
    assert note.code == "SP675"
    assert "an older text than the one that was edited" in note.message
    assert len(merged.conflicts) == 1  # 'close' is taken for an edit
    text = merged.written.read_text()
    assert "near" in text
    assert "width = 64" in text


def test_without_a_base_it_is_refused(page: Path, pipeline: Any) -> None:
    edit(page, "'far'", "'near'")
    pipeline.style = PAGE.replace("'apart'", "'close'")
    assert refused(page, compiled(page)) == (
        "SP670 the text that `tiny.py` was before it was edited is not to be found: "
        "`tiny_spec.py:tiny` gives another by now, and the page's git history does not have it"
    )


def test_what_is_no_page_is_not_merged(page: Path) -> None:
    new = compiled(page, "config.hidden_size=64")
    edit(page, "width = 32", "width = ")
    assert refused(page, new).startswith(
        "SP672 `tiny.py` is no Python, so its edits cannot be merged: line 6: invalid syntax"
    )
    for odd in (b"\xff", b"\0"):
        page.write_bytes(compiled(page).encode() + odd)
        assert refused(page, new).startswith("SP672 `tiny.py` is no Python")
    page.write_text("x = 1\n")
    assert refused(page, new).startswith("SP602")
    page.write_text("# Copyright\n" + new)
    assert refused(page, new).startswith("SP607 the header of `tiny.py` was edited")


def test_without_git_nothing_is_merged(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    edit(page, "'far'", "'near'")
    new = compiled(page, "config.hidden_size=64")
    monkeypatch.setenv("PATH", str(page.parent))
    with pytest.raises(SpecError) as caught:
        merge_page(page, new)
    assert caught.value.diagnostics[0].code == "SP678"
    assert "near" in page.read_text()
