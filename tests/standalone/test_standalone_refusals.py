"""What cannot stand alone is refused, and what a page is compared by tells a wrong fold."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from specc.compiler.cli import main
from specc.compiler.standalone import standalone_page
from specc.compiler.standalone.equal import refuse_different
from specc.compiler.standalone.layout import laid_out
from specc.compiler.standalone.program import Program
from specc.templates.diagnostic import Diagnostic, SpecError

EXAMPLES = Path(__file__).parents[2] / "generated_examples"

PAGE = """
from dataclasses import dataclass

from torch import Tensor, nn

from specc.runtime import Mesh, RMSNorm, materialize


@dataclass(frozen=True)
class Config:
    vocab_size: int = 16
    hidden_size: int = 8


class Net(nn.Module):
    def __init__(self, config: Config, mesh: Mesh) -> None:
        super().__init__()
        self.table = nn.Embedding(config.vocab_size, config.hidden_size)
        self.norm = RMSNorm(config.hidden_size)

    def forward(self, input_ids: Tensor) -> Tensor:
        return self.norm(self.table(input_ids))


def build_model(
    mesh: Mesh, config: Config = Config(), *, seed: int = 0, device: str = "cpu"
) -> nn.Module:
    return materialize(lambda: Net(config, mesh), mesh, seed=seed, device=device)
"""


def refusal(run: Callable[[], object]) -> Diagnostic:
    with pytest.raises(SpecError) as raised:
        run()
    (diagnostic,) = raised.value.diagnostics
    return diagnostic


def of_page(before: str, after: str) -> Diagnostic:
    """What is told of the page with other text in the place of `before`."""
    assert before in PAGE
    return refusal(lambda: standalone_page(PAGE.replace(before, after), "net.py"))


def test_the_page_of_these_tests_stands_alone() -> None:
    text = standalone_page(PAGE, "net.py")
    assert "specc.runtime" not in text and "def build_model(config: Config = Config())" in text
    assert '""""""' not in text, "a page without a docstring gets none"


def test_a_page_that_is_no_python_is_told_with_its_line() -> None:
    told = of_page("class Net(nn.Module):", "class Net(nn.Module:")
    assert told.code == "SP680"
    assert told.span is not None and told.span.file == "net.py"


def test_a_file_without_build_model_is_no_page() -> None:
    assert of_page("def build_model", "def make_model").code == "SP681"


@pytest.mark.parametrize(
    "line",
    [
        "import specc.runtime",
        "from specc.templates import RMSNorm",
        "from specc.runtime import not_there",
        "from .other import thing",
        "from torch.nn import *",
    ],
)
def test_an_import_that_cannot_be_taken_in_is_refused(line: str) -> None:
    told = of_page("from torch import Tensor, nn\n", f"from torch import Tensor, nn\n{line}\n")
    assert told.code == "SP682"


@pytest.mark.parametrize(
    "line",
    [
        "print(mesh)",
        "self.sizes = [mesh.tp.size, mesh]",
        "self.anything = nn.Identity(mesh)",
        "self.later = lambda x: x * mesh.tp.size",
        "self.sizes = [mesh.tp.size for _ in range(2)]",
    ],
)
def test_code_that_asks_for_the_mesh_is_refused(line: str) -> None:
    told = of_page("super().__init__()", f"super().__init__()\n        {line}")
    assert told.code == "SP683"
    assert told.span is not None and told.span.file == "net.py"


def test_a_degree_is_one() -> None:
    scaled = PAGE.replace("self.table(input_ids))", "self.table(input_ids)) * self.tp").replace(
        "super().__init__()", "super().__init__()\n        self.tp = 2 * mesh.tp.size"
    )
    text = standalone_page(scaled, "net.py")
    assert "mesh" not in text and "tp.size" not in text


# In the Llama of the examples: what a wrong fold would write, and what then is told to differ.
WRONG = {
    "norm": ("self.weight.to(x.dtype), self.eps)", "self.weight.to(x.dtype), 1e-3)"),
    "causal": ("is_causal=True", "is_causal=False"),
    "scale": ("** -0.5", "** -0.4"),
    "residual": ("return x + self.mlp", "return self.mlp"),
    "dtype": ("rest = x[..., : cos.shape[-1]].float()", "rest = x[..., : cos.shape[-1]]"),
    "loss alone": ('reduction="none")', 'reduction="none") * 2'),
    "gradient alone": ("return self.word_embeddings(input_ids)  #",
                       "return self.word_embeddings(input_ids).detach()  #"),
    "weight that is gone": ("self.final_layernorm = RMSNorm", "self.last_layernorm = RMSNorm"),
    "name that is not defined": ("F.silu(gate)", "F.silu(gates)"),
}  # fmt: skip


@pytest.mark.parametrize("before, after", WRONG.values(), ids=WRONG)
def test_a_wrong_fold_is_refused(before: str, after: str) -> None:
    page = (EXAMPLES / "llama.py").read_text(encoding="utf-8")
    text = (EXAMPLES / "llama_standalone.py").read_text(encoding="utf-8")
    assert before in text, "the example has another text: change this test"
    told = refusal(lambda: refuse_different(page, text.replace(before, after), "llama.py"))
    assert told.code == "SP684"


def test_what_is_written_was_compared(monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(program: Program, name: str) -> str:
        return laid_out(program, name).replace("1e-5", "1e-3")

    monkeypatch.setattr("specc.compiler.standalone.make.laid_out", wrong)
    assert refusal(lambda: standalone_page(PAGE, "net.py")).code == "SP684"


def test_the_right_fold_is_not_refused() -> None:
    page = (EXAMPLES / "llama.py").read_text(encoding="utf-8")
    text = (EXAMPLES / "llama_standalone.py").read_text(encoding="utf-8")
    refuse_different(page, text, "llama.py")


def test_a_page_that_cannot_be_run_small_is_refused_unless_asked_for() -> None:
    other = PAGE.replace("input_ids", "x")
    told = refusal(lambda: standalone_page(other, "net.py"))
    assert told.code == "SP685"
    assert "class Net" in standalone_page(other, "net.py", validate=False)


def test_the_command_writes_the_page_beside_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(PAGE, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["eject", "net.py", "--standalone"])
    assert not stopped.value.code and "wrote net_standalone.py" in capfd.readouterr().out
    written = Path("net_standalone.py").read_text(encoding="utf-8")
    assert written == standalone_page(PAGE, "net.py")
    assert Path("net.py").read_text(encoding="utf-8") == PAGE


def test_a_refused_page_is_not_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    printed = PAGE.replace("super().__init__()", "super().__init__()\n        print(mesh)")
    Path("net.py").write_text(printed, encoding="utf-8")
    with pytest.raises(SystemExit) as stopped:
        main(["eject", "net.py", "--standalone"])
    assert stopped.value.code == 2
    assert re.search(r"^error\[SP683\]", capfd.readouterr().err, re.MULTILINE)
    assert [path.name for path in tmp_path.iterdir()] == ["net.py"]


def test_experts_are_refused_with_what_does_it() -> None:
    page = (EXAMPLES / "mixtral.py").read_text(encoding="utf-8")
    told = refusal(lambda: standalone_page(page, "mixtral.py"))
    assert told.code == "SP686" and "experts (`AuxLoss`)" in told.message
    assert told.span is not None and told.help is not None and "--vendor" in told.help
