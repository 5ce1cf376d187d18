"""`specc check` for a repository: what it prints in which format, and the exit status."""

from __future__ import annotations

import json
import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from specc.compiler import upkeep
from specc.compiler.cli import main
from specc.compiler.target import parse_target
from specc.compiler.upkeep import check_many
from specc.compiler.upkeep.check_many import check_pages
from specc.compiler.upkeep.find_pages import find_pages
from specc.compiler.write import write_page

Capture = pytest.CaptureFixture[str]
ROOT = Path(upkeep.__path__[0]).resolve().parents[1]


def run(*arguments: str) -> int:
    with pytest.raises(SystemExit) as ended:
        main(["check", *arguments])
    return int(ended.value.code or 0)


@pytest.fixture
def project(folder: Path, pipeline: Any, capsys: Capture) -> Path:
    """Three fresh pages of one spec, in two folders."""
    from specc.compiler.generate import generate

    (folder / "models").mkdir()
    for name in ("one.py", "models/two.py", "models/three.py"):
        generated = generate(parse_target("tiny_spec.py"))
        write_page(folder / name, generated.page(folder / name))
    capsys.readouterr()
    return folder


def edit(path: Path, old: str = "32", new: str = "33") -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_fresh_pages_are_a_line_together(project: Path, capsys: Capture) -> None:
    assert run() == 0
    assert capsys.readouterr().out == "3 pages: 3 fresh\n"
    assert run("models", "one.py") == 0
    assert capsys.readouterr().out == "one.py: fresh\n3 pages: 3 fresh\n"


def test_what_is_not_fresh_is_told_in_a_stable_order(project: Path, capsys: Capture) -> None:
    edit(project / "one.py")
    edit(project / "models" / "two.py")
    outs = []
    for arguments in (["-j1"], ["one.py", "models", "-j1"]):
        assert run(*arguments) == 1
        outs.append(capsys.readouterr().out)
    assert outs[0] == outs[1]
    lines = outs[0].splitlines()
    stale = "stale: edited by hand"
    assert [x for x in lines if ": " in x and "#" not in x and "width" not in x] == [
        f"models/two.py: {stale}", f"one.py: {stale}", "3 pages: 1 fresh, 2 stale",
    ]  # fmt: skip
    assert lines.count("-width = 33") == 2


def test_what_cannot_be_checked_does_not_stop_the_others(project: Path, capsys: Capture) -> None:
    edit(project / "models" / "two.py", "tiny_spec.py", "other_spec.py")
    edit(project / "one.py")
    assert run(".", "sizes.py", "-j1") == 2
    out, err = capsys.readouterr()
    assert "models/two.py: cannot be checked: spec gone\n" in out
    assert out.endswith("4 pages: 1 fresh, 1 stale, 2 cannot be checked\n")
    assert "error[SP604]: `models/two.py` says that it comes from `../other_spec.py:tiny`" in err
    assert "error[SP602]: `sizes.py` was not written by specc" in err


def test_nothing_to_check(folder: Path, capsys: Capture) -> None:
    assert run() == 0
    assert capsys.readouterr().out == "no pages found\n"


