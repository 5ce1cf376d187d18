"""Read: the architecture of a page's model, from a run of it."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import torch
from torch import nn

from .calls import ModuleCall, values
from .children import Child, attributes, children_of, is_chain
from .config_numbers import all_numbers, config_numbers
from .edges import edges_of
from .facts import facts_of
from .facts_torch import torch_facts
from .flow import Flow
from .initial import Laws
from .kinds import is_library, kind_of, library_kind
from .known import Facts, Known
from .made import tensor_digest
from .read_attention import Attentions
from .read_steps import PHASES, Steps
from .repeats import collapsed
from .run import Run
from .tree import Architecture, Part, Weight


def read(run: Run) -> Architecture:
    """The parts of a run's model, with all that is known of them.

    Layers that are equal in all that they hold and compute are one part, whatever their classes
    are called.
    """
    root = _Reader(run).root()
    return Architecture(run.name, root, config_numbers(run.config, root), all_numbers(run.config))


class _Reader:
    def __init__(self, run: Run) -> None:
        self.run = run
        self.first_paths = {id(module): path for path, module in run.model.named_modules()}
        self.attentions, self.steps = Attentions(run), Steps(run)
        self.laws = Laws(run)
        self.read_already: dict[str, tuple[tuple[Any, ...], Part]] = {}

    def root(self) -> Part:
        part = self.part("", self.run.model, "", element=False)
        facts = {**self.model_facts(), **dict(part.facts)}
        return replace(part, name=part.label, kind="model", facts=tuple(facts.items()))

    def model_facts(self) -> Facts:
        """The width of the model and its vocabulary, from the product that gives the logits."""
        run, found = self.run, Facts()
        record = run.table.get(run.output_weight or "")
        if record is not None and len(record.shape) == 2:
            width = run.calls["train"][""][0].values[0].shape[-1]
            inner = record.shape[0] if record.shape[1] == width else record.shape[1]
            found |= {"hidden": inner, "vocabulary": width}
        if run.loss is not None:
            found["loss"] = run.loss
        return found

    def part(self, path: str, module: nn.Module, name: str, *, element: bool) -> Part:
        """The part that a module is; of one that stands for many, each gives the same."""
        # A module that stands at several places runs by the name of the first.
        ran = self.run.ran(self.first_paths[id(module)])
        held = self.held(path, module)
        known = self.read_already.get(ran)
        if known is not None and known[0] == held:
            return replace(known[1], name=name)
        part = self.new_part(path, ran, module, name, element=element)
        self.read_already.setdefault(ran, (held, part))
        return part

    def held(self, path: str, module: nn.Module) -> tuple[Any, ...]:
        """What two modules of one kind may still differ in: ties, and how their values start."""
        prefix = f"{path}." if path else ""
        names = [n for n, _ in module.named_parameters(remove_duplicate=False)]
        records = (self.run.table[prefix + n] for n in names)
        laws = [(n, r, self.laws.words(prefix + n)) for n, r in zip(names, records, strict=True)]
        buffers = [(n, tensor_digest(self.run.made, b)) for n, b in module.named_buffers()]
        return (*laws, *buffers)

    def new_part(self, path: str, ran: str, module: nn.Module, name: str, *, element: bool) -> Part:
        kind = library_kind(module)
        # What a loss keeps of a step is no part of the model.
        children = () if kind in ("router part", "loss") else self.children(path, module)
        calls = {phase: self.run.calls.get(phase, {}).get(ran, ()) for phase, _ in PHASES}
        call = next((of_one[0] for of_one in calls.values() if of_one), None)
        weights = self.weights(path, module)
        own_attention = self.attentions.of(call)
        if kind is None:
            attends = bool(own_attention)
            kind = kind_of(call, children, attends=attends, element=element)
        if kind == "linear" and self.gives_logits(path, weights):
            kind = "output"
        attention = own_attention
        if kind == "attention" and not attention:
            children, attention = self.attentions.with_core(ran, children)
        known = Known(module, call, weights, children, attention, self.takes_tokens(path, call))
        facts = facts_of(kind, known) | self.other_facts(path, module, calls, element)
        flows = self.steps.flows(calls, ran) if not is_library(module) else []
        operations, detail = self.steps.lines(flows)
        return Part(
            name,
            kind,
            type(module).__name__,
            tuple(facts.items()),
            weights,
            operations,
            self.steps.exact(module, flows, detail, weights),
            children=children,
            edges=self.edges(flows, children),
            detail=detail,
        )

    def children(self, path: str, module: nn.Module) -> tuple[Part, ...]:
        found: list[Part] = []
        for child in _direct(module):
            inner = f"{path}.{child.path}" if path else child.path
            place = child.place
            part = self.part(inner, child.module, child.name, element=place is not None)
            found.append(part if place is None else replace(part, indices=(place,)))
        return collapsed(found)

    def weights(self, path: str, module: nn.Module) -> tuple[Weight, ...]:
        prefix = f"{path}." if path else ""
        found = []
        for name, _ in module.named_parameters(recurse=False, remove_duplicate=False):
            record = self.run.table[prefix + name]
            found.append(Weight(name, record.shape, record.dim, record.tied_to))
        return tuple(found)

    def gives_logits(self, path: str, weights: tuple[Weight, ...]) -> bool:
        """Whether one of its weights is the model's last product's, by another name or its own."""
        names = {w.tied_to or (f"{path}.{w.name}" if path else w.name) for w in weights}
        return self.run.output_weight in names

    def takes_tokens(self, path: str, call: ModuleCall | None) -> bool:
        """Whether an embedding looks up what the model is called with: ids of shape [b, s]."""
        if call is None:
            return False
        given = [v for _, form in call.inputs for v in values(form)]
        shapes = [(1, self.run.places), (self.run.places, 1)]
        tokens = [v for v in given if v.dtype is not None and not v.dtype.is_floating_point]
        return any(v.shape in shapes for v in tokens) and not _is_positions(path, self.run)

    def other_facts(self, path: str, module: nn.Module, calls: Any, element: bool) -> Facts:
        found = torch_facts(module)
        prefix = f"{path}." if path else ""
        for name, parameter in module.named_parameters(recurse=False):
            if self.run.table[prefix + name].tied_to is not None:
                continue
            law = self.laws.words(prefix + name)
            if not _goes_without_saying(name, law, module):
                found["init" if name == "weight" else f"init {name}"] = law
            if not parameter.requires_grad and name != "expert_bias":  # which a router tells
                found["frozen"] = True
            if parameter.dtype != torch.float32:
                found[f"dtype {name}"] = str(parameter.dtype).removeprefix("torch.")
        for name, buffer in module.named_buffers(recurse=False):
            digest = tensor_digest(self.run.made, buffer)
            if digest is not None:
                found[f"buffer {name}"] = digest
        ran = self.run.ran(path)
        if self.run.needs_labels(ran) and not self.run.needs_labels(ran.rpartition(".")[0]):
            found["runs"] = "in training alone"
        times = len(calls["train"])
        if times > 1 or (element and not any(calls.values())):
            found["calls"] = times
        return found

    def edges(self, flows: list[tuple[str, Flow]], children: tuple[Part, ...]) -> Any:
        if not flows or not children:
            return ()
        segments: dict[str, str] = {}
        for part in children:
            segments.setdefault(part.name, part.segment)
            for index in part.indices:
                segments[f"{part.name}.{index}"] = part.segment

        def segment(name: str) -> str | None:
            while name:
                if name in segments:
                    return segments[name]
                name = name.rpartition(".")[0]
            return None

        return edges_of(flows[0][1], segment, self.run.places)


def _direct(module: nn.Module) -> list[Child]:
    """A chain that is a part itself, in a list or as the root, has its elements by their names."""
    if is_chain(module) or isinstance(module, nn.ModuleList):
        return [Child(name, None, name, child) for name, child in attributes(module)]
    return list(children_of(module))


def _is_positions(path: str, run: Run) -> bool:
    from specc.runtime import PositionEmbedding

    return isinstance(run.model.get_submodule(path), PositionEmbedding)


def _goes_without_saying(name: str, law: str, module: nn.Module) -> bool:
    """Biases from 0, and the weights of norms from where they change nothing."""
    if name.endswith("bias"):
        return law in ("0", "uniform ±1/√in")
    centred = getattr(module, "zero_centered", False)
    return name == "weight" and law == ("0" if centred else "1")
