"""Text from files, tokens from text."""

import json
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from tokenizers.pre_tokenizers import Whitespace

from specc.runtime.refusal import Refusal
from specc.runtime.text import read_documents
from specc.runtime.tokenizer import load_tokenizer


def test_a_folder_is_read_in_the_order_of_its_names(tmp_path: Path) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "b.txt").write_bytes(b"zwei\r\n")
    (tmp_path / "a.md").write_text("eins")
    (tmp_path / "sub" / "c.jsonl").write_text('{"text": "drei"}\n\n{"text": "vier\\n"}\n')
    (tmp_path / "picture.png").write_bytes(b"\xff\xfe")
    assert list(read_documents(tmp_path)) == ["eins", "zwei\r\n", "drei", "vier\n"]


def test_the_field_of_json_lines_is_chosen(tmp_path: Path) -> None:
    file = tmp_path / "a.jsonl"
    file.write_text(json.dumps({"body": "größer", "text": 3}))
    assert list(read_documents(file, "body")) == ["größer"]
    with pytest.raises(Refusal, match=r"line 1, has no text under 'text' \(it has: body, text\)"):
        list(read_documents(file))


def test_what_cannot_be_read_is_refused(tmp_path: Path) -> None:
    with pytest.raises(Refusal, match="no file or folder"):
        list(read_documents(tmp_path / "nothing"))
    with pytest.raises(Refusal, match="has 0 files and 0 of them"):
        list(read_documents(tmp_path))
    (tmp_path / "a.txt").write_bytes(b"ab\xff")
    with pytest.raises(Refusal, match="byte 2 is 0xff"):
        list(read_documents(tmp_path))
    (tmp_path / "b.jsonl").write_text('{"text": "x"}\n{"text"')
    with pytest.raises(Refusal, match="line 2, is not JSON"):
        list(read_documents(tmp_path / "b.jsonl"))


def test_bytes_come_back_as_text() -> None:
    tokenizer = load_tokenizer(None)
    tokens = tokenizer.encode(["Straße", "x"])
    assert tokens.dtype == torch.uint8 and tokenizer.size == 256
    assert tokenizer.decode(tokens.tolist()) == "Straße\nx"
    assert tokenizer.decode(tokens.tolist()[:5]) == "Stra\N{REPLACEMENT CHARACTER}"
    assert len(tokenizer.encode([])) == 0


def test_a_tokenizers_file_is_used(tmp_path: Path) -> None:
    library = Tokenizer(WordLevel({"to": 0, "be": 1, "or": 2, "not": 3}, unk_token="to"))
    library.pre_tokenizer = Whitespace()
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer = load_tokenizer(tmp_path / "tokenizer.json")
    assert tokenizer.size == 4
    assert tokenizer.encode(["to be", "or not"]).tolist() == [0, 1, 2, 3]
    assert tokenizer.decode([2, 3]) == "or not"
    (tmp_path / "bad.json").write_text("{}")
    with pytest.raises(Refusal, match="no Hugging Face tokenizers file"):
        load_tokenizer(tmp_path / "bad.json")
    with pytest.raises(Refusal, match="There is no tokenizer file"):
        load_tokenizer(tmp_path / "none.json")
