"""A spec read from FILE.py[:NAME] and package.module:NAME, and what can be wrong there."""

import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from specc.compiler.load import forget_last, load_spec
from specc.compiler.target import Target, parse_target
from specc.templates.diagnostic import SpecError

HEAD = "from torch import nn\nfrom specc.templates import ModuleSpec\n"

Write = Callable[..., Path]


@pytest.fixture
def write(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Write]:
    """Writes files below the current folder, which is empty."""
    monkeypatch.chdir(tmp_path)

    def write_file(name: str, text: str, head: str = HEAD) -> Path:
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True, parents=True)
        file.write_text(head + text)
        return file

    yield write_file
    forget_last()


def refusal(text: str) -> tuple[str, str, str | None]:
    with pytest.raises(SpecError) as caught:
        load_spec(parse_target(text))
    (diagnostic,) = caught.value.diagnostics
    return diagnostic.code, diagnostic.message, diagnostic.help


def test_root_is_the_spec_that_no_other_refers_to(write: Write) -> None:
    write(
        "models/a.py",
        """
import functools
from dataclasses import dataclass, field
norm = ModuleSpec(nn.LayerNorm)
in_list = ModuleSpec(nn.Linear)
in_partial = ModuleSpec(nn.Linear)
@dataclass
class Children:
    norm: ModuleSpec = field(default_factory=lambda: norm)
layer = ModuleSpec(nn.Module, submodules=Children())
root = ModuleSpec(
    nn.Module,
    params={"layers": [in_list], "make": functools.partial(nn.Linear, bias=in_partial)},
    submodules={"layer": layer},
)
same = root
number = 3
""",
    )
    loaded = load_spec(parse_target("models/a.py"))
    assert loaded.target.name == "root"
    assert loaded.target.origin(Path("models")) == "a.py:root"
    assert loaded.spec.submodules["layer"].submodules.norm.module.__name__ == "LayerNorm"


def test_several_roots_are_listed(write: Write) -> None:
    write("a.py", "one = ModuleSpec(nn.Module)\ntwo = ModuleSpec(nn.Module)\n")
    assert refusal("a.py") == (
        "SP621",
        "`a.py` has 2 specs that no other refers to: `one`, `two`",
        "say which: a.py:two",
    )
    assert load_spec(parse_target("a.py:one")).target.name == "one"


@pytest.mark.parametrize(
    ("asked", "code", "message", "help"),
    [
        ("nowhere.py", "SP611", "there is no file `nowhere.py`", "paths are relative"),
        ("no.such:spec", "SP611", "there is no module `no.such` in this folder or on", "give FILE"),
        ("none", "SP610", "`none` does not say where a spec is", "give FILE.py, FILE.py:NAME"),
        ("a", "SP610", "`a` does not say where a spec is", "did you mean `a.py`?"),
        ("empty.py", "SP620", "`empty.py` has no ModuleSpec among its names", "bind the model's"),
        ("a.py:modle", "SP622", "`a.py` has nothing called `modle`", "did you mean `model`?"),
        ("a.py:make", "SP623", "`make` in `a.py` is a `function`, and a spec is a", "bind what"),
        ("a.py:three", "SP623", "`three` in `a.py` is a `int`, and a", "the file has `model`"),
        ("a.yaml:model", "SP610", "`a.yaml` has one spec, without a name", "leave `:model` out"),
    ],
)
def test_what_is_no_spec(
    write: Write, asked: str, code: str, message: str, help: str | None
) -> None:
    write("a.py", "model = ModuleSpec(nn.Module)\nthree = 3\ndef make(): return model\n")
    write("empty.py", "")
    write("a.yaml", "module: X\n", head="")
    found = refusal(asked)
    assert found[0] == code and found[1].startswith(message)
    assert (found[2] or "").startswith(help or "") and (help is None) == (found[2] is None)


def test_files_beside_the_spec_and_in_its_package_are_importable(write: Write) -> None:
    write("plain/a.py", "import beside\nmodel = beside.model\n")
    write("plain/beside.py", "model = ModuleSpec(nn.Module)\n")
    write("pkg/__init__.py", "")
    write("pkg/b.py", "from .part import part\nmodel = ModuleSpec(nn.Module, {'part': part})\n")
    write("pkg/part.py", "part = ModuleSpec(nn.Linear)\n")
    assert load_spec(parse_target("plain/a.py")).spec.module is not None
    assert load_spec(parse_target("pkg/b.py")).target.name == "model"
    assert load_spec(parse_target("pkg.b:model")).target.origin(Path("x")) == "pkg.b:model"


