"""A page as an input: checked, and written as it stands, whatever was done to it by hand."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest
from explained import CHOSEN, EXAMPLES, random_one

from specc.compiler.cli import main
from specc.compiler.header import split_page
from specc.compiler.sources import open_source
from specc.compiler.sources.read_back import read_back
from specc.compiler.sources.rewrite import rewrite
from specc.runtime import verify
from specc.runtime.train import main as train

Capture = pytest.CaptureFixture[str]
SMALL = EXAMPLES / "small.py"
EDITS = (
    ("    num_layers: int = 4\n", "    num_layers: int = 2  # half of it will do\n"),
    ("gate, up = self.linear_fc1(x)", "opened, up = self.linear_fc1(x)"),  # a local, renamed
    ("F.silu(gate) * up", "1.5 * F.silu(opened) * up"),  # a constant
    (
        "        x = self.decoder(x, positions)\n",
        "        x = x.clamp(-9.0, 9.0)\n        x = self.decoder(x, positions)\n",
    ),
    (
        "\n\ndef build_model(",
        "\n    def layers(self) -> int:\n        return len(self.decoder.layers)\n"
        "\n\ndef build_model(",
    ),
)


def run(*arguments: object) -> int:
    with pytest.raises(SystemExit) as ended:
        main([str(argument) for argument in arguments])
    return int(ended.value.code or 0)


def edited(text: str) -> str:
    for old, new in EDITS:
        assert text.count(old) == 1, old
        text = text.replace(old, new)
    return text


@pytest.fixture
def page(tmp_path: Path) -> Path:
    """The small page, edited by hand in five ways."""
    file = tmp_path / "small.py"
    file.write_text(edited(SMALL.read_text()))
    return file


@pytest.mark.parametrize("row", CHOSEN)
def test_what_a_spec_compiles_to_is_written_as_it_is(row: int, tmp_path: Path) -> None:
    file, copy = tmp_path / "page.py", tmp_path / "copy.py"
    file.write_text(random_one(row).text)
    source = open_source(str(file))
    assert (source.kind, source.page_text) == ("page", random_one(row).text)
    written = rewrite(source, copy, (), run=True, force=False)
    assert copy.read_bytes() == file.read_bytes()
    assert written.notes == ()


def test_hand_edits_are_kept_and_so_is_the_header(page: Path, capsys: Capture) -> None:
    text = page.read_bytes()
    assert run("compile", page) == 0
    assert page.read_bytes() == text
    out = capsys.readouterr().out
    assert out.startswith(f"unchanged: {page}: ") and out.endswith(", as it stands\n")
    copy = page.with_name("copy.py")
    assert run("compile", page, "-o", copy) == 0
    assert copy.read_bytes() == text
    assert capsys.readouterr().out.startswith(f"wrote {copy}: ")
    assert split_page(copy.read_text()) is not None


def test_line_ends_and_odd_bytes_are_kept(page: Path) -> None:
    text = page.read_text().replace("# half of it", "# ä half of it")
    page.write_bytes(text.replace("\n", "\r\n").encode())
    copy = page.with_name("copy.py")
    assert run("compile", page, "-o", copy) == 0
    assert copy.read_bytes() == page.read_bytes()
    copy = page.with_name("set.py")
    assert run("compile", page, "-o", copy, "--set", "config.num_layers=3") == 0
    changed = page.read_bytes().replace(b"num_layers: int = 2", b"num_layers: int = 3")
    assert copy.read_bytes() == changed


def test_numbers_can_be_set_and_nothing_else_changes(page: Path, capsys: Capture) -> None:
    before = page.read_text()
    assert run("compile", page, "--set", "config.num_layers=3") == 0  # in place: no edit is lost
    assert page.read_text() == before.replace("num_layers: int = 2", "num_layers: int = 3")
    out, err = capsys.readouterr()
    assert out.endswith("as it stands but for the numbers set\n")
    assert "note[SP663]" in err
    assert run("compile", page, "--set", "config.rotary_base=5e5") == 0
    assert "rotary_base: float = 500000.0\n" in page.read_text()


def test_a_number_may_stand_on_several_lines(page: Path) -> None:
    before = page.read_text()
    page.write_text(before.replace("num_layers: int = 2", "num_layers: int = (\n    1\n    + 1\n)"))
    assert run("compile", page, "--no-validate", "--set", "config.num_layers=3") == 0
    assert page.read_text() == before.replace(
        "num_layers: int = 2", "num_layers: int = (\n    3\n)"
    )


def test_numbers_of_what_is_no_python_are_not_set(page: Path, capsys: Capture) -> None:
    page.write_text(page.read_text() + "x = (\n")
    assert run("compile", page, "--set", "config.num_layers=3") == 2
    assert "SP660" in capsys.readouterr().err


def test_a_page_that_ends_the_program_ends_no_command(page: Path, capsys: Capture) -> None:
    page.write_text(page.read_text() + "print('words')\n")
    assert run("show", page, "--json") == 0
    assert capsys.readouterr().out.startswith("{")
    page.write_text(page.read_text() + "raise SystemExit(0)\n")
    for arguments in (["show", page], ["diff", SMALL, page], ["compile", page]):
        assert run(*arguments) == 2
        assert "your code ended the program (exit code 0)" in capsys.readouterr().err


def test_a_page_is_written_over_no_edit(page: Path, tmp_path: Path, capsys: Capture) -> None:
    other = tmp_path / "other.py"
    other.write_text(SMALL.read_text().replace("num_layers: int = 4", "num_layers: int = 7"))
    assert run("compile", page, "-o", other) == 2
    assert "SP601" in capsys.readouterr().err
    assert run("compile", page, "-o", other, "--force") == 0
    assert other.read_text() == page.read_text()


def changed(page: Path, old: str, new: str) -> Path:
    text = page.read_text()
    assert text.count(old) >= 1
    page.write_text(text.replace(old, new, 1))
    return page


@pytest.mark.parametrize(
    ("old", "new", "code", "told"),
    [
        ("x = self.embedding(", "x == = self.embedding(", "SP660", "is no Python: invalid syntax"),
        ("from dataclasses", "from specc.templates import MLP\nfrom dataclasses", "SP661", "makes"),
        ("self.mlp = MLP(config, mesh)", "self.mlp = build_module(MLP)", "SP661", "`build_module`"),
        ('LOSS = "per_token"', 'LOSS = "sum"', "SP662", "`LOSS` is 'sum'"),
        ("def build_model(", "def make_model(", "SP662", "no `build_model`"),
        ("x = self.embedding(input_ids)", "x = self.embeddings(input_ids)", "SP647", "embeddings"),
        ("self.mlp = MLP(config, mesh)", "self.mlp = MLP(config, mash)", "SP645", "mash"),
    ],
)
def test_what_is_no_page_is_refused(
    page: Path, old: str, new: str, code: str, told: str, capsys: Capture
) -> None:
    before = changed(page, old, new).read_text()
    assert run("compile", page, "-o", page.with_name("copy.py")) == 2
    err = capsys.readouterr().err
    assert f"error[{code}]" in err and told in err
    assert page.read_text() == before
    assert not page.with_name("copy.py").exists()


def test_words_of_a_person_may_speak_of_anything(page: Path) -> None:
    changed(page, "# half of it will do", "# build_module made it of ModuleSpec")
    assert run("compile", page) == 0


def test_without_a_header_a_file_with_build_model_is_a_page(page: Path) -> None:
    parsed = split_page(page.read_text())
    assert parsed is not None
    page.write_text(parsed[1])
    source = open_source(str(page))
    assert (source.kind, source.origin) == ("page", "")
    assert run("compile", page) == 0


def test_a_page_of_the_past_needs_a_place(
    page: Path, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(page.parent)
    identity = "-c user.name=somebody -c user.email=somebody@example.org"
    for command in ("init --quiet", "add small.py", f"{identity} commit --quiet -m small"):
        subprocess.run(["git", *command.split()], check=True)
    before = page.read_bytes()
    page.write_text("")
    assert run("compile", "HEAD:small.py") == 2
    assert "SP618" in capsys.readouterr().err
    assert run("compile", "HEAD:small.py", "-o", "old.py") == 0
    assert Path("old.py").read_bytes() == before


def test_an_edited_page_is_run_as_it_is_now(page: Path) -> None:
    whole = read_back(open_source(str(SMALL))).parameters
    half = read_back(open_source(str(page))).parameters
    assert whole is not None and half is not None and half < whole


def test_an_edited_page_trains(page: Path, tmp_path: Path, capsys: Capture) -> None:
    text = tmp_path / "words.txt"
    text.write_text("one fish two fish red fish blue fish " * 200)
    words = [
        "--data",
        text,
        "--steps",
        3,
        "--micro-batch",
        2,
        "--seq-length",
        16,
        "--device",
        "cpu",
    ]
    assert not train([str(page), *map(str, words)])
    assert "step" in capsys.readouterr().out


def test_an_edited_page_is_verified(page: Path, capfd: Capture) -> None:
    assert verify.main([str(page), "--layouts", "tp2 sp", "--set", "num_layers=1"]) == 0
    assert "1 layouts: 1 equal" in capfd.readouterr().out


def test_an_edited_page_is_shown_and_compared_with_what_it_was(page: Path, capsys: Capture) -> None:
    assert run("show", page) == 0
    assert "layers[0..1]" in capsys.readouterr().out
    assert run("diff", SMALL, page) == 1
    assert "layers" in capsys.readouterr().out
    assert run("diff", page, page) == 0
