"""The file beside a page that says where its tensors are in Hugging Face's: NAME_hf.yaml.

`specc import hf` writes it, and `specc weights` reads it for both directions. It is data: a row
may be changed by hand, and a model of one's own may have a file written by hand.
"""

from __future__ import annotations

import dataclasses
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
# This page's tensors, and Hugging Face's: read by `specc weights import` and `export`.
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
        theirs = _scalar(row.theirs)
        if row.layout != "same":
            theirs = f'["{row.theirs}", "{row.layout}"]'
        lines.append(f"  {_scalar(row.ours)}: {theirs}")
    numbers = {f.name: getattr(table.numbers, f.name) for f in dataclasses.fields(Numbers)}
    if not table.numbers.in_parts:  # no mixer
        numbers = {name: numbers[name] for name in ("heads", "groups", "head_dim")}
    shown = (f"{name}: {list(v) if isinstance(v, tuple) else v}" for name, v in numbers.items())
    lines.append(f"numbers: {{{', '.join(shown)}}}")
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
        for ours, theirs in values["tensors"].items():
            theirs, *layout = [theirs] if isinstance(theirs, str) else theirs
            row = Row(theirs, ours, *layout)
            if row.layout not in LAYOUTS:
                raise ValueError(f"{row.layout!r} is no layout; there are {', '.join(LAYOUTS)}")
            found.append(row)
        table = Table(
            tuple(found),
            _numbers(values["numbers"]),
            dict(values.get("tied", {})),
            tuple(values.get("ignored", ())),
        )
        return MapFile(path, table, json.loads(values["config"]))
    except (yaml.YAMLError, ValueError, KeyError, TypeError, AttributeError) as error:
        raise Refusal(f"{path} is no map of tensors: {error}.") from None


def _numbers(values: Mapping[str, Any]) -> Numbers:
    found: dict[str, Any] = {n: tuple(v) if isinstance(v, list) else v for n, v in values.items()}
    return Numbers(**found)


def _scalar(text: str) -> str:
    """Quoted where YAML would take the text for something else."""
    return text if text[0].isalpha() else f'"{text}"'
