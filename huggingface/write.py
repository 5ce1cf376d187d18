"""Writes a Hugging Face config as a spec file, and beside it the map of its tensors."""

from __future__ import annotations

import os
import tempfile
from pathlib import Path

from specc.runtime.refusal import Refusal

from .map_file import map_path, map_text
from .read import python_name, read_config
from .source import read_source
from .spec_text import spec_text

_SPEC = "_spec"


def import_model(
    source: str, output: Path | None = None, *, name: str | None = None, force: bool = False
) -> tuple[Path, Path]:
    """Write a spec and the map of its tensors; where they are.

    ``output`` None is NAME_spec.py in the working directory, by the model's name. Raises Refusal
    where the config cannot be read or done, or a file is there already; then nothing is written.
    """
    found = read_source(source)
    imported = read_config(found.values)
    spec = output or Path(f"{python_name(found.name)}{_SPEC}.py")
    root = name or python_name(imported.family.model_type)
    if not root.isidentifier():
        raise Refusal(f"--name {root} is no name of Python's.")
    # Where `specc compile` writes the page by default.
    page = spec.with_name(f"{spec.stem.removesuffix(_SPEC)}.py")
    table = map_path(page)
    for path in (spec, table):
        if path.exists() and not force:
            raise Refusal(f"{path} is there already: take another -o, or --force.")
    if not spec.parent.is_dir():
        raise Refusal(f"There is no folder {spec.parent} to write {spec.name} to.")
    title = f"{found.name}, from its Hugging Face config."
    texts = {
        spec: spec_text(imported.plan, root, title),
        table: map_text(imported.table, found.values),
    }
    for path, text in texts.items():
        _write(path, text)
    return spec, table


def _write(path: Path, text: str) -> None:
    """Whole or not at all."""
    handle, draft = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        os.chmod(draft, 0o644)
        os.replace(draft, path)
    except BaseException:
        os.unlink(draft)
        raise
