"""Where tokens come from: text in memory, token files, or a folder of those."""

from __future__ import annotations

import hashlib
import json
from bisect import bisect_right
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import accumulate
from pathlib import Path
from typing import Any, Protocol

import torch
from torch import Tensor

from .indexed import IndexedTokens, idx_path
from .indexed_writer import RECORD_FORMAT, record_path
from .refusal import Refusal
from .safetensors import bytes_of
from .text import PARQUET, has_text, read_documents
from .tokenizer import Tokenizer, encode, load_tokenizer


class Tokens(Protocol):
    """One row of tokens, of which parts are read, and the places where documents begin."""

    def __len__(self) -> int: ...

    def read(self, begin: int, end: int) -> Tensor:
        """Tokens [end - begin] int64."""

    def document_starts(self, begin: int, end: int) -> Tensor:
        """The places in [begin, end) at which a document begins, in order: int64."""


class HeldTokens:
    """Tokens [n] in memory, in any integer dtype; ``starts``: where documents begin."""

    def __init__(self, tokens: Tensor, starts: Tensor | None = None) -> None:
        self.tokens = tokens
        self.starts = torch.zeros(1, dtype=torch.int64) if starts is None else starts

    def __len__(self) -> int:
        return len(self.tokens)

    def read(self, begin: int, end: int) -> Tensor:
        return self.tokens[begin:end].long()

    def document_starts(self, begin: int, end: int) -> Tensor:
        first, last = torch.searchsorted(self.starts, torch.tensor([begin, end])).tolist()
        return self.starts[first:last]

    def fingerprint(self) -> str:
        """A hash of all tokens."""
        digest = hashlib.sha256(str(self.tokens.dtype).encode())
        if len(self.tokens):
            digest.update(bytes_of(self.tokens.contiguous()))
        return digest.hexdigest()[:16]


class ChainedTokens:
    """Token files, one after the other."""

    def __init__(self, parts: Sequence[IndexedTokens]) -> None:
        self.parts = parts
        self.begins = [0, *accumulate(map(len, parts))]

    def __len__(self) -> int:
        return self.begins[-1]

    def read(self, begin: int, end: int) -> Tensor:
        return torch.cat([part.read(first, last) for part, first, last, _ in self._of(begin, end)])

    def document_starts(self, begin: int, end: int) -> Tensor:
        found = (
            part.document_starts(first, last) + place
            for part, first, last, place in self._of(begin, end)
        )
        return torch.cat([torch.empty(0, dtype=torch.int64), *found])

    def _of(self, begin: int, end: int) -> list[tuple[IndexedTokens, int, int, int]]:
        """Each part that [begin, end) touches, what of it, and the place where it begins."""
        found = []
        for which in range(bisect_right(self.begins, begin) - 1, len(self.parts)):
            place = self.begins[which]
            if place >= end:
                break
            first, last = max(begin - place, 0), min(end, self.begins[which + 1]) - place
            found.append((self.parts[which], first, last, place))
        return found


@dataclass(frozen=True)
class Source:
    """Tokens, and what is known of them.

    ``tokenizer_name`` is ``kind hash``, None where no one says; ``largest``: the largest token that
    was seen (in large token files that ``specc tokenize`` did not write, of samples).
    """

    tokens: Tokens
    identity: str
    tokenizer: Tokenizer | None
    tokenizer_name: str | None
    largest: int
    eod: int | None = None


def open_source(path: Path, *, tokenizer: Path | None, text_field: str) -> Source:
    """Token files at ``path`` (a prefix, one of its two files, or a folder of some), else text.

    Raises Refusal where nothing can be read, or the token files were made with another tokenizer.
    """
    try:
        return _opened(path, tokenizer, text_field)
    except OSError as error:
        raise Refusal(f"The data {path} cannot be read: {error}.") from None


def _opened(path: Path, tokenizer: Path | None, text_field: str) -> Source:
    prefixes = _prefixes(path)
    if path.suffix == PARQUET and path.is_file():
        raise Refusal(f"{path} is parquet: specc tokenize makes token files of it.")
    if not prefixes:
        return _text(path, load_tokenizer(tokenizer), text_field)
    own = load_tokenizer(tokenizer) if tokenizer else None
    files = [IndexedTokens(prefix) for prefix in prefixes]
    records = [_record(file) for file in files]
    for file, record in zip(files, records, strict=True):
        given = f"{own.kind} {own.hash}" if own else record.get("tokenizer")
        if record and given != record["tokenizer"]:
            raise Refusal(
                f"{file.prefix} was made with tokenizer {record['tokenizer']}, and {tokenizer} is "
                f"{given}."
            )
        for fact in ("tokenizer", "eod"):
            if record.get(fact) != records[0].get(fact):
                raise Refusal(
                    f"{path} has token files of {fact} {records[0].get(fact)} and of {fact} "
                    f"{record.get(fact)}: one folder, one {fact}."
                )
    largest = [
        record["largest"] if record else file.largest()
        for file, record in zip(files, records, strict=True)
    ]
    prints = [file.fingerprint() for file in files]
    if len(files) > 1:
        prints = [hashlib.sha256(" ".join(prints).encode()).hexdigest()[:16]]
    name = records[0].get("tokenizer") or (f"{own.kind} {own.hash}" if own else None)
    tokens = files[0] if len(files) == 1 else ChainedTokens(files)
    bytes_again = load_tokenizer(None)
    if own is None and name == f"{bytes_again.kind} {bytes_again.hash}":
        own = bytes_again
    identity = f"{prints[0]} of {len(tokens)} tokens"
    return Source(tokens, identity, own, name, max(largest), records[0].get("eod"))


def _text(path: Path, tokenizer: Tokenizer, field: str) -> Source:
    tokens = HeldTokens(*encode(tokenizer, read_documents(path, field)))
    largest = int(tokens.tokens.max()) if len(tokens) else -1
    identity = f"{tokens.fingerprint()} of {len(tokens)} tokens"
    name = f"{tokenizer.kind} {tokenizer.hash}"
    return Source(tokens, identity, tokenizer, name, largest)


def _prefixes(path: Path) -> list[Path]:
    """The token files that ``path`` means; none where it means text."""
    if path.is_file():
        return [path.with_suffix("")] if path.suffix in (".bin", ".idx") else []
    if idx_path(path).is_file():
        return [path]
    if not path.is_dir():
        return []
    found = sorted(file.with_suffix("") for file in path.glob("*.idx"))
    if found and (text := has_text(path)):
        raise Refusal(
            f"The folder {path} holds {len(found)} token files and the text {text.name}: name what "
            "is meant."
        )
    return found


def _record(file: IndexedTokens) -> dict[str, Any]:
    """What ``specc tokenize`` wrote of the files; empty where another program made them."""
    path = record_path(file.prefix)
    if not path.is_file():
        return {}
    try:
        record = json.loads(path.read_text(encoding="utf-8"))
        if record.get("format") != RECORD_FORMAT:
            return {}
        said = (record["tokens"], record["documents"])
        int(record["largest"]), str(record["tokenizer"]), record["eod"]
    except (ValueError, KeyError, TypeError, AttributeError):
        return {}
    has = (len(file), file.documents)
    if said != has:
        raise Refusal(
            f"{path} tells of {said[0]} tokens in {said[1]} documents, and {file.prefix}.bin and "
            f".idx have {has[0]} in {has[1]}: it is of other files; remove it or them."
        )
    return dict(record)
