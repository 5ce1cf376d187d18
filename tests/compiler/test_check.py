"""`specc check` and writing: each state that a page can be in."""

import os
from pathlib import Path
from typing import Any

import pytest

from specc.compiler.fingerprint import Fingerprints
from specc.compiler.header import split_page
from specc.compiler.target import parse_target
from specc.compiler.upkeep import check
from specc.compiler.upkeep.check import check_page
from specc.compiler.upkeep.verdict import Verdict
from specc.compiler.write import write_page
from specc.templates.diagnostic import SpecError


@pytest.fixture
def page(folder: Path) -> Path:
    """A fresh page in `pages/`, its spec in the folder above."""
    (folder / "pages").mkdir()
    path = folder / "pages" / "tiny.py"
    compile_again(path)
    return path


def compile_again(path: Path, *overrides: str) -> None:
    from specc.compiler.generate import generate

    generated = generate(parse_target("tiny_spec.py:tiny"), overrides)
    write_page(path, generated.page(path), force=True)


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_fresh_page_is_told_without_compiling(page: Path, pipeline: Any) -> None:
    pipeline.calls.clear()
    assert check_page(page) == Verdict(page, "fresh")
    assert check_page(page).render() == "pages/tiny.py: fresh"
    assert pipeline.calls == []


def test_header_names_the_spec_from_the_pages_folder(page: Path) -> None:
    parsed = split_page(page.read_text())
    assert parsed is not None
    assert parsed[0].origin == "../tiny_spec.py:tiny"


def test_overrides_stand_in_the_header_and_are_used_again(page: Path) -> None:
    compile_again(page, "config.hidden_size=64")
    assert "--set config.hidden_size=64" in page.read_text() and "width = 64" in page.read_text()
    assert check_page(page).fresh
    edit(page, "config.hidden_size=64", "config.hidden_size=128")
    verdict = check_page(page)
    assert verdict.causes == ("spec changed",) and "+width = 128" in verdict.diff


@pytest.mark.parametrize("file", ["tiny_spec.py", "sizes.py"])
def test_spec_that_changed_without_effect_is_a_note(page: Path, file: str) -> None:
    edit(page.parent.parent / file, "\n", "\n# comment\n")
    verdict = check_page(page)
    assert (verdict.fresh, verdict.causes) == (True, ("spec changed",))
    assert verdict.render() == (
        "pages/tiny.py: fresh (spec changed, and the page is the same; "
        "`specc compile` brings its header up to date)"
    )


def test_spec_that_changed_makes_the_page_stale(page: Path) -> None:
    edit(page.parent.parent / "sizes.py", "32", "48")
    verdict = check_page(page)
    assert verdict.render() == "pages/tiny.py: stale: spec changed"
    header = page.read_text().splitlines()[:2]
    assert verdict.diff.splitlines() == [
        "--- pages/tiny.py",
        "+++ pages/tiny.py (compiled now)",
        "@@ -1,4 +1,4 @@",
        *(f" {line}" for line in header),
        ' """A page."""',
        "-width = 32",
        "+width = 48",
    ]
    assert verdict.line == 4


def test_library_that_changed(page: Path, pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Fingerprints, "library", lambda self, file, body: "0" * 8)
    assert check_page(page).causes == ("library changed",) and check_page(page).fresh
    pipeline.style = "width = {width}  # hidden\n"
    assert check_page(page).render() == "pages/tiny.py: stale: library changed"


