"""`specc eject`: what becomes of the page, of its edits, and of a second eject."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from specc.compiler.cli import main
from specc.compiler.header import split_page
from specc.compiler.target import parse_target
from specc.compiler.upkeep.find_pages import find_pages
from specc.compiler.write import write_page
from specc.runtime.page import load_page

Capture = pytest.CaptureFixture[str]
BODY = "width = {width}\ndef build_model(): ...\n"


@pytest.fixture
def page(folder: Path, pipeline: Any, capsys: Capture) -> Path:
    from specc.compiler.generate import generate

    pipeline.style = BODY
    path = folder / "tiny.py"
    write_page(path, generate(parse_target("tiny_spec.py")).page(path))
    capsys.readouterr()
    return path


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["eject", *arguments])
    return int(ended.value.code or 0)


def test_header_goes_and_nothing_else(page: Path, capsys: Capture) -> None:
    parsed = split_page(page.read_text())
    assert parsed is not None
    known_by = load_page(page).body
    assert run("tiny.py") == 0
    assert capsys.readouterr().out == (
        "ejected tiny.py: it came from tiny_spec.py:tiny, is yours now, and no command of specc's "
        "writes to it\n"
    )
    assert page.read_text() == parsed[1]
    assert load_page(page).body == known_by  # so that a checkpoint of it still knows it
    assert find_pages() == []


def test_edits_stay(page: Path, capsys: Capture) -> None:
    page.write_text(page.read_text().replace("32", "33") + "mine = 1  \n\n")
    assert run("tiny.py") == 0
    assert ", with the edits made by hand: it came from" in capsys.readouterr().out
    assert page.read_text() == '"""A page."""\n' + BODY.format(width=33) + "mine = 1  \n\n"


def test_what_was_ejected_is_not_written_to(page: Path, capsys: Capture) -> None:
    run("tiny.py")
    before = page.read_text()
    capsys.readouterr()
    assert run("tiny.py") == 2
    err = capsys.readouterr().err
    assert "error[SP676]: `tiny.py` has no header of specc's: it is yours already" in err
    for arguments in (["--set", "config.hidden_size=64"], ["--merge"]):
        with pytest.raises(SystemExit) as ended:
            main(["compile", "tiny_spec.py", *arguments])
        assert ended.value.code == 2
        assert "error[SP602]" in capsys.readouterr().err
    assert page.read_text() == before


@pytest.mark.parametrize(
    ("old", "new", "code"),
    [
        ("width = 32\n", "<<<<<<< a\nwidth = 33\n=======\nwidth = 34\n>>>>>>> b\n", "SP608"),
        ("# spec ", "# ", "SP607"),
    ],
)
def test_page_that_is_none_now_is_left_alone(
    page: Path, capsys: Capture, old: str, new: str, code: str
) -> None:
    page.write_text(page.read_text().replace(old, new))
    before = page.read_text()
    for arguments in ([], ["--standalone"]) if code == "SP608" else ([],):
        assert run("tiny.py", *arguments) == 2
        assert f"error[{code}]" in capsys.readouterr().err
    assert page.read_text() == before


@pytest.mark.parametrize(
    "arguments",
    [["--standalone", "--vendor", "x"], ["-o", "x.py"], ["--force"], ["--with-train"]],
)
def test_options_that_do_not_go_together(page: Path, capsys: Capture, arguments: list[str]) -> None:
    assert run("tiny.py", *arguments) == 2
    assert "Usage: specc eject" in capsys.readouterr().err


def test_standalone_and_vendored_pages_stand_beside_it(
    page: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "specc.compiler.standalone.standalone_page",
        lambda text, name: f"# {name}\n{split_page(text)[1]}",  # type: ignore[index]
        raising=False,
    )
    before = page.read_text()
    assert run("tiny.py", "--standalone") == 0
    assert capsys.readouterr().out == (
        "wrote tiny_standalone.py: it needs torch alone; tiny.py is as it was\n"
    )
    assert Path("tiny_standalone.py").read_text().startswith('# tiny.py\n"""A page."""\n')
    assert run("tiny.py", "--standalone") == 0
    assert capsys.readouterr().out.startswith("unchanged: ")
    Path("tiny_standalone.py").write_text("mine\n")
    assert run("tiny.py", "--standalone") == 2
    assert "error[SP677]: `tiny_standalone.py` is there already" in capsys.readouterr().err
    assert Path("tiny_standalone.py").read_text() == "mine\n"
    assert run("tiny.py", "--standalone", "--force") == 0
    assert run("tiny.py", "--standalone", "-o", "tiny.py", "--force") == 2
    assert "error[SP677]: `tiny.py` is the page itself" in capsys.readouterr().err
    assert page.read_text() == before
    assert run("tiny.py", "--vendor", "mine") == 0
    assert "in mine: mine/tiny.py needs torch alone; tiny.py is as it was\n" in (
        capsys.readouterr().out
    )
    assert Path("mine/tiny.py").is_file()
    assert page.read_text() == before