def test_another_folder_has_its_own_modules_of_the_same_name(write: Write) -> None:
    for folder in ("one", "two"):
        write(f"{folder}/a.py", "import layers\nmodel = ModuleSpec(nn.Module, {'n': layers.NAME})")
        write(f"{folder}/layers.py", f"NAME = '{folder}'\n")
    for folder in ("one", "two", "one"):
        assert load_spec(parse_target(f"{folder}/a.py")).spec.params == {"n": folder}


def test_unchanged_file_is_not_run_twice_and_a_changed_one_is(write: Write) -> None:
    write("a.py", "model = ModuleSpec(nn.Module)\n")
    first = load_spec(parse_target("a.py")).spec
    assert load_spec(parse_target("a.py")).spec is first
    write("a.py", "model = ModuleSpec(nn.Linear)\n")
    assert load_spec(parse_target("a.py")).spec.module.__name__ == "Linear"
    assert not list(Path().rglob("__pycache__"))


@pytest.mark.parametrize("name", ["queue", "string", "yaml"])
def test_file_called_as_a_module_of_python(write: Write, name: str) -> None:
    write(f"{name}.py", "class Own(nn.Module): pass\nmodel = ModuleSpec(Own)\n")
    before = sys.modules.get(name)
    spec = load_spec(parse_target(f"{name}.py")).spec
    assert sys.modules[spec.module.__module__].Own is spec.module
    assert sys.modules.get(name) is before


def test_what_the_file_raises_comes_through_with_a_note(write: Write) -> None:
    write("a.py", "model = ModuleSpec(nn.Module)\nraise KeyError('own words')\n")
    for _ in range(2):
        with pytest.raises(KeyError, match="own words") as caught:
            load_spec(parse_target("a.py"))
        assert caught.value.__notes__ == ["while importing the spec's file a.py"]
        assert "a" not in sys.modules and str(Path.cwd()) not in sys.path


def test_file_that_ends_the_program_is_told(write: Write) -> None:
    write("a.py", "raise SystemExit(3)\n")
    with pytest.raises(RuntimeError, match=r"a.py ended the program \(exit code 3\)"):
        load_spec(parse_target("a.py"))


def test_what_the_file_prints_goes_to_stderr(
    write: Write, capsys: pytest.CaptureFixture[str]
) -> None:
    write("a.py", "print('loss: 11.0')\nmodel = ModuleSpec(nn.Module)\n")
    load_spec(parse_target("a.py"))
    assert capsys.readouterr() == ("", "loss: 11.0\n")


@pytest.mark.parametrize("hiding", ["specc.py", "specc/__init__.py", "specc/templates/x.py"])
def test_specc_of_the_users_is_told(write: Write, hiding: str) -> None:
    write(hiding, "")
    write("a.py", "model = ModuleSpec(nn.Module)\n")
    code, message, help = refusal("a.py")
    shown = "specc.py" if hiding == "specc.py" else "specc"
    assert (code, message) == (
        "SP624",
        f"`{shown}` hides the package `specc` from your spec's imports",
    )
    assert help is not None


def test_other_folder_called_specc_hides_nothing(write: Write) -> None:
    write("specc/notes.txt", "", head="")
    write("a.py", "model = ModuleSpec(nn.Module)\n")
    assert load_spec(parse_target("a.py")).target.name == "model"


@pytest.mark.parametrize(
    ("target", "page"),
    [
        (Target(Path("models/llama_spec.py"), None, "llama"), "models/llama.py"),
        (Target(Path("models/gpt.py"), None, "tiny"), "models/tiny_page.py"),
        (Target(Path("models/gpt.yaml")), "models/gpt_page.py"),
        (Target(Path("models/gpt_spec.yaml")), "models/gpt.py"),
        (Target(Path("/site-packages/models/gpt.py"), "models.gpt", "tiny"), "tiny_page.py"),
    ],
)
def test_default_page(target: Target, page: str) -> None:
    assert target.default_page() == Path(page)
