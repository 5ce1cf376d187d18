"""Explainers, each made once, and a measure of an answer that asks nothing of the compiler's map.

The measure reads the page's line and the source file anew: every name on the line has to stand in
a statement that the answer names, or be one that folding may write anywhere.
"""

from __future__ import annotations

import ast
import functools
import io
import keyword
import re
import sys
import tokenize
from pathlib import Path

from configurations import spec_of
from test_random_configurations import configurations

from specc.compiler.generate import trace
from specc.compiler.pipeline import trace_spec
from specc.compiler.sources.answer import Answer, Place
from specc.compiler.sources.why import Explainer
from specc.compiler.target import parse_target

ROOT = Path(__file__).parents[2]
EXAMPLES = ROOT / "generated_examples"


# Rows of the table of pairs: most option values are in them.
CHOSEN = (0, 7, 14, 21, 28, 35)


@functools.cache
def example(spec: str) -> Explainer:
    return Explainer(trace(parse_target(spec, EXAMPLES)))


@functools.cache
def random_one(row: int) -> Explainer:
    return Explainer(trace_spec(spec_of(configurations()[row])))


def class_lines(text: str) -> list[int]:
    """The lines of a page's classes that have words, the config's apart."""
    lines = text.splitlines()
    return [
        number
        for node in ast.parse(text).body
        if isinstance(node, ast.ClassDef) and not node.decorator_list
        for number in range(node.lineno, (node.end_lineno or 0) + 1)
        if lines[number - 1].strip()
    ]


def names(text: str) -> set[str]:
    """The names in a piece of code, whole or not: no keywords, nothing of comments and strings."""
    found = set()
    try:
        for token in tokenize.generate_tokens(io.StringIO(text).readline):
            if token.type == tokenize.NAME and not keyword.iskeyword(token.string):
                found.add(token.string)
    except (tokenize.TokenError, IndentationError):
        pass  # a part of a statement: what it has so far counts
    return found


def source_file(place: Place) -> Path:
    for package in ("templates", "runtime"):
        prefix = f"specc/{package}/"
        if place.file.startswith(prefix):
            folder = Path(sys.modules[f"specc.{package}"].__file__ or "").parent
            return folder / place.file.removeprefix(prefix)
    return Path(place.file) if Path(place.file).is_absolute() else Path.cwd() / place.file


def written_anywhere(text: str) -> set[str]:
    """Names that folding may write in any class: what the page binds at its top, the config's
    fields and properties, and what it hands on."""
    found = {"config", "mesh", "parallel_mesh", "model_config", "self", "kind", "_", "super", "nn"}
    for node in ast.parse(text).body:
        if isinstance(node, (ast.Import, ast.ImportFrom)):
            found |= {alias.asname or alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, (ast.ClassDef, ast.FunctionDef)):
            found.add(node.name)
        if isinstance(node, ast.ClassDef) and node.decorator_list:
            for item in node.body:
                if isinstance(item, ast.AnnAssign):
                    found.add(ast.unparse(item.target))
                elif isinstance(item, ast.FunctionDef):
                    found.add(item.name)
    return found | {"Module", "range", "enumerate", "zip", "__init__", "i"}


def unfounded(answer: Answer, anywhere: set[str], docstring: bool) -> set[str]:
    """The words on the page's line that are not where the answer says: names of its code in none
    of the statements, words of a comment or a docstring in none of the lines shown."""
    code, said = set(anywhere), ""
    for reason in answer.because:  # what the compiler puts there itself it says so of
        if "put there for a pipeline" in reason.text:
            code |= set(re.findall(r"`(\w+)`", reason.text))
    for place in answer.places:
        lines = source_file(place).read_text(encoding="utf-8").splitlines()
        for number, text in place.shown:
            assert lines[number - 1] == text, f"{place.file}:{number} is not {text!r}"
            said += f"{text}\n"
        code |= names("\n".join(lines[place.first - 1 : place.last]))
    if docstring:
        return set(re.findall(r"\w+", answer.text)) - set(re.findall(r"\w+", said))
    _, _, comment = answer.text.partition("#")
    wrong = set(re.findall(r"\w+", comment)) - set(re.findall(r"\w+", said))
    return wrong | (names(answer.text.strip()) - code)


def docstring_lines(text: str) -> set[int]:
    """The lines of the docstrings of a page's classes and functions."""
    found: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node):
            found |= set(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return found
