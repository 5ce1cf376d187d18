"""`specc tokenize`: token files from text, JSON lines, parquet and data sets."""

import io
import json
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import Tokenizer as Library
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from specc.compiler.cli import PROGRAMS
from specc.runtime import tokenize_inputs
from specc.runtime.data_open import open_data
from specc.runtime.indexed import IndexedTokens
from specc.runtime.refusal import Refusal
from specc.runtime.tokenize import main, tokenize
from specc.runtime.tokenize_inputs import Block, Inputs, Lines, Rows
from specc.runtime.tokenize_work import Work, encoded
from specc.runtime.tokenizer import ByteTokenizer


@pytest.fixture
def small_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tokenize_inputs, "_BLOCK", 64)


@pytest.fixture
def words(tmp_path: Path) -> Path:
    vocabulary = {"to": 0, "be": 1, "or": 2, "not": 3, "<eod>": 7}
    library = Library(WordLevel(vocabulary, unk_token="to"))
    library.pre_tokenizer = Whitespace()
    library.save(str(tmp_path / "words.json"))
    return tmp_path / "words.json"


def write_lines(path: Path, texts: list[str], field: str = "text") -> str:
    path.write_text("".join(json.dumps({field: text, "n": 1}) + "\n" for text in texts))
    return str(path)


def documents(prefix: Path) -> list[list[int]]:
    tokens = IndexedTokens(prefix)
    return [tokens.sequence(i).tolist() for i in range(tokens.sequences)]


def texts(prefix: Path) -> list[str]:
    return [bytes(ids).decode() for ids in documents(prefix)]


def test_files_lines_and_rows_become_documents(tmp_path: Path, monkeypatch: Any) -> None:
    import datasets  # takes a second, which the other tests do not need

    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    folder = tmp_path / "in"
    folder.mkdir()
    (folder / "a.txt").write_bytes(b"a whole\r\nfile")
    write_lines(folder / "b.jsonl", ["a line", "", "another"])
    table = datasets.Dataset.from_list([{"text": f"row {i}", "n": i} for i in range(3)])
    table.to_parquet(folder / "c.parquet")
    datasets.DatasetDict({"train": table}).save_to_disk(tmp_path / "saved")
    (folder / "d.csv").write_text("not,read\n")
    source = folder / "hub"
    source.mkdir()
    (source / "rows.csv").write_text("text,n\nfrom csv,1\n")
    inputs = [str(folder), str(tmp_path / "saved" / "train"), f"hf:{source}:train"]
    record = tokenize(inputs, tmp_path / "out")
    rows = ["row 0", "row 1", "row 2"]
    wanted = ["a whole\r\nfile", "a line", "", "another", *rows, *rows, "from csv"]
    assert texts(tmp_path / "out") == wanted
    assert record == json.loads((tmp_path / "out.json").read_text())
    assert record == {
        "format": "specc tokens 1",
        "tokenizer": "bytes utf-8",
        "vocabulary": 256,
        "eod": None,
        "dtype": "uint16",
        "documents": 11,
        "tokens": sum(map(len, wanted)),
        "largest": max(map(ord, "".join(wanted))),
    }
    for name, words in (
        (str(tmp_path / "saved"), "has 1 splits, train: name one of them"),
        (f"hf:{source}", "has 1 splits, train: name one of them, hf:.*hub:train"),
        (f"hf:{tmp_path}/none", "cannot be loaded as a data set"),
    ):
        with pytest.raises(Refusal, match=words):
            tokenize([name], tmp_path / "other")
    with pytest.raises(
        Refusal, match=r"c\.parquet, row 1, has no text under 'body' \(it has: text"
    ):
        tokenize([str(folder / "c.parquet")], tmp_path / "other", text_field="body")
    (folder / "bad.parquet").write_bytes(b"PAR1 and no more")
    with pytest.raises(Refusal, match=r"bad\.parquet cannot be read as parquet"):
        tokenize([str(folder / "bad.parquet")], tmp_path / "other")
    assert not list(tmp_path.glob("other*"))


@given(st.lists(st.text(max_size=20), min_size=1, max_size=8))
@settings(max_examples=30, deadline=None)
def test_lines_come_through_blocks_of_any_size(
    tmp_path_factory: pytest.TempPathFactory, lines: list[str]
) -> None:
    folder = tmp_path_factory.mktemp("lines")
    # As JSON may be written: characters as they are, half a one, blank lines, no end of line.
    text = "\n".join(json.dumps({"text": line}, ensure_ascii=len(line) % 2 == 0) for line in lines)
    (folder / "a.jsonl").write_bytes(text.replace("}\n{", "}\n \n{").encode(errors="replace"))
    wanted = [line.encode(errors="replace").decode() for line in lines]
    for size in (1, 20, 10_000):
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(tokenize_inputs, "_BLOCK", size)
            blocks = list(Inputs([str(folder / "a.jsonl")], "text"))
        assert [text for block in blocks for text in block.documents("text")] == wanted
        assert sum(block.size for block in blocks) == (folder / "a.jsonl").stat().st_size


