"""What is asked of git, and what is said where it has no answer. A repository never changes."""

from __future__ import annotations

import difflib
import os
import subprocess
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NoReturn

from ..diagnostics import fail
from ..upkeep.git_answers import run_git


@dataclass(frozen=True)
class Repository:
    """A repository by the top folder of its working tree."""

    top: Path

    def commit(self, revision: str) -> str:
        """The full hash of the commit that a revision names.

        Raises `SpecError`: SP613 where there is none, with the nearest name that there is, or with
        what a shallow clone lacks.
        """
        found = self._ask("rev-parse", "--verify", "--quiet", "--end-of-options", revision + "^{}")
        if found is not None:
            commit = self._ask("rev-parse", "--verify", "--quiet", f"{found.strip()}^{{commit}}")
            if commit is not None:
                return commit.strip()
            fail(
                "SP613",
                f"`{revision}` is no commit",
                help="give a branch, a tag or a commit",
            )
        fail(
            "SP613",
            f"there is no revision `{revision}` in `{self.top.name}`",
            note=self._shallow_note(),
            help=self._near(revision),
        )

    def text(self, commit: str, path: str) -> str | None:
        """The text of a file at a commit, as a checkout writes it; None where it is no file."""
        kind = self._ask("cat-file", "-t", f"{commit}:{path}")
        if kind is None or kind.strip() != "blob":
            return None
        done = _git(["cat-file", "--filters", f"{commit}:{path}"], self.top)
        if done.returncode:
            _failed(done)
        text = done.stdout.decode("utf-8", errors="surrogateescape")
        return text.replace("\r\n", "\n").replace("\r", "\n")  # as a file is read

    def files(self, commit: str) -> list[str]:
        """The paths of all files at a commit, from the top folder."""
        return (self._ask("ls-tree", "-r", "-z", "--name-only", commit) or "").split("\0")[:-1]

    def check_out(self, commit: str, folder: Path) -> None:
        """Write the files of a commit into an empty folder; index and working tree stay as they
        are.

        An index of its own, not `git archive`, which leaves out what is marked `export-ignore`.
        """
        tree, index = folder / "tree", folder / "index"
        tree.mkdir()
        own = {"GIT_INDEX_FILE": str(index), "GIT_LFS_SKIP_SMUDGE": "1"}
        for command in (["read-tree", commit], ["checkout-index", "--all", f"--prefix={tree}/"]):
            done = _git(command, self.top, own)
            if done.returncode:
                _failed(done)

    def _ask(self, *arguments: str) -> str | None:
        done = _git(arguments, self.top)
        return None if done.returncode else done.stdout.decode("utf-8", errors="surrogateescape")

    def _shallow_note(self) -> str | None:
        if (self._ask("rev-parse", "--is-shallow-repository") or "").strip() != "true":
            return None
        count = (self._ask("rev-list", "--count", "--all") or "").strip()
        return f"this clone is shallow: it has {count} commit{'s' if count != '1' else ''} only"

    def _near(self, revision: str) -> str:
        if self._shallow_note() is not None:
            return "`git fetch --unshallow` gets the rest; in CI, check out with `fetch-depth: 0`"
        form = ["for-each-ref", "--format=%(refname:short)"]
        known = sorted({*(self._ask(*form) or "").split(), "HEAD"})
        base = revision.split("~")[0].split("^")[0].split("@{")[0]
        if base != revision and base in known:
            return f"`{base}` has no such ancestor or earlier state"
        tails = {name: name for name in known}
        tails |= {tail: name for name in known if (tail := name.partition("/")[2])}
        if len(known) == 1:
            return "it has no commit yet"
        close = difflib.get_close_matches(base, [t for t in tails if t != base], n=1)
        if close:
            return f"did you mean `{tails[close[0]]}{revision.removeprefix(base)}`?"
        return "`git log --oneline` lists commits, `git branch --all` and `git tag` their names"


def repository(folder: Path) -> Repository:
    """The repository that a folder is in.

    Raises `SpecError`: SP612 where it is in none, or git is not installed.
    """
    done = _git(["rev-parse", "--show-toplevel"], folder)
    if done.returncode == 0:
        return Repository(Path(os.fsdecode(done.stdout.rstrip(b"\n"))))
    said = done.stderr.decode("utf-8", errors="replace").strip()
    if "not a git repository" in said:
        fail(
            "SP612",
            "a revision is asked for, and this folder is in no git repository",
            help="give a file, or start specc inside the repository",
        )
    _failed(done)


def _git(
    arguments: Sequence[str], folder: Path, environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    spoken = {"LC_ALL": "C", "LANGUAGE": "C"}  # what it says on stderr is looked at: in English
    try:
        return run_git(folder, arguments, {**spoken, **(environment or {})})
    except FileNotFoundError:
        fail(
            "SP612",
            "a revision is asked for, and there is no `git` on the PATH",
            help="install git, or give files",
        )


def _failed(done: subprocess.CompletedProcess[bytes]) -> NoReturn:
    said = done.stderr.decode("utf-8", errors="replace").strip()
    fail("SP612", f"git {done.args[1]} failed", note=said or None, help="ask git itself")
