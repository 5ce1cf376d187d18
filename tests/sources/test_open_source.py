"""What A and B of `specc diff A B` may be: specs, pages, and revisions of either."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from specc.compiler.diagnostics import render
from specc.compiler.load import forget_last
from specc.compiler.sources import Source, open_source
from specc.compiler.sources.revision import Revised, parse_revision
from specc.templates.diagnostic import SpecError

READER = Path(__file__).with_name("reader_spec.py").read_text()
SPEC = READER.replace("Sizes(width=8)", "Sizes(width=WIDTH)").replace(
    "from specc.templates", "from sizes import WIDTH\n\nfrom specc.templates", 1
)


def git(folder: Path, *arguments: str) -> str:
    identity = ["-c", "user.name=somebody", "-c", "user.email=somebody@example.org"]
    done = subprocess.run(
        ["git", *identity, *arguments], cwd=folder, check=True, capture_output=True, text=True
    )
    return done.stdout


def commit(folder: Path, message: str) -> None:
    git(folder, "add", "--all")
    git(folder, "commit", "--quiet", "--message", message)


@pytest.fixture(scope="module")
def repository(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two commits: a spec of width 8 and its page, then of width 16, beside an odd name."""
    top = tmp_path_factory.mktemp("models") / "models"
    inside = top / "inside"
    inside.mkdir(parents=True)
    git(top, "init", "--quiet", "--initial-branch", "main")
    (inside / "sizes.py").write_text("WIDTH = 8\n")
    (inside / "reader_spec.py").write_text(SPEC)
    (inside / "wrong_spec.py").write_text(SPEC.replace('"layer":', '"player":'))
    page = open_source(str(inside / "reader_spec.py")).page_text
    (inside / "page.py").write_text(page)
    (top / ".gitattributes").write_text("inside/sizes.py export-ignore\n")
    commit(top, "of width 8")
    git(top, "tag", "first")
    (inside / "sizes.py").write_text("WIDTH = 16\n")
    (inside / "page.py").write_text(page.replace("width: int = 8", "width: int = 16"))
    (inside / "new_spec.py").write_text(SPEC)
    commit(top, "of width 16")
    return top


def width(source: Source) -> int:
    (line,) = [t for t in source.page_text.splitlines() if t.strip().startswith("width: int")]
    return int(line.rpartition("=")[2])


