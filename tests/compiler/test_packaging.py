"""The wheel has all that the clone has, and works without it."""

import os
import shutil
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent.parent
FOLDERS = ("runtime", "templates", "huggingface", "compiler")

SPEC = """
from dataclasses import dataclass
from torch import nn
from specc.templates import ModuleSpec

@dataclass(frozen=True)
class Config:
    width: int = 8

class Model(nn.Module):
    def __init__(self, config):
        super().__init__()
        self.linear = nn.Linear(config.width, config.width)

    def forward(self, input_ids, labels=None):
        return self.linear(input_ids)

model = ModuleSpec(Model, params={"config": Config()})
"""

RUN = """
import sys
from pathlib import Path
import specc.compiler, specc.runtime, specc.templates
for module in (specc.compiler, specc.runtime, specc.templates):
    assert Path(module.__file__).is_relative_to(sys.argv[1]), module.__file__
from specc.compiler.cli import main
main(["compile", "model_spec.py", "--no-validate"])
"""


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A wheel of this working tree, built from a copy: a build writes into its folder."""
    folder = tmp_path_factory.mktemp("wheel")
    copy = folder / "copy"
    copy.mkdir()
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, copy)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, copy / name, ignore=shutil.ignore_patterns("__pycache__"))
    build = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-build-isolation", "--no-deps"]
    done = subprocess.run([*build, "-w", folder, copy], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    (built,) = folder.glob("specc-*.whl")
    return built


def test_wheel_holds_every_file_of_the_folders(wheel: Path) -> None:
    files = set(zipfile.ZipFile(wheel).namelist())
    wanted = {
        f"specc/{path.relative_to(ROOT).as_posix()}"
        for folder in FOLDERS
        for path in (ROOT / folder).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert {name for name in files if name.startswith("specc/")} == wanted
    assert any(name.startswith("specc/templates/page/") and name.endswith(".j2") for name in files)
    licence = zipfile.ZipFile(wheel).read(next(n for n in files if n.endswith("/LICENSE")))
    assert licence == (ROOT / "LICENSE").read_bytes()


def test_wheel_renders_a_page(wheel: Path, tmp_path: Path) -> None:
    installed = tmp_path / "installed"
    zipfile.ZipFile(wheel).extractall(installed)
    (tmp_path / "model_spec.py").write_text(SPEC)
    done = subprocess.run(
        [sys.executable, "-c", RUN, installed],
        cwd=tmp_path,
        env={**os.environ, "PYTHONPATH": str(installed)},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.startswith("wrote model.py: ")
    assert "class Model" in (tmp_path / "model.py").read_text()


def test_every_package_is_listed() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(project["tool"]["setuptools"]["packages"])
    found = {
        ".".join(["specc", *init.parent.relative_to(ROOT).parts])
        for folder in FOLDERS
        for init in (ROOT / folder).rglob("__init__.py")
    }
    assert listed == found


def test_everything_imported_is_declared() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    declared = {dependency.split(">")[0].split("~")[0] for dependency in project["dependencies"]}
    assert declared == {"torch", "jinja2", "black", "libcst", "click", "pyyaml", "rich"}
