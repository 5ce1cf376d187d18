"""A vendored folder: what is in it, that it runs without specc, and that nothing is lost."""

from __future__ import annotations

import ast
import json
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
import torch

from specc.compiler.upkeep.vendor import Vendored, vendor
from specc.compiler.upkeep.vendor_runtime import RuntimeFiles
from specc.runtime import Mesh
from specc.runtime.train import main as train
from specc.templates.diagnostic import SpecError

EXAMPLES = Path(__file__).parents[2] / "generated_examples"
SMALL = EXAMPLES / "small.py"
LOSS = re.compile(r"step (\d)/2  loss (\S+)")
TINY = ["num_layers=1", "hidden_size=16", "num_attention_heads=2", "ffn_hidden_size=24"]

# Runs where `import specc` fails. The folder is in the current one.
WITHOUT_SPECC = """
import hashlib, importlib.abc, json, sys

class NoSpecc(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] == "specc":
            raise ModuleNotFoundError(f"No module named {name!r}")

sys.meta_path.insert(0, NoSpecc())
import torch
from my_small import small
from my_small.runtime import Mesh

config = small.Config(num_layers=2, hidden_size=16, num_attention_heads=2, ffn_hidden_size=24)
model = small.build_model(Mesh.single(), config, seed=5)
ids = torch.arange(18).reshape(2, 9) % 7
logits = model(input_ids=ids)
model(input_ids=ids[:, :-1].contiguous(), labels=ids[:, 1:].contiguous()).mean().backward()
told = {
    "logits": logits.tolist(),
    "gradients": [p.grad.tolist() for p in model.parameters()],
    "files": sorted(m.__file__ for m in sys.modules.values() if "my_small" in m.__name__),
}
print(json.dumps(told))
from my_small.runtime.train import main
sys.exit(main(sys.argv[1:]))
"""


def arguments(page: Path, folder: Path) -> list[str]:
    sets = [word for setting in TINY for word in ("--set", setting)]
    steps = ["--steps", "2", "--micro-batch", "2", "--seq-length", "16", "--log-every", "1"]
    return [str(page), "--data", str(folder / "text.txt"), *steps, *sets]


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.chdir(tmp_path)
    yield tmp_path


def names(found: Vendored, folder: Path) -> set[str]:
    return {path.relative_to(folder).as_posix() for path in found.files}


def test_a_folder_runs_and_trains_without_specc_as_the_page_does_with_it(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    (folder / "text.txt").write_text("to be, or not to be, that is the question. " * 40)
    vendor(SMALL, folder / "my_small", with_train=True)
    run = subprocess.run(
        [sys.executable, "-c", WITHOUT_SPECC, *arguments(Path("my_small/small.py"), folder)],
        capture_output=True, text=True, timeout=180,
    )  # fmt: skip
    assert run.returncode == 0, run.stderr
    line, *trained = run.stdout.splitlines()
    told = json.loads(line)
    assert all(Path(file).is_relative_to(folder) for file in told["files"])

    page: dict[str, object] = {"__name__": "small_of_specc"}
    sys.modules["small_of_specc"] = type(sys)("small_of_specc")  # dataclasses look there
    exec(SMALL.read_text(encoding="utf-8"), page)
    config = page["Config"](  # type: ignore[operator]
        num_layers=2, hidden_size=16, num_attention_heads=2, ffn_hidden_size=24
    )
    model = page["build_model"](Mesh.single(), config, seed=5)  # type: ignore[operator]
    ids = torch.arange(18).reshape(2, 9) % 7
    # A float of JSON is the number that it was written from, so these are equal bit for bit.
    assert model(input_ids=ids).tolist() == told["logits"]
    model(input_ids=ids[:, :-1].contiguous(), labels=ids[:, 1:].contiguous()).mean().backward()
    assert [p.grad.tolist() for p in model.parameters()] == told["gradients"]

    assert train(arguments(SMALL, folder)) == 0
    losses = LOSS.findall(capsys.readouterr().out)
    assert len(losses) == 2
    assert LOSS.findall("\n".join(trained)) == losses


def test_a_page_brings_just_what_it_imports(folder: Path) -> None:
    found = vendor(EXAMPLES / "llama.py", folder / "mine")
    brought = names(found, folder / "mine")
    assert {"__init__.py", "LICENSE", "llama.py", "runtime/__init__.py"} < brought
    assert {"runtime/attention.py", "runtime/mesh.py"} < brought
    assert not brought & {f"runtime/{name}.py" for name in ("train", "trainer", "data_parallel")}
    files = RuntimeFiles.installed()
    for path in found.files:
        if path.parent.name != "runtime":
            continue
        text = path.read_text(encoding="utf-8")
        assert "specc.runtime" not in text
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.ImportFrom) and node.level == 1:
                wanted = [node.module] if node.module else [a.name for a in node.names]
                assert {f"runtime/{name}.py" for name in wanted} <= brought
    exported = ast.parse((folder / "mine" / "runtime" / "__init__.py").read_text())
    assert exported.body[-1].value.elts  # type: ignore[attr-defined]
    assert {"Mesh", "RMSNorm"} <= files.homes.keys()


