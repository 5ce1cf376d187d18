"""The file beside a page that says where its tensors are in Hugging Face's: NAME_hf.yaml.

`specc import hf` writes it, and `specc weights` reads it for both directions. It is data: a row
may be changed by hand, and a model of one's own may have a file written by hand.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from specc.runtime.refusal import Refusal

from .layouts import LAYOUTS, Numbers
from .tensors import Row, Table

_HEAD = """\
# Hugging Face's tensors, and this page's: read by `specc weights import` and `export`.
# `*` is the number of a layer, `#` that of an expert, {a,b} one tensor for each name.
# Where ours is laid out differently, it says how.
"""


@dataclass(frozen=True)
class MapFile:
    """``config``: Hugging Face's own, which an exported folder gets."""

    path: Path
    table: Table
    config: dict[str, Any]


def map_path(page: Path) -> Path:
    """Where the file of a page stands."""
    return page.with_name(f"{page.stem}_hf.yaml")


def map_text(table: Table, config: Mapping[str, Any]) -> str:
    """The file's text."""
    lines = [_HEAD + "tensors:"]
    for row in table.rows:
        ours = row.ours if row.layout == "same" else f"[{_scalar(row.ours)}, '{row.layout}']"
        lines.append(f"  {_scalar(row.theirs)}: {_scalar(ours) if row.layout == 'same' else ours}")
    n = table.numbers
    lines.append(f"numbers: {{heads: {n.heads}, groups: {n.groups}, head_dim: {n.head_dim}}}")
    if table.tied:
        lines += ["tied:  # a second name of another tensor"]
        lines += [f"  {_scalar(name)}: {_scalar(other)}" for name, other in table.tied.items()]
    if table.ignored:
        lines += ["ignored:  # what follows from the config"]
        lines += [f"  - {_scalar(name)}" for name in table.ignored]
    lines += ["config: |  # Hugging Face's own"]
    lines += [f"  {line}" for line in json.dumps(config, indent=2).splitlines()]
    return "\n".join(lines) + "\n"


def read_map(path: Path) -> MapFile:
    """Raises Refusal where there is no such file, or it is not one."""
    try:
        text = path.read_text(encoding="utf-8")
    except OSError:
        raise Refusal(
            f"There is no {path}, which says where the tensors go: `specc import hf` writes it "
            "beside the spec; give --map where it is elsewhere."
        ) from None
    try:
        values = yaml.safe_load(text)
        found = []
        for theirs, ours in values["tensors"].items():
            row = Row(theirs, *([ours] if isinstance(ours, str) else ours))
            if row.layout not in LAYOUTS:
                raise ValueError(f"{row.layout!r} is no layout; there are {', '.join(LAYOUTS)}")
            found.append(row)
        table = Table(
            tuple(found),
            Numbers(**values["numbers"]),
            dict(values.get("tied", {})),
            tuple(values.get("ignored", ())),
        )
        return MapFile(path, table, json.loads(values["config"]))
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} is no map of tensors: {error}.") from None


def _scalar(text: str) -> str:
    """Quoted where YAML would take the text for something else."""
    return text if text[0].isalpha() else f'"{text}"'
