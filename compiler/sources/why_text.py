"""What `specc why` prints."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Iterable

from .answer import Answer, Because, Explained, FieldFact, Place

SCHEMA_VERSION = 1


def as_text(explained: Explained) -> str:
    """For a terminal: the lines of the page, the lines that they come from, the reasons."""
    blocks = [f"note: {note}" for note in explained.notes]
    blocks += [_answers(explained.page, group) for group in _grouped(explained.answers)]
    return "\n\n".join(blocks)


def as_json(explained: Explained) -> str:
    """One object: `schema_version`, `page`, `notes`, and an entry of `lines` for each line."""
    lines = [
        {
            "line": answer.line,
            "text": answer.text,
            "made_by": answer.made_by,
            "places": [_place_fields(place) for place in answer.places],
            "because": [
                {"text": b.text, "at": b.at or None, "fields": _fields(b.fields)}
                for b in answer.because
            ],
            "reads": _fields(answer.reads),
            "notes": list(answer.notes),
        }
        for answer in explained.answers
    ]
    whole = {
        "schema_version": SCHEMA_VERSION,
        "page": explained.page,
        "notes": list(explained.notes),
        "lines": lines,
    }
    return json.dumps(whole, indent=2, ensure_ascii=False)


def _place_fields(place: Place) -> dict[str, object]:
    return {
        "file": place.file,
        "line": place.line,
        "statement": [place.first, place.last],
        "inside": place.inside or None,
        "lines": [{"line": number, "text": text} for number, text in place.shown],
    }


def _fields(facts: tuple[FieldFact, ...]) -> list[dict[str, str]]:
    return [dataclasses.asdict(fact) for fact in facts]


def _grouped(answers: Iterable[Answer]) -> list[list[Answer]]:
    """Lines one after another that are of one statement, of which the same is to be said."""
    groups: list[list[Answer]] = []
    for answer in answers:
        if groups and _subject(groups[-1][-1]) == _subject(answer):
            groups[-1].append(answer)
        else:
            groups.append([answer])
    return groups


def _subject(answer: Answer) -> object:
    where = [(place.file, place.first, place.last) for place in answer.places]
    return answer.made_by, where, answer.because, answer.notes


def _answers(page: str, answers: list[Answer]) -> str:
    """One statement of a page, or one line of it."""
    first, last = answers[0], answers[-1]
    numbers = [n for answer in answers for place in answer.places for n, _ in place.shown]
    width = len(str(max([last.line, *numbers])))
    pad = " " * width
    lines = [f"{page}:{first.line}" + (f"-{last.line}" if last is not first else "")]
    lines += [f"{answer.line:>{width}} | {answer.text}".rstrip() for answer in answers]
    for position, place in enumerate(first.places):
        arrow = "-->" if position == 0 else ":::"
        inside = f", in {place.inside}" if place.inside else ""
        lines.append(f"{pad}{arrow} {place.file}:{place.line}{inside}")
        shown = {n: text for answer in answers for n, text in answer.places[position].shown}
        lines += _excerpt(shown, width)
    lines += [f"{pad} = {note}" for note in first.notes]
    for because in first.because:
        lines += _because(because, pad)
    for fact in dict.fromkeys(fact for answer in answers for fact in answer.reads):
        lines.append(f"{pad} = reads {_field(fact)}")
    return "\n".join(lines)


def _excerpt(shown: dict[int, str], width: int) -> list[str]:
    lines: list[str] = []
    previous = None
    for number, text in sorted(shown.items()):
        if previous is not None and number > previous + 1:
            lines.append("...")
        lines.append(f"{number:>{width}} | {text}".rstrip())
        previous = number
    return lines


def _because(because: Because, pad: str) -> list[str]:
    at = f" ({because.at})" if because.at else ""
    return [f"{pad} = {because.text}{at}", *(f"{pad}     {_field(f)}" for f in because.fields)]


def _field(fact: FieldFact) -> str:
    return f"{fact.name} = {fact.value}: {fact.origin}"
