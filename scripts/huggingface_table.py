#!/usr/bin/env python3
"""Imports and compiles published configs, and writes what came of it into docs/huggingface.md.

    python scripts/huggingface_table.py FOLDER

FOLDER holds config.json files by any name and an INDEX.tsv with the columns file, model and
params_published (empty where it is not known). The table of families is written too.
"""

from __future__ import annotations

import argparse
import csv
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

from specc.compiler.generate import generate
from specc.compiler.load import forget_last
from specc.compiler.target import parse_target
from specc.huggingface.families import FAMILIES
from specc.huggingface.write import import_model
from specc.runtime.refusal import Refusal

DOCS = Path(__file__).parents[1] / "docs" / "huggingface.md"


def families() -> Iterator[str]:
    """The rows of the table of families; tests/huggingface/test_hf_docs.py holds them."""
    yield "| family | `model_type` | compared with | refused |"
    yield "|---|---|---|---|"
    for family in FAMILIES.values():
        peer = "transformers" if family.in_transformers else "its published size"
        yield f"| {family.title} | `{family.model_type}` | {peer} | {family.limits} |"


def models(folder: Path) -> Iterator[str]:
    """The rows of the table of published models, those that compile first."""
    yield "| model | parameters | published | page lines | seconds |"
    yield "|---|---|---|---|---|"
    refused = []
    with (folder / "INDEX.tsv").open(newline="") as file, tempfile.TemporaryDirectory() as work:
        for row in csv.DictReader(file, delimiter="\t"):
            print(row["model"], file=sys.stderr, flush=True)
            try:
                yield _compiled(folder / row["file"], row, Path(work))
            except Refusal as refusal:
                refused.append(f"| {row['model']} | {_short(str(refusal))} |")
    yield ""
    yield "| model | why it is refused |"
    yield "|---|---|"
    yield from refused


def _compiled(config: Path, row: dict[str, str], work: Path) -> str:
    spec, _ = import_model(str(config), work / "model_spec.py", force=True)
    begin = time.perf_counter()
    forget_last()
    found = generate(parse_target(str(spec)), ())
    seconds = time.perf_counter() - begin
    lines = found.page(work / "model.py").count("\n")
    count, published = found.compiled.parameters, row["params_published"]
    same = "" if not published else "the same" if int(published) == count else published
    return f"| {row['model']} | {count:,} | {same} | {lines} | {seconds:.1f} |"


def _short(sentence: str) -> str:
    """Without what every sentence begins with, and without a bar that ends a cell."""
    _, _, reason = sentence.partition(": ")
    return (reason or sentence).replace("|", "\\|")


def write(mark: str, rows: list[str]) -> None:
    """Put the rows between `<!-- MARK -->` and `<!-- end -->`."""
    text = DOCS.read_text(encoding="utf-8")
    before, rest = text.split(f"<!-- {mark} -->\n", 1)
    _, after = rest.split("<!-- end -->", 1)
    body = "\n".join(rows)
    DOCS.write_text(f"{before}<!-- {mark} -->\n{body}\n<!-- end -->{after}", encoding="utf-8")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("folder", type=Path, nargs="?", help="configs and an INDEX.tsv")
    folder = parser.parse_args().folder
    write("families", list(families()))
    if folder is not None:
        write("models", list(models(folder)))


if __name__ == "__main__":
    main()
