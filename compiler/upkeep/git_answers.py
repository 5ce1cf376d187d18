"""What git answers, where there is git and a repository; nothing in a repository changes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Mapping, Sequence
from pathlib import Path


def ask_git(folder: Path, *arguments: str) -> bytes | None:
    """What a command of git prints in a folder; None where it fails, and where there is no git."""
    try:
        done = run_git(folder, arguments)
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None


def run_git(
    folder: Path, arguments: Sequence[str], environment: Mapping[str, str] | None = None
) -> subprocess.CompletedProcess[bytes]:
    """Run a command of git in a folder. Raises FileNotFoundError where there is no git."""
    return subprocess.run(
        ["git", *arguments],
        cwd=folder,
        # No lock is taken: `specc check` may run beside a commit, from its own hook.
        env={**os.environ, "GIT_OPTIONAL_LOCKS": "0", **(environment or {})},
        capture_output=True,
        stdin=subprocess.DEVNULL,
    )