@pytest.mark.usefixtures("small_blocks")
def test_any_number_of_workers_writes_the_same_bytes(tmp_path: Path, words: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["to be or not " * (i % 7) for i in range(200)])
    for i in range(20):
        (tmp_path / f"{i:02}.txt").write_text("not to be " * i)
    inputs = [lines, *(str(tmp_path / f"{i:02}.txt") for i in range(20))]
    for workers in (1, 4):
        out = tmp_path / f"out{workers}" / "text"
        tokenize(inputs, out, tokenizer=words, append_eod="<eod>", workers=workers)
    for end in ("bin", "idx", "json"):
        one, four = (
            (tmp_path / f"out{workers}" / f"text.{end}").read_bytes() for workers in (1, 4)
        )
        assert one == four
    found = documents(tmp_path / "out4" / "text")
    assert found[:3] == [[7], [0, 1, 2, 3, 7], [0, 1, 2, 3, 0, 1, 2, 3, 7]]
    assert len(found) == 220
    record = json.loads((tmp_path / "out4" / "text.json").read_text())
    assert (record["eod"], record["vocabulary"], record["largest"]) == (7, 8, 7)


@pytest.mark.usefixtures("small_blocks")
@pytest.mark.parametrize("workers", [1, 2])
def test_a_line_that_is_wrong_is_named(tmp_path: Path, workers: int) -> None:
    lines = ['{"text": "something that is long"}'] * 50
    lines[37] = '{"text": 3}'
    (tmp_path / "a.jsonl").write_text("\n".join(lines))
    with pytest.raises(Refusal, match="line 38, has no text under 'text'"):
        tokenize([str(tmp_path / "a.jsonl")], tmp_path / "out", workers=workers)
    assert not list(tmp_path.glob("out*"))


def test_blocks_are_read_a_few_ahead_only() -> None:
    taken = 0

    def blocks() -> Iterator[Block]:
        nonlocal taken
        for taken in range(1, 101):
            yield Rows((f"{taken:03}",), 1)

    work = Work(ByteTokenizer(), "text", torch.uint16, None)
    for written, part in enumerate(encoded(blocks(), work, 2), 1):
        assert memoryview(part.tokens).cast("H").tolist() == list(f"{written:03}".encode())
        assert taken <= written + 8


class Deadly(ByteTokenizer):
    """Ends its process, as the system does where memory is out."""

    def encode_documents(self, documents: Any) -> Any:
        os._exit(9)


def test_a_worker_that_dies_is_told() -> None:
    work = Work(Deadly(), "text", torch.uint16, None)
    with pytest.raises(Refusal, match="One of 2 workers was ended from outside"):
        list(encoded([Rows(("x",), 1)] * 20, work, 2))


