"""The examples in the texts of `specc explain`, taken out of them and run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from spliced import spliced

from specc.compiler.explain.explanations import explanation, tiny_spec
from specc.compiler.generate import generate
from specc.compiler.load import forget_last
from specc.compiler.target import parse_target
from specc.templates.diagnostic import SpecError

WRONG = ("Wrong:", "Told of:", "Warned of:")
RIGHT = ("Right:", "Without the note:", "Without the note, and the same page:", "Without it:")
FENCE = re.compile(r"^```(\w+)(?: (\S+))?\n(.*?)^```$", re.MULTILINE | re.DOTALL)
PRINTED = re.compile(r"^(?:error|warning|note)\[(SP\d{3})\]", re.MULTILINE)


@dataclass(frozen=True)
class Block:
    """A fenced block: its language, the file that it is, and its text."""

    language: str
    file: str
    text: str


@dataclass(frozen=True)
class Example:
    """What a text calls wrong and what it calls right."""

    wrong: tuple[Block, ...]
    right: tuple[Block, ...]


def example(code: str) -> Example:
    """The example of a code's text; both sides are empty where it has none."""
    sides: dict[str, list[Block]] = {"wrong": [], "right": []}
    side, text = None, explanation(code).text
    place = 0
    for found in FENCE.finditer(text):
        for line in text[place : found.start()].splitlines():
            side = "wrong" if line in WRONG else "right" if line in RIGHT else side
        place = found.end()
        if side is not None:
            sides[side].append(Block(found[1], found[2] or "", found[3]))
    return Example(tuple(sides["wrong"]), tuple(sides["right"]))


def told(blocks: tuple[Block, ...], run: Callable[[list[str]], str]) -> set[str]:
    """The codes that specc tells of an example, in the current folder.

    Python and YAML are files; without a command the spec is compiled, not validated. `run` gives
    what a `specc` command writes to stderr; the codes are those of the last command.
    """
    commands: list[str] = []
    target = "tiny_spec.py:model"
    for block in blocks:
        if block.language == "sh":
            commands += block.text.splitlines()
        elif block.language == "yaml":
            target = block.file or "tiny.yaml"
            Path(target).write_text(block.text, encoding="utf-8")
        elif block.file:
            Path(block.file).write_text(block.text, encoding="utf-8")
        else:
            Path("tiny_spec.py").write_text(spliced(block.text, tiny_spec()), encoding="utf-8")
    if commands:
        if not Path("tiny_spec.py").exists():
            Path("tiny_spec.py").write_text(tiny_spec(), encoding="utf-8")
        return commanded(commands, run)
    return compiled(target)


def compiled(target: str) -> set[str]:
    forget_last()
    try:
        generated = generate(parse_target(target), validate=False)
    except SpecError as error:
        return {diagnostic.code for diagnostic in error.diagnostics}
    finally:
        forget_last()
        here = f"{Path.cwd()}{os.sep}"
        for name, module in list(sys.modules.items()):
            if str(getattr(module, "__file__", None)).startswith(here):
                del sys.modules[name]
    return {diagnostic.code for diagnostic in (*generated.warnings, *generated.notes)}


def commanded(commands: list[str], run: Callable[[list[str]], str]) -> set[str]:
    printed = ""
    for line in commands:
        words = shlex.split(line)
        if words[0] == "specc":
            printed = run(words[1:])
        else:
            subprocess.run(line, shell=True, check=True)
    return set(PRINTED.findall(printed))
