"""Which part of a model an operation or a parameter belongs to, for the figures."""

from __future__ import annotations

from .calls import Operation
from .flops import Share
from .tree import Part

_SHARES: dict[str, Share] = {
    "attention": "projections",
    "mixer": "mixers",
    "mlp": "mlp",
    "experts": "experts",
    "router": "experts",
    "output": "output",
}
_LOOKUPS = ("aten.embedding.default", "aten.index.Tensor", "aten.index_select.default")


class Shares:
    """Goes by the kinds of the parts in an architecture's tree, and by what gives the logits."""

    def __init__(self, root: Part, output_weight: str | None = None) -> None:
        self._root = root
        self._output_weight = output_weight

    def of(self, operation: Operation) -> Share:
        """The output where it reads the output layer's weight, else the share of the module that
        runs it; where that has none of its own (a root that computes its loss by itself), of the
        module whose parameter it reads. A product with an embedding's table is the output.
        """
        names = {form.name for form in operation.inputs} - {None}
        if self._output_weight in names:
            return "output"
        share = self._at(operation.path)
        if share != "other":
            return share
        for form in operation.inputs:
            if form.name is not None:
                owner = form.name.rpartition(".")[0]
                share = "output" if "embedding" in self._kinds(owner) else self._at(owner)
                if share != "other":
                    return share
        return "other"

    def _at(self, path: str) -> Share:
        """The share of the innermost part around a module that has one."""
        found = [_SHARES[kind] for kind in self._kinds(path) if kind in _SHARES]
        return found[-1] if found else "other"

    def _kinds(self, path: str) -> list[str]:
        """The kinds of the parts from the root to a module, outermost first."""
        part, rest, kinds = self._root, path.split(".") if path else [], [_kind(self._root)]
        while rest:
            step = next(((c, n) for c in part.children if (n := _taken(c, rest))), None)
            if step is None:
                break
            part, taken = step
            rest = rest[taken:]
            kinds.append(_kind(part))
        return kinds


def _kind(part: Part) -> str:
    return "experts" if part.kind == "mlp" and part.fact("experts") is not None else part.kind


def _taken(part: Part, path: list[str]) -> int:
    """How many segments of a path the part is, 0 where it is not on it."""
    name = part.name.split(".")
    if path[: len(name)] != name:
        return 0
    if not part.indices:
        return len(name)
    number = path[len(name) : len(name) + 1]
    return len(name) + 1 if number and number[0].isdigit() and int(number[0]) in part.indices else 0


def looked_up(operation: Operation) -> str | None:
    """The tensor with a name whose rows it looks up, if it does."""
    return operation.inputs[0].name if operation.op in _LOOKUPS and operation.inputs else None
