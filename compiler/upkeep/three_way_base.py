"""The text that a page was before it was edited by hand: what its merge starts from."""

from __future__ import annotations

import os
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from ..diagnostics import fail, shown_path
from ..header import Header, digest, split_page
from ..sources import open_source
from ..sources.git import repository
from ..target import parse_target
from .git_answers import ask_git

RECENT = 5  # commits whose specs are compiled in search of the base


@dataclass(frozen=True)
class Base:
    """A body, and where it was found. One that is not `exact` is an earlier text than the one that
    was edited."""

    body: str
    found: str
    exact: bool = True


def find_base(page: Path, header: Header, new: str) -> Base:
    """What the page's body was when it was written; its header has the hash.

    It is looked for in what is compiled now (`new`), in what the header's spec and overrides give
    now, in the page's history, and in what they gave at the page's last commits. Where no text
    there has the hash, the last one in history that was not edited has to do.

    Raises `SpecError`: SP670 where there is none either.
    """
    for body, found in _candidates(page, header, new):
        if digest(body) == header.body:
            return Base(body, found)
    for commit, text in _history(page):
        parsed = split_page(text)
        if parsed is not None and digest(parsed[1]) == parsed[0].body:
            return Base(parsed[1], f"the commit {commit[:8]}", exact=False)
    fail(
        "SP670",
        f"the text that `{shown_path(page)}` was before it was edited is not to be found: "
        f"`{header.origin}` gives another by now, and the page's git history does not have it",
        help="compile to another place with -o and compare, or lose the edits with --force",
    )


def _candidates(page: Path, header: Header, new: str) -> Iterator[tuple[str, str]]:
    yield new, "what is compiled now"
    body = _regenerated(page, header)
    if body is not None:
        yield body, "what its header records"
    commits = []
    for commit, text in _history(page):
        commits.append(commit)
        parsed = split_page(text)
        if parsed is not None:
            yield parsed[1], f"the commit {commit[:8]}"
    for commit in _with_head(page, commits[:RECENT]):
        body = _regenerated_at(commit, page, header)
        if body is not None:
            yield body, f"its spec at the commit {commit[:8]}"


def _regenerated(page: Path, header: Header) -> str | None:
    from ..generate import generate

    try:
        target = parse_target(header.origin, page.resolve().parent)
        return generate(target, header.overrides, validate=False).compiled.body
    except Exception:
        return None  # gone, or broken: then it is no base


def _regenerated_at(commit: str, page: Path, header: Header) -> str | None:
    """The body that the recorded spec gave at a commit, with this specc."""
    folder = page.resolve().parent
    place, _, _ = header.origin.rpartition(":")
    is_file = (place or header.origin).endswith((".py", ".yaml", ".yml"))
    origin = header.origin
    if is_file and not origin.startswith("../"):
        origin = f"./{origin}"
    try:
        source = open_source(f"{commit}:{origin}", overrides=header.overrides, folder=folder)
    except Exception:
        return None
    return source.page_text


def _history(page: Path) -> Iterator[tuple[str, str]]:
    """The commits that touched the page, the last first, each with the page's text."""
    folder = page.resolve().parent
    name = page.resolve().name
    # Of a merge commit, what it made of its first parent's page: else it is listed without a name.
    form = ["--follow", "--diff-merges=first-parent", "--format=commit %H", "--name-only", "-z"]
    listed = ask_git(folder, "log", *form, "--", name)
    if not listed:
        return
    found = repository(folder)
    for commit, path in _commits(os.fsdecode(listed)):
        text = found.text(commit, path)
        if text is not None:
            yield commit, text


def _commits(listed: str) -> Iterator[tuple[str, str]]:
    """Pairs of a commit and the path from the top that the page had in it."""
    commit = ""
    for word in (word.strip("\n") for word in listed.split("\0")):
        if word.startswith("commit "):
            commit = word.removeprefix("commit ")
        elif word:
            yield commit, word


def _with_head(page: Path, commits: list[str]) -> list[str]:
    """The present commit may have the spec, and not the page: it goes first."""
    head = ask_git(page.resolve().parent, "rev-parse", "--verify", "--quiet", "HEAD")
    first = [] if head is None else [os.fsdecode(head).strip()]
    return list(dict.fromkeys([*first, *commits]))
