"""`specc verify` and the check at a first launch: what they print, refuse and write down."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from specc.runtime import verified, verify
from specc.runtime.layouts import Degrees, parse_layouts
from specc.runtime.one_step import Case, Shape
from specc.runtime.page import load_page
from specc.runtime.refusal import Refusal
from specc.runtime.verify_copy import Copy, reduced
from specc.runtime.verify_worker import Alone, Outcome, outcome

TINY = Path(__file__).parents[1] / "training" / "tiny_page.py"
# Learned on every rank's own places: a sum over positions is a part of it under sp and cp.
SHIFT = """        self.shift = nn.Parameter(torch.ones(config.head_dim))
        self.mesh = mesh
        self.head_dim"""
MISTAKE = "x = self.final_layernorm(x) - x.mean(1, keepdim=True)"


def write_page(folder: Path, *changes: tuple[str, str]) -> Path:
    text = TINY.read_text()
    for old, new in changes:
        assert text.count(old) == 1
        text = text.replace(old, new)
    file = folder / "page.py"
    file.write_text(text)
    return file


def test_command(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    page = write_page(tmp_path, ("x = self.final_layernorm(x)", MISTAKE))
    status = verify.main([str(page), "--layouts", "tp2, tp2 sp, tp3 dp1", "--set", "num_layers=1"])
    out = capfd.readouterr().out.splitlines()
    assert status == 1
    assert out[0] == (
        "page.py, a copy with hidden_size=32, vocab_size=97, max_position_embeddings=16: "
        "3 layouts on up to 3 processes, each against one process"
    ) or out[0].startswith("page.py, a copy with ")
    row = {line[:6].strip(): line for line in out[2:5]}
    assert "DIFFERS" not in row["tp2"] and "refused" not in row["tp2"]
    assert "DIFFERS: " in row["tp2 sp"]
    assert row["tp3"].startswith("tp3     refused: tp=3 does not divide 2 output units")
    assert out[5] == "3 layouts: 1 equal, 1 differs, 1 refused"
    assert out[6] == "tp2 sp: the first that differs is gradient embedding.weight"


@pytest.mark.parametrize(
    ("arguments", "told"),
    [
        (["--layouts", "tp2 x"], "'x' in 'tp2 x' is no degree"),
        (["--layouts", "tp2", "--all"], "give 1 of the 2"),
        (["--nproc", "1"], "--nproc 1 is below 2"),
        (["--set", "layers=2"], "has no field layers"),
        (["--set", "num_query_groups=3"], "is no multiple of num_query_groups 3"),
    ],
)
def test_what_is_refused(
    arguments: list[str], told: str, capfd: pytest.CaptureFixture[str]
) -> None:
    assert verify.main([str(TINY), *arguments]) == 2
    assert told in capfd.readouterr().err


def test_a_page_that_no_copy_can_run(tmp_path: Path) -> None:
    page = write_page(
        tmp_path,
        ("config.hidden_size, mesh)\n        self.layers", "9, mesh)\n        self.layers"),
    )
    with pytest.raises(
        Refusal, match=r"No copy of .* \(.*9.*\): give numbers .* --set num_layers=2"
    ):
        reduced(load_page(page), parse_layouts("tp2"), {})


def test_a_copy_keeps_what_is_set_and_fits_all_layouts() -> None:
    layouts = parse_layouts("tp2 sp cp4:p2p, cp8")
    copy = reduced(load_page(TINY), layouts, {"num_layers": 3})
    assert (copy.config.num_layers, copy.shape, copy.config.max_position_embeddings) == (
        3,
        Shape(),
        16,
    )
    assert set(copy.steps) == {Case(), Case(packed=True)}  # forward takes positions
    page = load_page(TINY)
    assert reduced(page, parse_layouts("cp3, dp3"), {}).shape == Shape(24, 18)


def test_verdict() -> None:
    layout = Degrees(tp=2)
    found = {"initial a": 0.0, "loss": 1e-7, "gradient a": float("nan"), "gradient b": 2e-6}
    equal = outcome(layout, found)
    assert (equal.status, equal.tensor, equal.zero) == ("equal", "gradient b", ("gradient a",))
    wrong = outcome(layout, found | {"loss": 1e-3, "gradient b": 2e-5, "clipped b": 2e-4})
    assert (wrong.status, wrong.first, wrong.wrong) == ("differs", "gradient b", 3)
    assert "DIFFERS: 3 tensors, the first gradient b" in verify.row(wrong, 3)
    steps = {Case(): Alone({}, {}, {"gradient c": 1.0, "clipped c": 0.1})}
    told = list(verify.findings([equal, wrong], Copy(None, None, Shape(), steps)))
    assert told[0] == "tp2: the first that differs is gradient b"
    assert told[2:] == [
        "zero but for rounding, compared by the largest gradient: gradient c",
        "not compared, zero in one process too: gradient a",
    ]


def test_a_gradient_that_is_rounding(tmp_path: Path) -> None:
    """What is added to all keys alike changes no softmax."""
    page = write_page(
        tmp_path,
        ("        self.mesh = mesh\n        self.head_dim", SHIFT),
        ("import torch.nn.functional as F", "import torch\nimport torch.nn.functional as F"),
        ("attention(q, k, v", "attention(q, k + self.shift, v"),
    )
    copy = reduced(load_page(page), parse_layouts("tp2"), {})
    sizes = copy.steps[Case()].sizes
    assert {name.partition(" ")[2] for name in sizes} == {
        f"layers.{n}.self_attention.shift" for n in range(2)
    }
    assert sizes["gradient layers.0.self_attention.shift"] == max(
        float(g.abs().max()) for name, g in copy.steps[Case()].step.items() if "gradient" in name
    )


# ------------------------------------------------------- at the first launch


HEADER = (
    "# @generated by specc 0.1.0 from a_spec.py:a\n{}# spec {} · library {} · body {} · black 1\n"
)


def generated(body: str, own: str = "", edited: str = "") -> str:
    hashes = ("0" * 8, "0" * 8, verified._digest(body)[:8])
    return HEADER.format(own, *hashes) + body + edited


def test_whose_code_a_page_holds() -> None:
    body = '"""A page."""\n'
    assert not verified.authored(generated(body))
    assert verified.authored(generated(body, "# code of its author: Decoder, Layer\n"))
    assert verified.authored(generated(body, edited="x = 1\n"))
    assert verified.authored(body) and verified.authored("")


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    return tmp_path / "cache" / "specc" / "verified"


def test_first_launch(tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    page = load_page(write_page(tmp_path))
    said: list[str] = []
    verified.ensure_verified(page, Degrees(tp=4, sequence_parallel=True), say=said.append)
    assert said[0] == "page.py holds code of its author's: verified at tp2 sp first, on this CPU"
    (record,) = cache.glob("*.json")
    assert json.loads(record.read_text())["layout"] == "tp2 sp"
    monkeypatch.setattr(verified, "verify", None)  # not called again, at any layout like it
    verified.ensure_verified(page, Degrees(tp=8, sequence_parallel=True))
    verified.ensure_verified(page, Degrees())
    page.path.write_text(generated('"""Of our classes alone."""\n'))
    verified.ensure_verified(page, Degrees(tp=2))


@pytest.mark.parametrize(
    ("found", "told"),
    [
        (
            Outcome(Degrees(tp=2), "differs", 0.5, "gradient b", "gradient a", 7),
            "at tp2 is not what it is in one process: 7 tensors differ, the first is gradient a",
        ),
        (Outcome(Degrees(tp=2), "refused", sentence="tp=2 is odd"), "tp2  refused: tp=2 is odd"),
    ],
)
def test_launch_is_refused(
    tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch, found: Outcome, told: str
) -> None:
    page = load_page(write_page(tmp_path))
    monkeypatch.setattr(verified, "verify", lambda *args: [found])
    with pytest.raises(Refusal, match="--no-verify") as refused:
        verified.ensure_verified(page, Degrees(tp=2))
    assert told in str(refused.value)
    assert not cache.exists()


def test_a_record_is_of_one_text_and_one_layout(cache: Path) -> None:
    one = generated("x = 1\n")
    assert verified._record(one, Degrees(tp=2)) != verified._record(one, Degrees(dp=2))
    assert verified._record(one, Degrees(tp=2)) != verified._record(one + "\n", Degrees(tp=2))
    assert verified._record(one, Degrees(tp=2)) == verified._record("x = 1\n", Degrees(tp=2))
