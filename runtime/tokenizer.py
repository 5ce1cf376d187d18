"""Tokens from text and text from tokens: bytes, or a Hugging Face ``tokenizers`` file."""

from __future__ import annotations

import hashlib
import importlib
from array import array
from collections.abc import Iterable, Sequence
from itertools import islice
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .refusal import Refusal

_AT_ONCE = 256  # documents, which the package tokenizers encodes in parallel


class Tokenizer(Protocol):
    """``kind`` and ``hash`` tell two tokenizers apart in a checkpoint."""

    kind: str
    hash: str
    size: int  # ids run from 0 to size - 1
    file: Path | None
    dtype: torch.dtype  # the smallest that fits
    separator: bytes  # what stands between two documents, as tokens of one byte each

    def encode(self, documents: Iterable[str]) -> Tensor:
        """All documents' tokens, one after the other: [n]."""

    def encode_documents(self, documents: Sequence[str]) -> list[array[int]]:
        """The tokens of each document, unsigned bytes ("B") or int32 ("i")."""

    def id_of(self, token: str) -> int | None:
        """The id of a token that is written so."""

    def decode(self, ids: Sequence[int]) -> str: ...


def load_tokenizer(file: Path | None) -> Tokenizer:
    """Bytes where ``file`` is None. Raises Refusal where it cannot be loaded."""
    return ByteTokenizer() if file is None else FileTokenizer(file)


def encode(tokenizer: Tokenizer, documents: Iterable[str]) -> tuple[Tensor, Tensor]:
    """All documents' tokens, one after the other, and the places where the documents begin.

    Shapes: [n] of the tokenizer's dtype, [documents] int64.
    """
    tokens: array[int] | None = None
    starts = array("q")
    remaining = iter(documents)
    while part := list(islice(remaining, _AT_ONCE)):
        for document in tokenizer.encode_documents(part):
            if tokens is None:
                tokens = array(document.typecode)
            elif tokenizer.separator:
                tokens.extend(tokenizer.separator)
            starts.append(len(tokens))
            tokens += document
    return _tensor(tokens or array("B"), tokenizer.dtype), _tensor(starts, torch.int64)


def _tensor(values: array[int], dtype: torch.dtype) -> Tensor:
    return torch.frombuffer(values, dtype=dtype) if values else torch.empty(0, dtype=dtype)


class ByteTokenizer:
    """The bytes of UTF-8; a newline stands between two documents."""

    kind = "bytes"
    hash = "utf-8"
    size = 256
    file: Path | None = None
    dtype = torch.uint8
    separator = b"\n"

    def encode(self, documents: Iterable[str]) -> Tensor:
        return encode(self, documents)[0]

    def encode_documents(self, documents: Sequence[str]) -> list[array[int]]:
        return [array("B", document.encode()) for document in documents]

    def id_of(self, token: str) -> int | None:
        data = token.encode()
        return data[0] if len(data) == 1 else None

    def decode(self, ids: Sequence[int]) -> str:
        return bytes(ids).decode(errors="replace")


class FileTokenizer:
    """A ``tokenizer.json`` of the package ``tokenizers``.

    What marks the bounds of a document is what the file's post-processor adds to it.
    """

    kind = "tokenizers"
    dtype = torch.int32
    separator = b""

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
        # Not get_vocab_size(): some files leave ids out.
        self.size = 1 + max(self._library.get_vocab().values(), default=-1)

    def encode(self, documents: Iterable[str]) -> Tensor:
        return encode(self, documents)[0]

    def encode_documents(self, documents: Sequence[str]) -> list[array[int]]:
        found = self._library.encode_batch_fast(list(documents))
        return [array("i", one.ids) for one in found]

    def id_of(self, token: str) -> int | None:
        found = self._library.token_to_id(token)
        return None if found is None else int(found)

    def decode(self, ids: Sequence[int]) -> str:
        return str(self._library.decode(list(ids)))
