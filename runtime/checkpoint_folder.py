"""A run's folder of checkpoints: written aside, renamed, marked; the old ones deleted last.

A process may stop at any point, and the newest checkpoint with a marker is whole:

1. what an earlier stop left is removed, ``step-N.partial`` is made;
2. every file is written there and synced to the disk, then the folder;
3. it is renamed to ``step-N``, and the run's folder synced;
4. ``complete.json``, with hashes of the other JSON files, is written aside, synced and renamed;
5. an old checkpoint loses its marker, is renamed to ``step-M.old``, and is deleted.
"""

from __future__ import annotations

import errno
import hashlib
import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import BinaryIO

from .checkpoint_index import FORMAT
from .refusal import Refusal

FACTS, INDEX, MARKER = "checkpoint.json", "index.json", "complete.json"
_NAME = re.compile(r"step-(\d+)")
_REST = re.compile(r"step-\d{8,}\.(partial|old)")


def _step(name: str) -> None:
    """The writer has done ``name``. Tests stop a process here."""


def target(folder: Path, step: int) -> Path:
    """Where the checkpoint of a step stands once it is whole."""
    return folder / f"step-{step:08d}"


def partial(folder: Path, step: int) -> Path:
    """Where it is written."""
    return folder / f"step-{step:08d}.partial"


def prepare(folder: Path, step: int) -> None:
    """Remove what an earlier stop left, and make the folder to write into.

    Raises Refusal where there is something under the name of this step's checkpoint.
    """
    folder.mkdir(parents=True, exist_ok=True)
    for rest in _leftovers(folder):
        _delete(rest)
    if target(folder, step).exists():
        raise Refusal(
            f"{target(folder, step)} is there already, and no checkpoint is written over: take "
            "another folder."
        )
    partial(folder, step).mkdir()
    _sync(folder)
    _sync(folder.parent)
    _step("make the folder")