@pytest.mark.parametrize(
    ("text", "kind", "expected"),
    [
        ("inside/reader_spec.py", "spec", 16),
        ("inside/reader_spec.py:reader", "spec", 16),
        ("HEAD:inside/reader_spec.py:reader", "spec", 16),
        ("HEAD~1:inside/reader_spec.py", "spec", 8),
        ("first:inside/reader_spec.py:reader", "spec", 8),
        ("main:inside/reader_spec.py", "spec", 16),
        ("main~1:./inside/reader_spec.py", "spec", 8),
        ("HEAD@{0}:inside/page.py", "page", 16),
        ("inside/page.py", "page", 16),
        ("HEAD^:inside/page.py", "page", 8),
    ],
)
def test_what_a_text_names(
    repository: Path, text: str, kind: str, expected: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    forget_last()
    before = list(sys.path)
    source = open_source(text)
    assert (source.kind, width(source), source.name.startswith(text)) == (kind, expected, True)
    assert (source.path is None) is (":" in text.removesuffix(":reader"))
    if source.path is None:  # nothing of then stays
        assert sys.path == before and "sizes" not in sys.modules


def test_a_module_at_a_revision_is_looked_for_from_the_current_folder(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "inside")
    assert width(open_source("reader_spec:reader")) == 16
    assert width(open_source("first:reader_spec:reader")) == 8
    assert refusal("first:new_spec:reader")[0] == "SP611"


def test_a_spec_at_a_revision_takes_overrides_and_says_where_it_comes_from(
    repository: Path,
) -> None:
    text = "HEAD~1:inside/reader_spec.py"
    source = open_source(text, overrides=["config.width=4"], folder=repository)
    assert (width(source), source.origin) == (4, f"{text} --set config.width=4")


def test_a_page_takes_numbers(repository: Path) -> None:
    source = open_source("inside/page.py", overrides=["config.width=4"], folder=repository)
    assert width(source) == 4
    assert source.page_text == (repository / "inside" / "page.py").read_text().replace(
        "width: int = 16", "width: int = 4"
    )
    assert source.origin == ""


@pytest.mark.parametrize(
    ("override", "told"),
    [
        ("width=4", "write --set config.FIELD=NUMBER"),
        ("config.wide=4", "did you mean `width`?"),
        ("config.width=wide", "`width` takes a whole number, not `wide`"),
        ("config.width=4.5", "it is 16 on the page"),
    ],
)
def test_numbers_of_a_page_that_are_refused(repository: Path, override: str, told: str) -> None:
    with pytest.raises(SpecError) as error:
        open_source("inside/page.py", overrides=[override], folder=repository)
    assert error.value.diagnostics[0].code == "SP617"
    assert told in render(error.value.diagnostics)


def refusal(text: str, folder: Path | None = None) -> tuple[str, str]:
    with pytest.raises(SpecError) as error:
        open_source(text, folder=folder)
    return error.value.diagnostics[0].code, render(error.value.diagnostics)


@pytest.mark.parametrize(
    ("text", "code", "told"),
    [
        ("maim:inside/page.py", "SP613", "did you mean `main`?"),
        ("maim~1:inside/page.py", "SP613", "did you mean `main~1`?"),
        ("main~7:inside/page.py", "SP613", "`main` has no such ancestor"),
        ("HEAD:inside/pge.py", "SP614", "did you mean `HEAD:inside/page.py`?"),
        ("HEAD:page.py", "SP614", "did you mean `HEAD:inside/page.py`?"),
        ("HEAD~1:inside/new_spec.py", "SP614", "there is no file `inside/new_spec.py` at"),
        ("HEAD:inside/page.py:reader", "SP616", "leave `:reader` out"),
        ("inside/page.py:reader", "SP616", "leave `:reader` out"),
        ("HEAD:inside/reader_spec.py:raeder", "SP622", "at the revision `HEAD`"),
        ("HEAD:inside/reader_spec.py:raeder", "SP622", "did you mean `reader`?"),
        ("C:/models/page.py", "SP611", "there is no file `C:/models/page.py`"),
        ("C:\\models\\page.py", "SP611", "there is no file"),
        ("HEAD:inside", "SP611", "there is no module `HEAD`"),
        ("HEAD:inside/notes.txt", "SP610", "does not say where a spec is"),
    ],
)
def test_what_is_refused(
    repository: Path, text: str, code: str, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository)
    found, rendered = refusal(text)
    assert found == code
    assert told in rendered


def test_a_path_from_the_wrong_folder_is_set_right(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(repository / "inside")
    assert "did you mean `HEAD:./page.py`?" in refusal("HEAD:page.py")[1]
    assert width(open_source("HEAD~1:./page.py")) == 8


def test_a_mistake_of_then_is_shown_with_its_line(repository: Path) -> None:
    code, rendered = refusal("HEAD:inside/wrong_spec.py", repository)
    assert code == "SP106"
    line = 1 + SPEC.splitlines().index(
        next(t for t in SPEC.splitlines() if t.startswith("reader ="))
    )
    assert f"--> HEAD:inside/wrong_spec.py:{line}:" in rendered
    assert f"{line} | reader = ModuleSpec(" in rendered
    assert "/specc-" not in rendered


def test_an_exception_of_then_keeps_its_words(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", str(repository), "copy")
    copy = tmp_path / "copy"
    (copy / "raises_spec.py").write_text("raise ValueError('of mine')\n")
    commit(copy, "raises")
    with pytest.raises(ValueError, match="of mine") as error:
        open_source("HEAD:raises_spec.py", folder=copy)
    assert any("at the revision HEAD" in note for note in error.value.__notes__)


def test_outside_a_repository(tmp_path: Path) -> None:
    code, rendered = refusal("HEAD:page.py", tmp_path)
    assert code == "SP612" and "in no git repository" in rendered


def test_before_the_first_commit(tmp_path: Path) -> None:
    git(tmp_path, "init", "--quiet")
    code, rendered = refusal("HEAD:page.py", tmp_path)
    assert code == "SP613" and "it has no commit yet" in rendered


def test_a_file_of_a_submodule_is_not_the_outer_repository_s(
    repository: Path, tmp_path: Path
) -> None:
    git(tmp_path, "init", "--quiet")
    git(tmp_path, "clone", "--quiet", str(repository), "inner")
    git(tmp_path, "add", "inner")
    commit(tmp_path, "an inner repository")
    code, rendered = refusal("HEAD:inner/inside/page.py", tmp_path)
    assert code == "SP614" and "`inner` is a repository of its own" in rendered


def test_without_git(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "")
    code, rendered = refusal("HEAD:inside/page.py", repository)
    assert code == "SP612" and "no `git` on the PATH" in rendered


def test_a_shallow_clone_says_so(repository: Path, tmp_path: Path) -> None:
    git(tmp_path, "clone", "--quiet", "--depth", "1", f"file://{repository}", "shallow")
    code, rendered = refusal("HEAD~1:inside/page.py", tmp_path / "shallow")
    assert code == "SP613"
    assert "this clone is shallow: it has 1 commit only" in rendered
    assert "git fetch --unshallow" in rendered


def test_a_spec_of_then_may_not_read_the_working_tree(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    git(tmp_path, "clone", "--quiet", str(repository), "copy")
    copy = tmp_path / "copy"
    (copy / "src").mkdir()
    git(copy, "mv", "inside/sizes.py", "src/sizes.py")
    commit(copy, "sizes elsewhere")
    git(copy, "rm", "--quiet", "src/sizes.py")
    commit(copy, "none")
    (copy / "src").mkdir(exist_ok=True)
    (copy / "src" / "sizes.py").write_text("WIDTH = 32\n")
    monkeypatch.syspath_prepend(str(copy / "src"))
    # As of then it is there: what Python's path has of the repository is looked at as of then.
    assert width(open_source("HEAD~1:inside/reader_spec.py", folder=copy)) == 16
    code, rendered = refusal("HEAD:inside/reader_spec.py", copy)
    assert code == "SP615"
    assert "imports `sizes`, which Python finds in the working tree" in rendered


def test_a_file_that_is_there_wins_over_a_revision(
    repository: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    odd = repository / "main:page.py"
    odd.write_text((repository / "inside" / "page.py").read_text().replace("= 16", "= 24"))
    monkeypatch.chdir(repository)
    assert width(open_source("main:page.py")) == 24
    odd.unlink()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("HEAD~3:models/llama.py", Revised("HEAD~3", "models/llama.py", None)),
        ("main:llama_spec.py:llama", Revised("main", "llama_spec.py", "llama")),
        ("v1.2:models/llama.yaml", Revised("v1.2", "models/llama.yaml", None)),
        ("HEAD@{2024-01-01 12:00}:a.py", Revised("HEAD@{2024-01-01 12:00}", "a.py", None)),
        ("HEAD^{/fix: it}:a.py", Revised("HEAD^{/fix: it}", "a.py", None)),
        ("main:package.module:NAME", Revised("main", "package.module", "NAME")),
        ("main:odd:name.py", Revised("main", "odd:name.py", None)),
        ("llama.py", None),
        ("llama_spec.py:llama", None),
        ("package.module:NAME", None),
        ("C:/llama.py", None),
        ("C:\\llama.py", None),
        (":llama.py", None),
        ("main:", None),
        ("main:notes.txt", None),
    ],
)
def test_which_texts_are_revisions(text: str, expected: Revised | None) -> None:
    assert parse_revision(text) == expected
