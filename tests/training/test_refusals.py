"""Bad input ends with 2 and one sentence on stderr that has both numbers in it."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from specc.runtime import sample, train
from specc.runtime.options import parse
from specc.runtime.refusal import Refusal
from specc.runtime.run import Run

Say = Callable[..., str]


@pytest.fixture
def refused(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    """Runs a program that must refuse its arguments, and hands over what it said."""
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)

    def run(*arguments: object, program: Callable[..., int] = train.main) -> str:
        capsys.readouterr()
        assert program([str(argument) for argument in arguments]) == 2
        said = capsys.readouterr().err
        assert said.startswith("error: ") and said.count("\n") == 1
        return said

    return run


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--seq-length", 33], ["33", "32"]),
        (["--seq-length", 0], ["0", "1"]),
        (["--global-batch", 20, "--micro-batch", 8], ["20", "8"]),
        (["--tp", 2], ["2", "1"]),
        (["--dp", 2], ["2", "1"]),
        (["--nproc", 3, "--tp", 2], ["2", "3"]),
        (["--nproc", 4, "--tp", 2, "--dp", 1], ["2 x --dp 1", "4"]),
        (["--device", "tpu"], ["tpu", "2"]),
        (["--dtype", "fp8"], ["fp8", "2"]),
        (["--valid-fraction", 1.5], ["1.5", "[0, 1)"]),
        (["--save-every", 5], ["5", "0"]),
        (["--lr", "nan"], ["--lr nan", "finite"]),
        (["--clip", "inf"], ["--clip inf", "finite"]),
        (["--min-lr", 0.5], ["--min-lr 0.5", "--lr 0.001"]),
        (["--timeout", 10**14], ["--timeout 100000000000000", "31536000"]),
        (["--resume"], ["--out", "0"]),
        (["--set", "vocab_size=100"], ["121", "100"]),
        (["--set", "num_query_groups=3"], ["4", "3"]),
        (["--set", "num_layer=3"], ["num_layer", "did you mean num_layers?"]),
        (["--set", "num_layers=x"], ["num_layers=x", "'x'"]),
        (["--set", "num_layers"], ["num_layers", "'='"]),
        (["--set", "num_layers=1.5"], ["2", "1.5"]),
        (["--tokenizer", "/nowhere.json"], ["/nowhere.json"]),
        (["--cp", 2], ["--cp 2", "1"]),
        (["--nproc", 4, "--tp", 2, "--cp", 4], ["--tp 2 x --cp 4 is 8", "4"]),
        (["--nproc", 4, "--cp", 2, "--dp", 1], ["--cp 2 x --dp 1 is 2", "4"]),
        (["--nproc", 6, "--tp", 2, "--dp-replicate", 2], ["--dp-replicate 2", "3"]),
        (["--nproc", 4, "--dp", 4, "--ep", 3], ["--ep 3 x --etp 1", "4"]),
        (["--nproc", 3, "--pp", 2], ["--pp 2", "3"]),
        (["--schedule", "zbv"], ["--schedule", "--pp is 1"]),
        (["--layers-per-stage", "3,x"], ["3,x", "5,5,4,4"]),
        (["--pp", 2, "--schedule", "1f2b"], ["1f2b", "gpipe, 1f1b, interleaved, zbv, dualpipev"]),
        (["--cp-comm-type", "ring"], ["ring", "all_gather, p2p, a2a"]),
        (["--zero", 4], ["4", "1, 2, 3"]),
        (["--recompute", "some"], ["some", "none, selective, full"]),
        (["--recompute-every", 2], ["2", "none"]),
        (["--recompute", "full", "--recompute-modules", "mlp"], ["mlp", "full"]),
        (["--recompute", "selective", "--recompute-modules", "mlq"], ["'mlq'", "mlp"]),
        (["--loss-chunks", 0], ["0", "1"]),
        (["--timeout", 0], ["0", "1"]),
        (["--async-save"], ["--async-save", "0"]),
        (["--data", "0.5:more.txt"], ["2 times", "1 of them", "WEIGHT:PATH"]),
        (["--eod-mask-loss"], ["--eod-mask-loss"]),
    ],
)
def test_options(
    tiny_page: Path, text: Path, refused: Say, arguments: list[object], words: list[str]
) -> None:
    said = refused(tiny_page, "--data", text, "--steps", 1, *arguments)
    assert all(word in said for word in words), said


@pytest.mark.parametrize("weight", ["0:a.txt", "inf:a.txt", "nan:a.txt", "1:"])
def test_weights(tiny_page: Path, refused: Say, weight: str) -> None:
    assert f"--data {weight}: a weight above 0" in refused(tiny_page, "--data", weight)


def refusal(arguments: list[str]) -> str:
    options = parse(arguments)
    try:
        Run(options, train.launch_mesh(options, "cpu", torch.float32)).train()
    except Refusal as found:
        return str(found)
    return "nothing"


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ("--cp 2 --seq-length 30", ["--cp 2", "4 equal pieces", "30"]),
        ("--cp 2 --cp-comm-type a2a --set num_attention_heads=1 --set num_query_groups=1", ["cp"]),
        ("--tp 2 --sequence-parallel --seq-length 31", ["tp 2", "31"]),
    ],
)
def test_what_several_processes_do_not_divide(
    ranks: Callable[..., list[str]], tiny_page: Path, text: Path, arguments: str, words: list[str]
) -> None:
    shared = [str(tiny_page), "--data", str(text), "--steps", "1", "--micro-batch", "1"]
    for said in ranks(2, refusal, [*shared, *arguments.split()]):
        assert all(word in said for word in words), said


@pytest.mark.parametrize(
    "signature", ["", ", positions: Tensor | None = None", ", **positions: object"]
)
def test_documents_need_a_forward_that_takes_positions(
    mean_page: Path, text: Path, tmp_path: Path, refused: Say, signature: str
) -> None:
    page = tmp_path / "page.py"
    source = mean_page.read_text()
    last = "        labels: Tensor | None = None,\n"
    assert last in source
    page.write_text(
        source.replace(last, f"{last}        {signature[2:]},\n" if signature else last)
    )
    said = refused(page, "--data", text, "--packed-documents")
    assert "forward of UserModel" in said and "positions: Positions" in said


def test_a_gpu_that_is_not_there(
    tiny_page: Path, text: Path, refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("torch.cuda.device_count", lambda: 0)
    said = refused(tiny_page, "--data", text, "--device", "cuda")
    assert "1 processes" in said and "sees 0" in said
    # Nor is one taken that nobody asked for.
    monkeypatch.setattr("torch.cuda.is_available", lambda: True)
    monkeypatch.setattr("torch.cuda.device_count", lambda: 1)
    monkeypatch.setenv("WORLD_SIZE", "2")
    said = refused(tiny_page, "--data", text, "--tp", 2)
    assert "2 processes" in said and "sees 1" in said


def test_text(tiny_page: Path, tmp_path: Path, refused: Say) -> None:
    (tmp_path / "empty.txt").touch()
    (tmp_path / "short.txt").write_text("x" * 32)
    assert "0 tokens" in refused(tiny_page, "--data", tmp_path / "empty.txt")
    said = refused(tiny_page, "--data", tmp_path / "short.txt", "--valid-fraction", 0)
    assert "32 tokens" in said and "33" in said
    assert "no file or folder" in refused(tiny_page, "--data", tmp_path / "none.txt")


@pytest.mark.parametrize(
    ("change", "arguments", "words"),
    [
        (('LOSS = "local_mean"', "LOSS = None"), ["--global-batch", 8], ["None", "8"]),
        (('LOSS = "local_mean"', 'LOSS = "per_token"'), [], ["[1, 16]", "[]"]),
        (("labels: Tensor | None = None", "targets=None"), [], ["targets", "labels"]),
        (("def build_model(", "def build("), [], ["no build_model"]),
        (("class Config:", "class Config"), [], ["no Python", "line"]),
    ],
)
def test_pages(
    mean_page: Path,
    text: Path,
    tmp_path: Path,
    refused: Say,
    change: tuple[str, str],
    arguments: list[object],
    words: list[str],
) -> None:
    source = mean_page.read_text()
    assert change[0] in source
    page = tmp_path / "page.py"
    page.write_text(source.replace(*change))
    said = refused(page, "--data", text, "--micro-batch", 1, *arguments)
    assert all(word in said for word in words), said


def test_a_folder_that_cannot_be_written_is_refused_before_the_first_step(
    tiny_page: Path, text: Path, tmp_path: Path, refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    for out in (text, text / "below"):
        assert f"--out {out} cannot be made a folder" in refused(
            tiny_page, "--data", text, "--out", out
        )
    monkeypatch.setattr("os.access", lambda path, mode: False)  # root may write anywhere
    said = refused(tiny_page, "--data", text, "--out", tmp_path / "run")
    assert f"--out {tmp_path / 'run'} is a folder that this user may not write to" in said


def test_files_that_cannot_be_read(
    tiny_page: Path, text: Path, tmp_path: Path, refused: Say, monkeypatch: pytest.MonkeyPatch
) -> None:
    page = tmp_path / "latin.py"
    page.write_bytes("# é\n".encode("latin-1"))
    assert f"The page {page} cannot be read" in refused(page, "--data", text)

    def deny(path: Path) -> bytes:
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr(Path, "read_bytes", deny)
    said = refused(tiny_page, "--data", text)
    assert f"The data {text} cannot be read: [Errno 13] Permission denied" in said


def test_what_is_no_refusal_ends_with_1(
    tiny_page: Path, text: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(train, "Run", lambda *arguments: 1 / 0)
    assert train.main([str(tiny_page), "--data", str(text)]) == 1
    assert "ZeroDivisionError" in capsys.readouterr().err


def test_no_page(text: Path, tmp_path: Path, refused: Say) -> None:
    assert "There is no page" in refused(tmp_path / "none.py", "--data", text)
    assert "is no page" in refused(text, "--data", text)


def test_a_config_without_a_length(
    mean_page: Path, text: Path, tmp_path: Path, refused: Say
) -> None:
    page = tmp_path / "page.py"
    page.write_text(mean_page.read_text().replace("    max_position_embeddings: int = 16\n", ""))
    assert "give --seq-length" in refused(page, "--data", text)


def test_a_vocabulary_that_only_the_model_knows(
    mean_page: Path, text: Path, tmp_path: Path, refused: Say
) -> None:
    source = mean_page.read_text().replace("    vocab_size: int = 256\n", "")
    page = tmp_path / "page.py"
    page.write_text(source.replace("config.vocab_size", "100"))
    said = refused(page, "--data", text)
    assert "121" in said and "100" in said and "99" in said


@pytest.fixture
def trained(tiny_page: Path, text: Path, tmp_path: Path) -> Path:
    out = tmp_path / "out"
    arguments = [tiny_page, "--data", text, "--steps", 2, "--micro-batch", 2, "--out", out]
    assert train.main([str(argument) for argument in arguments]) == 0
    return out


def test_a_run_that_does_not_go_on_from_its_checkpoint(
    tiny_page: Path, mean_page: Path, text: Path, tmp_path: Path, trained: Path, refused: Say
) -> None:
    def resume(*arguments: object, page: Path = tiny_page, data: Path = text) -> str:
        return refused(page, "--data", data, "--steps", 4, "--resume", trained, *arguments)

    said = refused(tiny_page, "--data", text, "--out", trained)
    assert "step 2" in said and "step 0" in said
    said = refused(tiny_page, "--data", text, "--steps", 2, "--out", trained, "--resume")
    assert "2 steps" in said and "--steps is 2" in said
    other = tmp_path / "other.txt"
    other.write_text(text.read_text() + "more")
    assert "6000 tokens" in resume(data=other) and "6004 tokens" in resume(data=other)
    assert "--seed 0" in resume("--seed", 1) and "has 1" in resume("--seed", 1)
    assert "--seq-length 32" in resume("--seq-length", 16)
    assert "num_layers 2" in resume("--set", "num_layers=3")
    page = tmp_path / "page.py"
    page.write_text(tiny_page.read_text() + "# changed\n")
    said = resume(page=page)
    assert "page with body" in said and len(set(said.split()) & {"and"}) == 1
    assert "no checkpoint" in refused(tiny_page, "--data", text, "--resume", tmp_path / "none")


def test_the_body_of_a_header_tells_pages_apart(
    tiny_page: Path, text: Path, tmp_path: Path, trained: Path, refused: Say
) -> None:
    page = tmp_path / "page.py"
    header = "# spec 3f9c2a71 · library 71ab03de · body c02e9b14 · black 26.1.0\n"
    page.write_text(header + tiny_page.read_text())
    assert "c02e9b14" in refused(page, trained, program=sample.main)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--tokens", 0], ["0", "1"]),
        (["--temperature", -1], ["-1.0", "0"]),
        (["--temperature", "nan"], ["--temperature nan", "finite"]),
        (["--top-k", -1], ["-1", "0"]),
        (["--prompt", ""], ["0 tokens"]),
        (["--device", "tpu"], ["tpu", "2"]),
    ],
)
def test_sampling(
    tiny_page: Path, trained: Path, refused: Say, arguments: list[object], words: list[str]
) -> None:
    said = refused(tiny_page, trained, *arguments, program=sample.main)
    assert all(word in said for word in words), said
