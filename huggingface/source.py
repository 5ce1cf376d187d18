"""Where a config comes from: a file, a folder, or a model of the hub."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from specc.runtime.refusal import Refusal

CONFIG = "config.json"
_HUB_ID = re.compile(r"[A-Za-z0-9][\w.-]*/[A-Za-z0-9][\w.-]*")


@dataclass(frozen=True)
class Source:
    """A config and what to call it. ``name`` is a model's: "Meta-Llama-3-8B"."""

    name: str
    values: dict[str, Any]
    path: Path


def read_source(source: str) -> Source:
    """The config at ``source``: FILE.json, a folder with a config.json, or OWNER/MODEL on the hub.

    The hub is asked only where there is no such file or folder, and only by the package
    `huggingface_hub`. Raises Refusal where there is no config, or it is no JSON object.
    """
    path = Path(source)
    if path.is_dir():
        path = path / CONFIG
        if not path.is_file():
            raise Refusal(f"{source} has no {CONFIG}, so it is no folder of a Hugging Face model.")
        return Source(path.resolve().parent.name, read_json(path), path)
    if path.is_file():
        name = path.resolve().parent.name if path.name == CONFIG else path.stem
        return Source(name.rpartition("__")[2], read_json(path), path)
    if not _HUB_ID.fullmatch(source):
        raise Refusal(f"There is no file or folder {source}, and it is no OWNER/MODEL of the hub.")
    path = _from_the_hub(source)
    return Source(source.partition("/")[2], read_json(path), path)


def read_json(path: Path) -> dict[str, Any]:
    """A JSON object; Infinity and NaN, which Python writes and JSON lacks, are read too."""
    try:
        values = json.loads(path.read_text(encoding="utf-8"))
    except (OSError, ValueError) as error:
        raise Refusal(f"{path} cannot be read as JSON: {error}.") from None
    if not isinstance(values, dict):
        raise Refusal(f"{path} holds a {type(values).__name__}, and a config is a JSON object.")
    return values


def _from_the_hub(model: str) -> Path:
    try:
        from huggingface_hub import hf_hub_download
        from huggingface_hub.errors import HfHubHTTPError, LocalEntryNotFoundError
    except ImportError:
        raise Refusal(
            f"There is no file or folder {model}; to ask the hub for it, install huggingface_hub."
        ) from None
    try:
        return Path(hf_hub_download(model, CONFIG))
    except (OSError, ValueError, HfHubHTTPError, LocalEntryNotFoundError) as error:
        first = str(error).strip().splitlines()
        raise Refusal(
            f"There is no file or folder {model}, and the hub has not given its {CONFIG}: "
            f"{first[0] if first else type(error).__name__}"
        ) from None