ENDLESS = """
import os, time, torch
from specc.runtime.tokenize_inputs import Rows
from specc.runtime.tokenize_work import Work, encoded

class Slow:
    def encode_documents(self, documents):
        os.write(1, f"{os.getpid()}\\n".encode())  # in one piece: two workers share the pipe
        time.sleep(600)

list(encoded([Rows(("x",), 1)] * 20, Work(Slow(), "text", torch.uint16, None), 2))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="the kernel is asked to end them")
def test_workers_end_with_a_killed_parent() -> None:
    with subprocess.Popen([sys.executable, "-c", ENDLESS], stdout=subprocess.PIPE) as process:
        assert process.stdout is not None
        workers = [int(process.stdout.readline()) for _ in range(2)]
        process.kill()
        try:
            process.communicate(timeout=30)  # returns when nobody holds the pipe
        except subprocess.TimeoutExpired:
            for worker in workers:
                os.kill(worker, signal.SIGKILL)
            raise


def test_a_vocabulary_beyond_16_bits_takes_32(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["ab"])
    for eod, dtype in ((65498, torch.uint16), (65499, torch.int32)):
        record = tokenize([lines], tmp_path / str(eod), append_eod=str(eod))
        assert IndexedTokens(tmp_path / str(eod)).dtype == dtype
        assert documents(tmp_path / str(eod)) == [[97, 98, eod]]
        assert record["vocabulary"] == eod + 1


def test_training_compares_the_tokenizer(tmp_path: Path, words: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["to be or not to be"] * 9)
    tokenize([lines], tmp_path / "by_words", tokenizer=words)
    tokenize([lines], tmp_path / "by_bytes")
    data = open_data([(1.0, tmp_path / "by_words")], length=4, seed=0)
    assert data.tokenizer is None and data.largest == 3
    given = open_data([(1.0, tmp_path / "by_words")], length=4, seed=0, tokenizer=words)
    assert given.tokenizer is not None and given.tokenizer.file == words
    assert given.tokenizer_name == data.tokenizer_name
    bytes_again = open_data([(1.0, tmp_path / "by_bytes")], length=4, seed=0)
    assert bytes_again.tokenizer_name == "bytes utf-8" and bytes_again.tokenizer is not None
    with pytest.raises(Refusal, match=r"was made with tokenizer bytes utf-8, and .*words\.json is"):
        open_data([(1.0, tmp_path / "by_bytes")], length=4, seed=0, tokenizer=words)
    both = [(1.0, tmp_path / "by_bytes"), (1.0, tmp_path / "by_words")]
    with pytest.raises(
        Refusal, match=r"are of 2 tokenizers: .*by_bytes bytes utf-8, .*by_words tok"
    ):
        open_data(both, length=4, seed=0)
    record = json.loads((tmp_path / "by_bytes.json").read_text())
    (tmp_path / "by_bytes.json").write_text(json.dumps(record | {"tokens": 7}))
    with pytest.raises(Refusal, match=r"tells of 7 tokens in 9 documents, and .* have 162 in 9"):
        open_data([(1.0, tmp_path / "by_bytes")], length=4, seed=0)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_progress_is_told(tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["ab"] * 1200)
    for out in (io.StringIO(), Terminal()):
        tokenize([lines], tmp_path / type(out).__name__, progress=out)
        said = out.getvalue()
        assert said.endswith("\n") and ("\r" in said) == out.isatty()
        assert "1,200 documents, 2,400 tokens, " in said
        assert " MB/s, 0s left" in said


def test_the_command(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["ab", "c"], field="body")
    arguments = [lines, "-o", str(tmp_path / "out"), "--workers", "1", "--text-field", "body"]
    assert main(arguments) == 0
    assert "out.bin and .idx: 2 documents, 3 tokens of uint16" in capsys.readouterr().out
    assert main(arguments) == 2
    assert "out.idx is there already" in capsys.readouterr().err
    assert "tokenize" in PROGRAMS


@pytest.mark.parametrize(
    ("settings_", "words"),
    [
        ({"workers": 0}, r"--workers 0 is not in \[1, 1024\]"),
        ({"workers": 100_000}, r"--workers 100000 is not in \[1, 1024\]"),
        ({"append_eod": "<eod>"}, "'<eod>': the tokenizer bytes has no such token among its 256"),
        ({"append_eod": str(2**31)}, "above the largest token, 2147483647"),
        ({"tokenizer": Path("none.json")}, "no tokenizer file none.json"),
        ({}, "1 documents, which have 0 tokens"),
    ],
)
def test_what_cannot_be_done_is_refused(
    tmp_path: Path, settings_: dict[str, Any], words: str
) -> None:
    lines = write_lines(tmp_path / "a.jsonl", [""])
    with pytest.raises(Refusal, match=words):
        tokenize([lines], tmp_path / "out", **settings_)
    assert not list(tmp_path.glob("out*"))


def test_a_file_that_cannot_be_written_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    lines = write_lines(tmp_path / "a.jsonl", ["a"])
    assert main([lines, "-o", f"{lines}/out", "--workers", "1"]) == 2
    said = capsys.readouterr().err
    assert said.startswith(f"error: {lines}/out.bin and .idx are not written")
    assert said.count("\n") == 1


def test_a_missing_package_is_named_before_anything_is_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    (tmp_path / "a.parquet").write_bytes(b"")
    for name in (str(tmp_path / "a.parquet"), "hf:some/name"):
        with pytest.raises(Refusal, match=r"pip install 'specc\[datasets\]'"):
            tokenize([name], tmp_path / "out")


def test_lines_before_are_counted_over_parts(tmp_path: Path, small_blocks: None) -> None:
    (tmp_path / "a.jsonl").write_text('{"text": ""}\n' * 100 + "no JSON\n")
    with pytest.raises(Refusal, match="line 101, is not JSON"):
        Lines(tmp_path / "a.jsonl", 1300, 1308).documents("text")