def write_file(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Write a file and have it on the disk."""
    with path.open("wb") as file:
        write(file)
        file.flush()
        _step(f"write {path.name}")
        os.fsync(file.fileno())
    _step(f"fsync {path.name}")


def publish(folder: Path, step: int, texts: dict[str, bytes]) -> None:
    """Once every rank's files are on the disk: add ``texts``, rename, mark as complete."""
    aside, final = partial(folder, step), target(folder, step)
    for name, text in texts.items():
        write_file(aside / name, lambda file, text=text: file.write(text))  # type: ignore[misc]
    _sync(aside)
    _step("fsync the folder")
    aside.rename(final)
    _step("rename")
    _sync(folder)
    _step("fsync the run's folder")
    hashes = {name: hashlib.sha256(text).hexdigest() for name, text in texts.items()}
    marker = json.dumps({"format": FORMAT, "sha256": hashes}, indent=1) + "\n"
    draft = final / f"{MARKER}.partial"
    write_file(draft, lambda file: file.write(marker.encode()))
    draft.rename(final / MARKER)
    _step("marker")
    _sync(final)
    _step("fsync the marker")


def retire(folder: Path, keep: int) -> None:
    """Delete all complete checkpoints but the newest ``keep``."""
    for old in complete_steps(folder)[:-keep]:
        (old / MARKER).unlink()
        _sync(old)
        _step(f"unmark {old.name}")
        _delete(old)


def complete_steps(folder: Path) -> list[Path]:
    """The checkpoints in a run's folder that are whole, oldest first."""
    return [entry for entry in _steps(folder) if (entry / MARKER).is_file()]


def refuse_foreign(folder: Path) -> None:
    """Raises Refusal where a run's folder holds checkpoints of another format or program."""
    for entry in _steps(folder):
        if not (entry / MARKER).is_file() and not _cut_off(entry):
            raise Refusal(f"{_reason(entry)} Take another folder for this run.")


def read_text(checkpoint: Path, name: str) -> str:
    """A JSON file of a checkpoint: the marker is looked at first, then that it is the file meant.

    Raises Refusal where the checkpoint is not whole, not ours, or the file was changed.
    """
    path = checkpoint / name
    try:
        marker = json.loads((checkpoint / MARKER).read_bytes())
    except FileNotFoundError:
        raise Refusal(_reason(checkpoint)) from None
    except (OSError, ValueError) as error:
        raise Refusal(f"{checkpoint / MARKER} is damaged: {error}.") from None
    found = marker.get("format") if isinstance(marker, dict) else None
    if found != FORMAT:
        raise Refusal(f"{checkpoint} has format {found!r}; this version reads {FORMAT!r}.")
    try:
        text = path.read_bytes()
        expected = str(marker["sha256"][name])
    except FileNotFoundError:
        raise Refusal(f"{checkpoint} is no whole checkpoint: it has no {name}.") from None
    except (OSError, KeyError, TypeError) as error:
        raise Refusal(f"{checkpoint / MARKER} is damaged: {error!r}.") from None
    if hashlib.sha256(text).hexdigest() != expected:
        raise Refusal(
            f"{path} was changed or damaged since it was written: it does not have the SHA-256 "
            f"{expected[:16]}... that {MARKER} has of it."
        )
    return text.decode()


def number(checkpoint: Path) -> int:
    """The step in a checkpoint's name."""
    return int(checkpoint.name.removeprefix("step-"))


def _reason(checkpoint: Path) -> str:
    """Why a folder without a marker is not read."""
    if not checkpoint.is_dir():
        return f"There is no checkpoint in {checkpoint}."
    found = _format(checkpoint)
    if found == FORMAT:
        return (
            f"{checkpoint} is no whole checkpoint: it has no {MARKER}, so its writing or its "
            "deletion was cut off."
        )
    if found is not None:
        return f"{checkpoint} has format {found!r}; this version reads {FORMAT!r}."
    if (checkpoint / ".metadata").exists():
        return (
            f"{checkpoint} is a checkpoint of torch.distributed.checkpoint, whose .metadata is a "
            f"pickle that could run code: this version reads {FORMAT!r}."
        )
    return f"{checkpoint} is no checkpoint of specc: it has no {MARKER} and no {FACTS}."


def _format(checkpoint: Path) -> str | None:
    try:
        return str(json.loads((checkpoint / FACTS).read_bytes())["format"])
    except (OSError, ValueError, KeyError, TypeError):
        return None


def _cut_off(entry: Path) -> bool:
    """Whether a checkpoint without a marker is one of ours, stopped before or after its time.

    Another program's folder may have such a name: it is never taken for ours.
    """
    return not (entry / MARKER).exists() and _format(entry) == FORMAT


def _leftovers(folder: Path) -> list[Path]:
    named = sorted(entry for entry in folder.iterdir() if _REST.fullmatch(entry.name))
    return [*named, *filter(_cut_off, _steps(folder))]


def _delete(entry: Path) -> None:
    """Delete a folder; a stop in the middle leaves one whose name says what it is."""
    rest = entry
    if not _REST.fullmatch(entry.name):
        rest = entry.with_name(f"{entry.name}.old")
        entry.rename(rest)
        _step(f"rename {entry.name}")
    for file in sorted(rest.iterdir()):
        if not file.is_dir():
            file.unlink()
            _step(f"delete {rest.name}/{file.name}")
    shutil.rmtree(rest)
    _step(f"delete {rest.name}")


def _steps(folder: Path) -> list[Path]:
    if not folder.is_dir():
        return []
    found = (entry for entry in folder.iterdir() if _NAME.fullmatch(entry.name))
    return sorted((entry for entry in found if entry.is_dir()), key=number)


def _sync(folder: Path) -> None:
    """Have the names in a folder on the disk."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    except OSError as error:
        if error.errno != errno.EINVAL:  # POSIX: this file system does not sync folders
            raise
    finally:
        os.close(descriptor)
