"""Tokens from text and text from tokens: bytes, or a Hugging Face ``tokenizers`` file."""

from __future__ import annotations

import hashlib
import importlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .refusal import Refusal


class Tokenizer(Protocol):
    """``kind`` and ``hash`` tell two tokenizers apart in a checkpoint."""

    kind: str
    hash: str
    size: int  # ids run from 0 to size - 1
    file: Path | None

    def encode(self, documents: Iterable[str]) -> Tensor:
        """All documents' tokens, one after the other: [n], the smallest integer type that fits."""

    def decode(self, ids: Sequence[int]) -> str: ...


def load_tokenizer(file: Path | None) -> Tokenizer:
    """Bytes where ``file`` is None. Raises Refusal where it cannot be loaded."""
    return ByteTokenizer() if file is None else FileTokenizer(file)


class ByteTokenizer:
    """The bytes of UTF-8; a newline stands between two documents."""

    kind = "bytes"
    hash = "utf-8"
    size = 256
    file: Path | None = None

    def encode(self, documents: Iterable[str]) -> Tensor:
        data = bytearray("\n".join(documents).encode())
        return (
            torch.frombuffer(data, dtype=torch.uint8) if data else torch.empty(0, dtype=torch.uint8)
        )

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class FileTokenizer:
    """A ``tokenizer.json`` of the package ``tokenizers``.

    What marks the bounds of a document is what the file's post-processor adds to it.
    """

    kind = "tokenizers"

    def __init__(self, file: Path) -> None:
        if not file.is_file():
            raise Refusal(f"There is no tokenizer file {file}.")
        try:
            library: Any = importlib.import_module("tokenizers")  # an extra, loaded when asked for
        except ImportError:
            raise Refusal(
                f"{file} needs the package tokenizers: pip install 'specc[tokenizers]'."
            ) from None
        content = file.read_bytes()
        try:
            self._library = library.Tokenizer.from_str(content.decode())
        except Exception as error:  # the library raises bare Exception for a bad file
            raise Refusal(f"{file} is no Hugging Face tokenizers file: {error}.") from None
        self.file: Path | None = file
        self.hash = hashlib.sha256(content).hexdigest()[:16]
        self.size = int(self._library.get_vocab_size())

    def encode(self, documents: Iterable[str]) -> Tensor:
        # One tensor a document: lists of Python integers take nine times the memory.
        parts = [
            torch.tensor(self._library.encode(document).ids, dtype=torch.int32)
            for document in documents
        ]
        return torch.cat(parts) if parts else torch.empty(0, dtype=torch.int32)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._library.decode(list(ids)))
