"""A config.json as it is read: each field is used, known to be harmless, or an error."""

from __future__ import annotations

import difflib
from collections.abc import Collection, Mapping
from typing import Any, NoReturn

from specc.runtime.refusal import Refusal

from .harmless import EXPECTED, HARMLESS, PREFIXES


class Fields:
    """The fields of one config, each of which has to be asked for.

    A field that is missing has the value that the family's own class gives it. Every method
    raises Refusal with the field's name and value where it is not what the family can be.
    """

    def __init__(self, values: Mapping[str, Any], family: str, defaults: Mapping[str, Any]) -> None:
        self.values = dict(values)
        self.family = family
        self.defaults = defaults
        self._asked: set[str] = {"model_type"}

    def __contains__(self, name: str) -> bool:
        """Whether the file has the field, and not as null."""
        return self.values.get(name) is not None

    def raw(self, name: str) -> Any:
        """The value as it stands, or the family's default; None where there is none."""
        self._asked.add(name)
        return self.values[name] if name in self.values else self.defaults.get(name)

    def integer(self, name: str) -> int:
        """A whole number above 0."""
        value = self.raw(name)
        if type(value) is not int or value < 1:
            self.refuse(name, "it has to be a whole number above 0")
        return value

    def count(self, name: str) -> int:
        """A whole number, 0 too."""
        value = self.raw(name)
        if type(value) is not int or value < 0:
            self.refuse(name, "it has to be a whole number")
        return value

    def number(self, name: str) -> float:
        value = self.raw(name)
        if isinstance(value, bool) or not isinstance(value, int | float):
            self.refuse(name, "it has to be a number")
        return value

    def flag(self, name: str) -> bool:
        value = self.raw(name)
        if not isinstance(value, bool):
            self.refuse(name, "it has to be true or false")
        return value

    def choice(self, name: str, options: Mapping[str, str]) -> str:
        """What ``options`` has for the text that the field holds."""
        value = self.raw(name)
        if not isinstance(value, str) or value not in options:
            self.refuse(name, f"supported are {', '.join(options)}")
        return options[value]

    def optional_integer(self, name: str) -> int | None:
        return None if self.raw(name) is None else self.integer(name)

    def optional_number(self, name: str) -> float | None:
        return None if self.raw(name) is None else self.number(name)

    def names(self, name: str, options: Collection[str], count: int) -> list[str] | None:
        """A list of ``count`` texts, each one of ``options``; None where there is none."""
        value = self.raw(name)
        if value is None:
            return None
        fits = isinstance(value, list) and all(entry in options for entry in value)
        if not fits or len(value) != count:
            self.refuse(name, f"it has to be a list of {count} out of {', '.join(options)}")
        return list(value)

    def must_be(self, name: str, *allowed: Any, why: str = "") -> None:
        """The field may only have one of these values, where it is there at all."""
        value = self.raw(name)
        if (value is None and name not in self.values) or any(_same(value, a) for a in allowed):
            return
        self.refuse(name, why or f"supported is {' or '.join(map(shown, allowed))}")

    def harmless(self, *names: str) -> None:
        """These fields say nothing of the model in this family."""
        self._asked.update(names)

    def refuse(self, name: str, reason: str) -> NoReturn:
        """Raises Refusal: the field, its value and what would be right."""
        missing = name not in self.values and name not in self.defaults
        value = self.values.get(name, self.defaults.get(name))
        given = f"`{name}` is missing" if missing else f"`{name}` is {shown(value)}"
        raise Refusal(f"The config of this {self.family} model: {given}; {reason}.")

    def finish(self) -> None:
        """Raises Refusal where a field is left that nobody asked for: nothing is dropped."""
        left = []
        for name, value in self.values.items():
            if name in self._asked or name in HARMLESS or name.startswith(PREFIXES):
                continue
            if name in EXPECTED:
                if value is not None and not any(_same(value, given) for given in EXPECTED[name]):
                    self.refuse(name, f"supported is {shown(EXPECTED[name][0])}")
                continue
            left.append(name)
        if not left:
            return
        near = difflib.get_close_matches(left[0], sorted(self._asked), 1, cutoff=0.8)
        hint = f"; did you mean `{near[0]}`?" if near and near[0] not in self.values else ""
        given = ", ".join(f"`{name}` = {shown(self.values[name])}" for name in left)
        raise Refusal(
            f"The config of this {self.family} model has what specc does not know: {given}"
            f"{hint or '.'} A field is used, known to say nothing of the model, or refused."
        )


def _same(value: Any, other: Any) -> bool:
    return bool(value == other) and isinstance(value, bool) == isinstance(other, bool)


def shown(value: Any) -> str:
    """A value in a sentence: as Python writes it, cut where it is long."""
    text = repr(value)
    return text if len(text) <= 120 else f"{text[:100]}..."
