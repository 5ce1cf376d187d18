"""How many parameters a model has, and where."""

from __future__ import annotations

from collections.abc import Iterable
from math import prod

from .experts import Experts
from .figure import Figure
from .figures_shares import Shares, looked_up
from .flops import product_flops, used_parameters
from .run import Run

# What chooses by a value: which experts run, for one.
_CHOICES = frozenset(
    f"aten.{name}"
    for name in ("topk", "sort", "argmax", "argmin", "argsort", "multinomial", "nonzero")
)


class ParameterCounts:
    """Of the whole model, without padding, a tied parameter once.

    - `active`: those that the forward reads, a table whole; of experts that the runtime deals
      tokens out to, as much as a token goes to (k of E). Where another step of the forward chooses
      by a value (`topk`), which of them a token uses is not known.
    - `training`: those of modules that run with labels alone (they predict further tokens).
    - `embedding`: the tables that rows are looked up in: of tokens, and of learned positions.
    - `output`: the output layer's own; none where it is an embedding's table.
    - `rest`: all but those two, which model cards call non-embedding.
    """

    def __init__(self, run: Run, shares: Shares) -> None:
        self.sizes = {
            name: prod(record.shape) for name, record in run.table.items() if record.tied_to is None
        }
        used = used_parameters(run.operations)
        self.active = {name for name in self.sizes if run.ran(name) in used}
        self.training = {
            name for name in self.sizes if run.needs_labels(run.ran(name).rpartition(".")[0])
        }
        self.experts = Experts(run)
        self.choices = sorted(
            {
                f"{one.op} in {one.path or 'the model'}"
                for one in run.operations
                if ".".join(one.op.split(".")[:2]) in _CHOICES and not self.experts.choose(one)
            }
        )
        tables = {name for one in run.operations if (name := looked_up(one)) is not None}
        self.embedding = tables & set(self.sizes)
        weights = {
            form.name
            for one in run.operations
            if one.attention is None and product_flops(one) and shares.of(one) == "output"
            for form in one.inputs
            if form.name is not None
        }
        self.output = (weights & set(self.sizes)) - self.embedding
        self.tied = bool(weights & self.embedding)

    def figures(self) -> list[Figure]:
        used = sum(self.sizes[name] * self.experts.used(name) for name in self.active)
        active: int | None = round(used)
        why = ""
        if self.choices:
            active, why = None, f"which ones a token uses is not known: {self.choices[0]}"
        rest = set(self.sizes) - self.embedding - self.output
        return [
            Figure("parameters", "parameters", self._count(self.sizes)),
            Figure("parameters.active", "active", active, level=1, note=why),
            *(
                [Figure("parameters.training", "in training alone", more, level=1)]
                if (more := self._count(self.training))
                else []
            ),
            Figure("parameters.embedding", "embedding", self._count(self.embedding), level=1),
            Figure(
                "parameters.output",
                "output layer",
                self._count(self.output),
                level=1,
                note="is the embedding" if self.tied else "",
            ),
            Figure("parameters.rest", "non-embedding", self._count(rest), level=1),
        ]

    def _count(self, names: Iterable[str]) -> int:
        return sum(self.sizes[name] for name in names)