def test_the_page_has_no_header_and_a_relative_import(folder: Path) -> None:
    page = vendor(SMALL, folder / "mine").page
    text = page.read_text(encoding="utf-8")
    assert text.startswith("# From specc ") and "@generated" not in text
    body = SMALL.read_text(encoding="utf-8").partition("· black")[2].partition("\n")[2]
    ours = text.partition("\n")[2]
    assert ours == body.replace("from specc.runtime import", "from .runtime import")
    assert "Apache" not in text, "a page is its author's"
    assert "Apache" in (folder / "mine" / "runtime" / "mesh.py").read_text().partition("\n")[0]


def test_again_writes_nothing_and_another_page_keeps_the_first(folder: Path) -> None:
    first = vendor(SMALL, folder / "mine")
    assert set(first.written) == set(first.files)
    assert vendor(SMALL, folder / "mine").written == ()
    before = (folder / "mine" / "runtime" / "rotary.py").read_text()
    Path("gpt.py").write_text("from specc.runtime import Dropout, Mesh\n")
    second = vendor(Path("gpt.py"), folder / "mine")
    brought = {path.name for path in second.written}
    assert "dropout.py" in brought and "rotary.py" not in brought and "small.py" not in brought
    assert (folder / "mine" / "runtime" / "rotary.py").read_text() == before
    exported = (folder / "mine" / "runtime" / "__init__.py").read_text()
    assert '"Dropout"' in exported and '"rotary_tables"' in exported


def test_an_older_copy_is_renewed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("specc.compiler.upkeep.vendor.specc_version", lambda: "0.0.1")
    vendor(SMALL, folder / "mine")
    monkeypatch.undo()
    monkeypatch.chdir(folder)
    renewed = vendor(SMALL, folder / "mine")
    assert len(renewed.written) == len(renewed.files) - 1  # the license has no version


@pytest.mark.parametrize("lost", ["small.py", "runtime/mesh.py", "LICENSE", "__init__.py"])
@pytest.mark.parametrize("how", ["edited", "another's", "a folder"])
def test_nothing_that_specc_did_not_write_is_overwritten(folder: Path, lost: str, how: str) -> None:
    mine = folder / "mine"
    path = mine / lost
    if how == "edited":
        vendor(SMALL, mine)
        path.write_text(path.read_text() + "# a word of mine\n")
    else:
        path.parent.mkdir(parents=True)
        path.mkdir() if how == "a folder" else path.write_text("mine\n")
    before = {p: p.read_bytes() for p in mine.rglob("*") if p.is_file()}
    with pytest.raises(SpecError, match=f"SP696: `mine/{lost}` would be overwritten"):
        vendor(SMALL, mine, with_train=True)
    assert {p: p.read_bytes() for p in mine.rglob("*") if p.is_file()} == before


@pytest.mark.parametrize(
    ("page", "name", "code", "words"),
    [
        ("small.py", "my-llama", "SP695", "a folder `my-llama` cannot"),
        ("small.py", "torch", "SP695", "a folder `torch` cannot"),
        ("small.py", "class", "SP695", "a folder `class` cannot"),
        ("runtime.py", "mine", "SP695", "a page `runtime.py` cannot"),
        ("my page.py", "mine", "SP695", "a page `my page.py` cannot"),
    ],
)
def test_names_that_no_package_can_have(
    folder: Path, page: str, name: str, code: str, words: str
) -> None:
    Path(page).write_text("from specc.runtime import Mesh\n")
    with pytest.raises(SpecError, match=f"{code}: {words}"):
        vendor(Path(page), folder / name)
    assert not (folder / name).exists()


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("import specc.runtime", "`import specc.runtime` imports"),
        ("from specc import runtime", "`from specc import runtime` imports"),
        ("from specc.templates import MLP", "`from specc.templates import MLP` imports"),
        ("from specc.runtime import Mash", "`from specc.runtime import Mash` imports"),
        ("from specc.runtime.mash import Mesh", "`from specc.runtime.mash import Mesh` imports"),
        ("def broken(:", "`page.py` is not Python: line 1"),
    ],
)
def test_imports_that_cannot_come_along(folder: Path, line: str, words: str) -> None:
    Path("page.py").write_text(f"{line}\n")
    with pytest.raises(SpecError, match=f"SP697: {words}"):
        vendor(Path("page.py"), folder / "mine")
    assert not (folder / "mine").exists()


def test_a_module_of_the_runtime_may_be_named(folder: Path) -> None:
    Path("page.py").write_text(
        "def late():\n    x = 'éééééééééééé'; from specc.runtime.mesh import Mesh\n"
        "from specc.runtime import norm\n"
    )
    found = vendor(Path("page.py"), folder / "mine")
    text = found.page.read_text().partition("\n")[2]
    assert "; from .runtime.mesh import Mesh\n" in text
    assert "from .runtime import norm\n" in text
    assert {"runtime/mesh.py", "runtime/norm.py"} < names(found, folder / "mine")
