"""What git answers, where there is git and a repository; nothing in a repository changes."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path


def ask_git(folder: Path, *arguments: str) -> bytes | None:
    """What a command of git prints in a folder; None where it fails, and where there is no git."""
    # No lock is taken: `specc check` may run beside a commit, from its own hook.
    environment = {**os.environ, "GIT_OPTIONAL_LOCKS": "0"}
    try:
        done = subprocess.run(
            ["git", *arguments],
            cwd=folder,
            env=environment,
            capture_output=True,
            stdin=subprocess.DEVNULL,
        )
    except FileNotFoundError:
        return None
    return done.stdout if done.returncode == 0 else None