def test_formatter_that_changed(page: Path, pipeline: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(check, "black_version", lambda: "99.1.0")
    assert check_page(page).causes == ("formatter changed",) and check_page(page).fresh
    pipeline.style = "width = (\n    {width}\n)\n"
    assert check_page(page).causes == ("formatter changed",)
    pipeline.style = "depth = {width}\n"
    assert check_page(page).causes == (
        "formatter changed",
        "something changed that the header does not record",
    )


def test_page_edited_by_hand_and_every_other_cause(page: Path) -> None:
    edit(page, "width = 32", "width = 33")
    assert check_page(page).render() == "pages/tiny.py: stale: edited by hand"
    edit(page.parent.parent / "sizes.py", "32", "48")
    assert check_page(page).causes == ("spec changed", "edited by hand")


def test_edit_that_the_spec_has_caught_up_with_is_fresh(page: Path) -> None:
    edit(page, "width = 32", "width = 48")
    edit(page.parent.parent / "sizes.py", "32", "48")
    assert check_page(page).render().startswith("pages/tiny.py: fresh (spec changed,")


def test_header_edited_by_hand(page: Path) -> None:
    parsed = split_page(page.read_text())
    assert parsed is not None
    edit(page, f"body {parsed[0].body}", "body 00000000")
    assert check_page(page).causes == ("header edited by hand",) and check_page(page).fresh


def test_origin_that_was_edited_is_another_spec(page: Path) -> None:
    with open(page.parent.parent / "tiny_spec.py", "a") as file:
        file.write("wide = ModuleSpec(nn.Module, params={'config': config})\n")
    compile_again(page)
    edit(page, ":tiny", ":wide")
    verdict = check_page(page)
    assert verdict.causes == ("spec changed",) and verdict.fresh  # they are alike
    edit(page, ":wide", ":wider")
    assert check_page(page).causes == ("spec gone",)


def test_edited_record_reads_as_a_change_of_what_it_records(page: Path) -> None:
    parsed = split_page(page.read_text())
    assert parsed is not None
    edit(page, f"library {parsed[0].library}", "library 00000000")
    assert check_page(page).causes == ("library changed",) and check_page(page).fresh


def test_line_ends_do_not_matter(page: Path) -> None:
    page.write_bytes(page.read_bytes().replace(b"\n", b"\r\n"))
    assert check_page(page) == Verdict(page, "fresh")


def code_of(error: BaseException | None) -> str:
    assert isinstance(error, SpecError)
    (diagnostic,) = error.diagnostics
    return f"{diagnostic.code} {diagnostic.message}"


def test_page_whose_spec_is_gone(page: Path) -> None:
    (page.parent.parent / "tiny_spec.py").rename(page.parent.parent / "other_spec.py")
    verdict = check_page(page)
    assert verdict.render() == "pages/tiny.py: cannot be checked: spec gone"
    assert code_of(verdict.error) == (
        "SP604 `pages/tiny.py` says that it comes from `../tiny_spec.py:tiny`, "
        "and there is no such spec"
    )


def test_file_that_is_no_page(page: Path) -> None:
    page.write_text("x = 1\n")
    with pytest.raises(SpecError) as caught:
        check_page(page)
    assert code_of(caught.value) == (
        "SP602 `pages/tiny.py` was not written by specc: it has no header"
    )


def test_header_that_cannot_be_read(page: Path) -> None:
    edit(page, "# spec ", "# ")
    verdict = check_page(page)
    assert verdict.render() == "pages/tiny.py: cannot be checked: header cannot be read"
    assert code_of(verdict.error) == (
        "SP607 the header of `pages/tiny.py` was edited, and cannot be read any more"
    )


@pytest.mark.parametrize("first_line", [True, False])
def test_header_that_git_could_not_merge(page: Path, first_line: bool) -> None:
    first, second, *rest = page.read_text().splitlines(keepends=True)
    mine = (first if first_line else "") + second
    merged = f"<<<<<<< HEAD\n{mine}=======\n{mine}>>>>>>> other\n"
    page.write_text("".join([merged if first_line else first + merged, *rest]))
    verdict = check_page(page)
    assert verdict.causes == ("conflict markers", "header cannot be read")
    assert code_of(verdict.error) == (
        f"SP608 `pages/tiny.py` holds the markers of a merge, from line {2 - first_line} on"
    )


def test_write_only_what_changed_and_keep_the_mode(page: Path) -> None:
    text = page.read_text()
    page.chmod(0o640)
    os.utime(page, (1, 1))
    assert not write_page(page, text)
    assert page.stat().st_mtime == 1
    assert write_page(page, text.replace("# @generated", "# @generated"), force=True) is False
    link = page.parent / "link.py"
    link.symlink_to(page)
    changed = text.replace("_spec.py", "__spec.py")
    assert write_page(link, changed)
    assert link.is_symlink() and page.read_text() == changed
    assert page.stat().st_mode & 0o777 == 0o640
    assert sorted(p.name for p in page.parent.iterdir()) == ["link.py", "tiny.py"]


@pytest.mark.parametrize(
    ("existing", "code"),
    [("edited", "SP601"), ("x = 1\n", "SP602"), ("", None), (" \n", None)],
)
def test_edits_and_strange_files_are_not_overwritten(
    page: Path, existing: str, code: str | None
) -> None:
    text = page.read_text()
    new = text.replace("32", "64")
    page.write_text(text.replace("32", "33") if existing == "edited" else existing)
    before = page.read_text()
    if code:
        with pytest.raises(SpecError) as caught:
            write_page(page, new)
        assert caught.value.diagnostics[0].code == code
        assert page.read_text() == before
        assert write_page(page, new, force=True)
    else:
        assert write_page(page, new)
    assert page.read_text() == new


def test_folder_that_does_not_exist_is_told(tmp_path: Path) -> None:
    with pytest.raises(SpecError, match="there is no folder"):
        write_page(tmp_path / "nowhere" / "page.py", "x")


def test_failed_write_leaves_the_old_file(page: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object) -> None:
        raise OSError("disk full")

    before = page.read_text()
    monkeypatch.setattr(os, "replace", broken)
    with pytest.raises(OSError, match="disk full"):
        write_page(page, "x = 1\n", force=True)
    assert page.read_text() == before
    assert [p.name for p in page.parent.iterdir()] == ["tiny.py"]
