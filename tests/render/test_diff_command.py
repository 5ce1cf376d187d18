"""`specc diff` and `specc show`: what they take, what they write, how they end."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from specc.compiler.cli import main

EXAMPLES = Path(__file__).parents[2] / "generated_examples"


@pytest.fixture
def specc(capfd: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    """`specc("diff", ...)`: its exit status, stdout and stderr."""

    def run(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as ended:
            main(list(arguments))
        return (int(ended.value.code or 0), *capfd.readouterr())

    return run


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with `small.py`, its spec, and `deep.py`, the same page with two more layers."""
    for name in ("small.py", "small_spec.py"):
        shutil.copy(EXAMPLES / name, tmp_path)
    text = (EXAMPLES / "small.py").read_text(encoding="utf-8")
    deep = text.replace("num_layers: int = 4", "num_layers: int = 6")
    (tmp_path / "deep.py").write_text(deep, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


def test_a_page_and_itself(specc: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    status, out, err = specc("diff", "small.py", "small.py")
    assert (status, err) == (0, "")
    assert out.split() == ["small", "→", "small", "the", "same", "architecture"]


def test_names_and_comments_are_no_difference_but_their_lines_are_shown(
    specc: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    text = (folder / "small.py").read_text(encoding="utf-8").replace("MLP", "FeedForward")
    (folder / "other.py").write_text(text, encoding="utf-8")
    status, out, _ = specc("diff", "small.py", "other.py")
    assert status == 0
    assert "the same architecture" in out and "+class FeedForward(nn.Module):" in out
    assert "FLOPs" not in out
    _, out, _ = specc("diff", "small.py", "other.py", "--no-code")
    assert len(out.splitlines()) == 1


def test_pages_that_differ(specc: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    status, out, _ = specc("diff", "small.py", "deep.py", "--layout", "tp2 dp2", "--length", "64")
    assert status == 1
    tree, figures, code = out.split("\n\n")[1:]
    assert tree.splitlines()[1].split() == ["~", "decoder.layers[0..5]", "4", "→", "6", "layers"]
    assert "at 64 places" in figures and "weights per rank at tp2 dp2" in figures
    assert "-    num_layers: int = 4\n+    num_layers: int = 6\n" in code


def test_a_spec_and_its_page_are_the_same(
    specc: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    status, out, _ = specc("diff", "small_spec.py", "small.py", "--code")
    assert (status, len(out.splitlines())) == (0, 1)
    status, out, err = specc("diff", "small_spec.py", "--set", "config.num_query_groups=4")
    assert (status, err) == (1, "")
    assert out.startswith("small → num_query_groups=4 ")
    assert "GQA 4/2 → MHA 4 heads of 32" in out and "@@" not in out


def test_revisions(specc: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    git = ["git", "-c", "user.name=n", "-c", "user.email=e", "-c", "commit.gpgsign=false"]
    for command in (["init", "-q"], ["add", "small.py"], ["commit", "-qm", "first"]):
        subprocess.run([*git, *command], check=True)
    shutil.copy("deep.py", "small.py")
    status, out, _ = specc("diff", "HEAD:small.py", "small.py", "--no-code")
    assert status == 1
    assert out.startswith("HEAD:small → small ") and "4 → 6 layers" in out
    # What `git difftool` gives for a file that is new, or is gone.
    status, out, _ = specc("diff", os.devnull, "small.py")
    assert status == 1 and out.splitlines()[0].split() == ["small", "new"]
    status, out, _ = specc("diff", "small.py", os.devnull)
    assert status == 1 and out.splitlines()[0].split() == ["small", "gone"]


def test_other_forms(specc: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    status, out, _ = specc("diff", "small.py", "deep.py", "--json")
    told = json.loads(out)
    assert (status, told["same"], told["edits"][0]["path"]) == (1, False, "decoder.layers[0..5]")
    assert told["code"]
    status, out, _ = specc("diff", "small.py", "deep.py", "--markdown")
    assert status == 1 and out.startswith("### `small` → `deep`\n")
    status, out, _ = specc("diff", "small.py", "deep.py", "--html", "diff.html")
    assert (status, out) == (1, "")
    both = ["--html", "both.html", "--json"]
    assert json.loads(specc("diff", "small.py", "deep.py", *both)[1])["same"] is False
    assert (folder / "both.html").read_bytes() == (folder / "diff.html").read_bytes()
    assert (folder / "diff.html").read_text(encoding="utf-8").lower().startswith("<!doctype html>")


def test_show(specc: Callable[..., tuple[int, str, str]], folder: Path) -> None:
    status, out, err = specc("show", "small.py")
    assert (status, err) == (0, "")
    assert out.splitlines()[0].split() == ["small", "small_spec.py:small"]
    assert "GQA 4/2 heads of 32" in out and "linear_qkv" not in out
    assert "linear_qkv" in specc("show", "small.py", "--all")[1]
    assert json.loads(specc("show", "small.py", "--json")[1])["tree"]["kind"] == "model"
    assert specc("show", "small.py", "--markdown")[1].startswith("### `small`\n")
    files = ["--svg", "small.svg", "--html", "small.html", "--layout", "tp2"]
    assert specc("show", "small.py", *files)[:2] == (0, "")
    assert (folder / "small.svg").read_text(encoding="utf-8").lstrip().startswith("<")
    assert (folder / "small.html").stat().st_size > 1000


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["diff", "nothing.py", "small.py"], "error[SP611]: there is no file `nothing.py`"),
        (["diff", "small.py"], "Error: B is missing"),
        (["diff", "small.py", "deep.py", "--layout", "tq2"], "error[SP690]: --layout: 'tq2'"),
        (["diff", "small.py", "deep.py", "--length", "0"], "Invalid value for '--length'"),
        (["show", "nothing.py"], "error[SP611]"),
        (["show", "small.py", "--svg", "gone/small.svg"], "error[SP603]: there is no folder"),
    ],
)
def test_what_cannot_be_compared_is_trouble(
    arguments: list[str],
    told: str,
    specc: Callable[..., tuple[int, str, str]],
    folder: Path,
) -> None:
    status, out, err = specc(*arguments)
    assert (status, out) == (2, "")
    assert told in err


def test_errors_are_written_as_they_are_asked_for(
    specc: Callable[..., tuple[int, str, str]], folder: Path
) -> None:
    status, out, err = specc("diff", "nothing.py", "small.py", "--format", "json")
    assert (status, out, json.loads(err)["code"]) == (2, "", "SP611")


def test_two_of_one_name_are_told_apart() -> None:
    from specc.compiler.commands.models import short_names

    assert short_names(["models/llama_spec.py", "models/gpt.py"]) == ["llama", "gpt"]
    assert short_names(["specs.py:small", "specs.py:large"]) == ["small", "large"]
    assert short_names(["HEAD~1:m/llama.py", "m/llama.py"]) == ["HEAD~1:llama", "llama"]
    assert short_names(["a/llama.py", "b/llama.py"]) == ["a/llama.py", "b/llama.py"]
    assert short_names(["tiny.yaml", "package.module:NAME"]) == ["tiny", "NAME"]
    assert short_names(["llama.py", "llama.py"]) == ["llama", "llama"]
