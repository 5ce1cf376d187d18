"""Pages that stand alone: they run without specc, give the page's numbers and read like a model.

Numbers are compared bit for bit: both sides call the same kernels on one CPU, in float32.
`pytest --more-configurations` runs more of the random configurations.
"""

from __future__ import annotations

import ast
import functools
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import black
import pytest
import torch
from run_alone import numbers
from standalone_cases import ALWAYS, EXAMPLES, FAMILIES, MORE, SIZES, Case, case

from specc.compiler.page import BLACK
from specc.compiler.standalone import standalone_page
from specc.compiler.validate.page_module import page_module
from specc.runtime import Mesh

# In one process: folding the pages, which all tests share, takes half a minute.
pytestmark = pytest.mark.xdist_group("standalone")

ROOT = Path(__file__).parents[2]
GOLDEN = EXAMPLES / "llama_standalone.py"

# The words of many processes. A config's fields are the user's, and so are the words of its page.
PARALLEL = re.compile(
    r"\b(mesh|tp|cp|dp|pp|ep|sequence[ _]parallel|parallel|ranks?|shard\w*|gather\w*|specc\.\w+)\b"
    r"|Parallel|all_reduce|reduce_scatter|world_size|process_group",
    re.IGNORECASE,
)


@pytest.fixture(scope="session")
def names(request: pytest.FixtureRequest) -> list[str]:
    count = MORE if request.config.getoption("--more-configurations") else ALWAYS
    return [*SIZES, *FAMILIES, *(f"random {i}" for i in range(count))]


@pytest.fixture(scope="session")
def cases(names: list[str]) -> list[Case]:
    return [case(name) for name in names]


@functools.cache
def expected(name: str) -> dict[str, Any]:
    """The page's numbers in one process, its weights and the tokens, and how it was drawn."""
    this = case(name)
    with page_module(this.page) as page:
        config = page.Config(**this.sizes)
        model = page.build_model(Mesh.single(), config, seed=3)
        generator = torch.Generator().manual_seed(7)
        with torch.no_grad():  # ones and zeros hide a weight or a bias that is left out
            for parameter in model.parameters():
                parameter.add_(torch.randn(parameter.shape, generator=generator), alpha=0.05)
        state = {n: t.clone() for n, t in model.state_dict().items()}
        tokens = torch.randint(0, config.vocab_size, (2, 13), generator=generator)
        return numbers(model, tokens) | {"state": state, "tokens": tokens}


@pytest.fixture(scope="session")
def found(cases: list[Case], tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """What every page gives in one process that cannot import specc."""
    folder = tmp_path_factory.mktemp("alone")
    given = {
        this.name: {
            "text": this.text,
            "sizes": this.sizes,
            "state": expected(this.name)["state"],
            "tokens": expected(this.name)["tokens"],
        }
        for this in cases
    }
    torch.save(given, folder / "given.pt")
    program = Path(__file__).with_name("run_alone.py")
    done = subprocess.run(
        [sys.executable, str(program), str(folder)], capture_output=True, text=True, timeout=180
    )
    assert done.returncode == 0, done.stderr
    return torch.load(folder / "found.pt")  # type: ignore[no-any-return]


def same(ours: Any, theirs: Any) -> bool:
    return ours.dtype == theirs.dtype and torch.equal(ours, theirs)


def test_without_specc_a_page_gives_the_numbers_of_its_parallel_page(
    found: dict[str, Any], names: list[str]
) -> None:
    for name in names:
        theirs, ours = expected(name), found[name]
        assert same(ours["logits"], theirs["logits"]), name
        assert len(ours["all"]) == len(theirs["all"]), name
        assert all(map(same, ours["all"], theirs["all"])), name
        assert ours["logits"].std() > 0.01, name


def test_without_specc_a_page_gives_the_gradients_of_its_parallel_page(
    found: dict[str, Any], names: list[str]
) -> None:
    for name in names:
        theirs, ours = expected(name)["gradients"], found[name]["gradients"]
        assert list(ours) == list(theirs), name
        assert all(same(ours[n], theirs[n]) for n in theirs), name


def test_initial_values_have_the_law_of_the_parallel_page(found: dict[str, Any]) -> None:
    for name in SIZES:
        this = case(name)
        with page_module(this.page) as page:
            model = page.build_model(Mesh.single(), page.Config(**this.sizes), seed=3)
        for weight, parameter in model.named_parameters():
            mean, std = found[name]["drawn"][weight]
            # 5 standard errors of what is drawn; what is constant is equal.
            spread = parameter.std().item()
            near = 5 * spread / parameter.numel() ** 0.5
            assert mean == pytest.approx(parameter.mean().item(), abs=2 * near), weight
            assert std == pytest.approx(spread, abs=near), weight


def test_in_training_dropout_draws(cases: list[Case]) -> None:
    with page_module(case("gpt2").text) as alone:
        model = alone.build_model().train()
        ids = torch.arange(8)[None]
        assert not torch.equal(model(ids), model(ids))
        assert torch.equal(model.eval()(ids), model(ids))


def test_a_page_imports_torch_and_the_standard_library_alone(cases: list[Case]) -> None:
    for this in cases:
        for node in ast.walk(ast.parse(this.text)):
            if isinstance(node, ast.Import):
                modules = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0
                modules = [node.module or ""]
            else:
                continue
            tops = {module.partition(".")[0] for module in modules}
            assert tops <= {"torch", *sys.stdlib_module_names}, (this.name, tops)


def test_a_page_has_no_trace_of_a_mesh(cases: list[Case]) -> None:
    for this in cases:
        head, _, text = this.text.partition("\n")
        assert head.startswith("# Standalone, made by specc ")
        assert head.endswith(f" from {this.name}.py: it needs torch alone.")
        fields = re.compile(r"\b\w*parallel\w*\b(?=: \w+ =)")
        assert not (hit := PARALLEL.search(fields.sub("", text))), (this.name, hit)


def test_the_llama_is_as_long_as_one_that_is_written_by_hand() -> None:
    assert len(case("llama").text.splitlines()) < 220


def test_the_llama_in_the_examples_is_current(request: pytest.FixtureRequest) -> None:
    """And the same in every process: each draws another seed of its hashes."""
    text = case("llama").text
    if request.config.getoption("--update-golden"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert GOLDEN.read_text(encoding="utf-8") == text


def test_pages_are_formatted_and_clean(cases: list[Case], tmp_path: Path) -> None:
    for this in cases:
        assert black.format_str(this.text, mode=BLACK) == this.text, this.name
        (tmp_path / f"{this.name.replace(' ', '_')}.py").write_text(this.text, encoding="utf-8")
    done = subprocess.run(
        [
            sys.executable, "-m", "ruff", "check", "--no-cache",
            "--config", str(ROOT / "pyproject.toml"), ".",
        ],
        cwd=tmp_path, capture_output=True, text=True, timeout=60,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr


def test_what_an_author_says_of_ranks_and_documents_stays() -> None:
    """The header names the author's classes: their comments are no talk of several processes."""
    said = "# low-rank factors; documents were shuffled, ranks are of the retrieval"
    page = (EXAMPLES / "diy_gpt.py").read_text(encoding="utf-8")
    marked = page.replace("class DiySimpleGPTModel(", f"{said}\nclass DiySimpleGPTModel(", 1)
    assert marked != page
    assert said in standalone_page(marked, "diy_gpt", validate=False)
