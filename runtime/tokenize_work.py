"""Documents to tokens, in this process or in several, in the order of the documents."""

from __future__ import annotations

import os
import signal
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future, ProcessPoolExecutor
from concurrent.futures.process import BrokenProcessPool
from dataclasses import dataclass
from multiprocessing import get_all_start_methods, get_context

import torch

from .launch import end_with_parent
from .refusal import Refusal
from .safetensors import bytes_of
from .tokenize_inputs import Block
from .tokenizer import Tokenizer

_AHEAD = 4  # blocks for each worker that are read and not written yet


@dataclass(frozen=True)
class Encoded:
    """The tokens of a block's documents as bytes of the file's dtype, each document's length."""

    tokens: bytes
    lengths: list[int]
    largest: int  # -1 of no tokens
    text: int  # bytes of UTF-8 that became tokens
    size: int  # of the block


@dataclass(frozen=True)
class Work:
    """What is done with a block; ``eod``: a token that is put after each document."""

    tokenizer: Tokenizer
    field: str
    dtype: torch.dtype
    eod: int | None

    def encode(self, block: Block) -> Encoded:
        """Raises Refusal where a document is no text."""
        documents = block.documents(self.field)
        parts, lengths = [], []
        end = () if self.eod is None else (torch.tensor([self.eod], dtype=torch.int32),)
        for ids in self.tokenizer.encode_documents(documents):
            if ids:
                parts.append(torch.frombuffer(ids, dtype=self.tokenizer.dtype).to(torch.int32))
            parts += end
            lengths.append(len(ids) + len(end))
        size = sum(len(document.encode()) for document in documents)
        if not parts:
            return Encoded(b"", lengths, -1, size, block.size)
        tokens = torch.cat(parts)
        stored = tokens.to(self.dtype)
        largest = int(tokens.max())
        return Encoded(bytes(bytes_of(stored)), lengths, largest, size, block.size)


def encoded(blocks: Iterable[Block], work: Work, workers: int) -> Iterator[Encoded]:
    """Each block encoded, in order, by so many processes; 1: by this one.

    At most ``_AHEAD`` blocks a worker are held. Raises Refusal where a worker ends early.
    """
    if workers == 1:
        yield from map(work.encode, blocks)
        return
    # A forked worker need not import torch anew; it runs no thread of its parent's.
    method = "fork" if "fork" in get_all_start_methods() else "spawn"
    ask = end_with_parent() if method == "fork" else None  # else it cannot be handed over
    pool = ProcessPoolExecutor(workers, get_context(method), _start, (work, ask))
    waiting: deque[Future[Encoded]] = deque()
    try:
        pool.submit(int).result()  # all start now, before a reader of blocks has threads
        for block in blocks:
            waiting.append(pool.submit(_encode, block))
            if len(waiting) >= _AHEAD * workers:
                yield waiting.popleft().result()
        while waiting:
            yield waiting.popleft().result()
    except BrokenProcessPool:
        raise Refusal(
            f"One of {workers} workers was ended from outside (out of memory?); nothing is written."
        ) from None
    finally:
        pool.shutdown(cancel_futures=True)


_work: Work  # of this worker


def _start(work: Work, ask: Callable[[], None] | None) -> None:
    global _work
    _work = work
    if ask is not None:
        ask()  # a pool's worker would wait for a killed parent for ever
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent ends its workers
    os.environ["TOKENIZERS_PARALLELISM"] = "false"
    torch.set_num_threads(1)


def _encode(block: Block) -> Encoded:
    return _work.encode(block)
