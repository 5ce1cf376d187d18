"""Many pages checked: those that are fresh by their hashes at once, the others side by side."""

from __future__ import annotations

import multiprocessing
import os
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from pathlib import Path

from ..fingerprint import Fingerprints
from ..report import report
from .check import Undecided, check_header, decide
from .verdict import Verdict

START = "spawn"  # not "fork": torch is imported in a process that never had another thread


@dataclass(frozen=True)
class Outcome:
    """A page's verdict, None where its file could not be read as a page at all; and what is to be
    printed of errors."""

    page: Path
    verdict: Verdict | None
    said: str = ""


def check_pages(
    pages: Sequence[Path], *, jobs: int | None = None, format: str = "text"
) -> Iterator[Outcome]:
    """The outcome for each page, in the order of `pages`.

    A page whose hashes hold costs some milliseconds and no import. Others are compiled, up to
    `jobs` at a time (as many as there are processors, if left out), in processes of their own if
    there are several. Errors are written in the `--format` given.
    """
    now = Fingerprints()
    found = [_by_hashes(page, now, format) for page in pages]
    waiting = [one for one in found if isinstance(one, Undecided)]
    with ExitStack() as stack:
        compiled = iter(_compiled(waiting, jobs or _processors(), format, stack))
        for one in found:
            yield next(compiled) if isinstance(one, Undecided) else one


def _by_hashes(page: Path, now: Fingerprints, format: str) -> Outcome | Undecided:
    try:
        found = check_header(page, now)
    except Exception as error:  # the other pages are checked all the same
        return Outcome(page, None, report(error, format))
    return found if isinstance(found, Undecided) else _outcome(found, format)


def _compiled(
    waiting: list[Undecided], jobs: int, format: str, stack: ExitStack
) -> Iterable[Outcome]:
    count = min(jobs, len(waiting))
    if count <= 1:
        return (_decided(one, format) for one in waiting)
    pool = ProcessPoolExecutor(count, multiprocessing.get_context(START))
    stack.callback(pool.shutdown, cancel_futures=True)
    return pool.map(_decided, waiting, [format] * len(waiting))


def _decided(found: Undecided, format: str) -> Outcome:
    return _outcome(decide(found), format)


def _outcome(verdict: Verdict, format: str) -> Outcome:
    """An error goes on as text: the exception of a user's code need not be one that can leave its
    process."""
    said = "" if verdict.error is None else report(verdict.error, format)
    return Outcome(verdict.page, replace(verdict, error=None), said)


def _processors() -> int:
    if hasattr(os, "sched_getaffinity"):
        return len(os.sched_getaffinity(0))
    return os.cpu_count() or 1
