"""Token files from text: ``specc tokenize INPUT... -o PREFIX``."""

from __future__ import annotations

import argparse
import os
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TextIO

from .indexed_writer import RECORD_FORMAT, IndexedWriter, smallest_dtype
from .progress import duration
from .refusal import Refusal
from .tokenize_inputs import Inputs
from .tokenize_work import Encoded, Work, encoded
from .tokenizer import Tokenizer, load_tokenizer
from .train import guarded

_MOST_WORKERS = 1024


def main(arguments: Sequence[str] | None = None) -> int:
    """The program. Returns the exit status: 0, or 2 where the input was refused in a sentence."""
    given = sys.argv[1:] if arguments is None else arguments
    return guarded(lambda: _main(given))


def parser(prog: str = "specc tokenize") -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog=prog,
        description="Write text as token files (Megatron's .bin and .idx), which training maps.",
        allow_abbrev=False,
    )
    top.add_argument(
        "inputs",
        nargs="+",
        metavar="INPUT",
        help="text files, JSON lines (.jsonl), parquet, folders of them, or hf:NAME[:SPLIT]",
    )
    add = top.add_argument
    add("-o", "--output", type=Path, required=True, metavar="PREFIX", help="of the files' names")
    add("--tokenizer", type=Path, metavar="PATH", help="a Hugging Face tokenizers file; else bytes")
    add("--text-field", default="text", metavar="NAME", help="of a line or row, the text (text)")
    add("--append-eod", metavar="ID|TOKEN", help="a token that is put after each document")
    add("--workers", type=int, metavar="N", help="processes; as many as CPUs if not given")
    return top


def tokenize(
    inputs: Sequence[str],
    output: Path,
    *,
    tokenizer: Path | None = None,
    text_field: str = "text",
    append_eod: str | None = None,
    workers: int = 1,
    progress: TextIO | None = None,
) -> dict[str, object]:
    """Write ``output``.bin, .idx and .json, the same bytes for any number of workers.

    A text file is a document, and so is a line of JSON lines and a row of a table. Tokens are
    uint16 where the vocabulary is below 65,500, else int32, as in Megatron. Returns what .json
    holds. Raises Refusal where an input cannot be read or ``output``.idx is there.
    """
    if not 1 <= workers <= _MOST_WORKERS:
        raise Refusal(f"--workers {workers} is not in [1, {_MOST_WORKERS}].")
    own = load_tokenizer(tokenizer)
    eod = None if append_eod is None else _eod(append_eod, own)
    vocabulary = max(own.size, 0 if eod is None else eod + 1)
    dtype = smallest_dtype(vocabulary)
    source = Inputs(inputs, text_field)
    largest = -1
    with IndexedWriter(output, dtype) as writer:
        meter = _Meter(source.size, progress)
        for part in encoded(source, Work(own, text_field, dtype, eod), workers):
            writer.add(part.tokens, part.lengths)
            largest = max(largest, part.largest)
            meter.add(part)
        meter.close()
        if not writer.tokens:
            raise Refusal(
                f"{', '.join(inputs)}: {writer.documents} documents, which have 0 tokens."
            )
        record: dict[str, object] = {
            "format": RECORD_FORMAT,
            "tokenizer": f"{own.kind} {own.hash}",
            "vocabulary": vocabulary,
            "eod": eod,
            "dtype": str(dtype).removeprefix("torch."),
            "documents": writer.documents,
            "tokens": writer.tokens,
            "largest": largest,
        }
        writer.finish(record)
    return record


class _Meter:
    """Documents, tokens, MB/s and the time left, over and over: on a terminal in one line."""

    def __init__(self, total: int | None, out: TextIO | None) -> None:
        self.total = total
        self.out = out
        self._terminal = out is not None and out.isatty()
        self._begin = self._told = time.perf_counter()
        self._documents = self._tokens = self._text = self._size = 0

    def add(self, part: Encoded) -> None:
        self._documents += len(part.lengths)
        self._tokens += sum(part.lengths)
        self._text += part.text
        self._size += part.size
        if time.perf_counter() - self._told > (0.5 if self._terminal else 30):
            self._tell()

    def close(self) -> None:
        self._tell()
        if self._terminal:
            print(file=self.out)

    def _tell(self) -> None:
        if self.out is None:
            return
        self._told = time.perf_counter()
        seconds = max(self._told - self._begin, 1e-9)
        left = ""
        if self.total and self._size:
            left = f", {duration(seconds * max(self.total / self._size - 1, 0))} left"
        text = (
            f"{self._documents:,} documents, {self._tokens:,} tokens, "
            f"{self._text / seconds / 1e6:.1f} MB/s{left}"
        )
        start, end = ("\r\x1b[K", "") if self._terminal else ("", "\n")
        print(f"{start}{text}", end=end, file=self.out, flush=True)


def _eod(text: str, tokenizer: Tokenizer) -> int:
    if text.isdecimal():
        if int(text) >= 2**31:
            raise Refusal(f"--append-eod {text} is above the largest token, {2**31 - 1}.")
        return int(text)
    found = tokenizer.id_of(text)
    if found is None:
        raise Refusal(
            f"--append-eod {text!r}: the tokenizer {tokenizer.kind} has no such token among its "
            f"{tokenizer.size}; an id is taken too."
        )
    return found


def _cpus() -> int:
    """Those that this process may use, where the system tells."""
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1


def _main(arguments: Sequence[str]) -> int:
    options = parser().parse_args(arguments)
    try:
        record = tokenize(
            options.inputs,
            options.output,
            tokenizer=options.tokenizer,
            text_field=options.text_field,
            append_eod=options.append_eod,
            workers=min(_cpus(), _MOST_WORKERS) if options.workers is None else options.workers,
            progress=sys.stderr,
        )
    except OSError as error:  # a full disk, a file under the folder's name
        raise Refusal(
            f"{options.output}.bin and .idx are not written, since a file cannot be read or "
            f"written: {error}."
        ) from None
    print(
        f"wrote {options.output}.bin and .idx: {record['documents']:,} documents, "
        f"{record['tokens']:,} tokens of {record['dtype']}"
    )
    return 0


if __name__ == "__main__":
    sys.exit(main())