def test_annotations_for_github(
    project: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("GITHUB_WORKSPACE", raising=False)
    edit(project / "models" / "two.py")
    edit(project / "one.py", "body ", "body 0")  # and so it cannot be read
    (project / "tiny_spec.py").write_text((project / "tiny_spec.py").read_text() + "# more\n")
    assert run("-j1", "--format", "github") == 2
    out, err = capsys.readouterr()
    lines = [line for line in err.splitlines() if line.startswith("::")]
    assert [line.split("::")[1] for line in lines] == [
        "notice file=models/three.py,line=1,col=1,endColumn=2,title=SP609",
        "error file=models/two.py,line=4,col=1,endColumn=2,title=SP606",
        "error file=one.py,line=1,col=1,endColumn=2,title=SP607",
    ]
    assert "`models/two.py` is stale: spec changed, edited by hand%0Ahelp: " in lines[1]
    assert "+width = 32" in out


def test_json_for_programs(project: Path, capsys: Capture) -> None:
    edit(project / "one.py")
    assert run("-j1", "--format", "json") == 1
    out, err = capsys.readouterr()
    (told,) = [json.loads(line) for line in err.splitlines() if line.startswith("{")]
    assert (told["code"], told["message"]) == ("SP606", "`one.py` is stale: edited by hand")
    assert "@@" not in out


def test_header_that_is_behind_is_a_note(project: Path, capsys: Capture) -> None:
    edit(project / "sizes.py", "32", "32  # wide")
    assert run("-j1", "--format", "json", "one.py") == 0
    (told,) = [json.loads(x) for x in capsys.readouterr().err.splitlines() if x.startswith("{")]
    assert (told["code"], told["message"]) == (
        "SP609",
        "`one.py` is fresh: spec changed, and the page is the same; `specc compile` brings its "
        "header up to date",
    )


def test_code_that_ends_the_program_does_not_end_the_check(
    project: Path, pipeline: Any, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    def ends(*arguments: object, **options: object) -> None:
        raise SystemExit(0)

    edit(project / "one.py")
    monkeypatch.setattr("specc.compiler.generate.compile_spec", ends)
    assert run("-j1") == 2
    out, err = capsys.readouterr()
    assert out.endswith("3 pages: 2 fresh, 1 cannot be checked\n")
    assert "your code ended the program (exit code 0)" in err


def test_edit_that_is_no_python_is_no_change_of_the_library(project: Path, capsys: Capture) -> None:
    page = project / "one.py"
    page.write_text(page.read_text() + "from specc.runtime import (\n")
    assert run("-j1", "one.py") == 1
    assert capsys.readouterr().out.startswith("one.py: stale: edited by hand\n")


def test_user_s_exception_is_told_for_its_page(project: Path, capsys: Capture) -> None:
    edit(project / "sizes.py", "WIDTH = 32", "WIDTH = 1 / 0")
    assert run("-j1", "one.py") == 2
    out, err = capsys.readouterr()
    assert out.startswith("one.py: cannot be checked: spec does not compile, spec changed\n")
    assert "ZeroDivisionError" in err


def test_fresh_pages_import_nothing_heavy(project: Path) -> None:
    code = (
        "import sys; from specc.compiler.cli import main\n"
        "try: main(['check'])\n"
        "finally: print(sorted({'torch', 'libcst', 'black', 'jinja2', 'yaml'} & {*sys.modules}))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "3 pages: 3 fresh\n[]\n"


def test_the_library_is_read_once_for_all_pages(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from specc.compiler import fingerprint

    read: list[Path] = []
    real = fingerprint._text
    monkeypatch.setattr(fingerprint, "_text", lambda path: (read.append(path), real(path))[1])
    assert all(one.verdict and one.verdict.fresh for one in check_pages(find_pages()))
    library = [path for path in read if path.is_relative_to(ROOT)]
    assert len(library) == len({*library}) > 50


def test_several_stale_pages_are_compiled_in_processes_of_their_own(
    project: Path, pipeline: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Forked here, so that they have this process's small compiler; users' import torch anew."""
    monkeypatch.setattr(check_many, "START", "fork")
    pages = find_pages()
    edit(pages[0])
    edit(pages[2], "body ", "body 0")
    edit(pages[1], "tiny_spec.py:tiny", "tiny_spec.py:large")
    pipeline.calls.clear()
    outcomes = [*check_pages(pages * 2, jobs=2)]
    assert [outcome.page for outcome in outcomes] == pages * 2
    assert [outcome.verdict and outcome.verdict.causes for outcome in outcomes[:3]] == [
        ("edited by hand",),
        ("spec gone",),
        ("header cannot be read",),
    ]
    assert outcomes[:3] == outcomes[3:]
    assert outcomes[0].verdict and "-width = 33" in outcomes[0].verdict.diff
    assert "SP622" in outcomes[1].said
    assert pipeline.calls == []  # all of them were the other processes'


def test_pre_commit_hook_runs_on_a_page(project: Path) -> None:
    (hook,) = yaml.safe_load((ROOT / ".pre-commit-hooks.yaml").read_text())
    assert hook["id"] == "specc-check"
    assert hook["language"] == "system"
    assert not hook["pass_filenames"]
    entry = [str(Path(sys.executable).with_name("specc")), *shlex.split(hook["entry"])[1:]]
    done = subprocess.run([*entry, "one.py"], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "one.py: fresh\n1 page: 1 fresh\n")
